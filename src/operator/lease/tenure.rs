//! The keeper of a lease, from the first turn that can open one to the end of the resource.

use std::collections::VecDeque;
use std::sync::Arc;

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config, OnDeadline, Renewal, Standing, TermId, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis, Time};
use tokio::sync::watch;

use super::{Actor, Ground};
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::lease::RetryStrategy;
use crate::api::validated::{MAX_LEASE, REAP_MARGIN};
use crate::api::{RedisLease, ValidLease, ValidQuorum, lease_status};
use crate::clock;
use crate::election::{Cluster, EndCause, HolderName};
use crate::keeper::{LeaseHandle, Observer, Setup};
use crate::metrics::lease::LeaseSeries;
use crate::operator::quorums::OpenQuorum;
use crate::status::ObservedTerms;

/// So many terms are remembered as met: status names one of the last two.
const REMEMBERED: usize = 16;

/// So long another process has to answer a doubt.
const ANSWER: Millis = Millis(1000);

/// A keeper and the quorum it stands on.
pub(super) struct Tenure {
    keeper: LeaseHandle,
    quorum: Option<Arc<OpenQuorum>>,
    /// For whom the next term is taken: the keeper makes one attempt for each wish, and another is made after a failure.
    desired: Option<Holder>,
    config: Config,
    views: watch::Receiver<View>,
    /// What the last turn saw, without what every renewal changes.
    seen: View,
    /// Attempts this keeper has run, adopted or ended: the status may still name one, and is not taken at its word.
    met: VecDeque<Attempt>,
    /// The last end that was told, and whether with proof.
    told: Option<(Attempt, bool)>,
}

/// The term that a status names.
pub(super) struct Recorded<'a> {
    /// Which.
    pub attempt: Attempt,
    token: Token,
    holder: &'a lease_status::Holder,
    /// Whether it says that the term may be gone on with.
    pub active: bool,
}

/// Reads the term from a status. Active=False says that somebody has ended it.
pub(super) fn recorded(lease: &RedisLease) -> Option<Recorded<'_>> {
    let status = lease.status.as_ref()?;
    Some(Recorded {
        attempt: status.attempt.as_ref()?.parse().ok()?,
        token: Token(u64::try_from(status.fencing_token?).ok()?),
        holder: status.holder.as_ref()?,
        active: !status.says(ConditionType::Active, ConditionStatus::False),
    })
}

impl Recorded<'_> {
    /// The term of the lease named `lease`, as a process of the cluster with this UID wrote it on the nodes.
    fn term(&self, lease: &str, cluster_uid: &str) -> TermId {
        let lease_status::Holder { cluster, namespace, pod, pod_uid, .. } = self.holder;
        let name = HolderName {
            cluster: Cluster { name: cluster.clone(), uid: cluster_uid.to_owned() },
            namespace: namespace.clone(),
            lease: lease.to_owned(),
            pod: pod.clone(),
            pod_uid: pod_uid.clone(),
        };
        TermId { attempt: self.attempt, token: self.token, holder: Holder(name.to_string().into()) }
    }
}

impl Tenure {
    pub fn quorum(&self) -> Option<&Arc<OpenQuorum>> {
        self.quorum.as_ref()
    }

    pub fn view(&self) -> View {
        self.views.borrow().clone()
    }

    pub fn has_met(&self, attempt: Attempt) -> bool {
        self.met.contains(&attempt)
    }

    /// Takes note of the present view, before a turn looks at it.
    pub fn follow(&mut self) {
        self.seen = shape(&self.views.borrow_and_update());
    }

    /// Returns when the view has changed in something that a turn must see: a renewal is nothing.
    pub async fn moved(&mut self) {
        while shape(&self.views.borrow_and_update()) == self.seen {
            self.want_again();
            if self.views.changed().await.is_err() {
                // The keeper has ended: the turn after this sees to it.
                return;
            }
        }
    }

    /// How long the keys live.
    pub const fn ttl(&self) -> Millis {
        self.config.ttl
    }

    /// Returns when the term that runs now has ended; never, when none runs.
    pub fn loses(&self) -> impl Future<Output = ()> + use<> {
        let mut views = self.views.clone();
        async move {
            let running = |view: &View| view.standing.term().map(|term| term.id.attempt);
            let Some(attempt) = running(&views.borrow_and_update()) else { return std::future::pending().await };
            // The end of the keeper is the end of what it runs.
            let _ = views.wait_for(|view| running(view) != Some(attempt)).await;
        }
    }

