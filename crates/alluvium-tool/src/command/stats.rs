//! `stats` and `estimate`: sizes without reading rows.

use std::fmt::Write as _;
use std::path::PathBuf;

use alluvium::{Compared, KeyspaceAmplification, KeyspaceStats};
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use super::read::{bytes, nullable};
use crate::database::{Exit, keyspace, open_to_read};
use crate::output::Output;
use crate::text::{count, size};

#[derive(Args)]
pub struct StatsArgs {
    /// The database's directory
    dir: PathBuf,
}

#[derive(Args)]
pub struct EstimateArgs {
    /// The database's directory
    dir: PathBuf,
    /// Name of the keyspace
    keyspace: String,
    /// The first key; the empty key is the start of the keyspace
    start: String,
    /// The key behind the last one; without it the range ends with the keyspace
    end: Option<String>,
}

/// Runs `alluvium stats`. Reads and writes are counted since opening, so only space and the
/// predictions are meaningful for a database just opened.
pub fn stats(arguments: &StatsArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_read(&arguments.dir)?;
    let (stats, amplification) = (db.stats()?, db.amplification()?);
    let mut documents = Vec::new();
    let mut lines = format!("last commit: {}\n", db.visible_seqno());
    // Both are sorted by name, and no other process has the database open.
    for (keyspace, cost) in stats.keyspaces.iter().zip(&amplification.keyspaces) {
        documents.push(keyspace_json(keyspace, cost));
        keyspace_lines(&mut lines, keyspace, cost);
    }
    if documents.is_empty() {
        lines.push_str("no keyspaces\n");
    }
    let document = json!({ "seqno": db.visible_seqno(), "keyspaces": documents });
    output.answer(&document, lines)?;
    Ok(Exit::Done)
}

/// Returns the sizes of a keyspace as JSON.
pub fn sizes_json(stats: &KeyspaceStats) -> Value {
    json!({
        "name": stats.name,
        "rows_estimate": stats.rows_estimate,
        "groups": stats.groups,
        "memtable_bytes": stats.memtable_bytes,
        "upper_tables": stats.upper_tables,
        "upper_bytes": stats.upper_bytes,
        "last_tables": stats.last_tables,
        "last_bytes": stats.last_bytes,
        "table_entries": stats.table_entries,
    })
}

/// Returns the sizes of a keyspace in one line.
pub fn sizes_line(stats: &KeyspaceStats) -> String {
    format!(
        "about {}; {}: {} in {} above, {} in {} of the last level; memtables {}",
        count(stats.rows_estimate, "row", "rows"),
        count(stats.groups, "group", "groups"),
        size(stats.upper_bytes),
        count(stats.upper_tables, "table", "tables"),
        size(stats.last_bytes),
        count(stats.last_tables, "table", "tables"),
        size(stats.memtable_bytes)
    )
}

fn keyspace_json(stats: &KeyspaceStats, cost: &KeyspaceAmplification) -> Value {
    let mut document = sizes_json(stats);
    let space = cost.space.measured;
    document["stored_bytes"] = cost.stored_bytes.into();
    document["live_bytes_estimate"] = cost.live_bytes_estimate.into();
    document["space_amplification"] =
        json!({ "estimate": space, "predicted": cost.space.predicted });
    let predicted = |compared: &Compared| Value::from(compared.predicted);
    document["predicted"] = json!({
        "sources_per_get": predicted(&cost.get_sources),
        "sources_per_seek": predicted(&cost.seek_sources),
        "flush_bytes_per_byte": predicted(&cost.flush_writes),
        "tier_bytes_per_byte": predicted(&cost.tier_writes),
        "last_level_bytes_per_byte": predicted(&cost.last_level_writes),
    });
    document
}

fn keyspace_lines(out: &mut String, stats: &KeyspaceStats, cost: &KeyspaceAmplification) {
    // Writing to a string never fails.
    let _ = writeln!(out, "\nkeyspace {}", stats.name);
    let _ = writeln!(out, "  {}", sizes_line(stats));
    if cost.stored_bytes == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "  {} in tables, {} of it live by estimate",
        size(cost.stored_bytes),
        size(cost.live_bytes_estimate)
    );
    let measured = cost.space.measured;
    let space = measured.map_or("unknown".to_owned(), |space| format!("{space:.2}"));
    let _ = writeln!(
        out,
        "  space amplification: {space} by estimate; the design predicts up to {:.2}",
        cost.space.predicted
    );
    let _ = writeln!(
        out,
        "  predicted sources: {:.2} for a read of one row, {:.1} for a seek",
        cost.get_sources.predicted, cost.seek_sources.predicted
    );
}

/// Runs `alluvium estimate`.
pub fn estimate(arguments: &EstimateArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let coding = form.coding();
    let start = bytes(coding, "START", &arguments.start)?;
    let end = arguments.end.as_ref();
    let end = end.map(|end| bytes(coding, "END", end)).transpose()?;
    let db = open_to_read(&arguments.dir)?;
    let keyspace = keyspace(&db, &arguments.keyspace)?;
    let estimate = keyspace.estimate_range(&start, end.as_deref())?;
    let document = json!({
        "keyspace": arguments.keyspace,
        "start": coding.show(&start),
        "end": nullable(coding, end.as_deref()),
        "rows": estimate.rows,
        "bytes": estimate.bytes,
    });
    let line = format!(
        "about {}, {}\n",
        count(estimate.rows, "row", "rows"),
        size(estimate.bytes)
    );
    output.answer(&document, line)?;
    Ok(Exit::Done)
}
