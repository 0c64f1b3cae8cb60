//! The leader's work: sequence numbers, log records, memtables, publication, and sealing memtables
//! in time.
//!
//! [`Log`] is the leader's state. Its mutex is held by one leader, by the creation or drop of a
//! keyspace, or for a moment by the log's sync thread. Order within a group: log written, synced if
//! asked, applied to the memtables, published. A failed write or sync poisons the database before
//! anything of the group is applied.

use crate::sync::collections::HashMap;
use crate::sync::numbered;
use std::borrow::Cow;
use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId, SeqNo, ValueKind, checksum};
use crate::commit::batch::{Ops, encode_op, writes_a_row_twice};
use crate::commit::prepared::Unresolved;
use crate::commit::queue::{Done, Request};
use crate::commit::validate::RecentWrites;
use crate::compaction::update_admission;
use crate::db::ballast::Taker;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::{Tree, prefix_hash};
use crate::wal::{LateSync, RecordKind, SegmentPlan, WalPosition, WalSync, WalWriter};

/// Memtables of all keyspaces sealed together at one sequence number: the input of one flush.
pub(crate) struct SealedGeneration {
    pub memtables: Vec<(Arc<Tree>, Arc<TreeMemtable>)>,
    /// Newest commit in the memtables.
    pub last_seqno: SeqNo,
    /// Records of the prepared transactions unresolved after `last_seqno`.
    pub prepared: Vec<Arc<[u8]>>,
    pub log: Option<SealedLog>,
    /// Bytes counted for the generation until it is flushed.
    pub bytes: usize,
}

/// State of the log when a generation was sealed.
pub(crate) struct SealedLog {
    /// Oldest segment still needed after the generation is flushed.
    pub oldest_needed: SegmentId,
    /// Makes everything up to the seal durable; `None` if it was read from the device.
    pub syncer: Option<LateSync>,
}

/// Commit pipeline state, guarded by the log's mutex: see the module.
pub(crate) struct Log {
    /// Log writer; `None` if the database keeps no log (durability `None`).
    pub wal: Option<WalWriter>,
    /// Last sequence number assigned.
    pub last_seqno: SeqNo,
    /// Keyspaces that commits may write to.
    pub trees: HashMap<KeyspaceId, Arc<Tree>>,
    /// Position up to which the log is known to be durable; `None` before the first sync of this
    /// session.
    durable: Option<WalPosition>,
    /// Bytes written to the active memtables: keys and values of rows with their overhead, and the
    /// memory of range deletes.
    active_bytes: usize,
    /// Keyspaces with an active memtable.
    written: Vec<Arc<Tree>>,
    /// Bytes that these memtables took when empty: most of the memory of many keyspaces with one
    /// row each.
    fresh_bytes: usize,
    /// Newest horizon known. An older value is safe, so it is refreshed only every `HORIZON_EVERY`
    /// groups.
    horizon: SeqNo,
    groups: u64,
    /// Recent commits that validations under way have not checked yet.
    recent: RecentWrites,
    /// Prepared transactions without a decision.
    pub unresolved: Unresolved,
}

/// Part of the log not known to be durable.
pub(crate) struct Unsynced {
    pub syncer: WalSync,
    /// End of the part that the sync makes durable.
    pub position: WalPosition,
    /// Newest sequence number before `position`.
    pub seqno: SeqNo,
}

/// Memory of an entry in a memtable besides its key and value: record, version, its share of a
/// leaf.
const ENTRY_OVERHEAD: usize = 72;
/// Number of groups between two refreshes of the horizon.
const HORIZON_EVERY: u64 = 32;

impl Log {
    pub fn new(
        wal: Option<WalWriter>,
        last_seqno: SeqNo,
        trees: HashMap<KeyspaceId, Arc<Tree>>,
    ) -> Log {
        Log {
            wal,
            last_seqno,
            trees,
            durable: None,
            active_bytes: 0,
            written: Vec::new(),
            fresh_bytes: 0,
            horizon: 0,
            groups: 0,
            recent: RecentWrites::default(),
            unresolved: Unresolved::default(),
        }
    }

    /// Commits a group. A request that is refused by itself does not affect the others.
    pub fn process(&mut self, shared: &Shared, group: &[Arc<Request>]) -> Vec<Result<Done>> {
        let processed = self.try_process(shared, group);
        processed.unwrap_or_else(|error| group.iter().map(|_| Err(error.clone())).collect())
    }

