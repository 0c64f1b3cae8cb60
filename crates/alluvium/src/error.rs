//! Error type of the engine. The documentation of each variant gives the caller's next step.
//!
//! Messages are lower-case sentences without a full stop that name the file, keyspace or key in
//! question. Causes are kept in `source()`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::base::SeqNo;

/// Result of every fallible engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Holder of the directory lock that an open could not get.
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

/// Reason for a failed call. Cheap to clone, so that a poisoned database can repeat its first
/// cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation; nothing acknowledged is lost. If `changed` is
    /// false, remove the cause, for example a limit on open files, and call again: the database
    /// stays usable. If it is true, the database is poisoned: remove the cause and reopen.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Attempted operation, as a verb phrase.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: Arc<std::io::Error>,
        /// True if the failed call may have changed the log, the manifest or the names of a
        /// directory. Then it is not retried: after a failed sync the content of the device is
        /// unknown.
        changed: bool,
    },
    /// The device or quota is full. Free space and retry: nothing was applied, nothing acknowledged
    /// is lost.
    #[error("no space left to {action} {} ({source}): free some space, then retry", path.display())]
    NoSpace {
        /// Attempted operation, as a verb phrase.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Stored bytes are wrong. They were not returned as data: restore the file or a backup, check
    /// for further damage with [`crate::Database::verify`], or save the rest with
    /// [`crate::repair()`].
    #[error("corruption in {} at offset {offset}: {what} (expected {expected}, found {found})", path.display())]
    Corruption {
        /// Damaged file.
        path: PathBuf,
        /// Byte offset of the damaged structure in the file.
        offset: u64,
        /// Structure that failed its check.
        what: &'static str,
        /// Content that the check expected.
        expected: String,
        /// Content found.
        found: String,
    },
    /// The file was written by a newer version. Open it with that version.
    #[error("{} has format version {found}, this build reads up to {supported}: use a newer build", path.display())]
    NewerFormat {
        /// File with the newer format.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
        /// Newest version that this build reads.
        supported: u32,
    },
    /// Another transaction changed the same row first. Roll back and retry the whole transaction.
    #[error("write conflict on a row of keyspace {keyspace}: roll back and retry")]
    Conflict {
        /// Keyspace of the row.
        keyspace: String,
        /// Key of the row.
        key: Vec<u8>,
    },
    /// A row lock was not granted in time. Roll back, or retry the statement.
    #[error("lock wait timeout after {waited_ms} ms on a row of keyspace {keyspace}")]
    LockTimeout {
        /// Keyspace of the row.
        keyspace: String,
        /// Key of the row.
        key: Vec<u8>,
        /// Duration of the wait in milliseconds.
        waited_ms: u64,
    },
    /// Waiting for this row lock would close a cycle. Roll back and retry the whole transaction.
    #[error("deadlock on a row of keyspace {keyspace}: roll back and retry")]
    Deadlock {
        /// Keyspace of the row.
        keyspace: String,
        /// Key of the row.
        key: Vec<u8>,
    },
    /// A row lock was not granted before the call's [`crate::LockCancel`] was canceled. Roll back,
    /// or go on without the row.
    #[error("the wait for a lock on a row of keyspace {keyspace} was canceled")]
    Canceled {
        /// Keyspace of the row.
        keyspace: String,
        /// Key of the row.
        key: Vec<u8>,
    },
    /// The writes of one transaction or batch, or of all open transactions together, would exceed
    /// their memory limit, and cannot move to files. Split the transaction, end others, or raise
    /// [`crate::Options::transaction_bytes`], which tells more. Nothing of the call was applied; a
    /// transaction keeps its earlier writes: commit them, or roll back.
    #[error(
        "the transaction would take {bytes} bytes, the most is {limit}: split it, or raise transaction_bytes"
    )]
    TransactionTooLarge {
        /// Bytes that the writes would take.
        bytes: usize,
        /// Maximum bytes.
        limit: usize,
    },
    /// A prepared transaction writes to the keyspace. Commit it or roll it back, then drop the
    /// keyspace.
    #[error(
        "keyspace {keyspace} is written to by a prepared transaction ({}): resolve that first",
        xid.escape_ascii()
    )]
    KeyspaceInUse {
        /// Name of the keyspace.
        keyspace: String,
        /// Id of the prepared transaction.
        xid: Vec<u8>,
    },
    /// A row is out of order for a call that requires ascending keys without duplicates. Nothing
    /// was installed: load the rows with [`crate::BulkLoad`], which sorts them.
    #[error("rows of keyspace {keyspace} are out of order: {} does not follow {}", key.escape_ascii(), previous.escape_ascii())]
    OutOfOrder {
        /// Keyspace of the rows.
        keyspace: String,
        /// Key of the previous row.
        previous: Vec<u8>,
        /// Key of the row that is out of order.
        key: Vec<u8>,
    },
    /// A bulk load that refuses duplicates met a key twice. Nothing was installed: the rows violate
    /// their uniqueness.
    #[error("two rows of keyspace {keyspace} have the key {}", key.escape_ascii())]
    DuplicateKey {
        /// Keyspace of the rows.
        keyspace: String,
        /// Key of both rows.
        key: Vec<u8>,
    },
    /// The log no longer contains this commit: its segments were removed, or it was made without a
    /// log. Copy the database (see [`crate::Database::checkpoint`]) and follow its changes from
    /// there; to keep more of the log, raise [`crate::Options::change_log_bytes`].
    #[error(
        "the changes from commit {from} on are lost, the log begins at commit {oldest}: start from a copy, or raise change_log_bytes"
    )]
    ChangesLost {
        /// First requested commit; it is missing.
        from: SeqNo,
        /// First available commit, or the first one that will be.
        oldest: SeqNo,
    },
    /// The call or its options are invalid. Change the arguments.
    #[error("{0}")]
    InvalidArgument(String),
    /// The engine met an internal error: a panic on one of its threads, or a broken invariant. The
    /// call and its arguments are not the cause. Close the database, open it again, and report the
    /// message.
    #[error("a defect of the engine: {0}; open the database again, and report this")]
    Internal(String),
    /// The keyspace was dropped. Take a new handle if it was created again.
    #[error("keyspace {0} was dropped")]
    KeyspaceDropped(String),
    /// The directory is already open. Close it there first.
    #[error("{} is in use by {holder}: close it there first", path.display())]
    Locked {
        /// Directory of the database.
        path: PathBuf,
        /// Holder of the directory's lock.
        holder: LockHolder,
    },
    /// The database, or the store of backups, was opened read-only. Open it for writing.
    #[error("it is open read-only: open it for writing")]
    ReadOnly,
    /// The database was closed; its handles return only this error. Open it again and take new
    /// handles.
    #[error("the database is closed")]
    Closed,
    /// This process was forked from the process that opened the database. The files, the locks and
    /// the threads used by the handle are the parent's, so nothing was read or written. Use the
    /// database in the parent, or open it here after the parent has closed it.
    #[error(
        "the database was opened by the process that this one was forked from: use it there, or open it here after it was closed there"
    )]
    Forked,
    /// An earlier write or sync failed, so nothing further is acknowledged. Fix the cause, then
    /// reopen.
    #[error(
        "the database stopped accepting writes after a failure: {0}; fix the cause, then reopen"
    )]
    Poisoned(#[source] Arc<Error>),
}

