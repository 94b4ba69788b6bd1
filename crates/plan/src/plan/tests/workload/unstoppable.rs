//! What ends the term of a workload that runs while the operator must not stop it: another cluster would start its own beside it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;

impl Story {
    /// Somebody sets `spec.suspend`.
    pub(in super::super) fn suspend(&mut self) {
        let mut spec = serde_json::to_value(&self.facts.lease.as_ref().unwrap().spec).unwrap();
        spec["suspend"] = json!(true);
        let status = serde_json::to_value(&self.facts.lease.as_ref().unwrap().status).unwrap();
        self.store(&spec, &status);
        self.turn();
    }

    /// The RedisQuorum does not allow the namespace any more.
    fn deny(&mut self) {
        let obstacle = Some((LeaseReady::InvalidReference, "why".to_owned()));
        self.facts.quorum = Arc::new(QuorumFacts { denied: true, obstacle, ..quorum(1, "f00d") });
        self.turn();
    }
}

#[test]
fn a_running_workload_keeps_its_term_while_the_operator_must_not_stop_it() {
    for revoke in [Story::suspend, Story::deny] {
        let mut story = Story::running();
        story.facts.allowed = Allowed::default();
        revoke(&mut story);
        assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
        let mut next = story.clone().restarted();
        assert!(next.wants(&Effect::Keeper(Command::Adopt(held_by_here()))), "{:?}", next.effects);
        next.view(held(held_by_here()));
        next.facts.candidates = CandidateFacts::Unknown;
        next.turn();
        assert_eq!(next.commands(), [], "what is not known may run");

        let mut stopped = story.clone();
        stopped.workload_is(WorkloadFacts { run: Run::Replicas(0), ..story.workload() });
        stopped.turn();
        assert_eq!(stopped.commands(), [Command::End { term: held_by_here(), proof: false }]);
        story.facts.allowed = Allowed { scale: true, ..Allowed::default() };
        story.turn();
        assert_eq!(story.commands(), [Command::End { term: held_by_here(), proof: false }]);
    }
}

#[test]
fn a_suspended_lease_says_why_its_term_goes_on() {
    let mut story = Story::running();
    story.facts.allowed = Allowed::default();
    story.suspend();
    let ready = |story: &Story| {
        let status = story.status_write().map(|write| write.status);
        let status = status.or_else(|| story.facts.lease.as_ref()?.status.clone().map(Arc::new)).unwrap();
        status.condition(ConditionType::Ready).unwrap().clone()
    };
    let Condition { reason, message, .. } = ready(&story);
    assert_eq!(reason, LeaseReady::ActivationNotAllowed.as_str());
    let ends = "The term goes on although spec.suspend is true, because the operator could not stop its holder.";
    assert!(message.contains("rbac.allowScale in the chart") && message.ends_with(ends), "{message}");
    story.write();
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.write();
    story.view(idle(0));
    let message = ready(&story).message;
    assert!(!message.contains("goes on"), "{message}");
}
