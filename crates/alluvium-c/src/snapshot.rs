//! Snapshots: reads of all keyspaces as of one commit.

use std::mem::MaybeUninit;

use alluvium::Snapshot;

use crate::borrow::given;
use crate::call::{make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};

/// A fixed read point, read with alluvium_snapshot_reader. Keeps the database open, and the
/// versions that it may still read.
pub struct alluvium_snapshot(pub(crate) Snapshot);

/// Opens a snapshot of the newest commit that is visible now.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_snapshot_open(
    database: Option<&alluvium_database>,
    snapshot: Option<&mut MaybeUninit<*mut alluvium_snapshot>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, snapshot, || {
        let snapshot = given(database, "database")?.0.snapshot()?;
        Ok(alluvium_snapshot(snapshot))
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
