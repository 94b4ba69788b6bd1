//! Single calls of an operator to its API server: they can be refused, hang, be slow, or lose their answer.

use std::sync::Arc;

use kube::core::Expression;
use redislease_core::op::Token;
use redislease_plan::api::RedisLease;
use redislease_plan::election::{Candidate, PodFacts, Run};
use redislease_plan::index::{WorkloadFound, WorkloadRead};
use redislease_plan::plan::calls::{Answer, Body, CallError, Request, Stored};
use redislease_plan::plan::{PodChange, Read, RoleWrite, StatusWrite};

use crate::api::objects;
use crate::api::server::{ApiCall, Mode, Verdict};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::event::{Event, Inside, PodStep};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// How long a webhook may take.
pub const LONGEST_WEBHOOK: Micros = 30 * SECOND;

/// As the operator has it.
const QUORUM_STATUS_TIMEOUT: Micros = 2 * SECOND;

/// The answer to a write.
fn answer(verdict: Verdict, body: Option<Body>) -> Answer {
    match verdict {
        Verdict::Written => body.ok_or(CallError::NotFound),
        Verdict::Conflict => Err(CallError::Conflict),
        Verdict::Gone => Err(CallError::NotFound),
        Verdict::Refused => Err(CallError::Refused("a webhook, or a rule of the schema".to_owned())),
    }
}

fn unanswered(why: &str) -> Answer {
    Err(CallError::Unanswered(why.to_owned()))
}

/// The place of the lease for which something is written.
fn written_for(request: &Request) -> Option<usize> {
    match request {
        Request::LeaseStatus { object, .. } => Some(place_of(object.metadata.name.as_deref().unwrap_or_default())),
        Request::Role { lease, .. } => Some(place_of(&lease.name)),
        _ => None,
    }
}

/// The place of a lease with this name.
pub fn place_of(name: &str) -> usize {
    objects::number(name) as usize
}

impl World {
    fn api_travel(&mut self) -> Micros {
        let (low, high) = if self.chaos { self.swarm.api_delay } else { (MILLI, 5 * MILLI) };
        self.rng.between(low, high)
    }

    /// Sends one call. It has exactly one answer, `swarm.api_timeout` later at the latest.
    pub fn send_call(&mut self, process: usize, id: u64, request: Arc<Request>) {
        let boot = self.processes[process].boot;
        let asked = self.processes[process].engine.index().pod_lists().ask();
        let waits = matches!(&*request, Request::Role { write, .. } if write.waits);
        let timeout = match &*request {
            Request::Role { write, .. } if write.waits => LONGEST_WEBHOOK + SECOND,
            Request::QuorumStatus(_) => self.swarm.api_timeout.min(QUORUM_STATUS_TIMEOUT),
            _ => self.swarm.api_timeout,
        };
        if waits && self.chaos {
            self.recovery.waits_until = self.now + timeout;
        }
        let overdue = Box::new(unanswered("no answer in time"));
        self.later(process, timeout, Inside::ApiReply { id, answer: overdue });
        if self.processes[process].api_cut > 0 {
            return self.hit(Fault::ApiCut, Some(process));
        }
        // A request may arrive after its sender has stopped waiting for the answer.
        let slow = self.chaos && self.rng.permille(self.swarm.api_loss / 5);
        let delay = if slow { self.rng.between(0, 8 * SECOND) } else { self.api_travel() };
        if slow {
            self.running.disturbed(self.processes[process].cluster, self.now + delay);
        }
        self.after(delay, Event::ApiArrive(Box::new(ApiCall { process, boot, id, asked, request, was_held: false })));
    }

    pub fn api_arrive(&mut self, call: ApiCall) {
        let ApiCall { process, boot, id, .. } = call;
        let cluster = self.processes[process].cluster;
        let mode = self.apis[cluster].mode;
        let is_write = mode == Mode::Up && written_for(&call.request).is_some();
        let answer = match mode {
            Mode::Hanging => {
                self.hit(Fault::ApiHangs, Some(process));
                return self.apis[cluster].hanging.push(call);
            }
            Mode::Refusing => {
                self.hit(Fault::ApiRefuses, Some(process));
                unanswered("connection refused")
            }
            Mode::Up if self.is_held_up(cluster, &call) => return,
            // As its failure policy says.
            Mode::Up if call.was_held && self.rng.percent(50) => answer(Verdict::Refused, None),
            Mode::Up => self.serve(cluster, &call),
        };
        if is_write && self.chaos && self.rng.permille(self.swarm.api_loss) {
            // A repeated stop is answered after the longest webhook.
            self.running.disturbed(cluster, self.now + LONGEST_WEBHOOK + SECOND);
            if self.processes[process].calls.waits_for(id) {
                self.hit(Fault::ApiLoss, Some(process));
            }
            return;
        }
        if self.processes[process].api_cut > 0 {
            if self.processes[process].calls.waits_for(id) {
                self.hit(Fault::ApiCut, Some(process));
            }
            return;
        }
        let delay = self.api_travel();
        self.after(delay, Event::Inside(process, boot, Inside::ApiReply { id, answer: Box::new(answer) }));
    }

