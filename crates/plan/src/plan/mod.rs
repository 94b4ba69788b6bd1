//! One pure state machine for each lease, which holds its state and makes its decisions.
//!
//! The machine takes [`Event`]s and returns [`Effect`]s. It has no client, clock or socket, so the operator and the
//! simulator drive the same machine. All events except [`Event::Facts`] are only recorded; [`Event::Facts`] is a turn,
//! which depends only on the current state and can be repeated at any time.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`], [`event`], [`effect`] | the interface |
//! | [`reconciler`] | puts the parts together |
//! | [`output`] | the effects and the next turn of a machine |
//! | [`spec`] | which version of the spec is used: it is valid and fits the quorum |
//! | [`inputs`] | resolve the quorum and the candidates; why no new term may start |
//! | [`block`] | wait for a term on a quorum whose nodes are not known any more |
//! | [`keeper`], [`keeper_link`] | the keeper machine: open, configure, adopt, end |
//! | [`decision`], [`holder_reads`] | what is known about the holder; why its term must end |
//! | [`contend`] | when an attempt may start |
//! | [`publish`], [`context`] | the writes of the status; what they and those of roles depend on |
//! | [`metrics`] | what the metrics show |
//! | [`entitlement`] | which pod may be `active` |
//! | [`roles`], [`desired_role`] | label and token on pods |
//! | [`role_writer`], [`refusals`], [`verification`] | the writes of roles, and what must be read before |
//! | [`activation`] | leases whose pods start only after their election; which ways of activation the operator may use |
//! | [`start`] | when the elected pod may start: pods that were started before may still run |
//! | [`confirmation`] | the direct read of the status that must precede a start |
//! | [`guard`], [`altered`] | the back-off of writes to objects of others; what the API server stored instead |
//! | [`workload`] | when a workload that is a candidate itself is started and stopped |
//! | [`handover`] | requested handovers |
//! | [`leadership`] | which replica decides about the leases of a quorum |
//! | [`calls`] | the order in which calls reach the API server |
//! | [`permits`], [`fair_queue`] | how many leases acquire, publish and write at the same time; tenants take turns |
//! | [`durations`], [`recorded`] | durations for the core, the term in a status |
//! | [`repeat`], [`restarts`] | repeated writes, keeper machines that panicked |

mod activation;
mod altered;
mod block;
pub mod calls;
mod confirmation;
mod contend;
mod context;
mod decision;
mod desired_role;
mod durations;
mod effect;
mod entitlement;
mod event;
mod facts;
mod fair_queue;
pub mod guard;
mod handover;
mod holder_reads;
mod inputs;
mod keeper;
mod keeper_link;
mod leadership;
mod metrics;
mod output;
mod permits;
mod publish;
mod reconciler;
mod recorded;
mod refusals;
pub mod repeat;
mod restarts;
mod role_writer;
mod roles;
mod spec;
mod start;
#[cfg(test)]
mod tests;
mod verification;
mod workload;

pub use altered::{Altered, withdrawal};
pub use effect::{Command, Effect, Measure, PodChange, Priority, Read, RoleWrite, Shown, StatusWrite};
pub use event::{Event, RoleOutcome, StatusOutcome, lacks_right};
pub use facts::{Allowed, Authority, CandidateFacts, Facts, Granted, Identity, OpenQuorum, PodKnowledge, QuorumFacts};
pub use fair_queue::FairQueue;
pub use keeper_link::{must_be_read_before, needs_turn};
pub use leadership::{Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts};
pub use permits::{PERMITS, PermitUse, PermitUses, Permits, Permitted};
pub use reconciler::Reconciler;
pub use spec::{SpecCache, SpecFacts};
