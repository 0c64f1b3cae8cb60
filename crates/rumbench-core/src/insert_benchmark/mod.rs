//! The Insert Benchmark: tables used as queues, with inserts at one end, deletes at the other, and
//! three indexes.
//!
//! Reading order: [`steps`], [`config`] (the settings), [`rows`] (columns, indexes, the rows and
//! their checks), [`stream`] (the operations), then the clients. The clients are `coupling` (keeps
//! deletes in step with inserts), `queue` (one table and the progress of its clients), `writer` and
//! `reader`. Last is [`workload`] (the steps in order and the checks). The guide is
//! `docs/guide/insert-benchmark.md`.

pub mod config;
mod coupling;
mod queue;
mod reader;
pub mod rows;
pub mod steps;
pub mod stream;
pub mod workload;
mod writer;

pub use config::{Config, Form, SETTINGS};
pub use steps::{Action, STEPS, Step};
pub use workload::InsertBenchmark;
