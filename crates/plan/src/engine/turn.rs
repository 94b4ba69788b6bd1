//! One turn of one lease, and what follows from a panic.

use std::sync::Arc;

use redislease_core::backoff::{Backoff, Entropy};
use redislease_core::time::Time;

use super::{Effect, Engine, Machine, Subject, Surroundings};
use crate::index::LeaseId;
use crate::plan::calls::Outcome;
use crate::plan::{Authority, Effect as Planned, Event, Facts, Permitted, StatusOutcome};
use crate::status::{Notice, NoticeReason};

/// The pause after a panic in a turn: long enough to avoid a busy loop, short compared with a lease duration. The keeper
/// keeps renewing meanwhile.
const PANIC: Backoff = Backoff::exponential(1000, 60_000, 0);

/// What decides what becomes of a lease after its turn.
struct Turned {
    permitted: Permitted,
    /// Whether the resource is deleted.
    gone: bool,
    authority: Authority,
}

impl<M: Machine> Engine<M> {
    /// Gives a turn to a lease of [`Engine::next_due`].
    pub fn turn(&mut self, now: Time, id: LeaseId, surroundings: Surroundings) {
        self.replace_broken(id);
        let Some(turned) = self.decide(now, id, surroundings) else { return };
        self.finish_turn(now, id, &turned);
        self.check_annotations_of_lease(id, turned.authority);
        self.offer_permits();
    }

    /// A lease that panicked in its last turn gets a new machine.
    fn replace_broken(&mut self, id: LeaseId) {
        let is_broken = self.leases.get(&id).is_some_and(|lease| lease.broken_until.is_some());
        let machine = if is_broken { self.new_machine(id) } else { None };
        let Some(lease) = self.leases.get_mut(&id) else { return };
        match machine {
            Some(machine) => {
                lease.broken_until = None;
                lease.incarnation += 1;
                lease.answers.clear();
                lease.machine = machine;
            }
            // The last turn and its effects did not panic.
            None => lease.panics = 0,
        }
    }

    /// The deciding part of a turn. Returns `None` if the lease does not exist any more.
    fn decide(&mut self, now: Time, id: LeaseId, mut surroundings: Surroundings) -> Option<Turned> {
        let lease = self.leases.get_mut(&id)?;
        let machine = &mut lease.machine;
        // The buffer is freed: most leases have no answers most of the time.
        for answer in std::mem::take(&mut lease.answers) {
            machine.handle(now, answer);
        }
        for view in surroundings.news.take_views() {
            machine.handle(now, Event::View(view));
        }
        if surroundings.news.ended {
            machine.handle(now, Event::KeeperEnded);
        }
        self.index.set_holder(id, machine.holder().as_ref().map(|(_, uid)| uid.as_str()));
        let entry = self.index.lease(id)?;
        let permitted = self.permits.permitted(&id, &entry.quorum, &entry.namespace);
        let facts = self.index.facts(id, now)?;
        let facts = Facts {
            // The leader of a quorum is unknown until the quorums were read.
            authority: if facts.quorum.read { surroundings.authority } else { Authority::Follow },
            authority_gains: surroundings.authority_gains,
            stop_at: surroundings.news.stop_at,
            api_answered_at: surroundings.api_answered_at,
            permitted,
            allowed: self.config.allowed,
            wall: surroundings.wall,
            ..facts
        };
        let turned = Turned { permitted, gone: facts.lease.is_none(), authority: facts.authority };
        machine.handle(now, Event::Facts(Box::new(facts)));
        if turned.gone || turned.authority == Authority::Follow {
            self.effects.push_back(Effect::Hide(id));
        } else if turned.authority == Authority::Renew {
            self.effects.push_back(Effect::DoNotCount(id));
        }
        Some(turned)
    }

    fn finish_turn(&mut self, now: Time, id: LeaseId, turned: &Turned) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let planned: Vec<Planned> = std::iter::from_fn(|| lease.machine.poll_effect()).collect();
        // Before the effects: one of them may be the probe whose answer the lease waits for.
        if lease.machine.awaits_api_answer() {
            self.awaiting.insert(id);
            self.effects.push_back(Effect::AwaitAnswer);
        } else {
            self.awaiting.remove(&id);
        }
        if !planned.is_empty()
            && let Some(subject) = self.subject(id)
        {
            for effect in planned {
                match subject.effect(effect) {
                    Some(effect) => self.effects.push_back(effect),
                    None => self.take_answer(now, id, subject.incarnation, Outcome::LeaseStatus(StatusOutcome::Gone)),
                }
            }
        }
        let (Some(lease), Some(entry)) = (self.leases.get(&id), self.index.lease(id)) else { return };
        let machine = &lease.machine;
        if turned.gone && machine.is_finished() {
            self.effects.push_back(Effect::Forget(id));
            self.permits.forget(&id);
            self.timers.set(id, None);
            self.awaiting.remove(&id);
            let (namespace, name) = (entry.namespace.clone(), entry.name.clone());
            self.index.remove(id);
            self.leases.remove(&id);
            // The removal of a mark may have been refused.
            if turned.authority == Authority::Lead {
                for orphan in self.index.orphans_of(&namespace, &name) {
                    self.clear_orphan(now, &orphan);
                }
            }
            return;
        }
        self.permits.record(&id, &entry.quorum, &entry.namespace, turned.permitted, machine.permit_uses());
        self.timers.set(id, machine.next_deadline());
    }

    /// The subject of effects of the lease.
    pub(super) fn subject(&self, id: LeaseId) -> Option<Arc<Subject>> {
        let (entry, lease) = (self.index.lease(id)?, self.leases.get(&id)?);
        Some(Arc::new(Subject {
            id,
            incarnation: lease.incarnation,
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: entry.uid.clone(),
            quorum: entry.quorum.clone(),
            object: entry.object.clone(),
        }))
    }

    /// Gives a turn to each lease that waited for a permit and can have one now.
    fn offer_permits(&mut self) {
        while let Some(id) = self.permits.offer() {
            self.index.mark(id);
        }
    }

    /// A turn of the lease, or one of its effects, panicked: the state of its machine may be inconsistent. The effects that are left
    /// are dropped. If the report of the panic panics too, the pause stays as it is.
    pub(super) fn panicked(&mut self, now: Time, id: LeaseId, message: &str) {
        self.effects.retain(|effect| effect.lease() != Some(id) || matches!(effect, Effect::ReportOnLease(..)));
        self.permits.forget(&id);
        self.offer_permits();
        let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.broken_until.is_none()) else { return };
        lease.panics = lease.panics.saturating_add(1);
        let until = now + PANIC.jittered(lease.panics, Entropy::default());
        lease.broken_until = Some(until);
        let is_first = lease.panics == 1;
        self.timers.set(id, Some(until));
        let Some(subject) = self.subject(id) else { return };
        self.effects.push_back(Effect::Lease(subject.clone(), Planned::WithdrawStatus));
        if is_first {
            self.effects.push_back(Effect::Lease(subject, Planned::Report(panic_notice(message))));
        }
    }
}

/// The event about a panic: the owner of the lease sees that it is not reconciled, and the operator's log has more.
fn panic_notice(message: &str) -> Notice {
    let note = format!(
        "The operator has a defect that affects this lease: its reconciliation panicked and is repeated after a pause. A \
         term that this operator process already renews is renewed further. Report this message: {message}"
    );
    Notice { reason: NoticeReason::InternalError, note, on_pods: Vec::new() }
}
