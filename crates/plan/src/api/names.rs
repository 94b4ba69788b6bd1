//! The labels and annotations that the operator reads and writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Pod annotation with an integer. The operator elects the eligible pod with the greatest value. Default: 0.
pub const PRIORITY_ANNOTATION: &str = "redislease.io/priority";

/// Pod annotation. With the value `"true"` the pod is never elected.
pub const EXCLUDE_ANNOTATION: &str = "redislease.io/exclude";

/// Annotation of a `RedisLease`: requests a handover. Each new value is a new request.
pub const HANDOVER_REQUESTED_ANNOTATION: &str = "redislease.io/handover-requested";

/// Annotation of a `RedisLease`: the target of the requested handover, `pod/NAME` or `cluster/NAME`.
pub const HANDOVER_TO_ANNOTATION: &str = "redislease.io/handover-to";

/// Annotation of a workload: the name of the lease that is created for it, or `"true"` for its own name.
pub const LEASE_ANNOTATION: &str = "redislease.io/lease";

/// Annotation of a workload: the name of a lease, written by hand, that may start and stop it.
pub const ACTIVATED_BY_ANNOTATION: &str = "redislease.io/activated-by";

/// Annotation of a workload: how it becomes active.
pub const ACTIVATION_ANNOTATION: &str = "redislease.io/activation";

/// Annotation of a workload: the number of replicas where it is active.
pub const REPLICAS_ANNOTATION: &str = "redislease.io/active-replicas";

/// Annotation of a workload: the name of the RedisQuorum of its lease.
pub const QUORUM_ANNOTATION: &str = "redislease.io/quorum";

/// Prefix of the annotations that users write.
pub const ANNOTATION_PREFIX: &str = "redislease.io/";

/// Annotation of a `RedisLease` that the operator created for an annotated workload: kind and name of the workload, such as
/// `Deployment/billing`.
pub const CREATED_FOR_ANNOTATION: &str = "redislease.io/created-for";

/// Label of the objects that the operator creates. Its value is [`MANAGED_BY`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "redislease";

/// The longest value of an annotation that is kept, in bytes: every longer one is invalid. Users choose the values, and the
/// operator keeps those of all pods and workloads.
pub const LONGEST_VALUE: usize = 256;

/// The workload for which the operator has made the lease, such as `Deployment/billing`. Kubernetes deletes the lease together with the
/// workload. While the lease exists, the pods of a deleted workload may run on: after a deletion with `--cascade=orphan`, or while a
/// finalizer keeps the workload.
pub fn created_for(lease: &ObjectMeta) -> Option<&String> {
    let managed = lease.labels.as_ref()?.get(MANAGED_BY_LABEL);
    let created_for = lease.annotations.as_ref()?.get(CREATED_FOR_ANNOTATION);
    created_for.filter(|_| managed.is_some_and(|by| by == MANAGED_BY))
}

/// The value of an annotation, cut if it is too long. The mark at its end makes it invalid.
pub fn cut(value: &str) -> String {
    let fits = value.floor_char_boundary(LONGEST_VALUE);
    if fits == value.len() { value.to_owned() } else { format!("{}…", &value[..fits]) }
}

/// Whether the key of a label or an annotation is under `redislease.io`: in this domain or in a domain below it.
pub fn is_ours(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == DOMAIN || domain.strip_suffix(DOMAIN).is_some_and(|below| below.ends_with('.'))
}

/// The prefixes of label keys that no selector of pods may use. The first one is that of the keys that users write. With the second one,
/// the operator writes labels to pods, and it writes no other labels to them.
pub const RESERVED_LABELS: [&str; 2] = [ANNOTATION_PREFIX, ROLE_PREFIX];

/// Whether no selector may use this label key.
pub fn is_reserved_label(key: &str) -> bool {
    RESERVED_LABELS.iter().any(|prefix| key.starts_with(prefix))
}

/// The domain of all labels and annotations that the operator reads or writes.
const DOMAIN: &str = "redislease.io";

/// Prefix of the pod label that says whether the pod is active for a lease.
const ROLE_PREFIX: &str = "lease.redislease.io/";

/// Prefix of the pod annotation with the fencing token of a lease.
const TOKEN_PREFIX: &str = "token.redislease.io/";

/// Prefix of the pod annotation that says that the operator let the pod start, with the fencing token of the term.
const STARTED_PREFIX: &str = "started.redislease.io/";

