//! Large values: rows in the order of their key, then queries by key beside inserts at a rate; what the database takes on
//! the device is compared with the compressed size of its rows.
//!
//! Reading order: [`config`], [`rows`] (the table, the values and how they are checked), `client` (who inserts and who
//! queries), [`workload`] (the phases and the checks). The guide is `docs/guide/large-values-workload.md`.

mod client;
pub mod config;
pub mod rows;
pub mod workload;

pub use client::Queries;
pub use config::{Config, SETTINGS};
pub use workload::LargeValues;

/// Names of the phases with their meaning.
pub const PHASES: &[(&str, &str)] = &[
    ("load", "inserts the rows in the order of the primary key"),
    (
        "settle",
        "the engine pays its debt; the size of the database is compared with that of its rows",
    ),
    (
        "query",
        "queries by primary key, with inserts at a rate beside them",
    ),
];