impl Error {
    /// Creates an [`Error::Io`] of a call that has changed nothing, or an [`Error::NoSpace`] if the
    /// system reports a full device or quota.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
        // The parent of a name without directories is empty; messages should show a path.
        let path = if path.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            path.to_path_buf()
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

    /// Returns true if the call failed before it changed anything, for a cause that may end. A
    /// missing file or directory is never retried: the database was removed while it is open.
    pub(crate) fn may_be_retried(&self) -> bool {
        match self {
            Error::NoSpace { .. } => true,
            Error::Io {
                changed, source, ..
            } => !changed && source.kind() != std::io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Returns true if the call has changed nothing because the process or the system had no file
    /// descriptors left.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, Error::Io { changed: false, source, .. } if lacks_descriptors(source))
    }

    /// Replaces the path of a corruption error, for example that of a copy by that of its original.
    /// Returns other errors unchanged.
    pub(crate) fn of_file(self, other: impl FnOnce(PathBuf) -> PathBuf) -> Error {
        match self {
            Error::Corruption {
                path,
                offset,
                what,
                expected,
                found,
            } => Error::Corruption {
                path: other(path),
                offset,
                what,
                expected,
                found,
            },
            error => error,
        }
    }

    /// Creates an [`Error::Corruption`].
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

/// Returns true if the process or the system has no file descriptors left.
pub(crate) fn lacks_descriptors(error: &std::io::Error) -> bool {
    let raw = error.raw_os_error();
    raw == Some(Errno::MFILE.raw_os_error()) || raw == Some(Errno::NFILE.raw_os_error())
}
