//! Compaction: picks groups ([`pick`]), decides which versions survive ([`fold`]), merges tables
//! into new tables, runs the jobs on threads, and lets callers wait for them.

mod debt;
pub(crate) mod fold;
mod idle;
mod job;
mod jobs;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod pick;
mod read_triggered;
pub(crate) mod retire;
pub(crate) mod separate;
mod steps;
pub(crate) mod survey;
mod threads;
mod wait;

pub use retire::{CompactionFilter, FilterDecision};

pub(crate) use debt::update_admission;
pub(crate) use job::{Compacted, Inputs};
pub(crate) use jobs::{Claim, Jobs};
pub(crate) use threads::run;
pub(crate) use wait::{compact_range, settle};
