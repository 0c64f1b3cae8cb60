//! Rows that a compaction removes although no write replaced them: expired rows, and rows that a
//! compaction filter removes.
//!
//! Only the newest version of a key in the compaction is examined: the versions that it hides
//! follow the rules of `fold`. A retired row becomes a delete with the same sequence number, which
//! then follows those rules too. It stays above the last level, where it may hide older versions,
//! and ends in the last level. A version that newer deletes have canceled is not examined, so for
//! canceling an expired row counts as present.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::compaction::fold::Version;
use crate::error::Result;
use crate::keyspace::expiry::{EXPIRY_BYTES, expires_at, malformed};
use crate::table::{ValueFiles, resolve};
use std::path::Path;

/// Decision of a [`CompactionFilter`] about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterDecision {
    /// The row stays.
    Keep,
    /// The row is removed, as if it had been deleted when it was written.
    Remove,
    /// The row gets another value of at most 1 GiB; a longer one fails the compaction.
    Replace(Vec<u8>),
}

/// Filter that decides about rows whenever they are compacted: see
/// [`crate::Keyspace::set_compaction_filter`].
///
/// Called on background threads, at unspecified times, for the newest version of a key in a
/// compaction. A row may be passed many times or, while it is not compacted, never. The filter must
/// not call the database, and a panic in it ends all writes to the database as a failed write
/// would.
pub trait CompactionFilter: Send + Sync {
    /// Decides about a row that was written by commit `seqno`; 0 stands for a commit that no reader
    /// tells from older ones any more.
    fn filter(&self, key: &[u8], value: &[u8], seqno: SeqNo) -> FilterDecision;
}

/// Rules of one compaction for retiring rows.
pub(crate) struct Retire {
    keyspace: String,
    /// Set if stored values end with an expiry time: rows that expire at or before this time have
    /// expired for all readers.
    expired_for_all: Option<u64>,
    filter: Option<Arc<dyn CompactionFilter>>,
    /// Value files of the values that a filter may examine; empty without a filter.
    values: ValueFiles,
}

impl Retire {
    /// Creates the rules for a compaction of rows of `keyspace`. `expired_for_all` comes from the
    /// database's clock; `None` if these rows do not expire.
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

    /// Returns true if there is neither expiry nor a filter.
    pub fn is_idle(&self) -> bool {
        self.expired_for_all.is_none() && self.filter.is_none()
    }

    /// Judges the newest version of a key. Returns the new value if the filter replaces it.
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
        let loaded = if newest.kind == separated {
            Some(resolve(&self.values, stored, Path::new(&self.keyspace))?)
        } else {
            None
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
                newest.kind = if newest.kind.is_insert() {
                    ValueKind::Insert
                } else {
                    ValueKind::Put
                };
                Ok(Some([&replaced[..], rest].concat()))
            }
        }
    }
}
