//! Commit pipeline of an open database: its queue, its log and their environment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::SeqNo;
use crate::commit::env::CommitEnv;
use crate::commit::log::Log;
use crate::commit::packed::pack;
use crate::commit::queue::{CommitQueue, Queued};
use crate::commit::request::{Commit, Done, Request};
use crate::commit::validate::Validation;
use crate::db::options::Durability;
use crate::error::Result;
use crate::memory::Use;
use crate::sync::plain::Mutex;

/// Queue and log of a database, see the module.
pub(crate) struct CommitPipeline {
    pub env: CommitEnv,
    pub queue: CommitQueue<Request, Result<Done>>,
    /// Guards the log, sequence numbers and the writers of active memtables. Held across the log's
    /// own I/O.
    pub log: Mutex<Log>,
}

impl CommitPipeline {
    pub fn new(env: CommitEnv, log: Log) -> CommitPipeline {
        CommitPipeline {
            env,
            queue: CommitQueue::default(),
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

    /// Runs a request through the commit queue.
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
            let done = self.queue.run(request, |group| self.lead(group));
            if let Done::At(seqno) = done? {
                return Ok(seqno);
            }
        }
    }

    /// Processes a group. If a leader unwound, its group and every thread queued after it would
    /// wait forever.
    fn lead(&self, group: &[Arc<Commit>]) -> Vec<Result<Done>> {
        let processed = AssertUnwindSafe(|| self.log.lock().process(&self.env, group));
        catch_unwind(processed).unwrap_or_else(|_| {
            let error = self.env.core.poison_after_panic();
            group.iter().map(|_| Err(error.clone())).collect()
        })
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
