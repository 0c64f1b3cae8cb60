//! Keys and their versions, as laid out in the arena.
//!
//! ```text
//! record   newest version -> | inserts until the next trim | key length | key bytes
//! version  older version ->  | seqno | value length | kind | value bytes
//! ```
//!
//! The writer fills a record or version before it stores the pointer to it (release); readers find
//! it through that pointer (acquire). Of the fields that readers load, only two change later:
//! `newest`, when the key gets another version, and `older`, set to null when no reader needs older
//! versions. A reader that has already passed an unlinked pointer continues safely, because the
//! memory stays in the arena.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU32;

use crate::arena::Arena;
use crate::sync::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
    Watched,
};

/// One version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'m> {
    /// Sequence number of the commit that wrote it.
    pub seqno: u64,
    /// Kind of the version (such as put or delete), in the caller's numbering.
    pub kind: u8,
    /// Value; empty for kinds without one.
    pub value: &'m [u8],
}

/// Minimum number of new versions of a key between two walks of its chain by a trim: a shorter
/// chain is not worth a walk.
const TRIM_INTERVAL_MIN: u32 = 8;

#[repr(C)]
pub(super) struct Record {
    newest: AtomicPtr<Version>,
    /// New versions until the next trim. Only the writer uses it; atomic because readers share the
    /// record.
    until_trim: AtomicU32,
    key_len: u32,
    published: Watched,
}

#[repr(C)]
pub(super) struct Version {
    older: AtomicPtr<Version>,
    seqno: u64,
    value_len: u32,
    kind: u8,
    published: Watched,
}

/// A published record in an arena that lives at least as long as `'m`.
#[derive(Clone, Copy)]
pub(super) struct RecordRef<'m> {
    /// Has the provenance of the whole chunk, because the key follows the record.
    ptr: NonNull<Record>,
    arena: PhantomData<&'m Record>,
}

/// A published version in an arena that lives at least as long as `'m`.
#[derive(Clone, Copy)]
pub(super) struct VersionRef<'m> {
    /// Has the provenance of the whole chunk, because the value follows the version.
    ptr: NonNull<Version>,
    arena: PhantomData<&'m Version>,
}

impl<'m> RecordRef<'m> {
    /// Copies a key and its first version into the arena.
    ///
    /// # Safety
    ///
    /// The arena outlives `'m`.
    pub(super) unsafe fn create(arena: &mut Arena, key: &[u8], first: Entry<'_>) -> Self {
        let ptr = alloc_with_tail::<Record>(arena, key.len());
        // SAFETY: the caller promises that the arena outlives `'m`.
        let version = unsafe { VersionRef::<'m>::create(arena, first, None) };
        let record = Record {
            newest: AtomicPtr::new(version.ptr.as_ptr()),
            until_trim: AtomicU32::new(TRIM_INTERVAL_MIN),
            key_len: key.len() as u32,
            published: Watched::new(),
        };
        // SAFETY: the memory is fresh, aligned, and large enough for the record and the key after
        // it.
        unsafe {
            ptr.write(record);
            copy_tail(ptr, key);
            RecordRef::from_raw(ptr)
        }
    }

    /// # Safety
    ///
    /// `ptr` was made by [`create`](Self::create) in an arena that outlives `'m`. It was obtained
    /// by an acquire load of the pointer, or never left the thread.
    pub(super) unsafe fn from_raw(ptr: NonNull<Record>) -> Self {
        RecordRef {
            ptr,
            arena: PhantomData,
        }
    }

    pub(super) fn as_raw(self) -> NonNull<Record> {
        self.ptr
    }

    pub(super) fn key(self) -> &'m [u8] {
        let len = self.record().key_len as usize;
        // SAFETY: `create` wrote `key_len` bytes after the record, and they are never written
        // again.
        unsafe { tail(self.ptr, len) }
    }

