//! Lists and watches of leases and pods: events can be late, lists can be out of date, and a watch may have to list again.

use std::time::Duration;

use redislease_plan::api::RedisLease;
use redislease_plan::election::PodFacts;
use redislease_plan::engine::{Input, Watched};

use crate::api::objects;
use crate::api::server::{Change, Kind, Mode, State, Step, Stream};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::event::Inside;
use crate::operator::state::Life;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// How long a request for a watch may take.
const ANSWER_WITHIN: Micros = SECOND;
/// How often a watch is opened again, by which a client detects that it gets no events.
const RENEWAL: Micros = 5 * SECOND;

impl World {
    pub fn start_watches(&mut self, process: usize) {
        self.processes[process].streams = [Stream::default(); 2];
        for kind in Kind::ALL {
            let delay = self.rng.between(1, 20) * MILLI;
            self.later(process, delay, Inside::WatchOpen(kind));
        }
        self.later(process, RENEWAL, Inside::WatchRenew);
    }

    pub fn renew_watches(&mut self, process: usize) {
        self.later(process, RENEWAL, Inside::WatchRenew);
        for kind in Kind::ALL {
            self.open_watch(process, kind);
        }
    }

    /// Tries to open a watch: it continues after the last event that was sent, or lists again.
    pub fn open_watch(&mut self, process: usize, kind: Kind) {
        let cluster = self.processes[process].cluster;
        let pause = if self.processes[process].api_cut > 0 {
            self.hit(Fault::ApiCut, Some(process));
            Some(ANSWER_WITHIN)
        } else {
            match self.apis[cluster].mode {
                Mode::Hanging => Some(ANSWER_WITHIN),
                Mode::Refusing => Some(self.rng.between(100, 1000) * MILLI),
                Mode::Up => None,
            }
        };
        if let Some(pause) = pause {
            // The API server may come back with older data.
            self.processes[process].streams[kind as usize].listed = false;
            return self.later(process, pause, Inside::WatchOpen(kind));
        }
        let mut stream = self.processes[process].streams[kind as usize];
        let expired = self.chaos && stream.listed && self.rng.permille(self.swarm.watch_expired);
        let could_resume = stream.listed && self.apis[cluster].changes_since(stream.sent).is_some();
        if expired && could_resume {
            self.hit(Fault::WatchExpired, Some(process));
        }
        if expired || !could_resume {
            let goes_back = self.chaos && self.rng.permille(self.swarm.stale_lists);
            let back = if goes_back { self.rng.between(1, 20) as usize } else { 0 };
            let state = self.apis[cluster].list(back);
            (stream.sent, stream.listed) = (state.version, true);
            let later = self.apis[cluster].changes_since(state.version);
            let is_stale = later.is_none_or(|mut changes| changes.any(|change| change.kind() == kind));
            if kind == Kind::Pods {
                // The watch has the whole list now. The index gets it later.
                let lists = self.processes[process].engine.index().pod_lists();
                lists.begin();
                lists.end();
            }
            self.send_step(process, kind, &mut stream, Step::ListBegins);
            self.send_step(process, kind, &mut stream, Step::Listed { state, is_stale });
            if self.is(Bug::StaleListTrusted) {
                stream.sent = self.apis[cluster].state.version;
            }
        }
        let Some(changes) = self.apis[cluster].changes_since(stream.sent) else {
            // The list was older than all that the log has: the watch from its version is refused, and the client lists again.
            self.processes[process].streams[kind as usize] = Stream { open: false, listed: false, ..stream };
            let pause = self.rng.between(100, 1000) * MILLI;
            return self.later(process, pause, Inside::WatchOpen(kind));
        };
        let missed: Vec<Change> = changes.filter(|change| change.kind() == kind).cloned().collect();
        for change in missed {
            self.send_step(process, kind, &mut stream, Step::Changed(change));
        }
        (stream.open, stream.sent) = (true, self.apis[cluster].state.version);
        self.processes[process].streams[kind as usize] = stream;
    }