    fn try_process(
        &mut self,
        shared: &Shared,
        group: &[Arc<Request>],
    ) -> Result<Vec<Result<Done>>> {
        // Under the log's mutex: a commit that passed its first check before the database was
        // closed stops here.
        shared.check_open()?;
        shared.poison.check()?;
        self.make_room(shared)?;
        // The wait for room may have ended because a flush failed.
        shared.poison.check()?;
        let (results, admitted) = self.admit_group(shared, group);
        if admitted.is_empty() {
            return Ok(results);
        }
        self.write_or_spend(shared, &admitted)?;
        if self.groups.is_multiple_of(HORIZON_EVERY) {
            self.horizon = shared.read_points.horizon();
        }
        self.groups += 1;
        for request in admitted.iter() {
            self.last_seqno += 1;
            self.apply(self.last_seqno, request.ops()).map_err(|()| {
                shared.poison.set(Error::Internal(
                    "a commit's own payload does not decode".into(),
                ))
            })?;
            if let Some((phase, state)) = &request.phase {
                self.note_phase(*phase, state);
                self.unresolved.charge(&shared.memory.budget);
            }
            self.recent
                .applied(&shared.validating, self.last_seqno, request);
        }
        shared.publish(self.last_seqno);
        if self.wants_segment(shared) {
            shared.wake_syncer();
        }
        Ok(results)
    }

