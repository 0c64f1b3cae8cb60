//! Tree of one keyspace as readers see it: memtables and tables, published by one atomic store.
//!
//! Readers load the [`TreeState`] after they register their read point (see `read_points`), so it
//! holds everything at or below that point. Writers of the state (sealing by the commit leader,
//! flush, compaction) take `change`, copy the state, change the copy and publish it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::sync::plain::Mutex;
use crate::sync::step;
use alluvium_mem::{Memtable, MemtableOptions};
use arc_swap::ArcSwap;

use crate::base::{KeyspaceId, SeqNo, ValueKind, checksum};
use crate::clock::ReadClock;
use crate::compaction::retire::{CompactionFilter, Retire};
use crate::error::{Error, Result};
use crate::keyspace::dead::DeadSpace;
use crate::keyspace::found::FoundIn;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::options::KeyspaceOptions;
use crate::keyspace::resting::OpenCursors;
use crate::memory::{MemoryBudget, Use};
use crate::metrics::{ReadCount, TreeCounters};
use crate::table::{Access, Prefetch, Read, Started, Table, ValueFiles};
use crate::version::group::Version;

/// Everything of a keyspace that reads search, newest first.
#[derive(Clone)]
pub(crate) struct TreeState {
    /// Memtable that receives the writes. `None` between a seal and the next write, so that
    /// thousands of idle keyspaces have none.
    pub active: Option<Arc<TreeMemtable>>,
    /// Sealed memtables that wait for their flush, newest first.
    pub sealed: Vec<Arc<TreeMemtable>>,
    /// Groups and tables.
    pub version: Arc<Version>,
    /// Counters of the keyspace.
    pub counters: Arc<TreeCounters>,
}

/// Data of one keyspace, shared by its handles, cursors and background jobs.
pub(crate) struct Tree {
    pub id: KeyspaceId,
    pub name: String,
    /// Replaced as a whole by a change of options. Memtables and tables built under the old options
    /// record the keys that their filters cover.
    options: ArcSwap<KeyspaceOptions>,
    /// True if stored values end with an expiry time. Never changes, because it determines how
    /// values are decoded.
    pub stores_expiry: bool,
    pub counters: Arc<TreeCounters>,
    state: ArcSwap<TreeState>,
    /// Serializes changes of `state`. A leaf of the engine's lock order: nothing is locked under
    /// it.
    change: Mutex<()>,
    /// Number of publications, so that a cursor can check cheaply if its sources are still the
    /// newest. Stored with Release after `state`; a cursor's Acquire load pairs with it.
    publications: AtomicU64,
    /// Set once, when the keyspace is dropped. Read before every operation; the leader catches
    /// stale reads.
    dropped: AtomicBool,
    /// Open cursors; each is asked to release a replaced state.
    pub cursors: OpenCursors,
    /// Key ranges in which readers met only deleted rows.
    pub dead: DeadSpace,
    /// Compaction filter. The mutex guards nothing else and is taken without any other lock.
    filter: Mutex<Option<Arc<dyn CompactionFilter>>>,
    /// Maximum expected bytes of a memtable, to size its filter. Relaxed: a hint.
    memtable_bytes: AtomicUsize,
    /// Bytes of the last sealed memtable; 0 before the first. Relaxed: a hint.
    sealed_bytes: AtomicUsize,
    /// Memory budget that memtables are charged to.
    budget: Arc<MemoryBudget>,
}

/// Memory of a keyspace without rows and tables: this tree and its entries in the lists of
/// keyspaces and the state of the manifest. Measured by `examples/many_keyspaces`.
const OVERHEAD_BYTES: usize = 1792;

impl Drop for Tree {
    fn drop(&mut self) {
        self.budget.subtract(Use::Tables, OVERHEAD_BYTES);
    }
}

impl Tree {
    pub fn new(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        version: Version,
        memtable_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Tree {
        budget.add(Use::Tables, OVERHEAD_BYTES);
        let state = TreeState {
            active: None,
            sealed: Vec::new(),
            version: Arc::new(version),
            counters: Arc::default(),
        };
        Tree {
            counters: Arc::clone(&state.counters),
            id,
            name: name.to_owned(),
            stores_expiry: options.expiry.is_stored(),
            options: ArcSwap::from_pointee(options),
            state: ArcSwap::from_pointee(state),
            change: Mutex::new(()),
            publications: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            cursors: OpenCursors::default(),
            dead: DeadSpace::new(budget),
            filter: Mutex::new(None),
            memtable_bytes: AtomicUsize::new(memtable_bytes),
            sealed_bytes: AtomicUsize::new(0),
            budget: Arc::clone(budget),
        }
    }

    /// Returns the options for everything built from now on.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        self.options.load_full()
    }

