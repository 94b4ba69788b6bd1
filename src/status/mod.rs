//! What status, conditions and events say about a lease or a quorum: views in, data out. No client, no clock.
//!
//! Every function takes the status the API server holds now and returns the one it should hold. As long as nothing has
//! happened the two are equal, so whoever writes compares them and stays silent. A time never moves by itself, and no
//! sentence contains an age.
//!
//! | module | what it knows |
//! |---|---|
//! | [`lease`] | a lease: what is composed of what |
//! | [`quorum`] | the same for a quorum |
//! | [`witness`] | what this process has seen of the term that the status names |
//! | [`end`] | why terms end, as a fixed set |
//! | [`notice`] | events, as a fixed set of reasons |

pub mod end;
pub mod lease;
pub mod notice;
pub mod quorum;
pub mod witness;

mod composer;
mod conditions;
mod ledger;
mod rival;
#[cfg(test)]
mod stories;

pub use end::TermEnd;
pub use lease::{Composed, Inputs, Obstacle, QuorumOutlook, compose, renewal_notice};
pub use notice::{Importance, Notice, NoticeReason};
pub use quorum::{ComposedQuorum, NodeReport, QuorumInputs, compose_quorum};
pub use witness::Witness;
