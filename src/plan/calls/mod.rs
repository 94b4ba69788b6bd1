//! The order in which calls reach the API server: priorities, turns between tenants, limits, pauses after a refusal, and
//! one probe at a time while the API server does not answer. Pure, so the operator and the simulator use the same queue.
//!
//! | module | concept |
//! |---|---|
//! | [`queue`] | the order of the calls, limits, backoff |
//! | [`gate`] | closed while the API server does not answer |
//! | [`bucket`] | the rate of calls |

mod bucket;
mod gate;
mod queue;

pub use queue::{CONCURRENCY, Level, Next, Queue, Retry, Submission, Verdict};
