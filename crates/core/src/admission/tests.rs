//! The admission of one node; the test plays the node.

use super::*;
use crate::check::Mutant;
use crate::seed::{Allegiance, FenceReport};
use alloc::vec::Vec;

const LONGEST: Millis = Millis(60_000);
/// 60 s and one percent and two milliseconds.
const QUARANTINE: u64 = 60_602;
/// The heartbeat after that.
const BEAT: u64 = 61_000;

fn config() -> Config {
    Config {
        membership: Membership { generation: 1, fingerprint: "f00d".into() },
        quorum: Quorum::of(3).unwrap(),
        has_statuses: false,
        longest_lease: LONGEST,
        drift: Drift::STANDARD,
        heartbeat: Beat { every: Millis(1000), phase: Time(0) },
    }
}

/// Only the node itself has answered.
fn fences(fence: u64, own_clock: u64) -> Input {
    let target = FenceReport { allegiance: Allegiance::Nobody, fence: Token(fence), clock: 0 };
    Input::Fences(Some(Fences { target, others: Vec::new(), floor: Token(0), own_clock }))
}

struct Scenario {
    machine: Admission,
}

impl Scenario {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(mutant: Option<Mutant>) -> Self {
        Self { machine: Admission::new(config()).with_mutant(mutant) }
    }

    /// The node of server `r1` was connected at 0, with this marker.
    fn observed(mutant: Option<Mutant>, marker: Marker) -> Self {
        let mut scenario = Self::with(mutant);
        scenario.connect(0, "r1");
        scenario.at(0, Input::Observed(marker));
        scenario
    }

    fn at(&mut self, now: u64, input: Input) -> Vec<Effect> {
        self.machine.handle(Time(now), input);
        core::iter::from_fn(|| self.machine.poll_effect()).collect()
    }

    fn connect(&mut self, now: u64, run_id: &str) -> Vec<Effect> {
        self.at(now, Input::Connected(run_id.into()))
    }
}

/// The call that reads the marker of `r1`.
fn observe(stepped: Option<Marker>) -> Effect {
    Effect::Call(Call::Observe { run_id: "r1".into(), stepped })
}

fn admit(nonce: u128, seed: u64) -> Effect {
    Effect::Call(Call::Admit { ticket: wait("r1", nonce), marker: admitted("r1"), seed: Token(seed) })
}

fn quarantined(until: u64) -> Effect {
    Effect::Changed(Standing::Quarantined { until: Time(until) })
}

fn wait(run_id: &str, nonce: u128) -> Marker {
    Marker::Wait { run_id: run_id.into(), nonce }
}

fn admitted(run_id: &str) -> Marker {
    config().membership.marker(run_id.into())
}

#[test]
fn a_node_with_our_marker_votes_at_once() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.connect(1000, "r1"), [Effect::Changed(Standing::Observing), observe(None)]);
    assert_eq!(scenario.machine.marker(), None);
    assert_eq!(scenario.at(1001, Input::Observed(admitted("r1"))), [Effect::Changed(Standing::Admitted)]);
    assert_eq!(scenario.machine.marker(), Some(admitted("r1")));
}

#[test]
fn the_fences_are_read_when_the_wait_is_over_to_the_millisecond() {
    let mut scenario = Scenario::new();
    scenario.connect(1000, "r1");
    let until = Time(2000 + QUARANTINE);
    assert_eq!(scenario.at(2000, Input::Observed(wait("r1", 7))), [Effect::Changed(Standing::Quarantined { until })]);
    for beat in 3..62 {
        assert_eq!(scenario.at(beat * 1000, Input::Wake), [observe(None)]);
        assert_eq!(scenario.at(beat * 1000, Input::Observed(wait("r1", 7))), []);
    }
    assert!(!scenario.at(until.0 - 1, Input::Wake).contains(&Effect::ReadFences), "one millisecond early");
    scenario.at(until.0 - 1, Input::Observed(wait("r1", 7)));
    assert_eq!(scenario.machine.next_deadline(), Some(until));
    assert_eq!(scenario.at(until.0, Input::Wake), [Effect::Changed(Standing::Seeding(None)), Effect::ReadFences]);
    assert_eq!(scenario.at(until.0 + 1, fences(50, 0)), [admit(7, 50)]);
    assert_eq!(scenario.at(until.0 + 2, Input::Observed(admitted("r1"))), [Effect::Changed(Standing::Admitted)]);
}

