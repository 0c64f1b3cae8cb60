//! The leader's work: sequence numbers, log records, memtables, publication, and sealing memtables
//! in time.
//!
//! [`Log`] is the leader's state. Its mutex is held by one leader while it writes a group, by the
//! creation or drop of a keyspace, or for a moment after a sync. Order within a group: log written,
//! applied to the memtables, published. A failed write poisons the database before anything of the
//! group is applied.
//!
//! A commit that waits for a sync is published after it, so that no reader sees what a power loss
//! takes back. Commits that follow it in the log are applied meanwhile and published with it. After
//! a failed sync nothing more is published.

use crate::sync::collections::HashMap;
use crate::sync::numbered;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId, SeqNo, ValueKind, checksum};
use crate::commit::env::CommitEnv;
use crate::commit::payload::{Ops, encode_op, writes_a_row_twice};
use crate::commit::prepared::Unresolved;
use crate::commit::request::{Commit, Done};
use crate::commit::room::FlushRoom;
use crate::commit::sealed::{SealedGeneration, SealedLog};
use crate::commit::validate::{RecentWrites, Writes};
use crate::db::ballast::Taker;
use crate::db::options::Durability;
use crate::error::{Error, Result};
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::wal::{RecordKind, WalPosition, WalSync, WalWriter};

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
    recent: RecentWrites<Commit>,
    /// Prepared transactions without a decision.
    pub unresolved: Unresolved,
    /// Commits that are published after a sync, in the order of the log.
    held_back: VecDeque<HeldBack>,
}

