//! Large values: loads rows in key order, then queries by key with background inserts. The size of
//! the database on the device is compared with the compressed size of its rows.
//!
//! Reading order: [`config`], [`rows`] (the table, the values and their checks), `client` (inserts
//! and queries), [`workload`] (the phases and the checks). The guide is
//! `docs/guide/large-values-workload.md`.

mod client;
pub mod config;
pub mod rows;
pub mod workload;

pub use client::Queries;
pub use config::{Config, SETTINGS};
pub use workload::LargeValues;

/// Names of the phases with a description of each.
pub const PHASES: &[(&str, &str)] = &[
    ("load", "inserts the rows in the order of the primary key"),
    (
        "settle",
        "the engine works off its backlog; the size of the database is compared with that of its rows",
    ),
    (
        "query",
        "queries by primary key, with background inserts at a rate",
    ),
];
