//! LinkBench: a social graph's nodes, links and counts, and ten operations on them.
//!
//! Reading order: [`store`](LinkStore) (the rows and the operations of a store), [`config`] (the
//! settings), [`graph`] (the loaded rows), [`stream`] (the requests), [`workload`] (the phases),
//! then [`kv_store`] (the store of all ordered key-value engines). The guide is
//! `docs/guide/linkbench.md`.

pub mod access;
mod client;
pub mod config;
pub mod conformance;
pub mod degree;
pub mod distribution;
pub mod graph;
mod history;
pub mod java_random;
mod kv_check;
mod kv_rows;
pub mod kv_store;
mod load;

pub mod payload;
pub mod request;
mod sample;
pub mod settings;
pub mod shuffle;
mod stationary;
pub(crate) mod store;
pub mod stream;
pub mod workload;

pub use config::{Config, Mode, Rules};
pub use kv_store::KvLinkStore;
pub use settings::SETTINGS;
pub use store::{
    Count, EqualTimes, Link, LinkConnection, LinkKey, LinkRow, LinkStore, ListQuery, ListResult,
    Node, NodeRow, TableTotals, WriteOutcome,
};
pub use workload::{Hooks, LinkBench};
