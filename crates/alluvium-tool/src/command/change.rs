//! `compact`, `checkpoint` and `load`: the commands that open the database for writing.

use std::io::{BufRead, ErrorKind};
use std::path::PathBuf;

use alluvium::{BulkLoadOptions, Database, KeyspaceOptions, KeyspaceStats};
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use super::stats::{sizes_json, sizes_line};
use crate::database::{Exit, Usage, keyspace, open_to_write};
use crate::output::{Output, advise};
use crate::text::{Coding, count, size};

#[derive(Args)]
pub struct CompactArgs {
    /// The database's directory
    dir: PathBuf,
    /// Only this keyspace; otherwise all of them
    keyspace: Option<String>,
}

#[derive(Args)]
pub struct CheckpointArgs {
    /// The database's directory
    dir: PathBuf,
    /// The new database's directory, which must not exist
    target: PathBuf,
}

#[derive(Args)]
pub struct LoadArgs {
    /// The database's directory
    dir: PathBuf,
    /// Name of the keyspace
    keyspace: String,
    /// Create the keyspace, with default options, if it does not exist
    #[arg(long)]
    create: bool,
}

/// Runs `alluvium compact`.
pub fn compact(arguments: &CompactArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_write(&arguments.dir)?;
    let names = match &arguments.keyspace {
        Some(name) => vec![keyspace(&db, name)?.name().to_owned()],
        None => db.keyspace_names()?,
    };
    // Flush first, so that both sides of the comparison have all rows in tables.
    db.flush()?;
    let before = sizes(&db, &names)?;
    for name in &names {
        let merged = keyspace(&db, name)?.compact_range(b"", None);
        merged.with_context(|| format!("cannot compact keyspace {name}"))?;
    }
    let after = sizes(&db, &names)?;
    db.close()?;
    let mut documents = Vec::new();
    let mut lines = String::new();
    for (before, after) in before.iter().zip(&after) {
        documents.push(json!({ "before": sizes_json(before), "after": sizes_json(after) }));
        lines.push_str(&format!(
            "keyspace {}\n  before: {}\n  after:  {}\n",
            before.name,
            sizes_line(before),
            sizes_line(after)
        ));
    }
    output.answer(&json!({ "keyspaces": documents }), lines)?;
    Ok(Exit::Done)
}

fn sizes(db: &Database, names: &[String]) -> anyhow::Result<Vec<KeyspaceStats>> {
    let all = db.stats()?.keyspaces;
    Ok(all
        .into_iter()
        .filter(|k| names.contains(&k.name))
        .collect())
}

/// Runs `alluvium checkpoint`.
pub fn checkpoint(arguments: &CheckpointArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_write(&arguments.dir)?;
    let made = db.checkpoint(&arguments.target)?;
    db.close()?;
    let target = arguments.target.display().to_string();
    let document = json!({
        "target": target,
        "seqno": made.seqno,
        "linked_tables": made.linked_tables,
        "copied_tables": made.copied_tables,
        "copied_bytes": made.copied_bytes,
    });
    let line = format!(
        "{target} holds every commit up to {}: {} linked, {} copied ({})\n",
        made.seqno,
        count(made.linked_tables, "file", "files"),
        made.copied_tables,
        size(made.copied_bytes)
    );
    output.answer(&document, line)?;
    Ok(Exit::Done)
}

/// Runs `alluvium load`: all rows as one commit, or none.
pub fn load(arguments: &LoadArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_write(&arguments.dir)?;
    let target = if arguments.create {
        // An existing keyspace keeps its options.
        db.keyspace(&arguments.keyspace, KeyspaceOptions::default())?
    } else {
        keyspace(&db, &arguments.keyspace)?
    };
    let mut load = db.bulk_load(BulkLoadOptions::default())?;
    for (at, line) in std::io::stdin().lock().lines().enumerate() {
        let refused = |why: String| {
            let message = format!("line {} of stdin: {why}; nothing was loaded", at + 1);
            anyhow::Error::new(Usage(message))
        };
        let line = line.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => refused("it is no UTF-8 text".to_owned()),
            _ => anyhow::Error::new(error).context("cannot read stdin"),
        })?;
        let (key, value) = row(form.coding(), &line).map_err(|error| refused(error.to_string()))?;
        load.put(&target, &key, &value)?;
    }
    let loaded = load.finish()?;
    db.close()?;
    let document: Value = json!({
        "keyspace": arguments.keyspace,
        "rows": loaded.rows,
        "seqno": loaded.seqno,
    });
    let line = format!("{} loaded\n", count(loaded.rows, "row", "rows"));
    output.answer(&document, line)?;
    if loaded.rows == 0 {
        advise(
            "alluvium: stdin held no rows: each line is KEY<TAB>VALUE, as `alluvium scan` prints them",
        );
    }
    Ok(Exit::Done)
}

fn row(coding: Coding, line: &str) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let (key, value) = line
        .split_once('\t')
        .context("there is no tab between a key and a value")?;
    Ok((coding.read(key)?, coding.read(value)?))
}
