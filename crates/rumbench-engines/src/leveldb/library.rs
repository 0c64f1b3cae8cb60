//! Safe wrappers of LevelDB's C interface. All `unsafe` code of this engine is here.
//!
//! Each type owns one object of the library and frees it. All threads may share a [`Database`]; an
//! [`Iter`] borrows it and belongs to one thread. Bytes from the library are copied, or borrowed
//! from their owner.

#![allow(non_camel_case_types, reason = "the names of `leveldb/c.h`")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::ops::Deref;
use std::path::Path;
use std::ptr::{self, NonNull};

use rumbench_core::engine::{EngineError, Result};

/// Declares types of the library that are known only by address.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        struct $name {
            _bytes: [u8; 0],
            _neither_sent_nor_moved: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! {
    leveldb_t leveldb_options_t leveldb_cache_t leveldb_filterpolicy_t leveldb_readoptions_t
    leveldb_writeoptions_t leveldb_writebatch_t leveldb_iterator_t
}

const NO_COMPRESSION: c_int = 0;
const SNAPPY_COMPRESSION: c_int = 1;

// The part of `leveldb/c.h` that is used, in its order. It has not changed since release 1.21.
unsafe extern "C" {
    fn leveldb_open(
        options: *const leveldb_options_t,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut leveldb_t;
    fn leveldb_close(db: *mut leveldb_t);
    fn leveldb_write(
        db: *mut leveldb_t,
        options: *const leveldb_writeoptions_t,
        batch: *mut leveldb_writebatch_t,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut leveldb_t,
        options: *const leveldb_readoptions_t,
        key: *const c_char,
        key_size: usize,
        value_size: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_create_iterator(
        db: *mut leveldb_t,
        options: *const leveldb_readoptions_t,
    ) -> *mut leveldb_iterator_t;
    fn leveldb_property_value(db: *mut leveldb_t, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut leveldb_t,
        start: *const c_char,
        start_size: usize,
        end: *const c_char,
        end_size: usize,
    );
    fn leveldb_iter_destroy(iter: *mut leveldb_iterator_t);
    fn leveldb_iter_valid(iter: *const leveldb_iterator_t) -> c_uchar;
    fn leveldb_iter_seek_to_last(iter: *mut leveldb_iterator_t);
    fn leveldb_iter_seek(iter: *mut leveldb_iterator_t, key: *const c_char, key_size: usize);
    fn leveldb_iter_next(iter: *mut leveldb_iterator_t);
    fn leveldb_iter_prev(iter: *mut leveldb_iterator_t);
    fn leveldb_iter_key(iter: *const leveldb_iterator_t, size: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iter: *const leveldb_iterator_t, size: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iter: *const leveldb_iterator_t, error: *mut *mut c_char);
    fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t;
    fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t);
    fn leveldb_writebatch_put(
        batch: *mut leveldb_writebatch_t,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
    );
    fn leveldb_writebatch_delete(
        batch: *mut leveldb_writebatch_t,
        key: *const c_char,
        key_size: usize,
    );
    fn leveldb_options_create() -> *mut leveldb_options_t;
    fn leveldb_options_destroy(options: *mut leveldb_options_t);
    fn leveldb_options_set_filter_policy(
        options: *mut leveldb_options_t,
        filter: *mut leveldb_filterpolicy_t,
    );
    fn leveldb_options_set_create_if_missing(options: *mut leveldb_options_t, value: c_uchar);
    fn leveldb_options_set_write_buffer_size(options: *mut leveldb_options_t, bytes: usize);
    fn leveldb_options_set_max_open_files(options: *mut leveldb_options_t, files: c_int);
    fn leveldb_options_set_cache(options: *mut leveldb_options_t, cache: *mut leveldb_cache_t);
    fn leveldb_options_set_block_size(options: *mut leveldb_options_t, bytes: usize);
    fn leveldb_options_set_compression(options: *mut leveldb_options_t, kind: c_int);
    fn leveldb_filterpolicy_destroy(filter: *mut leveldb_filterpolicy_t);
    fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut leveldb_filterpolicy_t;
    fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t;
    fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t);
    fn leveldb_readoptions_set_verify_checksums(
        options: *mut leveldb_readoptions_t,
        value: c_uchar,
    );
    fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t;
    fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t);
    fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, value: c_uchar);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut leveldb_cache_t;
    fn leveldb_cache_destroy(cache: *mut leveldb_cache_t);
    fn leveldb_free(address: *mut c_void);
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
}

