//! One actor per RedisLease: it looks at the world, decides, tells the keeper, and shows what came of it.
//!
//! Every turn begins from what is there and can be repeated at will. Decisions need no answer of the API server; what
//! is shown does, and waits for it without holding a decision up for longer than one call.
//!
//! | module | stage |
//! |---|---|
//! | [`ground`] | dereference and validate: quorum, candidates, what stands in the way |
//! | [`steer`] | decide, and tell the keeper |
//! | [`tenure`] | the keeper: opened, adopted, told |
//! | [`show`] | status and events |
//! | [`holder`] | what is known about the holder's pod |
//! | [`roles`] | the label and the token on each pod |
//! | [`bury`] | what is left of a resource that is gone |
//! | [`quiet`] | how long the API server is left alone after a failure |

mod bury;
mod ground;
mod holder;
mod quiet;
mod roles;
mod show;
mod steer;
mod tenure;

pub(super) use roles::removal_or;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::core::SelectorExt;
use kube::{Resource, ResourceExt};
use redislease_core::lease::{EndReason, Standing, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};
use tokio::sync::watch;

use super::kube_api::CallError;
use super::pace::Pace;
use super::{House, LEASE};
use crate::api::conditions::{ConditionReason as _, ConditionType, LeaseActive};
use crate::api::validated::Candidates;
use crate::api::{RedisLease, RedisLeaseStatus, ValidLease};
use crate::clock;
use crate::election::{Electorate, HolderName, PodFacts, Sighting};
use crate::metrics::lease::LeaseSeries;
use crate::status::{Composed, ObservedTerms, renewal_notice};
use ground::{Block, Ground};
use quiet::Quiet;
use roles::Right;
use tenure::Tenure;

/// What the directory tells an actor.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// The resource as last seen.
    Here(Arc<RedisLease>),
    /// The resource is gone, and another of its name may be there: what is left is ended.
    Gone,
}

/// Everything about one RedisLease in this process, keyed by its UID.
pub(super) struct Actor {
    house: Arc<House>,
    object: watch::Receiver<Object>,
    namespace: String,
    name: String,
    uid: String,
    /// The newest answer to a write of ours; the watch may be behind it.
    answered: Option<Arc<RedisLease>>,
    /// A write was not answered: what stands there is read before the next.
    in_doubt: bool,
    /// What that write said, and what stood there before.
    untold: Option<(Arc<RedisLease>, Composed)>,
    /// The last spec that made sense: what is held goes on by it.
    spec: Option<ValidLease>,
    tenure: Option<Tenure>,
    witness: ObservedTerms,
    series: Arc<LeaseSeries>,
    /// Neither adopt nor acquire for now.
    blocked: Option<Block>,
    /// No write of the status after a failure.
    status_quiet: Quiet,
    /// No write of pods after a failure.
    roles_quiet: Quiet,
    /// By which right the labels were last written.
    right: Option<Right>,
    /// The holder of the last term was proven to have stopped.
    proven: bool,
    /// Not before is the node of a vanished holder asked for again.
    node_asked_again_at: Option<Time>,
    /// The term that waits to be published, and when the API server is asked what became of it.
    publishing: Option<(Attempt, Time)>,
    /// Until then no term begins: the last could not be published, and others may be able to. Who holds meanwhile is not
    /// known.
    left_to_others: Option<Time>,
    /// Pods that were told `active` without an answer: they may carry it, whatever was last seen.
    unsure: Mutex<BTreeSet<String>>,
    /// The term whose end was counted.
    counted: Option<String>,
    /// How soon a status that another operator contradicts is written again.
    pace: Pace<RedisLeaseStatus>,
    /// When the status was last written for nothing but the number of its candidates.
    counted_at: Option<Time>,
    /// A write that waits for its turn.
    paced_until: Option<Time>,
    /// The term that the status says is not confirmed, and since when we have seen it say so.
    doubted: Option<(Attempt, Time)>,
    /// The view of the last turn.
    viewed: View,
    /// Since when nobody has held the lease, for the event of the next term.
    unheld_since: Option<Time>,
}

