//! Batches: writes to any keyspaces that become visible and durable together.

use std::mem::MaybeUninit;

use alluvium::WriteBatch;

use crate::borrow::given;
use crate::call::{call, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::alluvium_write_options;
use crate::sized;

/// Writes for alluvium_write, collected by alluvium_batch_writer. For one thread at a time.
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
