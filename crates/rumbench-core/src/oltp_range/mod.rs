//! OLTP ranges: the tests of sysbench in the form of the published reports, on any engine.
//!
//! Reading order: [`columns`], [`tests`], [`config`], [`rows`] (the tables, the rows and their
//! checks), [`events`] (the statements of each test), `state` (the rows that must exist), then the
//! clients. They are `load`, `client`, `reads`, and for servers `queries`, `selects` and `lists`.
//! Last is [`workload`] (the steps in order and the checks). The guide is
//! `docs/guide/oltp-range.md`.

mod client;
pub mod columns;
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
