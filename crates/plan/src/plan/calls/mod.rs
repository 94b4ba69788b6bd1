//! All calls to the API server except the watches: a pure machine that the operator and the simulator drive.
//!
//! A caller submits a [`Request`] and gets its [`Outcome`]. The machine decides what is sent and when: priorities, turns between
//! tenants, limits, pauses after a refusal, and one probe at a time while the API server does not answer. It also decides
//! what an [`Answer`] means, repeats unanswered reads, and sends nothing that only the leader may send once this process leads
//! no more.
//!
//! For each lease and quorum it holds at most one status write, for each lease at most eight role writes, and for each lease,
//! workload and secret at most one read of each kind. A newer call replaces an older one that was not sent yet.

mod answer;
mod gate;
mod judge;
mod limits;
mod machine;
mod managers;
mod queue;
mod refusal;
mod request;
mod submission;

pub use answer::{
    Answer, Asked, Body, CallError, Changed, Found, Outcome, RoleAnswer, Stored, WorkloadFound, WorkloadKey,
    WorkloadRead,
};
pub use judge::Judged;
pub use limits::Limits;
pub use machine::{Calls, Effect};
pub use request::{CLUSTER_NAMESPACE, EventKey, Key, LeaseName, Request};
pub use submission::{Priority, Verdict};
