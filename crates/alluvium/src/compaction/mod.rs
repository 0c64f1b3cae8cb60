//! Compaction: picks groups ([`pick`]), decides which versions survive ([`fold`]), merges tables
//! into new tables, chooses the next work of its threads ([`next`]), runs the jobs, and lets
//! callers wait for them.

pub(crate) mod dictionaries;
mod env;
pub(crate) mod fold;
mod garbage;
mod idle;
mod install;
mod job;
mod jobs;
pub(crate) mod merge;
mod mode;
mod next;
pub(crate) mod output;
pub(crate) mod pick;
mod read_triggered;
pub(crate) mod retire;
pub(crate) mod separate;
mod steps;
pub(crate) mod survey;
pub(crate) mod table_options;
mod threads;
mod wait;

pub use retire::{CompactionFilter, FilterDecision};

pub(crate) use env::CompactionEnv;
pub(crate) use jobs::{Claim, Jobs};
pub(crate) use threads::run;
pub(crate) use wait::{compact_range, settle};
