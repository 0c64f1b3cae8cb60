//! The Insert Benchmark: tables used as queues, rows inserted at one end and deleted at the other, with three indexes.
//!
//! Reading order: [`steps`] (what each step does), [`config`] and [`settings`], [`rows`] (columns, indexes, the rows and how
//! they are checked), [`stream`] (what is asked), then the clients: `coupling` (keeps deletes beside inserts), `queue` (one
//! table and who has got how far), `writer`, `reader`; last [`workload`] (the steps in order and the checks). The guide is
//! `docs/guide/insert-benchmark.md`.

pub mod config;
mod coupling;
mod queue;
mod reader;
pub mod rows;
pub mod settings;
pub mod steps;
pub mod stream;
pub mod workload;
mod writer;

pub use config::{Config, Form};
pub use settings::SETTINGS;
pub use steps::{Action, STEPS, Step};
pub use workload::InsertBenchmark;
