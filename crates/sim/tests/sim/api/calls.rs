//! Single calls of an operator to its API server: they can be refused, hang, be slow, or lose their answer.

use std::sync::Arc;

use redislease::api::RedisLease;
use redislease::election::{Candidate, PodFacts, WorkloadFacts};
use redislease::plan::{PodChange, RoleWrite, StatusWrite};
use redislease_core::op::Token;

use crate::api::objects;
use crate::api::server::{Mode, Verdict};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::pods::PodStep;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::{Event, World};

/// A request.
#[derive(Clone, Debug)]
pub enum Ask {
    Status {
        place: usize,
        uid: u32,
        write: Box<StatusWrite>,
    },
    Role {
        place: usize,
        write: Box<RoleWrite>,
    },
    Lease(usize),
    Pod(u32),
    /// The pods that a process may have started for the lease at this place, or may start.
    Startable(usize),
    /// The workload of the lease at this place.
    Workload(usize),
    /// Whether the Kubernetes node of this pod is out of service.
    Node(u32),
    /// The leader that the `RedisQuorum` names.
    Quorum,
    /// The highest token of all statuses: a list of the newest state.
    Tokens,
    Claim {
        version: u64,
        instance: String,
    },
    Probe,
}

/// A call in flight.
#[derive(Clone, Debug)]
pub struct ApiCall {
    pub process: usize,
    pub boot: u32,
    pub id: u64,
    pub ask: Ask,
}

/// The reply to a call.
#[derive(Clone, Debug)]
pub enum Reply {
    Status(Verdict, Option<Arc<RedisLease>>),
    Role(Verdict, Option<Candidate>),
    Lease(Option<Arc<RedisLease>>),
    Pod(Option<Candidate>),
    Pods(Vec<Candidate>),
    Workload(Option<Arc<WorkloadFacts>>),
    Node(bool),
    /// The leader, and the resource version.
    Quorum(Verdict, u64, Option<String>),
    Tokens(Token),
    Probe,
    /// The connection was refused.
    Refused,
    /// The answer did not arrive in time.
    Overdue,
}

impl Reply {
    /// Whether the API server did not answer.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Refused | Self::Overdue)
    }
}

impl World {
    fn api_travel(&mut self) -> Micros {
        let (low, high) = if self.chaos { self.swarm.api_delay } else { (MILLI, 5 * MILLI) };
        self.rng.between(low, high)
    }

    /// Sends one call. It has exactly one reply, `swarm.api_timeout` later at the latest.
    pub fn send_call(&mut self, process: usize, id: u64, ask: Ask) {
        let boot = self.processes[process].boot;
        let timeout = self.swarm.api_timeout;
        self.after(timeout, Event::ApiReply { process, boot, id, reply: Box::new(Reply::Overdue) });
        if self.processes[process].api_cut > 0 {
            return self.hit(Fault::ApiCut, Some(process));
        }
        // A request may arrive after its sender has stopped waiting for the answer.
        let slow = self.chaos && self.rng.permille(self.swarm.api_loss / 5);
        let delay = if slow { self.rng.between(0, 8 * SECOND) } else { self.api_travel() };
        self.after(delay, Event::ApiArrive(Box::new(ApiCall { process, boot, id, ask })));
    }

    pub fn api_arrive(&mut self, call: ApiCall) {
        let ApiCall { process, boot, id, .. } = call;
        let cluster = self.processes[process].cluster;
        let reply = match self.apis[cluster].mode {
            Mode::Hanging => {
                self.hit(Fault::ApiHangs, Some(process));
                return self.apis[cluster].hanging.push(call);
            }
            Mode::Refusing => {
                self.hit(Fault::ApiRefuses, Some(process));
                Reply::Refused
            }
            Mode::Up => self.serve(process, cluster, &call.ask),
        };
        let is_write = matches!(reply, Reply::Status(..) | Reply::Role(..));
        if is_write && self.chaos && self.rng.permille(self.swarm.api_loss) {
            if self.processes[process].writer.waits_for(id) {
                self.hit(Fault::ApiLoss, Some(process));
            }
            return;
        }
        if self.processes[process].api_cut > 0 {
            if self.processes[process].writer.waits_for(id) {
                self.hit(Fault::ApiCut, Some(process));
            }
            return;
        }
        let delay = self.api_travel();
        self.after(delay, Event::ApiReply { process, boot, id, reply: Box::new(reply) });
    }

