//! Layers: writes that a transaction has moved out of its memory into temporary tables.
//!
//! A layer holds writes of the time between two savepoints, so that a rollback removes whole
//! layers. It has at most one table for each keyspace, with each key once. Entries have no sequence
//! numbers: of two layers the later one is newer. The kinds are put and delete.
//!
//! The list of layers is shared with cursors and with other transactions: their requests for row
//! locks look for the rows in it, see [`Spilled`].

use std::sync::{Arc, Weak};

use crate::base::{KeyspaceId, SeqNo, ValueKind, checksum};
use crate::error::Result;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::plain::Mutex;
use crate::table::{PinnedValue, Table, TableCursor};
use crate::txn::lock_table::{LockHash, LockTable, TxnId};
use crate::txn::write_set::SharedWrites;

/// Writes of a part of a transaction, in temporary tables that are removed with the layer.
#[derive(Default)]
pub(crate) struct Layer {
    /// Tables by keyspace, in its order.
    tables: Vec<(KeyspaceId, Arc<Table>)>,
    /// Layers that a merge has replaced by this one; cursors may still have them.
    merged: Vec<Weak<Layer>>,
    /// Number of merges that each of its writes went through.
    pub rank: u32,
    /// Set by a rollback, for cursors that still have the layer. Relaxed: a cursor that is used
    /// during a rollback may see either state.
    undone: AtomicBool,
}

/// Layers, oldest first.
pub(crate) type Layers = Arc<[Arc<Layer>]>;

impl Layer {
    /// Creates a layer of writes from memory.
    pub fn new(tables: Vec<(KeyspaceId, Arc<Table>)>) -> Layer {
        Layer {
            tables,
            ..Layer::default()
        }
    }

    /// Creates a layer with the latest writes of `layers`.
    pub fn merged(tables: Vec<(KeyspaceId, Arc<Table>)>, layers: &[Arc<Layer>]) -> Layer {
        let rank = layers.iter().map(|layer| layer.rank).max();
        Layer {
            tables,
            merged: layers.iter().map(Arc::downgrade).collect(),
            rank: rank.unwrap_or(0) + 1,
            undone: AtomicBool::new(false),
        }
    }

    /// Returns the table with the writes of a keyspace.
    pub fn table(&self, keyspace: KeyspaceId) -> Option<&Arc<Table>> {
        let place = self.tables.binary_search_by_key(&keyspace, |(id, _)| *id);
        place.ok().map(|place| &self.tables[place].1)
    }

    /// Returns a cursor over the writes of a keyspace.
    pub fn cursor(&self, keyspace: KeyspaceId) -> Option<TableCursor> {
        self.table(keyspace).map(|table| table.cursor(SeqNo::MAX))
    }

    pub fn is_undone(&self) -> bool {
        self.undone.load(Ordering::Relaxed)
    }

    fn undo(&self) {
        self.undone.store(true, Ordering::Relaxed);
        let merged = self.merged.iter().filter_map(Weak::upgrade);
        merged.for_each(|layer| layer.undo());
    }
}

/// Layers of one open transaction.
///
/// The rows in layers are locked exclusively, but have no entry in the lock table: a transaction of
/// ten million rows would need more memory for its locks than for anything else. Instead, an owner
/// that is granted a lock there looks for the row in the layers of all such transactions. If it is
/// found, the owner gives the lock to that transaction ([`Spilled::take_lock`]) and waits for it.
pub(crate) struct Spilled {
    owner: TxnId,
    /// Guards the list, which is replaced as a whole. A leaf in the lock order.
    layers: Mutex<Layers>,
    /// Held while a lock changes hands. Taken before a shard of the lock table.
    taken: Mutex<Taken>,
}

/// Locks that other owners have given to a transaction.
#[derive(Default)]
struct Taken {
    locks: Vec<LockHash>,
    /// The transaction has ended; it takes no locks any more.
    ended: bool,
}

impl Spilled {
    pub fn new(owner: TxnId) -> Spilled {
        Spilled {
            owner,
            layers: Mutex::new(Arc::new([])),
            taken: Mutex::default(),
        }
    }

    /// Creates the list of a prepared transaction: each of its tables is a layer.
    pub fn in_tables(
        owner: TxnId,
        tables: impl Iterator<Item = (KeyspaceId, Arc<Table>)>,
    ) -> Spilled {
        let spilled = Spilled::new(owner);
        spilled.move_to(tables);
        spilled
    }

    pub fn owner(&self) -> TxnId {
        self.owner
    }

    pub fn layers(&self) -> Layers {
        Arc::clone(&self.layers.lock())
    }

    /// Replaces all layers by tables with the same rows, each of which becomes a layer.
    pub fn move_to(&self, tables: impl Iterator<Item = (KeyspaceId, Arc<Table>)>) {
        let layers = tables.map(|table| Arc::new(Layer::new(vec![table])));
        self.replace_from(0, layers.collect());
    }

