//! Runs a subcommand that reads from the API server once and then ends.

use std::error::Error;

pub(super) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Runs `work` on one thread.
pub(super) fn run<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    // rustls needs an explicit choice because dependencies enable more than one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
