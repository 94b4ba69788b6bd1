//! What the users see of role writes that the API server refuses.

use redislease_core::time::{Millis, Time};

use super::desired_role::DesiredRole;
use super::output::Effects;
use super::role_writer::SentRole;
use super::{Effect, Measure, PodChange, RoleOutcome, lacks_right};
use crate::api::names::PodRole;
use crate::status::NoticeReason;

/// How long the operator waits before it tries again whether it has the right to write to a workload.
const FORBIDDEN: Millis = Millis(300_000);

/// The last refusal. Boxed: most leases have none.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Option<Box<Refusal>>);

/// A role write that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    /// The UID of the pod or workload.
    uid: String,
    change: PodChange,
    /// Whether it refused a dry run: nothing was to change yet.
    dry_run: bool,
    why: String,
    /// Until when no new term begins: the operator has no right to write to the workload.
    forbidden_until: Option<Time>,
}

impl Refusal {
    fn is_deletion(&self) -> bool {
        self.change == PodChange::Delete && !self.dry_run
    }
}

impl Refusals {
    pub fn of_deletion(&self, uid: &str) -> Option<&str> {
        let refusal = self.0.as_ref().filter(|one| one.uid == uid && one.is_deletion());
        refusal.map(|refusal| refusal.why.as_str())
    }

    /// Why the workload with this UID runs on although it is to be stopped.
    pub fn of_stop(&self, uid: &str) -> Option<&str> {
        let is_stop = |one: &&Refusal| {
            one.uid == uid && !one.dry_run && matches!(one.change, PodChange::Run(run) if run.is_stopped())
        };
        let refusal = self.0.as_deref().filter(is_stop);
        refusal.map(|refusal| refusal.why.as_str())
    }

    /// Why the API server has not stored what starts the pod with this UID, or makes the workload with it active.
    pub fn of_grant(&self, uid: &str, is_workload: bool) -> Option<&str> {
        let is_grant = |change| match change {
            PodChange::Start => true,
            PodChange::Run(run) => !run.is_stopped(),
            PodChange::None | PodChange::Fence(_) => is_workload,
            PodChange::Delete => false,
        };
        let refusal = self.0.as_deref().filter(|one| one.uid == uid && !one.dry_run && is_grant(one.change));
        refusal.map(|refusal| refusal.why.as_str())
    }

    /// Why the workload cannot be started and stopped, if the operator has no right to write to it: no term begins, and one whose
    /// workload is stopped ends, so that another cluster can start its workload.
    ///
    /// `workload`: the UID of the candidate, if it is known. A refusal of another workload says nothing about it.
    pub fn forbidden(&mut self, now: Time, workload: Option<&str>, out: &mut Effects) -> Option<String> {
        let refusal = self.0.as_ref()?;
        let until = refusal.forbidden_until?;
        if now >= until || workload.is_some_and(|uid| uid != refusal.uid) {
            self.0 = None;
            return None;
        }
        out.wake_at(until);
        let why = &self.0.as_ref()?.why;
        Some(format!(
            "The operator has no right to start and stop the workload: {why}. Grant it, for example with the roles of the chart; the \
             operator tries again within 5 minutes."
        ))
    }

