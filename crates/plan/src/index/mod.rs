//! Compact facts from the watches: leases, pods, workloads and quorums. Pure and synchronous.
//!
//! An event names the leases it concerns. Only those become due for a turn, once each, however many events arrive. Leases
//! with the same selector share one electorate, which is computed once after a change.

mod candidates;
mod ids;
mod leases;
mod listing;
mod namespace;
mod namespace_labels;
mod pods;
mod pruned;
mod quorums;
mod selectors;
mod store;
mod watched;
mod workloads;

pub use crate::plan::calls::{Asked, WorkloadFound, WorkloadKey, WorkloadRead};
pub use ids::{LeaseId, is_older};
pub use leases::LeaseEntry;
pub use listing::Listing;
pub use namespace_labels::NamespaceFacts;
pub use pods::ListCount;
pub use quorums::ImplausibleToken;
pub use store::Index;
pub use store::orphans::Orphan;
pub use watched::Watched;
pub use workloads::WorkloadChange;
