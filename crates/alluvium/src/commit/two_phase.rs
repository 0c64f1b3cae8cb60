//! Steps of prepared transactions in the log, and the writing of unresolved ones into new segments.

use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId};
use crate::commit::env::CommitEnv;
use crate::commit::log::Log;
use crate::commit::payload::Ops;
use crate::commit::prepared::{Phase, PreparedState, decode};
use crate::commit::request::Commit;
use crate::commit::room::FlushRoom;
use crate::commit::sealed::SealedGeneration;
use crate::db::ballast::{OPEN_BYTES, Taker};
use crate::db::options::Durability;
use crate::db::poison::Poison;
use crate::db::store::Store;
use crate::error::{Error, Result};
use crate::version::VersionEdit;
use crate::wal::{RecordKind, WalWriter};

impl Log {
    /// Refuses a step of a prepared transaction that is impossible now.
    pub fn admit_phase(
        &self,
        env: &CommitEnv,
        phase: Phase,
        state: &Arc<PreparedState>,
        group: &[Arc<Commit>],
    ) -> Result<()> {
        if phase == Phase::Prepare {
            let gone = state
                .keyspaces
                .iter()
                .find(|id| !self.trees.contains_key(id));
            if let Some(id) = gone {
                return Err(Error::KeyspaceDropped(id.to_string()));
            }
            let others = group.iter().filter_map(|commit| commit.preparing());
            // All prepared transactions are in memory and are written again whenever the log rolls.
            let limit = env.core.plan().prepared_bytes();
            return self.unresolved.admit_prepare(state, others, limit);
        }
        self.check_unresolved(state)
    }

    /// Refuses a decision on a transaction that is decided already.
    pub fn check_unresolved(&self, state: &Arc<PreparedState>) -> Result<()> {
        if self.unresolved.has(state) {
            return Ok(());
        }
        let message = "the prepared transaction was resolved already";
        Err(Error::InvalidArgument(message.into()))
    }

    /// Applies a logged step to the list of unresolved transactions.
    pub(super) fn note_phase(&mut self, phase: Phase, state: &Arc<PreparedState>) {
        match phase {
            Phase::Prepare => self.unresolved.add(Arc::clone(state), true),
            Phase::Commit | Phase::Rollback => self.unresolved.remove(&state.xid),
        }
    }

    /// Rolls the log with `rotate`, and writes every unresolved prepare into the new segment. The
    /// flush that makes older segments removable syncs it first, without the log's mutex.
    ///
    /// # Errors
    ///
    /// `NoSpace`: nothing was written, and older segments must stay.
    pub(super) fn roll_with_prepared(
        &mut self,
        env: &CommitEnv,
        room: FlushRoom,
        rotate: impl Fn(&mut WalWriter) -> Result<SegmentId>,
    ) -> Result<()> {
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        // Appended before the roll, so that the new segment is made large enough for them.
        self.unresolved.append_to(wal, self.last_seqno);
        let rolled = env.ballast.run(Taker::Log, || {
            wal.use_short_segments(env.ballast.is_low());
            wal.leave_free(room.beyond_ballast(env));
            rotate(wal)?;
            wal.write()
        });
        env.core
            .poison
            .guard(rolled)
            .inspect_err(|_| wal.discard())?;
        Ok(())
    }

    /// Writes every unresolved prepare into the first segment of a session, before any thread runs,
    /// and makes room for the decisions. The prepares are written if replay has `sealed` memtables,
    /// because their flush makes older segments removable, and if the manifest has prepares: these
    /// move into the log.
    ///
    /// On a full device prepares stay where replay has read them, and the flush leaves their
    /// segments: `oldest_needed` is the oldest of them.
    ///
    /// # Errors
    ///
    /// `NoSpace`, if prepares of the manifest find no room.
    pub fn carry_recovered(
        &mut self,
        store: &mut Store,
        sealed: &mut [SealedGeneration],
        oldest_needed: Option<SegmentId>,
    ) -> Result<()> {
        if let Some(wal) = &mut self.wal {
            // For the flush, and for the next open: more than this one may take.
            let largest = sealed.iter().map(|generation| generation.bytes).max();
            wal.leave_free(OPEN_BYTES + largest.unwrap_or(0) as u64);
        }
        let in_manifest = !store.state().prepared.is_empty();
        let reserve = self.unresolved.decision_bytes();
        if !in_manifest && (sealed.is_empty() || self.unresolved.is_empty()) {
            return self.make_room_for_decisions(reserve);
        }
        let poison = Poison::default();
        if let Some(wal) = &mut self.wal {
            self.unresolved.append_to(wal, self.last_seqno);
            match poison.guard(wal.write()).inspect_err(|_| wal.discard()) {
                Err(error) if error.may_be_retried() && !in_manifest => {
                    keep_segments(sealed, oldest_needed);
                    return self.make_room_for_decisions(reserve);
                }
                written => drop(written?),
            }
        }
        self.make_room_for_decisions(reserve)?;
        let mut edit = VersionEdit {
            prepared_logged: in_manifest,
            ..VersionEdit::default()
        };
        if let Some(unsynced) = self.unsynced() {
            let position = unsynced.position;
            unsynced.syncer.sync()?;
            self.note_durable(position);
            // The log may have rolled to write them, and segment numbers are never reused.
            edit.next_segment = Some(SegmentId(position.segment.0 + 1));
        }
        store.append(&poison, &edit)
    }

