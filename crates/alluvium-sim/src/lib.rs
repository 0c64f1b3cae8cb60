//! Deterministic simulation of Alluvium: one seed decides clients, scheduling, time, faults and crashes.
//!
//! A `plan` is what a seed asks for: a database, and some *incarnations* of it, each with the operations of a few clients,
//! the faults of its disk and its end. A `history` is the oracle: which commit got which number, and so what every
//! read point must see and what may be left after a crash. `disk` is the file system, `client` does what the plan
//! says and compares what `reading` shows, `run` leads one database through all its incarnations, `shrink` makes a
//! failing plan small.
//!
//! Built with the feature `simulation` only; without it this crate is empty.
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
mod maker;
mod places;
pub mod plan;
mod post_mortem;
pub mod reading;
pub mod run;
mod settings;
pub mod shrink;
pub mod time;
mod transaction;
pub mod world;