    /// Whether a webhook holds a write up. The API server gives up when the caller does, and carries the write out after the longest
    /// time of the webhook.
    fn is_held_up(&mut self, cluster: usize, call: &ApiCall) -> bool {
        let Some(place) = written_for(&call.request) else { return false };
        if call.was_held {
            return !self.processes[call.process].calls.waits_for(call.id);
        }
        let until = self.apis[cluster].hangs_until.get(objects::namespace(place));
        if until.is_none_or(|until| *until <= self.now) {
            return false;
        }
        self.hit(Fault::WebhookHangs, Some(call.process));
        let delay = self.rng.between(SECOND, LONGEST_WEBHOOK);
        self.after(delay, Event::ApiArrive(Box::new(ApiCall { was_held: true, ..call.clone() })));
        true
    }

    fn serve(&mut self, cluster: usize, call: &ApiCall) -> Answer {
        let process = call.process;
        let stored = |object| Body::Object(Stored { asked: call.asked, object, managed_fields: Vec::new() });
        match &*call.request {
            Request::LeaseStatus { object, write, .. } => self.serve_status(process, cluster, object, write),
            Request::Role { lease, write, .. } => {
                let (mut verdict, object) = self.serve_role(process, cluster, place_of(&lease.name), write);
                if write.dry_run {
                    verdict = self.stop_is_tested(call, write, verdict, object.as_ref());
                }
                answer(verdict, Some(stored(object)))
            }
            Request::QuorumStatus(quorum) => {
                let (version, status) = objects::status_of(quorum);
                let (verdict, change) = self.apis[cluster].write_quorum(version, status);
                self.tell(cluster, change);
                answer(verdict, Some(self.quorum(cluster)))
            }
            Request::Quorum { .. } => Ok(self.quorum(cluster)),
            request => {
                self.apis[cluster].writes.reads += 1;
                let api = &self.apis[cluster];
                let found = match request {
                    Request::Read { lease, read: Read::Lease } => {
                        api.state.leases[place_of(&lease.name)].clone().map(Body::Lease)
                    }
                    Request::Read { read: Read::Holder { uid, .. }, .. } => {
                        let number = objects::number(uid);
                        let workload = || api.workloads.get(&number).cloned().map(Candidate::Workload);
                        let object = api.state.pods.get(&number).cloned().map(Candidate::Pod).or_else(workload);
                        object.map(|object| stored(Some(object)))
                    }
                    Request::Read { lease, read: Read::Startable } => {
                        let place = place_of(&lease.name);
                        let startable = api.state.pods.values().filter(|pod| objects::is_startable(pod, place));
                        let pods = startable.cloned().map(Candidate::Pod).collect();
                        Some(Body::Pods((call.asked, pods)))
                    }
                    Request::Read { read: Read::Node { uid, .. }, .. } => {
                        Some(Body::Node(api.nodes_off.contains(&objects::number(uid))))
                    }
                    Request::Workload((_, workload)) => {
                        // No lease uses the pods of the workload.
                        let selector = Expression::Equal("app".to_owned(), "none".to_owned()).into();
                        let object = api.workload_of(place_of(&workload.name)).cloned();
                        let read = WorkloadRead::Selects(selector);
                        object.map(|object| Body::Workload(WorkloadFound { read, object: Some(object) }))
                    }
                    Request::Tokens { .. } => {
                        let tokens = api.state.leases.iter().flatten().map(|lease| objects::token(lease));
                        Some(Body::Tokens(tokens.max().unwrap_or(Token(0))))
                    }
                    _ => Some(Body::Done),
                };
                found.ok_or(CallError::NotFound)
            }
        }
    }

    fn quorum(&self, cluster: usize) -> Body {
        let spec = self.quorum_resources[cluster].spec.clone();
        Body::Quorum(Box::new(objects::quorum(spec, self.apis[cluster].state.quorum.clone())))
    }

    /// Writes the role of a pod or a workload. Returns the object as it is then.
    fn serve_role(
        &mut self,
        process: usize,
        cluster: usize,
        place: usize,
        write: &RoleWrite,
    ) -> (Verdict, Option<Candidate>) {
        let checked = !self.is(Bug::RolesWithoutVersion);
        self.token_is_known((cluster, place), write);
        if write.workload.is_some() {
            let of = place_of(&write.pod);
            let before = self.apis[cluster].workload_of(of).cloned();
            let (verdict, workload) = self.apis[cluster].write_workload(place, write, checked);
            self.note(Note::WroteRole { process, pod: objects::number(&write.uid), role: write.role, verdict });
            self.count_write(process, cluster, verdict);
            if let (Verdict::Written, Some(before), Some(after)) = (verdict, &before, &workload)
                && !write.dry_run
            {
                self.workload_written((process, (cluster, place)), before, after, write);
                if before != after {
                    if let PodChange::Run(run) = write.change {
                        let stops = run == Run::Replicas(0);
                        self.coverage.saw(if stops { Sight::WorkloadStopped } else { Sight::WorkloadRuns });
                    }
                    self.tell_workload(cluster, of);
                }
            }
            return (verdict, workload.map(Candidate::Workload));
        }
        let (verdict, change) = self.apis[cluster].write_role(place, write, checked);
        self.note(Note::WroteRole { process, pod: objects::number(&write.uid), role: write.role, verdict });
        self.count_write(process, cluster, verdict);
        let has_changed = change.is_some();
        if has_changed {
            self.label_is_stored((cluster, place), write);
            self.one_active_pod(cluster, place);
        }
        self.tell(cluster, change);
        if verdict == Verdict::Written && !write.dry_run {
            self.start_or_delete(cluster, place, write, has_changed);
        }
        let pod = self.apis[cluster].state.pods.get(&objects::number(&write.uid)).cloned();
        (verdict, pod.map(Candidate::Pod))
    }