impl Actor {
    pub fn new(
        house: Arc<House>,
        object: watch::Receiver<Object>,
        lease: &RedisLease,
        series: Arc<LeaseSeries>,
    ) -> Self {
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
        Self {
            house,
            object,
            namespace,
            name,
            uid: lease.uid().unwrap_or_default(),
            answered: None,
            in_doubt: false,
            untold: None,
            spec: None,
            tenure: None,
            witness: ObservedTerms::default(),
            series,
            blocked: None,
            status_quiet: Quiet::default(),
            roles_quiet: Quiet::default(),
            right: None,
            proven: false,
            node_asked_again_at: None,
            publishing: None,
            unsure: Mutex::default(),
            left_to_others: None,
            counted: None,
            pace: Pace::default(),
            counted_at: None,
            paced_until: None,
            doubted: None,
            viewed: View::default(),
            unheld_since: None,
        }
    }

    /// Runs until the process stops, or the resource is gone and its last key has ended.
    pub async fn run(mut self) {
        let mut pods = self.house.pods.watch(&self.namespace);
        let mut quorums = self.house.quorums.watch();
        loop {
            let object = self.object.borrow_and_update().clone();
            pods.borrow_and_update();
            quorums.borrow_and_update();
            if let Some(tenure) = &mut self.tenure {
                tenure.follow();
            }
            let stop = self.house.stop.clone();
            let turn = async {
                match object {
                    Object::Here(lease) => Some(self.turn(&lease).await),
                    Object::Gone => self.bury().await.map(Some),
                }
            };
            let again_at = tokio::select! {
                // What a turn waits for is the API server, and that may take long.
                () = stop.cancelled() => break,
                again_at = turn => match again_at {
                    Some(again_at) => again_at,
                    None => return,
                },
            };
            let view = async {
                match &mut self.tenure {
                    Some(tenure) => tenure.moved().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.house.stop.cancelled() => break,
                Ok(()) = self.object.changed() => {}
                Ok(()) = pods.changed() => {}
                Ok(()) = quorums.changed() => {}
                () = view => {}
                () = sleep_until(again_at) => {}
            }
        }
        if let Some(tenure) = self.tenure.take() {
            tenure.stop().await;
        }
    }

    /// One turn: dereference, validate, plan, apply, show. Returns when time alone asks for the next.
    async fn turn(&mut self, seen: &Arc<RedisLease>) -> Option<Time> {
        if !self.house.quorums.are_read() {
            return None;
        }
        let began = Instant::now();
        let lease = self.newest(seen);
        let mut ground = self.ground(&lease);
        // A term that status names is taken up before anything that the API server must answer first.
        let stood_on = self.stands_on();
        self.settle(&lease, &ground);
        if stood_on != self.stands_on() {
            self.house.quorums.let_go();
        }
        self.find_candidates(&mut ground).await;
        if let Some(Candidates::Workload(workload)) = self.spec.as_ref().map(|spec| &spec.candidates) {
            // A workload that was created again may select other pods, and no event of a candidate says so.
            ground.again_at = earliest(ground.again_at, self.house.workloads.due(&self.namespace, workload));
        }
        let pods = self.house.pods.of_namespace(&self.namespace);
        let electorate = electorate(&ground, &pods);
        let again_at = self.plan(&lease, &ground, &electorate).await;
        let view = self.tenure.as_ref().map(Tenure::view);
        self.measure(&lease, view.as_ref());
        let composed = self.compose(&lease, &ground, &electorate, view.as_ref());
        self.count(&lease, &composed);
        let tried_status = self.status_quiet.is_over(clock::now());
        if tried_status {
            let shown = self.show(&lease, &ground, &electorate).await;
            let pause = self.status_quiet.note(&shown, clock::now());
            self.warn("status", shown, pause);
        }
        // Somebody else wrote meanwhile: what they wrote is read, and everything decided anew.
        let overtaken = tried_status && !self.status_quiet.is_calm() && self.status_quiet.is_over(clock::now());
        // Who may be told `active` stands in the status. That nobody may be any more does not wait for it.
        let newest = self.newest(seen);
        let lost = self.tenure.as_ref().map(Tenure::loses);
        let lost = async {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        };
        let tried_roles = !overtaken
            && tokio::select! {
                tried = self.assign_in_turn(&newest, &ground) => tried,
                // A loss waits for no pod: it is shown, and then the pods are told what is right by then.
                () = lost => return Some(clock::now()),
            };
        let well = self.status_quiet.is_calm() && self.roles_quiet.is_calm();
        if tried_status || tried_roles {
            self.house.metrics.reconciled(LEASE, well, began.elapsed());
        }
        let now = clock::now();
        let doubt = self.doubt_stands_at().filter(|stands_at| *stands_at > now);
        let quiet = [self.status_quiet.again_at(), self.roles_quiet.again_at()];
        let times = [again_at, ground.again_at, self.paced_until, doubt];
        times.into_iter().chain(quiet).flatten().min()
    }

    fn warn(&self, what: &str, outcome: Result<(), CallError>, pause: Option<Millis>) {
        if let (Err(error), Some(pause)) = (outcome, pause) {
            let lease = format!("{}/{}", self.namespace, self.name);
            tracing::warn!(%lease, %error, pause_ms = pause.0, "the API server did not take the {what}");
        }
    }

    /// The watch may lag behind what our own write was answered.
    fn newest(&self, seen: &Arc<RedisLease>) -> Arc<RedisLease> {
        let version = |lease: &RedisLease| lease.resource_version().and_then(|version| version.parse::<u64>().ok());
        match &self.answered {
            Some(answered) if version(answered) > version(seen) => answered.clone(),
            _ => seen.clone(),
        }
    }

    /// Which quorum the keeper stands on, to be compared.
    fn stands_on(&self) -> Option<usize> {
        self.tenure.as_ref().and_then(Tenure::quorum).map(|quorum| Arc::as_ptr(quorum).addr())
    }

    /// What a change of the view means beside the status.
    fn measure(&mut self, lease: &RedisLease, view: Option<&View>) {
        // A peer's term is no gap, nor is a lease that nobody is to hold; and what is not known is neither.
        let held = view.is_some_and(|view| {
            matches!(view.standing, Standing::Held(_) | Standing::Adopting(_) | Standing::Uncertain(_))
        });
        let elsewhere = lease.status.as_ref().is_some_and(is_held_by_peer);
        let filled = held || elsewhere || lease.spec.suspend || self.left_to_others.is_some();
        self.unheld_since = if filled { None } else { Some(self.unheld_since.unwrap_or_else(clock::now)) };
        let Some(view) = view else { return };
        self.witness.record_view(view);
        if view.ending.as_ref().is_some_and(|ending| ending.reason != EndReason::Decided) {
            self.proven = false;
        }
        if let Some(notice) = renewal_notice(&self.viewed, view) {
            tracing::warn!(lease = %format!("{}/{}", self.namespace, self.name), "{}", notice.note);
            self.house.reporter.report(notice, lease.object_ref(&()));
        }
        self.viewed = view.clone();
    }
}

fn electorate(ground: &Ground, pods: &[Sighting]) -> Electorate {
    let candidates = pods.iter().map(|pod| &pod.facts).filter(|pod| ground.is_candidate(pod));
    Electorate::of(candidates.cloned().map(Arc::new), ground.readiness)
}

/// Whether the status says that a pod of another cluster holds the lease.
fn is_held_by_peer(status: &RedisLeaseStatus) -> bool {
    let reason = LeaseActive::HeldByPeerCluster.as_str();
    status.condition(ConditionType::Active).is_some_and(|active| active.reason == reason)
}

/// The holder of the running term, else of the ending one.
fn holder_of(view: &View) -> Option<HolderName> {
    let running = view.standing.term().map(|term| &term.id);
    let term = running.or_else(|| view.ending.as_ref().map(|ending| &ending.id))?;
    term.holder.0.parse().ok()
}

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    [a, b].into_iter().flatten().min()
}

async fn sleep_until(at: Option<Time>) {
    let Some(at) = at else { return std::future::pending().await };
    if clock::sleep_until(at).await.is_err() {
        // No timer is to be had: the time is looked at again and again, but not without a pause.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whether the labels of a pod are those of a candidate.
fn selects(selector: &kube::core::Selector, pod: &PodFacts) -> bool {
    selector.matches(&pod.labels)
}
