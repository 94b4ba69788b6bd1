//! What the operating system has to grant. Libraries panic where it does not, so this program looks before it uses them.

use std::io;
use std::os::fd::AsFd as _;

/// The file descriptors for the connections, the timers and the helper processes.
const DESCRIPTORS: usize = 32;

/// # Errors
/// What is missing, and which limit to raise.
pub fn check() -> Result<(), String> {
    let standard_input = io::stdin();
    let open = (0..DESCRIPTORS).map(|_| standard_input.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>();
    open.map_err(|error| format!("cannot start: {DESCRIPTORS} more open files are needed: {error}. See `ulimit -n`"))?;
    let thread = std::thread::Builder::new().spawn(|| ());
    let thread = thread.map_err(|error| format!("cannot start: a thread is needed: {error}. See `ulimit -u`"))?;
    thread.join().map_err(|_| "cannot start: a thread has failed".to_owned())
}
