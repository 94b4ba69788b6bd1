//! Between a process and its API server: listing, watching, status writes, and what becomes of them.

use redislease_core::backoff::Entropy;
use redislease_core::lease::{Input, Lease, Publication, Standing, Want};
use redislease_core::op::{Attempt, Holder};

use crate::api::{Ask, Listing, Mode, Patch, Pod, PodState, Resource, Verdict};
use crate::bug::Bug;
use crate::clock::{MILLI, Micros, SECOND};
use crate::coverage::Sight;
use crate::fault::Fault;
use crate::keeper::{Owner, pod_of};
use crate::policy::{Situation, Step};
use crate::process::Life;
use crate::trace::Note;
use crate::world::{ApiCall, Event, World};

/// What a process waits for from its API server.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The owner of a write or of a look at its resource; a periodic listing has none.
    uid: Option<u32>,
    patch: Option<Patch>,
}

#[derive(Clone, Debug)]
pub enum ApiAnswer {
    Listing(Listing),
    Write(Option<Resource>),
    Refused,
    /// The request's time is over.
    Overdue,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum Push {
    Resource(usize, u64, Option<Resource>),
    Pod(u32, u64, Option<Pod>),
}

const ANSWER_WITHIN: Micros = SECOND;

impl World {
    fn api_travel(&mut self) -> Micros {
        let (low, high) = if self.chaos { self.swarm.api_delay } else { (MILLI, 5 * MILLI) };
        self.rng.between(low, high)
    }

    fn ask_api(&mut self, process: usize, flight: Flight, ask: Ask) {
        let (id, boot) = (self.new_id(process), self.processes[process].boot);
        self.processes[process].flights.insert(id, flight);
        self.after(ANSWER_WITHIN, Event::ApiReply { process, boot, id, answer: ApiAnswer::Overdue });
        if self.processes[process].api_cut == 0 {
            // A request may be under way for longer than anybody waits for its answer.
            let strays = self.chaos && self.rng.permille(self.swarm.api_loss / 5);
            let delay = if strays { self.rng.between(0, 8 * SECOND) } else { self.api_travel() };
            self.after(delay, Event::ApiArrive(ApiCall { process, boot, id, ask }));
        }
    }

    /// Lists everything once a second, which also repairs a watch that missed something.
    pub fn poll(&mut self, process: usize) {
        let boot = self.processes[process].boot;
        self.after(SECOND, Event::Poll { process, boot });
        let listing = |flight: &Flight| flight.uid.is_none();
        if !self.processes[process].flights.values().any(listing) {
            self.ask_api(process, Flight { uid: None, patch: None }, Ask::List);
        }
        self.reconcile_all(process);
    }

    pub fn api_arrive(&mut self, call: ApiCall) {
        let cluster = self.processes[call.process].cluster;
        let ApiCall { process, boot, id, ref ask } = call;
        let answer = match (self.apis[cluster].mode, ask) {
            (Mode::Hanging, _) => return self.apis[cluster].hanging.push(call),
            (Mode::Killed, _) => ApiAnswer::Refused,
            (Mode::Up, Ask::List) => ApiAnswer::Listing(self.apis[cluster].world.clone()),
            (Mode::Up, Ask::Write { resource, uid, version, patch, blind }) => {
                let (resource, uid) = (*resource, *uid);
                let (verdict, fell) = self.apis[cluster].write(resource, uid, *version, patch, *blind);
                self.note(Note::Wrote { process, uid, patch: patch.clone(), verdict });
                if fell {
                    self.check.fail(format!("I4: the status of resource {uid} shows a lower token: {patch:?}"));
                }
                if verdict == Verdict::Written {
                    self.tell_resource(cluster, resource);
                } else if matches!(patch, Patch::Name(_)) {
                    self.coverage.saw(Sight::StalePublicationRefused);
                }
                let lost = self.chaos && self.rng.permille(self.swarm.api_loss);
                if lost {
                    self.hit(Fault::ApiLoss, Some(process));
                    return;
                }
                ApiAnswer::Write(self.apis[cluster].world.resources[resource].clone())
            }
        };
        if self.processes[process].api_cut == 0 {
            let delay = self.api_travel();
            self.after(delay, Event::ApiReply { process, boot, id, answer });
        }
    }

    pub fn api_reply(&mut self, process: usize, id: u64, answer: ApiAnswer) {
        let Some(flight) = self.processes[process].flights.remove(&id) else { return };
        let answered = matches!(answer, ApiAnswer::Listing(_) | ApiAnswer::Write(_));
        self.processes[process].cache.reachable = answered;
        match answer {
            ApiAnswer::Listing(listing) => self.listed(process, listing),
            ApiAnswer::Write(Some(resource)) => {
                let place = self.apis[self.processes[process].cluster]
                    .world
                    .resources
                    .iter()
                    .position(|found| found.as_ref().is_some_and(|found| found.uid == resource.uid));
                if let Some(place) = place {
                    self.learn_resource(process, place, resource.version, Some(resource));
                }
            }
            _ => {}
        }
        if let Some(uid) = flight.uid {
            let publication = matches!(flight.patch, Some(Patch::Name(_)));
            self.written(process, uid, publication, answered);
        }
        self.reconcile_all(process);
    }

