//! Errors: a code that says what to do, and an object that says what happened.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use alluvium::Error;

use crate::borrow::lend;
use crate::call::quietly;

/// What became of a call. Later versions may add codes: treat one that you do not know like ALLUVIUM_CODE_OTHER.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_code {
    /// Done.
    Ok = 0,
    /// The operating system refused an operation; nothing acknowledged is lost. Remove the cause and call again. If the
    /// answer is ALLUVIUM_CODE_POISONED then, close the database and open it again.
    Io = 1,
    /// The device or quota is full. Free space and retry: nothing was applied.
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
    /// The writes would take more memory than they may. Split them, or raise transaction_bytes.
    TransactionTooLarge = 8,
    /// A prepared transaction writes to the keyspace. Decide on it, then drop the keyspace.
    KeyspaceInUse = 9,
    /// The call or its options make no sense, or something is NULL. Change the arguments.
    InvalidArgument = 10,
    /// The keyspace was dropped. Take a new handle if it was created again.
    KeyspaceDropped = 11,
    /// The directory is open already, in this process or in another one, as the message says. Close it there first.
    Locked = 12,
    /// The database, or the store of backups, was opened read-only.
    ReadOnly = 13,
    /// The database was closed; its handles answer nothing but this.
    Closed = 14,
    /// An earlier write or sync failed, so nothing further is acknowledged. Fix the cause, then reopen.
    Poisoned = 15,
    /// A row lock was not granted before the transaction's alluvium_lock_cancel was cancelled. Roll back, or go on.
    Cancelled = 16,
    /// A row came out of order where ascending keys are asked for. Nothing was installed.
    OutOfOrder = 17,
    /// A bulk load that refuses duplicates met a key twice. Nothing was installed.
    DuplicateKey = 18,
    /// The log does not reach back to this commit any more. Copy the database and follow its changes from there; to keep
    /// more of the log, raise change_log_bytes.
    ChangesLost = 19,
    /// A defect of this library: the engine met a state that must not be. Open the database again, and report the
    /// message.
    Internal = 20,
    /// The calling process was forked from the one that opened the database or the store: nothing was read or written.
    /// Use it in the parent, or open it here after the parent has closed it.
    Forked = 21,
    /// A defect of this library: the call ended half-way. Close the database and report the message.
    Panic = 100,
    /// An error that this version has no code for: read the message.
    Other = 101,
}

/// Why a call failed: see alluvium_error_free. Pointers that its functions return live as long as it does.
pub struct alluvium_error {
    code: alluvium_code,
    /// Message and causes, each ended by a zero byte and without another.
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

    /// What the error names, for programs.
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
            | Error::Cancelled { keyspace, key }
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
        Error::Cancelled { .. } => alluvium_code::Cancelled,
        Error::OutOfOrder { .. } => alluvium_code::OutOfOrder,
        Error::DuplicateKey { .. } => alluvium_code::DuplicateKey,
        Error::ChangesLost { .. } => alluvium_code::ChangesLost,
        Error::Forked => alluvium_code::Forked,
        Error::Internal(_) => alluvium_code::Internal,
        _ => alluvium_code::Other,
    }
}

/// The text as C reads it. A path may have a zero byte in it, and a message the path.
fn terminated(message: &str) -> Vec<u8> {
    let mut bytes = message.replace('\0', "\u{FFFD}").into_bytes();
    bytes.push(0);
    bytes
}

/// Its code; ALLUVIUM_CODE_OK for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_code(error: Option<&alluvium_error>) -> alluvium_code {
    error.map_or(alluvium_code::Ok, alluvium_error::code)
}

/// What happened: a sentence in UTF-8 ended by a zero byte. `size` may be NULL. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_message(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    lend_text(error, 0, size)
}

/// How many causes are known.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_cause_count(error: Option<&alluvium_error>) -> usize {
    error.map_or(0, |error| error.messages.len() - 1)
}

/// The cause with this index: 0 is the cause of the error, 1 the cause of that, and so on. As alluvium_error_message.
/// NULL if there are not so many.
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

/// The name of the keyspace in question, not ended by a zero byte; NULL if it names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_keyspace(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.keyspace.as_deref()), size)
}

/// The key of the row in question; NULL if it names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_key(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.key.as_deref()), size)
}

/// The id of the prepared transaction in question; NULL if it names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_xid(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.xid.as_deref()), size)
}

/// The path of the file in question, not ended by a zero byte; NULL if it names none. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_path(
    error: Option<&alluvium_error>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(error.and_then(|error| error.path.as_deref()), size)
}

/// Where in the file the wrong bytes are, for ALLUVIUM_CODE_CORRUPTION.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_offset(error: Option<&alluvium_error>) -> u64 {
    error.map_or(0, |error| error.offset)
}

/// The system's error number (errno); 0 if the system did not give one.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_os_code(error: Option<&alluvium_error>) -> i32 {
    error.map_or(0, |error| error.os_code)
}

/// The first commit that was asked for and is not there, for ALLUVIUM_CODE_CHANGES_LOST; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_from_seqno(error: Option<&alluvium_error>) -> u64 {
    error.map_or(0, |error| error.from)
}

/// The first commit that is there or will be, for ALLUVIUM_CODE_CHANGES_LOST; else 0.
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