    pub(super) fn newest(self) -> VersionRef<'m> {
        let newest = NonNull::new(self.record().newest.load(Acquire));
        let newest = newest.expect("a record always has a version");
        // SAFETY: the pointer was published by `create` or `push`.
        unsafe { VersionRef::from_raw(newest) }
    }

    /// Returns the newest version that a reader at this read point sees.
    pub(super) fn visible_at(self, read_point: u64) -> Option<VersionRef<'m>> {
        let mut version = self.newest();
        while version.entry().seqno > read_point {
            version = version.older()?;
        }
        Some(version)
    }

    /// Adds a version on top and unlinks those that no reader at or above `horizon` needs.
    ///
    /// Only the writer calls this. A chain keeps at most twice the needed versions, plus a few. It
    /// is walked only when it may have doubled since the last walk, so the amortized cost of the
    /// walks is constant.
    pub(super) fn push(self, arena: &mut Arena, new: Entry<'_>, horizon: u64) {
        let newest = self.newest();
        debug_assert!(newest.entry().seqno < new.seqno);
        let until_trim = match self.record().until_trim.load(Relaxed) {
            _ if newest.entry().seqno <= horizon => {
                newest.unlink_older();
                TRIM_INTERVAL_MIN
            }
            0 => newest.trim(horizon).max(TRIM_INTERVAL_MIN),
            until_trim => until_trim - 1,
        };
        self.record().until_trim.store(until_trim, Relaxed);
        // SAFETY: this record lies in the same arena, which outlives `'m`.
        let version = unsafe { VersionRef::<'m>::create(arena, new, Some(newest)) };
        // Pairs with the load in `newest`: a reader that sees the pointer sees the bytes.
        self.record().newest.store(version.ptr.as_ptr(), Release);
    }

    fn record(self) -> &'m Record {
        // SAFETY: `from_raw` promises a published record that lives as long as `'m`.
        let record = unsafe { self.ptr.as_ref() };
        record.published.read();
        record
    }
}

impl<'m> VersionRef<'m> {
    /// # Safety
    ///
    /// The arena outlives `'m`.
    unsafe fn create(arena: &mut Arena, entry: Entry<'_>, older: Option<VersionRef<'m>>) -> Self {
        let ptr = alloc_with_tail::<Version>(arena, entry.value.len());
        let version = Version {
            older: AtomicPtr::new(older.map_or(null_mut(), |older| older.ptr.as_ptr())),
            seqno: entry.seqno,
            value_len: entry.value.len() as u32,
            kind: entry.kind,
            published: Watched::new(),
        };
        // SAFETY: the memory is fresh, aligned, and large enough for the version and the value
        // after it.
        unsafe {
            ptr.write(version);
            copy_tail(ptr, entry.value);
            VersionRef::from_raw(ptr)
        }
    }

    /// # Safety
    ///
    /// As for [`RecordRef::from_raw`].
    pub(super) unsafe fn from_raw(ptr: NonNull<Version>) -> Self {
        VersionRef {
            ptr,
            arena: PhantomData,
        }
    }

    pub(super) fn as_raw(self) -> NonNull<Version> {
        self.ptr
    }

    pub(super) fn entry(self) -> Entry<'m> {
        let version = self.version();
        Entry {
            seqno: version.seqno,
            kind: version.kind,
            // SAFETY: `create` wrote `value_len` bytes after the version, and they are never
            // written again.
            value: unsafe { tail(self.ptr, version.value_len as usize) },
        }
    }

    pub(super) fn older(self) -> Option<VersionRef<'m>> {
        let older = NonNull::new(self.version().older.load(Acquire))?;
        // SAFETY: it was published as the newest version before it became the older one of this.
        Some(unsafe { VersionRef::from_raw(older) })
    }

    /// Unlinks all versions older than the newest one at or below `horizon`; returns the number of
    /// versions that remain, this one included.
    fn trim(self, horizon: u64) -> u32 {
        let mut kept = 1;
        let mut version = self;
        while version.entry().seqno > horizon {
            match version.older() {
                Some(older) => version = older,
                None => return kept,
            }
            kept += 1;
        }
        version.unlink_older();
        kept
    }

    /// Unlinks all older versions. Relaxed is enough: this publishes nothing, and a reader that
    /// misses it finds the old versions intact.
    fn unlink_older(self) {
        self.version().older.store(null_mut(), Relaxed);
    }

    fn version(self) -> &'m Version {
        // SAFETY: `from_raw` promises a published version that lives as long as `'m`.
        let version = unsafe { self.ptr.as_ref() };
        version.published.read();
        version
    }
}

/// Allocates room for a `T` and `tail_bytes` after it. Everything in the arena is at least 8-byte
/// aligned.
fn alloc_with_tail<T>(arena: &mut Arena, tail_bytes: usize) -> NonNull<T> {
    let size = size_of::<T>() + tail_bytes;
    let layout = Layout::from_size_align(size, align_of::<T>());
    arena
        .alloc(layout.expect("keys and values are bounded"))
        .cast()
}

/// # Safety
///
/// The `bytes.len()` bytes after the `T` belong to the same allocation and are not shared yet.
unsafe fn copy_tail<T>(ptr: NonNull<T>, bytes: &[u8]) {
    // SAFETY: promised by the caller; fresh memory cannot overlap the source.
    unsafe {
        let tail = ptr.add(1).cast::<u8>();
        tail.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
    }
}

/// # Safety
///
/// The `len` bytes after the `T` were written by [`copy_tail`] before the pointer was published,
/// and live as long as `'m`.
unsafe fn tail<'m, T>(ptr: NonNull<T>, len: usize) -> &'m [u8] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(ptr.add(1).cast::<u8>().as_ptr(), len) }
}
