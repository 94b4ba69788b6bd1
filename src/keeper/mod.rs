//! Keeps leases: feeds the core machines with votes, commands and time, and carries out their effects.
//!
//! A [`Keeper`] has a few *shards*, by default one for each core. A shard is a thread with a runtime that nothing else
//! uses; it owns thousands of machines in one slab, with one timer queue, one system timer, one inbox for commands and
//! one for votes. A lease has no task, no timer and no channel of its own: an idle one costs its machine and about
//! 200 bytes. Nothing else in the process delays a shard, and the redis connections have a thread of their own, see
//! [`crate::nodes`].
//!
//! The rest of the process sends commands through a [`LeaseHandle`] and receives views through an [`Observer`]. A shard
//! never begins an attempt by itself: one [`LeaseHandle::want`] is one attempt. It does pace rounds and attempts after
//! an outage, and it spreads the renewals of many leases over their interval, see [`pace`].

mod machine;
mod pace;
mod shard;
mod slots;
mod timers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redislease_core::lease::{Config, Publication, Renewal, TermId, View};
use redislease_core::op::{Attempt, Holder};
use tokio::sync::watch;

use crate::metrics::panics::Panics;
use crate::nodes::Nodes;
use shard::ShardHandle;
use slots::LeaseId;

/// Receives what one lease reports. It is called on the thread of the lease's shard, which keeps thousands of other
/// leases: it must not block. If it panics, its lease is dropped.
pub trait Observer: Send + 'static {
    /// A round of renewal ended; `ttl_ms` is the lease's duration.
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64);
    /// The view changed.
    fn changed(&self, view: &View);
    /// The machine is gone: it retired, was closed, or failed by a defect. This is the last call.
    fn ended(&self) {}
}

/// What a lease begins with.
pub struct Setup {
    /// The nodes of the lease's quorum; `None` while nobody knows where they are: then nothing can be confirmed, and
    /// what was adopted is lost in time.
    pub nodes: Option<Nodes>,
    /// The lease's keys as the nodes know them.
    pub keys: Arc<[String]>,
    /// Its durations.
    pub config: Config,
    /// Receives views and renewals.
    pub observer: Box<dyn Observer>,
}

/// What a machine is told.
#[derive(Debug)]
enum Command {
    Want(Holder),
    Forget,
    Adopt(TermId),
    DoubtShown(Attempt),
    KeptElsewhere(Attempt),
    End { term: TermId, proof: bool },
    Published { attempt: Attempt, outcome: Publication },
    TryNow,
    Configure(Box<Config>),
    Retire,
    Close,
}

/// The shards. When it is dropped, the leases that are open go on until their handles are dropped.
#[derive(Debug)]
pub struct Keeper {
    shards: Vec<ShardHandle>,
    /// Counts the leases that were opened.
    opened: AtomicUsize,
}

impl Keeper {
    /// Starts `shards` threads; 0 stands for one for each core. Panics of machines and observers are counted in
    /// `panics`.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub fn start(shards: usize, panics: &Panics) -> io::Result<Self> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = if shards == 0 { cores() } else { shards };
        let shards =
            (0..count).map(|number| ShardHandle::start(number, panics.keeper.clone())).collect::<Result<_, _>>()?;
        Ok(Self { shards, opened: AtomicUsize::new(0) })
    }

    /// Opens a lease that holds nothing and wants nothing.
    pub fn open(&self, setup: Setup) -> LeaseHandle {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let shard = &self.shards[number % self.shards.len()];
        LeaseHandle { id: shard.open(setup), shard: shard.clone() }
    }

    /// Opens a lease and follows its view. The receiver is closed when the machine is gone. The setup's observer is told
    /// too.
    pub fn open_watched(&self, setup: Setup) -> (LeaseHandle, watch::Receiver<View>) {
        let (views, receiver) = watch::channel(View::default());
        let observer = Box::new(Watched { views, next: setup.observer });
        (self.open(Setup { observer, ..setup }), receiver)
    }

    /// Closes every lease and ends the shards. Returns when the nodes have answered the releases of attempts that were
    /// not published, and after 2 s at the latest.
    pub async fn shutdown(&self) {
        for shard in &self.shards {
            shard.shut_down();
        }
        for shard in &self.shards {
            shard.ended().await;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.end_when_empty();
        }
    }
}

/// An observer that keeps the newest view where others can read it.
struct Watched {
    views: watch::Sender<View>,
    next: Box<dyn Observer>,
}

impl Observer for Watched {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.next.renewed(renewal, ttl_ms);
    }

    fn changed(&self, view: &View) {
        self.next.changed(view);
        self.views.send_replace(view.clone());
    }

    fn ended(&self) {
        self.next.ended();
    }
}

/// An observer that ignores everything.
impl Observer for () {
    fn renewed(&self, _: &Renewal, _: u64) {}
    fn changed(&self, _: &View) {}
}

/// Sends commands to one lease. Nothing here blocks or fails: a lease whose machine is gone has nothing left to do.
/// Dropped, it closes the lease.
#[derive(Debug)]
pub struct LeaseHandle {
    shard: ShardHandle,
    id: LeaseId,
}

impl LeaseHandle {
    /// Makes one attempt to take the lease for `holder`, if it can begin at once. Before [`View::retry_at`], while an
    /// attempt for the same holder is under way, and while a term runs, nothing happens: no wish waits, because the
    /// reason for it may be gone by then. After an outage many wishes come at once; then `retry_at` moves to the lease's
    /// turn. After a failure, a loss or an end the caller wants again at `retry_at`.
    pub fn want(&self, holder: Holder) {
        self.send(Command::Want(holder));
    }

    /// Makes no attempt. One that is under way is given back.
    pub fn forget(&self) {
        self.send(Command::Forget);
    }

    /// Continues a term that the status names and calls active.
    pub fn adopt(&self, term: TermId) {
        self.send(Command::Adopt(term));
    }

    /// The status says that the term of `attempt` is not confirmed.
    pub fn doubt_shown(&self, attempt: Attempt) {
        self.send(Command::DoubtShown(attempt));
    }

    /// The status calls the term of `attempt` active again, after this process had said there that it cannot confirm it.
    pub fn kept_elsewhere(&self, attempt: Attempt) {
        self.send(Command::KeptElsewhere(attempt));
    }

    /// Ends a term; with `proof` that its holder stopped, its keys are released at once.
    pub fn end(&self, term: TermId, proof: bool) {
        self.send(Command::End { term, proof });
    }

    /// Tells what became of the publication of `attempt`.
    pub fn published(&self, attempt: Attempt, outcome: Publication) {
        self.send(Command::Published { attempt, outcome });
    }

    /// Something relevant changed: the next attempt need not wait for its back-off, which moves `retry_at`, nor a renewal
    /// that failed for its retry.
    pub fn try_now(&self) {
        self.send(Command::TryNow);
    }

    /// Changes the durations.
    pub fn configure(&self, config: Config) {
        self.send(Command::Configure(Box::new(config)));
    }

    /// The lease is gone: the machine ends by itself when its last key has ended. A term that runs is to be ended first,
    /// or it is renewed for ever.
    pub fn retire(&self) {
        self.send(Command::Retire);
    }

    /// Stops without ending anything: a term that was published, or is being published, is left for another process; an
    /// attempt before that is released. The same as dropping the handle.
    pub fn close(self) {
        drop(self);
    }

    fn send(&self, command: Command) {
        self.shard.send(self.id, command);
    }
}

impl Drop for LeaseHandle {
    fn drop(&mut self) {
        self.send(Command::Close);
    }
}
