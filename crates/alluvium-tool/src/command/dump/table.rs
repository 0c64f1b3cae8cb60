//! `dump table`: the rows of one `.sst` file as stored.

use std::path::{Path, PathBuf};

use alluvium::Error;
use alluvium::base::TableId;
use alluvium::internal::dump::{self, TableRow};
use alluvium::internal::{Manifest, ManifestState, TableRecord};
use alluvium::vfs::{RealVfs, Vfs};
use clap::Args;
use serde_json::{Value, json};

use super::answer::{end, kind_name};
use crate::command::form::Form;
use crate::database::{CannotOpen, Exit, Usage, check_there};
use crate::output::{Output, fields};
use crate::text::Coding;

#[derive(Args)]
pub struct TableArgs {
    /// The table's file, or the database's directory
    path: PathBuf,
    /// The number or name of a table; required after a directory
    table: Option<String>,
}

/// Runs `alluvium dump table`. Takes no lock, because a table file never changes once it has its
/// name.
pub fn run(arguments: &TableArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let path = file_of(arguments)?;
    let file = RealVfs::new().open_read(&path);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    let record = record_of(&path);
    // Without a manifest the uid comes from the file itself.
    let uid = match &record {
        Some(record) => record.uid,
        None => dump::stored_uid(&*file)?,
    };
    let coding = form.coding();
    let begin = json!({
        "file": path.display().to_string(),
        "global_seqno": record.as_ref().and_then(|r| r.global_seqno),
    });
    // Rows of an ingested table have the seqno of the ingest. It is stored in the manifest, not in
    // the file.
    let ingested_at = record.as_ref().and_then(|r| r.global_seqno).unwrap_or(0);
    let mut list = output.list(&fields(begin), "rows")?;
    let (mut rows, mut damages, mut failure) = (0, Vec::new(), None);
    let mut visit = |row: TableRow<'_>| {
        rows += 1;
        let seqno = row.seqno.max(ingested_at);
        let row = TableRow { seqno, ..row };
        let written = list.item(|| row_json(coding, &row), || row_line(coding, &row));
        failure = written.err();
        failure.is_none()
    };
    let ranges = dump::table(&*file, uid, &mut visit, &mut |error| damages.push(error));
    if let Some(failure) = failure {
        return Err(failure);
    }
    for fragment in ranges.iter().flat_map(|ranges| ranges.iter()) {
        let (start, end) = (coding.show(fragment.start), coding.show(fragment.end));
        for seqno in fragment.seqnos {
            rows += 1;
            let document =
                || json!({ "key": start, "end": end, "seqno": seqno, "kind": "range_delete" });
            list.item(document, || {
                format!("{seqno}\trange_delete\t{start}\t{end}")
            })?;
        }
    }
    if ranges.is_none() && damages.is_empty() {
        damages.push(footer_damage(&path));
    }
    end(list, rows, json!({}), &damages)
}

fn footer_damage(path: &Path) -> Error {
    let (what, expected) = ("footer or range deletes of a table", "readable ones");
    Error::corruption(path, 0, what, expected, "damage: range deletes are unknown")
}

/// Returns the path of the requested table file.
fn file_of(arguments: &TableArgs) -> anyhow::Result<PathBuf> {
    let path = &arguments.path;
    if !path.is_dir() {
        if !path.exists() {
            let message = format!("{} does not exist: give a table's file", path.display());
            return Err(CannotOpen(message).into());
        }
        return Ok(path.clone());
    }
    let tables = || {
        let mut names = RealVfs::new().list(path).unwrap_or_default();
        names.retain(|name| name.ends_with(".sst"));
        names.sort();
        if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are: {}", names.join(", "))
        }
    };
    let Some(table) = &arguments.table else {
        check_there(path)?;
        return Err(Usage(format!("which table? {}", tables())).into());
    };
    let number = table.strip_suffix(".sst").unwrap_or(table).parse().ok();
    let file = number.map(|number| path.join(TableId(number).to_string()));
    let there = file.filter(|file| file.exists());
    there.ok_or_else(|| Usage(format!("there is no table {table}; {}", tables())).into())
}

/// Returns the table's record in the manifest of the same directory, if there is a readable one.
fn record_of(path: &Path) -> Option<TableRecord> {
    let dir = path.parent()?;
    let (_, state): (u64, ManifestState) = Manifest::read(&RealVfs::new(), dir).ok()?;
    let name = path.file_name()?.to_str()?;
    let groups = state.keyspaces.values().flat_map(|k| k.groups.values());
    let mut records = groups.flat_map(|g| g.upper.iter().map(|(_, r)| r).chain(&g.last));
    records.find(|r| r.id.to_string() == name).cloned()
}

fn row_json(coding: Coding, row: &TableRow<'_>) -> Value {
    let mut document = json!({
        "key": coding.show(row.key),
        "seqno": row.seqno,
        "kind": kind_name(row.kind),
        "value": coding.show(row.value),
    });
    if let Some((file, offset, bytes)) = row.pointer {
        document["pointer"] = json!({ "file": file.to_string(), "offset": offset, "bytes": bytes });
    }
    document
}

fn row_line(coding: Coding, row: &TableRow<'_>) -> String {
    let value = match row.pointer {
        Some((file, offset, bytes)) => {
            format!(
                "<{bytes} bytes at {offset} of {file}>{}",
                coding.show(row.value)
            )
        }
        None => coding.show(row.value),
    };
    let key = coding.show(row.key);
    let line = format!("{}\t{}\t{key}\t{value}", row.seqno, kind_name(row.kind));
    line.trim_end_matches('\t').to_owned()
}
