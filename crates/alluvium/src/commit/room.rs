//! Room for flushes: on a device that fills, the log leaves free what the flush of one generation
//! needs.
//!
//! Invariant: a new segment for rows leaves at least as much of the device as the tables of any
//! generation may take: one that waits for its flush, and the one that the rows go into. The part
//! of the ballast file for flushes counts. A flush of the oldest generation alone then finds room
//! and releases a segment, however late the flush thread runs.
//!
//! Other users of the device may take the room. A flush that has failed therefore holds back no
//! deletes: flushed together with the rows that they hide, they may need no room.

use crate::commit::env::CommitEnv;

/// Bytes of the device that a new segment leaves to flushes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushRoom(u64);

impl FlushRoom {
    /// Returns the room for the generations that wait for their flush and for one of `rows_bytes`.
    pub fn of_rows(env: &CommitEnv, rows_bytes: u64) -> FlushRoom {
        FlushRoom(rows_bytes.max(env.core.backlog.largest_sealed_bytes()))
    }

    /// Returns the room for the generations that wait for their flush.
    pub fn of_waiting(env: &CommitEnv) -> FlushRoom {
        if env.flushes.has_failed() {
            FlushRoom(0)
        } else {
            FlushRoom(env.core.backlog.largest_sealed_bytes())
        }
    }

    /// Returns the bytes that a segment must leave now: those that the ballast file does not have.
    pub fn beyond_ballast(self, env: &CommitEnv) -> u64 {
        self.0.saturating_sub(env.ballast.background_bytes())
    }
}
