//! Carries out the effects of the engine in a process: keepers, the writer and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use redislease_core::lease::{Config, Renewal, View};
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_lock::keeper::{Keeper, LeaseHandle, Observer, Policy, Setup};
use redislease_lock::mailbox::Mailbox;
use redislease_plan::annotations::Problem;
use redislease_plan::api::RedisLease;
use redislease_plan::engine::{Caller, Effect, Input, OrphanKey, Subject, Surroundings};
use redislease_plan::index::{ImplausibleToken, LeaseId};
use redislease_plan::plan::calls::{Key, Request};
use redislease_plan::plan::{Authority, Command, Effect as Planned, Measure, News, OpenQuorum};
use redislease_plan::status::{Importance, Notice};
use tokio::sync::mpsc::UnboundedSender;

use super::driver::{Message, Outside};
use super::run::Inbox;
use crate::metrics::lease::{LeaseMetrics, LeaseRecord};
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::renewals::QuorumRenewals;
use crate::operator::authority::Grant;
use crate::operator::kube_api;
use crate::operator::quorums::{Connection, InUse, QuorumUpdate};
use crate::operator::slot::Slot;
use crate::operator::writer::Writer;

/// The name of this controller in metrics.
pub const CONTROLLER: &str = "lease";

/// Implements [`Outside`] in a process.
pub struct Shell {
    keeper: Arc<Keeper>,
    writer: Writer,
    /// The authority of this process, by the name of the quorum.
    grants: BTreeMap<String, Arc<Grant>>,
    inputs: UnboundedSender<Message>,
    mailbox: Arc<Mailbox<LeaseId>>,
    metrics: OperatorMetrics,
    lease_metrics: LeaseMetrics,
    /// The connections on which a lease may be opened, by connection number.
    connections: BTreeMap<u64, (Arc<Connection>, Arc<InUse>)>,
    by_name: BTreeMap<String, u64>,
    floors_complete: bool,
    leases: BTreeMap<LeaseId, Lease>,
}

/// The state of a lease outside its machine.
#[derive(Default)]
struct Lease {
    keeper: Option<(LeaseHandle, Arc<Slot>)>,
    /// The quorum of the keeper's machine.
    connection: Option<Arc<Connection>>,
    record: Option<Arc<LeaseRecord>>,
}

impl Shell {
    pub fn new(
        keeper: Arc<Keeper>,
        writer: Writer,
        inputs: UnboundedSender<Message>,
        inbox: &Inbox,
        metrics: OperatorMetrics,
        lease_metrics: LeaseMetrics,
    ) -> Self {
        Self {
            keeper,
            writer,
            grants: BTreeMap::new(),
            inputs,
            mailbox: inbox.mailbox.clone(),
            metrics,
            lease_metrics,
            connections: BTreeMap::new(),
            by_name: BTreeMap::new(),
            floors_complete: false,
            leases: BTreeMap::new(),
        }
    }

    fn connection(&self, quorum: &str) -> Option<&Arc<Connection>> {
        self.by_name.get(quorum).and_then(|id| self.connections.get(id)).map(|(connection, _)| connection)
    }

    /// The metrics record of a lease, created on first use.
    fn record(&mut self, lease: &Subject) -> Arc<LeaseRecord> {
        let known = &mut self.leases.entry(lease.id).or_default().record;
        known.get_or_insert_with(|| self.lease_metrics.lease(&lease.namespace, &lease.name, &lease.quorum)).clone()
    }

    /// Makes a call of the engine.
    fn call(&self, caller: Caller, request: Request) {
        if let Caller::Orphan(OrphanKey { lease, .. }) = &caller {
            tracing::info!(object = %request, %lease, "Removing the label of a lease that does not exist or cannot be read.");
        }
        let inputs = self.inputs.clone();
        let done = move |outcome| {
            if let Some(input) = caller.input(outcome) {
                // If the engine has ended, the process is ending too.
                let _ = inputs.send(input.into());
            }
        };
        self.writer.submit(request, Box::new(done));
    }

    fn command(&mut self, lease: &Subject, command: Command) {
        let Some(of) = self.leases.get_mut(&lease.id) else { return };
        let Some((keeper, _)) = &of.keeper else { return };
        if command == Command::Close {
            // The handle closes the machine when it is dropped.
            (of.keeper, of.connection) = (None, None);
        } else {
            keeper.command(command);
        }
    }

