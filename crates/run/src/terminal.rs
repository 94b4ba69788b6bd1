//! The foreground process group of the terminal.

use std::fs::File;
use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp};

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// Whether the process group of this process is the foreground group of its terminal. Without a terminal it is not.
pub fn is_foreground() -> bool {
    open().is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Makes the process group of this process the foreground group of its terminal.
pub fn take() -> io::Result<()> {
    let terminal = open()?;
    // The kernel stops a process of the background that does this, unless it blocks the signal.
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let taken = tcsetpgrp(&terminal, getpgrp());
    before.thread_set_mask()?;
    Ok(taken?)
}
