//! Runs suites.
//!
//! - The parent's side: [`plan`], [`schedule`], [`suite`], [`process`], [`follow`], [`host`],
//!   [`cgroup`], [`profiled`], [`progress`], [`status`], [`search`] for rate searches,
//!   [`specification`] and [`remainder`] for suites that are resumed.
//! - The child's side: [`trial`], [`steps`], [`phase`], [`threads`], [`client`], [`pacing`],
//!   [`sampler`], [`cross_check`], [`turnover`].
//! - Both sides: [`protocol`] for their messages, [`split`] for the CPU of a phase.

pub mod cgroup;
pub mod client;
pub mod cross_check;
pub mod follow;
pub mod host;
pub mod interrupt;
pub mod intervals;
pub mod pacing;
pub mod phase;
pub mod placement;
pub mod plan;
pub mod process;
pub mod profiled;
pub mod progress;
pub mod protocol;
pub mod remainder;
pub mod sampler;
pub mod schedule;
pub mod search;
pub mod specification;
pub mod split;
pub mod status;
pub mod steps;
pub mod storage;
pub mod stuck;
pub mod suite;
pub mod threads;
pub mod trial;
pub mod turnover;
