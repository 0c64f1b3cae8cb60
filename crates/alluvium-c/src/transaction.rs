//! Transactions: begin and end, row locks, savepoints, and tokens that end lock waits.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::{Durability, LockCancel, Result, Savepoint, Transaction};

use crate::borrow::{bytes, given, invalid};
use crate::call::{answer, call, find, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::options::{self, alluvium_durability, alluvium_transaction_options, lock_mode};
use crate::prepared::alluvium_prepared;
use crate::sized;
use crate::value::alluvium_value;

/// Reads and writes (alluvium_transaction_reader, alluvium_transaction_writer) that become visible
/// together. For one thread at a time; freeing it rolls back
/// everything not committed. After its end, by a commit, a rollback or a prepare, it can only be
/// freed.
pub struct alluvium_transaction {
    /// `None` after the end of the transaction.
    running: Option<Transaction>,
    /// Savepoints that can be rolled back to, each with its number, in ascending order.
    savepoints: Vec<(u64, Savepoint)>,
    next_savepoint: u64,
}

impl alluvium_transaction {
    /// Returns the transaction; an error if it has ended.
    pub(crate) fn running(&self) -> Result<&Transaction> {
        self.running.as_ref().ok_or_else(|| invalid(ENDED))
    }

    fn end(&mut self) -> Result<Transaction> {
        self.savepoints.clear();
        self.running.take().ok_or_else(|| invalid(ENDED))
    }

    fn place_of(&self, savepoint: u64) -> Option<usize> {
        self.savepoints
            .iter()
            .position(|(number, _)| *number == savepoint)
    }
}

const ENDED: &str = "the transaction has ended";

/// Begins a transaction. `options` may be NULL: snapshot isolation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_begin(
    database: Option<&alluvium_database>,
    options: *const alluvium_transaction_options,
    transaction: Option<&mut MaybeUninit<*mut alluvium_transaction>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate, for the struct and for everything it points to.
    let options = unsafe { sized::read(options).and_then(|options| options.to_engine()) };
    make(error, transaction, || {
        let transaction = given(database, "database")?.0.begin_with(options?)?;
        Ok(alluvium_transaction {
            running: Some(transaction),
            savepoints: Vec::new(),
            next_savepoint: 0,
        })
    })
}

/// Gets a value like alluvium_get with alluvium_transaction_reader, with an exclusive lock on the
/// row, even if the row does not exist. ALLUVIUM_CODE_DEADLOCK or ALLUVIUM_CODE_LOCK_TIMEOUT from
/// the lock. ALLUVIUM_CODE_CONFLICT if the row changed since the transaction began, unless the
/// isolation is read committed.
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
    find(error, value, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        let found = given(transaction, "transaction")?
            .running()?
            .get_for_update(keyspace, key?)?;
        Ok(found.map(alluvium_value))
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

/// Commits the transaction and ends it; after an error it has ended by a rollback. It must still be
/// freed. ALLUVIUM_CODE_CONFLICT for a serializable or optimistic transaction: run it again. An
/// optimistic transaction may get this code even if it wrote nothing and only read rows for update.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_commit(
    transaction: Option<&mut alluvium_transaction>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(transaction, "transaction")?.end()?.commit())
}

/// Rolls back all writes of the transaction. Freeing the transaction does the same.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_rollback(
    transaction: Option<&mut alluvium_transaction>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        given(transaction, "transaction")?.end()?.rollback();
        Ok(())
    })
}

/// Prepares the transaction under an id of at most ALLUVIUM_XID_BYTES_MAX bytes. Its writes are
/// durable when this returns and visible after alluvium_prepared_commit. Ends the transaction;
/// after an error it has ended by a rollback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_prepare(
    transaction: Option<&mut alluvium_transaction>,
    xid: *const c_void,
    xid_size: usize,
    prepared: Option<&mut MaybeUninit<*mut alluvium_prepared>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    let sync = alluvium_durability::Sync as u32;
    // SAFETY: the contract of the crate.
    unsafe { alluvium_transaction_prepare_with(transaction, xid, xid_size, sync, prepared, error) }
}