    fn serve(&mut self, process: usize, cluster: usize, ask: &Ask) -> Reply {
        match ask {
            Ask::Status { place, uid, write } => self.serve_status(process, cluster, *place, *uid, write),
            Ask::Role { place, write } => {
                let checked = !self.is(Bug::RolesWithoutVersion);
                if write.workload.is_some() {
                    let before = self.apis[cluster].workload_of(*place).cloned();
                    let verdict = self.apis[cluster].write_workload(*place, write, checked);
                    self.note(Note::WroteRole { process, pod: objects::number(&write.uid), role: write.role, verdict });
                    self.count_write(process, cluster, verdict);
                    let workload = self.apis[cluster].workloads.get(&objects::number(&write.uid)).cloned();
                    if let (Verdict::Written, Some(before), Some(after)) = (verdict, &before, &workload) {
                        self.workload_written((cluster, *place), before, after, write);
                        if before != after {
                            self.saw_switch(write);
                            self.tell_workload(cluster, *place);
                        }
                    }
                    return Reply::Role(verdict, workload.map(Candidate::Workload));
                }
                let (verdict, change) = self.apis[cluster].write_role(*place, write, checked);
                self.note(Note::WroteRole { process, pod: objects::number(&write.uid), role: write.role, verdict });
                self.count_write(process, cluster, verdict);
                let has_changed = change.is_some();
                if has_changed {
                    self.one_active_pod(cluster, *place);
                }
                self.tell(cluster, change);
                if verdict == Verdict::Written {
                    self.withdrawal_is_stored((cluster, *place), write, has_changed);
                    self.start_or_delete(cluster, *place, write, has_changed);
                }
                let pod = self.apis[cluster].state.pods.get(&objects::number(&write.uid)).cloned();
                Reply::Role(verdict, pod.map(Candidate::Pod))
            }
            Ask::Lease(place) => {
                self.apis[cluster].writes.reads += 1;
                Reply::Lease(self.apis[cluster].state.leases[*place].clone())
            }
            Ask::Pod(pod) => {
                self.apis[cluster].writes.reads += 1;
                let api = &self.apis[cluster];
                let workload = || api.workloads.get(pod).cloned().map(Candidate::Workload);
                Reply::Pod(api.state.pods.get(pod).cloned().map(Candidate::Pod).or_else(workload))
            }
            Ask::Startable(place) => {
                self.apis[cluster].writes.reads += 1;
                let pods = self.apis[cluster].state.pods.values();
                let startable = pods.filter(|pod| objects::is_startable(pod, *place)).cloned();
                Reply::Pods(startable.map(Candidate::Pod).collect())
            }
            Ask::Workload(place) => {
                self.apis[cluster].writes.reads += 1;
                Reply::Workload(self.apis[cluster].workload_of(*place).cloned())
            }
            Ask::Node(pod) => {
                self.apis[cluster].writes.reads += 1;
                Reply::Node(self.apis[cluster].nodes_off.contains(pod))
            }
            Ask::Quorum => {
                let (version, leader) = self.apis[cluster].state.leader.clone();
                Reply::Quorum(Verdict::Written, version, leader)
            }
            Ask::Tokens => {
                self.apis[cluster].writes.reads += 1;
                let tokens = self.apis[cluster].state.leases.iter().flatten().map(|lease| objects::token(lease));
                Reply::Tokens(tokens.max().unwrap_or(Token(0)))
            }
            Ask::Claim { version, instance } => {
                let (verdict, change) = self.apis[cluster].write_leader(*version, instance);
                self.tell(cluster, change);
                let (version, leader) = self.apis[cluster].state.leader.clone();
                Reply::Quorum(verdict, version, leader)
            }
            Ask::Probe => {
                self.apis[cluster].writes.reads += 1;
                Reply::Probe
            }
        }
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
                let lease = self.apis[cluster].state.leases[place].as_deref();
                let named = lease.and_then(objects::named).filter(|named| named.active != Some(false));
                if named.is_some_and(|named| named.pod == pod) {
                    self.check.fail(format!("gate: pod {pod} is deleted, and the status names it as the holder"));
                }
                let stops = |pod: &Arc<PodFacts>| pod.deletion_grace.is_some();
                if !self.apis[cluster].state.pods.get(&pod).is_some_and(stops) {
                    self.delete_pod(cluster, pod);
                }
            }
            PodChange::Start | PodChange::Fence(_) | PodChange::None | PodChange::Run(_) => {}
        }
    }

    fn serve_status(&mut self, process: usize, cluster: usize, place: usize, uid: u32, write: &StatusWrite) -> Reply {
        let before = self.apis[cluster].state.leases[place].clone();
        let checked = !self.is(Bug::StatusWithoutVersion);
        let (verdict, change) = self.apis[cluster].write_status(place, uid, write, checked);
        let after = self.apis[cluster].state.leases[place].clone();
        let named = after.as_deref().and_then(objects::named);
        let was_named = before.as_deref().and_then(objects::named);
        let version = self.apis[cluster].state.version;
        self.running.status_changes((cluster, place), version, was_named, named);
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
            self.check.handover((cluster, uid), id, state);
        }
        if change.is_some() {
            self.check.status_writes(self.now, cluster, place, self.swarm.status_write_bound());
        }
        let publishes = write.priority == redislease::plan::Priority::Publication;
        if publishes && verdict == Verdict::Conflict {
            self.coverage.saw(Sight::StalePublicationRefused);
        }
        self.tell(cluster, change);
        Reply::Status(verdict, after.filter(|after| objects::uid_of(after) == uid))
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
