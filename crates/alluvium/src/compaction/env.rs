//! Environment of compactions.

use std::sync::Arc;

use crate::commit::CommitPipeline;
use crate::compaction::jobs::Jobs;
use crate::compaction::pick::PickRules;
use crate::db::ballast::Ballast;
use crate::db::core::Core;
use crate::db::store::Store;
use crate::flush::queue::FlushQueue;
use crate::sync::plain::Mutex;

/// Parts of a database that compaction threads and their callers use.
pub(crate) struct CompactionEnv {
    pub core: Arc<Core>,
    pub jobs: Arc<Jobs>,
    pub store: Arc<Mutex<Store>>,
    pub flushes: Arc<FlushQueue>,
    pub ballast: Arc<Ballast>,
    /// For sealing memtables while the database is idle or scanned.
    pub commits: Arc<CommitPipeline>,
}

impl CompactionEnv {
    /// Returns the rules by which compactions are picked now.
    pub fn rules(&self) -> PickRules {
        self.core.backlog.rules(&self.core.plan())
    }
}
