//! Signals: which ones are passed on, and what `run` inherited.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// The signals that are passed on to the command. Those that stop a process are not among them: the lock stays held while the command
/// does not run, and nobody else can do its work.
pub const FORWARDED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// The signals at which `run` goes on, because it must renew the lock: those with which the kernel stops a process group of the background
/// that uses the terminal, as another program of a pipeline can, and that of a write beyond `ulimit -f`.
pub const SURVIVED: [Signal; 3] = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGXFSZ];

/// Whether a program without handlers ends at this signal: then `run` ends at it while it waits for the lock.
pub const fn ends_a_wait(signal: Signal) -> bool {
    !matches!(signal, Signal::SIGCONT | Signal::SIGWINCH)
}

/// Whether the signal asks a program to end, so that a service does not wait for the lock again.
pub const fn ends_a_service(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

/// The signals that this process ignores since its start, as `nohup` and shells set it for background processes. They stay
/// ignored.
pub fn ignored_at_start() -> Vec<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status)
}

fn ignored(status: &str) -> Vec<Signal> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let handled = FORWARDED.into_iter().chain(SURVIVED).chain([Signal::SIGTSTP]);
    handled.filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}

/// The numbers of the blocked signals that have a name.
pub fn blocked() -> Vec<i32> {
    SigSet::thread_get_mask().map(|set| set.iter().map(|signal| signal as i32).collect()).unwrap_or_default()
}

/// Lets this thread write to a terminal from the background. A handler alone would repeat the write for ever.
pub fn block_background_writes() {
    // Without it, the kernel asks the handler.
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
}

/// Blocks all signals that have a name: a signal for the whole process group must not end a helper process before the command.
/// Real-time signals stay as they are, because [`unblock_all_but`] cannot name those that were blocked before.
/// Returns the signals that were blocked before.
pub fn block_all() -> io::Result<SigSet> {
    Ok(Signal::iterator().collect::<SigSet>().thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// Undoes [`block_all`], but for the signals that were blocked before.
pub fn unblock_all_but(blocked: &[i32]) -> io::Result<()> {
    let unblocked = Signal::iterator().filter(|signal| !blocked.contains(&(*signal as i32)));
    Ok(unblocked.collect::<SigSet>().thread_unblock()?)
}

/// A signal by its name, with or without SIG, or by its number.
pub fn parse(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let number = text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = || format!("SIG{name}").parse::<Signal>().ok();
    let signal = number.or_else(named);
    let signal = signal.ok_or("the signal must be a name or a number, such as TERM, SIGINT or 15")?;
    if matches!(signal, Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) {
        return Err(format!(
            "{signal} suspends the command, which then cannot stop: use a signal that asks it to end, such as TERM"
        ));
    }
    if matches!(signal, Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGURG | Signal::SIGWINCH) {
        return Err(format!("{signal} ends no command by itself: use a signal that asks it to end, such as TERM"));
    }
    Ok(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(Signal::SIGTERM), "{text}");
        }
        for text in ["", "SIG", "0", "99", "TERMINATE"] {
            assert!(parse(text).unwrap_err().contains("such as TERM"), "{text}");
        }
        for text in ["STOP", "SIGTSTP", "19"] {
            assert!(parse(text).unwrap_err().contains("suspends the command"), "{text}");
        }
        for text in ["CHLD", "SIGCONT"] {
            assert!(parse(text).unwrap_err().contains("ends no command"), "{text}");
        }
    }

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000000003\n"), [Signal::SIGHUP, Signal::SIGINT]);
        assert_eq!(ignored(""), []);
    }
}
