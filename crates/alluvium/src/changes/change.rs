//! Changes, as a stream returns them.

use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo};
use crate::keyspace::KeyspaceOptions;

/// One step in the history of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Position in the commit order. Numbers rise; not every number is a change.
    pub seqno: SeqNo,
    /// The change itself.
    pub kind: ChangeKind,
}

/// Kind of a change, with its contents.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A commit. A prepared transaction appears once, at its commit.
    Commit {
        /// Operations in the order in which to apply them. Range deletes come first and affect no
        /// row of this commit.
        operations: Vec<Operation>,
        /// Id of the transaction if it was prepared, otherwise `None`.
        xid: Option<Vec<u8>>,
    },
    /// An ingest or a bulk load. Its rows are not in the log: read these keyspaces as of now, or
    /// copy them. Also returned if the ingest failed just before its end, for lack of space or by a
    /// crash. Then it added no rows.
    Ingest {
        /// Keyspaces that received rows, with the number of rows.
        keyspaces: Vec<(Arc<ChangedKeyspace>, u64)>,
    },
    /// A keyspace was created.
    KeyspaceCreated {
        /// The created keyspace.
        keyspace: Arc<ChangedKeyspace>,
        /// Options of the new keyspace.
        options: Box<KeyspaceOptions>,
    },
    /// A keyspace was dropped with everything in it.
    KeyspaceDropped {
        /// The dropped keyspace.
        keyspace: Arc<ChangedKeyspace>,
    },
    /// The options of a keyspace changed; its rows are the same. Also returned if the change
    /// failed, as for an ingest.
    OptionsChanged {
        /// The changed keyspace.
        keyspace: Arc<ChangedKeyspace>,
        /// New options.
        options: Box<KeyspaceOptions>,
    },
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A row was inserted or overwritten.
    Put {
        /// Keyspace of the row.
        keyspace: Arc<ChangedKeyspace>,
        /// Key of the row.
        key: Vec<u8>,
        /// Value of the row, including large values.
        value: Vec<u8>,
        /// Time from which the row is absent, in milliseconds since 1970; `None` if it does not
        /// expire.
        until_ms: Option<u64>,
    },
    /// A row was deleted. It may not have existed.
    Delete {
        /// Keyspace of the row.
        keyspace: Arc<ChangedKeyspace>,
        /// Key of the row.
        key: Vec<u8>,
    },
    /// All rows of a range that existed before this commit were deleted.
    DeleteRange {
        /// Keyspace of the range.
        keyspace: Arc<ChangedKeyspace>,
        /// First key of the range, inclusive.
        start: Vec<u8>,
        /// End of the range, exclusive.
        end: Vec<u8>,
    },
}

/// A keyspace named in a stream of changes. It may be dropped by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedKeyspace {
    /// Number of the keyspace, never used by another keyspace of this database.
    pub id: KeyspaceId,
    /// Name of the keyspace. Another keyspace may have had the name before, or may get it later.
    pub name: String,
}
