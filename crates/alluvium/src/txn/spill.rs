//! Transactions larger than their memory: a spill moves the writes from memory into layers
//! (`txn/layers.rs`), and the commit merges the layers into an ingest.
//!
//! - A spill writes one layer for each section of the write set: the writes between two savepoints.
//!   A rollback to a savepoint then removes whole layers and the writes in memory.
//! - The layers replace the locks of their rows, except of rows that were locked before the last
//!   savepoint before their write: a rollback to that savepoint must not unlock them.
//! - Layers of the same rank after the newest savepoint are merged when there are many, so that
//!   reads of own writes look at few tables.
//!
//! A prepare merges the layers into tables that the manifest names, and the decision installs or
//! removes these (`db/prepared_tables.rs`).
//!
//! A transaction with range deletes or with checked reads is not spilled. Its writes are refused as
//! `TransactionTooLarge`.

use std::sync::Arc;

use crate::base::ValueKind;
use crate::commit::prepared::PreparedState;
use crate::compaction::merge::{Stream, next_key};
use crate::compaction::output::TreeTables;
use crate::error::{Error, Result};
use crate::ingest::Ingest;
use crate::keyspace::Tree;
use crate::memory::{Charge, Use};
use crate::table::SCAN_BYTES;
use crate::txn::layer_writer::LayerWriter;
use crate::txn::layers::{Layer, Layers, Overflow, Spilled};
use crate::txn::lock_table::LockHash;
use crate::txn::prepared::PreparedTransaction;
use crate::txn::transaction::{Held, Transaction};
use crate::txn::write_set::SharedWrites;

/// Layers that are merged at a time: a merge holds about 0.8 MB for each of them.
const FAN_IN: usize = 16;
/// Most sections of a write set that a spill writes: each makes a layer that no merge can remove
/// before the commit.
const SECTIONS_MAX: usize = 64;
/// A spill moves at least the limit for a transaction divided by this. If other transactions leave
/// so little memory, the write is refused.
const SPILL_SHARE: usize = 16;
/// Least bytes that a spill moves.
const SPILL_BYTES_MIN: usize = 4096;

impl Transaction {
    /// Moves the writes from memory into layers.
    ///
    /// # Errors
    ///
    /// `refused` if the transaction cannot be spilled; `NoSpace` and `Io` from the files. The
    /// transaction is unchanged then.
    pub(super) fn spill(&self, refused: Error) -> Result<()> {
        let least = self.shared().core.plan().transaction_bytes / SPILL_SHARE;
        match self.spill_from(least.max(SPILL_BYTES_MIN))? {
            true => Ok(()),
            false => Err(refused),
        }
    }

    /// Moves the writes from memory into layers, if they are at least `least` bytes and the
    /// transaction can be spilled. Returns true if it did. Errors as for [`Transaction::spill`].
    pub(crate) fn spill_from(&self, least: usize) -> Result<bool> {
        let mut held = self.state.held.lock();
        let writes = self.writes().into_owned();
        let can_spill = {
            let writes = writes.lock();
            self.state.reads.is_none()
                && !writes.has_ranges()
                && writes.memory_bytes() >= least
                && (1..=SECTIONS_MAX).contains(&writes.sections().len())
        };
        if can_spill {
            self.spill_held(&mut held, &writes)?;
            self.merge_layers(&held)?;
        }
        Ok(can_spill)
    }

    /// Writes the layers, then replaces the writes in memory and the locks of their rows by them.
    fn spill_held(&self, held: &mut Held, writes: &SharedWrites) -> Result<()> {
        let row_locks = &self.shared().row_locks;
        let mut layers = Vec::new();
        let mut covered = Vec::new();
        let old = writes.lock();
        let sections = old.sections();
        for section in &sections {
            let is_first = layers.is_empty() && !self.has_layers();
            let mut writer = LayerWriter::new(&self.shared().core, &held.trees);
            for (entry, kind) in old.section(*section) {
                let kind = match kind {
                    Some(ValueKind::Delete) => ValueKind::Delete,
                    Some(_) => ValueKind::Put,
                    // An insert that the transaction has deleted: no older layer has the row.
                    None if is_first => continue,
                    None => ValueKind::Delete,
                };
                writer.add(entry.keyspace, entry.key, kind, entry.value)?;
                let hash = row_locks.table.hash(entry.keyspace, entry.key);
                covered.push((hash, section.savepoints));
            }
            let tables = writer.finish()?;
            layers.push(Arc::new(Layer::new(tables)));
        }
        drop(old);
        let before = self.layers().map_or(0, |layers| layers.len());
        let fresh = self.remark(
            held,
            before,
            sections.iter().map(|s| s.savepoints).collect(),
        );
        self.add_layers(before, layers, fresh);
        // After the layers are listed: the next owner of each lock finds its row there.
        self.unlock_covered(held, covered);
        writes.lock().retire(held.charge_of_writes());
        held.write_bytes = 0;
        held.charge(&self.shared().core.memory.budget);
        Ok(())
    }

