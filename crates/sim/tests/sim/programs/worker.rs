//! What one task of a program remembers.

use redislease_core::lease::Config;
use redislease_core::lock::Lock;
use redislease_core::op::Attempt;

use crate::api::objects::Keys;
use crate::redis::clock::Micros;

/// One request of a task, and the lock that comes from it.
pub struct Worker {
    /// The number of the task in its program.
    pub task: u32,
    /// The number of its lease.
    pub serial: u64,
    pub keys: Keys,
    pub lock: Lock,
    pub config: Config,
    /// True time.
    pub asked_at: Micros,
    pub taken: Option<Taken>,
    /// A write was refused: the program has stopped its work.
    pub knows_loss: bool,
    /// Whether the lock was dropped after a loss, so that its work may go on.
    pub work_goes_on: bool,
    pub wake_at: Option<Micros>,
}

/// When a program got its lock.
#[derive(Clone, Copy)]
pub struct Taken {
    /// True time.
    pub at: Micros,
    /// On the clock of the process.
    pub local: u64,
    pub attempt: Attempt,
}