    /// Takes note of the terms that the view shows. Whether one runs.
    fn meet(&mut self) -> bool {
        let view = self.views.borrow().clone();
        let running = view.standing.term().map(|term| term.id.attempt);
        let ending = view.ending.as_ref().map(|ending| ending.id.attempt);
        for attempt in [running, ending].into_iter().flatten() {
            if !self.met.contains(&attempt) {
                self.met.push_back(attempt);
            }
        }
        while self.met.len() > REMEMBERED {
            self.met.pop_front();
        }
        running.is_some()
    }

    /// Whether this is the term whose end was told.
    pub fn was_told_to_end(&self, attempt: Attempt) -> bool {
        self.told.is_some_and(|(told, _)| told == attempt)
    }

    pub fn want(&mut self, holder: &HolderName) {
        let holder = Holder(holder.to_string().into());
        let another = self.desired.replace(holder.clone()) != Some(holder);
        self.want_again();
        // The pause after a burst of tries was for the holder before.
        if another && self.views.borrow().refused_by.is_none() {
            self.keeper.try_now();
        }
    }

    /// Makes another attempt when none is under way.
    fn want_again(&self) {
        if let Some(holder) = self.desired.clone()
            && !matches!(self.views.borrow().standing, Standing::Acquiring(..))
        {
            self.keeper.want(holder);
        }
    }

    pub fn forget(&mut self) {
        self.desired = None;
        self.keeper.forget();
    }

    /// Told once, and once more when the proof comes.
    pub fn end(&mut self, term: TermId, proof: bool) {
        if self.told.is_some_and(|(attempt, proven)| attempt == term.attempt && (proven || !proof)) {
            return;
        }
        self.told = Some((term.attempt, proof));
        self.desired = None;
        self.met.push_back(term.attempt);
        self.keeper.end(term, proof);
    }

    pub fn published(&self, attempt: Attempt, outcome: redislease_core::lease::Publication) {
        self.keeper.published(attempt, outcome);
    }

    pub fn retire(&mut self) {
        self.desired = None;
        self.keeper.retire();
    }

    pub fn has_ended(&self) -> bool {
        self.views.has_changed().is_err()
    }

    /// Leaves the term to the next process. Returns when an attempt that was not published has been given back.
    pub async fn stop(self) {
        let Self { keeper, mut views, .. } = self;
        keeper.close();
        while views.changed().await.is_ok() {}
    }

    /// Whether no term runs, is tried for or ends.
    pub fn is_idle(&self) -> bool {
        let view = self.views.borrow();
        matches!(view.standing, Standing::Idle) && view.ending.is_none()
    }
}

/// A view without the times that every renewal moves.
fn shape(view: &View) -> View {
    let mut view = view.clone();
    view.retry_at = None;
    if let Standing::Publishing(term) | Standing::Held(term) | Standing::Adopting(term) | Standing::Uncertain(term) =
        &mut view.standing
    {
        (term.valid_until, term.stop_at) = (None, None);
        // The second failure in a row is worth an event, the third is not.
        term.failed_rounds = term.failed_rounds.min(2);
    }
    view
}

