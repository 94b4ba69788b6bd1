//! The annotations that the operator knows.

/// The annotations of a workload, without their prefix.
pub const KNOWN: [&str; 9] = [
    "lease",
    "quorum",
    "granularity",
    "lease-duration",
    "renew-interval",
    "grace-period",
    "activation",
    "active-replicas",
    "activated-by",
];