#[test]
fn another_process_may_admit_while_the_fences_are_being_read() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    assert!(scenario.at(QUARANTINE, Input::Wake).contains(&Effect::ReadFences));
    let next = Time(BEAT);
    assert_eq!(scenario.machine.next_deadline(), Some(next), "the statuses may be away for a long time");
    assert_eq!(scenario.at(next.0, Input::Wake), [observe(None)]);
    assert_eq!(scenario.at(next.0, Input::Observed(wait("r1", 7))), [], "the fences are read once");
    scenario.at(next.0 + 1000, Input::Wake);
    let observed = scenario.at(next.0 + 1000, Input::Observed(admitted("r1")));
    assert_eq!(observed, [Effect::Changed(Standing::Admitted)]);
    assert_eq!(scenario.at(next.0 + 1001, fences(50, 0)), []);
}

#[test]
fn fences_that_were_read_for_an_earlier_ticket_are_read_again() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(QUARANTINE, Input::Wake);
    scenario.at(QUARANTINE + 1000, Input::Wake);
    scenario.at(QUARANTINE + 1000, Input::Observed(wait("r1", 8)));
    let until = scenario.machine.next_deadline().unwrap().max(Time(2 * QUARANTINE + 1000));
    assert!(scenario.at(until.0, Input::Wake).contains(&Effect::ReadFences));
}

#[test]
fn a_changed_ticket_starts_the_wait_again() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(50_000, Input::Wake);
    assert_eq!(scenario.at(50_000, Input::Observed(wait("r1", 8))), [quarantined(50_000 + QUARANTINE)]);
}

#[test]
fn the_wait_for_a_ticket_continues_after_a_reconnect() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    assert_eq!(scenario.at(10_000, Input::Disconnected), [Effect::Changed(Standing::Offline)]);
    assert_eq!(scenario.machine.next_deadline(), None);
    scenario.connect(20_000, "r1");
    assert_eq!(scenario.at(20_001, Input::Observed(wait("r1", 7))), [quarantined(QUARANTINE)]);
}

#[test]
fn a_restarted_server_starts_the_wait_again_whatever_marker_it_restored() {
    let mut scenario = Scenario::observed(None, admitted("r1"));
    scenario.at(1, Input::Disconnected);
    scenario.connect(2, "r2");
    // Observe found the marker of r1 and wrote a ticket for r2.
    assert_eq!(scenario.at(3, Input::Observed(wait("r2", 9))), [quarantined(3 + QUARANTINE)]);
}

#[test]
fn another_operator_that_admitted_first_ends_the_wait() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(1000, Input::Wake);
    assert_eq!(scenario.at(1001, Input::Observed(admitted("r1"))), [Effect::Changed(Standing::Admitted)]);
}

/// A node that voted until its clock was doubted at 500.
fn doubted(mutant: Option<Mutant>) -> Scenario {
    let mut scenario = Scenario::observed(mutant, admitted("r1"));
    assert_eq!(scenario.at(500, Input::Doubted), [Effect::Changed(Standing::Observing), observe(None)]);
    scenario
}

/// Otherwise the node would lose its vote for everybody once more.
#[test]
fn a_marker_that_is_seen_after_the_wait_for_a_step_is_kept() {
    for (later, replaced) in [(QUARANTINE - 1, Some(admitted("r1"))), (QUARANTINE, None)] {
        let mut scenario = Scenario::observed(None, admitted("r1"));
        scenario.at(500, Input::Doubted);
        scenario.at(501, Input::Observed(admitted("r1")));
        scenario.at(510, Input::Disconnected);
        scenario.at(520, Input::Stepped);
        // Another process saw the step, and its wait is over.
        let effects = scenario.connect(520 + later, "r1");
        assert!(effects.contains(&observe(replaced)), "{effects:?}");
    }
}

