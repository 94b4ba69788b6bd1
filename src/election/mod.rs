//! Who should hold a lease, and what is to be done about it now: decisions without a client, a clock or a socket.
//!
//! [`pod`] and [`node`] read what matters from a pod and its node, [`candidates`] says who may be elected, [`decide`] says what comes next.

pub mod candidates;
pub mod decide;
pub mod holder;
pub mod node;
pub mod pod;

pub use candidates::{Electorate, Ineligible};
pub use decide::{Decision, EndCause, HolderPod, Situation, Step, decide};
pub use holder::{Cluster, HolderName};
pub use node::is_off;
pub use pod::{PodFacts, Sighting};
