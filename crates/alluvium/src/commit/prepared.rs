//! Prepared transactions in the log: durable, but neither applied nor visible until a coordinator
//! has decided.
//!
//! A prepare record holds the transaction's id and its operations. So does its commit record:
//! replay applies only the commit record, and a memtable with the commit never depends on the
//! segment of the prepare. An unresolved prepare depends only on its own record. Whenever memtables
//! are sealed, the log rolls to a new segment. All unresolved prepares are written into it again.
//! The flush syncs them before it removes the older segments. Recovery also writes them into its
//! first segment if its replay sealed memtables, or if the manifest holds prepares, as that of a
//! copy does. If the device has no room for that, the segments of their records stay until the next
//! seal. A repeated prepare record changes nothing. If the last segments of the log contain
//! only such repeated records, the next open removes them, but never the oldest segment still
//! needed.
//!
//! The log keeps room in its current segment for the decisions on all unresolved prepares, so a
//! decision is written even if the device is full. A prepare that finds no such room is refused.
//!
//! A transaction that does not fit into memory is prepared in tables instead: the manifest names
//! them and its id, and the log has no record of it. Its commit installs the tables as an
//! ingest does (`db/prepared_tables.rs`).
//!
//! The list of unresolved prepares is guarded by the log's mutex and changes in log order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::coding::{Decoder, put_bytes};
use crate::base::{KeyspaceId, SegmentId, SeqNo, XID_BYTES_MAX};
use crate::commit::payload::Ops;
use crate::compaction::output::TreeTables;
use crate::db::options::Durability;
use crate::error::{Error, Result};
use crate::memory::{Charge, MemoryBudget, Use};
use crate::txn::layers::Spilled;
use crate::txn::lock_table::{LockHash, TxnId};
use crate::wal::{RecordKind, WalWriter, frame_bytes};

/// Prepared transaction, shared by the log and the handle that resolves it.
pub(crate) struct PreparedState {
    pub xid: Vec<u8>,
    /// Payload of its record: the id, then the operations. A sealed generation shares it, so that a
    /// checkpoint or backup can store it.
    body: Arc<[u8]>,
    /// Offset of the operations in `body`.
    ops_at: usize,
    /// Keyspaces that it writes to, each once.
    pub keyspaces: Vec<KeyspaceId>,
    /// Durability of its commit.
    pub durability: Durability,
    /// Owner of its row locks.
    pub owner: TxnId,
    pub locks: Vec<LockHash>,
    /// Its writes, if they are in tables instead of the log.
    pub in_tables: Option<InTables>,
}

/// Writes of a prepared transaction in tables that the manifest names.
pub(crate) struct InTables {
    pub trees: Vec<TreeTables>,
    /// The tables as layers: other transactions look for locked rows there.
    pub spilled: Arc<Spilled>,
}

/// Step of a prepared transaction that a request performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Prepare,
    Commit,
    Rollback,
}

/// Unresolved prepared transactions of a database.
#[derive(Default)]
pub(crate) struct Unresolved {
    by_xid: BTreeMap<Vec<u8>, Slot>,
    bytes: usize,
    /// Bytes that the records of all decisions take in the log.
    decision_bytes: u64,
    /// Memory charge for `bytes`; `None` before the first prepared transaction.
    charge: Option<Charge>,
}

struct Slot {
    state: Arc<PreparedState>,
    /// True while a handle that can resolve it exists.
    taken: bool,
    /// Segments from which recovery has read the record, oldest first.
    read_from: Vec<SegmentId>,
}

impl PreparedState {
    /// Creates the state of a transaction before its prepare record is written. The caller sets its
    /// owner and locks.
    pub fn new(xid: &[u8], ops: &[u8], durability: Durability) -> PreparedState {
        let mut body = Vec::with_capacity(xid.len() + ops.len() + 2);
        put_bytes(&mut body, xid);
        let ops_at = body.len();
        body.extend_from_slice(ops);
        let mut keyspaces: Vec<KeyspaceId> = Vec::new();
        for op in Ops::new(ops).map_while(Result::ok) {
            if !keyspaces.contains(&op.keyspace) {
                keyspaces.push(op.keyspace);
            }
        }
        PreparedState {
            xid: xid.to_vec(),
            body: body.into(),
            ops_at,
            keyspaces,
            durability,
            owner: TxnId(0),
            locks: Vec::new(),
            in_tables: None,
        }
    }

    /// Creates the state of a transaction that is prepared in tables. The caller sets its locks.
    pub fn in_tables(
        xid: &[u8],
        trees: Vec<TreeTables>,
        spilled: Arc<Spilled>,
        durability: Durability,
    ) -> PreparedState {
        PreparedState {
            keyspaces: trees.iter().map(|part| part.tree.id).collect(),
            owner: spilled.owner(),
            in_tables: Some(InTables { trees, spilled }),
            ..PreparedState::new(xid, &[], durability)
        }
    }

