//! The guard process, as `run` sees it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;

use crate::channel::Channel;
use crate::clock::{BootTime, Deadlines};
use crate::message::{Report, Start, ToGuard};
use crate::{helper, signals};

/// The environment variables of options: the command does not inherit them, because they can contain passwords.
const OPTIONS: &str = "REDISLEASE_RUN_";

/// A running guard process.
#[derive(Debug)]
pub struct Guard {
    channel: AsyncFd<Channel>,
    pub pid: Pid,
    /// Its deadline when it was started.
    pub first_deadline: BootTime,
}

/// Removes the variables of options from the environment of `command`, and adds `variables`.
pub fn set_environment(command: &mut Command, variables: &[(&str, OsString)]) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with(OPTIONS)) {
            command.env_remove(name);
        }
    }
    // That of a `run` around this one.
    command.env_remove("REDISLEASE_DEADLINE_FILE");
    command.envs(variables.iter().map(|(name, value)| (name, value)));
}

impl Guard {
    /// Starts a guard, which starts `user`. Must be called on the main thread, in a tokio runtime.
    pub fn start(
        start: Start,
        deadlines: Deadlines,
        user: &[OsString],
        variables: &[(&str, OsString)],
    ) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        let mut command = helper::command(helper::GUARD, user);
        set_environment(&mut command, variables);
        // The guard inherits that: a signal for the whole process group must not end it before it can block them itself.
        let before = signals::block_all()?;
        let child = command.stdin(Stdio::from(theirs.into_fd())).spawn();
        before.thread_set_mask()?;
        let child = child?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
        let stdin = io::stdin();
        // If it fails, the guard sees the end of the channel and ends.
        ours.send(&ToGuard::Start(start, deadlines), Some(stdin.as_fd()))?;
        Self::on(ours, pid, deadlines.kill_at)
    }

    /// A guard at the other end of this channel.
    pub fn on(channel: Channel, pid: Pid, first_deadline: BootTime) -> io::Result<Self> {
        #[allow(deprecated, reason = "its replacement is unsafe; OwnedFd already guarantees what it requires")]
        let channel = AsyncFd::new(channel)?;
        Ok(Self { channel, pid, first_deadline })
    }

    /// Sends a message. A guard that is stopped does not read: then its deadline stays as it was, which is safe, because it is
    /// early.
    pub fn send(&self, message: &ToGuard) -> io::Result<()> {
        self.channel.get_ref().send(message, None)
    }

    /// The next report; `None` when the guard has ended. Cancel-safe.
    pub async fn report(&self) -> Option<Report> {
        loop {
            let mut ready = self.channel.readable().await.ok()?;
            match ready.try_io(|channel| channel.get_ref().receive(false)) {
                Ok(Ok(received)) => return received.map(|received| received.message),
                Ok(Err(_)) => return None,
                Err(_not_yet) => {}
            }
        }
    }

    /// The reports that have arrived.
    pub fn arrived(&self) -> Vec<Report> {
        std::iter::from_fn(|| self.channel.get_ref().receive(false).ok().flatten())
            .map(|received| received.message)
            .collect()
    }
}
