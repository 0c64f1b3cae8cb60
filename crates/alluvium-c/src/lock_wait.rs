//! A wait for a row lock, as a listener receives it.

use std::ffi::c_void;
use std::sync::Arc;

use alluvium::{LockOwner, LockWaitInfo, LockWaitListener};

use crate::callback::Context;
use crate::sized::SizedStruct;
use crate::value::alluvium_slice;

/// Transaction or batch that has a row lock or waits for one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_lock_owner {
    /// Number that no other transaction or batch has while the database is open.
    pub id: u64,
    /// Tag from alluvium_transaction_options. 0 for batches, for transactions without a tag, and
    /// for prepared ones whose first handle was freed.
    pub tag: u64,
}

/// A wait for a row lock, valid until the listener returns or the list is freed, like everything it
/// points to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_lock_wait {
    /// In a listener the size of this struct in the library. It is smaller if the library is older
    /// than the header: then the fields after that size do not exist. For a list
    /// sizeof(alluvium_lock_wait), set by the caller.
    pub struct_size: usize,
    /// Transaction or batch that waits.
    pub waiter: alluvium_lock_owner,
    /// Owners of the lock, then the requests that get it earlier and exclude this one.
    pub owners: *const alluvium_lock_owner,
    /// Number of owners.
    pub owner_count: usize,
    /// Name of the row's keyspace.
    pub keyspace: alluvium_slice,
    /// Key of the row.
    pub key: alluvium_slice,
    /// Time waited so far, in microseconds.
    pub waited_us: u64,
}

// SAFETY: repr(C), the size is the first field, and all others are integers and pointers; the
// assertion below finds padding.
unsafe impl SizedStruct for alluvium_lock_wait {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_lock_wait>() == 8 + 2 * 8 + 2 * 8 + 4 * 8 + 8);

/// Function of the caller that receives waits.
pub(crate) type LockWaitFn =
    unsafe extern "C" fn(context: *mut c_void, wait: *const alluvium_lock_wait);

/// A wait with the owners that the C struct points to.
pub(crate) struct Wait {
    info: LockWaitInfo,
    owners: Vec<alluvium_lock_owner>,
}

fn owner(owner: &LockOwner) -> alluvium_lock_owner {
    alluvium_lock_owner {
        id: owner.id,
        tag: owner.tag.unwrap_or(0),
    }
}

impl Wait {
    pub(crate) fn new(info: LockWaitInfo) -> Wait {
        let owners = info.owners.iter().map(owner).collect();
        Wait { info, owners }
    }

    /// Returns the struct for the caller; it points into `self`.
    pub(crate) fn shown(&self) -> alluvium_lock_wait {
        let waited_us = self.info.waited.as_micros();
        alluvium_lock_wait {
            struct_size: size_of::<alluvium_lock_wait>(),
            waiter: owner(&self.info.waiter),
            owners: self.owners.as_ptr(),
            owner_count: self.owners.len(),
            keyspace: alluvium_slice::lent(self.info.keyspace.as_bytes()),
            key: alluvium_slice::lent(&self.info.key),
            waited_us: u64::try_from(waited_us).unwrap_or(u64::MAX),
        }
    }
}

/// The caller's listener, as the engine calls it.
struct Listener {
    listener: LockWaitFn,
    context: Context,
}

impl LockWaitListener for Listener {
    fn on_lock_wait(&self, wait: &LockWaitInfo) {
        let wait = Wait::new(wait.clone());
        let shown = wait.shown();
        // SAFETY: the contract: the function accepts this context. The wait and everything it
        // points to live as long as the call.
        unsafe { (self.listener)(self.context.pointer(), &raw const shown) };
    }
}

/// Returns the engine's listener for the caller's, if there is one.
pub(crate) fn lock_wait_listener(
    listener: Option<LockWaitFn>,
    context: *mut c_void,
) -> Option<Arc<dyn LockWaitListener>> {
    let context = Context(context);
    let with = |listener| Arc::new(Listener { listener, context }) as Arc<dyn LockWaitListener>;
    listener.map(with)
}
