//! Batch of writes that a caller collects.

use std::sync::Arc;

use crate::base::ValueKind;
use crate::commit::payload::{check_range, check_sizes};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::keyspace::tree::Tree;
use crate::txn::write_set::WriteSet;

/// Set of writes to any keyspaces that become visible and durable together: see
/// [`crate::Database::write`].
///
/// Later writes of a key replace earlier ones of the same batch. The batch is in memory until it is
/// written. It may be written more than once, or cleared and filled again, which saves allocations.
///
/// # Errors
///
/// All methods that add writes leave the batch as it was if they fail. They return
/// `InvalidArgument` for a key or value that is too large and for a keyspace of another database
/// than the first one. They return `KeyspaceDropped` or `Closed` if the keyspace is dropped or its
/// database closed.
#[derive(Default)]
pub struct WriteBatch {
    writes: WriteSet,
    /// Database of the keyspaces; `None` before the first write.
    database: Option<u64>,
    /// Keyspaces written to, each once.
    trees: Vec<Arc<Tree>>,
}

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Writes `value` under `key`, whether or not the key exists.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, None)
    }

    /// Writes `value` under `key`; the row expires at `until_ms`: see [`Keyspace::put_until`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, Some(until_ms))
    }

    /// Writes a key that the caller knows to be absent: see [`Keyspace::insert`]. Debug builds
    /// refuse this write of the batch if the key exists.
    pub fn insert(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Insert, key, value, None)
    }

    /// Removes `key`, whether or not it exists.
    pub fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Delete, key, &[], None)
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive): see
    /// [`Keyspace::delete_range`].
    pub fn delete_range(&mut self, keyspace: &Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        check_range(start, end)?;
        self.enter(keyspace)?;
        self.writes.delete_range(keyspace.id(), start, end);
        Ok(())
    }

    /// Removes every key that begins with `prefix`: see [`Keyspace::delete_prefix`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
        check_sizes(prefix, &[])?;
        self.enter(keyspace)?;
        self.writes.delete_prefix(keyspace.id(), prefix);
        Ok(())
    }

    fn add(
        &mut self,
        keyspace: &Keyspace,
        kind: ValueKind,
        key: &[u8],
        value: &[u8],
        until_ms: Option<u64>,
    ) -> Result<()> {
        let kind = keyspace.written_as(kind);
        let value = keyspace.stored(kind, value, until_ms)?;
        check_sizes(key, &value)?;
        self.enter(keyspace)?;
        self.writes.put(keyspace.id(), key, kind, &value);
        Ok(())
    }

    /// Removes all writes and keeps the allocated memory for the next ones.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.trees.clear();
        self.database = None;
    }

    /// Adds the keyspace to the batch.
    fn enter(&mut self, keyspace: &Keyspace) -> Result<()> {
        keyspace.check()?;
        let uid = keyspace.db().shared().uid;
        if *self.database.get_or_insert(uid) != uid {
            return Err(Error::InvalidArgument(
                "the batch has keyspaces of another database".into(),
            ));
        }
        if !self.trees.iter().any(|tree| tree.id == keyspace.id()) {
            self.trees.push(Arc::clone(keyspace.tree()));
        }
        Ok(())
    }

    /// Returns the database of the keyspaces; `None` before the first write.
    pub(crate) fn database(&self) -> Option<u64> {
        self.database
    }

    /// Fails if one of the keyspaces was dropped.
    pub(crate) fn check_trees(&self) -> Result<()> {
        self.trees.iter().try_for_each(|tree| tree.check())
    }

    /// Returns the number of keys written, without range deletes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn writes(&self) -> &WriteSet {
        &self.writes
    }
}
