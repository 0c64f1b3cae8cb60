//! The caller's functions that the engine calls: the clock and compaction filters. Listeners are in
//! `listener` and `lock_wait`.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::{Clock, CompactionFilter, FilterDecision, SeqNo};

use crate::borrow::{bytes, given, lend};
use crate::call::call;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::alluvium_keyspace;
use crate::sized::{self, SizedStruct};
use std::mem::MaybeUninit;

/// Pointer that is passed back to the caller's functions.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub *mut c_void);

// SAFETY: the pointer is only passed back to the caller's functions. By the contract they may be
// called on any thread, by several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the pointer. A method, so that closures capture the whole `Context` and not the
    /// pointer in it.
    pub fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// A context with the caller's function that frees it. The function is called only after
/// [`OwnedContext::own`].
pub(crate) struct OwnedContext {
    context: Context,
    free: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// True if the context is to be freed. The call that takes the context over stores this before
    /// it drops its own reference. It is read after the last reference is dropped, so the reference
    /// count orders the two.
    owned: AtomicBool,
}

impl OwnedContext {
    /// Returns a context that still belongs to the caller: if the call fails, the context is not
    /// freed.
    pub fn new(
        context: *mut c_void,
        free: Option<unsafe extern "C" fn(context: *mut c_void)>,
    ) -> OwnedContext {
        OwnedContext {
            context: Context(context),
            free,
            owned: AtomicBool::new(false),
        }
    }

    pub fn pointer(&self) -> *mut c_void {
        self.context.pointer()
    }

    /// Takes ownership: the context is freed when this is dropped.
    pub fn own(&self) {
        self.owned.store(true, Ordering::Relaxed);
    }
}

impl Drop for OwnedContext {
    fn drop(&mut self) {
        if let (true, Some(free)) = (self.owned.load(Ordering::Relaxed), self.free) {
            // SAFETY: the contract: the function accepts this context, and it is called only here,
            // once.
            unsafe { free(self.context.pointer()) };
        }
    }
}

/// Returns the caller's clock, or the system's clock if `now_ms` is `None`.
pub(crate) fn clock(
    now_ms: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    context: *mut c_void,
) -> Clock {
    let Some(now_ms) = now_ms else {
        return Clock::system();
    };
    let context = Context(context);
    Clock::custom(move || {
        // SAFETY: the contract: the function accepts this context until all handles of the database
        // are freed, and the engine does not call it after that.
        unsafe { now_ms(context.pointer()) }
    })
}

/// Decision of a compaction filter about a row.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_decision {
    /// Keeps the row. Unknown numbers have the same meaning.
    Keep = 0,
    /// Removes the row.
    Remove = 1,
    /// Gives the row the value passed to alluvium_replacement_set; keeps the row if none was
    /// passed.
    Replace = 2,
}

/// Receives the new value of a row during a call of a filter.
pub struct alluvium_replacement(Option<Vec<u8>>);

/// Sets a new value for the row: the bytes are copied. Called by a filter, which then returns
/// ALLUVIUM_DECISION_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_replacement_set(
    replacement: Option<&mut alluvium_replacement>,
    value: *const c_void,
    value_size: usize,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let value = unsafe { bytes(value, value_size) };
    call(None, || {
        given(replacement, "replacement")?.0 = Some(value?.to_vec());
        Ok(())
    })
}

/// Compaction filter: decides about rows when flushes and compactions process them. See
/// alluvium_keyspace_set_compaction_filter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_compaction_filter {
    /// sizeof(alluvium_compaction_filter).
    pub struct_size: usize,
    /// Returns an alluvium_decision about the newest version of a row. `seqno` is the commit that
    /// wrote it (0: an old commit). Called on background threads, by several at once. It must
    /// neither throw nor jump out, nor call the database.
    pub filter: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
            seqno: u64,
            replacement: *mut alluvium_replacement,
        ) -> u32,
    >,
    /// Passed to filter and free_context.
    pub context: *mut c_void,
    /// Called once on any thread when the filter is no longer used; may be NULL. Not called if
    /// setting the filter failed. It must not call the database either.
    pub free_context: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: repr(C), the size first, a pointer and nullable functions of the same size.
unsafe impl SizedStruct for alluvium_compaction_filter {}

type FilterFn = unsafe extern "C" fn(
    *mut c_void,
    *const u8,
    usize,
    *const u8,
    usize,
    u64,
    *mut alluvium_replacement,
) -> u32;

/// The caller's filter, as the engine calls it.
struct Filter {
    filter: FilterFn,
    context: OwnedContext,
}

impl CompactionFilter for Filter {
    fn filter(&self, key: &[u8], value: &[u8], seqno: SeqNo) -> FilterDecision {
        let mut replacement = alluvium_replacement(None);
        let (key_start, value_start) = (lend(Some(key), None), lend(Some(value), None));
        // SAFETY: the contract: the function accepts this context until it is freed, and it is
        // freed when this filter is dropped. The bytes and the replacement live as long as the
        // call.
        let decision = unsafe {
            (self.filter)(
                self.context.pointer(),
                key_start,
                key.len(),
                value_start,
                value.len(),
                seqno,
                &raw mut replacement,
            )
        };
        match replacement.0 {
            _ if decision == alluvium_decision::Remove as u32 => FilterDecision::Remove,
            Some(value) if decision == alluvium_decision::Replace as u32 => {
                FilterDecision::Replace(value)
            }
            _ => FilterDecision::Keep,
        }
    }
}

/// Sets a filter that decides about the rows of the keyspace, starting with the next flush or
/// compaction; NULL removes it. The filter is not stored: set it each time after opening. Rows that
/// it removes disappear from open snapshots too. A running compaction may still use an earlier
/// filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_set_compaction_filter(
    keyspace: Option<&alluvium_keyspace>,
    filter: *const alluvium_compaction_filter,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    let ends = filter.is_null();
    // SAFETY: the contract of the crate.
    let filter = unsafe { sized::read(filter) };
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        if ends {
            return keyspace.set_compaction_filter(None);
        }
        let given_filter = filter?;
        let filter = Arc::new(Filter {
            filter: given(given_filter.filter, "filter")?,
            context: OwnedContext::new(given_filter.context, given_filter.free_context),
        });
        keyspace.set_compaction_filter(Some(Arc::<Filter>::clone(&filter)))?;
        filter.context.own();
        Ok(())
    })
}
