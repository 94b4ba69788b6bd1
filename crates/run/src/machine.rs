//! What `run` does, as a machine without IO: events come in, effects go out.

use nix::sys::signal::Signal;

use crate::acquire::NotAcquired;
use crate::clock::Deadlines;
use crate::exit;
use crate::isolation::Isolation;
use crate::message::{Outcome, Report, ToGuard};
use crate::signals;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Acquired,
    NotAcquired(NotAcquired),
    /// The lock was renewed.
    Renewed(Deadlines),
    /// The lock is lost, and why.
    Lost(String),
    Signal(Signal),
    Guard(Report),
    /// The guard has ended.
    GuardEnded,
    /// The kernel has proven that no process of the command is left.
    NothingLeft,
    /// Processes of the command are left, and cannot be killed.
    SomethingLeft,
    /// The command of `--on-lost` has ended.
    LostHookEnded,
}

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Wait for the lock.
    Acquire,
    /// Start a guard, which starts the command.
    StartGuard(Isolation),
    Send(ToGuard),
    /// Kill what is left of the command, and report [`Event::NothingLeft`] or [`Event::SomethingLeft`].
    Clear,
    /// Release the lock: now if the command was never executed; otherwise `--hold-at-least` can keep it for longer.
    Release {
        is_used: bool,
    },
    /// Leave the lock to its TTL.
    Abandon,
    RunLostHook,
    /// Pass the signal on to the command of `--on-lost`.
    SignalLostHook(Signal),
    /// A line for the user, and whether it is an error.
    Say(String, bool),
    Exit(u8),
}

/// The settings of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What is tried, the strongest first.
    pub isolations: &'static [Isolation],
    /// Whether a loss begins another wait.
    pub is_service: bool,
    pub has_lost_hook: bool,
    /// Whether this is the first process of a container: the kernel ends all others before its end is complete.
    pub is_first_process: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RunState {
    /// Waiting for the lock.
    Waiting,
    /// A guard runs.
    Guarded(Term),
    /// The guard has ended, and what is left of the command is being killed.
    Clearing(Term),
    /// `--on-lost` runs.
    LostHook,
    Done,
}

/// What is known about one time of holding the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Term {
    /// The isolation that is tried or used, an index into [`Settings::isolations`].
    candidate: usize,
    refused: Option<String>,
    outcome: Option<Outcome>,
    is_lost: bool,
    /// Whether the user knows of processes that cannot be killed.
    is_told: bool,
    /// Whether init has begun to start the command.
    is_started: bool,
    /// Signals from before that, for the next guard if the isolation is refused.
    signals: Vec<Signal>,
}

/// Decides what `run` does.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    state: RunState,
    /// A signal has asked this program to end: a service does not wait again.
    ends: bool,
}

impl Machine {
    pub const fn new(settings: Settings) -> Self {
        Self { settings, state: RunState::Waiting, ends: false }
    }

    /// Whether the lock is held and the command may run.
    pub const fn is_active(&self) -> bool {
        matches!(&self.state, RunState::Guarded(term) if !term.is_lost && term.outcome.is_none())
    }

