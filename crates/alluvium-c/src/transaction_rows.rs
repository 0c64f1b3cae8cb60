//! Reads, locks and writes in a transaction.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::borrow::{array_out, buffer, bytes, given, slices, slot};
use crate::call::call;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::{Values, alluvium_keyspace};
use crate::options::lock_mode;
use crate::transaction::alluvium_transaction;
use crate::value::{alluvium_slice, alluvium_value};

/// Gets the value of a key as the transaction sees it, its own writes included, to be freed; NULL
/// if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_get(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        let slot = slot(value)?;
        let found = given(transaction, "transaction")?
            .running()?
            .get(&given(keyspace, "keyspace")?.0, key?)?;
        slot.set_option(found.map(alluvium_value));
        Ok(())
    })
}

/// Copies the value of a key as the transaction sees it, its own writes included, into a buffer:
/// see alluvium_keyspace_get_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_get_into(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    data: *mut c_void,
    data_size: usize,
    value_size: Option<&mut MaybeUninit<usize>>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, buffer) = unsafe {
        (
            bytes(key, key_size),
            buffer(data, data_size, value_size, found),
        )
    };
    call(error, || {
        let buffer = buffer?;
        let value = given(transaction, "transaction")?
            .running()?
            .get(&given(keyspace, "keyspace")?.0, key?)?;
        buffer.fill(value.as_deref());
        Ok(())
    })
}

/// Gets the values of several keys as the transaction sees them, its own writes included: see
/// alluvium_keyspace_multi_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_multi_get(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    keys: *const alluvium_slice,
    count: usize,
    values: *mut *mut alluvium_value,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (keys, values) = unsafe { (slices(keys, count), array_out(values, count)) };
    call(error, || {
        let values = Values::new(values?);
        values.set(
            given(transaction, "transaction")?
                .running()?
                .multi_get(&given(keyspace, "keyspace")?.0, &keys?)?,
        );
        Ok(())
    })
}

/// Like alluvium_transaction_get, with an exclusive lock on the row, even if the row does not
/// exist. ALLUVIUM_CODE_DEADLOCK or ALLUVIUM_CODE_LOCK_TIMEOUT from the lock.
/// ALLUVIUM_CODE_CONFLICT if the row changed since the transaction began, unless the isolation is
/// read committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_get_for_update(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        let slot = slot(value)?;
        let keyspace = &given(keyspace, "keyspace")?.0;
        let found = given(transaction, "transaction")?
            .running()?
            .get_for_update(keyspace, key?)?;
        slot.set_option(found.map(alluvium_value));
        Ok(())
    })
}

/// Locks a row without reading it, even if the row does not exist. `mode` is an alluvium_lock_mode.
/// Errors as for alluvium_transaction_get_for_update.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_lock(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    mode: u32,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        given(transaction, "transaction")?
            .running()?
            .lock(keyspace, key?, lock_mode(mode)?)
    })
}

/// Writes a value under a key, even if the key exists, and locks the row. Errors as for
/// alluvium_transaction_get_for_update; ALLUVIUM_CODE_TRANSACTION_TOO_LARGE above
/// transaction_bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_put(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || {
        given(transaction, "transaction")?.running()?.put(
            &given(keyspace, "keyspace")?.0,
            key?,
            value?,
        )
    })
}

/// Like alluvium_transaction_put; the row expires at `until_ms` (milliseconds since 1970).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_put_until(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    until_ms: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || {
        given(transaction, "transaction")?.running()?.put_until(
            &given(keyspace, "keyspace")?.0,
            key?,
            value?,
            until_ms,
        )
    })
}

/// Writes a key that the caller knows to be absent, and locks the row: see
/// alluvium_keyspace_insert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_insert(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || {
        given(transaction, "transaction")?.running()?.insert(
            &given(keyspace, "keyspace")?.0,
            key?,
            value?,
        )
    })
}

/// Removes a key, even if it does not exist, and locks the row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_delete(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        given(transaction, "transaction")?
            .running()?
            .delete(&given(keyspace, "keyspace")?.0, key?)
    })
}

/// Removes every key from `start` (inclusive) to `end` (exclusive) when the transaction commits,
/// without locks or conflict checks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_delete_range(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    start: *const c_void,
    start_size: usize,
    end: *const c_void,
    end_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (start, end) = unsafe { (bytes(start, start_size), bytes(end, end_size)) };
    call(error, || {
        given(transaction, "transaction")?.running()?.delete_range(
            &given(keyspace, "keyspace")?.0,
            start?,
            end?,
        )
    })
}

/// Removes every key that begins with `prefix` when the transaction commits: see
/// alluvium_transaction_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_delete_prefix(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    prefix: *const c_void,
    prefix_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let prefix = unsafe { bytes(prefix, prefix_size) };
    call(error, || {
        given(transaction, "transaction")?
            .running()?
            .delete_prefix(&given(keyspace, "keyspace")?.0, prefix?)
    })
}

/// Writes a value without a row lock or conflict check. Use it only if the caller already
/// serializes these changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_put_untracked(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        given(transaction, "transaction")?
            .running()?
            .put_untracked(keyspace, key?, value?)
    })
}

/// Like alluvium_transaction_insert, without a row lock or conflict check: see
/// alluvium_transaction_put_untracked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_insert_untracked(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        given(transaction, "transaction")?
            .running()?
            .insert_untracked(keyspace, key?, value?)
    })
}

/// Like alluvium_transaction_delete, without a row lock or conflict check: see
/// alluvium_transaction_put_untracked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_delete_untracked(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        given(transaction, "transaction")?
            .running()?
            .delete_untracked(keyspace, key?)
    })
}
