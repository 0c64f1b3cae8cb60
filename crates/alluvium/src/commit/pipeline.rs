//! Commit pipeline of an open database: its queues, its log and their environment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::SeqNo;
use crate::commit::env::CommitEnv;
use crate::commit::log::{Log, Unsynced};
use crate::commit::packed::pack;
use crate::commit::queue::{CommitQueue, Queued};
use crate::commit::request::{Commit, Done, Request};
use crate::commit::validate::Validation;
use crate::db::options::Durability;
use crate::error::Result;
use crate::memory::Use;
use crate::sync::plain::Mutex;

/// Queues and log of a database, see the module.
pub(crate) struct CommitPipeline {
    pub env: CommitEnv,
    /// Requests that wait for no sync.
    pub queue: CommitQueue<Request, Result<Done>>,
    /// Requests that wait for a sync. Their leader holds the log's mutex to write the group, and
    /// syncs without it, so that the leader of the other queue continues.
    syncing: CommitQueue<Request, Result<Done>>,
    /// Guards the log, sequence numbers and the writers of active memtables. Held across the log's
    /// own I/O.
    pub log: Mutex<Log>,
}

impl CommitPipeline {
    pub fn new(env: CommitEnv, log: Log) -> CommitPipeline {
        CommitPipeline {
            env,
            queue: CommitQueue::default(),
            syncing: CommitQueue::default(),
            log: Mutex::new(log),
        }
    }

    /// Commits an encoded payload after its size has been checked, see [`crate::commit`].
    pub fn commit(&self, payload: Vec<u8>, durability: Durability) -> Result<SeqNo> {
        let packed = self.packed(&payload);
        self.commit_request(Request::new(payload, packed, durability))
    }

    /// Commits as [`CommitPipeline::commit`] does, and validates the reads that the commit depends
    /// on.
    pub fn commit_validated(
        &self,
        payload: Vec<u8>,
        durability: Durability,
        validation: Validation,
    ) -> Result<SeqNo> {
        let packed = self.packed(&payload);
        let _watch = self.env.validating.watch();
        self.commit_request(Request::new(payload, packed, durability).validated(validation))
    }

    fn packed(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let has_log = self.env.core.options.durability != Durability::None;
        has_log.then(|| pack(payload)).flatten()
    }

    /// Runs a request through one of the queues. On return a commit is visible, unless it is
    /// [ordered](Request::ordered).
    pub fn commit_request(&self, request: Request) -> Result<SeqNo> {
        let core = &self.env.core;
        core.access.check_writable()?;
        self.env.ballast.check_space(|| request.makes_room())?;
        // The log writes a copy of the record.
        let copies = 2 * request.record().1.len();
        let _charge = core.memory.charge(Use::Commits, copies);
        let sync = request.durability == Durability::Sync;
        let request = Arc::new(Queued::new(request));
        core.metrics.timed_commit(sync, || self.run(&request))
    }

    fn run(&self, request: &Arc<Commit>) -> Result<SeqNo> {
        // Ends: the leader returns a validation to this thread a bounded number of times.
        loop {
            if let Some(validation) = &request.validation {
                validation.look(&self.env.core.read_points)?;
            }
            let done = match request.durability {
                Durability::Sync => self.syncing.run(request, |group| self.lead_synced(group)),
                Durability::Buffered | Durability::None => {
                    self.queue.run(request, |group| self.lead(group))
                }
            };
            if let Done::At(seqno) = done? {
                if !request.is_ordered() {
                    self.wait_until_visible(seqno)?;
                }
                return Ok(seqno);
            }
        }
    }

    /// Processes a group that waits for no sync.
    fn lead(&self, group: &[Arc<Commit>]) -> Vec<Result<Done>> {
        self.process(group, &mut self.log.lock())
    }

    /// Processes a group and syncs the log.
    fn lead_synced(&self, group: &[Arc<Commit>]) -> Vec<Result<Done>> {
        let (results, unsynced) = {
            let mut log = self.log.lock();
            (self.process(group, &mut log), log.unsynced())
        };
        if !results.iter().any(|done| matches!(done, Ok(Done::At(_)))) {
            return results;
        }
        let synced = catch_unwind(AssertUnwindSafe(|| self.make_durable(unsynced)));
        let synced = synced.unwrap_or_else(|_| {
            let error = self.env.core.poison_after_panic();
            self.wake_waiting();
            Err(error)
        });
        match synced {
            Ok(()) => results,
            Err(error) => {
                let failed = |done: Result<Done>| done.and(Err(error.clone()));
                results.into_iter().map(failed).collect()
            }
        }
    }

    /// Processes a group. If a leader unwound, its group and every thread queued after it would
    /// wait forever. The database is poisoned under the mutex: the leader of the other queue would
    /// publish what was applied of the group.
    fn process(&self, group: &[Arc<Commit>], log: &mut Log) -> Vec<Result<Done>> {
        let processed = AssertUnwindSafe(|| log.process(&self.env, group));
        catch_unwind(processed).unwrap_or_else(|_| {
            let error = self.env.core.poison_after_panic();
            self.env.progress.grew.notify_all();
            group.iter().map(|_| Err(error.clone())).collect()
        })
    }

    /// Syncs a part of the log without holding its mutex, so that commits continue, and publishes
    /// the commits that waited for it. `None`: there is nothing to sync. A failure poisons the
    /// database.
    pub(super) fn make_durable(&self, unsynced: Option<Unsynced>) -> Result<()> {
        let core = &self.env.core;
        let Some(unsynced) = unsynced else {
            return core.poison.check();
        };
        let synced = core.poison.check().and_then(|()| {
            let synced = core.metrics.timed_sync(|| unsynced.syncer.sync());
            core.poison.guard(synced)
        });
        match synced {
            Ok(()) => self.log.lock().note_synced(&self.env, &unsynced),
            Err(_) => self.wake_waiting(),
        }
        synced
    }

    /// Waits until a commit is visible. It is when its leader is done, unless an earlier commit
    /// waits for its sync.
    pub fn wait_until_visible(&self, seqno: SeqNo) -> Result<()> {
        let core = &self.env.core;
        if core.read_points.visible() >= seqno {
            return Ok(());
        }
        let mut log = self.log.lock();
        // Ends: the leader of the earlier commit publishes, or poisons and wakes.
        while core.read_points.visible() < seqno {
            core.poison.check()?;
            self.env.progress.grew.wait(&mut log);
        }
        Ok(())
    }

    /// Wakes the threads that wait for a commit to become visible, after a failure.
    fn wake_waiting(&self) {
        // Under the mutex: a thread that is about to sleep would miss it.
        let _log = self.log.lock();
        self.env.progress.grew.notify_all();
    }

    /// Seals the active memtables and requests a flush, for background work. A failure has poisoned
    /// the database or changed nothing.
    pub fn seal_and_flush(&self) {
        let mut log = self.log.lock();
        if self.env.core.access.check_open().is_ok() && log.seal(&self.env).is_ok() {
            drop(log);
            self.env.flushes.want();
        }
    }
}
