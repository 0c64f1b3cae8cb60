//! Memtable of a tree: rows in `alluvium-mem`'s sorted table, and the range deletes of the same
//! commits.
//!
//! Readers ask for range deletes first, so these are one immutable history. Each commit with range
//! deletes replaces it by a longer one. Only the commit leader writes, under the log's mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use alluvium_mem::{Entry, Memtable, MemtableOptions};
use arc_swap::ArcSwapOption;

use crate::base::{SeqNo, checksum};
use crate::memory::{MemoryBudget, Use};
use crate::range_deletes::{KeyRange, RangeHistory};

/// Rows and range deletes of one generation, charged to the memory budget.
pub(crate) struct TreeMemtable {
    /// Versions of rows, without range deletes.
    pub rows: Arc<Memtable>,
    /// True if `ranges` is not empty. Stored with Release after `ranges` and before the commit is
    /// published. A reader's Acquire load pairs with it and spares most reads the access to the
    /// list.
    has_ranges: AtomicBool,
    ranges: ArcSwapOption<RangeHistory>,
    /// Account of the memory of rows and range deletes, and the bytes charged there. Relaxed:
    /// written by the commit leader alone.
    budget: Arc<MemoryBudget>,
    charged: AtomicUsize,
}

impl TreeMemtable {
    pub fn new(options: &MemtableOptions, budget: &Arc<MemoryBudget>) -> TreeMemtable {
        let memtable = TreeMemtable {
            rows: Arc::new(Memtable::new(options)),
            has_ranges: AtomicBool::new(false),
            ranges: ArcSwapOption::empty(),
            budget: Arc::clone(budget),
            charged: AtomicUsize::new(0),
        };
        memtable.charge();
        memtable
    }

    /// Charges the memory allocated since the last call: mostly none, because the arena grows by
    /// whole chunks. Only for the commit leader, after its inserts.
    pub fn charge(&self) {
        let bytes = self.memory_bytes();
        let before = self.charged.load(Ordering::Relaxed);
        if bytes == before {
            return;
        }
        self.charged.store(bytes, Ordering::Relaxed);
        match bytes.checked_sub(before) {
            Some(more) => self.budget.add_and_help(Use::Memtables, more),
            // Joined range deletes may take less memory.
            None => self.budget.subtract(Use::Memtables, before - bytes),
        }
    }

    /// Returns the newest version of `key` at or below `read_point`, even if a range delete hides
    /// it.
    pub fn get(&self, key: &[u8], hash: u64, read_point: SeqNo) -> Option<Entry<'_>> {
        let may_contain = self.rows.may_contain(hash);
        may_contain.then(|| self.rows.get(key, read_point))?
    }

    /// Returns the hash of the part of `key` that the prefix filter covers: short keys are hashed
    /// whole. `None` without a prefix filter.
    pub fn prefix_hash(&self, key: &[u8]) -> Option<u64> {
        let bytes = self.rows.prefix_bytes()?;
        Some(checksum::key_hash(&key[..bytes.min(key.len())]))
    }

    /// Returns the newest range delete over `key` that a reader at `read_point` sees; 0 if there is
    /// none.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        if !self.has_ranges.load(Ordering::Acquire) {
            return 0;
        }
        let ranges = self.ranges.load();
        ranges.as_ref().map_or(0, |r| r.deleted_at(key, read_point))
    }

    /// Returns the range deletes so far, if there are any.
    pub fn range_deletes(&self) -> Option<Arc<RangeHistory>> {
        self.has_ranges.load(Ordering::Acquire).then_some(())?;
        self.ranges.load_full()
    }

    /// Adds the range deletes of a commit and returns the memory that they take. Only for the
    /// commit leader: of two concurrent writers one would lose its range deletes.
    pub fn delete_ranges(&self, ranges: Vec<KeyRange<'_>>, seqno: SeqNo) -> usize {
        let mut history = match &*self.ranges.load() {
            Some(ranges) => RangeHistory::clone(ranges),
            None => RangeHistory::default(),
        };
        let before = history.memory_bytes();
        history.add(ranges, seqno);
        let taken = history.memory_bytes() - before;
        let any = !history.is_empty();
        self.ranges.store(Some(Arc::new(history)));
        self.has_ranges.store(any, Ordering::Release);
        taken
    }

    /// Joins the range deletes for faster searches. Only for the commit leader, after its last
    /// write.
    pub fn join_ranges(&self) {
        if let Some(ranges) = self.range_deletes() {
            let mut joined = RangeHistory::clone(&ranges);
            joined.join_all();
            self.ranges.store(Some(Arc::new(joined)));
            self.charge();
        }
    }

    /// Returns the memory of the range deletes.
    fn range_bytes(&self) -> usize {
        if !self.has_ranges.load(Ordering::Acquire) {
            return 0;
        }
        let ranges = self.ranges.load();
        ranges.as_ref().map_or(0, |r| r.memory_bytes())
    }

    /// Returns true if the memtable has neither rows nor range deletes.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.has_ranges.load(Ordering::Acquire)
    }

    /// Returns the smallest and the largest seqno written.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        let ranges = self.range_deletes().and_then(|r| r.seqno_range());
        match (self.rows.seqno_range(), ranges) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (rows, ranges) => rows.or(ranges),
        }
    }

    /// Returns the total memory of the memtable.
    pub fn memory_bytes(&self) -> usize {
        let structs = size_of::<TreeMemtable>() + size_of::<Memtable>();
        structs + self.rows.memory_bytes() + self.range_bytes()
    }

    /// Returns the bytes of the rows' arena and of the range deletes.
    pub fn bytes(&self) -> usize {
        self.rows.bytes() + self.range_bytes()
    }
}

impl Drop for TreeMemtable {
    fn drop(&mut self) {
        self.budget
            .subtract(Use::Memtables, *self.charged.get_mut());
    }
}
