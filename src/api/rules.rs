//! The admission rules in CEL: each says, in one sentence, which fields disagree and what would be right.
//!
//! Every rule that reads a duration first asks whether it is one: the field's own rule has told the user already, and a conversion error
//! would add a second line that helps nobody. Sums are formed in milliseconds, since CEL cannot multiply a duration. Messages show
//! values by joining strings of bounded length; turning a duration or a number into a string would exceed the cost budget of the CRD.

use kube::core::{Message, Rule};

use super::duration::PATTERN;

/// The field is a duration longer than zero and at most `max`.
pub(super) fn duration(field: &str, max: &str) -> Rule {
    Rule::new(format!(
        "self.matches('{PATTERN}') && duration(self) > duration('0s') && duration(self) <= duration('{max}')"
    ))
    .message(says(&format!(
        "{field} must be a duration longer than 0s and at most {max}, written in h, m, s and ms, such as 30s, 1m30s or 250ms"
    )))
}

/// `rule`, unless one of the fields it reads is not a duration.
fn over_durations(fields: &[&str], rule: &str) -> Rule {
    let rule = fields
        .iter()
        .rev()
        .fold(rule.to_owned(), |rule, field| format!("!self.{field}.matches('{PATTERN}') || {rule}"));
    Rule::new(rule)
}

/// A message as it is.
fn says(text: &str) -> Message {
    text.into()
}

/// A message that is computed: a CEL expression over strings.
fn shows(expression: &str) -> Message {
    Message::Expression(expression.into())
}

/// A field that is always there, since it has a default, never changes.
pub(super) fn never_changes(field: &str, instead: &str) -> Rule {
    Rule::new(format!("self.{field} == oldSelf.{field}"))
        .message(says(&format!("{field} cannot be changed: {instead}")))
}

/// An optional field never changes once the object exists.
///
/// It stands on the object that owns the field: a transition rule on the field itself is skipped when the field is added or removed.
pub(super) fn optional_never_changes(field: &str, instead: &str) -> Rule {
    Rule::new(format!(
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    ))
    .message(says(&format!("{field} cannot be changed, added or removed: {instead}")))
}

/// What to do instead of changing a field of a `RedisLease`.
pub(super) const NEW_LEASE: &str = "delete this RedisLease and create it again";

/// What to do instead of changing a field of a `RedisQuorum`.
pub(super) const NEW_QUORUM: &str = "create another RedisQuorum";

/// The field is what the API server takes for the name of an object. That it is not empty, the schema says.
pub(super) fn object_name(field: &str) -> Rule {
    Rule::new("self.size() == 0 || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message(says(&format!(
        "{field} must consist of lower-case letters, digits, '-' and '.', and every part between dots begin and end with a letter or digit"
    )))
}

// RedisLease

pub(super) fn lease_name_fits_a_label() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message(says("metadata.name must be at most 63 characters, since the name becomes part of a pod's label"))
}

pub(super) fn status_never_vanishes() -> Rule {
    Rule::new("!has(oldSelf.status) || has(self.status)").message(says(
        "status cannot be removed: it names the current term, which nobody could continue or end without it",
    ))
}

/// On the root, since a rule on the field or on `status` would be skipped when either is removed.
pub(super) fn fencing_token_never_falls() -> Rule {
    Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.fencingToken) || !has(self.status) \
         || (has(self.status.fencingToken) && self.status.fencingToken >= oldSelf.status.fencingToken)",
    )
    .message(says(
        "status.fencingToken can neither fall nor be removed: a resource that checks it relies on it to grow",
    ))
}

pub(super) fn keys_are_names() -> Rule {
    Rule::new("self.all(key, key.matches('^[A-Za-z0-9._:-]+$'))").message(says(
        "keys must consist of letters, digits, '.', '_', ':' and '-', without '/', which separates them from the namespace",
    ))
}

pub(super) fn keys_are_unique() -> Rule {
    Rule::new("self.all(key, self.exists_one(other, other == key))")
        .message(says("keys must be unique: a lease takes each of its keys once"))
}

pub(super) fn lease_outlasts_three_renewals_and_the_stop() -> Rule {
    over_durations(
        &["leaseDuration", "renewInterval", "gracePeriod"],
        "duration(self.leaseDuration).getMilliseconds() >= 3 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1000",
    )
    .message(shows(
        "'leaseDuration (' + self.leaseDuration + ') must be at least 3 * renewInterval (' + self.renewInterval \
         + ') + gracePeriod (' + self.gracePeriod + ') + 1s: the holder must have stopped before another may start'",
    ))
}

/// Judged where the rule above holds: one sentence is enough.
pub(super) fn lease_outlasts_two_renewals_by_any_clock() -> Rule {
    over_durations(
        &["leaseDuration", "renewInterval", "gracePeriod"],
        "duration(self.leaseDuration).getMilliseconds() < 3 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1000 \
         || 99 * duration(self.leaseDuration).getMilliseconds() >= 100 * (2 * duration(self.renewInterval).getMilliseconds() \
         + duration(self.gracePeriod).getMilliseconds() + 1000)",
    )
    .message(shows(
        "'leaseDuration (' + self.leaseDuration + ') less 1 %, by which clocks may differ, must be at least 2 * renewInterval (' \
         + self.renewInterval + ') + gracePeriod (' + self.gracePeriod + ') + 1s: the lease would end between two renewals'",
    ))
}

