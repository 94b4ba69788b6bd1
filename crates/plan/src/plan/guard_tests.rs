use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generate;

use super::*;

const POD: &str = "uid-a";

fn at(seconds: u64) -> Time {
    Time(1_000_000 + seconds * 1000)
}

/// Sends the write, which must be due, and records its outcome.
fn write(guard: &mut Guard<u8>, now: Time, wanted: u8, written: Written) -> Option<Correction> {
    assert!(guard.due(now, POD, &wanted) <= now, "not due before {:?}", guard.due(now, POD, &wanted));
    let correction = guard.sent(now, POD, wanted, false);
    guard.written(now, POD, written);
    correction
}

#[test]
fn a_refused_write_waits_longer_each_time() {
    let mut guard = Guard::default();
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(write(&mut guard, now, 1, Written::Refused), None);
        assert_eq!(guard.due(now, POD, &1), now + Millis(pause * 1000));
        now = guard.due(now, POD, &1);
    }
    assert_eq!(guard.due(now, "uid-b", &1), now, "another object");
    write(&mut guard, now, 1, Written::Stored);
    write(&mut guard, now, 2, Written::Refused);
    assert_eq!(guard.due(now, POD, &2), now + PAUSE.min, "a stored write ends the row of refusals");
}

#[test]
fn a_write_that_wants_something_else_goes_first_and_only_once() {
    let mut guard = Guard::default();
    for _ in 0..6 {
        let now = guard.due(at(0), POD, &1);
        write(&mut guard, now, 1, Written::Refused);
    }
    let now = at(40);
    let waits = guard.due(now, POD, &1);
    assert_eq!(waits, at(63));
    assert_eq!(guard.due(now, POD, &2), now);
    write(&mut guard, now, 2, Written::Refused);
    assert_eq!(guard.due(now, POD, &2), at(40 + 64));
    assert_eq!(guard.due(now, POD, &1), now, "wanted again");
}

#[test]
fn an_undecided_write_does_not_use_up_the_one_after_a_change() {
    let mut guard = Guard::default();
    write(&mut guard, at(0), 1, Written::Refused);
    for _ in 0..20 {
        write(&mut guard, at(0), 2, Written::Undecided);
    }
    write(&mut guard, at(0), 2, Written::Refused);
    assert!(guard.due(at(0), POD, &2) > at(0));
}

#[test]
fn a_write_that_was_not_sent_costs_nothing() {
    let mut guard = Guard::default();
    for _ in 0..1000 {
        write(&mut guard, at(0), 1, Written::Unsent);
    }
    assert_eq!(guard.due(at(0), POD, &1), at(0));
    write(&mut guard, at(0), 1, Written::Stored);
    guard.forget_stored();
    assert_eq!(write(&mut guard, at(1), 1, Written::Stored), None, "another process may have changed it");
}

#[test]
fn the_third_correction_within_a_minute_starts_the_back_off() {
    let mut guard = Guard::default();
    assert_eq!(write(&mut guard, at(0), 1, Written::Stored), None);
    assert_eq!(write(&mut guard, at(1), 1, Written::Stored), Some(Correction { tell: true }));
    assert_eq!(write(&mut guard, at(2), 1, Written::Stored), Some(Correction { tell: false }));
    assert_eq!(guard.due(at(2), POD, &1), at(2));
    assert_eq!(write(&mut guard, at(3), 1, Written::Stored), Some(Correction { tell: false }));
    let mut now = at(3);
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(guard.due(now, POD, &1), now + Millis(pause * 1000));
        now = guard.due(now, POD, &1);
        let correction = write(&mut guard, now, 1, Written::Stored);
        assert_eq!(correction, Some(Correction { tell: now == at(66) || now > at(100) }), "{now:?}");
    }
    assert_eq!(guard.due(now, POD, &2), now, "a stop at failover");
    now += FORGOTTEN;
    write(&mut guard, now, 1, Written::Stored);
    assert_eq!(guard.due(now, POD, &1), now, "the fight is over");
}

#[test]
fn rare_corrections_are_never_delayed() {
    let mut guard = Guard::default();
    write(&mut guard, at(0), 1, Written::Stored);
    for minute in 1..100 {
        assert!(write(&mut guard, at(minute * 31), 1, Written::Stored).is_some());
    }
}

#[test]
fn what_is_known_of_an_object_ends_with_it() {
    let mut guard = Guard::default();
    write(&mut guard, at(0), 1, Written::Refused);
    guard.sent(at(0), "uid-b", 1, false);
    guard.retain(|uid| uid == POD);
    assert_eq!(guard.count(), 1);
    write(&mut guard, at(9), 1, Written::Gone);
    assert_eq!((guard.count(), guard.due(at(9), POD, &1)), (0, at(9)));
}

/// One step: time passes, the lease may want something else, and if a write is due it is sent, with this outcome.
#[derive(Clone, Debug)]
struct Step {
    millis: u64,
    wanted: u8,
    written: Written,
}

fn steps() -> impl Generate<Value = Vec<Step>> {
    let written = prop_oneof![Just(Written::Stored), Just(Written::Refused), Just(Written::Undecided)];
    let millis = prop_oneof![Just(0_u64), 1..50_u64, 50..2000_u64, 2000..400_000_u64];
    let step = (millis, 0..3_u8, written).prop_map(|(millis, wanted, written)| Step { millis, wanted, written });
    proptest::collection::vec(step, 1..600)
}

proptest! {
    #[test]
    fn no_sequence_writes_more_than_120_times_a_minute_or_delays_a_change(steps in steps(), calm in any::<bool>()) {
        let mut guard = Guard::default();
        let mut now = at(0);
        let mut writes: Vec<Time> = Vec::new();
        let mut last = None;
        for Step { millis, wanted, written } in steps {
            now += Millis(if calm { millis } else { millis.min(20) });
            let recent = writes.iter().filter(|write| now.since(**write) < MINUTE).count() as u64;
            let due = guard.due(now, POD, &wanted);
            let changed = last != Some(wanted);
            if changed && recent < BURST {
                prop_assert_eq!(due, now, "after {} writes in a minute", recent);
            }
            prop_assert!(due <= now + PAUSE.max);
            if due <= now {
                writes.push(now);
                guard.sent(now, POD, wanted, false);
                guard.written(now, POD, written);
                last = (written != Written::Undecided).then_some(wanted);
            }
            let in_a_minute = writes.iter().filter(|write| now.since(**write) <= MINUTE).count();
            prop_assert!(in_a_minute <= 120, "{} writes in a minute", in_a_minute);
        }
    }
}
