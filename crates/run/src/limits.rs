//! What the operating system has to grant. Libraries panic where it does not, so this program looks before it uses them.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::thread;

/// The file descriptors for the connections, the timers and the helper processes.
const DESCRIPTORS: usize = 32;
/// The threads beside the first one: for lines on standard error, the connections, the deadline file, and the files that are read again.
const THREADS: usize = 4;

/// # Errors
/// What is missing, and which limit to raise.
pub fn check() -> Result<(), String> {
    let standard_input = io::stdin();
    let open = (0..DESCRIPTORS).map(|_| standard_input.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>();
    open.map_err(|error| format!("cannot start: {DESCRIPTORS} more open files are needed: {error}. See `ulimit -n`"))?;
    let lock = Mutex::new(());
    let threads = thread::scope(|scope| {
        // They end when all of them have started.
        let _locked = lock.lock();
        let wait = || thread::Builder::new().spawn_scoped(scope, || drop(lock.lock()));
        (0..THREADS).try_for_each(|_| wait().map(drop))
    });
    threads.map_err(|error| format!("cannot start: {THREADS} more threads are needed: {error}. See `ulimit -u`"))
}
