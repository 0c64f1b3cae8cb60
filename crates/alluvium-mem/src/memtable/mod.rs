//! Sorted in-memory table: a B+-tree for one writer and lock-free readers.
//!
//! Keys, versions and nodes live in an arena and are immutable once published, except for a few
//! atomics. A reader that overlaps a change by the writer retries; the writer never waits for a
//! reader. Modules: [`record`] has the version chains, [`node`] the sequence-locked nodes, [`tree`]
//! descent and splits, [`cursor`] the scans.
//!
//! A read point must be published to a reader after the inserts that it covers (store with release,
//! load with acquire, as for the engine's visible seqno). The reader then sees all of them, and
//! nothing newer.

mod cursor;
mod node;
mod record;
mod tree;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

pub use self::cursor::{MemtableCursor, Versions};
pub use self::record::Entry;
use self::tree::Tree;
use crate::arena::Arena;
use crate::filter::DynamicFilter;
use crate::sync::{Mutex, MutexGuard};

/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Estimated arena bytes of a small row; converts expected bytes into expected keys for the
/// filters.
const ENTRY_BYTES_EXPECTED: usize = 96;

/// Options of a memtable.
#[derive(Debug, Clone)]
pub struct MemtableOptions {
    /// Arena size in bytes at which the memtable will probably be sealed. Sizes the filters; not a
    /// limit.
    pub expected_bytes: usize,
    /// Size of each Bloom filter in bits per expected key.
    pub filter_bits_per_key: u32,
    /// Length in bytes of the key prefixes in the prefix filter; the caller of `insert` hashes
    /// them. `None`: no prefix filter.
    pub prefix_bytes: Option<usize>,
}

impl Default for MemtableOptions {
    fn default() -> MemtableOptions {
        MemtableOptions {
            expected_bytes: 16 << 20,
            filter_bits_per_key: 10,
            prefix_bytes: None,
        }
    }
}

/// Sorted in-memory table of keys with their versions.
///
/// A read takes a descent of a few hundred nanoseconds and never blocks. Memory is freed only as a
/// whole.
pub struct Memtable {
    tree: Tree,
    keys: DynamicFilter,
    prefixes: Option<DynamicFilter>,
    prefix_bytes: Option<usize>,
    counters: CacheLine<Counters>,
    /// Guards the right to write; holds the memory of `tree`. The writer takes no other lock while
    /// it holds this.
    arena: CacheLine<Mutex<Arena>>,
}

/// Puts data on its own cache lines, so that the writer's stores do not invalidate the lines that
/// every reader loads.
#[repr(align(64))]
struct CacheLine<T>(T);

/// Counters of a memtable, stored by the writer with relaxed ordering. A thread that has
/// synchronized with the inserts by other means reads exact values.
struct Counters {
    bytes: AtomicUsize,
    entries: AtomicUsize,
    keys: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

impl Memtable {
    /// Creates an empty memtable. Allocates its first arena chunk (2 KiB) and its filters.
    pub fn new(options: &MemtableOptions) -> Memtable {
        let filter_keys = options.expected_bytes / ENTRY_BYTES_EXPECTED;
        let filter = || DynamicFilter::new(filter_keys, options.filter_bits_per_key);
        let mut arena = Arena::new();
        Memtable {
            // SAFETY: the arena moves into this memtable and is dropped together with the tree.
            tree: unsafe { Tree::new(&mut arena) },
            keys: filter(),
            prefixes: options.prefix_bytes.map(|_| filter()),
            prefix_bytes: options.prefix_bytes,
            counters: CacheLine(Counters {
                bytes: AtomicUsize::new(arena.bytes()),
                entries: AtomicUsize::new(0),
                keys: AtomicUsize::new(0),
                seqno_min: AtomicU64::new(u64::MAX),
                seqno_max: AtomicU64::new(0),
            }),
            arena: CacheLine(Mutex::new(arena)),
        }
    }

    /// Acquires the right to write until the result is dropped. Waits if another thread has it.
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter {
            // A writer can panic only before it has changed anything, so a poisoned memtable is
            // still consistent.
            arena: (self.arena.0.lock()).unwrap_or_else(PoisonError::into_inner),
            memtable: self,
        }
    }

