//! Deterministic simulation of Alluvium: one seed decides clients, scheduling, time, faults and
//! crashes.
//!
//! A `plan` is made from a seed: a database, and some *incarnations* of it, each with the
//! operations of a few clients, the faults of its disk and its end. A `history` is the oracle: it
//! has the number of each commit, and so the correct result at every read point and the states
//! allowed after a crash. `disk` is the file system. `client` performs the plan and compares the
//! results from `reading`. They share a `world` and its clocks, in `time`. `filter` and `listener`
//! are the compaction filter and the event listener of the database. `run` takes one database
//! through all its incarnations, and `shrink` makes a failing plan small.
//!
//! Built only with the feature `simulation`; without it this crate is empty.
//!
//! ```sh
//! cargo run -p alluvium-sim --features simulation -- --seeds 1000
//! ```
#![cfg(feature = "simulation")]
#![forbid(unsafe_code)]

pub mod client;
mod copies;
pub mod disk;
pub mod filter;
mod follow;
pub mod history;
pub mod listener;
mod loads;
mod lost_updates;
mod maker;
mod places;
pub mod plan;
mod post_mortem;
pub mod reading;
pub mod records;
pub mod run;
mod settings;
pub mod shrink;
pub mod state;
pub mod time;
mod transaction;
pub mod world;
