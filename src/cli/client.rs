//! Runs a subcommand that reads from the API server once and then ends.

use std::error::Error;
use std::io::{self, ErrorKind};

pub(super) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Runs `work` on one thread. It succeeds if the reader of its output closes the pipe, for example `head`.
pub(super) fn run(work: impl Future<Output = Outcome>) -> Outcome {
    // rustls needs an explicit choice because dependencies enable more than one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(work) {
        Err(error) if error.downcast_ref().is_some_and(|io: &io::Error| io.kind() == ErrorKind::BrokenPipe) => Ok(()),
        done => done,
    }
}
