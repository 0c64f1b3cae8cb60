//! Commit pipeline: from a set of writes to a published commit, in groups.
//!
//! Committing threads queue their encoded payloads, and one of them becomes leader. The leader
//! takes the queued requests, gives each commit its sequence number and writes all records with one
//! `pwrite`. It syncs if any request asked for it, applies the commits to the memtables and
//! publishes the newest sequence number. The other threads sleep until their commit is done or they
//! are offered the lead. Publication follows log order, so a `Buffered` commit after a `Sync`
//! commit of the same group waits for its sync. With one client there is no hand-off at all.

pub(crate) mod env;
pub(crate) mod log;
pub(crate) mod marker;
pub(crate) mod old_segments;
pub(crate) mod packed;
pub(crate) mod payload;
mod pipeline;
pub(crate) mod prepared;
pub(crate) mod progress;
mod queue;
mod request;
mod sealed;
mod syncer;
mod two_phase;
pub(crate) mod validate;

pub(crate) use env::{CommitEnv, SyncerSignal};
pub(crate) use log::Log;
pub(crate) use pipeline::CommitPipeline;
pub(crate) use request::Request;
pub(crate) use sealed::{SealedGeneration, SealedLog};
