//! Channels under the scheduler, with the part of the interface of `std::sync::mpsc` that the
//! engine uses.
//!
//! A queue under a mutex of the scheduler, with one condition variable for both ends: a channel
//! here has few users.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, SendError};

use super::locks::{Condvar, Mutex};

struct Queue<T> {
    items: VecDeque<T>,
    /// Number of live ends: senders, receivers.
    ends: (usize, usize),
}

struct Channel<T> {
    queue: Mutex<Queue<T>>,
    /// Notified when an item or an end comes or goes.
    changed: Condvar,
    /// Number of waiting items at which a sender waits.
    bound: usize,
}

/// As `std::sync::mpsc::Sender`; with a bound as `SyncSender`.
pub struct Sender<T>(Arc<Channel<T>>);

/// As `std::sync::mpsc::SyncSender`.
pub type SyncSender<T> = Sender<T>;

/// As `std::sync::mpsc::Receiver`.
pub struct Receiver<T>(Arc<Channel<T>>);

/// Creates a channel for at most `bound` waiting items, at least one.
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        queue: Mutex::new(Queue {
            items: VecDeque::new(),
            ends: (1, 1),
        }),
        changed: Condvar::new(),
        bound: bound.max(1),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

/// Creates a channel for any number of waiting items.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    sync_channel(usize::MAX)
}

impl<T> Sender<T> {
    /// Waits for room and sends the item. Fails if there is no receiver.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut queue = self.0.queue.lock();
        // Terminates when an item is received, or when the receiver is dropped.
        while queue.ends.1 > 0 && queue.items.len() >= self.0.bound {
            self.0.changed.wait(&mut queue);
        }
        if queue.ends.1 == 0 {
            return Err(SendError(item));
        }
        queue.items.push_back(item);
        drop(queue);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for an item. Fails if there is none and no sender is left.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut queue = self.0.queue.lock();
        // Terminates when an item is sent, or when the last sender is dropped.
        loop {
            if let Some(item) = queue.items.pop_front() {
                drop(queue);
                self.0.changed.notify_all();
                return Ok(item);
            }
            if queue.ends.0 == 0 {
                return Err(RecvError);
            }
            self.0.changed.wait(&mut queue);
        }
    }

    /// Returns all items until no sender is left.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.queue.lock().ends.0 -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.ends.1 -= 1;
        // As in the standard library, unread items are dropped now.
        let unread = std::mem::take(&mut queue.items);
        drop(queue);
        drop(unread);
        self.0.changed.notify_all();
    }
}
