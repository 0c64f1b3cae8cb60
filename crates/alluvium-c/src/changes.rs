//! Streams of changes: every commit in order, from one of them on. What a change holds is in `change`.

use std::mem::MaybeUninit;
use std::time::Duration;

use alluvium::{Changes, ChangesOptions, Result};

use crate::borrow::{given, invalid, plain, slices, slot};
use crate::call::{call, quietly};
use crate::change::alluvium_change;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::check_reserved;
use crate::sized::{self, SizedStruct};
use crate::value::alluvium_slice;

/// Options of alluvium_changes_open. NULL or zeros: all changes that are visible.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_changes_options {
    /// sizeof(alluvium_changes_options).
    pub struct_size: usize,
    /// Names of keyspaces (UTF-8): only operations on them, and changes of them. Commits without any of them are passed
    /// over. NULL: all keyspaces.
    pub keyspaces: *const alluvium_slice,
    /// How many names.
    pub keyspace_count: usize,
    /// Not 0: only what no power loss can take away. Otherwise a stream of a database with ALLUVIUM_DURABILITY_BUFFERED
    /// may show commits that are gone after a power loss, and others get their numbers.
    pub durable_only: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the size first, a pointer and integers; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_changes_options {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_changes_options>() == 3 * 8 + 2 * 4);

impl alluvium_changes_options {
    unsafe fn to_engine(self) -> Result<ChangesOptions> {
        check_reserved(self.reserved)?;
        // SAFETY: the contract, for the array and for each name in it.
        let names = unsafe { slices(self.keyspaces, self.keyspace_count) }?;
        let names = names
            .into_iter()
            .map(|name| match std::str::from_utf8(name) {
                Ok(name) => Ok(name.to_owned()),
                Err(_) => Err(invalid("a name is not UTF-8")),
            });
        Ok(ChangesOptions {
            durable_only: self.durable_only != 0,
            keyspaces: names.collect::<Result<_>>()?,
        })
    }
}

/// The changes of a database from one commit on, in commit order. For one thread at a time; keeps the database open, and
/// what it has not read of the log, up to the database's memory_bytes or change_log_bytes, whichever is more.
pub struct alluvium_changes(Changes);

/// The changes from commit `from` on: 1 for the first, one more than alluvium_visible_seqno for what comes next. `options`
/// may be NULL; what they point to is copied. ALLUVIUM_CODE_CHANGES_LOST where the log does not reach back so far.
/// ALLUVIUM_CODE_INVALID_ARGUMENT for a `from` of which nothing is known yet, since whoever has seen the commit before it
/// has seen one that a power loss took away; and for a database without a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_changes_open(
    database: Option<&alluvium_database>,
    from: u64,
    options: *const alluvium_changes_options,
    changes: Option<&mut MaybeUninit<*mut alluvium_changes>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate, for the struct and for what it points to.
    let options = unsafe { sized::read(options).and_then(|options| options.to_engine()) };
    call(error, || {
        let slot = slot(changes)?;
        let database = &given(database, "database")?.0;
        slot.set(alluvium_changes(database.changes_with(from, options?)?));
        Ok(())
    })
}

/// The next change, to be freed; NULL at the end of what is visible (or durable, where only that was asked for). More may
/// come: call it again, or alluvium_changes_wait first. ALLUVIUM_CODE_CHANGES_LOST once commits that were not read yet are
/// no longer kept: copy the database and begin behind the copy. After an error the stream stands where it stood.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_next(
    changes: Option<&mut alluvium_changes>,
    change: Option<&mut MaybeUninit<*mut alluvium_change>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let slot = slot(change)?;
        let next = given(changes, "changes")?.0.next()?;
        slot.set_option(next.map(alluvium_change));
        Ok(())
    })
}

/// Waits until there is more to read, without polling; UINT64_MAX: for ever. `more` says whether there is: not when the
/// time is over. What came may be nothing that this stream shows. ALLUVIUM_CODE_CLOSED when the database is closed
/// meanwhile, which ends a wait from another thread; ALLUVIUM_CODE_POISONED where nothing more will come.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_wait(
    changes: Option<&alluvium_changes>,
    timeout_ms: u64,
    more: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let more = plain(more)?;
        let timeout = match timeout_ms {
            u64::MAX => Duration::MAX,
            ms => Duration::from_millis(ms),
        };
        *more = given(changes, "changes")?.0.wait(timeout)?;
        Ok(())
    })
}

/// Where to resume, also after a restart: everything below this number has been returned, or is nothing that this stream
/// shows. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_next_seqno(changes: Option<&alluvium_changes>) -> u64 {
    changes.map_or(0, |changes| changes.0.next_seqno())
}

/// Frees a stream. Its changes stay good.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_free(changes: Option<Box<alluvium_changes>>) {
    quietly(|| drop(changes));
}
