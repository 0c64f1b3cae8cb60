//! Waits of lock requests: the waiter's record, the limits on the wait, and the token that ends it
//! early.
//!
//! A sleeper looks only at its record's state. Grant, cancellation and close write it under its
//! mutex before they notify, and the sleeper reads it under the same mutex before it sleeps: no
//! wake-up is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use alluvium_mem::process::Owned;

use crate::sync::time::Instant;

use super::slot::Request;
use super::{Granted, LockHash, TxnId};
use crate::sync::{Condvar, Mutex};

/// Limits and callback of a lock wait.
#[derive(Clone)]
pub struct LockWait {
    /// Maximum wait; zero means not to wait at all.
    pub timeout: Duration,
    /// Token that ends the wait early.
    pub cancel: Option<LockCancel>,
    /// Called once, with the owners that the request waits for, when it is queued and about to
    /// sleep. No lock of the table is held. It must neither panic nor request row locks of the same
    /// owner.
    pub on_wait: Option<Arc<OnWait>>,
}

/// Callback before a wait sleeps; its argument is the holders of the lock, then the owners of the
/// earlier requests that exclude this one.
pub type OnWait = dyn Fn(&[TxnId]) + Send + Sync;

/// Token that ends the lock waits of a transaction from another thread. Clones are the same token.
///
/// Cancellation is permanent: every later wait with this token fails at once, while a request that
/// needs no wait is still granted. Use a new token for the next statement.
#[derive(Clone)]
pub struct LockCancel(Arc<Owned<Mutex<CancelState>>>);

#[derive(Default)]
struct CancelState {
    canceled: bool,
    /// Waits to wake; at most one for each thread of the token's owner.
    waiters: Vec<Arc<Waiter>>,
}

/// Request in a queue.
pub(super) struct Waiter {
    pub(super) hash: LockHash,
    pub(super) request: Request,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    granted: bool,
    canceled: bool,
    closed: bool,
}

/// Reason why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    Granted,
    Canceled,
    Closed,
    TimedOut,
}

impl LockWait {
    /// Waits at most this long.
    pub fn timeout(timeout: Duration) -> LockWait {
        LockWait {
            timeout,
            cancel: None,
            on_wait: None,
        }
    }

    /// Fails instead of waiting.
    pub fn none() -> LockWait {
        LockWait::timeout(Duration::ZERO)
    }
}

impl fmt::Debug for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockWait")
            .field("timeout", &self.timeout)
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

impl Default for LockCancel {
    fn default() -> LockCancel {
        LockCancel::new()
    }
}

impl LockCancel {
    /// Creates a token that is not canceled.
    pub fn new() -> LockCancel {
        LockCancel(Arc::new(Owned::new(Mutex::default())))
    }

    /// Ends the waits with this token, now and later. A wait that was just granted its lock keeps
    /// it. A forked process has no such wait, and the call does nothing.
    pub fn cancel(&self) {
        if !self.0.is_current() {
            return;
        }
        let mut state = self.0.lock();
        state.canceled = true;
        for waiter in &state.waiters {
            waiter.cancel();
        }
    }

    /// Returns true if [`cancel`](Self::cancel) was called.
    pub fn is_canceled(&self) -> bool {
        self.0.is_current() && self.0.lock().canceled
    }

    /// Registers a wait, so that a later cancellation reaches it; an earlier one reaches it here.
    pub(super) fn attach(&self, waiter: &Arc<Waiter>) {
        let mut state = self.0.lock();
        if state.canceled {
            waiter.cancel();
        }
        state.waiters.push(Arc::clone(waiter));
    }

    pub(super) fn detach(&self, waiter: &Arc<Waiter>) {
        let mut state = self.0.lock();
        state.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
    }
}

impl fmt::Debug for LockCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockCancel")
            .field("canceled", &self.is_canceled())
            .finish_non_exhaustive()
    }
}

impl Waiter {
    pub(super) fn new(hash: LockHash, request: Request) -> Waiter {
        Waiter {
            hash,
            request,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    pub(super) fn is_upgrade(&self) -> bool {
        self.request.grant == Granted::Upgraded
    }

    /// Records the grant. Called under the shard's mutex, together with the change of the holders.
    pub(super) fn grant(&self) {
        self.state.lock().granted = true;
    }

    /// Wakes the sleeper after a [`grant`](Self::grant). A sleeper that has already seen the grant
    /// has returned.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    fn cancel(&self) {
        self.state.lock().canceled = true;
        self.changed.notify_one();
    }

    /// Wakes the sleeper because the table was closed.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    /// Sleeps until granted, canceled, closed or past the deadline. A grant takes precedence over
    /// everything else.
    ///
    /// `None` means no deadline. The loop runs once per notification: grant, cancellation, close.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> Woken {
        let mut state = self.state.lock();
        loop {
            if state.granted {
                return Woken::Granted;
            }
            if state.canceled {
                return Woken::Canceled;
            }
            if state.closed {
                return Woken::Closed;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    let late = self.changed.wait_until(&mut state, deadline).timed_out();
                    if late && !(state.granted || state.canceled || state.closed) {
                        return Woken::TimedOut;
                    }
                }
            }
        }
    }
}
