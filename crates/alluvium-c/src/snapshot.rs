//! Snapshots: reads of all keyspaces as of one commit.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::Snapshot;

use crate::borrow::{array_out, buffer, bytes, given, slices, slot};
use crate::call::{call, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::{Values, alluvium_keyspace};
use crate::value::{alluvium_slice, alluvium_value};

/// A fixed read point. Keeps the database open, and the versions that it may still read.
pub struct alluvium_snapshot(pub(crate) Snapshot);

/// Opens a snapshot of the newest commit that is visible now.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_open(
    database: Option<&alluvium_database>,
    snapshot: Option<&mut MaybeUninit<*mut alluvium_snapshot>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let slot = slot(snapshot)?;
        let snapshot = given(database, "database")?.0.snapshot()?;
        slot.set(alluvium_snapshot(snapshot));
        Ok(())
    })
}

/// Returns another handle of the same snapshot, to be freed too; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_clone(
    snapshot: Option<&alluvium_snapshot>,
) -> Option<Box<alluvium_snapshot>> {
    snapshot.map(|snapshot| Box::new(alluvium_snapshot(snapshot.0.clone())))
}

/// Returns the number of the commit that the snapshot shows; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_seqno(snapshot: Option<&alluvium_snapshot>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.0.seqno())
}

/// Frees a snapshot. Its cursors stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_free(snapshot: Option<Box<alluvium_snapshot>>) {
    quietly(|| drop(snapshot));
}

/// Gets the value of a key as of the snapshot, to be freed; NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_snapshot_get(
    snapshot: Option<&alluvium_snapshot>,
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
        let found = given(snapshot, "snapshot")?
            .0
            .get(&given(keyspace, "keyspace")?.0, key?)?;
        slot.set_option(found.map(alluvium_value));
        Ok(())
    })
}

/// Copies the value of a key as of the snapshot into a buffer: see alluvium_keyspace_get_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_snapshot_get_into(
    snapshot: Option<&alluvium_snapshot>,
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
        let value = given(snapshot, "snapshot")?
            .0
            .get(&given(keyspace, "keyspace")?.0, key?)?;
        buffer.fill(value.as_deref());
        Ok(())
    })
}

/// Gets the values of several keys as of the snapshot: see alluvium_keyspace_multi_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_snapshot_multi_get(
    snapshot: Option<&alluvium_snapshot>,
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
            given(snapshot, "snapshot")?
                .0
                .multi_get(&given(keyspace, "keyspace")?.0, &keys?)?,
        );
        Ok(())
    })
}
