//! One process: the reconciler that ships, what its index knows, and its keeper.

use crate::keeper::{Keeper, Turn};
use crate::objects::{LEASE, LEASE_UID};
use crate::shared::{self, NAMESPACE};
use redislease_plan::plan::{Authority, Identity, Machine as _, Reconciler};
use std::sync::Arc;

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    pub reconciler: Reconciler,
    pub keeper: Keeper,
    pub authority: Authority,
    pub now: u64,
    /// The lease that its index knows.
    pub lease: u32,
    /// The objects that its index knows.
    pub objects: Vec<u32>,
    /// For planted bugs: whether it has sent no write of a role since it may decide.
    pub is_first: bool,
    /// For planted bugs: the terms whose end it knew when it had a withdrawal stored.
    pub withdrawn: u8,
}

/// One input of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    Starts,
    LeaseSeen(u32),
    ObjectSeen(usize, u32),
    StatusStored(u32),
    StatusConflict,
    StatusUnanswered,
    StatusWithdrawn,
    LeaseRead(u32),
    RoleStored(usize, u32),
    RoleConflict(usize, u32),
    RoleUnanswered(usize),
    RoleWithdrawn(usize),
    Keeper(Turn),
    Authority(Authority),
    Time(u64),
}

/// What a step causes outside of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// It sends a call.
    Call(u32),
    /// The status write that it has not sent yet must not be sent.
    WithdrawStatus,
    /// The same for the role write at this place.
    WithdrawRole(usize),
    /// It ends a term, perhaps with proof.
    End(u8, bool),
    /// It comes to no end.
    Spins,
}

/// What an input leads to.
#[derive(Debug)]
pub struct Step {
    pub next: u32,
    pub out: Vec<Out>,
}

impl Process {
    /// A process before its first turn.
    pub fn new(cluster: usize, authority: Authority, lease: u32, objects: Vec<u32>) -> Self {
        let identity = Identity {
            cluster: Arc::new(shared::cluster(cluster)),
            namespace: NAMESPACE.into(),
            name: LEASE.into(),
            uid: shared::lease_uid(LEASE_UID),
        };
        let (reconciler, keeper) = (Reconciler::new(&(), identity), Keeper::default());
        Self { reconciler, keeper, authority, now: 1_000_000, lease, objects, is_first: true, withdrawn: 0 }
    }

    /// When it needs its next turn.
    pub fn deadline(&self) -> Option<u64> {
        self.reconciler.next_deadline().map(|at| at.0)
    }
}
