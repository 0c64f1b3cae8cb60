//! Rows that a merge ends although nobody wrote over them: expired ones, and those that a compaction filter removes.
//!
//! Only the newest version of a key in the merge is looked at: what it hides goes by the rules of `fold`. A retired
//! row becomes a delete with the same sequence number, which then follows those rules: it stays above the last level,
//! where it may hide older versions, and ends in it. A version that newer deletes have cancelled is not looked at, so
//! for cancelling an expired row counts as present.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::compaction::fold::Version;
use crate::error::Result;
use crate::keyspace::expiry::{EXPIRY_BYTES, expires_at, malformed};
use crate::table::{ValueFiles, resolve};
use std::path::Path;

/// What a [`CompactionFilter`] wants done with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterDecision {
    /// The row stays.
    Keep,
    /// The row goes, as if it had been deleted when it was written.
    Remove,
    /// The row gets another value. At most 1 GiB; a longer one fails the merge.
    Replace(Vec<u8>),
}

/// Decides about rows whenever they are merged: see [`crate::Keyspace::set_compaction_filter`].
///
/// Called on background threads, at times that nobody should rely on, for the newest version of a key in a merge. A
/// row may be asked about many times or, while it is not merged, never. It must not call the database, and a panic in
/// it ends all writes to the database as a failed write would.
pub trait CompactionFilter: Send + Sync {
    /// What to do with a row that was written by commit `seqno`; 0 stands for a commit that no reader tells from older
    /// ones any more.
    fn filter(&self, key: &[u8], value: &[u8], seqno: SeqNo) -> FilterDecision;
}

/// The judgement of one merge.
pub(crate) struct Retire {
    keyspace: String,
    /// Stored values end with a time, and what expires at or before this one has expired for everybody.
    expired_for_all: Option<u64>,
    filter: Option<Arc<dyn CompactionFilter>>,
    /// Where the values are that a filter may want to see.
    values: ValueFiles,
}

impl Retire {
    /// For a merge of rows of `keyspace`. `expired_for_all`, where its rows expire, comes from the database's clock.
    pub fn new(
        keyspace: &str,
        expired_for_all: Option<u64>,
        filter: Option<Arc<dyn CompactionFilter>>,
        values: &ValueFiles,
    ) -> Retire {
        let values = match filter {
            Some(_) => values.clone(),
            None => ValueFiles::default(),
        };
        Retire {
            keyspace: keyspace.to_owned(),
            expired_for_all,
            filter,
            values,
        }
    }

    /// Whether there is nothing to judge.
    pub fn is_idle(&self) -> bool {
        self.expired_for_all.is_none() && self.filter.is_none()
    }

    /// Judges the newest version of a key. A value comes back where the filter wants another one.
    pub fn judge(
        &self,
        key: &[u8],
        newest: &mut Version,
        stored: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(separated) = newest.kind.separated() else {
            return Ok(None);
        };
        let mut rest_bytes = 0;
        if let Some(now) = self.expired_for_all {
            let until =
                expires_at(stored).ok_or_else(|| malformed(&self.keyspace, stored.len()))?;
            if until <= now {
                newest.kind = ValueKind::Delete;
                return Ok(None);
            }
            rest_bytes = EXPIRY_BYTES;
        }
        let Some(filter) = &self.filter else {
            return Ok(None);
        };
        let loaded = match newest.kind == separated {
            true => Some(resolve(&self.values, stored, Path::new(&self.keyspace))?),
            false => None,
        };
        let stored = loaded.as_deref().unwrap_or(stored);
        let (value, rest) = stored.split_at(stored.len().saturating_sub(rest_bytes));
        match filter.filter(key, value, newest.seqno) {
            FilterDecision::Keep => Ok(None),
            FilterDecision::Remove => {
                newest.kind = ValueKind::Delete;
                Ok(None)
            }
            FilterDecision::Replace(replaced) => {
                newest.kind = match newest.kind.is_insert() {
                    true => ValueKind::Insert,
                    false => ValueKind::Put,
                };
                Ok(Some([&replaced[..], rest].concat()))
            }
        }
    }
}
