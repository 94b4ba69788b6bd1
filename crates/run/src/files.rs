//! Reads the files of passwords and certificates again while a server cannot be used: they may have been replaced.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redislease_locker::{Locker, NodeState};

use crate::acquire;
use crate::clock::KILL_MARGIN;
use crate::options::RunOptions;
use crate::say::say;

/// The longest and the shortest pause between two looks at the servers.
const SLOWEST: Duration = Duration::from_secs(10);
const FASTEST: Duration = Duration::from_millis(250);

/// The pause between two looks at the servers: a connection that ends just after one must be back before the lock is lost. Two thirds of
/// what the ttl leaves are there then, if the renewals have the default interval.
fn every(ttl: Duration, grace: Duration) -> Duration {
    (ttl.saturating_sub(grace + KILL_MARGIN) / 4).clamp(FASTEST, SLOWEST)
}

/// Starts a thread for it, because a file system can hang. Without files nothing is started. A pipe is read only once.
///
/// # Errors
/// The system gives no thread.
pub fn watch(locker: &Locker, options: &Arc<RunOptions>) -> io::Result<()> {
    let files = [
        ("--redis-file", &options.servers.redis_file),
        ("--tls-ca", &options.tls_ca),
        ("--tls-certificate", &options.tls_certificate),
        ("--tls-key", &options.tls_key),
    ];
    let files: Vec<_> = files.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?))).collect();
    if let Some((option, file)) = files.iter().find(|(_, file)| !file.is_file()) {
        if !options.quiet {
            let file = file.display();
            say(&format!("{option} {file} is no regular file: replaced passwords and certificates are not read again"));
        }
        return Ok(());
    }
    if files.is_empty() {
        return Ok(());
    }
    let (locker, options) = (locker.clone(), options.clone());
    let thread = std::thread::Builder::new().name("run-files".to_owned());
    thread.spawn(move || {
        let mut problems = Problems::default();
        loop {
            std::thread::sleep(every(options.ttl, options.grace));
            if locker.nodes().iter().any(|node| node.state == NodeState::Down)
                && let Some(text) = problems.lasting(acquire::read_again(&locker, &options).err())
            {
                say(&format!(
                    "the passwords and certificates stay those before, because a file cannot be used: {text}"
                ));
            }
        }
    })?;
    Ok(())
}

/// Why the files could not be used.
#[derive(Debug, Default)]
struct Problems {
    last: Option<String>,
    said: HashSet<String>,
}

impl Problems {
    /// The problem of this look if the user must know it: once while there is one, and not of a file that is just being replaced.
    fn lasting(&mut self, problem: Option<String>) -> Option<String> {
        if problem.is_none() {
            self.said.clear();
        }
        let before = std::mem::replace(&mut self.last, problem.clone());
        problem.filter(|text| before.as_ref() == Some(text) && self.said.insert(text.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_several_times_before_a_lock_is_lost() {
        let every = |ttl, grace| every(Duration::from_millis(ttl), Duration::from_millis(grace));
        assert_eq!(every(30_000, 10_000), Duration::from_millis(4750));
        assert_eq!(every(12_000, 500), Duration::from_millis(2625));
        assert_eq!((every(1000, 0), every(3_600_000, 0)), (FASTEST, SLOWEST));
    }

    #[test]
    fn a_problem_of_two_looks_is_said_once() {
        let mut problems = Problems::default();
        let looks = ["", "a", "b", "b", "b", "", "a", "b", "b", "a", "a"];
        let mut look = |text: &str| problems.lasting(Some(text.to_owned()).filter(|text| !text.is_empty()));
        assert_eq!(looks.iter().filter_map(|text| look(text)).collect::<Vec<_>>(), ["b", "b", "a"]);
    }
}
