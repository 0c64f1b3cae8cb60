//! One memtable of a tree: rows in `alluvium-mem`'s sorted table, and beside it the range deletes of the same commits.
//!
//! Range deletes are few and readers ask for them first, so they are one immutable list that is replaced at each of
//! them. Only the commit leader writes, under the log's mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use alluvium_mem::{Entry, Memtable, MemtableOptions};
use arc_swap::ArcSwapOption;

use crate::base::SeqNo;
use crate::cache::Cache;
use crate::memory::Use;
use crate::range_deletes::RangeDeletes;

/// See the module.
pub(crate) struct TreeMemtable {
    /// The rows.
    pub rows: Arc<Memtable>,
    /// Whether `ranges` has any. Stored with Release after `ranges` and before the commit is published; a reader's
    /// Acquire load pairs with it, and spares most reads a look at the list.
    has_ranges: AtomicBool,
    ranges: ArcSwapOption<RangeDeletes>,
    /// Where the memory of the rows is charged, and how much of it was. Relaxed: written by the commit leader alone.
    cache: Arc<Cache>,
    charged: AtomicUsize,
}

impl TreeMemtable {
    pub fn new(options: &MemtableOptions, cache: &Arc<Cache>) -> TreeMemtable {
        let memtable = TreeMemtable {
            rows: Arc::new(Memtable::new(options)),
            has_ranges: AtomicBool::new(false),
            ranges: ArcSwapOption::empty(),
            cache: Arc::clone(cache),
            charged: AtomicUsize::new(0),
        };
        memtable.charge();
        memtable
    }

    /// Charges what was allocated since the last call: the arena grows by whole chunks, so mostly that is nothing. For the
    /// commit leader alone, after its inserts.
    pub fn charge(&self) {
        let bytes = self.memory_bytes();
        let before = self.charged.load(Ordering::Relaxed);
        if bytes != before {
            self.charged.store(bytes, Ordering::Relaxed);
            self.cache.take_and_help(Use::Memtables, bytes - before);
        }
    }

    /// The newest version of `key` at or below `read_point`, hidden or not.
    pub fn get(&self, key: &[u8], hash: u64, read_point: SeqNo) -> Option<Entry<'_>> {
        let may_contain = self.rows.may_contain(hash);
        may_contain.then(|| self.rows.get(key, read_point))?
    }

    /// The newest range delete over `key` that a reader at `read_point` sees; 0 when there is none.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        if !self.has_ranges.load(Ordering::Acquire) {
            return 0;
        }
        let ranges = self.ranges.load();
        ranges.as_ref().map_or(0, |r| r.deleted_at(key, read_point))
    }

    /// The range deletes so far, if there are any.
    pub fn range_deletes(&self) -> Option<Arc<RangeDeletes>> {
        self.has_ranges.load(Ordering::Acquire).then_some(())?;
        self.ranges.load_full()
    }

    /// Adds a range delete. For the commit leader alone: a second writer at the same time would lose one of the two.
    pub fn delete_range(&self, start: &[u8], end: &[u8], seqno: SeqNo) {
        let mut ranges = match &*self.ranges.load() {
            Some(ranges) => RangeDeletes::clone(ranges),
            None => RangeDeletes::default(),
        };
        ranges.add(start, end, seqno);
        let any = !ranges.is_empty();
        self.ranges.store(Some(Arc::new(ranges)));
        self.has_ranges.store(any, Ordering::Release);
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.has_ranges.load(Ordering::Acquire)
    }

    /// The smallest and the largest seqno written.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        let ranges = self.range_deletes().and_then(|r| r.seqno_range());
        match (self.rows.seqno_range(), ranges) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (rows, ranges) => rows.or(ranges),
        }
    }

    /// All the memory that it takes, but for its range deletes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<TreeMemtable>() + size_of::<Memtable>() + self.rows.memory_bytes()
    }

    /// Bytes of the rows' arena.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

impl Drop for TreeMemtable {
    fn drop(&mut self) {
        self.cache
            .give_back(Use::Memtables, *self.charged.get_mut());
    }
}
