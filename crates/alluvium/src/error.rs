//! The one error type of the engine: each variant tells the caller what to do next.
//!
//! Messages are lower-case sentences without a full stop that name the file, keyspace or key in question.
//! Causes are kept in `source()`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::base::SeqNo;

/// The result of every fallible engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Holder of a lock that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    /// The process that asked for the lock.
    ThisProcess,
    /// Another process.
    AnotherProcess,
    /// Readers, of any process.
    Readers,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockHolder::ThisProcess => "this process",
            LockHolder::AnotherProcess => "another process",
            LockHolder::Readers => "readers of this or another process",
        })
    }
}

/// Why a call failed. Cheap to clone, so that a poisoned database can repeat its first cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation; nothing acknowledged is lost. Where `changed` is false, remove the
    /// cause, for example a limit on open files, and call again: the database stays usable. Where it is true, the
    /// database is poisoned: remove the cause and reopen.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        #[source]
        source: Arc<std::io::Error>,
        /// True if the failed call may have changed the log, the manifest or the names of a directory. Then it is not
        /// tried again: after a failed sync nothing is known about what is on the device.
        changed: bool,
    },
    /// The device or quota is full. Free space and retry: nothing was applied, nothing acknowledged is lost.
    #[error("no space left to {action} {} ({source}): free some space, then retry", path.display())]
    NoSpace {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Stored bytes are wrong. They were not returned as data: restore the file or a backup, see with
    /// [`crate::Database::verify`] what else is damaged, or save the rest with [`crate::repair()`].
    #[error("corruption in {} at offset {offset}: {what} (expected {expected}, found {found})", path.display())]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Byte offset of the damaged structure in the file.
        offset: u64,
        /// The structure that failed its check.
        what: &'static str,
        /// What the check expected.
        expected: String,
        /// What was there.
        found: String,
    },
    /// The file was written by a newer version. Open it with that version.
    #[error("{} has format version {found}, this build reads up to {supported}: use a newer build", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// Another transaction changed the same row first. Roll back and retry the whole transaction.
    #[error("write conflict on a row of keyspace {keyspace}: roll back and retry")]
    Conflict {
        /// The keyspace of the row.
        keyspace: String,
        /// The row's key.
        key: Vec<u8>,
    },
    /// A row lock was not granted in time. Roll back, or retry the statement.
    #[error("lock wait timeout after {waited_ms} ms on a row of keyspace {keyspace}")]
    LockTimeout {
        /// The keyspace of the row.
        keyspace: String,
        /// The row's key.
        key: Vec<u8>,
        /// How long the call waited.
        waited_ms: u64,
    },
    /// Waiting for this row lock would close a cycle. Roll back and retry the whole transaction.
    #[error("deadlock on a row of keyspace {keyspace}: roll back and retry")]
    Deadlock {
        /// The keyspace of the row.
        keyspace: String,
        /// The row's key.
        key: Vec<u8>,
    },
    /// A row lock was not granted before the call's [`crate::LockCancel`] was cancelled. Roll back, or go on without
    /// the row.
    #[error("the wait for a lock on a row of keyspace {keyspace} was cancelled")]
    Cancelled {
        /// The keyspace of the row.
        keyspace: String,
        /// The row's key.
        key: Vec<u8>,
    },
    /// The writes of one transaction or batch, or of all open transactions together, would take more memory than they
    /// may. Split it, end others, or raise [`crate::Options::transaction_bytes`]. Of the call nothing was applied; a transaction goes on with what it
    /// has: commit that, or roll back.
    #[error(
        "the transaction would take {bytes} bytes, the most is {limit}: split it, or raise transaction_bytes"
    )]
    TransactionTooLarge {
        /// What it would have taken.
        bytes: usize,
        /// What it may take.
        limit: usize,
    },
    /// A prepared transaction writes to the keyspace. Commit it or roll it back, then drop the keyspace.
    #[error(
        "keyspace {keyspace} is written to by a prepared transaction ({}): resolve that first",
        xid.escape_ascii()
    )]
    KeyspaceInUse {
        /// The keyspace.
        keyspace: String,
        /// The id of the prepared transaction.
        xid: Vec<u8>,
    },
    /// A row came out of order where ascending keys without duplicates are asked for. Nothing was installed: load
    /// the rows with [`crate::BulkLoad`], which sorts them.
    #[error("rows of keyspace {keyspace} are out of order: {} does not follow {}", key.escape_ascii(), previous.escape_ascii())]
    OutOfOrder {
        /// The keyspace of the rows.
        keyspace: String,
        /// The row before.
        previous: Vec<u8>,
        /// The row that does not follow it.
        key: Vec<u8>,
    },
    /// A bulk load that refuses duplicates met a key twice. Nothing was installed: the rows break what they should keep.
    #[error("two rows of keyspace {keyspace} have the key {}", key.escape_ascii())]
    DuplicateKey {
        /// The keyspace of the rows.
        keyspace: String,
        /// Their key.
        key: Vec<u8>,
    },
    /// The log does not reach back to this commit any more: its segments were removed, or it was made without a log.
    /// Copy the database (see [`crate::Database::checkpoint`]) and follow its changes from there; to keep more of the
    /// log, raise [`crate::Options::change_log_bytes`].
    #[error(
        "the changes from commit {from} on are lost, the log begins at commit {oldest}: start from a copy, or raise change_log_bytes"
    )]
    ChangesLost {
        /// The first commit that was asked for and is not there.
        from: SeqNo,
        /// The first one that is there, or will be.
        oldest: SeqNo,
    },
    /// The call or its options make no sense. Change the arguments.
    #[error("{0}")]
    InvalidArgument(String),
    /// The engine met a state of its own that must not be: a panic on one of its threads, or a broken invariant. The
    /// call and its arguments are not to blame. Close the database, open it again, and report the message.
    #[error("a defect of the engine: {0}; open the database again, and report this")]
    Internal(String),
    /// The keyspace was dropped. Take a new handle if it was created again.
    #[error("keyspace {0} was dropped")]
    KeyspaceDropped(String),
    /// The directory is open already. Close it there first.
    #[error("{} is in use by {holder}: close it there first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The holder of its lock.
        holder: LockHolder,
    },
    /// The database, or the store of backups, was opened read-only. Open it for writing.
    #[error("it is open read-only: open it for writing")]
    ReadOnly,
    /// The database was closed; its handles answer nothing but this. Open it again and take new handles.
    #[error("the database is closed")]
    Closed,
    /// The process that opened the database is not this one: this one was forked from it. The files, the locks and the
    /// threads behind the handle are the parent's, so nothing was read or written. Use the database in the parent, or
    /// open it here after the parent has closed it.
    #[error(
        "the database was opened by the process that this one was forked from: use it there, or open it here after it was closed there"
    )]
    Forked,
    /// An earlier write or sync failed, so nothing further is acknowledged. Fix the cause, then reopen.
    #[error(
        "the database stopped accepting writes after a failure: {0}; fix the cause, then reopen"
    )]
    Poisoned(#[source] Arc<Error>),
}

