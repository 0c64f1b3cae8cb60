//! Errors: a code for the action to take, and an object with the details.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use alluvium::Error;

use crate::borrow::lend;
use crate::call::quietly;

/// Result of a call. Later versions may add codes: treat an unknown code like ALLUVIUM_CODE_OTHER.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_code {
    /// The call succeeded.
    Ok = 0,
    /// The operating system refused an operation; nothing acknowledged is lost. Remove the cause
    /// and call again. If the result is then ALLUVIUM_CODE_POISONED, close the database and open it
    /// again.
    Io = 1,
    /// The device or quota is full; nothing was applied. Free space and retry.
    NoSpace = 2,
    /// Stored bytes are wrong. They were not returned as data; restore the file.
    Corruption = 3,
    /// A file was written by a newer version. Open it with that version.
    NewerFormat = 4,
    /// Another transaction changed the same row first. Roll back and retry the whole transaction.
    Conflict = 5,
    /// A row lock was not granted in time. Roll back, or retry the statement.
    LockTimeout = 6,
    /// Waiting for this row lock would close a cycle. Roll back and retry the whole transaction.
    Deadlock = 7,
    /// The writes exceed their memory limit. Split them, or raise transaction_bytes.
    TransactionTooLarge = 8,
    /// A prepared transaction writes to the keyspace. Decide on it, then drop the keyspace.
    KeyspaceInUse = 9,
    /// The call or its options are invalid, or a required argument is NULL. Change the arguments.
    InvalidArgument = 10,
    /// The keyspace was dropped. If it was created again, open a new handle.
    KeyspaceDropped = 11,
    /// The directory is already open, in this process or in another one, as the message says. Close
    /// it there first.
    Locked = 12,
    /// The database or the backup store was opened read-only.
    ReadOnly = 13,
    /// The database was closed; every call with its handles returns this code.
    Closed = 14,
    /// An earlier write or sync failed, so nothing further is acknowledged. Fix the cause, then
    /// reopen.
    Poisoned = 15,
    /// The transaction's alluvium_lock_cancel was canceled before a row lock was granted. Roll
    /// back, or go on.
    Canceled = 16,
    /// A row is out of order where ascending keys are required. Nothing was installed.
    OutOfOrder = 17,
    /// A bulk load that refuses duplicates found a key twice. Nothing was installed.
    DuplicateKey = 18,
    /// The log no longer reaches back to this commit. Copy the database and follow its changes from
    /// there; to keep more of the log, raise change_log_bytes.
    ChangesLost = 19,
    /// A defect of this library: the engine is in an impossible state. Open the database again, and
    /// report the message.
    Internal = 20,
    /// The calling process was forked from the process that opened the database or the store:
    /// nothing was read or written. Use it in the parent, or open the database or store here after
    /// the parent has closed it.
    Forked = 21,
    /// A defect of this library: the call panicked before it was complete. Close the database and
    /// report the message.
    Panic = 100,
    /// An error for which this version has no code: read the message.
    Other = 101,
}

/// Details of a failed call, to be freed with alluvium_error_free. Pointers returned by its
/// functions stay valid until it is freed.
pub struct alluvium_error {
    code: alluvium_code,
    /// The message, then its causes. Each ends with a zero byte and contains no other.
    messages: Vec<Vec<u8>>,
    keyspace: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    xid: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    offset: u64,
    os_code: i32,
    from: u64,
    oldest: u64,
}

impl alluvium_error {
    pub(crate) fn new(error: &Error) -> alluvium_error {
        let mut new = alluvium_error::plain(code_of(error), &error.to_string());
        new.add_causes(error);
        new.add_names(error);
        new
    }

    pub(crate) fn panicked(message: &str) -> alluvium_error {
        let message = format!("a defect of the library: {message}");
        alluvium_error::plain(alluvium_code::Panic, &message)
    }

    fn plain(code: alluvium_code, message: &str) -> alluvium_error {
        alluvium_error {
            code,
            messages: vec![terminated(message)],
            keyspace: None,
            key: None,
            xid: None,
            path: None,
            offset: 0,
            os_code: 0,
            from: 0,
            oldest: 0,
        }
    }

    pub(crate) fn code(&self) -> alluvium_code {
        self.code
    }

    fn add_causes(&mut self, error: &Error) {
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            self.messages.push(terminated(&cause.to_string()));
            next = cause.source();
        }
    }

    /// Copies the names and numbers of the error into fields that programs can read.
    fn add_names(&mut self, error: &Error) {
        let bytes = |path: &std::path::Path| Some(path.as_os_str().as_encoded_bytes().to_vec());
        match error {
            Error::Io { path, source, .. } | Error::NoSpace { path, source, .. } => {
                self.path = bytes(path);
                self.os_code = source.raw_os_error().unwrap_or(0);
            }
            Error::Corruption { path, offset, .. } => {
                (self.path, self.offset) = (bytes(path), *offset);
            }
            Error::NewerFormat { path, .. } | Error::Locked { path, .. } => self.path = bytes(path),
            Error::Conflict { keyspace, key }
            | Error::LockTimeout { keyspace, key, .. }
            | Error::Deadlock { keyspace, key }
            | Error::Canceled { keyspace, key }
            | Error::OutOfOrder { keyspace, key, .. }
            | Error::DuplicateKey { keyspace, key } => {
                self.keyspace = Some(keyspace.clone().into());
                self.key = Some(key.clone());
            }
            Error::KeyspaceInUse { keyspace, xid } => {
                self.keyspace = Some(keyspace.clone().into());
                self.xid = Some(xid.clone());
            }
            Error::ChangesLost { from, oldest } => (self.from, self.oldest) = (*from, *oldest),
            Error::KeyspaceDropped(keyspace) => self.keyspace = Some(keyspace.clone().into()),
            Error::Poisoned(first) => self.add_names(first),
            _ => {}
        }
    }
}

