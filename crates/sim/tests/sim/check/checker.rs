//! The invariants of the whole world, in true time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use redislease_core::invariants::{self, Claim};
use redislease_core::lease::TermId;
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;
use redislease_plan::api::lease_status::HandoverState;

use crate::api::objects::{Keys, numbers};
use crate::redis::clock::{Micros, SECOND};

/// A violated invariant, with the values that explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A process treats `pod` as the holder of the term until `until`.
#[derive(Clone, Debug)]
pub struct Live {
    pub process: usize,
    pub keys: Keys,
    pub attempt: Attempt,
    pub token: Token,
    pub pod: u32,
    pub from: Micros,
    pub until: Micros,
    /// The end, in milliseconds of the process's clock.
    pub valid_until: u64,
}

struct Completed {
    keys: Keys,
    attempt: Attempt,
    token: Token,
}

/// How often something happened within a window of time, and how often it may.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    since: Micros,
    count: u64,
    most: u64,
}

impl Window {
    /// Counts one more within `length`, of which `most` may happen. Returns the percentage of the bound.
    pub fn count(&mut self, now: Micros, length: Micros, most: u64) -> u64 {
        if now >= self.since + length {
            *self = Self { since: now, count: 0, most };
        }
        self.count += 1;
        // The highest bound within the window applies: machines that ended within it count too.
        self.most = self.most.max(most);
        self.count * 100 / self.most
    }

    pub const fn new(now: Micros) -> Self {
        Self { since: now, count: 0, most: 1 }
    }
}

/// How long after a restore of etcd a process may still know what was before.
const LISTED_WITHIN: Micros = 10 * SECOND;

/// The pod in entries about the lock of the replicas.
pub const LOCK_HOLDER: u32 = u32::MAX;

/// The window in which commands to one node are counted.
const COMMANDS_WITHIN: Micros = 5 * SECOND;
/// The window in which calls and events of one lease are counted.
const WRITES_WITHIN: Micros = 10 * SECOND;
/// Events of one lease in one process within that window.
const REPORTS: u64 = 50;
/// Turns of one lease in one process within that window. An engine that always has work takes them without an end.
const TURNS: u64 = 1000;

#[derive(Default)]
pub struct Checker {
    pub broken: Option<Broken>,
    pub live: Vec<Live>,
    completed: Vec<Completed>,
    /// For each attempt under way, the greatest token completed on its keys before its first request.
    began: BTreeMap<Attempt, Option<Token>>,
    /// The number of the UID of the lease of each attempt.
    pub resources: BTreeMap<Attempt, u32>,
    dead: BTreeSet<u32>,
    /// Per key: the greatest token that a store behind it has seen.
    store: BTreeMap<u8, Token>,
    /// Per resource of a cluster: the last term that was held, and until when.
    pub last: BTreeMap<(usize, usize), Last>,
    /// Terms that never reached a status do not count where clocks are behind.
    pub published_only: bool,
    /// Per resource of a cluster and ID of a handover: the last state.
    handovers: BTreeMap<(usize, u32, String), HandoverState>,
    /// When each process of a cluster has listed after a restore of etcd.
    pub listed_after: BTreeMap<usize, Micros>,
    sent: BTreeMap<(usize, usize), Window>,
    /// By cluster, lease and kind.
    asked: BTreeMap<(usize, usize, &'static str), Window>,
    reported: BTreeMap<(usize, u32), Window>,
    turned: BTreeMap<(usize, u32), Window>,
    /// The highest counts of commands, calls, events, role writes and turns, in percent of their bounds.
    pub busiest: [u64; 5],
    /// Whether too much load is allowed: a planted bug must be found by the invariant that it violates.
    pub storms_pass: bool,
}

#[derive(Clone, Debug)]
pub struct Last {
    pub attempt: Attempt,
    pub until: Micros,
}

impl Checker {
    pub fn fail(&mut self, text: String) {
        if self.broken.is_none() {
            self.broken = Some(Broken(text));
        }
    }

    fn completed_on(&self, keys: Keys) -> impl Iterator<Item = &Completed> {
        self.completed.iter().filter(move |term| term.keys & keys != 0)
    }

    /// The first request of an attempt is sent.
    pub fn begins(&mut self, keys: Keys, attempt: Attempt, uid: u32) {
        self.resources.insert(attempt, uid);
        let before = self.completed_on(keys).map(|term| term.token).max();
        self.began.insert(attempt, before);
    }

    /// I2: a majority confirmed.
    pub fn completes(&mut self, keys: Keys, id: &TermId) {
        if self.completed.iter().any(|term| term.attempt == id.attempt && term.token == id.token) {
            return;
        }
        let earlier: Vec<Token> = self.completed_on(keys).map(|term| term.token).collect();
        let before = self.began.get(&id.attempt).copied().flatten();
        if let Err(violation) = invariants::tokens_grow(id.token, earlier, before) {
            self.fail(format!("{violation}: token {} of {:?}, before it began {before:?}", id.token, id.attempt));
        }
        self.completed.push(Completed { keys, attempt: id.attempt, token: id.token });
    }

    /// I1 and I3: a process begins or continues to treat a term as held.
    pub fn claims(&mut self, now: Micros, of: (usize, usize), claim: Live) {
        self.live.retain(|other| now < other.until);
        if self.dead.contains(&claim.pod) || claim.until <= now {
            return;
        }
        for key in numbers(claim.keys) {
            let seen = self.store.entry(key).or_default();
            if claim.token < *seen {
                let text =
                    format!("I3: a store saw token {seen}, and now {} of {:?} is live", claim.token, claim.attempt);
                return self.fail(text);
            }
            *seen = claim.token;
        }
        let last = self.last.entry(of).or_insert(Last { attempt: claim.attempt, until: claim.until });
        if last.attempt != claim.attempt {
            *last = Last { attempt: claim.attempt, until: claim.until };
        }
        last.until = last.until.max(claim.until);
        self.add(claim);
    }

