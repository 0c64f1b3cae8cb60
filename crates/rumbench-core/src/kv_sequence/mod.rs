//! kv-sequence: one table of keys and values, and a sequence of steps on it, as db_bench runs them
//! for each release of RocksDB.
//!
//! Reading order: [`steps`] (the actions of each step), [`config`] (the settings), [`value`] (the
//! values written, and their check when read), [`stream`] (the requests), [`workload`] (the steps
//! in order). The guide is `docs/guide/kv-sequence.md`.

mod client;
pub mod config;
pub mod steps;
pub mod stream;
pub mod value;
pub mod workload;

pub use config::{Config, Form, SETTINGS};
pub use steps::{STEPS, StepDef};
pub use workload::{KvSequence, schema};
