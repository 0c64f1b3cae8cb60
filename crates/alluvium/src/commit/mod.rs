//! Commit pipeline: from a set of writes to a published commit, in groups.
//!
//! Committing threads queue their encoded payloads, and one of them becomes leader. The leader
//! takes the queued requests, gives each commit its sequence number, writes all records with one
//! `pwrite`, applies the commits to the memtables and publishes the newest sequence number. The
//! other threads sleep until their commit is done or they are offered the lead. With one client
//! there is no hand-off at all.
//!
//! Requests that wait for a sync have a queue of their own. Their leader syncs after it has given
//! back the log's mutex, so the leader of the other queue continues. Publication follows log order:
//! a commit that waits for a sync is published after it, and so is every commit that follows it.

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
mod reserve;
mod room;
mod sealed;
mod syncer;
mod two_phase;
pub(crate) mod validate;

pub(crate) use env::{CommitEnv, SyncerSignal};
pub(crate) use log::Log;
pub(crate) use pipeline::CommitPipeline;
pub(crate) use request::Request;
pub(crate) use sealed::{SealedGeneration, SealedLog};