    /// Sends one change to every watch that is open. A watch that misses one is not open any more.
    pub fn tell(&mut self, cluster: usize, change: Option<Change>) {
        let Some(change) = change else { return };
        self.controller_sees(cluster, &change);
        let kind = change.kind();
        for process in 0..self.processes.len() {
            let watching = &self.processes[process];
            if watching.cluster != cluster || watching.life == Life::Down {
                continue;
            }
            let reached = watching.api_cut == 0 && self.apis[cluster].mode == Mode::Up;
            let mut stream = watching.streams[kind as usize];
            stream.open &= reached;
            if stream.open {
                stream.sent = change.version();
                self.send_step(process, kind, &mut stream, Step::Changed(change.clone()));
            }
            self.processes[process].streams[kind as usize] = stream;
        }
    }

    fn send_step(&mut self, process: usize, kind: Kind, stream: &mut Stream, step: Step) {
        let lag = if self.chaos { self.swarm.watch_lag } else { 5 * MILLI };
        let delay = self.rng.between(MILLI, lag);
        stream.last = stream.last.max(self.now + delay);
        self.later(process, stream.last - self.now, Inside::Watch(kind, Box::new(step)));
    }

    /// The API server closes every watch.
    pub fn close_watches(&mut self, cluster: usize) {
        for process in 0..self.processes.len() {
            let watching = &mut self.processes[process];
            if watching.cluster != cluster || watching.life == Life::Down {
                continue;
            }
            for kind in Kind::ALL {
                self.processes[process].streams[kind as usize].open = false;
                let delay = self.rng.between(1, 50) * MILLI;
                self.later(process, delay, Inside::WatchOpen(kind));
            }
        }
    }

    /// An event of a watch.
    pub fn watched(&mut self, process: usize, kind: Kind, step: Step) {
        let input = match (step, kind) {
            (Step::ListBegins, Kind::Leases) => Input::Lease(Watched::ListBegins),
            (Step::ListBegins, Kind::Pods) => Input::Pod(Watched::ListBegins),
            (Step::Listed { state, is_stale }, kind) => return self.listed(process, kind, &state, is_stale),
            (Step::Changed(Change::Lease { version, lease, deleted }), _) => {
                self.observed(process, version);
                let lease = Box::new((*lease).clone());
                Input::Lease(if deleted { Watched::Deleted(lease) } else { Watched::Seen(lease) })
            }
            (Step::Changed(Change::Pod { version, facts, deleted }), _) => {
                self.observed(process, version);
                let mut facts = Box::new(PodFacts::clone(&facts));
                if self.is(Bug::NextStartsTooEarly) && !deleted && facts.deletion_grace.is_some() {
                    facts.deletion_grace = Some(Duration::ZERO);
                }
                Input::Pod(if deleted { Watched::Deleted(facts) } else { Watched::Seen(facts) })
            }
            (Step::Changed(Change::Quorum { version, status }), _) => {
                return self.quorum_seen(process, (version, *status), false);
            }
        };
        self.tell_engine(process, input);
    }

    /// A list is complete. It can be older than what is known.
    fn listed(&mut self, process: usize, kind: Kind, state: &State, is_stale: bool) {
        if is_stale && state.version < self.processes[process].history.newest {
            self.hit(Fault::StaleList, Some(process));
            self.running.disturbed(self.processes[process].cluster, self.now);
        }
        match kind {
            Kind::Leases => {
                self.quorum_seen(process, state.quorum.clone(), true);
                for lease in state.leases.iter().flatten() {
                    let version = |lease: &RedisLease| objects::version(lease.metadata.resource_version.as_deref());
                    let known = self.resource(process, objects::uid_of(lease)).filter(|_| self.is(Bug::RestoreIgnored));
                    let known = known.filter(|known| version(known) > version(lease));
                    let seen = known.unwrap_or_else(|| lease.clone());
                    self.tell_engine(process, Input::Lease(Watched::Seen(Box::new((*seen).clone()))));
                }
                self.tell_engine(process, Input::Lease(Watched::ListEnds));
            }
            Kind::Pods => {
                for facts in state.pods.values() {
                    self.tell_engine(process, Input::Pod(Watched::Seen(Box::new(PodFacts::clone(facts)))));
                }
                self.tell_engine(process, Input::Pod(Watched::ListEnds));
            }
        }
    }

    /// Records the version of an observed object.
    pub fn observed(&mut self, process: usize, version: u64) {
        let newest = &mut self.processes[process].history.newest;
        *newest = version.max(*newest);
    }
}