impl Error {
    /// An [`Error::Io`] of a call that has changed nothing, or [`Error::NoSpace`] where the system says that the device or
    /// quota is full.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
        // The parent of a name without directories: people should read where that is.
        let path = match path.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => path.to_path_buf(),
        };
        let full = matches!(
            source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        );
        let source = Arc::new(source);
        if full {
            Error::NoSpace {
                action,
                path,
                source,
            }
        } else {
            Error::Io {
                action,
                path,
                source,
                changed: false,
            }
        }
    }

    /// Returns true if the call failed before it changed anything, for a cause that may end. A directory or a file that is gone
    /// does not come back: what is missed is the database itself, removed while it is open.
    pub(crate) fn may_be_retried(&self) -> bool {
        match self {
            Error::NoSpace { .. } => true,
            Error::Io {
                changed, source, ..
            } => !changed && source.kind() != std::io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Returns true if the call has changed nothing, because the process or the system had no descriptor left.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, Error::Io { changed: false, source, .. } if lacks_descriptors(source))
    }

    /// An [`Error::Corruption`].
    pub fn corruption(
        path: &Path,
        offset: u64,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Error {
        Error::Corruption {
            path: path.to_path_buf(),
            offset,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// Returns true if the process or the system has no descriptors left.
pub(crate) fn lacks_descriptors(error: &std::io::Error) -> bool {
    let raw = error.raw_os_error();
    raw == Some(Errno::MFILE.raw_os_error()) || raw == Some(Errno::NFILE.raw_os_error())
}
