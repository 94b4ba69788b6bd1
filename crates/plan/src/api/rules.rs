//! The admission rules in CEL. Each has a message of one sentence that names the fields and the valid values.
//!
//! - A rule that converts a field to a duration also checks the field's format. Otherwise the user would get a conversion
//!   error in addition to the message of the field's own rule. The check is the last part of the rule: a failed conversion
//!   counts as true if a later part is true, and for valid fields the later parts are not evaluated.
//! - The API server evaluates every rule at each write of a status, too. A rule that is cheap for valid objects matters.
//! - Rules calculate in milliseconds because CEL cannot multiply a duration.
//! - Messages show values by concatenating strings of limited length. Converting a duration or a number to a string would
//!   exceed the CRD's cost budget.

use kube::core::{Message, Rule};

use super::duration::PATTERN;
use super::names;

/// The field must be a duration longer than 0s and at most `max`.
pub(super) fn duration(field: &str, max: &str) -> Rule {
    let rule =
        format!("self.matches('{PATTERN}') && duration(self) > duration('0s') && duration(self) <= duration('{max}')");
    let message = format!(
        "{field} must be a duration longer than 0s and at most {max}, written in h, m, s and ms, such as 30s, 1m30s or 250ms"
    );
    Rule::new(rule).message(message.as_str())
}

/// The field must be a duration from `least` to `max`.
pub(super) fn duration_from(least: &str, field: &str, max: &str) -> Rule {
    let rule = format!(
        "self.matches('{PATTERN}') && duration(self) >= duration('{least}') && duration(self) <= duration('{max}')"
    );
    let message = format!(
        "{field} must be a duration from {least} to {max}, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms"
    );
    Rule::new(rule).message(message.as_str())
}

/// `rule`, skipped if one of `fields` is not a duration.
fn for_valid_durations(fields: &[&str], rule: &str) -> Rule {
    let rule =
        fields.iter().fold(rule.to_owned(), |rule, field| format!("{rule} || !self.{field}.matches('{PATTERN}')"));
    Rule::new(rule)
}

/// A message with values: a CEL expression over strings.
fn computed(expression: &str) -> Message {
    Message::Expression(expression.into())
}

/// The field is immutable. It must have a default, so that it is always present.
pub(super) fn immutable(field: &str, instead: &str) -> Rule {
    Rule::new(format!("self.{field} == oldSelf.{field}"))
        .message(format!("{field} cannot be changed: {instead}").as_str())
}

/// The optional field is immutable: it also cannot be added or removed.
///
/// The rule belongs on the object that contains the field. A transition rule on the field itself is skipped when the field is
/// added or removed.
pub(super) fn optional_immutable(field: &str, instead: &str) -> Rule {
    Rule::new(format!(
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    ))
    .message(format!("{field} cannot be changed, added or removed: {instead}").as_str())
}

/// What the user can do instead of changing an immutable field of a `RedisLease`.
pub(super) const NEW_LEASE: &str =
    "suspend this RedisLease, wait one leaseDuration, then delete it and create it again";

/// What the user can do instead of changing an immutable field of a `RedisQuorum`.
pub(super) const NEW_QUORUM: &str = "create another RedisQuorum";

/// The field must be a valid object name. The schema excludes the empty string.
pub(super) fn object_name(field: &str) -> Rule {
    let message = format!(
        "{field} must consist of lower-case letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit"
    );
    Rule::new("self.size() == 0 || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message(message.as_str())
}

// RedisLease

pub(super) fn lease_name_fits_a_label_key() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name must be at most 63 characters, because it becomes part of a pod label key")
}

pub(super) fn status_is_kept() -> Rule {
    Rule::new("!has(oldSelf.status) || has(self.status)")
        .message("status cannot be removed: the operator needs it to continue or end the current term")
}

/// A lease of a cluster needs a way to start and stop its workload.
pub(super) fn granularity_cluster_has_one_activation() -> Rule {
    Rule::new(
        "self.granularity != 'Cluster' || (has(self.activation) && has(self.activation.scale) != self.activation.suspend)",
    )
    .message(
        "granularity Cluster needs exactly one of activation.scale and activation.suspend: true, which says how the workload runs in one cluster only",
    )
}

/// The ways of a cluster need a lease of a cluster.
pub(super) fn granularity_pod_has_its_activation() -> Rule {
    Rule::new(
        "self.granularity == 'Cluster' || !has(self.activation) || (!has(self.activation.scale) && !self.activation.suspend)",
    )
    .message(
        "activation.scale and activation.suspend need granularity Cluster: they start and stop the whole workload of a cluster",
    )
}

