//! kv-sequence: one table of keys and values, and a sequence of steps on it, as db_bench runs them
//! for each release of RocksDB.
//!
//! Reading order: [`store`](RowStore) (the table and the operations of a store), [`steps`] (the
//! actions of each step), [`config`] (the settings), [`value`] (the values written, and their check
//! when read), [`stream`] (the requests), [`workload`] (the steps in order), then [`kv_store`] (the
//! store of all ordered key-value engines). The guide is `docs/guide/kv-sequence.md`.

mod client;
pub mod config;
pub mod kv_store;
pub mod steps;
mod store;
pub mod stream;
pub mod value;
pub mod workload;

pub use config::{Config, Form, SETTINGS};
pub use kv_store::KvRowStore;
pub use steps::{STEPS, StepDef};
pub use store::{Row, RowConnection, RowStore};
pub use workload::KvSequence;
