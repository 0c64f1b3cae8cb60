//! OLTP ranges: the tests of sysbench as they are used for published reports, on any engine.
//!
//! Reading order: [`tests`] (what each test does), [`config`], [`rows`] (the tables, the rows and how they are checked),
//! [`events`] (what is asked), `state` (which rows must be there), then the clients: `load`, `client`,
//! `reads`, and of servers `queries`, `selects` and `lists`; last [`workload`] (the steps in order and the checks). The guide is `docs/guide/oltp-range.md`.

mod client;
pub mod config;
pub mod events;
mod lists;
mod load;
mod queries;
mod reads;
pub mod rows;
mod selects;
mod state;
pub mod tests;
pub mod workload;

pub use config::{Config, SETTINGS};
pub use tests::{Group, Step, TestDef, phases};
pub use workload::OltpRange;
