//! Writes that are commits of their own: of one key or range of a keyspace, and of a whole batch.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::batch::alluvium_batch;
use crate::borrow::{bytes, given};
use crate::call::call;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::options::alluvium_write_options;
use crate::sized;

/// Writes a value under a key, even if the key exists. As for all alluvium_keyspace_... writes,
/// each call is a commit of its own, with the errors of alluvium_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_put(
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, value) = unsafe { (bytes(key, key_size), bytes(value, value_size)) };
    call(error, || given(keyspace, "keyspace")?.0.put(key?, value?))
}

/// Like alluvium_keyspace_put; the row expires at `until_ms` (milliseconds since 1970).
/// ALLUVIUM_CODE_INVALID_ARGUMENT in a keyspace without expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_put_until(
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
        given(keyspace, "keyspace")?
            .0
            .put_until(key?, value?, until_ms)
    })
}

/// Writes a key that the caller knows to be absent. Its later delete then cancels the write: both
/// vanish when a compaction meets them. If the key might exist, use alluvium_keyspace_put:
/// otherwise its older value can come back after that delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_insert(
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
        given(keyspace, "keyspace")?.0.insert(key?, value?)
    })
}

/// Removes a key, even if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_delete(
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || given(keyspace, "keyspace")?.0.delete(key?))
}

/// Removes every key from `start` (inclusive) to `end` (exclusive), at the cost of one write. It
/// does not wait for rows locked by transactions. ALLUVIUM_CODE_INVALID_ARGUMENT for an empty
/// range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_delete_range(
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
        given(keyspace, "keyspace")?.0.delete_range(start?, end?)
    })
}

/// Removes every key that begins with `prefix`; the empty prefix removes everything. See
/// alluvium_keyspace_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_delete_prefix(
    keyspace: Option<&alluvium_keyspace>,
    prefix: *const c_void,
    prefix_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let prefix = unsafe { bytes(prefix, prefix_size) };
    call(error, || {
        given(keyspace, "keyspace")?.0.delete_prefix(prefix?)
    })
}

/// Applies a batch atomically to all its keyspaces; the batch stays unchanged. `options` may be
/// NULL. ALLUVIUM_CODE_DEADLOCK and ALLUVIUM_CODE_LOCK_TIMEOUT if transactions hold locks on its
/// rows: nothing was written, retry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_write(
    database: Option<&alluvium_database>,
    batch: Option<&alluvium_batch>,
    options: *const alluvium_write_options,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    call(error, || {
        let database = &given(database, "database")?.0;
        let batch = &given(batch, "batch")?.0;
        database.write_with(batch, &options?.to_engine()?)
    })
}
