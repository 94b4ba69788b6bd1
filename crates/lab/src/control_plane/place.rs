//! How many control planes a process has at once: each takes about 540 MiB, and a test runner starts as many tests as
//! the machine has cores.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{Error, Result};

/// One that tests share lives until the process ends, and a story about two clusters has two. With fewer places it
/// would wait for itself.
const AT_ONCE: usize = 3;
/// Stories take a minute or two each; what waits for longer waits for itself.
const PATIENCE: Duration = Duration::from_mins(20);

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// The right to have a control plane, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(());

impl Place {
    pub(super) fn take() -> Result<Self> {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, waited) = GIVEN_BACK
            .wait_timeout_while(taken, PATIENCE, |taken| *taken >= AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::NotInTime {
                what: "a control plane of this process to stop".to_owned(),
                waited: PATIENCE,
                last: format!("{AT_ONCE} run, and there are never more at once"),
                context: String::new(),
            });
        }
        *taken += 1;
        Ok(Self(()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        GIVEN_BACK.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn one_too_many_waits_until_a_place_is_given_back() {
        let mut places: Vec<_> = (0..AT_ONCE).map(|_| Place::take().expect("a free place")).collect();
        let (taken, waits) = mpsc::channel();
        let waiter = thread::spawn(move || taken.send(Place::take()));
        assert!(waits.recv_timeout(Duration::from_millis(100)).is_err(), "there is no place");
        places.pop();
        waits.recv_timeout(Duration::from_secs(10)).expect("it goes on").expect("a free place");
        waiter.join().expect("it ends").expect("somebody listened");
    }
}