pub(super) fn one_way_to_name_candidates() -> Rule {
    Rule::new("has(self.selector) != has(self.workloadRef)")
        .message(says("candidates must have exactly one of selector and workloadRef"))
}

pub(super) fn selector_selects() -> Rule {
    Rule::new(
        "(has(self.matchLabels) && self.matchLabels.size() > 0) \
         || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
    )
    .message(says(
        "candidates.selector must have at least one of matchLabels and matchExpressions: an empty selector selects every pod of the namespace",
    ))
}

pub(super) fn expressions_are_complete() -> Rule {
    Rule::new(
        "!has(self.matchExpressions) || self.matchExpressions.all(one, \
         (one.operator in ['In', 'NotIn'] && has(one.values) && one.values.size() > 0) \
         || (one.operator in ['Exists', 'DoesNotExist'] && (!has(one.values) || one.values.size() == 0)))",
    )
    .message(says(
        "candidates.selector.matchExpressions must have the operators In and NotIn with values, Exists and DoesNotExist without",
    ))
}

pub(super) fn workload_has_a_pod_selector() -> Rule {
    Rule::new(
        "(self.apiVersion == 'apps/v1' && self.kind in ['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet']) \
         || (self.apiVersion == 'batch/v1' && self.kind == 'Job')",
    )
    .message(shows(
        "'workloadRef must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job of batch/v1, not ' \
         + self.kind + ' of ' + self.apiVersion",
    ))
}

pub(super) fn delays_are_ordered() -> Rule {
    over_durations(&["minDelay", "maxDelay"], "duration(self.minDelay) <= duration(self.maxDelay)").message(shows(
        "'retry.minDelay (' + self.minDelay + ') must be at most retry.maxDelay (' + self.maxDelay + ')'",
    ))
}

/// A quorum is shared: whoever retries without a pause disturbs all who hold on it.
pub(super) fn first_delay_is_a_pause() -> Rule {
    over_durations(&["minDelay"], "duration(self.minDelay) >= duration('50ms')")
        .message(shows("'retry.minDelay (' + self.minDelay + ') must be at least 50ms'"))
}

pub(super) fn delays_may_grow() -> Rule {
    over_durations(&["maxDelay"], "duration(self.maxDelay) >= duration('1s')")
        .message(shows("'retry.maxDelay (' + self.maxDelay + ') must be at least 1s'"))
}

pub(super) fn no_retry_has_no_limit() -> Rule {
    Rule::new("self.strategy != 'None' || !has(self.limit) || self.limit == 1")
        .message(says("retry.limit must be absent or 1 if retry.strategy is None, which tries once"))
}

pub(super) fn unhealthy_needs_readiness() -> Rule {
    Rule::new("self.requireReady || !has(self.unhealthyAfter)").message(says(
        "election.unhealthyAfter needs election.requireReady: true, since readiness is ignored otherwise",
    ))
}

// RedisQuorum

pub(super) fn one_node_is_meant() -> Rule {
    Rule::new("self.nodes.size() != 1 || self.allowSingleNode").message(says(
        "nodes has one entry and allowSingleNode is not true: one node tolerates no failure, so name three or say allowSingleNode: true",
    ))
}

pub(super) fn node_names_never_change() -> Rule {
    Rule::new(
        "self.nodes.size() == oldSelf.nodes.size() \
         && self.nodes.all(node, oldSelf.nodes.exists(old, old.name == node.name))",
    )
    .message(says("nodes cannot be added, removed or renamed: majorities of the old and the new set might not meet"))
}

pub(super) fn addresses_change_one_at_a_time() -> Rule {
    Rule::new(
        "self.nodes.filter(node, oldSelf.nodes.exists(old, old.name == node.name && old.address != node.address)).size() <= 1",
    )
    .message(says(
        "nodes may change the address of one node at a time: the others must still know the leases that are held",
    ))
}

pub(super) fn addresses_are_unique() -> Rule {
    Rule::new("self.all(node, self.exists_one(other, other.address == node.address))")
        .message(says("nodes must have an address of their own each: two nodes on one server fail together"))
}

pub(super) fn node_name_is_a_dns_label() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(says(
        "a node's name must consist of lower-case letters, digits and '-', and begin and end with a letter or digit",
    ))
}

pub(super) fn address_is_host_and_port() -> Rule {
    const PORT: &str = ":[1-9][0-9]{0,4}$";
    Rule::new(format!(
        "(self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?{PORT}') \
         || (self.matches('^\\\\[.*:.*\\\\]{PORT}') && isIP(self.substring(1, self.lastIndexOf(']'))))) \
         && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535"
    ))
    .message(says(
        "a node's address must be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535",
    ))
}

pub(super) fn key_prefix_is_plain() -> Rule {
    Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$')").message(says(
        "keyPrefix must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or digit",
    ))
}

pub(super) fn max_lease_never_changes() -> Rule {
    Rule::new(format!(
        "!self.maxLeaseDuration.matches('{PATTERN}') || duration(self.maxLeaseDuration) == duration(oldSelf.maxLeaseDuration)"
    ))
    .message(says(&format!(
        "maxLeaseDuration cannot be changed: {NEW_QUORUM}"
    )))
}
