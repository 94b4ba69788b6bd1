use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::backoff::Backoff;
use crate::lease::EndingView;
use crate::op::{Attempt, Holder, Stage, Stored, Token};

const START: Time = Time(10_000);

fn request() -> Request {
    Request {
        holder: Holder("w1".into()),
        wait: Millis(1000),
        retry: Backoff::exponential(100, 400, 0),
        max_hold: None,
        hold_at_least: Millis::ZERO,
    }
}

fn id() -> TermId {
    TermId { attempt: Attempt(1), token: Token(7), holder: Holder("w1".into()) }
}

fn acquiring() -> View {
    View { standing: Standing::Acquiring(Attempt(1), Holder("w1".into())), ..View::default() }
}

fn term(stop_at: Time) -> View {
    let term = TermView { id: id(), valid_until: Some(stop_at + Millis(50)), stop_at: Some(stop_at), failed_rounds: 0 };
    View { standing: Standing::Publishing(term), ..View::default() }
}

fn ended(reason: EndReason) -> View {
    let ending = EndingView { id: id(), reason, sealed: false, keys_until: START + Millis(999) };
    View { ending: Some(Box::new(ending)), ..View::default() }
}

fn refused(free_at: Time) -> View {
    let by = Stored { stage: Stage::Term, attempt: Attempt(2), number: 3, metadata: "other".into() };
    View { refused_by: Some(Box::new(by)), retry_at: Some(free_at), ..View::default() }
}

fn commands(lock: &mut Lock) -> Vec<Command> {
    core::iter::from_fn(|| lock.poll_command()).collect()
}

fn want() -> Command {
    Command::Want(request().holder)
}

fn wake(lock: &mut Lock, now: Time) -> Vec<Command> {
    lock.handle(now, Input::Wake { paused_until: None, entropy: Entropy(0) });
    commands(lock)
}

fn asked(request: Request) -> Lock {
    let mut lock = Lock::new(START, request);
    assert_eq!(commands(&mut lock), [want()]);
    assert!(!lock.handle(START, Input::Shown(&acquiring())), "nobody waits for the begin of an attempt");
    lock
}

/// Wins the term at `START`, which is valid for one second.
fn won(request: Request) -> Lock {
    let mut lock = asked(request);
    assert!(lock.handle(START, Input::Shown(&term(START + Millis(1000)))));
    assert_eq!(lock.next_deadline(), Some(Time(0)));
    assert_eq!(wake(&mut lock, START), []);
    assert_eq!(lock.won(START), Some(&id()));
    lock
}

fn held(request: Request) -> Lock {
    let mut lock = won(request);
    lock.handle(START, Input::Taken);
    lock
}

/// The work of a program that has the lock may go on: its keys must stay.
#[test]
fn a_lock_that_the_program_does_not_have_ends_when_the_lease_closes() {
    for mut lock in [asked(request()), won(request())] {
        assert_eq!(lock.close(), Some(Command::Release { keep_until: None }));
        assert_eq!((lock.won(START), lock.failure()), (None, Some(&Failure::Closed)));
        lock.handle(START, Input::Taken);
        assert_eq!((lock.held(), lock.check(START)), (None, Err(Lost::Closed)));
        assert!(wake(&mut lock, START).is_empty() && lock.next_deadline().is_none());
    }
    let mut lock = held(request());
    assert_eq!(lock.close(), None);
    assert!(lock.check(START).is_ok());
    // The command to the lease may arrive after the end of the lease.
    let kept = Request { hold_at_least: Millis(500), ..request() };
    let (release, abandon) = (|| Input::Release, || Input::Abandon);
    for (mut lock, input, command) in [
        (held(request()), release(), Some(Command::Release { keep_until: None })),
        (held(request()), abandon(), None),
        (held(kept), release(), Some(Command::Release { keep_until: Some(START + Millis(500)) })),
    ] {
        assert!(!lock.is_freed());
        lock.handle(START, input);
        assert_eq!(lock.is_freed(), command == Some(Command::Release { keep_until: None }), "{input:?}");
        assert_eq!(lock.close(), command, "{input:?}");
    }
}