#[test]
fn a_doubt_takes_the_vote_until_the_clock_is_known_to_be_steady() {
    let mut scenario = doubted(None);
    assert_eq!(scenario.at(501, Input::Observed(admitted("r1"))), []);
    assert_eq!(scenario.machine.marker(), None);
    assert_eq!(scenario.at(520, Input::Steady), [observe(None)]);
    assert_eq!(scenario.at(521, Input::Observed(admitted("r1"))), [Effect::Changed(Standing::Admitted)]);
}

#[test]
fn a_doubt_that_lasts_is_shown() {
    let mut scenario = doubted(None);
    assert_eq!(scenario.machine.next_deadline(), None, "the answer is awaited");
    assert_eq!(scenario.at(500, Input::Wake), []);
    scenario.at(501, Input::Observed(admitted("r1")));
    assert_eq!(scenario.machine.next_deadline(), Some(Time(1501)));
    assert_eq!(scenario.at(1501, Input::Wake), [observe(None)]);
    assert_eq!(scenario.at(1502, Input::Observed(admitted("r1"))), [Effect::Changed(Standing::Doubted)]);
    assert_eq!(scenario.machine.marker(), None);
    assert_eq!(scenario.machine.next_deadline(), Some(Time(2000)));
}

#[test]
fn a_step_replaces_the_marker_that_was_seen_first() {
    let mut scenario = doubted(None);
    scenario.at(501, Input::Observed(admitted("r1")));
    let named = Some(admitted("r1"));
    assert_eq!(scenario.at(520, Input::Stepped), [observe(named)]);
    assert_eq!(scenario.at(521, Input::Observed(wait("r1", 5))), [quarantined(521 + QUARANTINE)]);
}

#[test]
fn a_step_without_a_doubt_replaces_the_next_marker_that_is_seen() {
    let mut scenario = Scenario::new();
    scenario.connect(0, "r1");
    scenario.at(0, Input::Stepped);
    assert_eq!(scenario.at(1, Input::Observed(admitted("r1"))), [], "the first of two answers says nothing");
    assert_eq!(scenario.at(2, Input::Observed(admitted("r1"))), [observe(Some(admitted("r1")))]);
    scenario.at(3, Input::Observed(wait("r1", 4)));
    assert!(matches!(scenario.machine.standing(), Standing::Quarantined { .. }));
}

#[test]
fn a_step_seen_during_a_heartbeat_outlasts_the_answer_to_the_heartbeat() {
    let mut scenario = Scenario::observed(None, admitted("r1"));
    assert_eq!(scenario.at(1000, Input::Wake), [observe(None)]);
    scenario.at(1001, Input::Doubted);
    assert_eq!(scenario.at(1002, Input::Observed(admitted("r1"))), [], "the older answer says nothing");
    scenario.at(1003, Input::Stepped);
    assert_eq!(*scenario.machine.standing(), Standing::Observing);
    assert_eq!(scenario.at(1004, Input::Observed(admitted("r1"))), []);
    assert!(matches!(
        scenario.at(1005, Input::Observed(admitted("r1")))[..],
        [Effect::Call(Call::Observe { stepped: Some(_), .. })]
    ));
}

/// Whether the ticket of another process, which the first look after the doubt shows, is named to be replaced.
fn replaces_the_ticket_of_others(mutant: Option<Mutant>) -> bool {
    let mut scenario = doubted(mutant);
    scenario.at(501, Input::Observed(wait("r1", 77)));
    let effects = scenario.at(520, Input::Stepped);
    effects.iter().any(|effect| matches!(effect, Effect::Call(Call::Observe { stepped: Some(_), .. })))
}