    /// Returns the operations.
    pub fn ops(&self) -> &[u8] {
        &self.body[self.ops_at..]
    }

    /// Returns its tables; empty if its writes are in the log.
    pub fn trees(&self) -> &[TreeTables] {
        let of = self.in_tables.as_ref();
        of.map_or(&[], |in_tables| &in_tables.trees)
    }

    /// Returns true if the log has its prepare record.
    fn is_logged(&self) -> bool {
        self.in_tables.is_none()
    }

    /// Returns the most bytes that the record of its decision takes in the log: those of a commit.
    pub fn decision_bytes(&self) -> u64 {
        match self.is_logged() {
            true => frame_bytes(self.body.len()) as u64,
            false => 0,
        }
    }

    /// Returns the record of a phase: its kind and payload.
    pub fn record(&self, phase: Phase) -> (RecordKind, &[u8]) {
        match phase {
            Phase::Prepare => (RecordKind::Prepare, &self.body),
            Phase::Commit => (RecordKind::CommitPrepared, &self.body),
            Phase::Rollback => (RecordKind::Rollback, &self.body[..self.ops_at]),
        }
    }
}

/// Splits a record's payload into the id and the operations; `None` if it is malformed.
pub(crate) fn decode(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut d = Decoder::new(payload);
    let xid = d.bytes().filter(|xid| xid.len() <= XID_BYTES_MAX)?;
    Some((xid, d.rest()))
}

impl Unresolved {
    /// Returns true if this prepare record is already known.
    pub fn knows(&self, body: &[u8]) -> bool {
        let slot = decode(body).and_then(|(xid, _)| self.by_xid.get(xid));
        slot.is_some_and(|slot| *slot.state.body == *body)
    }

    pub fn is_empty(&self) -> bool {
        self.by_xid.is_empty()
    }

    /// Returns the bytes that the records of all decisions take in the log.
    pub fn decision_bytes(&self) -> u64 {
        self.decision_bytes
    }

    /// Charges the memory that the prepared transactions take now.
    pub fn charge(&mut self, budget: &Arc<MemoryBudget>) {
        if self.bytes > 0 || self.charge.is_some() {
            let charge = self
                .charge
                .get_or_insert_with(|| Charge::new(budget, Use::Prepared));
            charge.set(self.bytes);
        }
    }

    /// Returns all of them in the order of their ids.
    pub fn states(&self) -> impl Iterator<Item = &Arc<PreparedState>> {
        self.by_xid.values().map(|slot| &slot.state)
    }

    /// Returns those that have a prepare record in the log.
    fn logged(&self) -> impl Iterator<Item = &Arc<PreparedState>> {
        self.states().filter(|state| state.is_logged())
    }

    /// Appends their prepare records to the next group of the log.
    pub fn append_to(&self, wal: &mut WalWriter, seqno: SeqNo) {
        for state in self.logged() {
            let (kind, body) = state.record(Phase::Prepare);
            wal.append(seqno, kind, body);
        }
    }

    /// Returns the payloads of their prepare records, for a sealed generation or a copy of the
    /// database.
    pub fn bodies(&self) -> Vec<Arc<[u8]>> {
        self.logged().map(|state| Arc::clone(&state.body)).collect()
    }

    /// Returns a prepared transaction that writes to a keyspace, if there is one.
    pub fn writer_of(&self, keyspace: KeyspaceId) -> Option<&PreparedState> {
        let mut states = self.states().map(|state| &**state);
        states.find(|state| state.keyspaces.contains(&keyspace))
    }

    pub fn add(&mut self, state: Arc<PreparedState>, taken: bool) {
        self.remove(&state.xid);
        self.bytes += state.body.len();
        self.decision_bytes += state.decision_bytes();
        let slot = Slot {
            taken,
            read_from: Vec::new(),
            state,
        };
        self.by_xid.insert(slot.state.xid.clone(), slot);
    }

    /// Adds a transaction that recovery has read from a segment, or from the manifest.
    pub fn add_read(&mut self, state: Arc<PreparedState>, segment: Option<SegmentId>) {
        let xid = state.xid.clone();
        let known = self.by_xid.get_mut(&xid);
        let mut read_from = known.map_or_else(Vec::new, |slot| std::mem::take(&mut slot.read_from));
        read_from.extend(segment);
        self.add(state, false);
        if let Some(slot) = self.by_xid.get_mut(&xid) {
            slot.read_from = read_from;
        }
    }

    /// Returns the oldest segment that must stay if recovery writes no record again, and removes
    /// the segments above `newest`.
    pub fn oldest_needed(&self, newest: SegmentId) -> Option<SegmentId> {
        let kept = |slot: &Slot| slot.read_from.iter().rfind(|&&s| s <= newest).copied();
        self.by_xid.values().filter_map(kept).min()
    }

