//! The machine of a lease, with the planted bugs that change what it is told or what it says.

use std::sync::Arc;

use redislease_core::lease::{Refusal, Standing, View};
use redislease_core::op::{Attempt, Stage, Stored};
use redislease_core::time::{Millis, Time};
use redislease_plan::api::{RedisLease, names};
use redislease_plan::engine::Machine;
use redislease_plan::plan::{
    CandidateFacts, Effect, Event, Facts, Identity, PermitUse, PermitUses, PodKnowledge, Reconciler,
};

use crate::chaos::bug::Bug;

type Known = (CandidateFacts, PodKnowledge);

/// A reconciler and the planted bugs.
#[derive(Debug)]
pub struct Planted {
    bugs: Vec<Bug>,
    reconciler: Reconciler,
    /// The newest version of the lease that a turn has seen.
    pub lease: Option<Arc<RedisLease>>,
    /// The candidates and the holder that the last turn has seen.
    pub known: Known,
    pub uses: PermitUses,
}

impl Planted {
    fn is(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// An answer to an attempt that no attempt has got.
    fn view(&self, now: Time, mut view: View) -> View {
        if self.is(Bug::StoppedWithoutAnswer) && view.standing == Standing::Idle {
            let metadata = "elsewhere/cluster-9/team/lease-0/lease-0/pod-uid-0".into();
            let by = Stored { stage: Stage::Term, attempt: Attempt(1), number: 1, metadata };
            view.refusal = Some(Refusal { asked_at: now, until: now + Millis(60_000) });
            view.refused_by = Some(Box::new(by));
        }
        view
    }

    fn facts(&mut self, now: Time, facts: &mut Facts) {
        self.lease = facts.lease.clone().or_else(|| self.lease.take());
        if self.is(Bug::DeletionIgnored) {
            facts.lease.clone_from(&self.lease);
        }
        if self.is(Bug::EndsWithItsWorkload)
            && let Some(lease) = &mut facts.lease
        {
            // As if somebody had written the lease.
            Arc::make_mut(lease).metadata.annotations.get_or_insert_default().remove(names::CREATED_FOR_ANNOTATION);
        }
        if self.is(Bug::ContendsWithoutAnswer) {
            facts.api_answered_at = Some(now);
        }
        if self.is(Bug::UnfitTermRunsOn) && facts.spec.is_unfit {
            facts.candidates = CandidateFacts::Unknown;
        }
        match &mut facts.holder {
            PodKnowledge::Gone { stopped } if self.is(Bug::GoneIsProof) => *stopped = true,
            PodKnowledge::Here(sighting)
                if self.is(Bug::DeletingIsProof) && sighting.facts.deletion_grace.is_some() =>
            {
                facts.holder = PodKnowledge::Gone { stopped: true };
            }
            _ => {}
        }
        self.known = (facts.candidates.clone(), facts.holder.clone());
    }

    /// The permits that the lease uses after a turn.
    fn permits(&self) -> PermitUses {
        let (mut uses, had) = (self.reconciler.permit_uses(), self.uses);
        if self.is(Bug::PermitKept) && had.attempt == PermitUse::Uses {
            uses.attempt = had.attempt;
        }
        if self.is(Bug::WritePermitKept) && had.end == PermitUse::Uses {
            uses.end = had.end;
        }
        uses
    }
}

impl Machine for Planted {
    type Config = Vec<Bug>;

    fn new(bugs: &Vec<Bug>, identity: Identity) -> Self {
        let reconciler = Reconciler::new(&(), identity);
        Self { bugs: bugs.clone(), reconciler, lease: None, known: Known::default(), uses: PermitUses::default() }
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Facts(mut facts) => {
                self.facts(now, &mut facts);
                self.reconciler.handle(now, Event::Facts(facts));
                self.uses = self.permits();
            }
            Event::View(view) => {
                let view = self.view(now, view);
                self.reconciler.handle(now, Event::View(view));
            }
            event => self.reconciler.handle(now, event),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.reconciler.poll_effect()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.reconciler.next_deadline()
    }

    fn holder(&self) -> Option<(String, String)> {
        self.reconciler.holder()
    }

    fn awaits_api_answer(&self) -> bool {
        self.reconciler.awaits_api_answer()
    }

    fn permit_uses(&self) -> PermitUses {
        self.uses
    }

    fn is_finished(&self) -> bool {
        self.reconciler.is_finished()
    }
}
