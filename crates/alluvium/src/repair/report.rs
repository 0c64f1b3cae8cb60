//! Report of a repair.

use crate::error::Error;

/// Result of [`repair`](crate::repair): saved and lost parts.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// All damage found, by file and offset.
    pub damages: Vec<Error>,
    /// Key ranges in which a table has lost entries.
    pub lost: Vec<LostRange>,
    /// Number of tables copied unchanged.
    pub tables_copied: u64,
    /// Number of tables from which good blocks were saved.
    pub tables_salvaged: u64,
    /// Number of tables from which nothing was saved.
    pub tables_lost: u64,
    /// Number of commits of the log that were committed again.
    pub commits_replayed: u64,
    /// Number of log operations on keyspaces that are not in the readable part of the manifest.
    pub unknown_operations: u64,
    /// Table files that are not in the readable part of the manifest. Usually left by an
    /// interrupted compaction. If manifest edits are lost, these files may hold rows, which were
    /// not saved.
    pub unnamed_tables: Vec<String>,
}

/// Key range around lost entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Name of the keyspace.
    pub keyspace: String,
    /// File name of the table.
    pub table: String,
    /// Lower bound: no key below it is affected.
    pub from: Vec<u8>,
    /// Upper bound: no key above it is affected.
    pub to: Vec<u8>,
}

impl RepairReport {
    /// Returns true if everything that the database is known to have held was saved.
    pub fn is_complete(&self) -> bool {
        self.damages.is_empty() && self.unknown_operations == 0
    }
}
