//! `dump`: the full content of a file: rows of a table, records of the log, edits of the manifest.
//!
//! The files are read without opening the database, so that a damaged one can be examined, too.
//! Damage is reported, and the trustworthy parts are shown.

mod edit;
mod log;
mod table;

use std::path::PathBuf;

use alluvium::Error;
use alluvium::base::ValueKind;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Form;
use super::verify::{damage_json, with_causes};
use crate::database::Exit;
use crate::output::{List, Output, advise, fields};

#[derive(Subcommand)]
pub enum DumpCommand {
    /// Every row of a table, with commit and kind
    Table(TableArgs),
    /// Every record of the log, with its operations
    Log(LogArgs),
    /// Every edit of the manifest in force
    Manifest(ManifestArgs),
}

#[derive(Args)]
pub struct TableArgs {
    /// The table's file, or the database's directory
    path: PathBuf,
    /// The number or name of a table; needed behind a directory
    table: Option<String>,
}

#[derive(Args)]
pub struct LogArgs {
    /// The database's directory
    dir: PathBuf,
    /// Only this segment
    #[arg(long)]
    segment: Option<u64>,
}

#[derive(Args)]
pub struct ManifestArgs {
    /// The database's directory
    dir: PathBuf,
}

/// Runs `alluvium dump`.
pub fn run(command: &DumpCommand, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    match command {
        DumpCommand::Table(arguments) => table::run(arguments, form, output),
        DumpCommand::Log(arguments) => log::run(arguments, form, output),
        DumpCommand::Manifest(arguments) => edit::run(arguments, form, output),
    }
}

/// Ends a dump with the damage found on the way.
fn end(list: List<'_>, count: u64, mut more: Value, damages: &[Error]) -> anyhow::Result<Exit> {
    more["count"] = count.into();
    more["damages"] = damages.iter().map(damage_json).collect();
    list.end(&fields(more))?;
    for damage in damages {
        advise(&format!("alluvium: {}", with_causes(damage)));
    }
    // A file of a newer build is intact, as far as this build can tell.
    if let Some(newer) = damages
        .iter()
        .find(|d| matches!(d, Error::NewerFormat { .. }))
    {
        return Err(newer.clone().into());
    }
    Ok(if damages.is_empty() {
        Exit::Done
    } else {
        Exit::Wrong
    })
}

/// Returns the name of a row's or operation's kind.
fn kind_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Insert => "insert",
        ValueKind::Put => "put",
        ValueKind::Delete => "delete",
        ValueKind::RangeDelete => "range_delete",
        ValueKind::Upsert => "upsert",
        ValueKind::Pointer => "put_pointer",
        ValueKind::InsertPointer => "insert_pointer",
    }
}

/// Returns an object without fields.
fn nothing() -> Value {
    json!({})
}