    /// Replaces the layers from index `from` on.
    pub fn replace_from(&self, from: usize, with: Vec<Arc<Layer>>) {
        let mut layers = self.layers.lock();
        let kept = layers.iter().take(from).cloned();
        let replaced: Layers = kept.chain(with).collect();
        // The former list, and with it tables, are freed after the mutex.
        let former = std::mem::replace(&mut *layers, replaced);
        drop(layers);
        drop(former);
    }

    /// Removes the layers from index `from` on, because their writes were rolled back.
    pub fn undo_from(&self, from: usize) {
        for layer in self.layers().iter().skip(from) {
            layer.undo();
        }
        self.replace_from(from, Vec::new());
    }

    /// Returns the latest write of a key. Errors as for a lookup in a table.
    pub fn get(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<(ValueKind, PinnedValue)>> {
        let hash = checksum::key_hash(key);
        for layer in self.layers().iter().rev() {
            let Some(table) = layer.table(keyspace) else {
                continue;
            };
            if let Some(found) = table.get(key, hash, SeqNo::MAX)? {
                return Ok(Some((found.kind, found.value)));
            }
        }
        Ok(None)
    }

    /// Returns true if the layers have a write of the key. Errors as for a lookup in a table.
    fn writes(&self, keyspace: KeyspaceId, key: &[u8]) -> Result<bool> {
        let hash = checksum::key_hash(key);
        for layer in self.layers().iter() {
            if let Some(table) = layer.table(keyspace)
                && table.newest_seqno(key, hash)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the transaction the owner of a lock that was just granted to `from`. Returns false if
    /// the transaction has ended: then `from` keeps the lock.
    pub fn take_lock(&self, table: &LockTable, hash: LockHash, from: TxnId) -> bool {
        let mut taken = self.taken.lock();
        if taken.ended {
            return false;
        }
        table.hand_over(hash, from, self.owner);
        taken.locks.push(hash);
        true
    }

    /// Ends the taking of locks, and returns the taken ones.
    pub fn give_locks(&self) -> Vec<LockHash> {
        let mut taken = self.taken.lock();
        taken.ended = true;
        std::mem::take(&mut taken.locks)
    }

    /// Ends the taking of locks, and releases the taken ones. The transaction is no longer listed,
    /// and its commit is visible if it has one.
    fn end(&self, table: &LockTable) {
        table.unlock_all(self.owner, &self.give_locks());
    }
}

/// Layers of a transaction, and its writes since the last spill.
pub(crate) struct Overflow {
    pub spilled: Arc<Spilled>,
    /// Guards the choice of the write set, which has a mutex of its own. A leaf in the lock order.
    writes: Mutex<SharedWrites>,
}

impl Overflow {
    pub fn new(owner: TxnId, writes: SharedWrites) -> Overflow {
        Overflow {
            spilled: Arc::new(Spilled::new(owner)),
            writes: Mutex::new(writes),
        }
    }

    /// Returns the writes since the last spill.
    pub fn writes(&self) -> SharedWrites {
        Arc::clone(&self.writes.lock())
    }

    /// Begins another write set; open cursors keep the former one.
    pub fn set_writes(&self, writes: SharedWrites) {
        *self.writes.lock() = writes;
    }
}

/// Open transactions with layers.
#[derive(Default)]
pub(crate) struct SpilledTransactions {
    /// Length of the list. Relaxed: a transaction enters the list before it releases the lock of a
    /// row in the lock table. The mutex there brings the number to the next owner of that lock.
    count: AtomicUsize,
    /// Guards the list. A leaf in the lock order.
    list: Mutex<Vec<Arc<Spilled>>>,
}

impl SpilledTransactions {
    /// Returns true if there is none. A request for a lock asks this after it was granted.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub fn add(&self, spilled: &Arc<Spilled>) {
        let mut list = self.list.lock();
        list.push(Arc::clone(spilled));
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Removes a transaction that has ended, and releases the locks that it was given.
    pub fn end(&self, spilled: &Arc<Spilled>, table: &LockTable) {
        let mut list = self.list.lock();
        list.retain(|other| !Arc::ptr_eq(other, spilled));
        self.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        spilled.end(table);
    }

    /// Returns a transaction other than `owner` with a write of the row in its layers. Errors as
    /// for a lookup in a table.
    pub fn writer_of(
        &self,
        owner: TxnId,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<Arc<Spilled>>> {
        let list = self.list.lock().clone();
        for spilled in list {
            if spilled.owner != owner && spilled.writes(keyspace, key)? {
                return Ok(Some(spilled));
            }
        }
        Ok(None)
    }
}
