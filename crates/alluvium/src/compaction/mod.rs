//! Tables to tables: what to merge ([`pick`]), which versions survive ([`fold`]), the merge itself and its files,
//! the jobs and their threads.

pub(crate) mod fold;
mod idle;
mod job;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod pick;
pub(crate) mod retire;
pub(crate) mod separate;
mod steps;
pub(crate) mod survey;
mod threads;

pub use retire::{CompactionFilter, FilterDecision};

pub(crate) use job::{Inputs, Merged};
pub(crate) use threads::{Jobs, compact_range, run, settle, update_admission};