    /// Changes the options. The manifest already has them.
    pub fn set_options(&self, options: KeyspaceOptions) {
        self.options.store(Arc::new(options));
    }

    /// Sets the expected maximum size of new memtables.
    pub fn set_memtable_bytes(&self, bytes: usize) {
        self.memtable_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the current state, for the duration of one call.
    pub fn load(&self) -> arc_swap::Guard<Arc<TreeState>> {
        step();
        self.state.load()
    }

    /// Returns the current state, to keep.
    pub fn load_full(&self) -> Arc<TreeState> {
        step();
        self.state.load_full()
    }

    /// Returns the number of times the state was replaced.
    pub fn publications(&self) -> u64 {
        self.publications.load(Ordering::Acquire)
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns an error if the keyspace was dropped. Called after loading a state, it proves that
    /// the state was not the empty one of a dropped keyspace: the mark is set before that state is
    /// published.
    pub fn check(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::KeyspaceDropped(self.name.clone()));
        }
        Ok(())
    }

    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Returns the expiry cutoff and compaction filter for a compaction that starts now.
    pub fn retire(&self, clock: &ReadClock, values: &ValueFiles) -> Retire {
        let expires = self.stores_expiry;
        let expired_for_all = expires.then(|| clock.expired_for_all());
        let filter = self.filter.lock().clone();
        Retire::new(&self.name, expired_for_all, filter, values)
    }

    /// Replaces the compaction filter for compactions that start later.
    pub fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) {
        *self.filter.lock() = filter;
    }

    /// Publishes a changed state. `f` must be short: it runs under the change lock.
    pub fn change<R>(&self, f: impl FnOnce(&mut TreeState) -> R) -> R {
        let _changing = self.change.lock();
        let mut state = TreeState::clone(&self.state.load());
        let result = f(&mut state);
        step();
        self.state.store(Arc::new(state));
        step();
        self.publications.fetch_add(1, Ordering::Release);
        result
    }

    /// Makes cursors check if they may still read: at their next call they ask the database first.
    pub fn recall_cursors(&self) {
        self.publications.fetch_add(1, Ordering::Release);
        self.cursors.release();
    }

    /// Seals the active memtable and returns it, if it is not empty.
    pub fn seal(&self) -> Option<Arc<TreeMemtable>> {
        {
            let state = self.load();
            let active = state.active.as_ref().filter(|active| !active.is_empty());
            active?.join_ranges();
        }
        let sealed = self.change(|state| {
            let sealed = state.active.take()?;
            state.sealed.insert(0, Arc::clone(&sealed));
            Some(sealed)
        })?;
        self.sealed_bytes.store(sealed.bytes(), Ordering::Relaxed);
        Some(sealed)
    }

    /// Creates an active memtable for the commit leader, which is about to write one of
    /// `keyspaces`. Returns the bytes of memory that it takes.
    pub fn activate(&self, keyspaces: usize) -> usize {
        let written = self.sealed_bytes.load(Ordering::Relaxed);
        let most = self.memtable_bytes.load(Ordering::Relaxed);
        let expected = expected_bytes(written, most, keyspaces);
        let fresh = Arc::new(new_memtable(&self.options.load(), expected, &self.budget));
        let bytes = fresh.memory_bytes();
        self.change(|state| state.active = Some(fresh));
        bytes
    }
}

/// Hash of the part of `key` that the memtable's prefix filter covers: short keys are hashed whole.
pub(crate) fn prefix_hash(memtable: &Memtable, key: &[u8]) -> Option<u64> {
    let bytes = memtable.prefix_bytes()?;
    Some(checksum::key_hash(&key[..bytes.min(key.len())]))
}

/// Number of keyspaces without history that may each expect to fill a whole generation of
/// memtables.
const FULL_GENERATIONS: usize = 16;

