//! List of the waits for row locks under way.

use std::mem::MaybeUninit;

use crate::borrow::{given, invalid};
use crate::call::{call, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::lock_wait::{Wait, alluvium_lock_wait};
use crate::sized;

/// Waits for row locks under way at the time of the call, oldest first.
pub struct alluvium_lock_wait_list(Vec<Wait>);

/// Gets the waits for row locks under way, as a list to be freed. The waits are read one after
/// another, so two of them may be from different moments.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_waits(
    database: Option<&alluvium_database>,
    list: Option<&mut MaybeUninit<*mut alluvium_lock_wait_list>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, list, || {
        let waits = given(database, "database")?.0.lock_waits()?;
        let waits = waits.into_iter().map(Wait::new);
        Ok(alluvium_lock_wait_list(waits.collect()))
    })
}

/// Returns the number of waits in the list; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_wait_list_count(list: Option<&alluvium_lock_wait_list>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// Fills `wait` (its struct_size must be set) with the wait at this index, counted from 0. It
/// points into the list. ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_lock_wait_list_item(
    list: Option<&alluvium_lock_wait_list>,
    index: usize,
    wait: *mut alluvium_lock_wait,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(list, "list")?.0.get(index);
        let found = found.ok_or_else(|| invalid("the list has fewer waits"))?;
        // SAFETY: the contract of the crate.
        unsafe { sized::write(wait, &found.shown()) }
    })
}

/// Frees a list.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_lock_wait_list_free(list: Option<Box<alluvium_lock_wait_list>>) {
    quietly(|| drop(list));
}
