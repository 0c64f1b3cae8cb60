//! Room that the log keeps: in its segment for the decisions on prepared transactions, and on the
//! device for flushes.

use std::sync::Arc;

use crate::commit::env::CommitEnv;
use crate::commit::log::{ENTRY_OVERHEAD, Log};
use crate::commit::prepared::Phase;
use crate::commit::request::Commit;
use crate::commit::room::FlushRoom;
use crate::commit::validate::Writes;
use crate::wal::WalWriter;

impl Log {
    /// If the appended records of these requests begin a segment, makes it leave its room.
    pub(super) fn leave_room(&mut self, env: &CommitEnv, group: &[Arc<Commit>]) {
        if self.wal.as_ref().is_some_and(WalWriter::needs_segment) {
            let room = self.room_for(env, group).beyond_ballast(env);
            if let Some(wal) = &mut self.wal {
                wal.leave_free(room);
            }
        }
    }

    /// Returns the room for a segment that gets these requests, or begins for them.
    pub(super) fn room_for(&self, env: &CommitEnv, group: &[Arc<Commit>]) -> FlushRoom {
        if group.iter().all(|request| request.makes_room()) {
            FlushRoom::of_waiting(env)
        } else {
            self.room_for_rows(env, group)
        }
    }

    /// Returns the room for a segment of a generation that gets the rows of these requests. Those
    /// of prepared transactions may join it: their commits are not refused.
    pub(super) fn room_for_rows(&self, env: &CommitEnv, group: &[Arc<Commit>]) -> FlushRoom {
        let coming = group
            .iter()
            .map(|request| request.ops().len() + ENTRY_OVERHEAD);
        let rows = self.active_bytes() + coming.sum::<usize>();
        let rows = rows as u64 + self.reserve_after(group);
        FlushRoom::of_rows(env, rows)
    }

    /// Returns the bytes of the log that decisions may take after a group is written.
    pub(super) fn reserve_after(&self, group: &[Arc<Commit>]) -> u64 {
        let mut bytes = self.unresolved.decision_bytes();
        for (phase, state) in group.iter().filter_map(|request| request.phase.as_ref()) {
            match phase {
                Phase::Prepare => bytes += state.decision_bytes(),
                Phase::Commit | Phase::Rollback => bytes -= state.decision_bytes(),
            }
        }
        bytes
    }
}