impl Actor {
    /// Opens, configures or replaces the keeper, and takes up the term that the status names.
    pub(super) fn settle(&mut self, lease: &RedisLease, ground: &Ground) {
        let now = clock::now();
        let blocked = self.is_blocked(now);
        // While the old nodes cannot be known, what they hold can only be given up in time.
        let quorum = ground.quorum.as_ref().filter(|_| !blocked);
        let named = recorded(lease);
        let outgrown = self.tenure.as_ref().is_some_and(|tenure| {
            if tenure.quorum.is_none() {
                // Nodes at last: the term is adopted again, on them.
                return quorum.is_some() && self.spec.is_some();
            }
            // What has ended there is taken out of the status first: the new nodes have never heard of it.
            let told = named.as_ref().is_none_or(|named| !tenure.has_met(named.attempt));
            ground.replaces(tenure) && tenure.is_idle() && told
        });
        if outgrown {
            self.tenure = None;
        }
        if self.tenure.as_ref().is_some_and(Tenure::has_ended) {
            tracing::error!(lease = %format!("{}/{}", self.namespace, self.name), "the keeper ended by itself: another begins");
            self.tenure = None;
        }
        let usable = quorum.is_some() && self.spec.is_some();
        if self.tenure.is_none() && (usable || named.is_some()) {
            self.open_tenure(quorum);
        }
        let Some(tenure) = &mut self.tenure else { return };
        if let Some(spec) = &self.spec {
            let config = configure(spec, tenure.quorum.as_deref(), tenure.config.quorum);
            if config != tenure.config {
                tenure.keeper.configure(config.clone());
                tenure.config = config;
            }
        }
        let shown = lease.status.as_ref().and_then(|status| status.fencing_token);
        if let (Some(open), Some(Ok(token))) = (&tenure.quorum, shown.map(u64::try_from)) {
            open.nodes.raise_floor(Token(token));
        }
        let running = tenure.meet();
        self.weigh_doubt(lease);
        if running {
            return;
        }
        let Some(tenure) = &mut self.tenure else { return };
        let Some(named) = named else { return };
        if tenure.met.contains(&named.attempt) {
            return;
        }
        let term = named.term(&self.name, &self.house.cluster.uid);
        if named.active && !ground.suspended && lease.metadata.deletion_timestamp.is_none() {
            // Met once it is seen to run: until then it is asked for again.
            tenure.keeper.adopt(term);
        } else {
            // Somebody has ended it, or it is to end: sealing again is always safe, and going on never is.
            let deleted = lease.metadata.deletion_timestamp.is_some().then_some(EndCause::Deleted);
            if let Some(cause) = deleted.or(ground.suspended.then_some(EndCause::Suspended)) {
                self.witness.record_decision(term.attempt, cause, false);
            }
            tenure.end(term, false);
        }
    }

    /// This process has said that it cannot confirm a term, and the status calls it active again: another process has
    /// confirmed it since.
    pub(super) fn weigh_doubt(&mut self, lease: &RedisLease) {
        let (Some(tenure), Some(named)) = (&self.tenure, recorded(lease)) else { return };
        let says = |status| lease.status.as_ref().is_some_and(|shown| shown.says(ConditionType::Active, status));
        let attempt = named.attempt;
        match tenure.view().standing {
            Standing::Uncertain(term) if term.id.attempt == attempt => {
                let doubted = self.doubted.is_some_and(|(doubted, _)| doubted == attempt);
                if says(ConditionStatus::Unknown) && !doubted {
                    self.doubted = Some((attempt, clock::now()));
                    tenure.keeper.doubt_shown(attempt);
                } else if says(ConditionStatus::True) && doubted {
                    self.doubted = None;
                    tenure.keeper.kept_elsewhere(attempt);
                }
            }
            _ => self.doubted = None,
        }
    }

    /// Until when a doubt that the status shows may still be answered: the label is left alone as long.
    pub(super) fn doubt_stands_at(&self) -> Option<Time> {
        self.doubted.map(|(_, since)| since + ANSWER)
    }

    fn open_tenure(&mut self, quorum: Option<&(Arc<OpenQuorum>, ValidQuorum)>) {
        let size = quorum.map_or_else(|| Quorum::of(1), |(open, _)| Some(open.nodes.quorum()));
        let Some(mut size) = size else { return };
        // A spec that never made sense names no keys: what status names can only be given up in time.
        let quorum = quorum.filter(|_| self.spec.is_some());
        if quorum.is_none() {
            size = Quorum::of(1).unwrap_or(size);
        }
        let config = match &self.spec {
            Some(spec) => configure(spec, quorum.map(|(open, _)| open.as_ref()), size),
            None => longest(size),
        };
        let open = quorum.map(|(open, _)| open.clone());
        let keys = match (&open, &self.spec) {
            (Some(open), Some(spec)) => {
                spec.keys.iter().map(|key| open.nodes.keyspace().lock(&self.namespace, key)).collect()
            }
            _ => Vec::new(),
        };
        let setup = Setup {
            nodes: open.as_ref().map(|open| open.nodes.clone()),
            keys: keys.into(),
            config: config.clone(),
            observer: Box::new(Series { series: self.series.clone() }),
        };
        let (keeper, views) = self.house.keeper.open_watched(setup);
        // What was seen of an older keeper says nothing about what this one has yet to see.
        self.witness = ObservedTerms::default();
        let (seen, met) = (View::default(), VecDeque::new());
        self.tenure = Some(Tenure { keeper, quorum: open, desired: None, config, views, seen, met, told: None });
    }
}

