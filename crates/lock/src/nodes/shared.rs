//! The state that the tasks of one quorum and its handles share.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redislease_core::driver::Proposals;
use redislease_core::judge::Judge;
use redislease_core::op::{Op, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::servers::Servers;
use redislease_core::time::{Millis, Time};
use tokio::sync::watch;

use super::Keyspace;
use super::access::Access;
use super::address::Address;
use super::board::Board;
use super::floor::Floor;
use super::message::Message;
use crate::mailbox::Mailbox;

/// State shared by the tasks of one quorum.
#[derive(Debug)]
pub(super) struct Shared {
    pub quorum: Quorum,
    pub keyspace: Keyspace,
    pub longest_lease: Millis,
    /// The nodes are asked at the same instants, so that an idle process wakes once for all of them. They are counted from here: many
    /// processes on one machine are spread over time.
    pub opened_at: Time,
    /// In milliseconds.
    pub command_timeout: AtomicU64,
    /// By node.
    pub ports: Vec<Port>,
    pub board: Board,
    /// Which node votes with which server.
    pub servers: Mutex<Servers>,
    /// Tells a step of a node's clock from a jump of this process's clock.
    pub judge: Mutex<Judge>,
    /// When everything that had begun became void last.
    pub void_at: watch::Sender<Option<Time>>,
    pub floor: Floor,
    /// What the attempts propose. The nodes outlive the leases of a program that locks and unlocks.
    pub proposals: Mutex<Proposals>,
    pub access: watch::Sender<Access>,
}

/// The interface to the task of one node.
#[derive(Debug)]
pub(super) struct Port {
    pub inbox: Mailbox<Message>,
    pub reach: Reach,
    pub address: Mutex<Address>,
}

impl Port {
    pub fn new(address: Address) -> Self {
        Self { inbox: Mailbox::new(), reach: Reach::default(), address: Mutex::new(address) }
    }

    pub fn address(&self) -> Address {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The vote on a request that need not be sent, because the node is disconnected or has no vote.
    pub fn vote_at_once(&self, op: &Op) -> Option<Vote> {
        let is_sent = op.is_sent(self.reach.is_connected(), self.reach.votes());
        (!is_sent).then_some(Vote::Abstained)
    }
}

impl Shared {
    pub fn command_timeout(&self) -> Millis {
        Millis(self.command_timeout.load(Ordering::Relaxed))
    }

    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        // The state is consistent between any two statements that change it.
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn proposals(&self) -> MutexGuard<'_, Proposals> {
        self.proposals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When `NodeTask::judge_in_time` must be called. Any of the tasks may do that.
    pub fn judgement_due(&self) -> Option<Time> {
        self.judge().next_deadline(self.command_timeout())
    }
}

/// Whether a request to a node can succeed now. It may lag slightly behind; then the task answers instead.
#[derive(Debug, Default)]
pub(super) struct Reach(AtomicU8);

impl Reach {
    const CONNECTED: u8 = 1;
    const VOTES: u8 = 2;

    pub fn set(&self, connected: bool, votes: bool) {
        let now = u8::from(connected) * Self::CONNECTED + u8::from(votes) * Self::VOTES;
        self.0.store(now, Ordering::Relaxed);
    }

    pub fn is_connected(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::CONNECTED != 0
    }

    pub fn votes(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::VOTES != 0
    }
}