    /// Decides which commits of a group are admitted, and the result of each.
    fn admit_group<'a>(
        &self,
        shared: &Shared,
        group: &'a [Arc<Request>],
    ) -> (Vec<Result<Done>>, Cow<'a, [Arc<Request>]>) {
        if group.iter().all(|request| request.is_plain()) {
            let seqnos = (self.last_seqno + 1..).take(group.len());
            let results = seqnos.map(|seqno| Ok(Done::At(seqno))).collect();
            return (results, Cow::Borrowed(group));
        }
        let mut admitted: Vec<Arc<Request>> = Vec::with_capacity(group.len());
        let mut results = Vec::with_capacity(group.len());
        for request in group {
            results.push(match self.admit(shared, request, &admitted) {
                Ok(true) => {
                    admitted.push(Arc::clone(request));
                    Ok(Done::At(self.last_seqno + admitted.len() as SeqNo))
                }
                Ok(false) => Ok(Done::LookAgain),
                Err(error) => Err(error),
            });
        }
        (results, Cow::Owned(admitted))
    }

    fn admit(&self, shared: &Shared, request: &Request, before: &[Arc<Request>]) -> Result<bool> {
        if let Some((phase, state)) = &request.phase {
            self.admit_phase(shared, *phase, state, before)?;
        }
        match &request.validation {
            Some(validation) => validation.validate(&self.recent, self.last_seqno, before),
            None => Ok(true),
        }
    }

    /// Writes the records of a group. If the device is full and every request of the group makes
    /// room, spends the ballast file and writes again.
    fn write_or_spend(&mut self, shared: &Shared, group: &[Arc<Request>]) -> Result<()> {
        match self.write_records(shared, group) {
            Err(error) if error.lacks_descriptors() && shared.open_files.close_some() => {
                self.write_records(shared, group)
            }
            Err(error @ Error::NoSpace { .. }) => {
                let makes_room = group.iter().all(|request| request.makes_room());
                // Other requests succeed at a later try, after background work has made room.
                let taker = if makes_room {
                    Taker::Log
                } else {
                    Taker::Background
                };
                if shared.spend_ballast(taker, &error) && makes_room {
                    self.write_records(shared, group)
                } else {
                    Err(error)
                }
            }
            result => result,
        }
    }

    fn write_records(&mut self, shared: &Shared, group: &[Arc<Request>]) -> Result<()> {
        for (seqno, request) in (self.last_seqno + 1..).zip(group) {
            numbered(seqno, request.ops());
        }
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        wal.use_short_segments(shared.ballast.is_low());
        for (seqno, request) in (self.last_seqno + 1..).zip(group) {
            let (kind, payload) = request.record();
            wal.append(seqno, kind, payload);
        }
        let wal_bytes = wal.pending_bytes();
        // A full device fails this group alone: its records must not be written with the next
        // group.
        shared
            .poison
            .guard(wal.write())
            .inspect_err(|_| wal.discard())?;
        shared.metrics.wal_bytes.add(wal_bytes);
        if group.iter().any(|r| r.durability == Durability::Sync) {
            self.sync(shared)?;
        }
        Ok(())
    }

    /// Returns true if the log may soon roll and the next segment is not prepared.
    fn wants_segment(&self, shared: &Shared) -> bool {
        let soon = self.active_bytes >= shared.plan().worth_sealing_bytes();
        let wal = self.wal.as_ref();
        !shared.ballast.is_low() && wal.is_some_and(|wal| wal.wants_plan(soon))
    }

    /// Returns the segment for the sync thread to prepare for the next roll, if it is time.
    pub fn plan_segment(&mut self, shared: &Shared, ample_space: bool) -> Option<SegmentPlan> {
        if let Some(wal) = &mut self.wal {
            wal.set_ample_space(ample_space);
        }
        if self.wants_segment(shared) {
            self.wal.as_mut()?.plan_next()
        } else {
            None
        }
    }

    /// Writes a marker of a keyspace change into the log and syncs everything up to it. The
    /// manifest edit that follows thus never overtakes earlier commits.
    pub fn mark_ddl(&mut self, shared: &Shared, payload: &[u8]) -> Result<SeqNo> {
        self.mark_ddls(shared, &[payload])
    }

    /// Does the same as [`Log::mark_ddl`] for several markers with consecutive numbers and one
    /// sync. Returns the last number.
    pub fn mark_ddls(&mut self, shared: &Shared, payloads: &[&[u8]]) -> Result<SeqNo> {
        let seqno = self.mark(shared, RecordKind::Ddl, payloads)?;
        shared.publish(seqno);
        Ok(seqno)
    }

    /// Does the same as [`Log::mark_ddl`] for an ingest; its tables get the returned number. The
    /// caller publishes the number after installing the tables.
    pub fn mark_ingest(&mut self, shared: &Shared, payload: &[u8]) -> Result<SeqNo> {
        self.mark(shared, RecordKind::Ingest, &[payload])
    }

    /// Writes markers and syncs them. Returns the number of the last marker.
    fn mark(&mut self, shared: &Shared, kind: RecordKind, payloads: &[&[u8]]) -> Result<SeqNo> {
        shared.check_open()?;
        shared.poison.check()?;
        let first = self.last_seqno + 1;
        let last = self.last_seqno + payloads.len() as SeqNo;
        (first..=last).for_each(|seqno| numbered(seqno, &[]));
        if let Some(wal) = &mut self.wal {
            wal.use_short_segments(shared.ballast.is_low());
            for (seqno, payload) in (first..=last).zip(payloads) {
                wal.append(seqno, kind, payload);
            }
            let written = shared.with_ballast(Taker::Log, || wal.write());
            shared
                .poison
                .guard(written)
                .inspect_err(|_| wal.discard())?;
            self.sync(shared)?;
        }
        self.last_seqno = last;
        Ok(last)
    }

    /// Makes every record written so far durable.
    pub fn sync(&mut self, shared: &Shared) -> Result<()> {
        shared.poison.check()?;
        if let Some(unsynced) = self.unsynced() {
            let synced = shared.metrics.timed_sync(|| unsynced.syncer.sync());
            shared.poison.guard(synced)?;
            self.note_durable(unsynced.position);
            shared.note_durable(unsynced.seqno);
        }
        Ok(())
    }

    /// Returns the part of the log not known to be durable; `None` if everything is durable.
    pub fn unsynced(&self) -> Option<Unsynced> {
        let wal = self.wal.as_ref()?;
        let position = wal.position();
        (self.durable < Some(position)).then(|| Unsynced {
            syncer: wal.syncer(),
            position,
            seqno: wal.last_written(),
        })
    }

    /// Records that the log is durable up to `position`; later records carry this position.
    pub fn note_durable(&mut self, position: WalPosition) {
        self.durable = self.durable.max(Some(position));
        if let Some(wal) = &mut self.wal {
            wal.note_durable(position);
        }
    }

    /// Applies a logged commit at recovery, without operations that are already in their keyspace's
    /// tables. Operations on dropped keyspaces are skipped. An operation on a keyspace that never
    /// existed is damage, described in the error.
    pub fn replay(
        &mut self,
        seqno: SeqNo,
        payload: &[u8],
        next_keyspace: KeyspaceId,
        flushed: &dyn Fn(KeyspaceId) -> SeqNo,
    ) -> Result<(), String> {
        let mut kept = Vec::new();
        for op in Ops::new(payload) {
            let op = op.map_err(|()| "a malformed operation".to_owned())?;
            if op.keyspace >= next_keyspace {
                return Err(format!("{}, never created,", op.keyspace));
            }
            if seqno > flushed(op.keyspace) {
                encode_op(&mut kept, &op);
            }
        }
        if writes_a_row_twice(&kept) {
            return Err("a row that is written twice".to_owned());
        }
        self.apply(seqno, &kept)
            .map_err(|()| "a malformed operation".to_owned())
    }

    /// Returns the bytes in the active memtables, overhead included.
    pub fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// Applies a commit's payload to the active memtables. Operations on dropped keyspaces are
    /// skipped, as at replay. The caller publishes afterwards.
    pub fn apply(&mut self, seqno: SeqNo, payload: &[u8]) -> Result<(), ()> {
        let mut ops = Ops::new(payload).peekable();
        while let Some(op) = ops.next() {
            let first = op?;
            let Some(tree) = self.trees.get(&first.keyspace) else {
                continue;
            };
            let mut state = tree.load();
            if state.active.is_none() {
                self.fresh_bytes += tree.activate(self.trees.len());
                self.written.push(Arc::clone(tree));
                state = tree.load();
            }
            let active = state.active.as_ref().expect("made by the leader just now");
            let mut writer = active.rows.writer();
            let (mut op, mut user_bytes) = (first, 0);
            let mut revives = None;
            let mut ranges = Vec::new();
            loop {
                if !matches!(op.kind, ValueKind::Delete | ValueKind::RangeDelete)
                    && *revives.get_or_insert_with(|| tree.dead.putting(seqno))
                {
                    tree.dead.revive(op.key);
                }
                if op.kind == ValueKind::RangeDelete {
                    ranges.push((op.key, op.value));
                } else {
                    let hash = checksum::key_hash(op.key);
                    let prefix = prefix_hash(&active.rows, op.key);
                    let kind = covering(active, op.kind, op.key, hash);
                    writer.insert(
                        op.key,
                        hash,
                        prefix,
                        seqno,
                        kind as u8,
                        op.value,
                        self.horizon,
                    );
                    self.active_bytes += ENTRY_OVERHEAD + op.key.len() + op.value.len();
                }
                user_bytes += (op.key.len() + op.value.len()) as u64;
                match ops.next_if(|next| next.is_ok_and(|next| next.keyspace == first.keyspace)) {
                    Some(next) => op = next?,
                    None => break,
                }
            }
            if !ranges.is_empty() {
                self.active_bytes += active.delete_ranges(ranges, seqno);
            }
            active.charge();
            tree.counters.user_bytes.add(user_bytes);
        }
        Ok(())
    }

    /// Seals full memtables; waits for a flush at the hard ceiling. Bounded flush priority and
    /// admission control make that wait unreachable. It is counted, because reaching it is a
    /// defect.
    fn make_room(&mut self, shared: &Shared) -> Result<()> {
        let plan = shared.plan();
        if self.active_bytes >= plan.active_bytes || self.fresh_bytes >= plan.fresh_bytes() {
            self.seal(shared)?;
            shared.wait_for_flush_below_ceiling()?;
        }
        Ok(())
    }

    /// Seals all non-empty memtables as one generation and queues it for flush. The log rolls to a
    /// new segment first. The flush thread syncs the log before it installs tables, so a flush
    /// never overtakes the log.
    pub fn seal(&mut self, shared: &Shared) -> Result<()> {
        if self.active_bytes == 0 {
            return Ok(());
        }
        // A commit's record may be in the log although the commit failed, because another write
        // failed before its sync. Carrying over would then write the prepare again after the record
        // that resolves it.
        shared.poison.check()?;
        if let Some(wal) = &mut self.wal {
            let rotated = shared.with_ballast(Taker::Log, || {
                wal.use_short_segments(shared.ballast.is_low());
                wal.rotate()
            });
            shared.poison.guard(rotated)?;
        }
        // Before the flush can start that makes older segments removable.
        self.carry_prepared(shared)?;
        let log = self.wal.as_ref().map(|wal| SealedLog {
            oldest_needed: wal.position().segment,
            syncer: Some(wal.late_syncer()),
        });
        shared.queue_flush(self.sealed_generation(log));
        // Sealed memtables are backlog too, and the flush thread may be in the middle of a long
        // flush.
        update_admission(shared);
        Ok(())
    }

    /// Takes the active memtables out of the trees.
    pub fn sealed_generation(&mut self, log: Option<SealedLog>) -> SealedGeneration {
        self.fresh_bytes = 0;
        let written = std::mem::take(&mut self.active_bytes);
        // Memtables of keyspaces dropped meanwhile are missing: a drop removes them from the state.
        let trees = std::mem::take(&mut self.written).into_iter();
        let sealed = trees.filter_map(|tree| {
            let memtable = tree.seal()?;
            Some((tree, memtable))
        });
        let memtables: Vec<_> = sealed.collect();
        let held = memtables.iter().map(|(_, m)| m.bytes()).sum();
        // If keyspaces are gone, or memtables took less than was counted, the log still holds all
        // of it until the flush.
        let bytes = (written / 2).max(held);
        SealedGeneration {
            memtables,
            last_seqno: self.last_seqno,
            prepared: self.unresolved.bodies(),
            log,
            bytes,
        }
    }
}

/// Returns the kind to store: an insert becomes a put if the memtable already has an entry for its
/// key. The memtable may later drop the older version, which is a delete if the caller used
/// `insert` correctly. Nothing would then show that a delete of this insert must stay to hide rows
/// in tables.
fn covering(memtable: &TreeMemtable, kind: ValueKind, key: &[u8], hash: u64) -> ValueKind {
    let present = kind == ValueKind::Insert && memtable.get(key, hash, SeqNo::MAX).is_some();
    if present { ValueKind::Put } else { kind }
}