/// Options for opening a database. `None` keeps the library's default.
pub(super) struct DatabaseOptions {
    pub(super) cache_bytes: usize,
    pub(super) write_buffer_bytes: Option<usize>,
    pub(super) block_bytes: Option<usize>,
    pub(super) filter_bits_per_key: Option<i32>,
    pub(super) max_open_files: Option<i32>,
    pub(super) snappy: bool,
    pub(super) verify_checksums: bool,
}

/// Open database with the options of its reads and writes.
pub(super) struct Database {
    db: NonNull<leveldb_t>,
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
    /// Null if the database has no filter.
    filter: *mut leveldb_filterpolicy_t,
    read: *mut leveldb_readoptions_t,
    write: *mut leveldb_writeoptions_t,
    synced_write: *mut leveldb_writeoptions_t,
}

// SAFETY: all threads may use the library's database handle at once, and options are only read
// after `open`.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// Returns the linked release, for example `1.22`.
pub(super) fn version() -> String {
    // SAFETY: no arguments.
    let (major, minor) = unsafe { (leveldb_major_version(), leveldb_minor_version()) };
    format!("{major}.{minor}")
}

/// Runs a call that reports its error through its last argument.
fn checked<T>(context: &'static str, call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error: *mut c_char = ptr::null_mut();
    let answer = call(&mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: the library set the address of a zero-terminated string owned by the caller.
    let text = unsafe { CStr::from_ptr(error) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: as above; the string is not used again.
    unsafe { leveldb_free(error.cast()) };
    Err(EngineError::failed(context, text))
}

impl Database {
    /// Opens or creates the database in `dir`.
    pub(super) fn open(dir: &Path, with: &DatabaseOptions) -> Result<Database> {
        const CONTEXT: &str = "leveldb: open database";
        let dir = CString::new(dir.as_os_str().as_encoded_bytes())
            .map_err(|error| EngineError::failed(CONTEXT, error))?;
        // SAFETY: no other code knows the objects while they are created and changed. `drop` frees
        // them, the database first. If opening fails, this function frees them.
        unsafe {
            let options = leveldb_options_create();
            let cache = leveldb_cache_create_lru(with.cache_bytes);
            let filter = match with.filter_bits_per_key {
                Some(bits) => leveldb_filterpolicy_create_bloom(bits),
                None => ptr::null_mut(),
            };
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_cache(options, cache);
            leveldb_options_set_filter_policy(options, filter);
            let compression = if with.snappy {
                SNAPPY_COMPRESSION
            } else {
                NO_COMPRESSION
            };
            leveldb_options_set_compression(options, compression);
            if let Some(bytes) = with.write_buffer_bytes {
                leveldb_options_set_write_buffer_size(options, bytes);
            }
            if let Some(bytes) = with.block_bytes {
                leveldb_options_set_block_size(options, bytes);
            }
            if let Some(files) = with.max_open_files {
                leveldb_options_set_max_open_files(options, files);
            }
            let opened = checked(CONTEXT, |error| leveldb_open(options, dir.as_ptr(), error));
            let opened = opened.and_then(|db| {
                NonNull::new(db).ok_or_else(|| {
                    EngineError::Wrong(format!("{CONTEXT}: success without a handle"))
                })
            });
            match opened {
                Ok(db) => Ok(Database::with_calls(db, options, cache, filter, with)),
                Err(error) => {
                    free_options(options, cache, filter);
                    Err(error)
                }
            }
        }
    }

    /// Adds the options of reads and writes.
    fn with_calls(
        db: NonNull<leveldb_t>,
        options: *mut leveldb_options_t,
        cache: *mut leveldb_cache_t,
        filter: *mut leveldb_filterpolicy_t,
        with: &DatabaseOptions,
    ) -> Database {
        // SAFETY: as in `open`.
        unsafe {
            let read = leveldb_readoptions_create();
            leveldb_readoptions_set_verify_checksums(read, u8::from(with.verify_checksums));
            let write = leveldb_writeoptions_create();
            let synced_write = leveldb_writeoptions_create();
            leveldb_writeoptions_set_sync(synced_write, 1);
            Database {
                db,
                options,
                cache,
                filter,
                read,
                write,
                synced_write,
            }
        }
    }

    /// Returns the newest value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let mut size = 0;
        let value = checked("leveldb: get", |error| {
            // SAFETY: an open database and its options, bytes that outlive the call, two addresses
            // to write to.
            unsafe {
                leveldb_get(
                    self.db.as_ptr(),
                    self.read,
                    key.as_ptr().cast(),
                    key.len(),
                    &mut size,
                    error,
                )
            }
        })?;
        Ok(NonNull::new(value).map(|start| Value { start, size }))
    }

    /// Writes a batch atomically, and syncs the log up to it if `sync` is set.
    pub(super) fn write(&self, batch: &Batch, sync: bool) -> Result<()> {
        let options = if sync { self.synced_write } else { self.write };
        checked("leveldb: write", |error| {
            // SAFETY: an open database, its options, a batch borrowed for the call, an address to
            // write to.
            unsafe { leveldb_write(self.db.as_ptr(), options, batch.0.as_ptr(), error) }
        })
    }

    /// Returns an iterator over the current state, not yet on a row.
    pub(super) fn iter(&self) -> Iter<'_> {
        // SAFETY: an open database and its options.
        let iter = unsafe { leveldb_create_iterator(self.db.as_ptr(), self.read) };
        Iter {
            iter: NonNull::new(iter).expect("the library answers with an iterator or aborts"),
            _database: self,
        }
    }

    /// Returns a property as text, or `None` if the library does not know its name.
    pub(super) fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: an open database and a zero-terminated string.
        let text = unsafe { leveldb_property_value(self.db.as_ptr(), name.as_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: a zero-terminated string owned by the caller.
        let owned = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: as above; the string is not used again.
        unsafe { leveldb_free(text.cast()) };
        Some(owned)
    }

    /// Flushes the memtable and compacts the tables that overlap a range.
    pub(super) fn compact_range(&self, start: &[u8], end: &[u8]) {
        // SAFETY: an open database and bytes that outlive the call.
        unsafe {
            leveldb_compact_range(
                self.db.as_ptr(),
                start.as_ptr().cast(),
                start.len(),
                end.as_ptr().cast(),
                end.len(),
            );
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: iterators borrow the database, so there are none. Each object is freed once, the
        // database before the objects it uses.
        unsafe {
            leveldb_close(self.db.as_ptr());
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.write);
            leveldb_writeoptions_destroy(self.synced_write);
            free_options(self.options, self.cache, self.filter);
        }
    }
}

/// Frees the options, the cache and the filter of a database.
///
/// # Safety No code uses them during or after the call. The filter may be null.
unsafe fn free_options(
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
    filter: *mut leveldb_filterpolicy_t,
) {
    // SAFETY: the caller's promise.
    unsafe {
        leveldb_options_destroy(options);
        leveldb_cache_destroy(cache);
        if !filter.is_null() {
            leveldb_filterpolicy_destroy(filter);
        }
    }
}

/// Value that the library copied for the caller.
pub(super) struct Value {
    start: NonNull<c_char>,
    size: usize,
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the library wrote `size` bytes there, and they belong to this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.size) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the bytes belong to this value, and no code uses them afterwards.
        unsafe { leveldb_free(self.start.as_ptr().cast()) };
    }
}