/// `activation.scale` works for workloads with replicas.
pub(super) fn scale_has_its_workload() -> Rule {
    Rule::new(
        "!has(self.activation) || !has(self.activation.scale) || (has(self.candidates.workloadRef) \
         && self.candidates.workloadRef.kind in ['Deployment', 'StatefulSet'])",
    )
    .message("activation.scale needs candidates.workloadRef with the kind Deployment or StatefulSet")
}

/// `activation.suspend` works for workloads that create jobs.
pub(super) fn suspend_has_its_workload() -> Rule {
    Rule::new(
        "!has(self.activation) || !self.activation.suspend || (has(self.candidates.workloadRef) \
         && self.candidates.workloadRef.kind == 'CronJob')",
    )
    .message("activation.suspend needs candidates.workloadRef with the kind CronJob")
}

/// A lease of a cluster elects no pod.
pub(super) fn granularity_cluster_has_no_pod_fields() -> Rule {
    Rule::new(
        "self.granularity != 'Cluster' || (!has(self.election.unhealthyAfter) \
         && (!has(self.activation) || !self.activation.schedulingGate))",
    )
    .message(
        "election.unhealthyAfter and activation.schedulingGate need granularity Pod: granularity Cluster elects no pod",
    )
}

/// This rule belongs on the root: a rule on the field or on `status` would be skipped when one of them is removed.
pub(super) fn fencing_token_never_decreases() -> Rule {
    Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.fencingToken) || !has(self.status) \
         || (has(self.status.fencingToken) && self.status.fencingToken >= oldSelf.status.fencingToken)",
    )
    .message("status.fencingToken cannot decrease or be removed: stores that check fencing tokens rely on this")
}

pub(super) fn keys_are_valid() -> Rule {
    Rule::new("self.all(key, key.matches('^[A-Za-z0-9._:-]+$'))")
        .message("keys must consist of letters, digits, '.', '_', ':' and '-'; '/' is not allowed")
}

pub(super) fn keys_are_unique() -> Rule {
    Rule::new("self.all(key, self.exists_one(other, other == key))")
        .message("keys must be unique: a lease takes each of its keys once")
}

pub(super) fn lease_covers_three_renewals() -> Rule {
    for_valid_durations(
        &["leaseDuration", "renewInterval", "gracePeriod"],
        "duration(self.leaseDuration).getMilliseconds() >= 3 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1000",
    )
    .message(computed(
        "'leaseDuration (' + self.leaseDuration + ') must be at least 3 * renewInterval (' + self.renewInterval \
         + ') + gracePeriod (' + self.gracePeriod + ') + 1s: the old holder must stop before another pod starts'",
    ))
}

/// This rule is skipped if [`lease_covers_three_renewals`] fails, so that the user gets one message.
pub(super) fn lease_covers_two_renewals_with_drift() -> Rule {
    for_valid_durations(
        &["leaseDuration", "renewInterval", "gracePeriod"],
        "99 * duration(self.leaseDuration).getMilliseconds() >= 100 * (2 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1052) \
         || duration(self.leaseDuration).getMilliseconds() < 3 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1000",
    )
    .message(computed(
        "'leaseDuration (' + self.leaseDuration + ') minus 1 % and 52 ms for clocks must be at least 2 * renewInterval (' \
         + self.renewInterval + ') + gracePeriod (' + self.gracePeriod + ') + 1s: otherwise the lease is lost between two renewals'",
    ))
}

pub(super) fn exactly_one_candidate_source() -> Rule {
    Rule::new("has(self.selector) != has(self.workloadRef)")
        .message("candidates must have exactly one of selector and workloadRef")
}

pub(super) fn selector_is_not_empty() -> Rule {
    Rule::new(
        "(has(self.matchLabels) && self.matchLabels.size() > 0) \
         || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
    )
    .message(
        "candidates.selector must have matchLabels or matchExpressions: an empty selector selects every pod of the namespace",
    )
}

pub(super) fn expressions_are_valid(field: &str) -> Rule {
    Rule::new(
        "!has(self.matchExpressions) || self.matchExpressions.all(one, \
         (one.operator in ['In', 'NotIn'] && has(one.values) && one.values.size() > 0) \
         || (one.operator in ['Exists', 'DoesNotExist'] && (!has(one.values) || one.values.size() == 0)))",
    )
    .message(format!(
        "{field}.matchExpressions must use the operators In and NotIn with values, or Exists and DoesNotExist without values"
    ).as_str())
}