#[test]
fn a_ticket_of_another_process_covers_the_step() {
    assert!(!replaces_the_ticket_of_others(None));
    assert!(replaces_the_ticket_of_others(Some(Mutant::TicketOfOthersReplaced)), "the planted bug is found");
}

#[test]
fn a_ticket_that_came_after_the_marker_that_was_seen_is_not_named() {
    let mut scenario = doubted(None);
    scenario.at(501, Input::Observed(admitted("r1")));
    scenario.at(1501, Input::Wake);
    scenario.at(1502, Input::Observed(wait("r1", 77)));
    // The script replaces the marker that is named, and that is gone.
    assert_eq!(
        scenario.at(1600, Input::Stepped),
        [Effect::Changed(Standing::Observing), observe(Some(admitted("r1")))]
    );
    assert_eq!(scenario.at(1601, Input::Observed(wait("r1", 77))), [quarantined(1601 + QUARANTINE)]);
}

#[test]
fn a_step_before_a_disconnect_is_named_on_the_next_connection() {
    let mut scenario = doubted(None);
    scenario.at(501, Input::Observed(admitted("r1")));
    scenario.at(510, Input::Stepped);
    scenario.at(511, Input::Disconnected);
    let effects = scenario.connect(512, "r1");
    assert!(effects.contains(&observe(Some(admitted("r1")))), "{effects:?}");
}

#[test]
fn another_configuration_stays_a_mismatch() {
    let mut scenario = Scenario::new();
    let other = Marker::Admitted { run_id: "r1".into(), generation: 1, fingerprint: "beef".into() };
    scenario.connect(0, "r1");
    assert_eq!(scenario.at(0, Input::Observed(other.clone())), [Effect::Changed(Standing::Mismatch(other.clone()))]);
    scenario.at(100_000, Input::Wake);
    assert_eq!(scenario.at(100_000, Input::Observed(other)), []);
    assert_eq!(scenario.machine.marker(), None);
}

#[test]
fn a_clock_step_does_not_replace_the_marker_of_another_configuration() {
    let mut scenario = Scenario::new();
    let other = Marker::Admitted { run_id: "r1".into(), generation: 1, fingerprint: "beef".into() };
    scenario.connect(0, "r1");
    scenario.at(0, Input::Observed(other.clone()));
    scenario.at(500, Input::Doubted);
    scenario.at(501, Input::Observed(other.clone()));
    assert_eq!(scenario.at(502, Input::Stepped), [observe(None)], "it is not named, so it is not replaced");
    assert_eq!(scenario.at(503, Input::Observed(other.clone())), [Effect::Changed(Standing::Mismatch(other))]);
}

#[test]
fn an_untrusted_seed_is_shown_and_asked_for_again() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(QUARANTINE, Input::Wake);
    // The heartbeat was due as well; reading the fences comes first.
    assert_eq!(*scenario.machine.standing(), Standing::Seeding(None));
    let reason = Unseedable::ClocksDisagree { by: Millis(11_000) };
    assert_eq!(scenario.at(QUARANTINE + 5, fences(5, 11_000_000)), [Effect::Changed(Standing::Seeding(Some(reason)))]);
    assert_eq!(scenario.machine.next_deadline(), Some(Time(BEAT)));
    // Another process, whose clock is right, may have admitted the node.
    assert_eq!(scenario.at(BEAT, Input::Wake), [observe(None)]);
    let mut admitted_by_other = Scenario { machine: scenario.machine.clone() };
    let now_votes = admitted_by_other.at(BEAT + 1, Input::Observed(admitted("r1")));
    assert_eq!(now_votes, [Effect::Changed(Standing::Admitted)]);
    assert_eq!(scenario.at(BEAT + 1, Input::Observed(wait("r1", 7))), [Effect::ReadFences]);
}