/// Batch of writes that LevelDB applies atomically.
pub(super) struct Batch(NonNull<leveldb_writebatch_t>);

impl Batch {
    pub(super) fn new() -> Batch {
        // SAFETY: no arguments.
        let batch = unsafe { leveldb_writebatch_create() };
        Batch(NonNull::new(batch).expect("the library answers with a batch or aborts"))
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: a batch borrowed mutably, and bytes that the library copies.
        unsafe {
            leveldb_writebatch_put(
                self.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        // SAFETY: as in `put`.
        unsafe { leveldb_writebatch_delete(self.0.as_ptr(), key.as_ptr().cast(), key.len()) };
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: the batch belongs to this value alone.
        unsafe { leveldb_writebatch_destroy(self.0.as_ptr()) };
    }
}

/// Iterator over the state at the time of its creation.
pub(super) struct Iter<'a> {
    iter: NonNull<leveldb_iterator_t>,
    _database: &'a Database,
}

impl Iter<'_> {
    /// Moves to the first key that is not smaller, or past the last one.
    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: an open iterator and bytes that outlive the call.
        unsafe { leveldb_iter_seek(self.iter.as_ptr(), key.as_ptr().cast(), key.len()) };
    }

    /// Moves to the last key that is smaller, or before the first one.
    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.seek(key);
        if self.is_valid() {
            self.prev();
        } else {
            // SAFETY: an open iterator.
            unsafe { leveldb_iter_seek_to_last(self.iter.as_ptr()) };
        }
    }

    /// Moves to the next row. The iterator must be on a row.
    pub(super) fn next(&mut self) {
        assert!(self.is_valid(), "a step needs a row to start from");
        // SAFETY: an open iterator that is on a row.
        unsafe { leveldb_iter_next(self.iter.as_ptr()) };
    }

    /// Moves to the previous row. The iterator must be on a row.
    pub(super) fn prev(&mut self) {
        assert!(self.is_valid(), "a step needs a row to start from");
        // SAFETY: an open iterator that is on a row.
        unsafe { leveldb_iter_prev(self.iter.as_ptr()) };
    }

    /// Returns key and value of the current row, or `None` if the iterator is not on a row.
    pub(super) fn row(&self) -> Option<(&[u8], &[u8])> {
        if !self.is_valid() {
            return None;
        }
        let (mut key_size, mut value_size) = (0_usize, 0_usize);
        // SAFETY: an open iterator that is on a row. The bytes stay until its next move, which
        // needs `&mut self`.
        unsafe {
            let key = leveldb_iter_key(self.iter.as_ptr(), &mut key_size);
            let value = leveldb_iter_value(self.iter.as_ptr(), &mut value_size);
            Some((bytes(key, key_size), bytes(value, value_size)))
        }
    }

    /// Returns the error if a row up to here could not be read.
    pub(super) fn status(&self) -> Result<()> {
        checked("leveldb: scan", |error| {
            // SAFETY: an open iterator and an address to write to.
            unsafe { leveldb_iter_get_error(self.iter.as_ptr(), error) }
        })
    }

    fn is_valid(&self) -> bool {
        // SAFETY: an open iterator.
        unsafe { leveldb_iter_valid(self.iter.as_ptr()) != 0 }
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator belongs to this value alone, and the database is open.
        unsafe { leveldb_iter_destroy(self.iter.as_ptr()) };
    }
}

/// Returns the library's bytes as a slice. An empty row may come with a null address.
///
/// # Safety `size` bytes at `start` must not change for as long as the slice lives.
unsafe fn bytes<'a>(start: *const c_char, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; the library returns no null address with a size.
    unsafe { std::slice::from_raw_parts(start.cast(), size) }
}