    pub fn remove(&mut self, xid: &[u8]) {
        if let Some(slot) = self.by_xid.remove(xid) {
            self.bytes -= slot.state.body.len();
            self.decision_bytes -= slot.state.decision_bytes();
        }
    }

    /// Takes a prepared transaction for a handle. Fails with `InvalidArgument` if the id is unknown
    /// or another handle has it.
    pub fn take(&mut self, xid: &[u8]) -> Result<Arc<PreparedState>> {
        let slot = self.by_xid.get_mut(xid);
        if let Some(slot) = slot.filter(|slot| !slot.taken) {
            slot.taken = true;
            return Ok(Arc::clone(&slot.state));
        }
        let message = format!(
            "no transaction is prepared as {}, or a handle of it is in use",
            xid.escape_ascii()
        );
        Err(Error::InvalidArgument(message))
    }

    /// Takes an unresolved prepared transaction back from its handle.
    pub fn give_back(&mut self, state: &Arc<PreparedState>) {
        if let Some(slot) = self.by_xid.get_mut(&state.xid) {
            slot.taken &= !Arc::ptr_eq(&slot.state, state);
        }
    }

    /// Calls `lock` on each state that recovery found, to set its owner and its row locks.
    pub fn lock_all(&mut self, mut lock: impl FnMut(&mut PreparedState)) {
        for slot in self.by_xid.values_mut() {
            // No other thread has a state yet.
            if let Some(state) = Arc::get_mut(&mut slot.state) {
                lock(state);
            }
        }
    }

    /// Returns true if this transaction is unresolved; false if another one has taken its id since.
    pub fn has(&self, state: &Arc<PreparedState>) -> bool {
        let slot = self.by_xid.get(&state.xid);
        slot.is_some_and(|slot| Arc::ptr_eq(&slot.state, state))
    }

    /// Refuses an impossible prepare before anything is written: the id is in use, or all prepared
    /// transactions together would exceed `limit` bytes. `others` are prepared before it in the
    /// same group.
    pub fn admit_prepare<'a>(
        &self,
        state: &PreparedState,
        others: impl Iterator<Item = &'a PreparedState>,
        limit: usize,
    ) -> Result<()> {
        let mut bytes = self.bytes + state.body.len();
        let mut known = self.by_xid.contains_key(&state.xid);
        for other in others {
            known |= other.xid == state.xid;
            bytes += other.body.len();
        }
        if known {
            let message = format!(
                "a transaction is prepared as {} already",
                state.xid.escape_ascii()
            );
            return Err(Error::InvalidArgument(message));
        }
        if bytes > limit {
            Err(Error::TransactionTooLarge { bytes, limit })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ValueKind;
    use crate::commit::payload::{Op, encode_op};
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn records_round_trip_and_cut_ones_are_refused() {
        let mut ops = Vec::new();
        let op = Op {
            kind: ValueKind::Put,
            keyspace: KeyspaceId(3),
            key: b"k",
            value: b"v",
        };
        encode_op(&mut ops, &op);
        let state = PreparedState::new(b"an id", &ops, Durability::Sync);
        assert_eq!(state.keyspaces, [KeyspaceId(3)]);
        assert_eq!(state.ops(), ops);
        for phase in [Phase::Prepare, Phase::Commit] {
            let (_, body) = state.record(phase);
            assert_eq!(decode(body), Some((&b"an id"[..], &ops[..])));
        }
        let (_, body) = state.record(Phase::Rollback);
        assert_eq!(decode(body), Some((&b"an id"[..], &[][..])));
        assert!((0..body.len()).all(|cut| decode(&body[..cut]).is_none()));
    }

    #[test]
    fn the_newest_record_that_stays_decides_on_the_oldest_segment() {
        let mut unresolved = Unresolved::default();
        for (xid, segment) in [("a", 5), ("b", 6), ("a", 8), ("b", 8)] {
            let state = PreparedState::new(xid.as_bytes(), b"", Durability::Sync);
            unresolved.add_read(Arc::new(state), Some(SegmentId(segment)));
        }
        let oldest = |newest| unresolved.oldest_needed(SegmentId(newest));
        assert_eq!([7, 8].map(oldest), [5, 8].map(|id| Some(SegmentId(id))));
    }

    #[test]
    fn fuzz_records_are_refused_or_round_trip() {
        let state = |xid: &[u8], ops: &[u8]| PreparedState::new(xid, ops, Durability::Sync);
        let states = [
            state(b"an id", b""),
            state(&[7; XID_BYTES_MAX], b"some bytes"),
        ];
        let samples = states.map(|state| state.body.to_vec());
        fuzz_decoder("records of prepared transactions", &samples, 8, |payload| {
            if let Some((xid, ops)) = decode(payload) {
                assert_eq!(decode(&state(xid, ops).body), Some((xid, ops)));
            }
        });
    }
}