    /// What became of a write or a look of one owner. The cache knows already what was answered.
    fn written(&mut self, process: usize, uid: u32, publication: bool, answered: bool) {
        let Some(owner) = self.owner(process, uid) else { return };
        let place = owner.resource;
        owner.memory.busy = false;
        let waiting = match &owner.lease.view().standing {
            Standing::Publishing(term) => Some(term.id.attempt),
            _ => None,
        };
        let was_unanswered = owner.memory.unanswered;
        let Some(attempt) = waiting.filter(|_| publication || was_unanswered) else { return };
        if !answered {
            owner.memory.unanswered = true;
            if publication {
                self.published(process, uid, attempt, Publication::Unknown);
            }
            return;
        }
        owner.memory.unanswered = false;
        let resource = self.processes[process].cache.world.resources.get(place).cloned().flatten();
        let named = resource
            .filter(|resource| resource.uid == uid)
            .and_then(|resource| resource.term)
            .is_some_and(|term| term.attempt == attempt);
        // That it is named, or superseded, is found by the policy, which looks first.
        if named {
            self.processes[process].owners.iter_mut().filter(|owner| owner.uid == uid).for_each(|owner| {
                owner.memory.unanswered = was_unanswered;
            });
        } else if !self.superseded(process, uid, place) {
            if was_unanswered {
                self.coverage.saw(Sight::UnansweredPublicationWasNotWritten);
            }
            self.published(process, uid, attempt, Publication::NotWritten);
        }
    }

    fn superseded(&mut self, process: usize, uid: u32, place: usize) -> bool {
        let resource = self.processes[process].cache.world.resources.get(place).cloned().flatten();
        let Some(resource) = resource.filter(|resource| resource.uid == uid) else { return true };
        let token =
            self.owner(process, uid).and_then(|owner| owner.lease.view().standing.term().map(|term| term.id.token));
        token.is_some_and(|token| resource.token >= token)
    }

    fn published(&mut self, process: usize, uid: u32, attempt: Attempt, outcome: Publication) {
        self.note(Note::Published { process, uid, outcome });
        self.feed(process, uid, Input::Published { attempt, outcome });
    }

    fn listed(&mut self, process: usize, listing: Listing) {
        let process = &mut self.processes[process];
        process.cache.synced = true;
        if listing.version >= process.cache.world.version {
            let stopped = listing.pods.iter().filter(|(_, pod)| pod.state == PodState::Stopped);
            process.cache.proofs.extend(stopped.map(|(&uid, _)| uid));
            process.cache.world = listing;
        }
        let tokens = process.cache.world.resources.iter().flatten().map(|resource| resource.token);
        process.floor = tokens.chain([process.floor]).max().unwrap_or(process.floor);
    }

    pub fn pushed(&mut self, process: usize, push: Push) {
        match push {
            Push::Resource(place, version, resource) => self.learn_resource(process, place, version, resource),
            Push::Pod(uid, version, pod) => {
                let cache = &mut self.processes[process].cache;
                if pod.is_some_and(|pod| pod.state == PodState::Stopped) {
                    cache.proofs.insert(uid);
                }
                if cache.synced && version > cache.world.version {
                    cache.world.version = version;
                    match pod {
                        Some(pod) => cache.world.pods.insert(uid, pod),
                        None => cache.world.pods.remove(&uid),
                    };
                }
            }
        }
        self.reconcile_all(process);
    }

    /// Takes a resource as the server showed it, unless something newer is known.
    fn learn_resource(&mut self, process: usize, place: usize, version: u64, resource: Option<Resource>) {
        let process = &mut self.processes[process];
        if !process.cache.synced {
            return;
        }
        let known = process.cache.world.resources[place].as_ref().map_or(0, |known| known.version);
        if resource.as_ref().map_or(version, |resource| resource.version) <= known {
            return;
        }
        if let Some(resource) = &resource {
            process.floor = process.floor.max(resource.token);
        }
        process.cache.world.resources[place] = resource;
    }

    pub fn tell_resource(&mut self, cluster: usize, place: usize) {
        let world = &self.apis[cluster].world;
        let push = Push::Resource(place, world.version, world.resources[place].clone());
        self.tell(cluster, &push);
    }

