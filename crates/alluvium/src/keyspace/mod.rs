//! Keyspace: an ordered map of a database, with its handle, options and tree.

pub(crate) mod dead;
pub(crate) mod estimate;
pub(crate) mod expiry;
mod found;
pub(crate) mod memtable;
mod memtable_maker;
pub(crate) mod options;
mod published;
pub(crate) mod resting;
pub(crate) mod state;
pub(crate) mod tree;

pub use estimate::RangeEstimate;
pub use expiry::Expiry;
pub(crate) use found::FoundIn;
pub use options::{Compression, KeyspaceOptions};
use state::TreeState;
pub(crate) use tree::Tree;

use std::borrow::Cow;
use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::base::{KeyspaceId, SeqNo, ValueKind};
use crate::commit::payload::{Op, check_range, check_sizes, encode_one};
use crate::compaction::retire::CompactionFilter;
use crate::db::{Database, WriteOptions};
use crate::error::{Error, Result};
use crate::iter::{Cursor, CursorOptions};
use crate::table::{PinnedValue, Started};
use crate::txn::write_set::WriteSet;

/// Number of keys of a `multi_get` that are prefetched together. With many more, pages could leave
/// the page cache before they are read.
const MISSES_TOGETHER: usize = 128;

/// Handle of a keyspace: an ordered map from byte keys to byte values. Cheap to clone; keeps the
/// database open.
///
/// Reads outside a transaction see the newest commit. Each write is a commit of its own.
#[derive(Clone)]
pub struct Keyspace {
    db: Database,
    /// Owned by the process: the last handle of a dropped keyspace frees its tree and thereby its
    /// files.
    tree: Owned<Arc<Tree>>,
}

impl Keyspace {
    pub(crate) fn new(db: Database, tree: Arc<Tree>) -> Keyspace {
        let tree = Owned::new(tree);
        Keyspace { db, tree }
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) fn db(&self) -> &Database {
        &self.db
    }

    /// Returns an error if the database was closed or the keyspace dropped.
    pub(crate) fn check(&self) -> Result<()> {
        self.db.shared().core.access.check_open()?;
        self.tree.check()
    }

    /// As [`Keyspace::check`]; also refuses a keyspace of a database other than `db`.
    pub(crate) fn check_within(&self, db: &Database) -> Result<()> {
        self.check()?;
        if !Arc::ptr_eq(self.db.shared(), db.shared()) {
            let message = "the keyspace belongs to another database";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(())
    }

    /// Returns the name of the keyspace.
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// Returns the identity of the keyspace on disk.
    pub fn id(&self) -> KeyspaceId {
        self.tree.id
    }

    /// Returns the options set at creation, or by the last [`Keyspace::set_options`].
    pub fn options(&self) -> KeyspaceOptions {
        KeyspaceOptions::clone(&self.tree.options())
    }

    /// Changes the options durably, for everything written from now on: the next memtables, and
    /// tables as flushes and compactions write them. Existing data stays as it is and remains
    /// readable.
    ///
    /// Commits wait meanwhile for a sync of the log and an edit of the manifest.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for options out of range, and for a change between expiring and never
    /// expiring rows; `NoSpace`, with nothing changed; otherwise as for a write.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        self.check()?;
        self.db.change_options(&self.tree, options)
    }

