//! Safe wrappers of WiredTiger's handles. All `unsafe` code of this engine is here.
//!
//! `shim.c` provides the functions and documents each. The calls are sound for three reasons. A
//! [`Session`] holds its [`Connection`], which closes only after its last holder is dropped. A
//! session and its cursors are reached through `&mut Session`, so by one thread at a time. Rows
//! borrow the session, so they are gone before its next call.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rumbench_core::engine::{EngineError, Result};

/// Error code of a conflict: roll back and run the whole transaction again. `shim.c` checks the
/// number.
const ROLLBACK: c_int = -31800;
/// Error code if there is no such row or no further row. `shim.c` checks the number.
const NOT_FOUND: c_int = -31803;

/// Declares a type of the library that is known only by address.
macro_rules! opaque {
    ($name:ident) => {
        #[repr(C)]
        struct $name {
            _bytes: [u8; 0],
            _neither_sent_nor_moved: PhantomData<(*mut u8, PhantomPinned)>,
        }
    };
}

opaque!(RawConnection);
opaque!(RawSession);
opaque!(RawCursor);

// The declarations of `shim.c`, in its order.
unsafe extern "C" {
    fn shim_open(dir: *const c_char, config: *const c_char, out: *mut *mut RawConnection) -> c_int;
    fn shim_close(connection: *mut RawConnection) -> c_int;
    fn shim_open_session(connection: *mut RawConnection, out: *mut *mut RawSession) -> c_int;
    fn shim_close_session(session: *mut RawSession) -> c_int;
    fn shim_create(session: *mut RawSession, uri: *const c_char, config: *const c_char) -> c_int;
    fn shim_open_cursor(
        session: *mut RawSession,
        uri: *const c_char,
        out: *mut *mut RawCursor,
    ) -> c_int;
    fn shim_begin(session: *mut RawSession) -> c_int;
    fn shim_commit(session: *mut RawSession) -> c_int;
    fn shim_rollback(session: *mut RawSession) -> c_int;
    fn shim_checkpoint(session: *mut RawSession) -> c_int;
    fn shim_sync_log(session: *mut RawSession) -> c_int;
    fn shim_search(
        cursor: *mut RawCursor,
        key: *const c_void,
        key_size: usize,
        value: *mut *const c_void,
        value_size: *mut usize,
    ) -> c_int;
    fn shim_reserve(cursor: *mut RawCursor, key: *const c_void, key_size: usize) -> c_int;
    fn shim_put(
        cursor: *mut RawCursor,
        key: *const c_void,
        key_size: usize,
        value: *const c_void,
        value_size: usize,
    ) -> c_int;
    fn shim_remove(cursor: *mut RawCursor, key: *const c_void, key_size: usize) -> c_int;
    fn shim_search_near(
        cursor: *mut RawCursor,
        key: *const c_void,
        key_size: usize,
        order: *mut c_int,
    ) -> c_int;
    fn shim_step(cursor: *mut RawCursor, forward: bool) -> c_int;
    fn shim_row(
        cursor: *mut RawCursor,
        key: *mut *const c_void,
        key_size: *mut usize,
        value: *mut *const c_void,
        value_size: *mut usize,
    ) -> c_int;
    fn shim_reset(cursor: *mut RawCursor) -> c_int;
    fn shim_counters() -> usize;
    fn shim_counter_name(counter: usize) -> *const c_char;
    fn shim_counter_values(session: *mut RawSession, values: *mut i64) -> c_int;
    fn shim_error_text(error: c_int) -> *const c_char;
    fn shim_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);
}

/// Returns the linked release, for example `11.3.1`.
pub(super) fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three integers to write to.
    unsafe { shim_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Converts the library's error code to a result.
fn check(code: c_int, context: &'static str) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(error(code, context)),
    }
}

/// Like [`check`], but returns `false` if there is no row.
fn check_found(code: c_int, context: &'static str) -> Result<bool> {
    match code {
        NOT_FOUND => Ok(false),
        code => check(code, context).map(|()| true),
    }
}

#[cold]
fn error(code: c_int, context: &'static str) -> EngineError {
    // SAFETY: the texts of known codes are constants. Any other code is printed into a static
    // buffer that ends in a zero byte at all times.
    let text = unsafe { CStr::from_ptr(shim_error_text(code)) };
    let text = text.to_string_lossy().into_owned();
    match code {
        ROLLBACK => EngineError::Retry(text),
        _ => EngineError::failed(context, text),
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| EngineError::failed("wiredtiger: a zero byte", error))
}

/// Checks the result of a call that returns an address on success.
fn address<T>(code: c_int, address: *mut T, context: &'static str) -> Result<NonNull<T>> {
    check(code, context)?;
    NonNull::new(address)
        .ok_or_else(|| EngineError::Wrong(format!("{context}: success without a handle")))
}

/// Open database.
pub(super) struct Connection(NonNull<RawConnection>);

