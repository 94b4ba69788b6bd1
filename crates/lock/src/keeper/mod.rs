//! Keeps leases: passes votes, commands and time to the core machines, and executes their effects.
//!
//! A [`Keeper`] has one *shard* for each quorum, and one for the leases without a quorum. A shard owns thousands of
//! machines in one slab, with one timer queue, one system timer, one inbox for commands and one for votes. A lease has no
//! task, timer or channel: an idle one costs its machine and about 200 bytes. The shard of a quorum runs on the thread of
//! the quorum's nodes: a round needs no wake-up of another thread, and no other work of the process delays it, see
//! [`crate::nodes`].
//!
//! Other modules send commands through a [`LeaseHandle`] and receive views through an [`Observer`]. When attempts and rounds
//! begin, and how a lease retires and closes, is decided in [`redislease_core::driver`].

mod handle;
mod linger;
mod machine;
mod returns;
mod setup;
mod shard;
mod slots;
mod start;
mod timers;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redislease_core::driver::LeaseId;
pub use redislease_core::driver::{Command, Input};
use redislease_core::op::Holder;
use redislease_core::time::{Millis, Time};
pub use setup::{Observer, Policy, Setup};

use crate::PanicObserver;
use crate::nodes::{Nodes, WeakNodes};
use handle::{FirstAttempt, ShardHandle};

/// The shards. Leases that are open when it is dropped continue until their handles are dropped.
#[derive(Debug)]
pub struct Keeper {
    /// For leases without nodes, on a thread of its own. Without it, such a lease ends at once.
    without_nodes: Option<ShardHandle>,
    shards: Mutex<Shards>,
    panics: Arc<dyn PanicObserver>,
}

/// The shards on the threads of nodes.
#[derive(Debug, Default)]
struct Shards {
    running: Vec<(WeakNodes, ShardHandle)>,
    /// No shard starts any more.
    is_shut_down: bool,
}

impl Keeper {
    /// Starts the shard for leases without nodes. `panics` receives a report of each panic of a machine, an observer or a shard.
    ///
    /// # Errors
    /// The operating system cannot create a thread or an event queue.
    pub fn start(panics: Arc<dyn PanicObserver>) -> io::Result<Self> {
        let without_nodes = start::start_on_own_thread(panics.clone())?;
        Ok(Self { without_nodes: Some(without_nodes), shards: Mutex::default(), panics })
    }

    /// A keeper without a thread of its own, for leases that all have nodes.
    pub fn on_nodes(panics: Arc<dyn PanicObserver>) -> Self {
        Self { without_nodes: None, shards: Mutex::default(), panics }
    }

    /// Opens a lease that holds no term and makes no attempt.
    pub fn open(&self, setup: Setup) -> LeaseHandle {
        let shard = self.shard_for(&setup);
        LeaseHandle { id: shard.open(setup, None), shard, open: true }
    }

    /// Opens a lease and makes one attempt for `holder`, as [`open`](Self::open), [`Command::KeepKeysFor`] and
    /// [`Command::Want`] do, with one message to the shard.
    pub fn open_wanted(&self, setup: Setup, least_life: Millis, holder: Holder) -> LeaseHandle {
        let shard = self.shard_for(&setup);
        LeaseHandle { id: shard.open(setup, Some(FirstAttempt { holder, least_life })), shard, open: true }
    }

    fn shard_for(&self, setup: &Setup) -> ShardHandle {
        match &setup.nodes {
            Some(nodes) => self.shard_of(nodes),
            None => self.without_nodes.clone().unwrap_or_else(ShardHandle::ended_already),
        }
    }

    /// The shard on the thread of these nodes. Started when it is needed first. After a shutdown, nobody would end a new one.
    fn shard_of(&self, nodes: &Nodes) -> ShardHandle {
        let mut shards = self.shards();
        if let Some((_, shard)) = shards.running.iter().find(|(of, _)| of.are(nodes)) {
            return shard.clone();
        }
        if shards.is_shut_down {
            return ShardHandle::ended_already();
        }
        shards.running.retain(|(of, _)| !of.are_gone());
        let shard = start::start_on_thread_of(nodes, self.panics.clone());
        shards.running.push((nodes.downgrade(), shard.clone()));
        shard
    }

    fn shards(&self) -> MutexGuard<'_, Shards> {
        // The list is consistent between any two statements that change it.
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<ShardHandle> {
        let shards = self.shards().running.iter().map(|(_, shard)| shard.clone()).collect::<Vec<_>>();
        self.without_nodes.iter().cloned().chain(shards).collect()
    }

    /// Closes every lease and ends the shards. Returns when the nodes have answered the releases of unpublished attempts, and of the
    /// terms that a [`Policy`] lets go, or 2 s after the last lease was closed. A lease that is opened later ends at once.
    pub async fn shutdown(&self) {
        // First: all shards are in the list then.
        self.shards().is_shut_down = true;
        let shards = self.all();
        shards.iter().for_each(ShardHandle::shut_down);
        for shard in shards {
            shard.ended().await;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.all().iter().for_each(ShardHandle::end_when_empty);
    }
}

/// Sends commands to one lease. No method blocks or fails: commands to a machine that has ended are dropped.
///
/// Dropping the handle closes the lease without ending a term: a term that is published, or being published, is left for
/// another process; an earlier attempt is released.
#[derive(Debug)]
pub struct LeaseHandle {
    shard: ShardHandle,
    id: LeaseId,
    /// Whether the lease was not released: then it is closed when the handle is dropped.
    open: bool,
}

impl LeaseHandle {
    /// Gives a command to the lease.
    pub fn command(&self, command: Command) {
        self.shard.send(self.id, command);
    }

    /// Gives [`Command::Release`] to the lease.
    pub fn release(mut self, keep_until: Option<Time>) {
        self.open = false;
        self.command(Command::Release { keep_until });
    }
}

impl Drop for LeaseHandle {
    fn drop(&mut self) {
        if self.open {
            self.command(Command::Close);
        }
    }
}
