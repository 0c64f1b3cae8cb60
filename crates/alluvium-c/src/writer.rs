//! Writers: one family of writes for single commits, batches, transactions and ingests.
//!
//! A writer is a plain value that borrows its owner and a keyspace, as a reader does. The owner
//! decides when a write becomes visible and durable, and which writes it can do.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use alluvium::{Keyspace, Result, Transaction, WriteBatch};

use crate::batch::alluvium_batch;
use crate::borrow::{bytes, given, invalid, owner, owner_mut};
use crate::call::call;
use crate::error::{alluvium_code, alluvium_error};
use crate::ingest::{Rows, alluvium_ingest};
use crate::keyspace::alluvium_keyspace;
use crate::transaction::alluvium_transaction;

/// Target of writes to one keyspace: commits of their own, a batch, a transaction or an ingest. See
/// the functions that return one. A plain value that borrows its handles, with the
/// rules of alluvium_reader. A write that the owner cannot do gives ALLUVIUM_CODE_INVALID_ARGUMENT
/// and has no effect.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_writer {
    /// Kind of the owner, set by the library; 0: none.
    kind: usize,
    /// The owner, unless it is the keyspace.
    owner: *mut c_void,
    /// The keyspace.
    keyspace: *const alluvium_keyspace,
}

// Kinds of owners. 0 is none of them, so a zeroed writer is refused.
const KEYSPACE: usize = 1;
const BATCH: usize = 2;
const TRANSACTION: usize = 3;
const UNTRACKED: usize = 4;
const INGEST: usize = 5;

/// Returns a writer to a keyspace. Each call is a commit of its own, visible when it returns, with
/// the durability of the database and the errors of alluvium_write.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_writer(keyspace: *const alluvium_keyspace) -> alluvium_writer {
    alluvium_writer::new(KEYSPACE, ptr::null_mut::<c_void>(), keyspace)
}

/// Returns a writer that collects writes in a batch for alluvium_write. A later write of a key in
/// the batch replaces an earlier one. Range deletes remove only rows that earlier commits wrote.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_writer(
    batch: *mut alluvium_batch,
    keyspace: *const alluvium_keyspace,
) -> alluvium_writer {
    alluvium_writer::new(BATCH, batch, keyspace)
}

/// Returns a writer of a transaction. Each call locks its row, with the errors of
/// alluvium_transaction_get_for_update; above transaction_bytes the writes move to files, or, if
/// the transaction has range deletes, is serializable or optimistic,
/// ALLUVIUM_CODE_TRANSACTION_TOO_LARGE. Range deletes remove what is there at the commit, without
/// locks or conflict checks. After the end of the transaction calls give
/// ALLUVIUM_CODE_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_writer(
    transaction: *const alluvium_transaction,
    keyspace: *const alluvium_keyspace,
) -> alluvium_writer {
    alluvium_writer::new(TRANSACTION, transaction.cast_mut(), keyspace)
}

/// Like alluvium_transaction_writer, without row locks or conflict checks: use it only if the
/// caller already serializes these changes.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_transaction_writer_untracked(
    transaction: *const alluvium_transaction,
    keyspace: *const alluvium_keyspace,
) -> alluvium_writer {
    alluvium_writer::new(UNTRACKED, transaction.cast_mut(), keyspace)
}

/// Returns a writer that adds rows to an ingest: it can only do alluvium_put and
/// alluvium_put_until. In key order: ALLUVIUM_CODE_OUT_OF_ORDER unless the key is larger than the
/// keys of all rows that the ingest has added to the keyspace. In any order:
/// ALLUVIUM_CODE_DUPLICATE_KEY if duplicates are refused, in this call or a later one. After an
/// error of the engine nothing is installed, and later calls repeat the error.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_ingest_writer(
    ingest: *mut alluvium_ingest,
    keyspace: *const alluvium_keyspace,
) -> alluvium_writer {
    alluvium_writer::new(INGEST, ingest, keyspace)
}

/// Writes a value under a key, even if the key exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_put(
    writer: alluvium_writer,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let (key, value) = (bytes(key, key_size)?, bytes(value, value_size)?);
        writer.write(Write::Put(key, value))
    })
}

/// Like alluvium_put; the row expires at `until_ms` (milliseconds since 1970).
/// ALLUVIUM_CODE_INVALID_ARGUMENT in a keyspace without expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_put_until(
    writer: alluvium_writer,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    until_ms: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let (key, value) = (bytes(key, key_size)?, bytes(value, value_size)?);
        writer.write(Write::PutUntil(key, value, until_ms))
    })
}

/// Writes a key that the caller knows to be absent. Its later delete then cancels the write: both
/// vanish when a compaction meets them. If the key might exist, use alluvium_put: otherwise its
/// older value can come back after that delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_insert(
    writer: alluvium_writer,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let (key, value) = (bytes(key, key_size)?, bytes(value, value_size)?);
        writer.write(Write::Insert(key, value))
    })
}

/// Removes a key, even if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_delete(
    writer: alluvium_writer,
    key: *const c_void,
    key_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        writer.write(Write::Delete(bytes(key, key_size)?))
    })
}