    /// One event to every watch that is open. What a broken watch misses, the next listing repairs.
    pub fn tell(&mut self, cluster: usize, push: &Push) {
        for process in 0..self.processes.len() {
            let watching = &self.processes[process];
            let open = watching.cluster == cluster && watching.life != Life::Down && watching.api_cut == 0;
            if !open || self.apis[cluster].mode != Mode::Up {
                continue;
            }
            let lag = if self.chaos { self.swarm.watch_lag } else { 5 * MILLI };
            let delay = self.rng.between(MILLI, lag);
            let (now, boot) = (self.now, self.processes[process].boot);
            let watching = &mut self.processes[process];
            watching.last_push = watching.last_push.max(now + delay);
            let at = watching.last_push;
            self.at(at, Event::Push { process, boot, push: push.clone() });
        }
    }

    pub fn reconcile_all(&mut self, process: usize) {
        if !self.processes[process].cache.synced {
            return;
        }
        let found: Vec<(usize, u32)> = self.processes[process]
            .cache
            .world
            .resources
            .iter()
            .enumerate()
            .filter_map(|(place, resource)| resource.as_ref().map(|resource| (place, resource.uid)))
            .collect();
        for (place, uid) in found {
            if self.owner(process, uid).is_none() {
                let mutant = self.bug.and_then(Bug::mutant);
                let lease = Lease::new(self.swarm.lease.clone()).with_mutant(mutant);
                self.processes[process].owners.push(Owner::new(uid, place, lease));
            }
        }
        self.retire(process);
        let owners: Vec<u32> = self.processes[process].owners.iter().map(|owner| owner.uid).collect();
        for uid in owners {
            self.reconcile(process, uid);
        }
    }

    /// Takes decisions for one lease until nothing is left to decide.
    pub fn reconcile(&mut self, process: usize, uid: u32) {
        for _ in 0..100 {
            let running = self.processes[process].life == Life::Running && self.processes[process].cache.synced;
            let Some(at) = self.processes[process].owners.iter().position(|owner| owner.uid == uid && running) else {
                return;
            };
            let now = self.local(process);
            let awake = &mut self.processes[process];
            let owner = &mut awake.owners[at];
            let situation = Situation {
                now,
                grace: 5000 + self.swarm.lease.stop_budget.0,
                resource: awake.cache.world.resources[owner.resource].as_ref().filter(|found| found.uid == uid),
                place: owner.resource,
                cache: &awake.cache,
                view: &owner.lease.view().clone(),
                bug: self.bug,
            };
            let unanswered = owner.memory.unanswered;
            let Some(step) = situation.decide(&mut owner.memory) else { return };
            if unanswered && matches!(step, Step::Feed(Input::Published { outcome: Publication::Written, .. })) {
                self.coverage.saw(Sight::UnansweredPublicationWasWritten);
            }
            self.take(process, uid, step);
        }
        self.check.fail(format!("the policy of process {process} never comes to rest"));
    }

    fn take(&mut self, process: usize, uid: u32, step: Step) {
        match step {
            Step::Feed(input) => {
                match &input {
                    Input::Adopt(_) => self.coverage.saw(Sight::Adopted),
                    Input::End { proof: true, term } => {
                        self.coverage.saw(Sight::ReleasedOnProof);
                        self.quiet.proof_seen(self.now, pod_of(term));
                    }
                    _ => {}
                }
                self.feed(process, uid, input);
            }
            Step::Want(pod) => {
                let floor = self.processes[process].floor;
                let (attempt, entropy) = (Attempt(self.rng.wide()), Entropy(self.rng.word()));
                let holder = Holder(format!("pod-{pod}").into());
                self.feed(process, uid, Input::Want(Want { holder, attempt, floor, entropy }));
                let ready = |peer: &crate::process::Peer| peer.conn.as_ref().is_some_and(|conn| conn.ready);
                if self.is(Bug::NoPace) && self.processes[process].peers.iter().all(ready) {
                    self.feed(process, uid, Input::TryNow);
                }
            }
            Step::Write(patch) => {
                let Some(owner) = self.owner(process, uid) else { return };
                owner.memory.busy = true;
                let resource = owner.resource;
                let version =
                    self.processes[process].cache.world.resources[resource].as_ref().map_or(0, |found| found.version);
                let blind = self.is(Bug::BlindPublication);
                let ask = Ask::Write { resource, uid, version, patch: patch.clone(), blind };
                self.ask_api(process, Flight { uid: Some(uid), patch: Some(patch) }, ask);
            }
            Step::Read => {
                if let Some(owner) = self.owner(process, uid) {
                    owner.memory.busy = true;
                }
                self.ask_api(process, Flight { uid: Some(uid), patch: None }, Ask::List);
            }
        }
    }

    /// An owner whose resource is gone is kept until nothing of it is left to do.
    fn retire(&mut self, process: usize) {
        let retiring = &mut self.processes[process];
        let resources = &retiring.cache.world.resources;
        retiring.owners.retain(|owner| {
            let alive = resources[owner.resource].as_ref().is_some_and(|found| found.uid == owner.uid);
            alive || owner.lease.next_deadline().is_some()
        });
    }
}