#[test]
fn fences_that_were_not_read_are_read_again() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(QUARANTINE, Input::Wake);
    assert_eq!(scenario.at(QUARANTINE + 5, Input::Fences(None)), []);
    assert_eq!(scenario.machine.next_deadline(), Some(Time(BEAT)));
    assert_eq!(scenario.at(BEAT, Input::Wake), [observe(None)]);
    assert_eq!(scenario.at(BEAT, Input::Observed(wait("r1", 7))), [Effect::ReadFences]);
    assert_eq!(scenario.at(BEAT, fences(5, 0)), [admit(7, 5)]);
}

#[test]
fn a_seed_for_a_ticket_that_changed_meanwhile_admits_nothing() {
    let mut scenario = Scenario::observed(None, wait("r1", 7));
    scenario.at(QUARANTINE, Input::Wake);
    scenario.at(QUARANTINE, Input::Stepped);
    assert_eq!(scenario.at(QUARANTINE + 1, fences(5, 0)), []);
}

#[test]
fn statuses_are_listed_before_the_fences_and_again_if_the_clocks_must_seed() {
    let mut scenario = Scenario::new();
    scenario.machine = Admission::new(Config { has_statuses: true, ..config() });
    scenario.connect(0, "r1");
    scenario.at(0, Input::Observed(wait("r1", 7)));
    let list = |again| Effect::ListStatuses { again };
    assert_eq!(scenario.at(QUARANTINE, Input::Wake), [Effect::Changed(Standing::Seeding(None)), list(false)]);
    assert_eq!(scenario.at(QUARANTINE, Input::StatusesListed), [Effect::ReadFences]);
    assert_eq!(scenario.at(QUARANTINE, Input::StatusesListed), [], "nothing more was asked for");
    assert_eq!(scenario.at(QUARANTINE, fences(50, 0)), [list(true)]);
    for late in [fences(50, 0), Input::Fences(None)] {
        assert_eq!(scenario.at(QUARANTINE, late), [], "the answer to an earlier read");
    }
    assert_eq!(scenario.at(QUARANTINE, Input::StatusesListed), [Effect::ReadFences]);
    assert_eq!(scenario.at(QUARANTINE, fences(50, 0)), [admit(7, 50)]);
}

#[test]
fn not_admitted_takes_the_vote_until_the_marker_was_seen() {
    let mut scenario = Scenario::observed(None, admitted("r1"));
    assert!(scenario.at(10, Input::NotAdmitted).contains(&Effect::Changed(Standing::Observing)));
    assert_eq!(scenario.machine.marker(), None);
}

/// A server that is new at 0, with one ticket, or with a second one at half the wait: when it may be admitted, and
/// whether its fence is read before that.
fn waited(mutant: Option<Mutant>, second_ticket: bool) -> (Time, bool) {
    let mut scenario = Scenario::with(mutant);
    scenario.connect(0, "r1");
    let mut effects = scenario.at(0, Input::Observed(wait("r1", 7)));
    if second_ticket {
        scenario.at(QUARANTINE / 2, Input::Wake);
        effects.extend(scenario.at(QUARANTINE / 2, Input::Observed(wait("r1", 8))));
    }
    let until = match scenario.machine.standing() {
        Standing::Quarantined { until } => *until,
        _ => Time(0),
    };
    (until, matches!(effects[..], [Effect::ReadFences, ..]))
}

/// The planted bugs that the tests of this file find.
pub(crate) const PLANTED: [Mutant; 5] = [
    Mutant::NoQuarantine,
    Mutant::WaitOneShort,
    Mutant::SeedBeforeWait,
    Mutant::TicketNotCompared,
    Mutant::TicketOfOthersReplaced,
];

#[test]
fn planted_bugs_of_the_wait_are_found() {
    let (once, again) = (Time(QUARANTINE), Time(QUARANTINE / 2 + QUARANTINE));
    assert_eq!((waited(None, false), waited(None, true)), ((once, false), (again, false)));
    for mutant in [Mutant::NoQuarantine, Mutant::WaitOneShort, Mutant::SeedBeforeWait] {
        assert_ne!(waited(Some(mutant), false), (once, false), "{mutant:?}");
    }
    assert_ne!(waited(Some(Mutant::TicketNotCompared), true), (again, false));
}
