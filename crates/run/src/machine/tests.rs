//! The decisions of `run`, event by event.

use super::*;
use crate::clock::BootTime;

const RELEASE: Effect = Effect::Release { is_used: true };
const AUTO: &[Isolation] = &[Isolation::Pid, Isolation::PidInUser, Isolation::None];

fn machine(is_service: bool, has_lost_hook: bool) -> Machine {
    Machine::new(Settings { isolations: AUTO, is_service, has_lost_hook, is_first_process: false })
}

/// A machine whose command runs.
fn running(is_service: bool, has_lost_hook: bool) -> Machine {
    let mut machine = machine(is_service, has_lost_hook);
    assert_eq!(machine.step(Event::Acquired), [Effect::StartGuard(Isolation::Pid)]);
    machine.step(Event::Guard(Report::Init { pid: 5 }));
    machine.step(Event::Guard(Report::Launching));
    assert!(machine.is_active());
    machine
}

/// The effects of these events without the lines for the user.
fn effects(machine: &mut Machine, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
    let effects = events.into_iter().flat_map(|event| machine.step(event));
    effects.filter(|effect| !matches!(effect, Effect::Say(..))).collect()
}

fn ended(outcome: Outcome) -> [Event; 3] {
    [Event::Guard(Report::Ended(outcome)), Event::GuardEnded, Event::NothingLeft]
}

fn lost() -> Event {
    Event::Lost("lost".to_owned())
}

#[test]
fn the_exit_code_is_that_of_the_command_and_the_lock_is_released_after_the_proof() {
    for (outcome, code) in [
        (Outcome::Exited(0), 0),
        (Outcome::Exited(3), 3),
        (Outcome::Killed(15), 143),
        (Outcome::Failed("x".into()), exit::FAILED),
    ] {
        let [end, guard, nothing] = ended(outcome);
        let mut machine = running(true, true);
        assert_eq!(effects(&mut machine, [end, guard]), [Effect::Clear], "no release before the proof");
        assert!(!machine.is_active());
        assert_eq!(effects(&mut machine, [nothing]), [RELEASE, Effect::Exit(code)]);
    }
}

#[test]
fn without_the_proof_the_lock_is_left_to_its_ttl() {
    let [end, guard, _] = ended(Outcome::Exited(0));
    let mut machine = running(false, false);
    let done = effects(&mut machine, [end, guard, Event::SomethingLeft]);
    assert_eq!(done, [Effect::Clear, Effect::Abandon, Effect::Exit(0)]);
}

#[test]
fn a_loss_stops_the_command_and_wins_over_its_exit_code() {
    for outcome in [Outcome::Exited(0), Outcome::Killed(15)] {
        let mut machine = running(false, false);
        assert_eq!(effects(&mut machine, [lost(), lost()]), [Effect::Send(ToGuard::Stop)]);
        assert!(!machine.is_active());
        let deadlines = Deadlines { stop_at: BootTime(1), kill_at: BootTime(2) };
        assert_eq!(machine.step(Event::Renewed(deadlines)), [], "a late renewal does not revive it");
        let done = effects(&mut machine, ended(outcome));
        assert_eq!(done, [Effect::Clear, RELEASE, Effect::Exit(exit::LOST)]);
    }
    // The guard has noticed it first, or the kernel.
    for event in [Event::Guard(Report::Stopping), Event::GuardEnded] {
        let mut machine = running(false, false);
        let mut done = effects(&mut machine, [event, lost(), Event::GuardEnded, Event::NothingLeft]);
        done.retain(|effect| matches!(effect, Effect::Exit(_)));
        assert_eq!(done, [Effect::Exit(exit::LOST)]);
    }
}

/// Standard error may be a pipe that nobody reads.
#[test]
fn what_must_be_done_is_done_before_it_is_said() {
    let first = |event| running(false, false).step(event).into_iter().next();
    assert_eq!(first(lost()), Some(Effect::Send(ToGuard::Stop)));
    assert_eq!(first(Event::GuardEnded), Some(Effect::Clear));
}

#[test]
fn a_loss_after_the_end_of_the_command_does_not_change_its_code() {
    let mut machine = running(false, false);
    let done = effects(
        &mut machine,
        [Event::Guard(Report::Ended(Outcome::Exited(0))), lost(), Event::GuardEnded, Event::NothingLeft],
    );
    assert_eq!(done, [Effect::Clear, RELEASE, Effect::Exit(0)]);
}

#[test]
fn a_service_waits_again_after_a_loss_but_not_beside_processes_that_are_left() {
    let mut machine = running(true, true);
    let loss = [lost(), Event::GuardEnded, Event::SomethingLeft, Event::NothingLeft, Event::LostHookEnded];
    let done = effects(&mut machine, loss);
    assert_eq!(
        done,
        [
            Effect::Send(ToGuard::Stop),
            Effect::Clear,
            Effect::Abandon,
            Effect::Clear,
            RELEASE,
            Effect::RunLostHook,
            Effect::Acquire
        ]
    );
    assert_eq!(machine.step(Event::Acquired), [Effect::StartGuard(Isolation::Pid)]);
}