// SAFETY: all threads may use the library's connection handle at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// Opens or creates the database in `dir`, which must exist.
    pub(super) fn open(dir: &Path, config: &str) -> Result<Arc<Connection>> {
        const CONTEXT: &str = "wiredtiger: open database";
        let dir = CString::new(dir.as_os_str().as_encoded_bytes())
            .map_err(|error| EngineError::failed(CONTEXT, error))?;
        let config = c_string(config)?;
        let mut raw = ptr::null_mut();
        // SAFETY: two zero-terminated strings, and an address to write to.
        let code = unsafe { shim_open(dir.as_ptr(), config.as_ptr(), &mut raw) };
        Ok(Arc::new(Connection(address(code, raw, CONTEXT)?)))
    }

    /// Closes the database. Fails if the last checkpoint could not be written. Dropping closes it
    /// too.
    pub(super) fn close(self) -> Result<()> {
        let raw = self.0;
        std::mem::forget(self);
        // SAFETY: sessions hold the connection, so there are none. It is forgotten, so it is not
        // closed again.
        let code = unsafe { shim_close(raw.as_ptr()) };
        check(code, "wiredtiger: close database")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: as in `close`. A failure on this path belongs to a trial that failed earlier.
        let _ = unsafe { shim_close(self.0.as_ptr()) };
    }
}

/// Session of one user of the database, with a cursor for each table that it was opened with.
pub(super) struct Session {
    raw: NonNull<RawSession>,
    /// Owned by the session, which closes them.
    cursors: Vec<NonNull<RawCursor>>,
    /// Keeps the connection open until the session is closed.
    _connection: Arc<Connection>,
}

// SAFETY: a session may move to another thread if only one uses it at a time, which `&mut` ensures.
unsafe impl Send for Session {}

impl Session {
    /// Opens a session with a cursor on each of `tables`, which must exist.
    pub(super) fn open(connection: &Arc<Connection>, tables: &[String]) -> Result<Session> {
        let mut raw = ptr::null_mut();
        // SAFETY: an open connection and an address to write to.
        let code = unsafe { shim_open_session(connection.0.as_ptr(), &mut raw) };
        let mut session = Session {
            raw: address(code, raw, "wiredtiger: open session")?,
            cursors: Vec::with_capacity(tables.len()),
            _connection: connection.clone(),
        };
        for table in tables {
            let uri = c_string(table)?;
            let mut raw = ptr::null_mut();
            // SAFETY: an open session, a zero-terminated string, an address to write to.
            let code = unsafe { shim_open_cursor(session.raw.as_ptr(), uri.as_ptr(), &mut raw) };
            let cursor = address(code, raw, "wiredtiger: open cursor")?;
            session.cursors.push(cursor);
        }
        Ok(session)
    }

    /// Creates a table if it does not exist.
    pub(super) fn create(&mut self, table: &str, config: &str) -> Result<()> {
        let (uri, config) = (c_string(table)?, c_string(config)?);
        // SAFETY: an open session and two zero-terminated strings.
        let code = unsafe { shim_create(self.raw.as_ptr(), uri.as_ptr(), config.as_ptr()) };
        check(code, "wiredtiger: create table")
    }

    /// Begins a transaction on a snapshot of the current state.
    pub(super) fn begin(&mut self) -> Result<()> {
        // SAFETY: an open session.
        check(
            unsafe { shim_begin(self.raw.as_ptr()) },
            "wiredtiger: begin",
        )
    }

    /// Ends the transaction, even if it returns an error.
    pub(super) fn commit(&mut self) -> Result<()> {
        // SAFETY: an open session.
        check(
            unsafe { shim_commit(self.raw.as_ptr()) },
            "wiredtiger: commit",
        )
    }

    /// Ends the transaction and resets the cursors.
    pub(super) fn rollback(&mut self) -> Result<()> {
        // SAFETY: an open session.
        check(
            unsafe { shim_rollback(self.raw.as_ptr()) },
            "wiredtiger: roll back",
        )
    }