    /// Returns the newest committed value of `key`; the caller may keep it as long as it likes.
    ///
    /// # Errors
    ///
    /// `Corruption` and `Io` from the files that were read, `KeyspaceDropped`, `Closed`. A poisoned
    /// database still serves reads.
    ///
    /// # Cost
    ///
    /// Searches the memtables, then each table of the key's group that its filter does not rule
    /// out, newest first, until one has the key. A block that is not in memory costs a read of its
    /// file, and so does a separated value.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.db.shared().core.access.check_open()?;
        let point = self.db.shared().core.read_points.register();
        self.get_at(key, point.seqno(), self.now_ms())
    }

    /// Returns the values of several keys at one commit, in the order of `keys`. Cheaper than
    /// single reads: it registers once and looks the keys up in key order, so that adjacent keys
    /// share blocks. For each key, the first block or large value missing in memory is prefetched
    /// before the call waits for any of them.
    ///
    /// # Errors
    ///
    /// The first error of any key, as [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<PinnedValue>>> {
        self.db.shared().core.access.check_open()?;
        let point = self.db.shared().core.read_points.register();
        self.multi_get_at(keys, point.seqno(), self.now_ms())
    }

    /// As [`Keyspace::multi_get`] at a registered read point.
    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        read_point: SeqNo,
        now_ms: u64,
    ) -> Result<Vec<Option<PinnedValue>>> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&at| keys[at].as_ref());
        let mut values = vec![None; keys.len()];
        let mut left = Vec::new();
        for together in order.chunks(MISSES_TOGETHER) {
            if let [alone] = together {
                left.push(*alone);
            } else {
                for &at in together {
                    let state = self.tree.load();
                    self.tree.check()?;
                    match state.get_or_prefetch(keys[at].as_ref(), read_point) {
                        Ok(found) => values[at] = self.unexpired(found, now_ms)?.map(FoundIn::pin),
                        Err(Started) => left.push(at),
                    }
                }
            }
            for at in left.drain(..) {
                values[at] = self.get_at(keys[at].as_ref(), read_point, now_ms)?;
            }
        }
        Ok(values)
    }

    /// Runs `read` on the newest committed value of `key`, which is not copied unless it has at
    /// most 64 bytes. `read` should be short: the memory it reads cannot be freed meanwhile. Errors
    /// and cost as [`Keyspace::get`].
    pub fn read<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.db.shared().core.access.check_open()?;
        let point = self.db.shared().core.read_points.register();
        let state = self.tree.load();
        let found = self.find(&state, key, point.seqno(), self.now_ms())?;
        let settled = found.map(FoundIn::settled);
        Ok(read(settled.as_ref().map(FoundIn::bytes)))
    }

    /// As [`Keyspace::get`] at a registered read point and a time taken after its registration.
    pub(crate) fn get_at(
        &self,
        key: &[u8],
        read_point: SeqNo,
        now_ms: u64,
    ) -> Result<Option<PinnedValue>> {
        let state = self.tree.load();
        let found = self.find(&state, key, read_point, now_ms)?;
        Ok(found.map(FoundIn::pin))
    }

    fn find<'a>(
        &self,
        state: &'a TreeState,
        key: &[u8],
        read_point: SeqNo,
        now_ms: u64,
    ) -> Result<Option<FoundIn<'a>>> {
        self.tree.check()?;
        self.unexpired(state.get(key, read_point)?, now_ms)
    }

    /// Returns the found value without its expiry time, or `None` if it has expired at `now_ms`.
    pub(crate) fn unexpired<'a>(
        &self,
        found: Option<FoundIn<'a>>,
        now_ms: u64,
    ) -> Result<Option<FoundIn<'a>>> {
        match found {
            Some(found) if self.expires() => {
                let live = expiry::is_live(self.name(), found.bytes(), now_ms)?;
                Ok(live.then(|| found.without_last(expiry::EXPIRY_BYTES)))
            }
            found => Ok(found),
        }
    }

    /// Returns true if stored values end with an expiry time.
    pub(crate) fn expires(&self) -> bool {
        self.tree.stores_expiry
    }

    /// Returns the time for a single read; 0 in a keyspace without expiry.
    pub(crate) fn now_ms(&self) -> u64 {
        if self.expires() {
            self.db.shared().core.clock.now()
        } else {
            0
        }
    }

    /// Returns the kind stored for a write of this kind. In a keyspace with expiry an insert
    /// becomes a put: if the clock is set back, an expired row is visible again. It would come back
    /// if the insert and its delete canceled each other.
    pub(crate) fn written_as(&self, kind: ValueKind) -> ValueKind {
        match kind {
            ValueKind::Insert if self.expires() => ValueKind::Put,
            kind => kind,
        }
    }

    /// Returns a value as it is stored for this kind of write; a delete has none. `until_ms` is the
    /// caller's expiry time.
    pub(crate) fn stored<'a>(
        &self,
        kind: ValueKind,
        value: &'a [u8],
        until_ms: Option<u64>,
    ) -> Result<Cow<'a, [u8]>> {
        if kind == ValueKind::Delete {
            return Ok(Cow::Borrowed(&[]));
        }
        let expiry = self.tree.options().expiry;
        expiry.stored(value, until_ms, || self.db.shared().core.clock.now())
    }

    /// Writes `value` under `key`; the key may or may not exist. A commit of its own, as durable as
    /// [`crate::Options::durability`] says; reads nothing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a key or value that is too large; otherwise as [`Database::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ValueKind::Put, key, value, None)
    }

    /// Writes `value` under `key`, with the expiry time `until_ms` (milliseconds since 1970).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in a keyspace without expiry; otherwise as [`Keyspace::put`].
    pub fn put_until(&self, key: &[u8], value: &[u8], until_ms: u64) -> Result<()> {
        self.write(ValueKind::Put, key, value, Some(until_ms))
    }

    /// Writes a key that the caller knows to be absent; its later delete can then cancel it. Both
    /// vanish when a compaction meets them, and neither is rewritten down to the last level. If the
    /// key does exist, its older value can come back after that delete; use [`Keyspace::put`] for
    /// such keys. Errors and durability as [`Keyspace::put`]. In a keyspace with expiry it is a
    /// put.
    ///
    /// Debug builds read the key and refuse such an insert with `InvalidArgument`, unless it is
    /// untracked; release builds read nothing. [`Database::verify`] reports such keys if no
    /// compaction has met them yet.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ValueKind::Insert, key, value, None)
    }

    /// Refuses an insert of a key that exists at the newest commit, or at the registered read point
    /// `point`.
    pub(crate) fn check_insert(&self, key: &[u8], point: Option<SeqNo>) -> Result<()> {
        let present = match point {
            Some(point) => self.get_at(key, point, self.now_ms())?,
            None => self.get(key)?,
        };
        if present.is_none() {
            return Ok(());
        }
        let (name, key) = (self.name(), key.escape_ascii());
        Err(Error::InvalidArgument(format!(
            "insert into keyspace {name} of the key {key}, which exists: use put"
        )))
    }

    /// Removes `key`; the key may or may not exist. Errors and durability as [`Keyspace::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(ValueKind::Delete, key, &[], None)
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive), at the cost of one write.
    ///
    /// Reads skip the hidden rows, and later compactions remove them. Tables that lie entirely in
    /// the range are deleted without being read when the range delete is flushed. The call does not
    /// wait for row locks of transactions: use it if there are no other writers in the range, or if
    /// the last commit may win.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an empty range; otherwise as [`Keyspace::put`].
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.check()?;
        check_range(start, end)?;
        self.commit_range(|writes| writes.delete_range(self.tree.id, start, end))
    }

    /// Removes every key that begins with `prefix`; an empty prefix removes everything. See
    /// [`Keyspace::delete_range`].
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<()> {
        self.check()?;
        check_sizes(prefix, &[])?;
        self.commit_range(|writes| writes.delete_prefix(self.tree.id, prefix))
    }

    fn write(&self, kind: ValueKind, key: &[u8], value: &[u8], until: Option<u64>) -> Result<()> {
        self.check()?;
        let kind = self.written_as(kind);
        let value = self.stored(kind, value, until)?;
        check_sizes(key, &value)?;
        let payload = encode_one(&Op {
            kind,
            keyspace: self.tree.id,
            key,
            value: &value,
        });
        self.db.commit_payload(payload, &WriteOptions::default())
    }

    /// Commits the range delete that `add` adds to a set, with the durability of the database.
    fn commit_range(&self, add: impl FnOnce(&mut WriteSet)) -> Result<()> {
        let mut writes = WriteSet::default();
        add(&mut writes);
        self.db.commit_writes(&writes, &WriteOptions::default())
    }

    /// Sets the filter that decides about rows in flushes and compactions from the next one on;
    /// `None` removes it.
    ///
    /// The filter is not stored: set it after each opening. Rows that it removes or replaces change
    /// for every reader as soon as they are compacted, for open snapshots too, so use it only for
    /// rows no longer needed. Fails only with `KeyspaceDropped` and `Closed`.
    pub fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) -> Result<()> {
        self.check()?;
        self.tree.set_compaction_filter(filter);
        Ok(())
    }

    /// Compacts everything from `start` (inclusive) to `end` (exclusive; `None` is the end of the
    /// keyspace) that was committed before the call into the last level, and waits for it. Reads
    /// are then cheapest. Overwritten and deleted rows give their space back unless an open
    /// snapshot needs them.
    ///
    /// Memtables are flushed first if this keyspace has rows there. The compaction threads rewrite
    /// each group in the range if it has upper tables, or rows in its last level that only a
    /// released snapshot needed. Commits go on meanwhile. If the device is full, the call waits
    /// until there is space.
    ///
    /// # Errors
    ///
    /// `NoSpace` from the flush; `Poisoned`; `KeyspaceDropped`; `Closed`.
    pub fn compact_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.check()?;
        if end.is_some_and(|end| end <= start) {
            return Ok(());
        }
        let shared = self.db.shared();
        shared.core.access.check_writable()?;
        let upto = shared.core.read_points.visible();
        if self.tree.load().has_memtable_rows() {
            self.db.flush()?;
        }
        crate::compaction::compact_range(&shared.compaction_env(), &self.tree, start, end, upto)
    }

    /// Opens a cursor over the newest commit visible now. Reads nothing before its first move.
    /// Fails only with `KeyspaceDropped` and `Closed`.
    pub fn cursor(&self, options: CursorOptions) -> Result<Cursor> {
        self.check()?;
        let point = self.db.shared().core.read_points.register();
        let time = self.db.shared().core.clock.hold();
        Ok(Cursor::new(self.clone(), point, time, options, None))
    }
}
