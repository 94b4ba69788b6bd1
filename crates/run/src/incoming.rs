//! The signals that `run` receives.

use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::signals;

/// SIGCHLD and the signals for the command. Those that `run` has inherited as ignored stay ignored.
#[derive(Debug)]
pub struct Incoming(Vec<(Signal, unix::Signal)>);

impl Incoming {
    /// Must be called in a tokio runtime. A parent process may have blocked SIGCHLD.
    pub fn new() -> io::Result<Self> {
        SigSet::from(Signal::SIGCHLD).thread_unblock()?;
        let ignored = signals::ignored_at_start();
        let wanted = signals::FORWARDED.into_iter().filter(|signal| !ignored.contains(signal));
        for signal in signals::SURVIVED.into_iter().filter(|signal| !ignored.contains(signal)) {
            // A handler stays, and a program that is executed does not inherit it.
            drop(unix::signal(SignalKind::from_raw(signal as i32))?);
        }
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        wanted.chain([Signal::SIGCHLD]).map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// From now on, Ctrl-Z and other requests to suspend do nothing: a lock is held, and must be renewed.
    pub fn survive_suspends() -> io::Result<()> {
        if signals::ignored_at_start().contains(&Signal::SIGTSTP) {
            // The command inherits that, but not a handler.
            return Ok(());
        }
        unix::signal(SignalKind::from_raw(Signal::SIGTSTP as i32)).map(drop)
    }

    /// The next signal. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            let ready = signals.find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
