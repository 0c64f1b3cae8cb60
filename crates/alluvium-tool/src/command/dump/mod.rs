//! `dump`: the full content of a file: rows of a table, records of the log, edits of the manifest.
//!
//! The files are read without opening the database, so that a damaged one can be examined, too.
//! Damage is reported, and the trustworthy parts are shown.

mod answer;
mod edit;
mod log;
mod table;

use clap::Subcommand;

use super::form::Form;
use crate::database::Exit;
use crate::output::Output;

#[derive(Subcommand)]
pub enum DumpCommand {
    /// Every row of a table, with commit and kind
    Table(table::TableArgs),
    /// Every record of the log, with its operations
    Log(log::LogArgs),
    /// Every edit of the manifest in force
    Manifest(edit::ManifestArgs),
}

/// Runs `alluvium dump`.
pub fn run(command: &DumpCommand, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    match command {
        DumpCommand::Table(arguments) => table::run(arguments, form, output),
        DumpCommand::Log(arguments) => log::run(arguments, form, output),
        DumpCommand::Manifest(arguments) => edit::run(arguments, form, output),
    }
}
