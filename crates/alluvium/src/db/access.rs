//! Right to use a database: only the process that opened it, and only until it is closed.

use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_mem::process::Process;

use crate::error::{Error, Result};
use crate::sync::plain::Mutex;
use crate::vfs::LockGuard;

/// Owner process, lock of the directory, and the closed flag of an open database.
pub(crate) struct Access {
    /// The process that opened the database.
    process: Process,
    read_only: bool,
    /// Set by close; every later call is refused. A stale read only lets a racing call finish.
    closed: AtomicBool,
    /// Lock of the directory, until close releases it. Also `None` if a read-only directory has no
    /// lock file. Guards nothing else.
    directory: Mutex<Option<LockGuard>>,
}

impl Access {
    /// Creates the access of the calling process, which holds `lock`.
    pub fn new(read_only: bool, lock: Option<LockGuard>) -> Access {
        Access {
            process: Process::current(),
            read_only,
            closed: AtomicBool::new(false),
            directory: Mutex::new(lock),
        }
    }

    /// Fails if the database is closed, or if this process was forked from the one that opened it.
    ///
    /// Every call on a handle checks this first: a forked process must not take a lock, because its
    /// holder may be a thread that the process does not have.
    pub fn check_open(&self) -> Result<()> {
        if !self.process.is_current() {
            Err(Error::Forked)
        } else if self.is_closed() {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Fails if the database is closed or read-only.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Returns true if this process opened the database, and false in a fork of it.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses all later calls.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Releases the directory for other openers: the last step of closing.
    pub fn release_directory(&self) {
        *self.directory.lock() = None;
    }

    /// Returns true if this handle still owns the directory, so that its files may be touched.
    pub fn owns_directory(&self) -> bool {
        self.process.is_current() && self.directory.lock().is_some()
    }
}
