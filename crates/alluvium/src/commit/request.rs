//! Request of a committing thread: its operations, their record in the log, and its conditions.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::commit::payload::Ops;
use crate::commit::prepared::{Phase, PreparedState};
use crate::commit::queue::{Queued, Weigh};
use crate::commit::validate::{Validation, Writes};
use crate::db::options::Durability;
use crate::error::Result;
use crate::wal::RecordKind;

/// Request in the commit queue.
pub(crate) type Commit = Queued<Request, Result<Done>>;

/// Request to commit.
pub(crate) struct Request {
    /// Encoded operations; empty for a step of a prepared transaction.
    payload: Vec<u8>,
    /// Compressed payload as the log stores it, if it is shorter.
    packed: Option<Vec<u8>>,
    pub durability: Durability,
    /// Reads to validate before the commit; `None` if there are none.
    pub validation: Option<Validation>,
    /// Step of a prepared transaction, if the request is one.
    pub phase: Option<(Phase, Arc<PreparedState>)>,
    is_ordered: bool,
}

impl Request {
    /// Creates a commit of these operations.
    pub fn new(payload: Vec<u8>, packed: Option<Vec<u8>>, durability: Durability) -> Request {
        Request {
            payload,
            packed,
            durability,
            validation: None,
            phase: None,
            is_ordered: false,
        }
    }

    /// Adds a validation of the commit's reads.
    pub fn validated(self, validation: Validation) -> Request {
        Request {
            validation: Some(validation),
            ..self
        }
    }

    /// Creates a step of a prepared transaction.
    pub fn of_prepared(
        phase: Phase,
        state: &Arc<PreparedState>,
        durability: Durability,
    ) -> Request {
        Request {
            phase: Some((phase, Arc::clone(state))),
            ..Request::new(Vec::new(), None, durability)
        }
    }

    /// Lets the request return before its commit is visible.
    pub fn ordered(self) -> Request {
        Request {
            is_ordered: true,
            ..self
        }
    }

    /// Returns true if the request does not wait until its commit is visible. A prepare shows
    /// nothing.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered || self.preparing().is_some()
    }

    /// Returns true if the request is always admitted: it has nothing to validate and no phase.
    pub fn is_plain(&self) -> bool {
        self.validation.is_none() && self.phase.is_none()
    }

    /// Returns true if the request only deletes or resolves a prepared transaction. A full device
    /// does not refuse such a request.
    pub fn makes_room(&self) -> bool {
        match &self.phase {
            None => Ops::new(&self.payload).all(|op| {
                op.is_ok_and(|op| matches!(op.kind, ValueKind::Delete | ValueKind::RangeDelete))
            }),
            Some((phase, _)) => *phase != Phase::Prepare,
        }
    }

    /// Returns true if the request resolves a prepared transaction. The log has room for it.
    pub fn decides(&self) -> bool {
        matches!(self.phase, Some((Phase::Commit | Phase::Rollback, _)))
    }

    /// Returns the transaction that the request prepares.
    pub fn preparing(&self) -> Option<&PreparedState> {
        match &self.phase {
            Some((Phase::Prepare, state)) => Some(state),
            _ => None,
        }
    }

    /// Returns the request's log record.
    pub fn record(&self) -> (RecordKind, &[u8]) {
        match (&self.phase, &self.packed) {
            (Some((phase, state)), _) => state.record(*phase),
            (None, Some(packed)) => (RecordKind::PackedCommit, packed),
            (None, None) => (RecordKind::Commit, &self.payload),
        }
    }
}

impl Writes for Commit {
    fn ops(&self) -> &[u8] {
        match &self.phase {
            None => &self.payload,
            Some((Phase::Commit, state)) => state.ops(),
            Some(_) => &[],
        }
    }
}

impl Weigh for Request {
    fn bytes(&self) -> usize {
        self.record().1.len()
    }
}

/// Result of a request that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Committed with this sequence number.
    At(SeqNo),
    /// Not committed: the thread must check its reads again and may then queue the request again.
    LookAgain,
}
