//! One ordered map of a database: its handle, its options, its tree.

pub(crate) mod memtable;
pub(crate) mod options;
pub(crate) mod tree;

pub use options::{Compression, KeyspaceOptions};
pub(crate) use tree::{FoundIn, Tree};

use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo, ValueKind};
use crate::commit::batch::{check_range, check_sizes};
use crate::db::{Database, WriteOptions};
use crate::error::{Error, Result};
use crate::iter::{Cursor, CursorOptions};
use crate::table::PinnedValue;
use crate::txn::write_set::WriteSet;

/// A handle of a keyspace: an ordered map from byte keys to byte values. Cheap to clone; keeps the database open.
///
/// Reads outside a transaction see the newest commit. Each write is a commit of its own.
#[derive(Clone)]
pub struct Keyspace {
    db: Database,
    tree: Arc<Tree>,
}

impl Keyspace {
    pub(crate) fn new(db: Database, tree: Arc<Tree>) -> Keyspace {
        Keyspace { db, tree }
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) fn db(&self) -> &Database {
        &self.db
    }

    /// Refuses when the database was closed or the keyspace dropped.
    pub(crate) fn check(&self) -> Result<()> {
        self.db.shared().check_open()?;
        self.tree.check()
    }

    /// As [`Keyspace::check`]; also refuses a keyspace of another database than `db`.
    pub(crate) fn check_within(&self, db: &Database) -> Result<()> {
        self.check()?;
        if !Arc::ptr_eq(self.db.shared(), db.shared()) {
            let message = "the keyspace belongs to another database";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// Its identity on disk.
    pub fn id(&self) -> KeyspaceId {
        self.tree.id
    }

    /// What it declared at its creation.
    pub fn options(&self) -> &KeyspaceOptions {
        &self.tree.options
    }

    /// The newest committed value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.get_with(key, |value| value.map(FoundIn::pin))
    }

    /// Runs `read` on the newest committed value of `key` in place, without copying or pinning it. `read` must be
    /// short: what it looks at cannot be freed meanwhile.
    pub fn read<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.get_with(key, |value| read(value.as_ref().map(FoundIn::bytes)))
    }

    fn get_with<R>(&self, key: &[u8], read: impl FnOnce(Option<FoundIn<'_>>) -> R) -> Result<R> {
        self.db.shared().check_open()?;
        let point = self.db.shared().read_points.register();
        self.read_at(key, point.seqno(), read)
    }

    /// Runs `read` on the value of `key` at a registered read point.
    pub(crate) fn read_at<R>(
        &self,
        key: &[u8],
        read_point: SeqNo,
        read: impl FnOnce(Option<FoundIn<'_>>) -> R,
    ) -> Result<R> {
        let state = self.tree.load();
        self.tree.check()?;
        state.get(key, read_point, read)
    }

    /// Writes `value` under `key`, whether or not the key exists.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ValueKind::Put, key, value)
    }

    /// Writes a key that the caller knows to be absent, so that its later delete can cancel it: both vanish where
    /// they meet, and neither is rewritten down to the last level. If the key exists all the same, its older value
    /// can come back after that delete: then use [`Keyspace::put`].
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ValueKind::Insert, key, value)
    }

    /// Removes `key`, whether or not it exists.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(ValueKind::Delete, key, &[])
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive), at the cost of one write.
    ///
    /// What it hides is skipped by reads and goes with later merges; tables that lie in the range as a whole go when it
    /// is flushed, without being read. Rows that transactions hold locked are not waited for: use it where nobody else
    /// writes, or where the last to commit may win.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an empty range; otherwise as [`Keyspace::put`].
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.check()?;
        check_range(start, end)?;
        let mut writes = WriteSet::default();
        writes.delete_range(self.tree.id, start, end);
        self.db.commit_writes(&writes, &WriteOptions::default())
    }

    /// Removes every key that begins with `prefix`; the empty prefix removes everything. See [`Keyspace::delete_range`].
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<()> {
        self.check()?;
        check_sizes(prefix, &[])?;
        let mut writes = WriteSet::default();
        writes.delete_prefix(self.tree.id, prefix);
        self.db.commit_writes(&writes, &WriteOptions::default())
    }

    fn write(&self, kind: ValueKind, key: &[u8], value: &[u8]) -> Result<()> {
        self.check()?;
        check_sizes(key, value)?;
        let mut writes = WriteSet::default();
        writes.put(self.tree.id, key, kind, value);
        self.db.commit_writes(&writes, &WriteOptions::default())
    }

    /// A cursor over the newest commit that is visible now.
    pub fn cursor(&self, options: CursorOptions) -> Result<Cursor> {
        self.check()?;
        let point = self.db.shared().read_points.register();
        Ok(Cursor::new(self.clone(), point, options, None))
    }
}

impl<'a> FoundIn<'a> {
    /// The value in place.
    pub fn bytes(&self) -> &[u8] {
        match self {
            FoundIn::Memory(bytes) => bytes,
            FoundIn::Table(value) => value,
        }
    }

    /// The value, independent of the state.
    pub fn pin(self) -> PinnedValue {
        match self {
            FoundIn::Memory(bytes) => PinnedValue::from(bytes),
            FoundIn::Table(value) => value,
        }
    }
}