    /// Moves the savepoints to an empty write set, and returns it. The new layers follow the
    /// numbers of savepoints in `sections`.
    fn remark(&self, held: &mut Held, before: usize, sections: Vec<usize>) -> SharedWrites {
        let fresh = SharedWrites::default();
        for (number, mark) in held.savepoints.iter_mut().enumerate() {
            mark.writes = fresh.lock().savepoint();
            let earlier = sections.iter().filter(|savepoints| **savepoints <= number);
            let earlier = earlier.count();
            if earlier > 0 {
                mark.layers = before + earlier;
            }
        }
        fresh
    }

    /// Publishes new layers and an empty write set.
    fn add_layers(&self, before: usize, layers: Vec<Arc<Layer>>, fresh: SharedWrites) {
        if let Some(overflow) = self.state.overflow.get() {
            overflow.spilled.replace_from(before, layers);
            overflow.set_writes(fresh);
            return;
        }
        let overflow = Overflow::new(self.id, fresh);
        overflow.spilled.replace_from(before, layers);
        self.shared().row_locks.spilled.add(&overflow.spilled);
        self.state.overflow.get_or_init(|| overflow);
    }

    /// Releases the locks that layers replace. `covered` has the locks of the rows in layers, each
    /// with the number of savepoints before its section.
    fn unlock_covered(&self, held: &mut Held, mut covered: Vec<(LockHash, usize)>) {
        covered.sort_unstable();
        let since = |hash: LockHash| {
            let place = covered.partition_point(|(other, _)| *other < hash);
            let found = covered.get(place).filter(|(other, _)| *other == hash);
            found.map(|(_, savepoints)| *savepoints)
        };
        let table = &self.shared().row_locks.table;
        let mut kept = Vec::new();
        let mut marks = held.savepoints.iter_mut().peekable();
        let mut savepoints = 0;
        for (at, hash) in std::mem::take(&mut held.locks).into_iter().enumerate() {
            while let Some(mark) = marks.next_if(|mark| mark.locks <= at) {
                mark.locks = kept.len();
                savepoints += 1;
            }
            // The layer lasts as long as the lock would.
            if since(hash).is_some_and(|since| since <= savepoints) {
                table.unlock(self.id, hash);
            } else {
                kept.push(hash);
            }
        }
        marks.for_each(|mark| mark.locks = kept.len());
        held.locks = kept;
    }

    /// Merges the newest layers while there are many of one rank after the newest savepoint.
    fn merge_layers(&self, held: &Held) -> Result<()> {
        let Some(overflow) = self.state.overflow.get() else {
            return Ok(());
        };
        let fixed = held.savepoints.last().map_or(0, |mark| mark.layers);
        loop {
            let layers = overflow.spilled.layers();
            let free = &layers[fixed..];
            let Some(rank) = free.last().map(|layer| layer.rank) else {
                return Ok(());
            };
            let same = free.iter().rev().take_while(|layer| layer.rank == rank);
            if same.count() < FAN_IN {
                return Ok(());
            }
            self.merge_from(held, &overflow.spilled, layers.len() - FAN_IN)?;
        }
    }

    /// Merges the layers from index `from` on into one.
    fn merge_from(&self, held: &Held, spilled: &Spilled, from: usize) -> Result<()> {
        let layers = spilled.layers();
        let mut writer = LayerWriter::new(&self.shared().core, &held.trees);
        let merged = &layers[from..];
        self.each_write(held, merged, |tree, key, kind, value| {
            writer.add(tree.id, key, kind, value)
        })?;
        let layer = Layer::merged(writer.finish()?, merged);
        spilled.replace_from(from, vec![Arc::new(layer)]);
        Ok(())
    }

