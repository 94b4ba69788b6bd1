//! Contains a panic to the piece of work that caused it.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// A piece of work panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs `work`. A panic ends it alone; what it has changed so far must not be used any more, or be made anew.
///
/// # Errors
/// The message of the panic.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let before = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Panicked(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned()))
    })
}

/// Whether a panic of this thread is contained now: for the process's panic hook.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_work_alone() {
        assert_eq!(contained(|| 7), Ok(7));
        let panicked = contained(|| panic!("number {}", 7));
        assert_eq!(panicked.map_err(|panicked| panicked.to_string()), Err::<(), _>("number 7".to_owned()));
        assert_eq!(contained(|| (is_contained(), contained(|| ()).is_ok(), is_contained())), Ok((true, true, true)));
        assert!(!is_contained());
    }
}
