//! The task that reconciles the quorums with their resources and secrets, and follows their nodes.

mod follow;
#[cfg(test)]
mod tests;

use redislease_plan::engine::{Input, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use redislease_core::time::Time;
use redislease_lock::clock::{self, Alarm};
use redislease_lock::contain::contained;
use redislease_plan::api::RedisQuorum;
use redislease_plan::index::Listing;
use redislease_plan::plan::calls::{Outcome, Request};
use tokio::sync::mpsc::{self, Receiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::entry::{QuorumEntry, Step};
use super::{CONTROLLER, Connection, Parts, secret};
use crate::operator::engine::Message;
use crate::operator::kube_api::CallError;

/// The interval between two reads of a secret. A changed password or certificate is used by new connections.
const SECRET_EVERY: Duration = Duration::from_secs(15);

/// An event of the controller.
enum Event {
    /// A secret was read.
    Secret { quorum: String, secret: String, read: secret::Read },
    /// A status write has an outcome.
    Shown { quorum: String, began: Instant, outcome: Result<Box<RedisQuorum>, CallError> },
    /// The state of a node changed.
    Moved(String),
    /// The nodes of this connection cannot vote before the statuses of all leases are read again.
    FloorWanted { quorum: String, connection: Weak<Connection>, request: u64 },
    /// The machine of the lock on this quorum has a new view.
    Lock(String),
    /// The resource was read for the election; `None` when it does not exist.
    Read { quorum: String, read: Result<Option<Box<RedisQuorum>>, String> },
}

/// The progress of the first list.
enum Start {
    Listing,
    /// Quorums whose secrets were not read yet.
    Reading(BTreeSet<String>),
    Done,
}

struct Controller {
    parts: Parts,
    entries: BTreeMap<String, QuorumEntry>,
    list: Listing<String>,
    start: Start,
    next_id: u64,
    events: UnboundedSender<Event>,
    unused: UnboundedSender<u64>,
}

/// Runs the controller until `stop`.
pub async fn run(parts: Parts, mut watch: Receiver<Watched<RedisQuorum>>, stop: CancellationToken) {
    // The senders must not block. Their number of messages is bounded by the pending calls (at most one of each kind for
    // each quorum), by the changes of nodes (a few in a second) and by the open connections.
    let (events, mut happened) = mpsc::unbounded_channel();
    let (unused, mut unused_ids) = mpsc::unbounded_channel();
    let answered = parts.answered.clone();
    let mut controller = Controller::new(parts, events, unused);
    let mut alarm = match Alarm::new() {
        Ok(alarm) => alarm,
        Err(error) => return tracing::error!(%error, "The controller of RedisQuorums cannot create its timer."),
    };
    let mut secrets = tokio::time::interval(SECRET_EVERY);
    loop {
        if let Err(error) = alarm.set(controller.entries.values().flat_map(QuorumEntry::deadlines).flatten().min()) {
            tracing::error!(%error, "The timer of the controller of RedisQuorums cannot be set.");
            break;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = answered.notified() => controller.elect_where(|entry, _| entry.machine.leadership().awaits_api_answer()),
            expired = alarm.expired() => {
                if let Err(error) = expired {
                    tracing::error!(%error, "The timer of the controller of RedisQuorums failed.");
                    break;
                }
                controller.elect_where(|entry, now| entry.deadlines()[0].is_some_and(|at| at <= now));
                let now = clock::now();
                controller.write_statuses_where(|entry| entry.deadlines()[1].is_some_and(|at| at <= now));
            }
            Some(event) = watch.recv() => controller.take(event),
            Some(event) = happened.recv() => controller.happened(event),
            Some(id) = unused_ids.recv() => controller.unused(id),
            _ = secrets.tick() => {
                controller.read_secrets();
                controller.open_again();
                // An election that began again after a panic waits for no time.
                controller.elect_where(|entry, _| entry.machine.leadership().next_deadline().is_none());
                // Clock offsets change without an event.
                controller.write_statuses_where(|_| true);
            }
        }
        controller.report_progress();
    }
    controller.stop();
}

impl Controller {
    fn new(parts: Parts, events: UnboundedSender<Event>, unused: UnboundedSender<u64>) -> Self {
        Self {
            parts,
            entries: BTreeMap::new(),
            list: Listing::default(),
            start: Start::Listing,
            next_id: 0,
            events,
            unused,
        }
    }

    fn take(&mut self, event: Watched<RedisQuorum>) {
        let name = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            metadata.name.clone().unwrap_or_default()
        };
        match event {
            Watched::ListBegins => self.list.begins(),
            Watched::Seen(quorum) => {
                self.list.contains([quorum.name_any()]);
                self.seen(*quorum, self.list.is_in_progress());
            }
            // An unreadable quorum keeps its last valid configuration.
            Watched::Unreadable(metadata) => self.list.contains([name(&metadata)]),
            Watched::Deleted(quorum) => self.gone(&quorum.name_any()),
            Watched::DeletedUnreadable(metadata) => self.gone(&name(&metadata)),
            // Quorums are in one namespace.
            Watched::Unlisted(_) => {}
            Watched::ListEnds => {
                let list = self.list.ends();
                let present = self.entries.iter().filter(|(_, entry)| entry.exists()).map(|(name, _)| name);
                let lacks = |name: &&String| list.as_ref().is_some_and(|list| list.lacks(name));
                for name in present.filter(lacks).cloned().collect::<Vec<_>>() {
                    self.gone(&name);
                }
                if matches!(self.start, Start::Listing) {
                    self.start = Start::Reading(self.entries.keys().cloned().collect());
                }
                if let Some(part) = self.parts.listed.take() {
                    part.done();
                }
            }
        }
    }

    fn seen(&mut self, quorum: RedisQuorum, listed: bool) {
        let name = quorum.name_any();
        let new = || QuorumEntry::new(self.parts.replica.clone());
        self.entries.entry(name.clone()).or_insert_with(new);
        self.contained(&name, |controller| {
            if let Some(entry) = controller.entries.get_mut(&name) {
                entry.machine.take(quorum, listed);
            }
        });
        self.advance(&name);
    }

    /// Does one piece of work on one quorum. A panic does not affect other quorums. Returns whether the work was done.
    fn contained(&mut self, name: &str, work: impl FnOnce(&mut Self)) -> bool {
        let Err(panicked) = contained(|| work(self)) else { return true };
        self.parts.metrics.panicked();
        tracing::error!(quorum = name, panic = %panicked, "The reconciliation of a RedisQuorum panicked. It is repeated with the next event.");
        false
    }

    fn gone(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.machine.deleted();
            self.advance(name);
        }
    }

    /// Opens the quorums for which the operating system had no thread or file descriptor.
    fn open_again(&mut self) {
        let unopened =
            self.entries.iter_mut().filter_map(|(name, entry)| entry.machine.open_again().then(|| name.clone()));
        for name in unopened.collect::<Vec<_>>() {
            self.advance(&name);
        }
    }

    /// A connection that was to be closed is not used any more.
    fn unused(&mut self, id: u64) {
        let owner = self.entries.iter_mut().find(|(_, entry)| entry.is_retiring(id));
        if let Some((name, entry)) = owner.map(|(name, entry)| (name.clone(), entry)) {
            entry.connection = None;
            self.advance(&name);
        }
    }

    /// Reconciles one quorum with its resource, and sends changes to the engine. One without a resource and a connection is removed.
    fn advance(&mut self, name: &str) {
        self.contained(name, |controller| controller.reconcile(name));
        if self.entries.get(name).is_some_and(|entry| !entry.exists() && !entry.is_connected()) {
            self.entries.remove(name);
            self.parts.metrics.forget_leader(name);
        }
    }

    fn reconcile(&mut self, name: &str) {
        while let Some(entry) = self.entries.get_mut(name) {
            match entry.next_step() {
                Step::None => break,
                Step::ReadSecret(secret) => self.read_secret(name, secret),
                Step::Open(valid, login) => {
                    self.next_id += 1;
                    let (nodes, renewals, unused) =
                        (&self.parts.node_metrics, &self.parts.renewal_metrics, self.unused.clone());
                    let opened =
                        Connection::open(self.next_id, &valid, entry.misconfigured(), login, nodes, renewals, unused);
                    if let Some(connection) = entry.opened(opened) {
                        self.follow(name, &connection);
                    }
                }
            }
        }
        self.send_update(name);
        self.elect(name);
        self.write_status(name);
    }

    fn elect_where(&mut self, is_due: impl Fn(&QuorumEntry, Time) -> bool) {
        let now = clock::now();
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry, now));
        let names: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.elect(&name);
        }
    }

    /// Gives the election on one quorum a turn. After a panic, this replica follows until it is elected again.
    fn elect(&mut self, name: &str) {
        if !self.contained(name, |controller| controller.take_turn(name)) {
            self.election_panicked(name);
        }
    }

    fn election_panicked(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.restart_election();
        }
        self.parts.metrics.leads(name, false);
        self.authority_changed(name);
    }

    /// If the engine has ended, the process is ending too.
    fn authority_changed(&self, name: &str) {
        let _ = self.parts.engine.send(Message::Authority(name.to_owned()));
        self.parts.authorities.notify();
    }

    fn take_turn(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let (events, quorum) = (self.events.clone(), name.to_owned());
        let requests = entry.elect(move || drop(events.send(Event::Lock(quorum.clone()))));
        self.parts.metrics.leads(name, entry.is_leader());
        if requests.changed {
            let authority = entry.grant.authority(clock::now());
            tracing::info!(quorum = name, ?authority, "What this replica may decide has changed.");
            self.authority_changed(name);
        }
        if requests.read {
            let (events, quorum) = (self.events.clone(), name.to_owned());
            let done = move |outcome| {
                if let Outcome::Quorum(read) = outcome {
                    let _ = events.send(Event::Read { quorum, read });
                }
            };
            let request = Request::Quorum { namespace: self.parts.namespace.clone(), name: name.into() };
            self.parts.writer.submit(request, Box::new(done));
        }
        if requests.changed || requests.claim {
            self.write_status(name);
        }
    }

    /// Releases the locks because the process is about to end, so that another replica can lead at once.
    fn stop(&mut self) {
        for entry in self.entries.values_mut() {
            entry.stop();
        }
    }

    fn send_update(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(update) = entry.update(name) {
            self.parts.authorities.set(name, &update.grant);
            // If the engine has ended, the process is ending too.
            let _ = self.parts.engine.send(Message::Quorum(update));
        }
    }

    fn read_secrets(&mut self) {
        let all: Vec<(String, String)> = self
            .entries
            .iter()
            .flat_map(|(name, entry)| entry.secret_names().map(|secret| (name.clone(), secret.to_owned())))
            .collect();
        for (name, secret) in all {
            self.read_secret(&name, secret);
        }
    }

    fn read_secret(&self, quorum: &str, secret: String) {
        let (namespace, name) = (self.parts.namespace.clone(), secret.as_str().into());
        let request = Request::Secret { namespace, quorum: quorum.into(), name };
        let (events, quorum) = (self.events.clone(), quorum.to_owned());
        let done = move |outcome| {
            if let Outcome::Secret(read) = outcome {
                // If the controller has ended, the process is ending too.
                let _ = events.send(Event::Secret { quorum, secret, read });
            }
        };
        self.parts.writer.submit(request, Box::new(done));
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Secret { quorum, secret, read } => {
                if let Some(entry) = self.entries.get_mut(&quorum)
                    && entry.secrets.take(&self.parts.namespace, &secret, &read)
                {
                    self.advance(&quorum);
                }
            }
            Event::Moved(quorum) => {
                self.send_update(&quorum);
                self.elect(&quorum);
                self.write_status(&quorum);
            }
            Event::Lock(quorum) => self.elect(&quorum),
            Event::FloorWanted { quorum, connection, request } => self.read_floor(&quorum, connection, request),
            Event::Read { quorum, read } => {
                if let Some(entry) = self.entries.get_mut(&quorum) {
                    entry.machine.quorum_read(clock::now(), read);
                }
                self.advance(&quorum);
            }
            Event::Shown { quorum, began, outcome } => {
                self.parts.metrics.reconciled(CONTROLLER, outcome.is_ok(), began.elapsed());
                if let Some(entry) = self.entries.get_mut(&quorum) {
                    entry.status_written(outcome, &self.parts.writer);
                    self.elect(&quorum);
                    self.write_status(&quorum);
                }
            }
        }
    }

    fn write_statuses_where(&mut self, is_due: impl Fn(&QuorumEntry) -> bool) {
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry));
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.write_status(&name);
        }
    }

    /// Writes the status of the resource if it has changed.
    fn write_status(&mut self, name: &str) {
        self.contained(name, |controller| controller.send_status(name));
    }

    fn send_status(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(object) = entry.next_status(&self.parts.writer) else { return };
        let (events, quorum, began) = (self.events.clone(), name.to_owned(), Instant::now());
        let done = move |outcome| {
            if let Outcome::QuorumStatus(outcome) = outcome {
                let _ = events.send(Event::Shown { quorum, began, outcome });
            }
        };
        self.parts.writer.submit(Request::QuorumStatus(Box::new(object)), Box::new(done));
    }

    fn report_progress(&mut self) {
        if let Start::Reading(unread) = &mut self.start {
            unread.retain(|name| self.entries.get(name).is_some_and(|entry| !entry.is_read()));
            if unread.is_empty() {
                self.start = Start::Done;
                let _ = self.parts.engine.send(Input::QuorumsRead.into());
                self.parts.authorities.all_read();
            }
        }
        if !matches!(self.start, Start::Listing)
            && self.parts.tried.is_some()
            && self.entries.values_mut().all(QuorumEntry::is_ready)
            && let Some(part) = self.parts.tried.take()
        {
            part.done();
        }
    }
}
