//! Readers: one family of reads for the newest commit, snapshots and transactions.
//!
//! A reader is a plain value that borrows its owner and a keyspace. The owner decides which rows it
//! shows; the functions are the same for all owners. See
//! `docs/decisions/0040-readers-and-writers.md`.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use alluvium::{Cursor, CursorOptions, Keyspace, Result, Snapshot, Transaction, Value};

use crate::borrow::{buffer, bytes, given, handles_out, invalid, owner, slices};
use crate::call::{call, find, make};
use crate::cursor::alluvium_cursor;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::options::alluvium_cursor_options;
use crate::sized;
use crate::snapshot::alluvium_snapshot;
use crate::transaction::alluvium_transaction;
use crate::value::{alluvium_slice, alluvium_value};

/// Rows of one keyspace as of the newest commit, a snapshot or a transaction: see
/// alluvium_keyspace_reader, alluvium_snapshot_reader and alluvium_transaction_reader. A plain
/// value: making and copying one costs nothing, and it is not freed. It borrows the handles that it
/// was made from: do not use it after one of them is freed, nor on more threads than they allow.
/// With NULL for a handle, or zeroed, its calls give ALLUVIUM_CODE_INVALID_ARGUMENT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_reader {
    /// Kind of the owner, set by the library; 0: none.
    kind: usize,
    /// The owner, unless it is the keyspace.
    owner: *const c_void,
    /// The keyspace.
    keyspace: *const alluvium_keyspace,
}

// Kinds of owners. 0 is none of them, so a zeroed reader is refused.
const NEWEST: usize = 1;
const SNAPSHOT: usize = 2;
const TRANSACTION: usize = 3;

/// Returns a reader of a keyspace's newest rows: each call reads as of the newest commit that is
/// visible when it begins.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_reader(keyspace: *const alluvium_keyspace) -> alluvium_reader {
    alluvium_reader::new(NEWEST, ptr::null::<c_void>(), keyspace)
}

/// Returns a reader of a keyspace's rows as of a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_reader(
    snapshot: *const alluvium_snapshot,
    keyspace: *const alluvium_keyspace,
) -> alluvium_reader {
    alluvium_reader::new(SNAPSHOT, snapshot, keyspace)
}

/// Returns a reader of a keyspace's rows as a transaction sees them, its own writes included. After
/// the end of the transaction its calls give ALLUVIUM_CODE_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_reader(
    transaction: *const alluvium_transaction,
    keyspace: *const alluvium_keyspace,
) -> alluvium_reader {
    alluvium_reader::new(TRANSACTION, transaction, keyspace)
}

/// Gets the value of a key, to be freed; NULL if there is none. A large value is not copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_get(
    reader: alluvium_reader,
    key: *const c_void,
    key_size: usize,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    find(error, value, || unsafe {
        let found = reader.view()?.get(bytes(key, key_size)?)?;
        Ok(found.map(alluvium_value))
    })
}

/// Copies the value of a key into a buffer, truncated to the size of the buffer. `value_size` gets
/// the size of the whole value; `found` gets true if there is a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_get_into(
    reader: alluvium_reader,
    key: *const c_void,
    key_size: usize,
    data: *mut c_void,
    data_size: usize,
    value_size: Option<&mut MaybeUninit<usize>>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let buffer = buffer(data, data_size, value_size, found)?;
        let key = bytes(key, key_size)?;
        reader.view()?.read(key, |value| buffer.fill(value))
    })
}

/// Gets the values of `count` keys at one commit, at less cost than single reads. `values` has room
/// for `count` handles, each to be freed; NULL for a key without a value. After an error all are
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_multi_get(
    reader: alluvium_reader,
    keys: *const alluvium_slice,
    count: usize,
    values: *mut *mut alluvium_value,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let places = handles_out(values, count)?;
        let values = reader.view()?.multi_get(&slices(keys, count)?)?;
        for (place, value) in places.iter_mut().zip(values) {
            if let Some(value) = value {
                place.write(Box::into_raw(Box::new(alluvium_value(value))));
            }
        }
        Ok(())
    })
}

/// Opens a cursor over the rows as of one commit: the newest that is visible now, or that of the
/// snapshot or transaction. A snapshot's cursor stays valid after the snapshot is freed. A
/// transaction's cursor includes the transaction's writes before this call, but no later ones.
/// `options` may be NULL; the bytes they point to are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_cursor_open(
    reader: alluvium_reader,
    options: *const alluvium_cursor_options,
    cursor: Option<&mut MaybeUninit<*mut alluvium_cursor>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate, for the struct and for everything it points to.
    make(error, cursor, || unsafe {
        let options = sized::read(options)?.to_engine()?;
        Ok(alluvium_cursor(reader.view()?.cursor(options)?))
    })
}

/// The rows that a reader shows.
enum View<'a> {
    Newest(&'a Keyspace),
    Snapshot(&'a Snapshot, &'a Keyspace),
    Transaction(&'a Transaction, &'a Keyspace),
}

impl alluvium_reader {
    fn new<T>(kind: usize, owner: *const T, keyspace: *const alluvium_keyspace) -> alluvium_reader {
        alluvium_reader {
            kind,
            owner: owner.cast(),
            keyspace,
        }
    }

    /// Returns the rows that the reader shows. An error if a handle is NULL or the transaction has
    /// ended.
    unsafe fn view<'a>(self) -> Result<View<'a>> {
        // SAFETY: the contract: the handles are of these types, or NULL, and were not freed.
        unsafe {
            let keyspace = &given(self.keyspace.as_ref(), "keyspace")?.0;
            Ok(match self.kind {
                NEWEST => View::Newest(keyspace),
                SNAPSHOT => {
                    let snapshot: &alluvium_snapshot = owner(self.owner, "snapshot")?;
                    View::Snapshot(&snapshot.0, keyspace)
                }
                TRANSACTION => {
                    let transaction: &alluvium_transaction = owner(self.owner, "transaction")?;
                    View::Transaction(transaction.running()?, keyspace)
                }
                _ => return Err(invalid("the reader was not made by alluvium_..._reader")),
            })
        }
    }
}

impl View<'_> {
    fn get(self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            View::Newest(keyspace) => keyspace.get(key),
            View::Snapshot(snapshot, keyspace) => snapshot.get(keyspace, key),
            View::Transaction(transaction, keyspace) => transaction.get(keyspace, key),
        }
    }

    /// Runs `read` on the value, without pinning it where the engine can do this.
    fn read(self, key: &[u8], read: impl FnOnce(Option<&[u8]>)) -> Result<()> {
        match self {
            View::Newest(keyspace) => keyspace.read(key, read),
            other => other.get(key).map(|value| read(value.as_deref())),
        }
    }

    fn multi_get(self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match self {
            View::Newest(keyspace) => keyspace.multi_get(keys),
            View::Snapshot(snapshot, keyspace) => snapshot.multi_get(keyspace, keys),
            View::Transaction(transaction, keyspace) => transaction.multi_get(keyspace, keys),
        }
    }

    fn cursor(self, options: CursorOptions) -> Result<Cursor> {
        match self {
            View::Newest(keyspace) => keyspace.cursor(options),
            View::Snapshot(snapshot, keyspace) => snapshot.cursor(keyspace, options),
            View::Transaction(transaction, keyspace) => transaction.cursor(keyspace, options),
        }
    }
}