#[test]
fn a_service_that_was_asked_to_end_does_not_wait_again() {
    let mut machine = running(true, false);
    let done = effects(&mut machine, [Event::Signal(Signal::SIGTERM), lost(), Event::GuardEnded, Event::NothingLeft]);
    assert_eq!(done.first(), Some(&Effect::Send(ToGuard::Signal(15))));
    assert_eq!(done.last(), Some(&Effect::Exit(exit::LOST)));
}

/// SIGHUP asks many services to read their configuration again. It ends other programs, and so a service whose command does not run.
#[test]
fn a_service_waits_again_after_a_sighup_that_its_command_has_survived() {
    let signal = || Event::Signal(Signal::SIGHUP);
    let mut machine = running(true, false);
    assert_eq!(machine.step(signal()), [Effect::Send(ToGuard::Signal(1))]);
    let done = effects(&mut machine, [lost(), Event::GuardEnded, Event::NothingLeft]);
    assert_eq!(done.last(), Some(&Effect::Acquire));
    assert_eq!(machine.step(signal()), [Effect::Exit(129)]);
    let mut machine = running(true, false);
    let done = effects(&mut machine, [lost(), signal(), Event::GuardEnded, Event::NothingLeft]);
    assert_eq!(done.last(), Some(&Effect::Exit(exit::LOST)));
}

/// The hook has its own time, so it is told that the end was asked for.
#[test]
fn a_signal_is_passed_on_to_the_hook_of_a_loss() {
    let mut machine = running(true, true);
    effects(&mut machine, [lost(), Event::GuardEnded, Event::NothingLeft]);
    let done = effects(&mut machine, [Event::Signal(Signal::SIGTERM), Event::LostHookEnded]);
    assert_eq!(done, [Effect::SignalLostHook(Signal::SIGTERM), Effect::Exit(exit::LOST)]);
}

/// It is asked while it waits for the end of processes that cannot be killed.
#[test]
fn a_service_that_is_asked_to_end_does_not_wait_for_processes_that_are_left() {
    let mut machine = running(true, false);
    let done = effects(&mut machine, [lost(), Event::GuardEnded, Event::Signal(Signal::SIGTERM), Event::SomethingLeft]);
    assert_eq!(done.last(), Some(&Effect::Exit(exit::LOST)));
}

/// Nothing else can end such processes.
#[test]
fn a_service_that_is_the_first_process_ends_when_processes_are_left() {
    let mut machine = running(true, true);
    machine.settings.is_first_process = true;
    let done = effects(&mut machine, [lost(), Event::GuardEnded, Event::SomethingLeft, Event::LostHookEnded]);
    assert_eq!(done[2..], [Effect::Abandon, Effect::RunLostHook, Effect::Exit(exit::LOST)]);
}

#[test]
fn signals_end_a_wait_except_those_that_programs_ignore() {
    let mut machine = machine(false, false);
    assert_eq!(effects(&mut machine, [Event::Signal(Signal::SIGWINCH), Event::Signal(Signal::SIGCONT)]), []);
    assert_eq!(machine.step(Event::Signal(Signal::SIGINT)), [Effect::Exit(130)]);
    assert_eq!(machine.step(Event::Acquired), [], "nothing follows");
}

#[test]
fn a_refused_isolation_is_followed_by_the_next_one_with_the_signals_so_far() {
    let mut machine = machine(false, false);
    machine.step(Event::Acquired);
    let refused = || [Event::Guard(Report::Refused("EPERM".into())), Event::GuardEnded];
    let signal = Event::Signal(Signal::SIGTERM);
    let again = Effect::Send(ToGuard::Signal(15));
    assert_eq!(effects(&mut machine, [signal]), std::slice::from_ref(&again));
    assert_eq!(effects(&mut machine, refused()), [Effect::StartGuard(Isolation::PidInUser), again.clone()]);
    assert_eq!(
        effects(&mut machine, refused()),
        [Effect::StartGuard(Isolation::None), again],
        "no guard has passed it on"
    );
    let done = effects(&mut machine, refused().into_iter().chain([Event::NothingLeft]));
    assert_eq!(done, [Effect::Clear, Effect::Release { is_used: false }, Effect::Exit(exit::FAILED)]);
}

#[test]
fn without_the_lock_the_code_says_why() {
    let mut machine = machine(true, true);
    let not = NotAcquired { code: 75, why: "held".into(), is_error: false, is_final: false, is_undecided: false };
    let done = machine.step(Event::NotAcquired(not));
    assert_eq!(done, [Effect::Say("held".into(), false), Effect::Exit(75)]);
}
