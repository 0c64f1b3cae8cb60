//! How a request waits: its record, the limits on the wait, and the token that ends it early.
//!
//! The record's state is the only thing that a sleeper looks at. Grant, cancellation and close write it under its mutex
//! before they notify, and the sleeper reads it under the same mutex before it sleeps: no wake-up is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use alluvium_mem::process::Owned;

use crate::sync::time::Instant;

use super::slot::Request;
use super::{Granted, LockHash, TxnId};
use crate::sync::{Condvar, Mutex};

/// How long a request may wait, and what happens meanwhile.
#[derive(Clone)]
pub struct LockWait {
    /// Zero means not to wait at all.
    pub timeout: Duration,
    /// Ends the wait early.
    pub cancel: Option<LockCancel>,
    /// Called once, with the holders at that moment, when the request has its place in the queue and is about to
    /// sleep. No lock of the table is held. It must neither panic nor ask for row locks of the same owner.
    pub on_wait: Option<Arc<OnWait>>,
}

/// What a wait calls before it sleeps, with the holders of the lock.
pub type OnWait = dyn Fn(&[TxnId]) + Send + Sync;

/// Ends the waits of a transaction from another thread. Clones are the same token.
///
/// Once cancelled it stays so: every later wait with it fails at once, while a request that needs no wait is still
/// granted. Give the next statement a new token.
#[derive(Clone)]
pub struct LockCancel(Arc<Owned<Mutex<CancelState>>>);

#[derive(Default)]
struct CancelState {
    cancelled: bool,
    /// The waits to wake; at most one for each thread of the token's owner.
    waiters: Vec<Arc<Waiter>>,
}

/// A request in a queue.
pub(super) struct Waiter {
    pub(super) hash: LockHash,
    pub(super) request: Request,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    granted: bool,
    cancelled: bool,
    closed: bool,
}

/// What ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    Granted,
    Cancelled,
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
    /// A token that is not cancelled.
    pub fn new() -> LockCancel {
        LockCancel(Arc::new(Owned::new(Mutex::default())))
    }

    /// Ends the waits with this token, now and later. A wait that was just granted its lock keeps it. In a forked
    /// process there is no such wait, and nothing happens.
    pub fn cancel(&self) {
        if !self.0.is_current() {
            return;
        }
        let mut state = self.0.lock();
        state.cancelled = true;
        for waiter in &state.waiters {
            waiter.cancel();
        }
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_current() && self.0.lock().cancelled
    }

    /// Makes a wait known, so that a cancellation from now on reaches it; one that came before reaches it here.
    pub(super) fn attach(&self, waiter: &Arc<Waiter>) {
        let mut state = self.0.lock();
        if state.cancelled {
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
            .field("cancelled", &self.is_cancelled())
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

    /// Wakes the sleeper after a [`grant`](Self::grant). A sleeper that has seen the grant already is gone.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    fn cancel(&self) {
        self.state.lock().cancelled = true;
        self.changed.notify_one();
    }

    /// Wakes the sleeper because the table was closed.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    /// Sleeps until granted, cancelled, closed or late. A grant counts before everything else.
    ///
    /// Without a deadline there is none. The loop turns once for each notification, of which there are three.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> Woken {
        let mut state = self.state.lock();
        loop {
            if state.granted {
                return Woken::Granted;
            }
            if state.cancelled {
                return Woken::Cancelled;
            }
            if state.closed {
                return Woken::Closed;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    let late = self.changed.wait_until(&mut state, deadline).timed_out();
                    if late && !(state.granted || state.cancelled || state.closed) {
                        return Woken::TimedOut;
                    }
                }
            }
        }
    }
}
