//! One pure state machine for each lease, which holds its state and makes its decisions.
//!
//! The machine takes [`Event`]s and returns [`Effect`]s. It has no client, clock or socket, so the operator and the
//! simulator drive the same machine. All events except [`Event::Facts`] are only recorded; [`Event::Facts`] is a turn,
//! which depends only on the current state and can be repeated at any time.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`], [`event`], [`effect`], [`output`] | the interface; the effects and the next turn of a machine |
//! | [`reconciler`], [`machine`] | puts the parts together; what the engine needs of it |
//! | [`spec`], [`inputs`], [`block`] | the spec in use; the quorum and the candidates of a turn; why no new term may start |
//! | [`keeper`], [`keeper_link`], [`durations`], [`restarts`] | the keeper machine: open, configure, adopt, end |
//! | [`views`] | the newest view of a keeper machine, for a turn that comes later |
//! | [`contend`], [`key_reads`] | when an attempt may start; when the keys are read because none can |
//! | [`holder`], [`direct_read`], [`handover`] | what is known about the holder; reads that are repeated; requested handovers |
//! | [`publish`], [`repeat`], [`recorded`], [`metrics`] | the writes of the status; the term in it; what the metrics show |
//! | [`entitlement`], [`roles`], [`desired_role`], [`context`] | which pod may be `active`; label and token on pods |
//! | [`role_writer`], [`verification`], [`guard`], [`altered`], [`refusals`] | the writes of roles: what is read before, their back-off, and what the API server stored or refused |
//! | [`activation`], [`start`], [`confirmation`] | pods that start only after their election: when, and what must be read before |
//! | [`workload`] | when a workload that is a candidate itself is started and stopped |
//! | [`quorum`], [`leadership`] | one RedisQuorum: its spec, why it cannot be used, its status; which replica decides about its leases |
//! | [`calls`], [`permits`], [`fair_queue`], [`bucket`] | the calls to the API server; how many leases acquire, publish and write at the same time; rates |

mod activation;
mod altered;
mod authority_changes;
mod block;
mod bucket;
pub mod calls;
mod confirmation;
mod contend;
mod context;
mod desired_role;
mod direct_read;
mod durations;
mod effect;
mod entitlement;
mod event;
mod facts;
mod fair_queue;
mod gap;
pub mod guard;
mod handover;
mod holder;
mod inputs;
mod keeper;
mod keeper_link;
mod key_reads;
mod leadership;
mod machine;
mod metrics;
mod output;
mod permits;
mod publish;
mod quorum;
mod reconciler;
mod recorded;
mod refusals;
mod repeat;
mod restarts;
mod role_writer;
mod roles;
mod spec;
mod start;
mod stop_test;
mod template_label;
#[cfg(test)]
mod tests;
mod timers;
mod verification;
mod views;
mod workload;

pub use altered::Altered;
pub use bucket::Bucket;
pub use calls::Priority;
pub(crate) use desired_role::is_written;
pub use effect::{Command, Effect, Measure, PodChange, Read, RoleWrite, Shown, StatusWrite};
pub use event::{Event, RoleOutcome, StatusOutcome, WriteOutcome, lacks_right};
pub use facts::{Allowed, Authority, CandidateFacts, Facts, Granted, Identity, OpenQuorum, PodKnowledge, QuorumFacts};
pub use fair_queue::FairQueue;
pub use handover::HANDOVER_HEAD_START;
pub use leadership::{Leadership, LeadershipEffect};
pub use machine::Machine;
pub use permits::{PERMITS, PermitUse, PermitUses, Permits, Permitted};
pub use quorum::{ObservedQuorum, QuorumChange, QuorumReconciler, all_tried};
pub use reconciler::Reconciler;
pub use spec::{SpecCache, SpecFacts};
pub use timers::Timers;
pub use views::{News, Views};
