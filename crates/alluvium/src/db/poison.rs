//! The first failed write or sync of the log, the manifest or the directory, after which nothing further is
//! acknowledged.
//!
//! A write or sync that failed is never tried again: after a failed sync the kernel may have dropped the dirty
//! pages, so a second one that succeeds proves nothing. Reads go on. A call that failed before it changed anything
//! poisons nothing.

use std::sync::Arc;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::event::{Event, Events};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    cause: OnceLock<Arc<Error>>,
    events: Arc<Events>,
}

impl Poison {
    /// Tells `events` of the first failure.
    pub fn new(events: Arc<Events>) -> Poison {
        let cause = OnceLock::new();
        Poison { cause, events }
    }

    /// Refuses with the first cause once there is one.
    pub fn check(&self) -> Result<()> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned(Arc::clone(cause))),
        }
    }

    /// Remembers `cause` unless an earlier one is there, and returns what callers get from now on.
    pub fn set(&self, cause: Error) -> Error {
        let mut is_first = false;
        let first = self.cause.get_or_init(|| {
            is_first = true;
            Arc::new(cause)
        });
        // Not inside of the cell: telling takes a lock, and whoever fails meanwhile waits for the cell.
        if is_first {
            self.events.tell(|| Event::Poisoned {
                cause: Arc::clone(first),
            });
        }
        Error::Poisoned(Arc::clone(first))
    }

    /// Poisons on every error but those that changed nothing and can be retried.
    pub fn guard<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(error @ Error::Poisoned(_)) => Err(error),
            Err(error) if error.may_be_retried() => Err(error),
            Err(error) => Err(self.set(error)),
            Ok(value) => Ok(value),
        }
    }
}
