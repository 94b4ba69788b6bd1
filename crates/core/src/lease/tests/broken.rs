//! A machine that broke an invariant, in a release.

use super::*;
use crate::invariants::Violation;

const LOCAL: [Violation; 3] = [Violation::BeliefPastDeadline, Violation::UnconfirmedBelief, Violation::TwoTermsAtOnce];

impl Scenario {
    /// Breaks an invariant. Returns the view that is shown then.
    fn breaks(&mut self, violation: Violation) -> View {
        self.sent.clear();
        self.lease.break_invariant(Time(self.now), violation);
        let Some(Effect::Broken(broken)) = self.lease.poll_effect() else { panic!("{violation}") };
        assert_eq!(broken.violation, violation);
        let Some(Effect::Changed(view)) = self.lease.poll_effect() else { panic!("the loss is shown first") };
        self.give(Input::Wake);
        view
    }
}

#[test]
fn a_term_with_a_broken_invariant_is_lost_at_once_and_keeps_its_keys() {
    for violation in LOCAL {
        let (mut scenario, id) = Scenario::holding();
        scenario.pass(12_345);
        let view = scenario.breaks(violation);
        assert_eq!(view.standing, Standing::Idle, "{violation}");
        let ending = view.ending.expect("it ends");
        assert_eq!((ending.id, ending.reason), (id.clone(), EndReason::Defect));
        assert!(ending.keys_until >= Time(scenario.now + TTL));
        assert!(scenario.has_sent("seal") && !scenario.has_sent("release"));
        assert!((0..3).all(|node| scenario.life(node, id.attempt).is_some()), "{violation}");
        // The new machine takes the lease when the keys have expired, with a greater token.
        scenario.want();
        scenario.pass(TTL + 1000);
        assert!(!scenario.is_held());
        scenario.want();
        assert!(scenario.written().token > id.token, "{violation}");
        assert!(
            scenario.is_held() && !scenario.sent.iter().any(|(_, op)| op.is_release() && op.attempt() == id.attempt)
        );
    }
}

#[test]
fn what_the_broken_machine_wanted_to_do_is_not_done() {
    let (mut scenario, id) = Scenario::holding();
    // The machine wants to extend the term, and then the invariant fails.
    scenario.now = scenario.lease.next_deadline().expect("it renews").0;
    scenario.lease.handle(Time(scenario.now), Input::Wake);
    let view = scenario.breaks(Violation::UnconfirmedBelief);
    assert_eq!(view.ending.map(|ending| ending.id), Some(id));
    assert!(scenario.has_sent("seal") && !scenario.has_sent("extend"));
}

#[test]
fn a_process_that_may_not_end_terms_must_confirm_a_term_with_a_broken_invariant_again() {
    for violation in LOCAL {
        let mut scenario = Scenario::with(Config { deadline: OnDeadline::Unconfirm, ..config() }, None);
        let id = scenario.held();
        let view = scenario.breaks(violation);
        let Standing::Adopting(term) = view.standing else { panic!("{violation}: {view:?}") };
        assert_eq!((term.id, term.valid_until, view.ending), (id.clone(), None, None));
        assert!(!scenario.has_sent("seal") && !scenario.has_sent("release"));
        assert!(scenario.is_held(), "a majority confirmed it again");
    }
}

#[test]
fn the_round_after_a_defect_does_not_wait_for_the_turn_that_the_driver_gave_to_the_broken_machine() {
    let mut scenario = Scenario::with(Config { deadline: OnDeadline::Unconfirm, ..config() }, None);
    scenario.held();
    scenario.lease.hold(Time(scenario.now + 10_000));
    scenario.breaks(Violation::BeliefPastDeadline);
    assert!(scenario.is_held() && scenario.has_sent("extend"), "{:?}", scenario.standing());
}