    /// Starts a machine for the lease. A quorum that was replaced meanwhile counts as unknown.
    fn open(&mut self, lease: &Subject, quorum: Option<&OpenQuorum>, keys: &[String], config: Config) {
        let record = self.record(lease);
        let opened = quorum.and_then(|quorum| self.connections.get(&quorum.id)).cloned();
        let (mailbox, id) = (self.mailbox.clone(), lease.id);
        let slot = Slot::new(move || _ = mailbox.send(id));
        let (connection, in_use) = opened.unzip();
        let nodes = connection.as_ref().map(|connection| connection.nodes.clone());
        let lock = |key: &String| nodes.as_ref().map(|nodes| nodes.keyspace().lock(&lease.namespace, key));
        let keys: Vec<String> = keys.iter().filter_map(lock).collect();
        let renewals = connection.as_ref().map(|connection| connection.renewals.clone());
        let observer = Box::new(Watcher { slot: slot.clone(), record, quorum: renewals, _in_use: in_use });
        let policy = self.grants.get(&lease.quorum).map(|grant| grant.clone() as Arc<dyn Policy>);
        let handle = self.keeper.open(Setup { nodes, keys: keys.into(), config, policy, jump_wait: None, observer });
        let of = self.leases.entry(lease.id).or_default();
        of.connection = connection;
        of.keeper = Some((handle, slot));
    }

    fn report(&self, lease: &Subject, notice: &Notice) {
        let (name, reason) = (name(lease), notice.reason.as_str());
        match notice.reason.importance() {
            Importance::Normal => tracing::info!(lease = %name, reason, "{}", notice.note),
            Importance::Warning => tracing::warn!(lease = %name, reason, "{}", notice.note),
        }
        self.writer.report(notice, &reference(lease));
    }

    fn measure(&mut self, lease: &Subject, measure: &Measure) {
        match measure {
            Measure::Ended(end) => {
                self.record(lease).ended();
                // The connection of its term, which can be of a quorum that was replaced.
                let own = self.leases.get(&lease.id).and_then(|of| of.connection.as_ref());
                if let Some(connection) = own.or_else(|| self.connection(&lease.quorum)) {
                    connection.renewals.ended(*end);
                }
            }
            Measure::Handover { graceful, leaderless } => self.lease_metrics.handover(*graceful, *leaderless),
            Measure::WriteRefused { kind, altered } => self.metrics.write_refused(*kind, *altered),
            Measure::Corrected { kind } => self.metrics.corrected(*kind),
            Measure::Shown(shown) => self.record(lease).show(shown),
        }
    }

    fn news(&mut self, lease: LeaseId) -> News {
        let keeper = self.leases.get_mut(&lease).map(|lease| &mut lease.keeper);
        let Some(Some((_, slot))) = keeper else { return News::default() };
        let news = slot.take();
        if news.ended {
            self.leases.entry(lease).or_default().keeper = None;
        }
        news
    }

    fn carry_out_planned(&mut self, lease: &Subject, effect: Planned) {
        match effect {
            Planned::Open { quorum, keys, config } => self.open(lease, quorum.as_deref(), &keys, config),
            Planned::Keeper(command) => self.command(lease, command),
            Planned::RaiseFloor(token) => {
                if let Some(connection) = self.leases.get(&lease.id).and_then(|of| of.connection.as_ref()) {
                    connection.nodes.raise_floor(token);
                }
            }
            Planned::WithdrawStatus => self.writer.withdraw(&Key::LeaseStatus(lease.uid.as_str().into())),
            Planned::WithdrawRole { uid } => self.writer.withdraw(&Key::Role(uid.into(), lease.uid.as_str().into())),
            Planned::Probe => self.writer.probe(),
            Planned::Report(notice) => self.report(lease, &notice),
            Planned::Measure(measure) => self.measure(lease, &measure),
            Planned::Warn(text) => tracing::warn!(lease = %name(lease), "{text}"),
            // The engine makes calls of them.
            Planned::WriteStatus(_) | Planned::WriteRole(_) | Planned::Read(_) => {}
        }
    }

    /// The authority over the leases of a quorum, and how often this process has gained the right to decide about them.
    fn granted(&self, quorum: &str) -> (Authority, u32) {
        // On a quorum that does not exist there is no election, and nothing can be renewed.
        self.grants.get(quorum).map_or((Authority::Lead, 0), |grant| grant.with_gains(clock::now()))
    }

    fn hide(&mut self, lease: LeaseId) {
        if let Some(record) = self.leases.get_mut(&lease).and_then(|lease| lease.record.take()) {
            self.lease_metrics.remove(&record);
        }
    }
}