#[test]
fn a_term_that_is_renewed_and_not_taken_is_released_after_its_first_validity() {
    let until = START + Millis(1050);
    let renewed = term(START + Millis(2000));
    for mut lock in [asked(request()), won(request())] {
        lock.handle(START, Input::Shown(&term(START + Millis(1000))));
        lock.handle(START, Input::Shown(&renewed));
        assert_eq!(lock.give_up_untaken(until - Millis(1)), None);
        assert_eq!(lock.give_up_untaken(until), Some(id()));
        assert_eq!((lock.give_up_untaken(until), lock.won(until)), (None, None), "the lease has not shown its end yet");
        let mut late = lock.clone();
        late.handle(until, Input::Taken);
        assert!(late.check(until).is_err(), "the keys are being deleted");
        lock.handle(until, Input::Shown(&View { retry_at: Some(until), ..View::default() }));
        assert_eq!(lock.won(until), None);
        wake(&mut lock, until);
        let untaken = Failure::Attempt { last: Refusal::NotTaken, timed_out: true };
        assert_eq!(lock.failure(), Some(&untaken), "the time of the request has passed");
    }
    let mut lock = held(request());
    lock.handle(START, Input::Shown(&renewed));
    assert_eq!(lock.give_up_untaken(until), None, "the program has it");
}

#[test]
fn a_lock_is_valid_until_its_deadline_and_never_after_a_loss() {
    let mut lock = held(request());
    let last = START + Millis(999);
    assert_eq!(lock.check(last).unwrap().id, id());
    assert_eq!(lock.check(START + Millis(1000)), Err(Lost::Expired), "without any report");
    lock.handle(last, Input::Shown(&ended(EndReason::Misses)));
    assert_eq!(lock.check(last), Err(Lost::Missing));
    lock.handle(last, Input::Shown(&term(last + Millis(1000))));
    assert_eq!(lock.check(last), Err(Lost::Missing), "a lost lock is not continued");
}

/// The lease machine broke an invariant and started over: the program learns of it as of any loss.
#[test]
fn a_lock_is_lost_when_its_lease_broke_an_invariant() {
    let mut lock = held(request());
    let now = START + Millis(1);
    assert!(lock.handle(now, Input::Shown(&ended(EndReason::Defect))), "who waits is woken");
    assert_eq!((lock.lost(), lock.check(now)), (Some(Lost::Expired), Err(Lost::Expired)));
}

#[test]
fn a_refused_request_tries_again_when_the_keys_end_and_not_after_its_wait() {
    let mut lock = asked(request());
    lock.handle(START, Input::Shown(&refused(START + Millis(30))));
    assert_eq!(wake(&mut lock, START), []);
    assert_eq!(lock.next_deadline(), Some(START + Millis(30)), "before the delay of 100 ms");
    assert_eq!(wake(&mut lock, START + Millis(30)), [Command::TryNow, want()]);
    for (delay, at) in [(200, 50), (400, 300), (400, 800)] {
        let now = START + Millis(at);
        lock.handle(now, Input::Shown(&acquiring()));
        lock.handle(now, Input::Shown(&refused(now + Millis(9000))));
        assert_eq!(wake(&mut lock, now), []);
        let next = (now + Millis(delay)).min(START + Millis(1000));
        assert_eq!(lock.next_deadline(), Some(next));
        assert_eq!(wake(&mut lock, next), [Command::TryNow, want()]);
    }
    let end = START + Millis(1000);
    // The view after the command to try at once, before the attempt begins.
    lock.handle(end, Input::Shown(&View { retry_at: Some(end), ..View::default() }));
    assert_eq!(wake(&mut lock, end), [want()]);
    assert_eq!(lock.failure(), None, "the attempt has no answer yet");
    lock.handle(end, Input::Shown(&acquiring()));
    lock.handle(end, Input::Shown(&View::default()));
    assert_eq!(wake(&mut lock, end), []);
    let last = Refusal::NotGranted;
    assert_eq!(lock.failure(), Some(&Failure::Attempt { last, timed_out: true }));
    lock.handle(end, Input::LetGo);
    assert_eq!(commands(&mut lock), [Command::Release { keep_until: None }]);
}

