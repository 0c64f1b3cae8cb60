//! Prepared transactions: the second phase of a two-phase commit.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::{Error, PreparedTransaction, Result};

use crate::borrow::{bytes, given, invalid, lend};
use crate::call::{call, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::value::alluvium_list;

/// A prepared transaction that waits for a decision. For one thread at a time. Freeing it decides
/// nothing: the transaction stays prepared, also over a restart.
pub struct alluvium_prepared(Option<PreparedTransaction>);

impl alluvium_prepared {
    pub(crate) fn new(prepared: PreparedTransaction) -> alluvium_prepared {
        alluvium_prepared(Some(prepared))
    }

    fn take(&mut self) -> Result<PreparedTransaction> {
        self.0.take().ok_or_else(used)
    }
}

fn used() -> Error {
    invalid("the handle was used for a decision: alluvium_prepared_take gives another")
}

/// Gets the ids of all prepared transactions without a decision, sorted, as a list to be freed.
/// Transactions with an open handle are included.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_list(
    database: Option<&alluvium_database>,
    xids: Option<&mut MaybeUninit<*mut alluvium_list>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, xids, || {
        Ok(alluvium_list(given(database, "database")?.0.prepared()?))
    })
}

/// Opens the handle of a prepared transaction: after a restart, or after an earlier handle was
/// freed or its decision failed. ALLUVIUM_CODE_INVALID_ARGUMENT if no transaction has this id, or
/// if another handle of it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_prepared_take(
    database: Option<&alluvium_database>,
    xid: *const c_void,
    xid_size: usize,
    prepared: Option<&mut MaybeUninit<*mut alluvium_prepared>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let xid = unsafe { bytes(xid, xid_size) };
    make(error, prepared, || {
        let taken = given(database, "database")?.0.take_prepared(xid?)?;
        Ok(alluvium_prepared::new(taken))
    })
}

/// Returns the id, valid until the decision or until the handle is freed; NULL after the decision.
/// `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_xid(
    prepared: Option<&alluvium_prepared>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    let prepared = prepared.and_then(|prepared| prepared.0.as_ref());
    lend(prepared.map(PreparedTransaction::xid), size)
}

/// Commits: the transaction's writes become visible together. After an error the transaction stays
/// prepared, and alluvium_prepared_take gives a handle for another attempt. After every result this
/// handle can only be freed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_commit(
    prepared: Option<&mut alluvium_prepared>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(prepared, "prepared")?.take()?.commit())
}

/// Commits in the order of a coordinator's log: of two calls, the commit of the earlier one has the
/// lower number. Waits for no sync of another client. The commit is buffered, and the coordinator's
/// log, durable before this call, decides after a power loss. Call alluvium_prepared_commit
/// afterwards, outside of the coordinator's lock: it waits until the commit is visible, which it
/// mostly is at once, and for the admission delay. After an error the transaction stays prepared,
/// and a coordinator that has promised the commit cannot go on.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_commit_ordered(
    prepared: Option<&mut alluvium_prepared>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let prepared = given(prepared, "prepared")?.0.as_mut();
        prepared.ok_or_else(used)?.commit_ordered()
    })
}

/// Rolls back the transaction's writes. Otherwise like alluvium_prepared_commit.
/// ALLUVIUM_CODE_INVALID_ARGUMENT after alluvium_prepared_commit_ordered.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_rollback(
    prepared: Option<&mut alluvium_prepared>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(prepared, "prepared")?.take()?.rollback())
}

/// Frees a handle. Without a decision the transaction stays prepared. After
/// alluvium_prepared_commit_ordered alone it may wait for the sync of an earlier commit.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_prepared_free(prepared: Option<Box<alluvium_prepared>>) {
    quietly(|| drop(prepared));
}
