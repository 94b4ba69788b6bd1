//! What the other tasks send to the task of the engine.

use redislease_plan::engine::Input;

use crate::operator::quorums::QuorumUpdate;

/// A message of another task.
#[derive(Debug)]
pub enum Message {
    /// An input, as it is.
    Input(Input),
    /// A quorum has changed: its facts, its connections, or the grant of its election.
    Quorum(QuorumUpdate),
    /// The authority of this process over the leases of this quorum has changed.
    Authority(String),
}

impl From<Input> for Message {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}
