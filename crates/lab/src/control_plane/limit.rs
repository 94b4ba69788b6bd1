//! Limits how many control planes run in one process: each takes about 540 MiB, and a test runner starts as many tests
//! as the machine has cores.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{Error, Result};

/// The shared control plane runs until the process ends, and some tests need two separate ones: with fewer than three such a
/// test would deadlock. The tests wait most of the time, so with four they take less time and the machine is still not busy.
const AT_ONCE: usize = 4;
/// A test takes a minute or two. A longer wait means that the waiting test itself holds a control plane.
const WAIT: Duration = Duration::from_mins(20);

static RUNNING: Mutex<usize> = Mutex::new(0);
static STOPPED: Condvar = Condvar::new();

/// Permission to run one control plane, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(());

impl Permit {
    /// Waits until fewer than the limit run.
    pub(super) fn acquire() -> Result<Self> {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut running, waited) = STOPPED
            .wait_timeout_while(running, WAIT, |running| *running >= AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::NotInTime {
                what: "a control plane of this process has stopped".to_owned(),
                waited: WAIT,
                last: format!("{AT_ONCE} run, which is the limit"),
                context: String::new(),
            });
        }
        *running += 1;
        Ok(Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        STOPPED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn the_next_waits_until_one_has_stopped() {
        let mut permits: Vec<_> = (0..AT_ONCE).map(|_| Permit::acquire().expect("a permit")).collect();
        let (acquired, waits) = mpsc::channel();
        let waiter = thread::spawn(move || acquired.send(Permit::acquire()));
        assert!(waits.recv_timeout(Duration::from_millis(100)).is_err(), "the limit is reached");
        permits.pop();
        waits.recv_timeout(Duration::from_secs(10)).expect("the waiter continues").expect("a permit");
        waiter.join().expect("it ends").expect("the channel is open");
    }
}
