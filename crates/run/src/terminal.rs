//! The terminal: its foreground process group and its modes.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};
use rustix::fs::OFlags;

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// Whether the process group of this process is the foreground group of its terminal. Without a terminal it is not.
pub fn is_foreground() -> bool {
    open().is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// The same for a process in a PID namespace, where the groups outside have no numbers: the kernel refuses a read, also of no bytes, to
/// the background. This process must block SIGTTIN, which would stop its group.
pub fn may_read() -> bool {
    // Another program of the group that reads now must not delay this.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let terminal = File::options().read(true).custom_flags(flags).open("/dev/tty");
    let is_refused = |error: io::Error| error.raw_os_error() == Some(Errno::EIO as i32);
    terminal.is_ok_and(|mut terminal| !terminal.read(&mut []).is_err_and(is_refused))
}

/// The modes of the terminal, such as the echo of what is typed. `None` without a terminal.
pub fn modes() -> Option<Termios> {
    tcgetattr(open().ok()?).ok()
}

/// Makes the process group of this process the foreground group of its terminal.
pub fn take() -> io::Result<()> {
    set_foreground(&open()?, None)
}

/// The same after the end of the command, which has left `children` to this process. Sets `modes`, if there are any. A shell may have
/// stopped this process and given the terminal to another program, which keeps it.
pub fn take_back(children: &[Pid], modes: Option<&Termios>) -> io::Result<()> {
    let terminal = open()?;
    let group = tcgetpgrp(&terminal)?;
    let is_of_command = || children.iter().any(|child| getpgid(Some(*child)) == Ok(group));
    let is_gone = || killpg(group, None) == Err(Errno::ESRCH);
    // The group has no number here if it is outside of the PID namespace.
    if group == getpgrp() || group.as_raw() > 0 && (is_of_command() || is_gone()) {
        set_foreground(&terminal, modes)?;
    }
    Ok(())
}

fn set_foreground(terminal: &File, modes: Option<&Termios>) -> io::Result<()> {
    // The kernel stops a process of the background that does this, unless it blocks the signal.
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let taken = tcsetpgrp(terminal, getpgrp());
    // It does not wait for the output: a terminal that the user has stopped would delay the release of the lock.
    let set = modes.map_or(Ok(()), |modes| tcsetattr(terminal, SetArg::TCSANOW, modes));
    before.thread_set_mask()?;
    Ok(taken.and(set)?)
}