    /// Keeps room in the log for decisions from now on. On a full device the opening continues
    /// without it, because to read and to delete is worth more.
    fn make_room_for_decisions(&mut self, bytes: u64) -> Result<()> {
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        match wal.make_reserve(bytes) {
            Err(error) if error.may_be_retried() => Ok(()),
            made => made,
        }
    }

    /// Replays a record of a prepared transaction at recovery, read from this segment or from the
    /// manifest. Returns the operations to apply. The error describes damage.
    pub fn replay_phase<'a>(
        &mut self,
        read_from: Option<SegmentId>,
        kind: RecordKind,
        payload: &'a [u8],
        next_keyspace: KeyspaceId,
        durability: Durability,
    ) -> Result<&'a [u8], String> {
        let (xid, ops) = decode(payload).ok_or("a malformed prepared transaction")?;
        for op in Ops::new(ops) {
            let op = op.map_err(|()| "a malformed operation")?;
            if op.keyspace >= next_keyspace {
                return Err(format!("{}, never created,", op.keyspace));
            }
        }
        if kind == RecordKind::Prepare {
            let state = PreparedState::new(xid, ops, durability);
            self.unresolved.add_read(Arc::new(state), read_from);
            return Ok(&[]);
        }
        self.unresolved.remove(xid);
        Ok(ops)
    }
}

/// Makes the flush of these memtables leave the segments from `oldest` on.
fn keep_segments(sealed: &mut [SealedGeneration], oldest: Option<SegmentId>) {
    for log in sealed.iter_mut().filter_map(|g| g.log.as_mut()) {
        log.oldest_needed = log.oldest_needed.min(oldest.unwrap_or(log.oldest_needed));
    }
}

#[cfg(all(test, not(any(loom, feature = "simulation"))))]
mod tests {
    use super::*;

    #[test]
    fn a_decision_does_not_fail_with_a_write_of_its_group() {
        use crate::commit::payload::encode_payload;
        use crate::commit::request::{Done, Request};
        use crate::{Database, Isolation, KeyspaceOptions, Options, WriteBatch, vfs::MemVfs};
        let (vfs, dir) = (MemVfs::with_capacity(64 << 20), std::path::Path::new("db"));
        let db = Database::open_on(Arc::new(vfs.clone()), dir, Options::default()).unwrap();
        let words = db.keyspace("words", KeyspaceOptions::default()).unwrap();
        let txn = db.begin(Isolation::Snapshot).unwrap();
        txn.put(&words, b"a", b"1").unwrap();
        let _prepared = txn.prepare(b"x").unwrap();
        let mut batch = WriteBatch::new();
        // Longer than what the segment has left.
        batch.put(&words, b"b", &vec![1; 40 << 20]).unwrap();
        let used = (64 << 20) - crate::vfs::Vfs::free_bytes(&vfs, dir).unwrap();
        vfs.set_capacity(used);
        let shared = db.shared();
        let mut log = shared.commits.log.lock();
        let state = Arc::clone(log.unresolved.states().next().unwrap());
        let buffered = Durability::Buffered;
        let write = Request::new(encode_payload(batch.writes()), None, buffered);
        let decision = Request::of_prepared(Phase::Commit, &state, buffered);
        let group = [write, decision].map(|request| Arc::new(Commit::new(request)));
        let results = log.process(&shared.commits.env, &group);
        assert!(matches!(
            &results[..],
            [Err(Error::NoSpace { .. }), Ok(Done::At(_))]
        ));
        drop(log);
        assert!(words.get(b"a").unwrap().is_some() && words.get(b"b").unwrap().is_none());
    }

    #[test]
    fn no_prepare_is_carried_over_after_a_failure() {
        use crate::{Database, Isolation, KeyspaceOptions, Options, vfs::MemVfs};
        let vfs = Arc::new(MemVfs::new());
        let db = Database::open_on(vfs, std::path::Path::new("db"), Options::default()).unwrap();
        let words = db.keyspace("words", KeyspaceOptions::default()).unwrap();
        let txn = db.begin(Isolation::Snapshot).unwrap();
        txn.put(&words, b"a", b"1").unwrap();
        let _prepared = txn.prepare(b"x").unwrap();
        words.put(b"b", b"1").unwrap();
        let shared = db.shared();
        let mut log = shared.commits.log.lock();
        let end = |log: &Log| log.wal.as_ref().map(|wal| wal.position());
        let before = end(&log);
        // A flush fails after the record of the transaction's commit was written and before it is
        // synced.
        shared.core.poison.set(Error::Closed);
        assert!(matches!(
            log.seal(&shared.commits.env),
            Err(Error::Poisoned(_))
        ));
        assert_eq!(end(&log), before);
    }
}
