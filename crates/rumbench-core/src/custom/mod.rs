//! Custom workloads: tables, phases and operations that a user describes in a TOML file, and
//! presets in the same form.
//!
//! Reading order: [`definition`] (the content of a file), `source` and `read` (from text to a
//! definition, with errors that name the line), [`presets`], [`config`] (overrides of the command
//! line), [`rows`] (values of rows, and how reads recognize them), [`population`] and [`versions`]
//! (rows that exist, and their states), [`keys`] and [`stream`] (requests), then `client`, `scan`,
//! `load` and [`workload`]. The guide is `docs/guide/own-workloads.md`.

mod checks;
mod client;
pub mod config;
pub mod definition;
pub mod keys;
mod load;
pub mod population;
pub mod presets;
mod read;
mod read_keys;
mod read_phases;
mod read_tables;
pub mod rows;
mod scan;
mod source;
pub mod stream;
pub mod versions;
pub mod workload;

pub use config::{Config, SETTINGS};
pub use definition::{Definition, DefinitionError};
pub use presets::{PRESETS, Preset};
pub use workload::{Custom, KINDS};
