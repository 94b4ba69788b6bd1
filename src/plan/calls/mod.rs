//! The order in which calls reach the API server: priorities, turns between tenants, limits, pauses after a refusal, and
//! one probe at a time while the API server does not answer. Pure, so the operator and the simulator use the same queue.
//!
//! | module | concept |
//! |---|---|
//! | [`queue`] | the order of the calls, limits, backoff |
//! | [`submission`] | a job to be queued, how urgent it is, and its outcome |
//! | [`gate`] | closed while the API server does not answer |
//! | [`bucket`] | the rate of calls |

mod bucket;
mod gate;
mod queue;
mod submission;

pub use queue::{CONCURRENCY, Queue, Retry};
pub use submission::{Level, Next, Submission, Verdict};
