//! Concurrent calls on many objects, with progress output.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};

use crate::{Error, Result};

/// How many calls run concurrently while objects are created.
pub(super) const AT_ONCE: usize = 32;

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(2);

/// A call that the API server refused or did not answer.
pub(super) fn failed(doing: &str, error: impl Display) -> Error {
    Error::Call { doing: doing.to_owned(), message: error.to_string() }
}

/// Runs `work` for each item, `at_once` concurrently, and prints the progress every two seconds.
///
/// # Errors
/// The error of the first item that failed; further items are not started.
pub(super) async fn for_each<T, F: Future<Output = Result<()>>>(
    what: &str,
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> F,
) -> Result<()> {
    let (total, began) = (items.len(), Instant::now());
    let mut running = stream::iter(items).map(work).buffer_unordered(at_once);
    let (mut done, mut shown) = (0_u32, began);
    while let Some(outcome) = running.next().await {
        outcome?;
        done += 1;
        if shown.elapsed() >= SHOW_EVERY {
            shown = Instant::now();
            eprintln!("  {what}: {done} of {total}, {:.0} a second", f64::from(done) / began.elapsed().as_secs_f64());
        }
    }
    eprintln!("  {what}: {total} in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
