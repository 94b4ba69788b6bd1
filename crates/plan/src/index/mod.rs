//! Compact facts from the watches: leases, pods, workloads and quorums. Pure and synchronous.
//!
//! An event names the leases it concerns. Only those become due for a turn, once each, however many events arrive. Leases
//! with the same selector share one electorate, which is computed once after a change.
//!
//! | module | concept |
//! |---|---|
//! | [`store`] | [`Index`], which puts the others together |
//! | [`leases`] | which leases exist |
//! | [`pods`] | which pods exist, and for deleted pods whether their processes have provably ended |
//! | [`listing`] | the list of one kind, while it is in progress |
//! | [`namespace`], [`selectors`] | the pods of one namespace by the selectors of its leases |
//! | [`namespace_labels`] | which namespaces may use which quorums |
//! | [`candidates`] | which pods, or which workload, are the candidates of a lease |
//! | [`workloads`] | the selectors of the workloads that leases name |
//! | [`quorums`] | the facts about quorums that leases use |
//! | [`orphans`] | pods and workloads with marks of leases that do not exist |

mod candidates;
mod ids;
mod leases;
mod listing;
mod namespace;
mod namespace_labels;
mod orphans;
mod pods;
mod pruned;
mod quorums;
mod selectors;
mod store;
mod workloads;

pub use crate::plan::calls::{Asked, WorkloadFound, WorkloadKey, WorkloadRead};
pub use ids::{LeaseId, is_older};
pub use leases::LeaseEntry;
pub use listing::Listing;
pub use namespace_labels::NamespaceFacts;
pub use orphans::Orphan;
pub use pods::ListCount;
pub use quorums::ImplausibleToken;
pub use store::Index;
pub use workloads::WorkloadChange;