/// Returns the bytes that a keyspace is expected to write in the next generation: twice the bytes
/// of the last one. Too small a filter rules nothing out, and too large a filter wastes memory in
/// each of many keyspaces. Before the first generation it is a share of `most`, which bounds the
/// filters of all keyspaces together.
fn expected_bytes(written: usize, most: usize, keyspaces: usize) -> usize {
    match written {
        0 => (most / keyspaces.max(1))
            .saturating_mul(FULL_GENERATIONS)
            .min(most),
        _ => written.saturating_mul(2).min(most),
    }
}

fn new_memtable(
    options: &KeyspaceOptions,
    bytes: usize,
    budget: &Arc<MemoryBudget>,
) -> TreeMemtable {
    let options = MemtableOptions {
        expected_bytes: bytes,
        prefix_bytes: options.prefix_filter_bytes,
        ..MemtableOptions::default()
    };
    TreeMemtable::new(&options, budget)
}

impl TreeState {
    /// Returns the newest version of `key` at or below `read_point`, in place; `None` if it is
    /// absent or deleted.
    pub fn get(&self, key: &[u8], read_point: SeqNo) -> Result<Option<FoundIn<'_>>> {
        self.find::<Read>(key, read_point, &mut self.counters.gets.read())
    }

    /// As [`TreeState::get`] if everything that it reads is in memory. Otherwise starts a device
    /// read of the first missing block or value.
    pub fn get_or_prefetch(
        &self,
        key: &[u8],
        read_point: SeqNo,
    ) -> Result<Option<FoundIn<'_>>, Started> {
        let mut count = self.counters.gets.read();
        let found = self.find::<Prefetch>(key, read_point, &mut count);
        if found.is_err() {
            count.cancel();
        }
        found
    }

    fn find<A: Access>(
        &self,
        key: &[u8],
        read_point: SeqNo,
        count: &mut ReadCount<'_>,
    ) -> Result<Option<FoundIn<'_>>, A::Stop> {
        let hash = checksum::key_hash(key);
        for memtable in self.memtables() {
            let deleted_at = memtable.deleted_at(key, read_point);
            let entry = if memtable.rows.may_contain(hash) {
                count.source();
                memtable.rows.get(key, read_point)
            } else {
                None
            };
            if let Some(entry) = entry {
                let live = entry.kind != ValueKind::Delete as u8 && entry.seqno >= deleted_at;
                return Ok(live.then_some(FoundIn::Memory(entry.value)));
            }
            if deleted_at > 0 {
                return Ok(None);
            }
        }
        let group = &self.version.groups()[self.version.find(key)];
        let upper = group.upper.iter().map(|u| &u.table);
        for table in upper.chain(group.last_for(key)) {
            if !(table.first_key() <= key && key <= table.last_key()) {
                continue;
            }
            let deleted_at = table.deleted_at(key, read_point);
            if table.may_contain(hash) {
                count.source();
                if let Some(entry) = table.find::<A>(key, read_point)? {
                    let (kind, seqno) = (entry.kind(), entry.seqno());
                    if kind.is_tombstone() || seqno < deleted_at {
                        return Ok(None);
                    }
                    let stored = entry.into_value();
                    return Ok(Some(if kind.is_pointer() {
                        FoundIn::Separated(A::value(table, stored.bytes())?)
                    } else {
                        FoundIn::Block(stored)
                    }));
                }
            }
            if deleted_at > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns the newest sequence number at which `key` was written after `snapshot`, if any.
    /// Sources without such new rows are skipped, so that a blind write seldom reads a block.
    pub fn written_after(&self, key: &[u8], snapshot: SeqNo) -> Result<Option<SeqNo>> {
        let hash = checksum::key_hash(key);
        for memtable in self.memtables() {
            if memtable
                .seqno_range()
                .is_none_or(|(_, newest)| newest <= snapshot)
            {
                continue;
            }
            let deleted_at = memtable.deleted_at(key, SeqNo::MAX);
            let entry = memtable.get(key, hash, SeqNo::MAX);
            let newest = entry.map_or(deleted_at, |entry| entry.seqno.max(deleted_at));
            if newest > 0 {
                return Ok((newest > snapshot).then_some(newest));
            }
        }
        let group = &self.version.groups()[self.version.find(key)];
        let upper = group.upper.iter().map(|u| &u.table);
        for table in upper.chain(group.last_for(key)) {
            if table.max_seqno() <= snapshot {
                continue;
            }
            let written = table.newest_seqno(key, hash)?;
            let newest = written.max(Some(table.deleted_at(key, SeqNo::MAX)));
            if let Some(seqno) = newest.filter(|&seqno| seqno > 0) {
                return Ok((seqno > snapshot).then_some(seqno));
            }
        }
        Ok(None)
    }

    /// Returns a key from `start` to `end` (exclusive; `None`: the end of the keyspace) written
    /// after `snapshot`, if any. Sources without such new rows are skipped; the range is walked in
    /// the others, so this costs at most a scan of the range.
    pub fn range_written_after(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        snapshot: SeqNo,
    ) -> Result<Option<Vec<u8>>> {
        let inside = |key: &[u8]| end.is_none_or(|end| key < end);
        for memtable in self.memtables() {
            if memtable
                .seqno_range()
                .is_none_or(|(_, newest)| newest <= snapshot)
            {
                continue;
            }
            let ranges = memtable.range_deletes();
            if let Some(key) = ranges.and_then(|r| r.newer_in(start, end, snapshot)) {
                return Ok(Some(key));
            }
            let mut cursor = memtable.rows.cursor(SeqNo::MAX);
            let mut found = cursor.seek(start);
            while found && inside(cursor.key()) {
                if cursor.entry().seqno > snapshot {
                    return Ok(Some(cursor.key().to_vec()));
                }
                found = cursor.next();
            }
        }
        let from = self.version.find(start);
        for (at, group) in self.version.groups().iter().enumerate().skip(from) {
            if !inside(&group.low) {
                break;
            }
            let start = start.max(&group.low);
            let high = match (end, self.version.high(at)) {
                (Some(end), Some(high)) => Some(end.min(high)),
                (end, high) => end.or(high),
            };
            let upper = group.upper.iter().map(|u| &u.table);
            for table in upper.chain(&group.last) {
                if let Some(key) = table_written_after(table, start, high, snapshot)? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// Returns the memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<TreeMemtable>> {
        self.active.iter().chain(&self.sealed)
    }

    /// Returns true if any row is only in memory.
    pub fn has_memtable_rows(&self) -> bool {
        let written = |active: &Arc<TreeMemtable>| !active.is_empty();
        self.active.as_ref().is_some_and(written) || !self.sealed.is_empty()
    }

    /// Returns the bytes of all memtables.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables().map(|m| m.bytes()).sum()
    }
}

/// As [`TreeState::range_written_after`], for one table.
fn table_written_after(
    table: &Arc<Table>,
    start: &[u8],
    end: Option<&[u8]>,
    snapshot: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let inside = |key: &[u8]| end.is_none_or(|end| key < end);
    if table.max_seqno() <= snapshot || table.last_key() < start || !inside(table.first_key()) {
        return Ok(None);
    }
    let ranges = table.range_deletes();
    if let Some(key) = ranges.and_then(|r| r.newer_in(start, end, snapshot)) {
        return Ok(Some(key));
    }
    let mut cursor = table.cursor(SeqNo::MAX);
    let mut found = cursor.seek(start)?;
    while found && inside(cursor.key()) {
        if cursor.seqno() > snapshot {
            return Ok(Some(cursor.key().to_vec()));
        }
        found = cursor.next()?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_expects_twice_what_the_last_one_held() {
        assert_eq!(expected_bytes(64 << 10, 8 << 20, 1), 128 << 10);
        assert_eq!(expected_bytes(5 << 20, 8 << 20, 10_000), 8 << 20);
        assert_eq!(expected_bytes(usize::MAX, 4_000, 1), 4_000);
    }

    #[test]
    fn the_first_memtables_of_many_keyspaces_expect_a_share_each() {
        let expected = |keyspaces| expected_bytes(0, 8 << 20, keyspaces);
        assert_eq!(
            (expected(0), expected(1), expected(16)),
            (8 << 20, 8 << 20, 8 << 20)
        );
        assert_eq!(expected(1 << 10), 128 << 10);
        assert!(10_000 * expected(10_000) <= 16 * (8 << 20));
    }
}
