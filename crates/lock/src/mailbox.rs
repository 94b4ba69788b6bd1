//! A queue with many senders and one receiver that takes all items at once.
//!
//! A shard exchanges thousands of requests and votes with a Redis node in one tick. A channel would wake the receiver
//! and allocate for each; here a tick costs one lock and at most one wake-up on each side.
//!
//! The queue has no limit of its own. Its senders limit it: a lease has a few requests in flight at a time, each with a
//! deadline, and gets few commands.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The queue. Share it in an `Arc`.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// `None` after the receiver has closed it.
    items: Mutex<Option<Vec<T>>>,
    filled: Notify,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { items: Mutex::new(Some(Vec::new())), filled: Notify::new() }
    }
}

impl<T> Mailbox<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<T>>> {
        // A list is consistent between any two statements that change it.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `item`.
    ///
    /// # Errors
    /// Returns the item if the mailbox is closed.
    pub fn send(&self, item: T) -> Result<(), T> {
        let mut items = self.lock();
        let Some(list) = items.as_mut() else { return Err(item) };
        let was_empty = list.is_empty();
        list.push(item);
        drop(items);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Appends all of `more`, which is empty afterwards. If the mailbox is closed, `more` stays unchanged.
    pub fn send_all(&self, more: &mut Vec<T>) {
        if more.is_empty() {
            return;
        }
        let mut items = self.lock();
        let Some(list) = items.as_mut() else { return };
        let was_empty = list.is_empty();
        list.append(more);
        drop(items);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Whether [`take`](Self::take) would return nothing.
    pub fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(Vec::is_empty)
    }

    /// Exchanges `empty` for all items. The mailbox uses the empty buffer for the next items.
    pub fn take(&self, empty: &mut Vec<T>) {
        if let Some(list) = self.lock().as_mut() {
            std::mem::swap(list, empty);
        }
    }

    /// Returns when an item may have been sent since the last call of [`take`](Self::take).
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Closes the mailbox and returns the remaining items.
    pub fn close(&self) -> Vec<T> {
        self.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_is_received_once_and_in_order() {
        let mailbox = Mailbox::new();
        mailbox.send(1).unwrap();
        let mut more = vec![2, 3];
        mailbox.send_all(&mut more);
        assert!(more.is_empty());
        mailbox.filled().await;
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2, 3]);
        taken.clear();
        mailbox.send(4).unwrap();
        mailbox.filled().await;
        mailbox.take(&mut taken);
        assert_eq!(taken, [4]);
    }

    #[tokio::test]
    async fn a_receiver_that_waits_is_woken_from_another_thread() {
        let mailbox = std::sync::Arc::new(Mailbox::new());
        let sender = mailbox.clone();
        let thread = std::thread::spawn(move || sender.send(7));
        mailbox.filled().await;
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!((taken, thread.join().unwrap()), (vec![7], Ok(())));
    }

    #[test]
    fn a_closed_mailbox_gives_items_back() {
        let mailbox = Mailbox::new();
        mailbox.send(1).unwrap();
        assert_eq!(mailbox.close(), [1]);
        assert_eq!(mailbox.send(2), Err(2));
        let mut more = vec![3];
        mailbox.send_all(&mut more);
        assert_eq!(more, [3]);
    }
}
