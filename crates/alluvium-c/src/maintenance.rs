//! Maintenance of an open database: checkpoints, changed options, compaction of a range, estimates.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use crate::borrow::{bytes, given, invalid, optional_bytes, plain};
use crate::call::call;
use crate::database::{alluvium_database, path_of};
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::options::alluvium_keyspace_options;
use crate::sized::{self, SizedStruct};

/// Result of alluvium_checkpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_checkpoint_info {
    /// sizeof(alluvium_checkpoint_info), set by the caller.
    pub struct_size: usize,
    /// Newest commit in the checkpoint.
    pub seqno: u64,
    /// Files that are hard links to the database's files and use no additional space.
    pub linked_tables: u64,
    /// Number of copied files.
    pub copied_tables: u64,
    /// Bytes of the copied files.
    pub copied_bytes: u64,
}

// SAFETY: repr(C), the size first, integers only; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_checkpoint_info {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_checkpoint_info>() == 5 * 8);

/// Makes a second database at `target`, which must not exist. It contains every commit up to its
/// newest one. Its tables are hard links if the file system supports them. `info` may be NULL; its
/// struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_checkpoint(
    database: Option<&alluvium_database>,
    target: *const c_char,
    target_size: usize,
    info: *mut alluvium_checkpoint_info,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (target, info_given) = unsafe { (bytes(target, target_size), sized::check(info)) };
    call(error, || {
        // Checked first: a failure after the checkpoint was made would report an error although the
        // checkpoint exists.
        info_given?;
        let made = given(database, "database")?
            .0
            .checkpoint(path_of(target?)?)?;
        let filled = alluvium_checkpoint_info {
            struct_size: size_of::<alluvium_checkpoint_info>(),
            seqno: made.seqno,
            linked_tables: made.linked_tables,
            copied_tables: made.copied_tables,
            copied_bytes: made.copied_bytes,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write_if_given(info, &filled) }
    })
}

/// Changes the memory budget (memory_bytes) until the database is closed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_set_memory_bytes(
    database: Option<&alluvium_database>,
    memory_bytes: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let memory_bytes = usize::try_from(memory_bytes);
        let memory_bytes = memory_bytes.map_err(|_| invalid("memory_bytes is too large"))?;
        given(database, "database")?
            .0
            .set_memory_bytes(memory_bytes)
    })
}

/// Changes the options of a keyspace, durably, for everything written from now on. The change
/// cannot turn expiry on or off. To change a few options, start from alluvium_keyspace_get_options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_set_options(
    keyspace: Option<&alluvium_keyspace>,
    options: *const alluvium_keyspace_options,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    call(error, || {
        given(keyspace, "keyspace")?
            .0
            .set_options(options?.to_engine()?)
    })
}

/// Compacts everything from `start` (inclusive) to `end` (exclusive; NULL: the end of the keyspace)
/// into the last level and waits until this is done. It also rewrites last-level tables with
/// versions that only released snapshots needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_compact_range(
    keyspace: Option<&alluvium_keyspace>,
    start: *const c_void,
    start_size: usize,
    end: *const c_void,
    end_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (start, end) = unsafe { (bytes(start, start_size), optional_bytes(end, end_size)) };
    call(error, || {
        given(keyspace, "keyspace")?.0.compact_range(start?, end?)
    })
}

/// Estimates the rows and bytes from `start` (inclusive) to `end` (exclusive; NULL: the end of the
/// keyspace). Reads no block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_estimate_range(
    keyspace: Option<&alluvium_keyspace>,
    start: *const c_void,
    start_size: usize,
    end: *const c_void,
    end_size: usize,
    row_count: Option<&mut MaybeUninit<u64>>,
    byte_count: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (start, end) = unsafe { (bytes(start, start_size), optional_bytes(end, end_size)) };
    call(error, || {
        let (row_count, byte_count) = (plain(row_count)?, plain(byte_count)?);
        let estimate = given(keyspace, "keyspace")?
            .0
            .estimate_range(start?, end?)?;
        (*row_count, *byte_count) = (estimate.rows, estimate.bytes);
        Ok(())
    })
}
