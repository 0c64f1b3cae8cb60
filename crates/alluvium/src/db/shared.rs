//! Parts of one open database, shared by all handles and background threads.
//!
//! Lock order, outermost first: `drops`, `CommitPipeline::log`, `store`, the flush queue,
//! `Tree::change`. The catalog has its own lock.

use crate::sync::collections::HashMap;
use std::sync::Arc;

use crate::sync::plain::{Mutex, RwLock};

use crate::base::TableId;
use crate::clock::ReadClock;
use crate::commit::old_segments::OldSegments;
use crate::commit::progress::Progress;
use crate::commit::validate::Validating;
use crate::commit::{CommitEnv, CommitPipeline, Log, SyncerSignal};
use crate::compaction::dictionaries::Dictionaries;
use crate::compaction::{CompactionEnv, Jobs};
use crate::db::access::Access;
use crate::db::backlog::Backlog;
use crate::db::ballast::Ballast;
use crate::db::core::Core;
use crate::db::files::Files;
use crate::db::memory::Memory;
use crate::db::options::Options;
use crate::db::poison::Poison;
use crate::db::row_locks::RowLocks;
use crate::db::store::Store;
use crate::event::Events;
use crate::flush::FlushEnv;
use crate::flush::queue::FlushQueue;
use crate::keyspace::tree::Tree;
use crate::metrics::Metrics;
use crate::read_points::ReadPoints;
use crate::table::open_files::OpenFiles;
use crate::vfs::{LockGuard, Vfs};

/// An open database, see the module.
pub(crate) struct Shared {
    /// Distinguishes this database from all others.
    pub uid: u64,
    pub core: Arc<Core>,
    pub commits: Arc<CommitPipeline>,
    pub old_segments: Arc<OldSegments>,
    pub flushes: Arc<FlushQueue>,
    pub jobs: Arc<Jobs>,
    pub ballast: Arc<Ballast>,
    /// Guards the manifest and the lists of tables. Held across manifest I/O by background threads
    /// and by creating and dropping keyspaces; commits never need it.
    pub store: Arc<Mutex<Store>>,
    pub row_locks: RowLocks,
    /// Held by a drop of a keyspace and by a checkpoint, so that no drop overtakes the commits that
    /// the checkpoint flushes. Comes before every other lock and guards no data.
    pub drops: Mutex<()>,
}

/// Parts that recovery assembles into [`Shared`].
pub(crate) struct Parts {
    pub files: FilesParts,
    pub options: Options,
    pub memory: Memory,
    pub log: Log,
    pub store: Store,
    pub catalog: HashMap<String, Arc<Tree>>,
    pub read_points: Arc<ReadPoints>,
}

/// Parts of the access to the directory.
pub(crate) struct FilesParts {
    pub dir: std::path::PathBuf,
    pub vfs: Arc<dyn Vfs>,
    pub open_files: Arc<OpenFiles>,
    /// First table number that no file has.
    pub next_table: TableId,
    pub lock: Option<LockGuard>,
}

impl Parts {
    /// Makes the core, and returns the log and the store, which it does not have.
    fn into_core(self) -> (Core, Log, Store) {
        let Parts { options, files, .. } = self;
        let events = Events::new(options.event_listener.clone());
        let stored_ms = self.store.state().read_clock_ms;
        let clock = ReadClock::new(options.clock.clone(), stored_ms, Arc::clone(&events));
        let mut trees = self.catalog.values();
        if trees.any(|t| t.options().expiry.is_stored()) {
            clock.use_it();
        }
        let core = Core {
            access: Access::new(options.read_only, files.lock),
            files: Files::new(
                files.dir,
                files.vfs,
                files.open_files,
                Arc::clone(&events),
                files.next_table,
            ),
            memory: self.memory,
            read_points: self.read_points,
            dictionaries: Dictionaries::default(),
            clock,
            catalog: RwLock::new(self.catalog),
            backlog: Backlog::new(options.upper_fraction),
            poison: Poison::new(Arc::clone(&events)),
            events,
            metrics: Metrics::default(),
            options,
        };
        (core, self.log, self.store)
    }
}

impl Shared {
    pub fn new(parts: Parts) -> Shared {
        let (core, log, store) = parts.into_core();
        let core = Arc::new(core);
        let jobs = Arc::new(Jobs::default());
        let flushes = Arc::new(FlushQueue::new(Arc::clone(&core)));
        let ballast = Arc::new(Ballast::new(Arc::clone(&core), Arc::clone(&jobs)));
        let (wakes_flushes, wakes_jobs) = (Arc::downgrade(&flushes), Arc::downgrade(&jobs));
        core.poison.on_set(move || {
            wakes_flushes.upgrade().inspect(|flushes| flushes.wake());
            wakes_jobs.upgrade().inspect(|jobs| jobs.wake());
        });
        // Recovery has read these commits from the device.
        let progress = Progress::new(Arc::clone(&core.read_points), log.last_seqno);
        let env = CommitEnv {
            core: Arc::clone(&core),
            flushes: Arc::clone(&flushes),
            ballast: Arc::clone(&ballast),
            progress: Arc::new(progress),
            validating: Validating::default(),
            syncer: SyncerSignal::default(),
        };
        Shared {
            uid: store.database_uid(),
            commits: Arc::new(CommitPipeline::new(env, log)),
            old_segments: Arc::default(),
            flushes,
            jobs,
            ballast,
            store: Arc::new(Mutex::new(store)),
            row_locks: RowLocks::new(Arc::clone(&core)),
            drops: Mutex::new(()),
            core,
        }
    }

    /// Returns the environment of flushes.
    pub fn flush_env(&self) -> FlushEnv {
        FlushEnv {
            core: Arc::clone(&self.core),
            queue: Arc::clone(&self.flushes),
            jobs: Arc::clone(&self.jobs),
            store: Arc::clone(&self.store),
            ballast: Arc::clone(&self.ballast),
            progress: Arc::clone(&self.commits.env.progress),
            old_segments: Arc::clone(&self.old_segments),
        }
    }

    /// Returns the environment of compactions.
    pub fn compaction_env(&self) -> CompactionEnv {
        CompactionEnv {
            core: Arc::clone(&self.core),
            jobs: Arc::clone(&self.jobs),
            store: Arc::clone(&self.store),
            flushes: Arc::clone(&self.flushes),
            ballast: Arc::clone(&self.ballast),
            commits: Arc::clone(&self.commits),
        }
    }

    /// Refuses new calls, and ends the waits of clients with commits that have no number yet.
    pub fn set_closed(&self) {
        self.core.access.close();
        self.core.backlog.admission.close();
        self.row_locks.table.close();
        self.flushes.wake();
    }

    /// Changes the memory budget and wakes the threads that wait because of the old one.
    pub fn set_memory_bytes(&self, memory_bytes: usize) {
        self.core.memory.set_bytes(memory_bytes);
        let active_bytes = self.core.plan().active_bytes;
        for tree in self.core.catalog.read().values() {
            tree.set_memtable_bytes(active_bytes);
        }
        self.flushes.wake();
        self.jobs.wake();
    }
}