    /// Takes an event. One that does not fit the state has no effect: it was late.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        if let Event::Signal(signal) = &event {
            // A command that runs can take SIGHUP as the request to read its configuration again.
            let is_reload = *signal == Signal::SIGHUP && self.is_active();
            self.ends |= signals::ends_a_service(*signal) && !is_reload;
        }
        let state = std::mem::replace(&mut self.state, RunState::Done);
        let (state, effects) = match state {
            RunState::Waiting => self.waiting(event),
            RunState::Guarded(term) => self.guarded(term, event),
            RunState::Clearing(term) => self.clearing(term, &event),
            RunState::LostHook => self.lost_hook(&event),
            RunState::Done => (RunState::Done, Vec::new()),
        };
        self.state = state;
        effects
    }

    fn waiting(&self, event: Event) -> (RunState, Vec<Effect>) {
        match event {
            Event::Acquired => (RunState::Guarded(Term::default()), vec![Effect::StartGuard(self.isolation(0))]),
            Event::NotAcquired(NotAcquired { code, why, is_error, .. }) => {
                (RunState::Done, vec![Effect::Say(why, is_error), Effect::Exit(code)])
            }
            Event::Signal(signal) if signals::ends_a_wait(signal) => {
                (RunState::Done, vec![Effect::Exit(exit::of_signal(number(signal)))])
            }
            _ => (RunState::Waiting, Vec::new()),
        }
    }

    fn isolation(&self, candidate: usize) -> Isolation {
        self.settings.isolations.get(candidate).copied().unwrap_or(Isolation::None)
    }

    fn guarded(&self, mut term: Term, event: Event) -> (RunState, Vec<Effect>) {
        let effects = match event {
            Event::Renewed(deadlines) if !term.is_lost => vec![Effect::Send(ToGuard::Renewed(deadlines))],
            // A command that has ended before the loss has done its work.
            Event::Lost(why) if !term.is_lost && term.outcome.is_none() => {
                term.is_lost = true;
                // Nobody may read what is said.
                vec![Effect::Send(ToGuard::Stop), Effect::Say(why, true)]
            }
            Event::Signal(signal) => {
                if !term.is_started && !term.signals.contains(&signal) {
                    term.signals.push(signal);
                }
                vec![Effect::Send(ToGuard::Signal(signal as i32))]
            }
            Event::Guard(report) => self.report(&mut term, report),
            Event::GuardEnded => return self.guard_ended(term),
            _ => Vec::new(),
        };
        (RunState::Guarded(term), effects)
    }

    fn report(&self, term: &mut Term, report: Report) -> Vec<Effect> {
        match report {
            Report::Launching => {
                term.is_started = true;
                vec![Effect::Say(format!("isolation {}", self.isolation(term.candidate).describe()), false)]
            }
            Report::Note(note) => vec![Effect::Say(note, false)],
            Report::Refused(why) => {
                term.refused = Some(why);
                Vec::new()
            }
            Report::Stopping if !term.is_lost && term.outcome.is_none() => {
                term.is_lost = true;
                vec![Effect::Say("the lock was not renewed in time: the command is stopped".to_owned(), true)]
            }
            Report::Init { .. } | Report::Stopping => Vec::new(),
            Report::Ended(outcome) => {
                term.outcome = Some(outcome);
                Vec::new()
            }
        }
    }

    fn guard_ended(&self, mut term: Term) -> (RunState, Vec<Effect>) {
        if let Some(why) = term.refused.take().filter(|_| term.outcome.is_none()) {
            let next = term.candidate + 1;
            if next < self.settings.isolations.len() && !term.is_lost {
                term.candidate = next;
                let again = term.signals.iter().map(|signal| Effect::Send(ToGuard::Signal(*signal as i32)));
                let effects = [Effect::StartGuard(self.isolation(next))].into_iter().chain(again).collect();
                return (RunState::Guarded(term), effects);
            }
            let why = format!(
                "the isolation of --isolate is not possible here: {why}; use --isolate none, or allow user namespaces"
            );
            term.outcome = Some(Outcome::not_started(why));
        }
        let mut effects = vec![Effect::Clear];
        if term.outcome.is_none() && !term.is_lost {
            term.is_lost = true;
            let text = "the kernel has killed the command: the guard process has reached its deadline, or was killed";
            effects.push(Effect::Say(text.to_owned(), true));
        }
        (RunState::Clearing(term), effects)
    }

    fn clearing(&mut self, mut term: Term, event: &Event) -> (RunState, Vec<Effect>) {
        let mut effects = Vec::new();
        match event {
            // After a loss, this has an effect if the guard has noticed it before the library.
            Event::NothingLeft => {
                effects.push(Effect::Release { is_used: !matches!(term.outcome, Some(Outcome::NotStarted { .. })) });
            }
            Event::SomethingLeft => {
                let text =
                    "processes of the command are left and cannot be killed: the lock stays until its TTL has passed";
                if !core::mem::replace(&mut term.is_told, true) {
                    effects.push(Effect::Say(text.to_owned(), true));
                }
                effects.push(Effect::Abandon);
                if term.is_lost && self.settings.is_service && !self.ends {
                    // A second command must not run beside the rest of the first one.
                    if !self.settings.is_first_process {
                        effects.push(Effect::Clear);
                        return (RunState::Clearing(term), effects);
                    }
                    // The end of this process ends the rest too, and the container can be started again.
                    self.ends = true;
                }
            }
            _ => return (RunState::Clearing(term), effects),
        }
        if term.is_lost && self.settings.has_lost_hook {
            effects.push(Effect::RunLostHook);
            return (RunState::LostHook, effects);
        }
        if term.is_lost {
            let (state, more) = self.after_loss();
            effects.extend(more);
            return (state, effects);
        }
        effects.extend(ended(term.outcome));
        (RunState::Done, effects)
    }

    fn lost_hook(&self, event: &Event) -> (RunState, Vec<Effect>) {
        match event {
            Event::LostHookEnded => self.after_loss(),
            Event::Signal(signal) => (RunState::LostHook, vec![Effect::SignalLostHook(*signal)]),
            _ => (RunState::LostHook, Vec::new()),
        }
    }

    fn after_loss(&self) -> (RunState, Vec<Effect>) {
        if self.settings.is_service && !self.ends {
            (RunState::Waiting, vec![Effect::Acquire])
        } else {
            (RunState::Done, vec![Effect::Exit(exit::LOST)])
        }
    }
}

/// The exit code of a command that was not stopped.
fn ended(outcome: Option<Outcome>) -> Vec<Effect> {
    match outcome {
        Some(Outcome::Exited(code)) => vec![Effect::Exit(code)],
        Some(Outcome::Killed(signal)) => vec![Effect::Exit(exit::of_signal(signal))],
        Some(Outcome::NotStarted { code, why }) => vec![Effect::Say(why, true), Effect::Exit(code)],
        Some(Outcome::Failed(why)) => vec![Effect::Say(why, true), Effect::Exit(exit::FAILED)],
        // It was stopped: the code is that of a loss.
        None => vec![Effect::Exit(exit::LOST)],
    }
}

fn number(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or_default()
}

#[cfg(test)]
mod tests;