#[test]
fn the_delay_is_random_between_half_and_all_of_it() {
    for (word, delay) in [(0, 100), (u64::MAX, 50)] {
        let mut lock = asked(request());
        lock.handle(START, Input::Shown(&View::default()));
        lock.handle(START, Input::Wake { paused_until: None, entropy: Entropy(word) });
        assert_eq!(lock.next_deadline(), Some(START + Millis(delay)));
        lock.handle(START, Input::Freed);
        assert_eq!(wake(&mut lock, START), [Command::TryNow, want()], "a release in this process is noticed");
    }
}

#[test]
fn one_attempt_has_one_answer() {
    let mut lock = asked(Request { wait: Millis::ZERO, ..request() });
    lock.handle(START, Input::Shown(&refused(START)));
    wake(&mut lock, START);
    let failure = lock.failure().unwrap();
    assert!(matches!(failure, Failure::Attempt { last: Refusal::Held(by, _), timed_out: false } if by.number == 3));
    assert_eq!(lock.next_deadline(), None);
}

#[test]
fn an_attempt_without_a_report_is_asked_for_again_and_a_turn_is_waited_for() {
    let mut lock = Lock::new(START, Request { wait: Millis(5000), ..request() });
    commands(&mut lock);
    assert_eq!(wake(&mut lock, START + Millis(10)), [], "a wake without a reason");
    assert_eq!(wake(&mut lock, START + SILENCE), [want()]);
    let now = START + SILENCE;
    let turn = now + Millis(300);
    lock.handle(now, Input::Shown(&View { retry_at: Some(turn), ..View::default() }));
    assert_eq!(wake(&mut lock, now), []);
    assert_eq!(lock.next_deadline(), Some(turn));
    let earlier = now + Millis(100);
    lock.handle(now, Input::Shown(&View { retry_at: Some(earlier), ..View::default() }));
    assert_eq!(wake(&mut lock, now), []);
    assert_eq!(lock.next_deadline(), Some(earlier));
    assert_eq!(wake(&mut lock, earlier), [want()]);
    assert_eq!(wake(&mut lock, earlier), [], "the turn of the attempt before does not count");
    assert_eq!(lock.next_deadline(), Some(earlier + SILENCE));
}

/// So many requests wait that the next turn comes after the end of this one.
#[test]
fn a_turn_after_the_end_of_the_wait_is_no_attempt_and_the_last_answer_is_the_reason() {
    let until = START + Millis(1000);
    let turn = Some(until + Millis(200));
    let mut lock = asked(request());
    lock.handle(START, Input::Shown(&refused(START + Millis(30))));
    assert_eq!(wake(&mut lock, START), []);
    let again = START + Millis(30);
    assert_eq!(wake(&mut lock, again), [Command::TryNow, want()]);
    lock.handle(again, Input::Shown(&View { retry_at: turn, ..refused(again) }));
    assert_eq!(wake(&mut lock, again), []);
    assert_eq!(lock.next_deadline(), Some(until), "an earlier turn is still taken");
    assert_eq!(wake(&mut lock, until), [], "no attempt");
    let Some(Failure::Attempt { last: Refusal::Held(by, _), timed_out: true }) = lock.failure() else {
        panic!("{:?}", lock.failure())
    };
    assert_eq!((by.number, lock.failures), (3, 1), "the attempts that were made");
}

#[test]
fn a_process_whose_clock_stood_still_says_so_when_the_wait_is_too_short() {
    for (wait, says) in [(0, true), (1000, true), (5000, false)] {
        let mut lock = Lock::new(START, Request { wait: Millis(wait), ..request() });
        let until = START + Millis(3000);
        lock.handle(START, Input::Shown(&View { retry_at: Some(until), ..View::default() }));
        lock.handle(START, Input::Wake { paused_until: Some(until), entropy: Entropy(0) });
        if wait == 0 {
            let last = Refusal::ClockStoodStill(until);
            assert_eq!(lock.failure(), Some(&Failure::Attempt { last, timed_out: false }));
        }
        assert_eq!(lock.next_deadline() == Some(until), !says);
    }
}