    /// What a role write causes beside the role.
    fn start_or_delete(&mut self, cluster: usize, place: usize, write: &RoleWrite, has_changed: bool) {
        let pod = objects::number(&write.uid);
        match write.change {
            PodChange::Start if has_changed => {
                self.coverage.saw(Sight::PodStarted);
                self.start_is_stored((cluster, place), write);
                let delay = if self.chaos { self.rng.pick(&[10, 500, 3000]) } else { 300 };
                self.after(delay * MILLI, Event::Pod { cluster, pod, step: PodStep::Starts });
            }
            PodChange::Delete => {
                self.coverage.saw(Sight::LostPodDeleted);
                let named = self.apis[cluster].named(place).filter(|named| named.active != Some(false));
                let named = named.filter(|named| named.pod == pod);
                let ended = self.running.ended.get(&pod);
                if named.is_some_and(|named| ended != Some(&named.attempt)) {
                    self.check.fail(format!("gate: pod {pod} is deleted, and the status names it as the holder"));
                } else if named.is_some() {
                    self.coverage.saw(Sight::StoppedBeforeStatus);
                }
                let stops = |pod: &Arc<PodFacts>| pod.deletion_grace.is_some();
                if !self.apis[cluster].state.pods.get(&pod).is_some_and(stops) {
                    self.delete_pod(cluster, pod);
                }
            }
            PodChange::Start | PodChange::Fence(_) | PodChange::None | PodChange::Run(_) => {}
        }
    }

    fn serve_status(&mut self, process: usize, cluster: usize, object: &RedisLease, write: &StatusWrite) -> Answer {
        let (place, uid) = (place_of(object.metadata.name.as_deref().unwrap_or_default()), objects::uid_of(object));
        let before = self.apis[cluster].state.leases[place].clone();
        let checked = !self.is(Bug::StatusWithoutVersion);
        let (verdict, change) = self.apis[cluster].write_status(place, uid, write, checked);
        let after = self.apis[cluster].state.leases[place].clone();
        let named = after.as_deref().and_then(objects::named);
        let was_named = before.as_deref().and_then(objects::named);
        let version = self.apis[cluster].state.version;
        self.running.status_changes((cluster, place), version, was_named, named);
        let newest = self.running.newest.entry((cluster, place)).or_default();
        *newest = after.as_deref().map(objects::token).unwrap_or_default().max(*newest);
        self.term_is_published((cluster, place), was_named, named);
        if named.is_some_and(|named| named.active.is_none()) {
            self.running.disturbed(cluster, self.now);
        }
        self.note(Note::WroteStatus {
            process,
            uid,
            priority: write.priority,
            verdict,
            named: named.map(|named| named.attempt),
        });
        self.count_write(process, cluster, verdict);
        if let (Verdict::Written, Some(before), Some(after)) = (verdict, &before, &after)
            && objects::token(after) < objects::token(before)
        {
            self.check.fail(format!("I4: the status of lease {uid} shows a lower token than before"));
        }
        let (was, is) = (objects::handover(before.as_deref()), objects::handover(after.as_deref()));
        if let Some((id, state)) = is.filter(|_| is != was) {
            self.coverage.saw(Sight::of_handover(state));
            self.check.handover(self.now, (cluster, uid), id, state);
        }
        let publishes = write.priority == redislease_plan::plan::Priority::Publication;
        if publishes && verdict == Verdict::Conflict {
            self.coverage.saw(Sight::StalePublicationRefused);
        }
        self.tell(cluster, change);
        answer(verdict, after.filter(|after| objects::uid_of(after) == uid).map(Body::Lease))
    }

    pub fn count_write(&mut self, process: usize, cluster: usize, verdict: Verdict) {
        if verdict == Verdict::Refused && self.apis[cluster].refuses_writes {
            self.hit(Fault::Webhook, Some(process));
        }
        let failed = matches!(verdict, Verdict::Conflict | Verdict::Refused | Verdict::Gone);
        self.apis[cluster].writes.failed += u64::from(failed);
    }

    /// The label is taken from the old holder before it is given to the new one.
    fn one_active_pod(&mut self, cluster: usize, place: usize) {
        let active: Vec<u32> = self.apis[cluster].active_pods(place).collect();
        if active.len() > 1 {
            self.check
                .fail(format!("pods {active:?} of cluster {cluster} are labelled active for lease {place} at once"));
        }
    }
}
