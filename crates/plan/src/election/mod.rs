//! Elections: which pods are eligible, and what the operator does next about a lease. Pure functions: no client, no clock.
//!
//! | item | purpose |
//! |---|---|
//! | [`PodFacts`], [`Annotations`], [`Sighting`], `is_off` | extract the relevant facts from a Pod and from its Node |
//! | [`WorkloadFacts`], [`Candidate`], [`Object`] | the same for a workload that is the only candidate, and what both have in common |
//! | [`Electorate`], [`Ineligible`] | rank the eligible pods; say why each other pod is not eligible |
//! | [`decide()`], [`Situation`], [`Decision`] | decide the next step: acquire the lease for a pod, end the term, or wait |
//! | `HandoverRequest` | a requested handover: parse it, and decide whether it can be carried out |
//! | `takeover` | whether a lease stays with its holder when one replica of the operator fails |
//! | [`HolderName`], [`Cluster`] | the holder's name in the values on the Redis nodes |

mod annotations;
mod candidates;
mod decide;
mod handover;
mod holder;
mod node;
mod object;
mod pod;
pub mod takeover;
mod workload;

pub use annotations::Annotations;
pub use candidates::{Electorate, Eligibility, Ineligible};
pub use decide::{Decision, EndCause, HandoverOrder, HolderPod, Situation, Step, decide};
pub use handover::{HandoverRequest, HandoverResponse, HandoverTarget};
pub use holder::{Cluster, HolderName, InvalidHolderName};
pub use node::is_off;
pub use object::{Object, Run};
pub use pod::{PodFacts, PodObject, PodSpec, PodStatus, Sighting};
pub use workload::{Candidate, WorkloadFacts};
