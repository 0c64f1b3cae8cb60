//! Sealed memtables: what the commit pipeline passes to the flush.

use std::sync::Arc;

use crate::base::{SegmentId, SeqNo};
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::wal::LateSync;

/// Memtables of all keyspaces sealed together at one sequence number: the input of one flush.
pub(crate) struct SealedGeneration {
    pub memtables: Vec<(Arc<Tree>, Arc<TreeMemtable>)>,
    /// Newest commit in the memtables.
    pub last_seqno: SeqNo,
    /// Records of the prepared transactions unresolved after `last_seqno`.
    pub prepared: Vec<Arc<[u8]>>,
    pub log: Option<SealedLog>,
    /// Bytes counted for the generation until it is flushed.
    pub bytes: usize,
}

/// State of the log when a generation was sealed.
pub(crate) struct SealedLog {
    /// Oldest segment still needed after the generation is flushed.
    pub oldest_needed: SegmentId,
    /// Makes everything up to the seal durable; `None` if it was read from the device.
    pub syncer: Option<LateSync>,
}
