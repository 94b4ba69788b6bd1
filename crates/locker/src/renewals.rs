//! The renewals of a lock, for a program that passes the validity on.

use std::sync::Arc;

use redislease_core::time::Time;

use crate::Lost;
use crate::state::Status;

/// The renewals of a lock, see [`Guard::renewals`](crate::Guard::renewals). It does not keep the lock alive.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
/// # fn main() { with_locker(async |locker| {
/// let guard = locker.lock("report").acquire().await?;
/// let mut renewals = guard.renewals();
/// renewals.next().await?;
/// println!("tell the child that the lock is valid for another {:?}", guard.valid_for());
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Renewals {
    status: Arc<Status>,
    /// The end of the validity that the caller knows.
    valid_until: Option<Time>,
}

impl Renewals {
    pub(crate) const fn new(status: Arc<Status>, valid_until: Option<Time>) -> Self {
        Self { status, valid_until }
    }

    /// Returns when the lock is valid for longer than at the previous call, or at the creation: then
    /// [`Guard::valid_for`](crate::Guard::valid_for) has grown. A call that is late reports several renewals once. Cancel-safe.
    /// See the example of [`Renewals`].
    ///
    /// # Errors
    /// Why the lock was lost; [`Lost::Released`] after the end of its guard. An expiry is not reported here at the moment when it happens: use [`Guard::lost`](crate::Guard::lost).
    pub async fn next(&mut self) -> Result<(), Lost> {
        let known = self.valid_until;
        let renewed = self.status.wait_for(|lock| {
            if let Some(lost) = lock.lost() {
                return Some(Err(Lost::from(lost)));
            }
            if lock.is_over() {
                return Some(Err(Lost::Released));
            }
            let valid_until = lock.valid_until();
            (valid_until > known).then_some(Ok(valid_until))
        });
        self.valid_until = renewed.await?;
        Ok(())
    }
}
