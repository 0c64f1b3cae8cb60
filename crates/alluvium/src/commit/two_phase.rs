//! Steps of prepared transactions in the log, and the writing of unresolved ones into new segments.

use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId};
use crate::commit::env::CommitEnv;
use crate::commit::log::Log;
use crate::commit::payload::Ops;
use crate::commit::prepared::{Phase, PreparedState, decode};
use crate::commit::request::Commit;
use crate::db::ballast::Taker;
use crate::db::options::Durability;
use crate::db::poison::Poison;
use crate::db::store::Store;
use crate::error::{Error, Result};
use crate::version::VersionEdit;
use crate::wal::RecordKind;

impl Log {
    /// Refuses a step of a prepared transaction that is impossible now.
    pub(super) fn admit_phase(
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
        if self.unresolved.has(state) {
            Ok(())
        } else {
            Err(Error::InvalidArgument(
                "the prepared transaction was resolved already".into(),
            ))
        }
    }

    /// Applies a logged step to the list of unresolved transactions.
    pub(super) fn note_phase(&mut self, phase: Phase, state: &Arc<PreparedState>) {
        match phase {
            Phase::Prepare => self.unresolved.add(Arc::clone(state), true),
            Phase::Commit | Phase::Rollback => self.unresolved.remove(&state.xid),
        }
    }

    /// Writes every unresolved prepare into the log again and syncs it, so that older segments can
    /// be removed.
    ///
    /// # Errors
    ///
    /// `NoSpace`: nothing was written, and older segments must stay.
    pub(super) fn carry_prepared(&mut self, env: &CommitEnv) -> Result<()> {
        if self.unresolved.is_empty() || self.wal.is_none() {
            return Ok(());
        }
        env.ballast
            .run(Taker::Log, || self.append_unresolved(&env.core.poison))?;
        self.sync(env)
    }

    /// Does the same as `carry_prepared` for the first segment of a session, before any thread
    /// runs. This is needed if replay has `sealed` memtables, because their flush makes older
    /// segments removable. It is also needed if the manifest has prepares: these move into the log.
    pub fn carry_recovered(&mut self, store: &mut Store, sealed: bool) -> Result<()> {
        let in_manifest = !store.state().prepared.is_empty();
        self.reserve_for_decisions();
        if !in_manifest && (!sealed || self.unresolved.is_empty()) {
            return Ok(());
        }
        let poison = Poison::default();
        if let Err(error) = self.append_unresolved(&poison) {
            // On a full device the opening is worth more than room for decisions.
            let (Error::NoSpace { .. }, Some(wal)) = (&error, &mut self.wal) else {
                return Err(error);
            };
            wal.reserve(0);
            self.append_unresolved(&poison)?;
            self.reserve_for_decisions();
        }
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

    /// Keeps room in the log for the decisions on all unresolved transactions.
    fn reserve_for_decisions(&mut self) {
        let bytes = self.unresolved.decision_bytes();
        if let Some(wal) = &mut self.wal {
            wal.reserve(bytes);
        }
    }

    fn append_unresolved(&mut self, poison: &Poison) -> Result<()> {
        let Some(wal) = &mut self.wal else {
            return Ok(());
        };
        for state in self.unresolved.states() {
            let (kind, body) = state.record(Phase::Prepare);
            wal.append(self.last_seqno, kind, body);
        }
        poison.guard(wal.write()).inspect_err(|_| wal.discard())?;
        Ok(())
    }

    /// Replays a record of a prepared transaction at recovery. Returns the operations to apply. The
    /// error describes damage.
    pub fn replay_phase<'a>(
        &mut self,
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
            self.unresolved.add(Arc::new(state), false);
            return Ok(&[]);
        }
        self.unresolved.remove(xid);
        Ok(ops)
    }
}

#[cfg(all(test, not(any(loom, feature = "simulation"))))]
mod tests {
    use super::*;

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