/// Prepares the transaction like alluvium_transaction_prepare, with a durability of the prepare: an
/// alluvium_durability, 0 as ALLUVIUM_DURABILITY_SYNC. A power loss may remove a prepare that is
/// buffered: its coordinator must then not have promised the commit.
/// ALLUVIUM_CODE_INVALID_ARGUMENT for ALLUVIUM_DURABILITY_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_transaction_prepare_with(
    transaction: Option<&mut alluvium_transaction>,
    xid: *const c_void,
    xid_size: usize,
    durability: u32,
    prepared: Option<&mut MaybeUninit<*mut alluvium_prepared>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let xid = unsafe { bytes(xid, xid_size) };
    // Before the other arguments are checked: after an error the transaction has ended too.
    let ended = given(transaction, "transaction").and_then(alluvium_transaction::end);
    make(error, prepared, || {
        let durability = options::durability(durability)?.unwrap_or(Durability::Sync);
        let prepared = ended?.prepare_with(xid?, durability)?;
        Ok(alluvium_prepared::new(prepared))
    })
}

/// Sets a savepoint for alluvium_transaction_rollback_to. Its number is larger than those of
/// earlier savepoints of the transaction.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_savepoint(
    transaction: Option<&mut alluvium_transaction>,
    savepoint: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, savepoint, || {
        let transaction = given(transaction, "transaction")?;
        let made = transaction.running()?.savepoint();
        let number = transaction.next_savepoint;
        transaction.savepoints.push((number, made));
        transaction.next_savepoint += 1;
        Ok(number)
    })
}

/// Rolls back everything since the savepoint: writes, locks, later savepoints. The savepoint itself
/// stays.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_rollback_to(
    transaction: Option<&mut alluvium_transaction>,
    savepoint: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let transaction = given(transaction, "transaction")?;
        let running = transaction.running()?;
        let place = transaction.place_of(savepoint);
        let place = place.ok_or_else(|| invalid("the savepoint was released or rolled back"))?;
        running.rollback_to(transaction.savepoints[place].1)?;
        transaction.savepoints.truncate(place + 1);
        Ok(())
    })
}

/// Releases a savepoint and all later ones; their changes stay. Succeeds also for a savepoint that
/// was already released.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_release(
    transaction: Option<&mut alluvium_transaction>,
    savepoint: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let transaction = given(transaction, "transaction")?;
        let running = transaction.running()?;
        if let Some(place) = transaction.place_of(savepoint) {
            running.release(transaction.savepoints[place].1);
            transaction.savepoints.truncate(place);
        }
        Ok(())
    })
}

/// Frees a transaction, which rolls it back unless it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_free(transaction: Option<Box<alluvium_transaction>>) {
    quietly(|| drop(transaction));
}

/// Token with which any thread can end the lock waits of transactions that were begun with it (see
/// alluvium_transaction_options). Cancellation is permanent.
pub struct alluvium_lock_cancel(pub(crate) LockCancel);

/// Returns a token that is not canceled. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_cancel_new() -> Box<alluvium_lock_cancel> {
    Box::new(alluvium_lock_cancel(LockCancel::new()))
}

/// Cancels the token: lock waits with it, present and later, fail with ALLUVIUM_CODE_CANCELED.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_cancel_cancel(cancel: Option<&alluvium_lock_cancel>) {
    quietly(|| {
        if let Some(cancel) = cancel {
            cancel.0.cancel();
        }
    });
}

/// Returns true if the token was canceled; false for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_cancel_is_canceled(cancel: Option<&alluvium_lock_cancel>) -> bool {
    cancel.is_some_and(|cancel| cancel.0.is_canceled())
}

/// Frees a token. Transactions that use it keep their own reference.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_cancel_free(cancel: Option<Box<alluvium_lock_cancel>>) {
    quietly(|| drop(cancel));
}