/// Removes every key from `start` (inclusive) to `end` (exclusive), at the cost of one write. It
/// does not wait for rows locked by transactions. ALLUVIUM_CODE_INVALID_ARGUMENT for an empty
/// range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_delete_range(
    writer: alluvium_writer,
    start: *const c_void,
    start_size: usize,
    end: *const c_void,
    end_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        let (start, end) = (bytes(start, start_size)?, bytes(end, end_size)?);
        writer.write(Write::DeleteRange(start, end))
    })
}

/// Removes every key that begins with `prefix`; the empty prefix removes everything. See
/// alluvium_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_delete_prefix(
    writer: alluvium_writer,
    prefix: *const c_void,
    prefix_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    call(error, || unsafe {
        writer.write(Write::DeletePrefix(bytes(prefix, prefix_size)?))
    })
}

/// A write with its arguments.
#[derive(Clone, Copy)]
enum Write<'a> {
    Put(&'a [u8], &'a [u8]),
    PutUntil(&'a [u8], &'a [u8], u64),
    Insert(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    DeleteRange(&'a [u8], &'a [u8]),
    DeletePrefix(&'a [u8]),
}

impl alluvium_writer {
    fn new<T>(kind: usize, owner: *mut T, keyspace: *const alluvium_keyspace) -> alluvium_writer {
        alluvium_writer {
            kind,
            owner: owner.cast(),
            keyspace,
        }
    }

    /// Does a write. An error if a handle is NULL, if the owner has ended, or if it cannot do this
    /// write.
    unsafe fn write(self, write: Write) -> Result<()> {
        // SAFETY: the contract: the handles are of these types, or NULL, and were not freed; no
        // other thread uses the batch or ingest during this call.
        unsafe {
            let keyspace = &given(self.keyspace.as_ref(), "keyspace")?.0;
            match self.kind {
                KEYSPACE => commit(keyspace, write),
                BATCH => {
                    let batch: &mut alluvium_batch = owner_mut(self.owner, "batch")?;
                    collect(&mut batch.0, keyspace, write)
                }
                TRANSACTION | UNTRACKED => {
                    let transaction: &alluvium_transaction = owner(self.owner, "transaction")?;
                    let transaction = transaction.running()?;
                    if self.kind == UNTRACKED {
                        write_untracked(transaction, keyspace, write)
                    } else {
                        write_in(transaction, keyspace, write)
                    }
                }
                INGEST => {
                    let ingest: &mut alluvium_ingest = owner_mut(self.owner, "ingest")?;
                    ingest_row(ingest.running()?, keyspace, write)
                }
                _ => Err(invalid("the writer was not made by alluvium_..._writer")),
            }
        }
    }
}

fn commit(keyspace: &Keyspace, write: Write) -> Result<()> {
    match write {
        Write::Put(key, value) => keyspace.put(key, value),
        Write::PutUntil(key, value, until_ms) => keyspace.put_until(key, value, until_ms),
        Write::Insert(key, value) => keyspace.insert(key, value),
        Write::Delete(key) => keyspace.delete(key),
        Write::DeleteRange(start, end) => keyspace.delete_range(start, end),
        Write::DeletePrefix(prefix) => keyspace.delete_prefix(prefix),
    }
}

fn collect(batch: &mut WriteBatch, keyspace: &Keyspace, write: Write) -> Result<()> {
    match write {
        Write::Put(key, value) => batch.put(keyspace, key, value),
        Write::PutUntil(key, value, until_ms) => batch.put_until(keyspace, key, value, until_ms),
        Write::Insert(key, value) => batch.insert(keyspace, key, value),
        Write::Delete(key) => batch.delete(keyspace, key),
        Write::DeleteRange(start, end) => batch.delete_range(keyspace, start, end),
        Write::DeletePrefix(prefix) => batch.delete_prefix(keyspace, prefix),
    }
}

fn write_in(transaction: &Transaction, keyspace: &Keyspace, write: Write) -> Result<()> {
    match write {
        Write::Put(key, value) => transaction.put(keyspace, key, value),
        Write::PutUntil(key, value, until_ms) => {
            transaction.put_until(keyspace, key, value, until_ms)
        }
        Write::Insert(key, value) => transaction.insert(keyspace, key, value),
        Write::Delete(key) => transaction.delete(keyspace, key),
        Write::DeleteRange(start, end) => transaction.delete_range(keyspace, start, end),
        Write::DeletePrefix(prefix) => transaction.delete_prefix(keyspace, prefix),
    }
}

fn write_untracked(transaction: &Transaction, keyspace: &Keyspace, write: Write) -> Result<()> {
    match write {
        Write::Put(key, value) => transaction.put_untracked(keyspace, key, value),
        Write::Insert(key, value) => transaction.insert_untracked(keyspace, key, value),
        Write::Delete(key) => transaction.delete_untracked(keyspace, key),
        Write::PutUntil(key, value, until_ms) => {
            transaction.put_until_untracked(keyspace, key, value, until_ms)
        }
        // A transaction's range deletes take no locks in any case.
        Write::DeleteRange(..) | Write::DeletePrefix(..) => write_in(transaction, keyspace, write),
    }
}

fn ingest_row(rows: &mut Rows, keyspace: &Keyspace, write: Write) -> Result<()> {
    match write {
        Write::Put(key, value) => rows.put(keyspace, key, value),
        Write::PutUntil(key, value, until_ms) => rows.put_until(keyspace, key, value, until_ms),
        _ => Err(invalid(
            "an ingest only puts rows: it cannot insert or delete",
        )),
    }
}