    /// Takes the answer to a write of the object, or to its dry run. Each refusal is reported, and so is a deletion: nothing else shows the users why
    /// their pod stops or waits.
    pub fn answered(&mut self, now: Time, writing: &SentRole, outcome: &RoleOutcome, out: &mut Effects) {
        let SentRole { uid, pod, kind, desired: DesiredRole { role, change, dry_run, .. }, .. } = writing;
        let (kind, change, dry_run, on_pods) = (*kind, *change, *dry_run, vec![(pod.clone(), uid.clone())]);
        let refused = match outcome {
            RoleOutcome::Refused(why) => Some(why.clone()),
            RoleOutcome::Written(Some(altered)) => Some(altered.to_string()),
            RoleOutcome::AtFault(why) => Some(format!(
                "the API server answers other calls, and this one not, as if an admission webhook hangs: {why}"
            )),
            // Only an answer says that it is not refused any more.
            RoleOutcome::Unanswered(_) | RoleOutcome::Withdrawn => return,
            RoleOutcome::Written(None) | RoleOutcome::Conflict | RoleOutcome::Gone => None,
        };
        let is_label = matches!(change, PodChange::None | PodChange::Fence(_));
        let Some(why) = refused else {
            // A pod that cannot be deleted runs on, whatever becomes of its label `standby`.
            let is_standby = is_label && *role == Some(PodRole::Standby) && *outcome != RoleOutcome::Gone;
            if self.0.as_ref().is_some_and(|known| known.uid == *uid && !(is_standby && known.is_deletion())) {
                self.0 = None;
            }
            if change == PodChange::Delete && !dry_run && *outcome == RoleOutcome::Written(None) {
                let note = format!(
                    "{pod} does not hold the lease any more and is deleted: spec.activation.schedulingGate is true"
                );
                out.report(NoticeReason::PodDeleted, note, on_pods);
            }
            return;
        };
        let altered = matches!(outcome, RoleOutcome::Written(Some(_)));
        out.emit(Effect::Measure(Measure::WriteRefused { kind, altered }));
        // A workload that is not a candidate any more is no reason to make no attempt.
        let is_forbidden =
            kind.is_some() && role.is_some() && matches!(outcome, RoleOutcome::Refused(why) if lacks_right(why));
        let forbidden_until = is_forbidden.then_some(now + FORBIDDEN);
        let refusal = Refusal { uid: uid.clone(), change, dry_run, why: why.clone(), forbidden_until };
        // A refused write is repeated: the same refusal is reported once.
        let is_same = |known: &Refusal| {
            (&known.uid, known.change, known.dry_run, &known.why) == (&refusal.uid, change, dry_run, &why)
        };
        let is_known = self.0.as_deref().is_some_and(is_same);
        // What keeps this cluster from its workload is remembered until it is over; that a pod runs on says more than that it has
        // no label.
        let blocks = |known: &Refusal| {
            if known.uid == *uid {
                return is_label && known.is_deletion();
            }
            // A start that is refused, too: the labels of the other pods say nothing about it.
            known.forbidden_until.is_some_and(|until| now < until) || (is_label && known.change == PodChange::Start)
        };
        let keeps = refusal.forbidden_until.is_none() && self.0.as_deref().is_some_and(blocks);
        if !keeps {
            self.0 = Some(Box::new(refusal));
        }
        if is_known || keeps {
            return;
        }
        let (reason, what) = said(change, dry_run);
        out.report(reason, format!("{pod} {what}: {why}"), on_pods);
    }
}

/// The reason of the event about a refusal, and what its object does.
fn said(change: PodChange, dry_run: bool) -> (NoticeReason, &'static str) {
    match change {
        _ if dry_run => (NoticeReason::ActivationRefused, "holds the lease and cannot be stopped, so its term goes on"),
        PodChange::Delete => {
            (NoticeReason::ActivationRefused, "does not hold the lease any more and cannot be deleted")
        }
        PodChange::Run(run) if run.is_stopped() => {
            (NoticeReason::ActivationRefused, "does not hold the lease and runs on, because it cannot be stopped")
        }
        PodChange::Run(_) => (NoticeReason::ActivationRefused, "holds the lease and cannot be scaled or resumed"),
        PodChange::Start => (NoticeReason::ActivationRefused, "holds the lease and cannot be started"),
        PodChange::None | PodChange::Fence(_) => (NoticeReason::WriteRefused, "cannot get its label and its token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_runs_on_only_if_its_own_deletion_was_refused() {
        for (uid, change, dry_run, runs_on) in [
            ("a", PodChange::Delete, false, true),
            ("a", PodChange::Delete, true, false),
            ("a", PodChange::None, false, false),
            ("b", PodChange::Delete, false, false),
        ] {
            let why = "a policy".to_owned();
            let refusal = Refusal { uid: uid.to_owned(), change, dry_run, why, forbidden_until: None };
            let refusals = Refusals(Some(Box::new(refusal)));
            assert_eq!(refusals.of_deletion("a").is_some(), runs_on, "{refusals:?}");
        }
    }
}
