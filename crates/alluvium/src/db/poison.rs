//! Poisoning: after the first failed write or sync of the log, the manifest or the directory,
//! nothing more is acknowledged.
//!
//! A write or sync that failed is never tried again: after a failed sync the kernel may have
//! dropped the dirty pages, so a second one that succeeds proves nothing. Reads continue. A call
//! that failed before it changed anything poisons nothing.

use std::sync::Arc;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::event::{Event, Events};

/// Cause of the first failure, if there was one; see the module.
#[derive(Default)]
pub(crate) struct Poison {
    cause: OnceLock<Arc<Error>>,
    events: Arc<Events>,
    /// Wakes all threads that wait for background work.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Poison {
    /// Creates an unpoisoned state that reports the first failure to `events`.
    pub fn new(events: Arc<Events>) -> Poison {
        Poison {
            events,
            ..Poison::default()
        }
    }

    /// Sets the action that wakes the threads that wait for background work: there will be none.
    /// It may take the mutexes of the flush queue and of the compaction threads. Only the first
    /// call has an effect.
    pub fn on_set(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Returns [`Error::Poisoned`] with the first cause if the database is poisoned.
    pub fn check(&self) -> Result<()> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned(Arc::clone(cause))),
        }
    }

    /// Stores `cause` unless there is an earlier one. Returns the error for all later calls.
    pub fn set(&self, cause: Error) -> Error {
        let mut is_first = false;
        let first = self.cause.get_or_init(|| {
            is_first = true;
            Arc::new(cause)
        });
        // Outside of the cell: reporting takes a lock, and other threads that fail meanwhile wait
        // for the cell.
        if is_first {
            self.events.tell(|| Event::Poisoned {
                cause: Arc::clone(first),
            });
            self.wake.get().inspect(|wake| wake());
        }
        Error::Poisoned(Arc::clone(first))
    }

    /// Poisons on every error, except for those that changed nothing and can be retried.
    pub fn guard<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(error @ Error::Poisoned(_)) => Err(error),
            Err(error) if error.may_be_retried() => Err(error),
            Err(error) => Err(self.set(error)),
            Ok(value) => Ok(value),
        }
    }
}