/// Commits of one group that wait for a sync.
struct HeldBack {
    /// The first of them: this one and all later ones are not published.
    first: SeqNo,
    /// End of the group in the log.
    end: WalPosition,
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
pub(super) const ENTRY_OVERHEAD: usize = 72;
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
            held_back: VecDeque::new(),
        }
    }

    /// Commits a group. A request that is refused by itself does not affect the others.
    pub fn process(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Vec<Result<Done>> {
        let error = match self.try_process(env, group) {
            Ok(results) => return results,
            Err(error) => error,
        };
        let decisions = group.iter().filter(|request| request.decides()).count();
        if error.may_be_retried() && (1..group.len()).contains(&decisions) {
            return self.process_apart(env, group);
        }
        group.iter().map(|_| Err(error.clone())).collect()
    }

    /// Processes the decisions of a group, for which the log has room, apart from the other
    /// requests, for which it may have none.
    fn process_apart(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Vec<Result<Done>> {
        let (decisions, others): (Vec<_>, Vec<_>) =
            group.iter().cloned().partition(|request| request.decides());
        let mut decided = self.process(env, &decisions).into_iter();
        let mut rest = self.process(env, &others).into_iter();
        let result = |request: &Arc<Commit>| {
            if request.decides() {
                decided.next()
            } else {
                rest.next()
            }
        };
        group.iter().filter_map(result).collect()
    }

    fn try_process(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Result<Vec<Result<Done>>> {
        // Under the log's mutex: a commit that passed its first check before the database was
        // closed stops here.
        env.core.access.check_open()?;
        env.core.poison.check()?;
        match self.make_room(env, group) {
            // The log has room for decisions, and their rows are in memory already.
            Err(error)
                if error.may_be_retried() && group.iter().all(|request| request.decides()) => {}
            made => made?,
        }
        // The wait for room may have ended because a flush failed.
        env.core.poison.check()?;
        let (results, admitted) = self.admit_group(env, group);
        if admitted.is_empty() {
            return Ok(results);
        }
        self.write_or_spend(env, &admitted)?;
        self.hold_back(&admitted);
        if self.groups.is_multiple_of(HORIZON_EVERY) {
            self.horizon = env.core.read_points.horizon();
        }
        self.groups += 1;
        for request in admitted.iter() {
            self.last_seqno += 1;
            self.apply(self.last_seqno, request.ops()).map_err(|()| {
                env.core.poison.set(Error::Internal(
                    "a commit's own payload does not decode".into(),
                ))
            })?;
            if let Some((phase, state)) = &request.phase {
                self.note_phase(*phase, state);
                self.unresolved.charge(&env.core.memory.budget);
            }
            self.recent
                .applied(&env.validating, self.last_seqno, request);
        }
        self.publish(env);
        if self.wants_segment(env) {
            env.syncer.wake();
        }
        Ok(results)
    }

    /// Holds back a group that was just written, from its first commit that waits for a sync. A
    /// prepare shows nothing, so it holds back nothing.
    fn hold_back(&mut self, group: &[Arc<Commit>]) {
        let waits = |request: &Arc<Commit>| {
            request.durability == Durability::Sync && !request.ops().is_empty()
        };
        let Some(at) = group.iter().position(waits) else {
            return;
        };
        if let Some(wal) = &self.wal {
            self.held_back.push_back(HeldBack {
                first: self.last_seqno + 1 + at as SeqNo,
                end: wal.position(),
            });
        }
    }

    /// Publishes every applied commit that neither waits for a sync nor follows one that does.
    fn publish(&mut self, env: &CommitEnv) {
        if env.core.poison.check().is_err() {
            return;
        }
        let is_durable = |held: &mut HeldBack| self.durable >= Some(held.end);
        while self.held_back.pop_front_if(is_durable).is_some() {}
        let first = self.held_back.front().map(|held| held.first);
        let newest = first.map_or(self.last_seqno, |first| first - 1);
        // Waiting threads are woken only if there is something new.
        if newest > env.core.read_points.visible() {
            env.progress.publish(newest);
        }
    }

    /// Decides which commits of a group are admitted, and the result of each.
    fn admit_group<'a>(
        &self,
        env: &CommitEnv,
        group: &'a [Arc<Commit>],
    ) -> (Vec<Result<Done>>, Cow<'a, [Arc<Commit>]>) {
        if group.iter().all(|request| request.is_plain()) {
            let seqnos = (self.last_seqno + 1..).take(group.len());
            let results = seqnos.map(|seqno| Ok(Done::At(seqno))).collect();
            return (results, Cow::Borrowed(group));
        }
        let mut admitted: Vec<Arc<Commit>> = Vec::with_capacity(group.len());
        let mut results = Vec::with_capacity(group.len());
        for request in group {
            results.push(match self.admit(env, request, &admitted) {
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

    fn admit(&self, env: &CommitEnv, request: &Commit, before: &[Arc<Commit>]) -> Result<bool> {
        if let Some((phase, state)) = &request.phase {
            self.admit_phase(env, *phase, state, before)?;
        }
        match &request.validation {
            Some(validation) => validation.validate(&self.recent, self.last_seqno, before),
            None => Ok(true),
        }
    }

    /// Writes the records of a group. If the device is full and every request of the group makes
    /// room, spends the ballast file and writes again.
    fn write_or_spend(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Result<()> {
        match self.write_records(env, group) {
            Err(error) if error.lacks_descriptors() && env.core.files.open_files.close_some() => {
                self.write_records(env, group)
            }
            Err(error @ Error::NoSpace { .. }) => {
                let makes_room = group.iter().all(|request| request.makes_room());
                // Other requests succeed at a later try, after background work has made room.
                let taker = if makes_room {
                    Taker::Log
                } else {
                    Taker::Background
                };
                if env.ballast.spend(taker, &error) && makes_room {
                    self.write_records(env, group)
                } else {
                    Err(error)
                }
            }
            result => result,
        }
    }

    fn write_records(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Result<()> {
        for (seqno, request) in (self.last_seqno + 1..).zip(group) {
            numbered(seqno, request.ops());
        }
        let reserve = self.reserve_after(group);
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        wal.use_short_segments(env.ballast.is_low());
        wal.reserve(reserve);
        for (seqno, request) in (self.last_seqno + 1..).zip(group) {
            let (kind, payload) = request.record();
            wal.append(seqno, kind, payload);
        }
        self.leave_room(env, group);
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        let wal_bytes = wal.pending_bytes();
        // A full device fails this group alone: its records must not be written with the next
        // group.
        env.core
            .poison
            .guard(wal.write())
            .inspect_err(|_| wal.discard())?;
        env.core.metrics.wal_bytes.add(wal_bytes);
        Ok(())
    }

    /// Writes a marker of a keyspace change into the log and syncs everything up to it. The
    /// manifest edit that follows thus never overtakes earlier commits.
    pub fn mark_ddl(&mut self, env: &CommitEnv, payload: &[u8]) -> Result<SeqNo> {
        self.mark_ddls(env, &[payload])
    }

    /// Does the same as [`Log::mark_ddl`] for several markers with consecutive numbers and one
    /// sync. Returns the last number.
    pub fn mark_ddls(&mut self, env: &CommitEnv, payloads: &[&[u8]]) -> Result<SeqNo> {
        let seqno = self.mark(env, RecordKind::Ddl, payloads)?;
        env.progress.publish(seqno);
        Ok(seqno)
    }

    /// Does the same as [`Log::mark_ddl`] for an ingest; its tables get the returned number. The
    /// caller publishes the number after installing the tables.
    pub fn mark_ingest(&mut self, env: &CommitEnv, payload: &[u8]) -> Result<SeqNo> {
        self.mark(env, RecordKind::Ingest, &[payload])
    }

    /// Writes markers and syncs them. Returns the number of the last marker.
    fn mark(&mut self, env: &CommitEnv, kind: RecordKind, payloads: &[&[u8]]) -> Result<SeqNo> {
        env.core.access.check_open()?;
        env.core.poison.check()?;
        let first = self.last_seqno + 1;
        let last = self.last_seqno + payloads.len() as SeqNo;
        (first..=last).for_each(|seqno| numbered(seqno, &[]));
        if let Some(wal) = &mut self.wal {
            wal.use_short_segments(env.ballast.is_low());
            wal.leave_free(0);
            for (seqno, payload) in (first..=last).zip(payloads) {
                wal.append(seqno, kind, payload);
            }
            let written = env.ballast.run(Taker::Log, || wal.write());
            env.core
                .poison
                .guard(written)
                .inspect_err(|_| wal.discard())?;
            self.sync(env)?;
        }
        self.last_seqno = last;
        Ok(last)
    }

    /// Makes every record written so far durable.
    pub fn sync(&mut self, env: &CommitEnv) -> Result<()> {
        env.core.poison.check()?;
        if let Some(unsynced) = self.unsynced() {
            let synced = env.core.metrics.timed_sync(|| unsynced.syncer.sync());
            env.core.poison.guard(synced)?;
            self.note_synced(env, &unsynced);
        }
        Ok(())
    }

    /// Records that a part of the log is durable, and publishes the commits that waited for it.
    pub fn note_synced(&mut self, env: &CommitEnv, unsynced: &Unsynced) {
        self.note_durable(unsynced.position);
        env.progress.note_durable(unsynced.seqno);
        self.publish(env);
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
    pub(super) fn note_durable(&mut self, position: WalPosition) {
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
                    let prefix = active.prefix_hash(op.key);
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
    fn make_room(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) -> Result<()> {
        let plan = env.core.plan();
        if self.active_bytes >= plan.active_bytes || self.fresh_bytes >= plan.fresh_bytes() {
            let room = self.room_for(env, group);
            self.seal_into(env, room, WalWriter::rotate)?;
            env.flushes.wait_below_ceiling()?;
        }
        Ok(())
    }

    /// Seals all non-empty memtables as one generation and queues it for flush. The log rolls to a
    /// new segment first. The flush thread syncs the log before it installs tables, so a flush
    /// never overtakes the log.
    pub fn seal(&mut self, env: &CommitEnv) -> Result<()> {
        if self.active_bytes == 0 {
            return Ok(());
        }
        self.seal_into(env, FlushRoom::of_waiting(env), WalWriter::rotate)
    }

    /// Does the same as [`Log::seal`], for a time without writes: the log continues in one small
    /// segment, also if all memtables are empty. If it needs no smaller segment, it is synced.
    pub fn seal_to_idle(&mut self, env: &CommitEnv) -> Result<()> {
        let shrinks = self
            .wal
            .as_ref()
            .is_some_and(WalWriter::is_larger_than_idle);
        if self.active_bytes == 0 && !shrinks {
            return self.sync(env);
        }
        self.seal_into(env, FlushRoom::of_waiting(env), WalWriter::rotate_to_idle)
    }

    fn seal_into(
        &mut self,
        env: &CommitEnv,
        room: FlushRoom,
        rotate: impl Fn(&mut WalWriter) -> Result<SegmentId>,
    ) -> Result<()> {
        // A commit's record may be in the log although the commit failed, because another write
        // failed before its sync. Carrying over would then write the prepare again after the record
        // that resolves it.
        env.core.poison.check()?;
        self.roll_with_prepared(env, room, rotate)?;
        let log = self.wal.as_ref().map(|wal| SealedLog {
            oldest_needed: wal.position().segment,
            syncer: Some(wal.late_syncer()),
        });
        env.flushes.queue(self.sealed_generation(log));
        // Sealed memtables are backlog too, and the flush thread may be in the middle of a long
        // flush.
        env.core.update_admission();
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