    /// Writes all changes to the tables' files and syncs them.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: an open session.
        check(
            unsafe { shim_checkpoint(self.raw.as_ptr()) },
            "wiredtiger: checkpoint",
        )
    }

    /// Writes and syncs the log.
    pub(super) fn sync_log(&mut self) -> Result<()> {
        // SAFETY: an open session.
        check(
            unsafe { shim_sync_log(self.raw.as_ptr()) },
            "wiredtiger: sync log",
        )
    }

    /// Returns the value of a key.
    pub(super) fn search(&mut self, cursor: CursorIndex, key: &[u8]) -> Result<Option<&[u8]>> {
        let (mut value, mut size) = (ptr::null(), 0);
        // SAFETY: an open cursor, bytes that outlive the call, two addresses to write to.
        let code = unsafe {
            shim_search(
                self.cursor(cursor),
                key.as_ptr().cast(),
                key.len(),
                &mut value,
                &mut size,
            )
        };
        if !check_found(code, "wiredtiger: search")? {
            return Ok(None);
        }
        // SAFETY: the cursor stays on the row until its next call. That call needs the session,
        // which the slice borrows.
        Ok(Some(unsafe { bytes(value, size) }))
    }

    /// Makes other writers of an existing row conflict until the transaction ends. Returns `true`
    /// if the row exists.
    pub(super) fn reserve(&mut self, cursor: CursorIndex, key: &[u8]) -> Result<bool> {
        // SAFETY: an open cursor and bytes that outlive the call.
        let code = unsafe { shim_reserve(self.cursor(cursor), key.as_ptr().cast(), key.len()) };
        check_found(code, "wiredtiger: reserve")
    }

    /// Writes a row, whether or not the key exists. Outside a transaction it is a transaction of
    /// its own.
    pub(super) fn put(&mut self, cursor: CursorIndex, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: an open cursor and bytes that outlive the call.
        let code = unsafe {
            shim_put(
                self.cursor(cursor),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            )
        };
        check(code, "wiredtiger: put")
    }

    /// Removes a row. Returns `true` if it existed.
    pub(super) fn remove(&mut self, cursor: CursorIndex, key: &[u8]) -> Result<bool> {
        // SAFETY: an open cursor and bytes that outlive the call.
        let code = unsafe { shim_remove(self.cursor(cursor), key.as_ptr().cast(), key.len()) };
        check_found(code, "wiredtiger: remove")
    }

    /// Moves to the key or a neighbor of it. Returns the order of the found key relative to `key`,
    /// or `None` in an empty table.
    pub(super) fn search_near(
        &mut self,
        cursor: CursorIndex,
        key: &[u8],
    ) -> Result<Option<std::cmp::Ordering>> {
        let mut order: c_int = 0;
        // SAFETY: an open cursor, bytes that outlive the call, an address to write to.
        let code = unsafe {
            shim_search_near(
                self.cursor(cursor),
                key.as_ptr().cast(),
                key.len(),
                &mut order,
            )
        };
        let found = check_found(code, "wiredtiger: seek")?;
        Ok(found.then_some(order.cmp(&0)))
    }

    /// Moves to the next or the previous row. Returns `false` if there is none.
    pub(super) fn step(&mut self, cursor: CursorIndex, forward: bool) -> Result<bool> {
        // SAFETY: an open cursor.
        let code = unsafe { shim_step(self.cursor(cursor), forward) };
        check_found(code, "wiredtiger: scan")
    }

    /// Returns key and value of the cursor's row, or an error if the cursor is not on a row.
    pub(super) fn row(&mut self, cursor: CursorIndex) -> Result<(&[u8], &[u8])> {
        let (mut key, mut key_size, mut value, mut value_size) = (ptr::null(), 0, ptr::null(), 0);
        // SAFETY: an open cursor and four addresses to write to. Without a row the library returns
        // an error.
        let code = unsafe {
            shim_row(
                self.cursor(cursor),
                &mut key,
                &mut key_size,
                &mut value,
                &mut value_size,
            )
        };
        check(code, "wiredtiger: read row")?;
        // SAFETY: as in `search`, for both.
        Ok(unsafe { (bytes(key, key_size), bytes(value, value_size)) })
    }

    /// Releases the page that the cursor is on.
    pub(super) fn reset(&mut self, cursor: CursorIndex) -> Result<()> {
        // SAFETY: an open cursor.
        check(
            unsafe { shim_reset(self.cursor(cursor)) },
            "wiredtiger: reset cursor",
        )
    }

    /// Returns the current values of the engine's counters.
    pub(super) fn counters(&mut self) -> Result<Vec<(&'static str, f64)>> {
        // SAFETY: no arguments.
        let count = unsafe { shim_counters() };
        let mut values = vec![0_i64; count];
        // SAFETY: an open session and room for all values.
        let code = unsafe { shim_counter_values(self.raw.as_ptr(), values.as_mut_ptr()) };
        check(code, "wiredtiger: read statistics")?;
        let name = |counter| -> &'static str {
            // SAFETY: below the number of counters; the text is zero-terminated and never freed.
            let text: &'static CStr = unsafe { CStr::from_ptr(shim_counter_name(counter)) };
            text.to_str().unwrap_or("unreadable name")
        };
        let counters = values.iter().enumerate();
        Ok(counters
            .map(|(counter, value)| (name(counter), *value as f64))
            .collect())
    }

    /// Returns the raw cursor. Panics if the session has no such cursor.
    fn cursor(&self, cursor: CursorIndex) -> *mut RawCursor {
        self.cursors[cursor.0].as_ptr()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: an open session of a connection that it keeps open; no code uses the session
        // later.
        let _ = unsafe { shim_close_session(self.raw.as_ptr()) };
    }
}

/// Index of a cursor within its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct CursorIndex(pub(super) usize);

/// Returns the library's bytes as a slice. An empty row may come with a null address.
///
/// # Safety `size` bytes at `start` must not change for as long as the slice lives.
unsafe fn bytes<'a>(start: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; the library returns no null address with a size.
    unsafe { std::slice::from_raw_parts(start.cast(), size) }
}
