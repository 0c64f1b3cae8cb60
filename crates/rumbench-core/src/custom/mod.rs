//! Own workloads: tables, phases and operations that a user describes in a TOML file, and the presets that are such files.
//!
//! Reading order: [`definition`] (what a file can say), `source` and `read` (from text to a definition, with errors that
//! name the line), [`presets`], [`config`] and [`settings`] (what the command line overrides), [`rows`] (contents and how
//! they are known again), [`population`] and [`versions`] (which rows are there, in which state), [`keys`] and [`stream`]
//! (what is asked), then `client`, `scan`, `load` and [`workload`]. The guide is `docs/guide/own-workloads.md`.

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
pub mod rows;
mod scan;
pub mod settings;
mod source;
pub mod stream;
pub mod versions;
pub mod workload;

pub use config::Config;
pub use definition::{Definition, DefinitionError};
pub use presets::{PRESETS, Preset};
pub use settings::SETTINGS;
pub use workload::{Custom, KINDS};
