//! Controls of a transaction for each of its statements, as a SQL server sets them: the read point,
//! the limits of lock waits, and locks on the newest version of a row.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::borrow::{bytes, given};
use crate::call::{answer, call, find};
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::options::{lock_mode, lock_timeout};
use crate::snapshot::alluvium_snapshot;
use crate::transaction::{alluvium_lock_cancel, alluvium_transaction};
use crate::value::alluvium_value;

/// Makes plain reads and cursors of the next statement see the commit of a snapshot and the
/// transaction's own writes, instead of the newest commit at each read; NULL ends this. Reads that
/// lock their row still see the newest commit. The transaction keeps its own reference to the
/// snapshot. Only at read committed; ALLUVIUM_CODE_INVALID_ARGUMENT otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_set_read_point(
    transaction: Option<&alluvium_transaction>,
    snapshot: Option<&alluvium_snapshot>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let transaction = given(transaction, "transaction")?.running()?;
        transaction.set_read_point(snapshot.map(|snapshot| &snapshot.0))
    })
}

/// Gets the number of the commit that plain reads of the transaction see; `seqno` gets 0 if they
/// see the newest commit, or if the transaction takes its read point at a later call. Takes no read
/// point.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_read_point(
    transaction: Option<&alluvium_transaction>,
    seqno: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, seqno, || {
        let transaction = given(transaction, "transaction")?.running()?;
        Ok(transaction.read_point()?.unwrap_or(0))
    })
}

/// Sets the maximum of later waits for a row lock, in milliseconds, or ALLUVIUM_NO_WAIT. 0: the
/// database's lock_timeout_ms.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_set_lock_timeout(
    transaction: Option<&alluvium_transaction>,
    lock_timeout_ms: i64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let transaction = given(transaction, "transaction")?.running()?;
        transaction.set_lock_timeout(lock_timeout(lock_timeout_ms))
    })
}

/// Sets the token that ends later lock waits from another thread; NULL: none. A canceled token
/// stays canceled, so give each statement a new one. The transaction keeps its own reference.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_set_cancel(
    transaction: Option<&alluvium_transaction>,
    cancel: Option<&alluvium_lock_cancel>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let transaction = given(transaction, "transaction")?.running()?;
        transaction.set_cancel(cancel.map(|cancel| cancel.0.clone()))
    })
}

/// Locks a row and gets its newest version, own writes included, even if the row does not exist.
/// `mode` is an alluvium_lock_mode. The row is not checked against the read point: no
/// ALLUVIUM_CODE_CONFLICT, now or in later calls that lock or write it. `value` gets NULL if the
/// row does not exist. Not for optimistic transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_get_newest_locked(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    mode: u32,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    find(error, value, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        let transaction = given(transaction, "transaction")?.running()?;
        let found = transaction.get_newest_locked(keyspace, key?, lock_mode(mode)?)?;
        Ok(found.map(alluvium_value))
    })
}

/// Inserts a row unless it exists: locks it, and `existing` gets the value of its newest version,
/// or NULL if the row was inserted. ALLUVIUM_CODE_CONFLICT if the row does not exist and another
/// transaction has changed it since the read point. An optimistic transaction locks nothing and
/// looks at its read point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_insert_new(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    existing: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    find(error, existing, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        let transaction = given(transaction, "transaction")?.running()?;
        let found = transaction.insert_new(keyspace, key?, value?)?;
        Ok(found.map(alluvium_value))
    })
}

/// Releases the newest lock on a row that the transaction has read and does not want. `released`
/// gets false if the transaction has written the row, or if the lock is older than its newest
/// savepoint. A row that was locked several times stays locked until each lock is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_unlock(
    transaction: Option<&alluvium_transaction>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    released: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    answer(error, released, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        let transaction = given(transaction, "transaction")?.running()?;
        transaction.unlock(keyspace, key?)
    })
}
