//! Reads the files of passwords and certificates again while a server cannot be used: they may have been replaced.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redislease_locker::{Locker, NodeState};

use crate::acquire;
use crate::options::RunOptions;

/// The pause between two looks at the servers.
const EVERY: Duration = Duration::from_secs(10);

/// Starts a thread for it, because a file system can hang. Without files nothing is started. A pipe is read only once.
///
/// # Errors
/// The system gives no thread.
pub fn watch(locker: &Locker, options: &Arc<RunOptions>) -> io::Result<()> {
    let files = [&options.redis_file, &options.tls_ca, &options.tls_certificate, &options.tls_key];
    let mut files = files.into_iter().flatten().peekable();
    if files.peek().is_none() || !files.all(|file| file.is_file()) {
        return Ok(());
    }
    let (locker, options) = (locker.clone(), options.clone());
    let thread = std::thread::Builder::new().name("run-files".to_owned());
    thread.spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            if locker.nodes().iter().any(|node| node.state == NodeState::Down) {
                acquire::read_again(&locker, &options);
            }
        }
    })?;
    Ok(())
}
