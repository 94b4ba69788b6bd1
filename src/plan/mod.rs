//! Who should hold a lease, and what is to be done about it now: decisions without a client, a clock or a socket.
//!
//! [`pod`] reads what matters from a pod, [`candidates`] says who may be elected, [`decide`] says what comes next.

pub mod candidates;
pub mod decide;
pub mod holder;
pub mod pod;

pub use candidates::{Electorate, Ineligible};
pub use decide::{Decision, EndCause, HolderPod, Situation, Step, decide};
pub use holder::HolderName;
pub use pod::{PodFacts, Sighting};