    /// I1 for the lock of the replicas.
    pub fn leads(&mut self, now: Micros, claim: Live) {
        self.live.retain(|other| now < other.until);
        if claim.until > now {
            self.add(claim);
        }
    }

    /// A replica no longer leads.
    pub fn leads_no_more(&mut self, process: usize) {
        self.live.retain(|live| live.process != process || live.pod != LOCK_HOLDER);
    }

    fn add(&mut self, claim: Live) {
        let keys = claim.keys;
        let same = |other: &&mut Live| other.process == claim.process && other.attempt == claim.attempt;
        if let Some(known) = self.live.iter_mut().find(same) {
            (known.until, known.valid_until) = (known.until.max(claim.until), claim.valid_until);
        } else {
            self.live.push(claim);
        }
        for key in numbers(keys) {
            let on_key = self.live.iter().filter(|live| live.keys & 1 << key != 0);
            let claims: Vec<Claim> = on_key
                .map(|live| Claim {
                    attempt: live.attempt,
                    token: live.token,
                    from: Time(live.from),
                    until: Time(live.until),
                })
                .collect();
            if let Err(violation) = invariants::one_holder(&claims) {
                return self.fail(format!("{violation}: {claims:?}"));
            }
        }
    }

    /// The statuses of a cluster are older ones: a handover that was answered since then is answered again. Until each process has
    /// listed, it may know another object by a version that is used again, and write over a newer state.
    pub fn statuses_go_back(&mut self, now: Micros, cluster: usize) {
        self.handovers.retain(|(of, _, _), _| *of != cluster);
        self.listed_after.insert(cluster, now + LISTED_WITHIN);
    }

    pub fn has_stopped(&self, pod: u32) -> bool {
        self.dead.contains(&pod)
    }

    /// The pod's processes have ended: from now on no process acts as this pod, even if an operator treats it as the holder.
    pub fn pod_stopped(&mut self, now: Micros, pod: u32) {
        self.dead.insert(pod);
        for last in self.last.values_mut() {
            if self.live.iter().any(|live| live.pod == pod && live.attempt == last.attempt) {
                last.until = last.until.min(now);
            }
        }
        self.live.retain(|live| live.pod != pod);
    }

    /// Whether a process treats a term on one of the keys as held.
    pub fn held(&self, now: Micros, keys: Keys) -> bool {
        self.live.iter().any(|live| live.keys & keys != 0 && now < live.until)
    }

    /// I8: counts a command from this process to this node.
    pub fn sent(&mut self, now: Micros, process: usize, node: usize, bound: u64) {
        let window = self.sent.entry((process, node)).or_insert_with(|| Window::new(now));
        let percent = window.count(now, COMMANDS_WITHIN, bound);
        let (count, most) = (window.count, window.most);
        self.busiest[0] = self.busiest[0].max(percent);
        if percent > 100 && !self.storms_pass {
            self.fail(format!("I8: process {process} sent {count} commands to node {node} within 5 s; bound {most}"));
        }
    }

    /// I8b: counts a call of this kind for this lease, by any process of the cluster.
    pub fn calls(&mut self, now: Micros, (cluster, place): (usize, usize), kind: &'static str, bound: u64) {
        let window = self.asked.entry((cluster, place, kind)).or_insert_with(|| Window::new(now));
        let percent = window.count(now, WRITES_WITHIN, bound);
        let count = window.count;
        self.busiest[1] = self.busiest[1].max(percent);
        if percent > 100 && !self.storms_pass {
            let text = format!("I8b: {count} {kind} of lease {place} of cluster {cluster} within 10 s; bound {bound}");
            self.fail(text);
        }
    }

    /// The status of a lease shows another state of a requested handover. Each request is handled once.
    pub fn handover(&mut self, now: Micros, (cluster, uid): (usize, u32), id: &str, state: HandoverState) {
        let before = self.handovers.insert((cluster, uid, id.to_owned()), state);
        let has_listed = self.listed_after.get(&cluster).is_none_or(|at| now >= *at);
        let before = before.filter(|_| has_listed);
        if before.is_some_and(|before| before != HandoverState::Running || state == before) {
            self.fail(format!("the handover {id} of lease {uid} was {before:?} and is {state:?}"));
        }
    }

    /// I8b: counts a Kubernetes event about this lease.
    pub fn reports(&mut self, now: Micros, process: usize, uid: u32) {
        let window = self.reported.entry((process, uid)).or_insert_with(|| Window::new(now));
        let percent = window.count(now, WRITES_WITHIN, REPORTS);
        let count = window.count;
        self.busiest[2] = self.busiest[2].max(percent);
        if percent > 100 && !self.storms_pass {
            self.fail(format!("I8b: process {process} reports {count} events of lease {uid} within 10 s"));
        }
    }

    /// I8b: counts a turn of this lease. Returns whether there are too many: such a run comes to no end.
    pub fn turns(&mut self, now: Micros, process: usize, uid: u32) -> bool {
        let window = self.turned.entry((process, uid)).or_insert_with(|| Window::new(now));
        let percent = window.count(now, WRITES_WITHIN, TURNS);
        let count = window.count;
        self.busiest[4] = self.busiest[4].max(percent);
        if percent > 100 && !self.storms_pass {
            self.fail(format!("I8b: process {process} gives lease {uid} {count} turns within 10 s"));
        }
        percent > 100
    }
}