fn code_of(error: &Error) -> alluvium_code {
    match error {
        Error::Io { .. } => alluvium_code::Io,
        Error::NoSpace { .. } => alluvium_code::NoSpace,
        Error::Corruption { .. } => alluvium_code::Corruption,
        Error::NewerFormat { .. } => alluvium_code::NewerFormat,
        Error::Conflict { .. } => alluvium_code::Conflict,
        Error::LockTimeout { .. } => alluvium_code::LockTimeout,
        Error::Deadlock { .. } => alluvium_code::Deadlock,
        Error::TransactionTooLarge { .. } => alluvium_code::TransactionTooLarge,
        Error::KeyspaceInUse { .. } => alluvium_code::KeyspaceInUse,
        Error::InvalidArgument(_) => alluvium_code::InvalidArgument,
        Error::KeyspaceDropped(_) => alluvium_code::KeyspaceDropped,
        Error::Locked { .. } => alluvium_code::Locked,
        Error::ReadOnly => alluvium_code::ReadOnly,
        Error::Closed => alluvium_code::Closed,
        Error::Poisoned(_) => alluvium_code::Poisoned,
        Error::Canceled { .. } => alluvium_code::Canceled,
        Error::OutOfOrder { .. } => alluvium_code::OutOfOrder,
        Error::DuplicateKey { .. } => alluvium_code::DuplicateKey,
        Error::ChangesLost { .. } => alluvium_code::ChangesLost,
        Error::Forked => alluvium_code::Forked,
        Error::Internal(_) => alluvium_code::Internal,
        _ => alluvium_code::Other,
    }
}

/// Returns the text as a C string. A path may contain a zero byte, and a message may contain the
/// path.
fn terminated(message: &str) -> Vec<u8> {
    let mut bytes = message.replace('\0', "\u{FFFD}").into_bytes();
    bytes.push(0);
    bytes
}

/// Returns the error's code; ALLUVIUM_CODE_OK for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_code(error: Option<&alluvium_error>) -> alluvium_code {
    error.map_or(alluvium_code::Ok, alluvium_error::code)
}

/// Returns the message: a sentence in UTF-8 that ends with a zero byte; NULL for NULL. `size` may
/// be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_message(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    lend_text(error, 0, size)
}

/// Returns the number of known causes; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_cause_count(error: Option<&alluvium_error>) -> usize {
    error.map_or(0, |error| error.messages.len() - 1)
}

/// Returns the message of the cause at this index, in the form of alluvium_error_message. Index 0
/// is the cause of the error, 1 is the cause of that cause, and so on. NULL if the index is out of
/// range.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_cause(
    error: Option<&alluvium_error>,
    index: usize,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    lend_text(error, index.saturating_add(1), size)
}

fn lend_text(
    error: Option<&alluvium_error>,
    at: usize,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    let text = error.and_then(|error| error.messages.get(at));
    lend(text.and_then(|text| text.strip_suffix(b"\0")), size).cast()
}

/// Returns the name of the keyspace concerned, without a terminating zero byte; NULL if the error
/// names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_keyspace(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.keyspace.as_deref()), size)
}

/// Returns the key of the row concerned; NULL if the error names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_key(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.key.as_deref()), size)
}

/// Returns the id of the prepared transaction concerned; NULL if the error names none. `size` may
/// be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_xid(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.xid.as_deref()), size)
}

/// Returns the path of the file concerned, without a terminating zero byte; NULL if the error names
/// none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_path(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.path.as_deref()), size)
}

/// Returns the offset of the wrong bytes in the file, for ALLUVIUM_CODE_CORRUPTION; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_offset(error: Option<&alluvium_error>) -> u64 {
    error.map_or(0, |error| error.offset)
}

/// Returns the system's error number (errno); 0 if the system did not give one.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_os_code(error: Option<&alluvium_error>) -> i32 {
    error.map_or(0, |error| error.os_code)
}

/// Returns the first requested commit, no longer in the log, for ALLUVIUM_CODE_CHANGES_LOST; else
/// 0.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_from_seqno(error: Option<&alluvium_error>) -> u64 {
    error.map_or(0, |error| error.from)
}

/// Returns the first commit that the log has or will have, for ALLUVIUM_CODE_CHANGES_LOST; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_oldest_seqno(error: Option<&alluvium_error>) -> u64 {
    error.map_or(0, |error| error.oldest)
}

/// Frees an error.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_free(error: Option<Box<alluvium_error>>) {
    quietly(|| drop(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_of_the_engine_has_a_code_of_its_own() {
        let error = alluvium_error::new(&Error::Internal("why".into()));
        assert_eq!(error.code(), alluvium_code::Internal);
        assert_eq!(error.code() as i32, 20);
    }
}