/// The durations of a lease as the core takes them. `quorum` is the one that the lease stands on, which may outlive its
/// resource.
fn configure(spec: &ValidLease, quorum: Option<&OpenQuorum>, size: Quorum) -> Config {
    let asked = Millis::from(spec.lease_duration);
    // A node that forgot waits for the quorum's longest lease: no key may outlive it, whatever the spec says.
    let ttl = quorum.map_or(asked, |quorum| asked.min(quorum.nodes.longest_lease()));
    let (stop_budget, renew_interval) =
        fitted(asked, ttl, Millis::from(spec.stop_budget()), Millis::from(spec.renew_interval));
    Config {
        quorum: size,
        ttl,
        renew_interval,
        stop_budget,
        command_timeout: quorum.map_or(Millis(500), |quorum| quorum.nodes.command_timeout()),
        drift: Drift::STANDARD,
        backoff: Backoff {
            strategy: match spec.retry.strategy {
                RetryStrategy::Exponential => Strategy::Exponential,
                RetryStrategy::Linear => Strategy::Linear,
                RetryStrategy::None => Strategy::None,
            },
            min: Millis::from(spec.retry.min_delay),
            max: Millis::from(spec.retry.max_delay),
            limit: spec.retry.limit,
            jitter: u32::from(spec.retry.jitter_percent),
        },
        deadline: OnDeadline::Seal,
    }
}

/// Stop budget and renewal interval for a lease of `ttl` that may be shorter than the spec `asked` for: a spec that its
/// quorum does not allow is shown as such, and what is held under it goes on, if the holder is left less time to stop.
fn fitted(asked: Millis, ttl: Millis, stop_budget: Millis, renew_interval: Millis) -> (Millis, Millis) {
    if ttl >= asked {
        return (stop_budget, renew_interval);
    }
    let stop_budget = stop_budget.min(Millis(ttl.0 / 2));
    let most = Millis((ttl.saturating_sub(stop_budget).0 / 3).max(1));
    (stop_budget, renew_interval.min(most))
}

/// What a term may have been kept by whose spec says nothing: the longest there is.
fn longest(size: Quorum) -> Config {
    Config {
        quorum: size,
        ttl: Millis::from(MAX_LEASE),
        renew_interval: Millis(5000),
        stop_budget: Millis::from(REAP_MARGIN),
        command_timeout: Millis(500),
        drift: Drift::STANDARD,
        backoff: Backoff { strategy: Strategy::None, min: Millis(1000), max: Millis(1000), limit: None, jitter: 0 },
        deadline: OnDeadline::Seal,
    }
}

/// Counts what the owner reports.
struct Series {
    series: Arc<LeaseSeries>,
}

impl Observer for Series {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.series.renewed(renewal, ttl_ms);
    }

    fn changed(&self, view: &View) {
        self.series.viewed(view);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_left_alone_and_what_does_not_still_renews_in_time() {
        let fitted = |asked, ttl, budget, renew| fitted(Millis(asked), Millis(ttl), Millis(budget), Millis(renew));
        for (ttl, budget, renew) in [(30_000, 11_000, 5000), (60_000, 41_000, 5000), (10_000, 4000, 2000)] {
            assert_eq!(fitted(ttl, ttl, budget, renew), (Millis(budget), Millis(renew)), "{ttl}");
        }
        // The longest lease of the quorum is 60 s; the spec wants two minutes, 40 s to stop and 26 s between renewals.
        assert_eq!(fitted(120_000, 60_000, 41_000, 26_000), (Millis(30_000), Millis(10_000)));
        for (ttl, budget, renew) in [(10_000, 100_000, 30_000), (1000, 1000, 1000), (60_000, 59_000, 1)] {
            let (budget, renew) = fitted(3_600_000, ttl, budget, renew);
            assert!(Drift::STANDARD.least(Millis(ttl)) > budget + renew + renew, "{ttl}: {budget:?} {renew:?}");
        }
    }
}
