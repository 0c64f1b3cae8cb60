//! Environment of flushes.

use std::sync::Arc;

use crate::commit::old_segments::OldSegments;
use crate::commit::progress::Progress;
use crate::compaction::Jobs;
use crate::db::ballast::Ballast;
use crate::db::core::Core;
use crate::db::store::Store;
use crate::flush::queue::FlushQueue;
use crate::sync::plain::Mutex;

/// Parts of a database that the flush thread uses.
pub(crate) struct FlushEnv {
    pub core: Arc<Core>,
    pub queue: Arc<FlushQueue>,
    pub store: Arc<Mutex<Store>>,
    /// For claims of groups whose last level gets tables.
    pub jobs: Arc<Jobs>,
    pub ballast: Arc<Ballast>,
    pub progress: Arc<Progress>,
    pub old_segments: Arc<OldSegments>,
}
