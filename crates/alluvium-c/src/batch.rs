//! Batches: writes to any keyspaces that become visible and durable together.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::WriteBatch;

use crate::borrow::{bytes, given};
use crate::call::{call, quietly};
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;

/// Writes collected for alluvium_write. For one thread at a time.
pub struct alluvium_batch(pub(crate) WriteBatch);

/// Returns an empty batch. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_new() -> Box<alluvium_batch> {
    Box::new(alluvium_batch(WriteBatch::new()))
}

/// Empties a batch for reuse. The batch keeps its memory.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_clear(batch: Option<&mut alluvium_batch>) {
    quietly(|| {
        if let Some(batch) = batch {
            batch.0.clear();
        }
    });
}

/// Returns the number of keys written by the batch, without range deletes; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_count(batch: Option<&alluvium_batch>) -> usize {
    batch.map_or(0, |batch| batch.0.len())
}

/// Returns true if the batch writes nothing at all, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_is_empty(batch: Option<&alluvium_batch>) -> bool {
    batch.is_none_or(|batch| batch.0.is_empty())
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_batch_free(batch: Option<Box<alluvium_batch>>) {
    quietly(|| drop(batch));
}

/// Adds a write of a value under a key, even if the key exists. A later write of the key in the
/// batch replaces it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_put(
    batch: Option<&mut alluvium_batch>,
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
        given(batch, "batch")?
            .0
            .put(&given(keyspace, "keyspace")?.0, key?, value?)
    })
}

/// Like alluvium_batch_put; the row expires at `until_ms` (milliseconds since 1970).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_put_until(
    batch: Option<&mut alluvium_batch>,
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
        given(batch, "batch")?
            .0
            .put_until(&given(keyspace, "keyspace")?.0, key?, value?, until_ms)
    })
}

/// Adds a write of a key that the caller knows to be absent: see alluvium_keyspace_insert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_insert(
    batch: Option<&mut alluvium_batch>,
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
        given(batch, "batch")?
            .0
            .insert(&given(keyspace, "keyspace")?.0, key?, value?)
    })
}

/// Adds the removal of a key, even if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_delete(
    batch: Option<&mut alluvium_batch>,
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        given(batch, "batch")?
            .0
            .delete(&given(keyspace, "keyspace")?.0, key?)
    })
}

/// Adds the removal of every key from `start` (inclusive) to `end` (exclusive) that earlier commits
/// wrote.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_delete_range(
    batch: Option<&mut alluvium_batch>,
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
        given(batch, "batch")?
            .0
            .delete_range(&given(keyspace, "keyspace")?.0, start?, end?)
    })
}

/// Adds the removal of every key that begins with `prefix` and was written by an earlier commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_batch_delete_prefix(
    batch: Option<&mut alluvium_batch>,
    keyspace: Option<&alluvium_keyspace>,
    prefix: *const c_void,
    prefix_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let prefix = unsafe { bytes(prefix, prefix_size) };
    call(error, || {
        given(batch, "batch")?
            .0
            .delete_prefix(&given(keyspace, "keyspace")?.0, prefix?)
    })
}
