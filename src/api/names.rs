//! The names the operator reads and writes on other objects: one place, so that a selector in a manifest never drifts from the code.

/// API group of both resources.
pub const GROUP: &str = "redislease.io";

/// API version of both resources.
pub const VERSION: &str = "v1alpha1";

/// Annotation on a pod: an integer; the candidate with the greatest is elected first. Absent counts as 0.
pub const PRIORITY_ANNOTATION: &str = "redislease.io/priority";

/// Annotation on a pod: `"true"` takes the pod out of every election.
pub const EXCLUDE_ANNOTATION: &str = "redislease.io/exclude";

/// Before the slash of the pod label that says which role the pod plays for a lease.
const ROLE_PREFIX: &str = "lease.redislease.io/";

/// Before the slash of the pod annotation that carries a lease's fencing token.
const TOKEN_PREFIX: &str = "token.redislease.io/";

/// Longest name of a `RedisLease`: it becomes the part of a label key after the slash.
pub const MAX_LEASE_NAME: usize = 63;

/// The two values of the role label on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodRole {
    /// The pod holds the lease.
    Active,
    /// The pod is a candidate, or was the holder.
    Standby,
}

impl PodRole {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }
}

/// Key of the pod label `active` or `standby` for the lease of this name.
pub fn role_label(lease: &str) -> String {
    format!("{ROLE_PREFIX}{lease}")
}

/// Key of the pod annotation that carries the fencing token of the lease of this name, as a decimal number.
pub fn token_annotation(lease: &str) -> String {
    format!("{TOKEN_PREFIX}{lease}")
}

/// The lease a pod's label key speaks of: how labels of leases that are gone are found.
pub fn lease_of_role_label(key: &str) -> Option<&str> {
    key.strip_prefix(ROLE_PREFIX)
}

/// The lease a pod's annotation key speaks of.
pub fn lease_of_token_annotation(key: &str) -> Option<&str> {
    key.strip_prefix(TOKEN_PREFIX)
}

/// Whether the text is a DNS label, as namespaces and nodes are called.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_object_name(name)
}

/// Whether the text is what the API server takes for the name of an object: DNS labels with dots between them.
pub fn is_object_name(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_lease_and_are_read_back() {
        assert_eq!(role_label("billing"), "lease.redislease.io/billing");
        assert_eq!(token_annotation("billing"), "token.redislease.io/billing");
        assert_eq!(lease_of_role_label(&role_label("billing")), Some("billing"));
        assert_eq!(lease_of_token_annotation(&token_annotation("billing")), Some("billing"));
        assert_eq!(lease_of_role_label("app.kubernetes.io/name"), None);
        assert_eq!(PodRole::Active.as_str(), "active");
        assert_eq!(PodRole::Standby.as_str(), "standby");
    }
}
