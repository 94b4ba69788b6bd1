//! Composes the status, the conditions and the events of leases and quorums. Pure functions: no client, no clock.
//!
//! Each function takes the status that the API server has, and returns the status that it should have. The two are equal if
//! nothing has happened; the caller then writes nothing. For that reason no message contains an age or a counter that changes by
//! itself.
//!
//! Status never reports that the API server does not answer: no client could read it before the API server answers again, and it
//! would cost two writes per lease.
//!
//! | module | content |
//! |---|---|
//! | `inputs` | [`Inputs`]: what the status of a lease is composed of |
//! | `lease` | `compose`: the status of a lease |
//! | `lease_conditions` | the conditions of a lease |
//! | `terms` | the current term, the last transition and the history of a lease |
//! | `handover` | the last requested handover |
//! | `foreign_holder` | who else holds the keys of a lease |
//! | `observed_terms` | `ObservedTerms`: the terms that this process has observed |
//! | `end` | [`TermEnd`]: why terms end |
//! | `quorum` | [`compose_quorum`]: the status of a quorum |
//! | `notice` | [`Notice`]: events |

mod conditions;
mod end;
mod foreign_holder;
mod handover;
mod inputs;
mod lease;
mod lease_conditions;
mod notice;
mod observed_terms;
mod quorum;
#[cfg(test)]
mod scenarios;
mod terms;

pub use end::TermEnd;
pub use inputs::{HandoverOutlook, HandoverProgress, Inputs, Obstacle, QuorumOutlook};
pub use lease::{Composed, compose, renewal_notice};
pub use lease_conditions::REFUSED_START;
pub use notice::{Importance, Notice, NoticeReason};
pub use observed_terms::ObservedTerms;
pub use quorum::{ComposedQuorum, QuorumInputs, compose_quorum};
