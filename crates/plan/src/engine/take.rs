//! What each input changes in the index, and the leases that it marks.

use std::collections::BTreeSet;

use redislease_core::op::Token;
use redislease_core::time::Time;

use super::{Caller, Effect, Engine, Input, Machine, Watched};
use crate::api::RedisLease;
use crate::election::PodFacts;
use crate::index::{LeaseId, WorkloadFound, WorkloadKey};
use crate::plan::calls::{Found, Outcome, Request, RoleAnswer};
use crate::plan::{Authority, Effect as Planned, Event, StatusOutcome};

impl<M: Machine> Engine<M> {
    /// Handles one input.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Lease(event) => self.take_lease(now, event),
            Input::Pod(event) => self.take_pod(now, event),
            Input::Namespace(event) => self.index.namespace(event),
            Input::Quorum { name, facts, authority } => {
                self.mistakes.authority_is(&name, authority);
                self.authorities.insert(name.clone(), authority);
                self.raise_floor(name.clone(), self.index.floor(&name));
                self.index.quorum_changed(&name, facts);
            }
            Input::QuorumsRead => {
                self.index.quorums_read();
                self.mistakes.quorums_read = true;
                self.report_mistakes();
                if self.leads_everywhere() {
                    self.sweep_again(now);
                }
            }
            Input::Authority(quorum, authority) => {
                self.mistakes.authority_is(&quorum, authority);
                self.authorities.insert(quorum.clone(), authority);
                self.index.workloads_of_quorum(&quorum, now);
                self.index.mark_quorum(&quorum);
                self.report_mistakes();
                // Leases may have been deleted while no replica decided.
                if authority == Authority::Lead {
                    self.sweep_again(now);
                }
            }
            Input::Answer { lease, incarnation, answer } => self.take_answer(now, lease, incarnation, answer),
            Input::ApiAnswered => {
                for id in std::mem::take(&mut self.awaiting) {
                    self.index.mark(id);
                }
            }
            Input::WorkloadChanged(change) => self.index.workload_changed(&change, now),
            Input::Workload(key, found) => self.take_workload(now, &key, found),
            Input::OrphanWritten(key, answer) => {
                self.take_found(now, &key.namespace, &key.object, answer.found);
                self.orphan_written(now, key, &answer.outcome);
            }
            Input::Shown(lease) => self.index.mark(lease),
            Input::ReportRefused { pod, problem } => self.mistakes.refused(&pod, &problem),
            Input::Panicked { lease, message } => self.panicked(now, lease, &message),
            Input::Wake => self.wake(now),
        }
        for (quorum, token) in self.index.raised_floors() {
            self.raise_floor(quorum, token);
        }
        self.effects.extend(self.index.implausible_tokens().into_iter().map(Effect::Implausible));
    }

    fn wake(&mut self, now: Time) {
        while let Some(id) = self.timers.expired(now) {
            self.index.mark(id);
        }
        self.retry_orphans(now);
        while let Some(key) = self.index.next_workload(now) {
            self.effects.push_back(Effect::Call(Caller::Workload(key.clone()), Request::Workload(key)));
        }
    }

    fn raise_floor(&mut self, quorum: String, token: Token) {
        if token > Token(0) {
            self.effects.push_back(Effect::RaiseFloor(quorum, token));
        }
    }

    fn take_workload(&mut self, now: Time, key: &WorkloadKey, found: WorkloadFound) {
        let leases: BTreeSet<String> =
            found.object.iter().flat_map(|object| object.marked_by()).map(str::to_owned).collect();
        self.index.workload_read(key, found, now);
        // Before, it is not known which leases exist.
        if self.swept {
            for orphan in leases.iter().flat_map(|lease| self.index.orphans_of(&key.0, lease)).collect::<Vec<_>>() {
                self.clear_orphan(now, &orphan);
            }
        }
    }

    fn take_lease(&mut self, now: Time, event: Watched<RedisLease>) {
        let mut unreadable_gone = false;
        match event {
            Watched::ListBegins => self.index.lease_list_begins(),
            Watched::Seen(lease) => {
                if let Some(id) = self.index.lease_seen(*lease, now) {
                    self.add(id);
                }
            }
            Watched::Unreadable(metadata) => self.index.lease_unreadable(&metadata),
            Watched::Deleted(lease) => unreadable_gone = self.index.lease_gone(&lease.metadata),
            Watched::DeletedUnreadable(metadata) => unreadable_gone = self.index.lease_gone(&metadata),
            Watched::Unlisted(namespace) => self.index.leases_unlisted(&namespace),
            Watched::ListEnds => {
                unreadable_gone = self.index.lease_list_ends(now);
                self.effects.push_back(Effect::FloorsComplete);
            }
        }
        if unreadable_gone {
            self.sweep_again(now);
        } else {
            self.sweep(now);
        }
    }

    fn take_pod(&mut self, now: Time, event: Watched<PodFacts>) {
        match event {
            Watched::ListBegins => self.index.pod_list_begins(),
            Watched::Seen(pod) => {
                self.effects.extend(self.mistakes.check(&pod));
                self.index.pod_seen(*pod, now);
            }
            Watched::Deleted(pod) => {
                self.mistakes.reported.remove(&pod.uid);
                self.index.pod_deleted(&pod, now);
            }
            // The last event of a pod that could not be read proves nothing.
            Watched::DeletedUnreadable(metadata) => {
                let (namespace, uid) = (metadata.namespace.unwrap_or_default(), metadata.uid.unwrap_or_default());
                self.mistakes.reported.remove(&uid);
                self.index.pod_missing(&namespace, &uid, false, now);
            }
            Watched::Unreadable(metadata) => self.index.pod_unreadable(&metadata),
            Watched::Unlisted(namespace) => self.index.pods_unlisted(&namespace),
            Watched::ListEnds => {
                self.index.pod_list_ends(now);
                self.report_mistakes();
                self.sweep(now);
            }
        }
    }

    pub(super) fn take_answer(&mut self, now: Time, id: LeaseId, incarnation: u32, answer: Outcome) {
        let Some(namespace) = self.index.lease(id).map(|entry| entry.namespace.clone()) else { return };
        // The object in an answer is valid whichever machine sent the request.
        let event = match answer {
            Outcome::LeaseStatus(outcome) => {
                if let StatusOutcome::Written(lease) = &outcome {
                    self.index.lease_answered(id, lease.clone(), now);
                }
                Event::StatusWritten(outcome)
            }
            Outcome::Lease(read) => {
                if let Ok(Some(lease)) = &read {
                    self.index.lease_answered(id, lease.clone(), now);
                }
                Event::LeaseRead(read)
            }
            Outcome::Holder(uid, read) => {
                let answered = read.is_ok();
                self.take_found(now, &namespace, &uid, read.ok());
                Event::HolderRead { uid, answered }
            }
            Outcome::Startable(read) => {
                let answered = read.is_ok_and(|(asked, pods)| self.index.pods_answered(asked, pods, now));
                Event::StartableRead { answered }
            }
            Outcome::Node(uid, read) => {
                if read == Ok(true) {
                    self.index.pod_missing(&namespace, &uid, true, now);
                }
                Event::NodeRead
            }
            Outcome::Role(uid, RoleAnswer { outcome, found }) => {
                self.take_found(now, &namespace, &uid, found);
                Event::RoleWritten { uid, outcome }
            }
            _ => {
                let warning = Planned::Warn("Ignored the answer to a call that no lease makes.".into());
                let subject = self.subject(id);
                return self.effects.extend(subject.map(|subject| Effect::Lease(subject, warning)));
            }
        };
        if let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.incarnation == incarnation) {
            lease.answers.push(event);
            self.index.mark(id);
        }
    }

    fn take_found(&mut self, now: Time, namespace: &str, uid: &str, found: Option<Found>) {
        match found {
            Some(Found::Here(asked, object)) => self.index.answered(asked, object, now),
            Some(Found::Gone(workload)) => self.index.answered_missing(namespace, uid, workload, now),
            None => {}
        }
    }
}
