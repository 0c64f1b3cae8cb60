//! Cursors: the rows of one keyspace as of one commit, in both directions.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::Cursor;

use crate::borrow::{bytes, given, invalid, lend};
use crate::call::{answer, make, quietly};
use crate::error::{alluvium_code, alluvium_error};
use crate::value::alluvium_value;

/// A position in a keyspace as of one commit, opened by alluvium_cursor_open. A new cursor is not
/// on a row: seek first. For one thread at a time; keeps the database open.
pub struct alluvium_cursor(pub(crate) Cursor);

/// Moves to the first row at or after a key. `found` gets true if there is one, as in the functions
/// below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_cursor_seek(
    cursor: Option<&mut alluvium_cursor>,
    key: *const c_void,
    key_size: usize,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    answer(error, found, || given(cursor, "cursor")?.0.seek(key?))
}

/// Moves to the last row before a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_cursor_seek_before(
    cursor: Option<&mut alluvium_cursor>,
    key: *const c_void,
    key_size: usize,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    answer(error, found, || {
        given(cursor, "cursor")?.0.seek_before(key?)
    })
}

/// Moves to the first row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_seek_first(
    cursor: Option<&mut alluvium_cursor>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, found, || given(cursor, "cursor")?.0.seek_first())
}

/// Moves to the last row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_seek_last(
    cursor: Option<&mut alluvium_cursor>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, found, || given(cursor, "cursor")?.0.seek_last())
}

/// Moves to the next row. Finds none if the cursor is not on a row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_next(
    cursor: Option<&mut alluvium_cursor>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, found, || given(cursor, "cursor")?.0.next())
}

/// Moves to the previous row. Finds none if the cursor is not on a row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_prev(
    cursor: Option<&mut alluvium_cursor>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, found, || given(cursor, "cursor")?.0.prev())
}

/// Returns true if the cursor is on a row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_valid(cursor: Option<&alluvium_cursor>) -> bool {
    cursor.is_some_and(|cursor| cursor.0.valid())
}

/// Returns the key of the row, valid until the cursor moves or is freed; NULL if the cursor is not
/// on a row. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_key(
    cursor: Option<&alluvium_cursor>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(on_row(cursor).map(Cursor::key), size)
}

/// Returns the value of the row, valid until the cursor moves or is freed; NULL if the cursor is
/// not on a row. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_value(
    cursor: Option<&alluvium_cursor>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(on_row(cursor).map(Cursor::value), size)
}

fn on_row(cursor: Option<&alluvium_cursor>) -> Option<&Cursor> {
    cursor
        .map(|cursor| &cursor.0)
        .filter(|cursor| cursor.valid())
}

/// Gets the value of the row, to be freed; it stays valid after the cursor moves.
/// ALLUVIUM_CODE_INVALID_ARGUMENT if the cursor is not on a row.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_pin_value(
    cursor: Option<&alluvium_cursor>,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, value, || {
        let row = on_row(Some(given(cursor, "cursor")?));
        let row = row.ok_or_else(|| invalid("the cursor is not on a row"))?;
        Ok(alluvium_value(row.pin_value()))
    })
}

/// Returns the number of the commit that the cursor shows; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_seqno(cursor: Option<&alluvium_cursor>) -> u64 {
    cursor.map_or(0, |cursor| cursor.0.seqno())
}

/// Frees a cursor.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_cursor_free(cursor: Option<Box<alluvium_cursor>>) {
    quietly(|| drop(cursor));
}