/// The operator writes these labels: a pod would become a candidate, or stop being one, because of a write of the operator.
///
/// Validation rejects exactly the same keys: a lease that is stored and invalid loses its term.
pub(super) fn selector_uses_no_key_of_ours() -> Rule {
    let is_ours = |key: &str| names::RESERVED_LABELS.map(|prefix| format!("{key}.startsWith('{prefix}')")).join(" || ");
    Rule::new(format!(
        "!(has(self.matchLabels) && self.matchLabels.exists(key, {})) \
         && !(has(self.matchExpressions) && self.matchExpressions.exists(one, {}))",
        is_ours("key"),
        is_ours("one.key")
    ))
    .message(
        "candidates.selector must not use a label key under redislease.io: the operator writes these labels, so its own writes would change which pods are candidates",
    )
}

pub(super) fn workload_kind_is_supported() -> Rule {
    Rule::new(
        "(self.apiVersion == 'apps/v1' && self.kind in ['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet']) \
         || (self.apiVersion == 'batch/v1' && self.kind in ['Job', 'CronJob'])",
    )
    .message(computed(
        "'workloadRef must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job or CronJob of batch/v1, not ' \
         + self.kind + ' of ' + self.apiVersion",
    ))
}

pub(super) fn min_delay_at_most_max_delay() -> Rule {
    for_valid_durations(&["minDelay", "maxDelay"], "duration(self.minDelay) <= duration(self.maxDelay)").message(
        computed("'retry.minDelay (' + self.minDelay + ') must be at most retry.maxDelay (' + self.maxDelay + ')'"),
    )
}

/// A quorum is shared: attempts without a pause would slow down the renewals of other leases.
pub(super) fn min_delay_is_long_enough() -> Rule {
    for_valid_durations(&["minDelay"], "duration(self.minDelay) >= duration('50ms')")
        .message(computed("'retry.minDelay (' + self.minDelay + ') must be at least 50ms'"))
}

pub(super) fn max_delay_is_long_enough() -> Rule {
    for_valid_durations(&["maxDelay"], "duration(self.maxDelay) >= duration('1s')")
        .message(computed("'retry.maxDelay (' + self.maxDelay + ') must be at least 1s'"))
}

pub(super) fn strategy_none_has_no_limit() -> Rule {
    Rule::new("self.strategy != 'None' || !has(self.limit) || self.limit == 1")
        .message("retry.limit must be absent or 1 if retry.strategy is None, because None pauses after each attempt")
}

// RedisQuorum

pub(super) fn single_node_is_allowed_explicitly() -> Rule {
    Rule::new("self.nodes.size() != 1 || self.allowSingleNode").message(
        "nodes has one entry, which tolerates no failure: use three nodes, or set allowSingleNode: true for tests",
    )
}

pub(super) fn node_names_are_immutable() -> Rule {
    Rule::new(
        "self.nodes.size() == oldSelf.nodes.size() \
         && self.nodes.all(node, oldSelf.nodes.exists(old, old.name == node.name))",
    )
    .message("nodes cannot be added, removed or renamed, because an old and a new majority might share no node: create another RedisQuorum")
}

pub(super) fn addresses_change_one_at_a_time() -> Rule {
    Rule::new(
        "self.nodes.filter(node, oldSelf.nodes.exists(old, old.name == node.name && old.address != node.address)).size() <= 1",
    )
    .message(
        "only one node address can change per update: the other nodes must keep the leases that are held",
    )
}

pub(super) fn addresses_are_unique() -> Rule {
    Rule::new("self.all(node, self.exists_one(other, other.address == node.address))")
        .message("node addresses must be unique: two nodes on one server fail together")
}

pub(super) fn node_name_is_a_dns_label() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "a node name must consist of lower-case letters, digits and '-', and begin and end with a letter or digit",
    )
}

pub(super) fn address_is_host_and_port() -> Rule {
    const PORT: &str = ":[1-9][0-9]{0,4}$";
    Rule::new(format!(
        "(self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?{PORT}') \
         || (self.matches('^\\\\[.*:.*\\\\]{PORT}') && isIP(self.substring(1, self.lastIndexOf(']'))))) \
         && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535"
    ))
    .message(
        "a node address must be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535",
    )
}

pub(super) fn server_name_is_valid() -> Rule {
    Rule::new("self.size() == 0 || self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$') || isIP(self)")
        .message("tls.serverName must be a DNS name or an IP address, such as redis.example.com, without a port")
}

pub(super) fn key_prefix_is_valid() -> Rule {
    Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$')").message(
        "keyPrefix must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or digit",
    )
}

pub(super) fn max_lease_is_immutable() -> Rule {
    Rule::new(format!(
        "!self.maxLeaseDuration.matches('{PATTERN}') || duration(self.maxLeaseDuration) == duration(oldSelf.maxLeaseDuration)"
    ))
    .message(format!(
        "maxLeaseDuration cannot be changed: {NEW_QUORUM}"
    ).as_str())
}
