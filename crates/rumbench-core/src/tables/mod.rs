//! Relational tables: the interface of an engine for workloads of rows, secondary indexes and
//! ranges, written once for all.
//!
//! Reading order: [`schema`] (columns, keys, indexes), [`rows`] (values and batches of rows),
//! [`store`] (the operations), [`encoding`] (rows and index entries as bytes), then [`kv_store`]
//! (the store of all ordered key-value engines). Engines with SQL implement [`TableStore`] with
//! statements of their own.

pub mod encoding;
mod kv_build;
mod kv_check;
mod kv_entries;
mod kv_replace;
pub mod kv_store;
mod kv_writes;
pub mod rows;
pub mod schema;
pub mod store;

pub use kv_store::kv_table_store;
pub use rows::{RowBatch, Value};
pub use schema::{Column, ColumnType, Index, Path, Table, TableId, TableSchema};
pub use store::{
    Change, Fold, Range, TableConnection, TableQueries, TableStore, TableWrites, Where, refuse_rows,
};