    /// Passes the latest write of each key in `layers` to `emit`, ordered by keyspace, then key.
    fn each_write(
        &self,
        held: &Held,
        layers: &[Arc<Layer>],
        mut emit: impl FnMut(&Arc<Tree>, &[u8], ValueKind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut charge = Charge::new(&self.shared().core.memory.budget, Use::Jobs);
        let mut trees: Vec<&Arc<Tree>> = held.trees.iter().collect();
        trees.sort_unstable_by_key(|tree| tree.id);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for tree in trees {
            let newest_first = layers.iter().rev().filter_map(|layer| layer.table(tree.id));
            let scans = newest_first.map(|table| Stream::tables(vec![table.scan_all(None, None)]));
            let mut streams = Vec::new();
            for stream in scans {
                streams.extend(stream?);
            }
            charge.set(streams.len() * SCAN_BYTES);
            // Set by the newest layer that has the key.
            let mut newest = None;
            while next_key(&mut streams, &mut key, |_, kind, bytes| {
                if newest.is_none() {
                    newest = Some(kind);
                    value.clear();
                    value.extend_from_slice(bytes);
                }
            })? {
                if let Some(kind) = newest.take() {
                    emit(tree, &key, kind, &value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the layers, oldest first; `None` if the transaction was never spilled.
    pub(super) fn layers(&self) -> Option<Layers> {
        let overflow = self.state.overflow.get();
        overflow.map(|overflow| overflow.spilled.layers())
    }

    /// Returns true if some writes are in layers.
    pub(crate) fn has_layers(&self) -> bool {
        self.layers().is_some_and(|layers| !layers.is_empty())
    }

    /// Refuses a range delete in a transaction with layers: it could not hide their rows.
    pub(super) fn check_no_layers(&self) -> Result<()> {
        if self.has_layers() {
            let message = "the transaction is larger than transaction_bytes, and cannot delete ranges any more: delete their keys, or commit first";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(())
    }

    /// Commits a transaction with layers: all writes, also those in memory, become visible as an
    /// ingest does, and are durable.
    pub(super) fn commit_layers(self) -> Result<()> {
        // Before a lock that a thread of a forked child's parent may hold.
        self.shared().core.access.check_writable()?;
        let ingest = self.ingest_layers(&mut self.state.held.lock())?;
        let result = ingest.finish().map(drop);
        self.end();
        result
    }

    /// Prepares a transaction with layers: all writes are in tables that the manifest names.
    pub(super) fn prepare_layers(self, xid: &[u8]) -> Result<PreparedTransaction> {
        let shared = self.shared();
        shared.core.access.check_writable()?;
        let durability = shared.core.durability(self.options.durability)?;
        let Some(overflow) = self.state.overflow.get() else {
            return Err(Error::Internal("a transaction has no layers".into()));
        };
        let mut held = self.state.held.lock();
        let trees = self.ingest_layers(&mut held)?.complete(&shared.core)?;
        // For the decision, which flushes again what is added until then.
        self.db
            .flush_memtables()
            .inspect_err(|_| TreeTables::discard(&shared.core, &trees))?;
        let spilled = Arc::clone(&overflow.spilled);
        let mut state = PreparedState::in_tables(xid, trees, spilled, durability);
        state.locks.clone_from(&held.locks);
        let state = shared.prepare_tables(state)?;
        // Not before: after a failure the tables are gone, and the layers still lock their rows.
        overflow
            .spilled
            .move_to(TreeTables::tables_of(state.trees()));
        held.locks.clear();
        held.gave_layers = true;
        drop(held);
        Ok(self.into_prepared(state))
    }

    /// Merges the writes in layers and in memory into an ingest.
    fn ingest_layers(&self, held: &mut Held) -> Result<Ingest> {
        held.trees.iter().try_for_each(|tree| tree.check())?;
        let writes = self.writes().into_owned();
        if !writes.lock().is_empty() {
            self.spill_held(held, &writes)?;
        }
        let mut ingest = self.db.ingest()?;
        let overflow = self.state.overflow.get();
        if let Some(spilled) = overflow.map(|overflow| &overflow.spilled) {
            // Savepoints no longer keep layers apart.
            while spilled.layers().len() > 2 * FAN_IN {
                let from = spilled.layers().len() - FAN_IN;
                self.merge_from(held, spilled, from)?;
            }
            self.each_write(held, &spilled.layers(), |tree, key, kind, value| {
                ingest.add(tree, key, kind, value)
            })?;
        }
        Ok(ingest)
    }
}