    /// Returns the newest version of `key` with a seqno of at most `read_point`.
    pub fn get(&self, key: &[u8], read_point: u64) -> Option<Entry<'_>> {
        let version = self.tree.get(key)?.visible_at(read_point)?;
        Some(version.entry())
    }

    /// Returns whether a key with this hash may be here: `false` is certain.
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.keys.may_contain_hash(key_hash)
    }

    /// Returns [`MemtableOptions::prefix_bytes`].
    pub fn prefix_bytes(&self) -> Option<usize> {
        self.prefix_bytes
    }

    /// Returns whether a key with this prefix hash may be here: `false` is certain. Always `true`
    /// without [`MemtableOptions::prefix_bytes`].
    pub fn may_contain_prefix(&self, prefix_hash: u64) -> bool {
        match &self.prefixes {
            Some(prefixes) => prefixes.may_contain_hash(prefix_hash),
            None => true,
        }
    }

    /// Returns the bytes of the arena's chunks, used or not. Filters are not counted.
    pub fn bytes(&self) -> usize {
        self.counters.0.bytes.load(Relaxed)
    }

    /// Returns the total memory in bytes: the arena's chunks, used or not, and the filters.
    pub fn memory_bytes(&self) -> usize {
        let prefixes = self
            .prefixes
            .as_ref()
            .map_or(0, DynamicFilter::memory_bytes);
        self.bytes() + self.keys.memory_bytes() + prefixes
    }

    /// Returns the number of versions inserted, unlinked ones included.
    pub fn entries(&self) -> usize {
        self.counters.0.entries.load(Relaxed)
    }

    /// Returns the number of keys, at all read points together.
    pub fn keys(&self) -> usize {
        self.counters.0.keys.load(Relaxed)
    }

    /// Estimates the share of the keys before `key`, from 0 to 1, in a descent of the tree. The
    /// nodes are weighed by samples, so it may be wrong by some percent of all keys.
    pub fn share_before(&self, key: &[u8]) -> f64 {
        self.tree.share_before(key)
    }

    /// Returns whether nothing has been inserted yet.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Returns the smallest and the largest seqno inserted; `None` if the memtable is empty.
    pub fn seqno_range(&self) -> Option<(u64, u64)> {
        let counters = &self.counters.0;
        let range = (
            counters.seqno_min.load(Relaxed),
            counters.seqno_max.load(Relaxed),
        );
        (range.0 <= range.1).then_some(range)
    }

    /// Returns a cursor over the keys visible at `read_point`. It starts invalid and keeps the
    /// memtable alive.
    pub fn cursor(self: &Arc<Self>, read_point: u64) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self), read_point)
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("bytes", &self.bytes())
            .field("entries", &self.entries())
            .field("seqno_range", &self.seqno_range())
            .finish_non_exhaustive()
    }
}

/// Right to write to a memtable, held by one thread at a time.
pub struct MemtableWriter<'m> {
    arena: MutexGuard<'m, Arena>,
    memtable: &'m Memtable,
}

impl MemtableWriter<'_> {
    /// Adds a version of `key`. `seqno` must be larger than that of every version of the key
    /// already here.
    ///
    /// `key_hash` and `prefix_hash` are added to the filters; a key without a prefix has no
    /// `prefix_hash`. No reader, present or future, has a read point below `horizon`; versions that
    /// none of them needs are unlinked from the key's chain. Usually takes 100 to 200 ns; a value
    /// larger than a quarter of a chunk gets its own allocation.
    ///
    /// # Panics
    ///
    /// If the key is longer than [`KEY_BYTES_MAX`] or the value longer than [`VALUE_BYTES_MAX`].
    #[expect(
        clippy::too_many_arguments,
        reason = "the commit path has each of them at hand"
    )]
    pub fn insert(
        &mut self,
        key: &[u8],
        key_hash: u64,
        prefix_hash: Option<u64>,
        seqno: u64,
        kind: u8,
        value: &[u8],
        horizon: u64,
    ) {
        assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
        let memtable = self.memtable;
        memtable.keys.add_hash(key_hash);
        if let (Some(prefixes), Some(hash)) = (&memtable.prefixes, prefix_hash) {
            prefixes.add_hash(hash);
        }
        let new = Entry { seqno, kind, value };
        // SAFETY: the tree was made with this arena, and the guard excludes other writers.
        let is_new = unsafe { (memtable.tree).insert(&mut self.arena, key, new, horizon) };
        memtable.counters.0.note(seqno, is_new, self.arena.bytes());
    }
}

impl Counters {
    /// Counts an insert. Only the writer calls this, so a separate load and store lose no update.
    fn note(&self, seqno: u64, is_new: bool, bytes: usize) {
        let min = self.seqno_min.load(Relaxed).min(seqno);
        let max = self.seqno_max.load(Relaxed).max(seqno);
        self.seqno_min.store(min, Relaxed);
        self.seqno_max.store(max, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.entries.store(self.entries.load(Relaxed) + 1, Relaxed);
        let keys = self.keys.load(Relaxed) + usize::from(is_new);
        self.keys.store(keys, Relaxed);
    }
}
