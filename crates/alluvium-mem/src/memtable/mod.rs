//! The sorted in-memory table: a B+-tree for one writer and readers that take no lock.
//!
//! Keys, versions and nodes live in an arena and are immutable once published, but for a few atomics:
//! [`record`] has the version chains, [`node`] the sequence-locked nodes, [`tree`] descent and splits, [`cursor`] the scans.
//! Readers retry when the writer was in their way; the writer never waits for a reader.
//!
//! A read point must be published to a reader after the inserts that it covers (store with release, load with acquire,
//! as the engine's visible seqno is). Then the reader sees all of them, and nothing newer.

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

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// A small row takes about this much of the arena, which turns expected bytes into expected keys for the filters.
const ENTRY_BYTES_EXPECTED: usize = 96;

/// How a memtable is made.
#[derive(Debug, Clone)]
pub struct MemtableOptions {
    /// The arena size at which the table will probably be sealed. Only sizes the filters; it is no limit.
    pub expected_bytes: usize,
    /// Bits of the Bloom filters for each expected key.
    pub filter_bits_per_key: u32,
    /// The length of the key prefix whose hashes inserts carry. `None`: no filter for prefixes is kept.
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

/// An in-memory sorted table of keys with their versions.
///
/// Reads cost a descent of a few hundred nanoseconds and never block. Memory is only given back as a whole.
pub struct Memtable {
    tree: Tree,
    keys: DynamicFilter,
    prefixes: Option<DynamicFilter>,
    prefix_bytes: Option<usize>,
    counters: CacheLine<Counters>,
    /// Guards the right to write; holds the memory of `tree`. The writer takes no other lock while it has this.
    arena: CacheLine<Mutex<Arena>>,
}

/// Keeps what the writer stores away from the lines that every reader loads.
#[repr(align(64))]
struct CacheLine<T>(T);

/// Written by the writer alone, relaxed: they are exact for anyone who has synchronized with the inserts otherwise.
struct Counters {
    bytes: AtomicUsize,
    entries: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

impl Memtable {
    /// An empty memtable. Allocates its first arena chunk (2 KiB) and its filters.
    pub fn new(options: &MemtableOptions) -> Memtable {
        let filter_keys = options.expected_bytes / ENTRY_BYTES_EXPECTED;
        let filter = || DynamicFilter::new(filter_keys, options.filter_bits_per_key);
        let mut arena = Arena::new();
        Memtable {
            // SAFETY: the arena moves into this memtable and goes when the tree goes.
            tree: unsafe { Tree::new(&mut arena) },
            keys: filter(),
            prefixes: options.prefix_bytes.map(|_| filter()),
            prefix_bytes: options.prefix_bytes,
            counters: CacheLine(Counters {
                bytes: AtomicUsize::new(arena.bytes()),
                entries: AtomicUsize::new(0),
                seqno_min: AtomicU64::new(u64::MAX),
                seqno_max: AtomicU64::new(0),
            }),
            arena: CacheLine(Mutex::new(arena)),
        }
    }

    /// Takes the right to write until the result is dropped. Waits if another thread has it.
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter {
            // A writer can only panic before it has changed anything, so a poisoned table is still whole.
            arena: (self.arena.0.lock()).unwrap_or_else(PoisonError::into_inner),
            memtable: self,
        }
    }

    /// The newest version of `key` whose seqno is at most `read_point`.
    pub fn get(&self, key: &[u8], read_point: u64) -> Option<Entry<'_>> {
        let version = self.tree.get(key)?.visible_at(read_point)?;
        Some(version.entry())
    }

    /// Whether a key with this hash may be here: `false` is certain.
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.keys.may_contain_hash(key_hash)
    }

    /// The length of the prefixes whose hashes inserts carry, as the options said.
    pub fn prefix_bytes(&self) -> Option<usize> {
        self.prefix_bytes
    }

    /// Whether a key with a prefix of this hash may be here: `false` is certain. Always `true` without
    /// [`MemtableOptions::prefix_bytes`].
    pub fn may_contain_prefix(&self, prefix_hash: u64) -> bool {
        match &self.prefixes {
            Some(prefixes) => prefixes.may_contain_hash(prefix_hash),
            None => true,
        }
    }

    /// Bytes of the arena's chunks, used or not. Filters are not counted.
    pub fn bytes(&self) -> usize {
        self.counters.0.bytes.load(Relaxed)
    }

    /// All the memory that it takes: the arena's chunks, used or not, and the filters.
    pub fn memory_bytes(&self) -> usize {
        let prefixes = self
            .prefixes
            .as_ref()
            .map_or(0, DynamicFilter::memory_bytes);
        self.bytes() + self.keys.memory_bytes() + prefixes
    }

    /// How many versions were inserted, unlinked ones included.
    pub fn entries(&self) -> usize {
        self.counters.0.entries.load(Relaxed)
    }

    /// Whether nothing was inserted yet.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The smallest and the largest seqno inserted.
    pub fn seqno_range(&self) -> Option<(u64, u64)> {
        let counters = &self.counters.0;
        let range = (
            counters.seqno_min.load(Relaxed),
            counters.seqno_max.load(Relaxed),
        );
        (range.0 <= range.1).then_some(range)
    }

    /// A cursor that sees what a reader at `read_point` sees. It starts invalid and keeps the memtable alive.
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

/// The right to write to a memtable, for one thread at a time.
pub struct MemtableWriter<'m> {
    arena: MutexGuard<'m, Arena>,
    memtable: &'m Memtable,
}

impl MemtableWriter<'_> {
    /// Adds a version of `key`. Its seqno is larger than that of every version of the key already here.
    ///
    /// `key_hash` and `prefix_hash` go into the filters; a key without a prefix has none. `horizon`: no reader, present
    /// or future, has a smaller read point; versions that none of them needs are unlinked from the key's chain.
    /// Usually takes 100 to 200 ns; a value beyond a quarter of a chunk has an allocation of its own.
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
        // SAFETY: this is the arena that the tree was made with, and the guard keeps other writers out.
        unsafe { (memtable.tree).insert(&mut self.arena, key, new, horizon) };
        memtable.counters.0.note(seqno, self.arena.bytes());
    }
}

impl Counters {
    /// Only the writer calls this, so reading and storing in two steps loses nothing.
    fn note(&self, seqno: u64, bytes: usize) {
        let min = self.seqno_min.load(Relaxed).min(seqno);
        let max = self.seqno_max.load(Relaxed).max(seqno);
        self.seqno_min.store(min, Relaxed);
        self.seqno_max.store(max, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.entries.store(self.entries.load(Relaxed) + 1, Relaxed);
    }
}