#[test]
fn what_was_won_is_released_when_nobody_wants_it_any_more() {
    for mut lock in [asked(request()), won(Request { hold_at_least: Millis(500), ..request() })] {
        lock.handle(START, Input::LetGo);
        assert_eq!(commands(&mut lock), [Command::Release { keep_until: None }]);
        assert!(!lock.handle(START, Input::Shown(&View::default())), "nobody waits for what the lease shows now");
        assert!(lock.handle(START, Input::Released));
        lock.handle(START, Input::LetGo);
        assert_eq!(commands(&mut lock), [], "once");
    }
    let mut lock = won(request());
    let late = START + Millis(1000);
    assert_eq!(lock.won(late), None);
    assert_eq!(lock.next_deadline(), Some(late));
    let end = Command::End { term: id(), proof: true };
    assert_eq!(wake(&mut lock, late), [end], "its keys would refuse the next attempt");
    lock.handle(late, Input::Shown(&View::default()));
    assert_eq!(wake(&mut lock, late + Millis(100)), [], "one more attempt that failed, after the wait");
    assert!(lock.failure().is_some());
}

/// The lease shows the end of the term before this machine was woken, or after.
#[test]
fn a_term_that_is_lost_before_the_program_has_it_is_deleted_once() {
    let mut early = asked(Request { wait: Millis(5000), ..request() });
    early.handle(START, Input::Shown(&term(START + Millis(1000))));
    for mut lock in [early, won(Request { wait: Millis(5000), ..request() })] {
        lock.handle(START, Input::Shown(&ended(EndReason::Misses)));
        assert_eq!(wake(&mut lock, START), [Command::End { term: id(), proof: true }]);
        lock.handle(START, Input::Shown(&View::default()));
        assert_eq!(wake(&mut lock, START), []);
        assert_eq!(wake(&mut lock, START + Millis(100)), [Command::TryNow, want()]);
    }
}

#[test]
fn a_lock_is_held_for_its_least_and_its_longest_time() {
    let mut lock = held(Request { hold_at_least: Millis(500), max_hold: Some(Millis(700)), ..request() });
    let at = START + Millis(700);
    assert_eq!(lock.next_deadline(), Some(at));
    assert_eq!(lock.check(at), Err(Lost::MaxHold), "also before the machine is woken");
    let mut late = lock.clone();
    assert_eq!(wake(&mut late, at), [Command::End { term: id(), proof: false }]);
    assert_eq!((late.lost(), late.next_deadline()), (Some(Lost::MaxHold), None));
    late.handle(at, Input::Release);
    assert_eq!(commands(&mut late), [Command::Release { keep_until: None }]);
    lock.handle(START + Millis(499), Input::LetGo);
    assert_eq!(commands(&mut lock), [Command::Release { keep_until: Some(START + Millis(500)) }]);
}

/// Work that was spawned may go on when a guard is dropped after a loss: nobody else gets the lock before its keys end.
#[test]
fn the_keys_of_a_lost_lock_are_deleted_only_when_its_work_has_stopped() {
    let at = START + Millis(700);
    for is_known in [false, true] {
        let mut dropped = held(Request { max_hold: Some(Millis(700)), ..request() });
        if is_known {
            wake(&mut dropped, at);
        }
        let mut released = dropped.clone();
        dropped.handle(at, Input::LetGo);
        assert_eq!(commands(&mut dropped), [Command::Close]);
        assert_eq!(dropped.lost(), Some(Lost::MaxHold), "also without a report");
        released.handle(at, Input::Release);
        assert_eq!(commands(&mut released), [Command::Release { keep_until: None }]);
        assert!(released.is_freed() && !dropped.is_freed());
    }
    let mut dropped = held(request());
    dropped.handle(START, Input::LetGo);
    assert_eq!(commands(&mut dropped), [Command::Release { keep_until: None }], "it is not lost");
    let mut closed = held(request());
    closed.handle(START, Input::Closed);
    assert_eq!(closed.check(START), Err(Lost::Closed));
    closed.handle(START, Input::LetGo);
    assert_eq!(commands(&mut closed), [Command::Close]);
}

#[test]
fn a_lease_that_ends_ends_the_request_and_the_lock() {
    for mut lock in [asked(request()), won(request())] {
        assert!(lock.handle(START, Input::Ended));
        assert!(!lock.handle(START, Input::Ended));
        assert_eq!(wake(&mut lock, START), []);
        assert_eq!((lock.failure(), lock.check(START)), (Some(&Failure::Closed), Err(Lost::Closed)));
    }
    let mut lock = held(request());
    lock.handle(START, Input::Abandon);
    assert_eq!(commands(&mut lock), [Command::Close]);
}