/// Prefix of the annotation that says for which lease and object the operator has written a workload.
const OWNER_PREFIX: &str = "owner.redislease.io/";

/// Prefix of the annotation that counts how often the operator has withdrawn a workload.
const WITHDRAWN_PREFIX: &str = "withdrawn.redislease.io/";

/// Maximum length of the name of a `RedisLease`. The name becomes the part of a label key after the slash.
pub const MAX_LEASE_NAME: usize = 63;

/// The value of the role label on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodRole {
    /// The pod holds the lease.
    Active,
    /// The pod is a candidate and does not hold the lease.
    Standby,
}

impl PodRole {
    /// The value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }
}

/// The key of the pod label whose value is `active` or `standby` for this lease.
pub fn role_label(lease: &str) -> String {
    format!("{ROLE_PREFIX}{lease}")
}

/// The key of the pod annotation with the fencing token of this lease, a decimal number.
pub fn token_annotation(lease: &str) -> String {
    format!("{TOKEN_PREFIX}{lease}")
}

/// The name of the scheduling gate of this lease.
pub fn scheduling_gate(lease: &str) -> String {
    role_label(lease)
}

/// The key of the annotation of a pod whose scheduling gate the operator removed. Its value is [`started_mark`].
pub fn started_annotation(lease: &str) -> String {
    format!("{STARTED_PREFIX}{lease}")
}

/// The value of [`started_annotation`]. With the UID, a copy of the annotations of a pod says nothing about another pod.
pub fn started_mark(token: &str, pod_uid: &str) -> String {
    format!("{token}.{pod_uid}")
}

/// Whether it is the [`started_mark`] of this pod, and not one that was copied from another pod.
pub fn is_started_mark(mark: &str, pod_uid: &str) -> bool {
    mark.split_once('.').is_some_and(|(_, uid)| uid == pod_uid)
}

/// The key of the annotation of a workload that the operator has written. Its value is `<lease UID>.<object UID>`: a copy of the
/// manifest, and a lease or a workload that was created again, have other UIDs.
pub fn owner_annotation(lease: &str) -> String {
    format!("{OWNER_PREFIX}{lease}")
}

/// The key of the annotation of a workload with the last withdrawal: `<token>.<n>`. Each withdrawal raises `n`, so that the
/// API server always stores a new version, and a start that names an earlier version is refused.
pub fn withdrawn_annotation(lease: &str) -> String {
    format!("{WITHDRAWN_PREFIX}{lease}")
}

/// The name of the lease in the key of a role label, or `None` for other keys.
pub fn lease_of_role_label(key: &str) -> Option<&str> {
    key.strip_prefix(ROLE_PREFIX)
}

/// The name of the lease in the key of a token annotation, or `None` for other keys.
pub fn lease_of_token_annotation(key: &str) -> Option<&str> {
    key.strip_prefix(TOKEN_PREFIX)
}

/// The name of the lease in the key of an annotation that the operator has written, or `None` for other keys.
pub fn lease_of_mark(key: &str) -> Option<&str> {
    [TOKEN_PREFIX, STARTED_PREFIX, OWNER_PREFIX, WITHDRAWN_PREFIX].iter().find_map(|prefix| key.strip_prefix(prefix))
}

/// As [`lease_of_mark`], on a workload. The operator starts pods only: another mark was copied from one.
pub fn lease_of_workload_mark(key: &str) -> Option<&str> {
    lease_of_mark(key).filter(|_| !key.starts_with(STARTED_PREFIX))
}

/// Whether `name` is a DNS label: the format of namespaces and of node names in a `RedisQuorum`.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_object_name(name)
}

/// Whether `name` can be the name of a cluster: the operator's `--cluster-name`.
pub fn is_cluster_name(name: &str) -> bool {
    name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Whether the API server accepts `name` as an object name: DNS labels separated by dots, at most 253 characters.
pub fn is_object_name(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

/// Whether a lease can have this name.
pub fn is_lease_name(name: &str) -> bool {
    is_object_name(name) && name.len() <= MAX_LEASE_NAME
}

/// Whether this value of [`LEASE_ANNOTATION`] is the name of a lease. The words of YAML for a truth value, `1` and `0` are not: whoever writes them
/// means `"true"` or `"false"`.
pub fn names_a_lease(value: &str) -> bool {
    is_lease_name(value) && !["true", "false", "yes", "no", "on", "off", "1", "0"].contains(&value)
}
