//! One owner per lease: a task that feeds the core with votes and time, and carries out what it says.
//!
//! The owner needs nothing but its nodes and its clock: renewal goes on while everything else in the process, or the
//! API server, is busy or gone. The rest of the house gives it [`Keeper`] commands and reads the view.

mod owner;

use std::sync::Arc;

use redislease_core::lease::{Config, Publication, Renewal, TermId, View};
use redislease_core::op::{Attempt, Holder};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::clock::Alarm;
use crate::nodes::Nodes;
use crate::nodes::random::Random;
use owner::Owner;

/// What the owner reports beside the view, for metrics. It must not block.
pub trait Observer: Send + 'static {
    /// A round of renewal ended; `ttl_ms` is the lease's duration.
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64);
    /// The view changed.
    fn changed(&self, view: &View);
}

/// What an owner begins with.
pub struct Setup {
    /// The nodes of the lease's quorum; none while nobody knows where they are: then nothing can be confirmed, and
    /// what was adopted is lost in time.
    pub nodes: Option<Nodes>,
    /// The lease's keys as the nodes know them.
    pub keys: Arc<[String]>,
    /// Its durations.
    pub config: Config,
    /// Told of renewals and changes.
    pub observer: Box<dyn Observer>,
}

enum Command {
    Want(Holder),
    Forget,
    Adopt(TermId),
    DoubtShown(Attempt),
    KeptElsewhere(Attempt),
    End { term: TermId, proof: bool },
    Published { attempt: Attempt, outcome: Publication },
    Configure(Config),
    TryNow,
    Retire,
    Stop,
}

/// The rest of the house's side of an owner. Dropped, the owner stops as for [`Keeper::stop`].
pub struct Keeper {
    commands: mpsc::UnboundedSender<Command>,
    view: watch::Receiver<View>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Starts an owner that holds nothing and wants nothing.
    ///
    /// # Errors
    /// When the operating system gives no timer or no randomness.
    pub fn start(setup: Setup) -> std::io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (shown, view) = watch::channel(View::default());
        let owner = Owner::new(setup, inbox, shown, Alarm::new()?, Random::from_system()?);
        Ok(Self { commands, view, task: tokio::spawn(owner.run()) })
    }

    /// Where the lease stands.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Follows where the lease stands.
    pub fn watch(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// Takes the lease for `holder`, try after try, until it is held, forgotten or wanted for somebody else.
    pub fn want(&self, holder: Holder) {
        self.tell(Command::Want(holder));
    }

    /// Takes the lease for nobody.
    pub fn forget(&self) {
        self.tell(Command::Forget);
    }

    /// Goes on with a term that the status names and calls active.
    pub fn adopt(&self, term: TermId) {
        self.tell(Command::Adopt(term));
    }

    /// The status says that the term of `attempt` is not confirmed.
    pub fn doubt_shown(&self, attempt: Attempt) {
        self.tell(Command::DoubtShown(attempt));
    }

    /// The status calls the term of `attempt` active again, after this process had doubted it there.
    pub fn kept_elsewhere(&self, attempt: Attempt) {
        self.tell(Command::KeptElsewhere(attempt));
    }

    /// Ends a term; with `proof` that its holder stopped, its keys are released at once.
    pub fn end(&self, term: TermId, proof: bool) {
        self.tell(Command::End { term, proof });
    }

    /// Tells what became of the publication of `attempt`.
    pub fn published(&self, attempt: Attempt, outcome: Publication) {
        self.tell(Command::Published { attempt, outcome });
    }

    /// Something relevant changed: the next attempt need not wait for its back-off.
    pub fn try_now(&self) {
        self.tell(Command::TryNow);
    }

    /// Changes the durations.
    pub fn configure(&self, config: Config) {
        self.tell(Command::Configure(config));
    }

    /// The lease is no more: the owner ends by itself when the last key has. A term that runs is to be ended first, or it
    /// is renewed for ever.
    pub fn retire(&self) {
        self.tell(Command::Retire);
    }

    /// Whether the owner has ended.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops the owner: an attempt that was not published is given back, a term is left for the next process.
    pub async fn stop(self) {
        self.tell(Command::Stop);
        let _ = self.task.await;
    }

    fn tell(&self, command: Command) {
        // An owner that has ended has nothing left to do.
        let _ = self.commands.send(command);
    }
}
