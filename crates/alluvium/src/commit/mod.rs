//! From a set of writes to a published commit: log, memtables, visibility, in groups.
//!
//! Committing threads queue their encoded payloads. One of them leads: it takes what is queued, gives each commit
//! its sequence number, writes all records with one `pwrite`, syncs if one of them asked for it, applies them to
//! the memtables and publishes the newest sequence number. The others sleep until their commit is done or the lead
//! is handed to them. Publication follows log order, so a `Buffered` commit behind a `Sync` one of the same group
//! waits for its sync. With one client there is no hand-off at all.

pub(crate) mod batch;
mod log;
pub(crate) mod marker;
pub(crate) mod packed;
pub(crate) mod prepared;
mod queue;
pub(crate) mod validate;

pub use batch::WriteBatch;
pub(crate) use log::{Log, SealedGeneration, SealedLog};
pub(crate) use queue::{Committer, Done, Request};
