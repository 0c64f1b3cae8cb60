//! Report of a verification.

use crate::base::SeqNo;
use crate::error::Error;

/// Maximum number of items kept in each list of a report; all are counted.
const REPORTED_MAX: usize = 1000;

/// Result of [`crate::Database::verify`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files that are damaged or cannot be read: [`Error::Corruption`] with file and offset, or
    /// [`Error::Io`]. The first thousand.
    pub damages: Vec<Error>,
    /// Total number of damages.
    pub damage_count: u64,
    /// Inserts over live rows that no compaction has folded yet. The first thousand.
    pub wrong_inserts: Vec<WrongInsert>,
    /// Total number of wrong inserts.
    pub wrong_insert_count: u64,
    /// Groups with unchecked inserts, because one of their tables is damaged.
    pub groups_skipped: u64,
    /// Number of table files read.
    pub tables: u64,
    /// Number of entries in the tables.
    pub entries: u64,
    /// Number of log segments read.
    pub log_segments: u64,
    /// Number of records in the log segments.
    pub log_records: u64,
    /// Number of bytes read of all files.
    pub bytes: u64,
}

/// An [`insert`](crate::Keyspace::insert) of an existing key: after its delete the older value may
/// come back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongInsert {
    /// Name of the keyspace.
    pub keyspace: String,
    /// Inserted key.
    pub key: Vec<u8>,
    /// Seqno of the commit that inserted the key.
    pub seqno: SeqNo,
    /// Seqno of the commit that wrote the older value; 0 if the value is too old for its seqno to
    /// be kept.
    pub older_seqno: SeqNo,
}

impl VerifyReport {
    /// Returns true if no damage and no wrong insert was found.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0 && self.wrong_insert_count == 0
    }

    pub(super) fn damage(&mut self, error: Error) {
        self.damage_count += 1;
        if self.damages.len() < REPORTED_MAX {
            self.damages.push(error);
        }
    }

    pub(super) fn wrong_insert(&mut self, wrong: WrongInsert) {
        self.wrong_insert_count += 1;
        if self.wrong_inserts.len() < REPORTED_MAX {
            self.wrong_inserts.push(wrong);
        }
    }
}
