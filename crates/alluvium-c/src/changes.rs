//! Streams of changes: every commit in order, starting at a given one. The contents of a change are
//! in `change`.

use std::mem::MaybeUninit;
use std::time::Duration;

use alluvium::{Changes, ChangesOptions, Result};

use crate::borrow::{given, invalid, slices};
use crate::call::{answer, find, make, quietly};
use crate::change::alluvium_change;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::check_reserved;
use crate::sized::{self, SizedStruct};
use crate::value::alluvium_slice;

/// Options of alluvium_changes_open. NULL or zeros: all visible changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_changes_options {
    /// sizeof(alluvium_changes_options).
    pub struct_size: usize,
    /// Names of keyspaces (UTF-8): the stream shows only operations on them and changes of them.
    /// Commits that touch none of them are skipped. NULL: all keyspaces.
    pub keyspaces: *const alluvium_slice,
    /// Number of names.
    pub keyspace_count: usize,
    /// Not 0: show only changes that survive a power loss. Otherwise a stream of a database with
    /// ALLUVIUM_DURABILITY_BUFFERED may show commits that a later power loss removes, and other
    /// commits get their numbers.
    pub durable_only: u32,
    /// Must be 0.
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

/// Changes of a database in commit order. For one thread at a time. Keeps the database open. Also
/// keeps the unread part of the log, up to the database's memory_bytes or change_log_bytes, the
/// larger of the two.
pub struct alluvium_changes(Changes);

/// Opens a stream of the changes from commit `from`: 1 is the first, alluvium_visible_seqno plus 1
/// the next new one. `options` may be NULL; the memory they point to is copied.
/// ALLUVIUM_CODE_CHANGES_LOST if the log does not reach back to `from`.
/// ALLUVIUM_CODE_INVALID_ARGUMENT for a database without a log. ALLUVIUM_CODE_INVALID_ARGUMENT also
/// for a `from` after that of the next new commit: the caller has then seen commits that a
/// power loss removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_changes_open(
    database: Option<&alluvium_database>,
    from: u64,
    options: *const alluvium_changes_options,
    changes: Option<&mut MaybeUninit<*mut alluvium_changes>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate, for the struct and for everything it points to.
    let options = unsafe { sized::read(options).and_then(|options| options.to_engine()) };
    make(error, changes, || {
        let database = &given(database, "database")?.0;
        Ok(alluvium_changes(database.changes_with(from, options?)?))
    })
}

/// Gets the next change, to be freed; NULL at the end of the visible changes (or durable changes,
/// with durable_only). More may come: call it again, or alluvium_changes_wait first.
/// ALLUVIUM_CODE_CHANGES_LOST if unread commits are no longer kept: copy the database and start a
/// stream after the copy. After an error the stream's position is unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_next(
    changes: Option<&mut alluvium_changes>,
    change: Option<&mut MaybeUninit<*mut alluvium_change>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    find(error, change, || {
        let next = given(changes, "changes")?.0.next()?;
        Ok(next.map(alluvium_change))
    })
}

/// Waits until there is more to read, without polling; timeout_ms UINT64_MAX: no limit. `more` gets
/// true if there is more, false after the timeout. The new changes may be hidden from this stream.
/// ALLUVIUM_CODE_CLOSED if another thread closes the database during the wait;
/// ALLUVIUM_CODE_POISONED if nothing more will come.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_wait(
    changes: Option<&alluvium_changes>,
    timeout_ms: u64,
    more: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, more, || {
        let timeout = match timeout_ms {
            u64::MAX => Duration::MAX,
            ms => Duration::from_millis(ms),
        };
        given(changes, "changes")?.0.wait(timeout)
    })
}

/// Returns the number from which to resume, also after a restart. Every smaller number has been
/// returned, or is hidden from this stream. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_next_seqno(changes: Option<&alluvium_changes>) -> u64 {
    changes.map_or(0, |changes| changes.0.next_seqno())
}

/// Frees a stream. Its changes stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_changes_free(changes: Option<Box<alluvium_changes>>) {
    quietly(|| drop(changes));
}
