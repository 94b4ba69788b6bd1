//! The interface of a shard for other threads: an inbox, and the end of its task.

use std::sync::{Arc, Mutex, PoisonError};

use redislease_core::driver::{Command, Ids, Input, LeaseId};
use redislease_core::op::Holder;
use redislease_core::time::Millis;
use tokio::sync::watch;

use super::Setup;
use crate::mailbox::Mailbox;

/// A message to a shard.
pub(super) enum Message {
    /// Open a lease, and make the attempt, if there is one.
    Open(LeaseId, Box<Setup>, Option<FirstAttempt>),
    Command(LeaseId, Command),
    /// An input for all leases.
    All(Input),
    /// Stop when no lease is open.
    EndWhenEmpty,
    ShutDown,
    /// Runs in the shard, outside the work on one lease.
    #[cfg(test)]
    Run(fn()),
}

pub(super) struct FirstAttempt {
    pub holder: Holder,
    /// See [`Command::KeepKeysFor`].
    pub least_life: Millis,
}

/// The interface of a shard for other threads.
#[derive(Clone, Debug)]
pub(super) struct ShardHandle(pub(super) Arc<Shared>);

/// State shared by a shard and its handles.
#[derive(Debug)]
pub(super) struct Shared {
    pub inbox: Mailbox<Message>,
    ids: Mutex<Ids>,
    pub ended: watch::Sender<bool>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Shared {
    pub fn take_id(&self) -> LeaseId {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn give_back(&self, id: LeaseId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).give_back(id);
    }
}

impl ShardHandle {
    pub fn new() -> Self {
        Self(Arc::new(Shared { inbox: Mailbox::new(), ids: Mutex::default(), ended: watch::Sender::new(false) }))
    }

    /// The handle of a shard that has ended: its leases end at once.
    pub fn ended_already() -> Self {
        let shard = Self::new();
        drop(shard.0.inbox.close());
        shard.0.ended.send_replace(true);
        shard
    }

    pub fn open(&self, setup: Setup, first: Option<FirstAttempt>) -> LeaseId {
        let id = self.0.take_id();
        if let Err(Message::Open(_, setup, _)) = self.0.inbox.send(Message::Open(id, Box::new(setup), first)) {
            setup.observer.ended();
        }
        id
    }

    pub fn send(&self, id: LeaseId, command: Command) {
        // A shard that has ended has no machines, so the command is dropped.
        let _ = self.0.inbox.send(Message::Command(id, command));
    }

    pub fn shut_down(&self) {
        let _ = self.0.inbox.send(Message::ShutDown);
    }

    pub fn end_when_empty(&self) {
        let _ = self.0.inbox.send(Message::EndWhenEmpty);
    }

    /// Returns when the shard has ended.
    pub async fn ended(&self) {
        // `self` holds the sender.
        let _ = self.0.ended.subscribe().wait_for(|ended| *ended).await;
    }
}