impl Outside for Shell {
    fn now(&self) -> Time {
        clock::now()
    }

    fn authority(&self, quorum: &str) -> Authority {
        self.granted(quorum).0
    }

    fn quorum(&mut self, update: &QuorumUpdate) {
        self.grants.insert(update.name.clone(), update.grant.clone());
        if let Some(id) = update.change.retiring {
            // From now on, only the leases and the lock on this connection keep it open.
            self.connections.remove(&id);
        }
        match &update.connection {
            Some(connection) => {
                let id = connection.quorum.id;
                self.by_name.insert(update.name.clone(), id);
                self.connections.entry(id).or_insert_with(|| (connection.clone(), connection.in_use()));
                if self.floors_complete {
                    connection.nodes.floor_complete();
                }
            }
            None => {
                self.by_name.remove(&update.name);
            }
        }
    }

    fn surroundings(&mut self, lease: LeaseId, quorum: &str) -> Surroundings {
        let (authority, authority_gains) = self.granted(quorum);
        Surroundings {
            news: self.news(lease),
            authority,
            authority_gains,
            api_answered_at: self.writer.answered_at(),
            wall: jiff::Timestamp::now(),
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Lease(lease, effect) => self.carry_out_planned(&lease, effect),
            Effect::Hide(lease) => self.hide(lease),
            Effect::DoNotCount(lease) => {
                if let Some(record) = self.leases.get(&lease).and_then(|lease| lease.record.as_ref()) {
                    record.stop_counting();
                }
            }
            Effect::Forget(lease) => {
                self.hide(lease);
                self.leases.remove(&lease);
            }
            Effect::AwaitAnswer => self.writer.await_answer(),
            Effect::Call(caller, request) => self.call(caller, request),
            Effect::ReportOnLease(lease, Problem { reason, note }) => {
                tracing::warn!(lease = %name(&lease), reason = reason.as_str(), "{note}");
                self.writer.report_once(Notice { reason, note, on_pods: Vec::new() }, reference(&lease));
            }
            Effect::ReportOnPod(pod, problem) => {
                let Problem { reason, note } = &problem;
                if !self.writer.report_once_on_pod(*reason, note, &pod) {
                    return Some(Input::ReportRefused { pod: pod.uid, problem });
                }
                tracing::warn!(pod = %format!("{}/{}", pod.namespace, pod.name), reason = reason.as_str(), "{note}");
            }
            Effect::RaiseFloor(quorum, token) => {
                if let Some(connection) = self.connection(&quorum) {
                    connection.nodes.raise_floor(token);
                }
            }
            Effect::FloorsComplete => {
                self.floors_complete = true;
                self.connections.values().for_each(|(connection, _)| connection.nodes.floor_complete());
            }
            Effect::Implausible(ImplausibleToken { namespace, name, token }) => {
                tracing::error!(namespace, name, %token, "Ignored the fencing token in the status of a RedisLease: no Redis node can have given it. Set spec.suspend to true and wait until the holder has stopped. Then delete the RedisLease and create it again.");
            }
        }
        None
    }

    fn turned(&mut self, took: Duration, panicked: bool) {
        self.metrics.reconciled(CONTROLLER, !panicked, took);
    }

    fn panicked(&mut self) {
        self.metrics.panicked();
    }

    fn attempts_wait(&mut self, leases: usize) {
        self.metrics.attempts_wait(leases);
    }
}

/// Passes what a machine reports to the engine and to the metrics.
struct Watcher {
    slot: Arc<Slot>,
    record: Arc<LeaseRecord>,
    quorum: Option<Arc<QuorumRenewals>>,
    /// Keeps the quorum's connections open while the machine exists.
    _in_use: Option<Arc<InUse>>,
}

impl Observer for Watcher {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.record.renewed(renewal);
        if let Some(quorum) = &self.quorum {
            quorum.renewed(renewal, ttl_ms);
        }
    }

    fn changed(&self, view: &View) {
        self.record.viewed(view);
        self.slot.show(view);
    }

    fn ended(&self) {
        self.slot.end();
    }
}

/// Namespace and name of a lease, for the log.
fn name(lease: &Subject) -> String {
    format!("{}/{}", lease.namespace, lease.name)
}

/// The reference to the lease in an event.
fn reference(lease: &Subject) -> ObjectReference {
    let (api_version, kind) = (RedisLease::api_version(&()), RedisLease::kind(&()));
    kube_api::reference(&api_version, &kind, &lease.namespace, &lease.name, &lease.uid)
}
