//! Admission cases as one table: valid and invalid objects. A real API server checks every case, the local CEL evaluator
//! those with a rule, and the validated types those about a single object.

mod case;
mod lease;
mod quorum;

pub use case::{Case, Judge, lease, quorum};

/// The whole table.
pub fn all() -> Vec<Case> {
    [
        lease::creations(),
        lease::keys(),
        lease::retry_and_election(),
        lease::activation(),
        lease::selectors(),
        lease::references(),
        lease::durations(),
        lease::delays(),
        lease::changes(),
        lease::statuses(),
        quorum::creations(),
        quorum::node_lists(),
        quorum::access(),
        quorum::changes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
