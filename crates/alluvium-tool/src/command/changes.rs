//! `changes`: the history of a database as far back as its log is kept, commit by commit.

use std::path::PathBuf;

use alluvium::{
    Change, ChangeKind, ChangedKeyspace, Changes, ChangesOptions, Database, Error, Operation,
};
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use crate::database::{Exit, open_to_read};
use crate::output::{Output, fields};
use crate::text::Coding;

#[derive(Args)]
pub struct ChangesArgs {
    /// The database's directory
    dir: PathBuf,
    /// The first commit to show; without it the oldest one that is kept
    #[arg(long)]
    from: Option<u64>,
    /// At most this many changes
    #[arg(long)]
    limit: Option<u64>,
    /// Only what concerns this keyspace; may be given several times
    #[arg(long)]
    keyspace: Vec<String>,
}

/// Runs `alluvium changes`.
pub fn run(arguments: &ChangesArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let coding = form.coding();
    let db = open_to_read(&arguments.dir)?;
    let options = ChangesOptions {
        keyspaces: arguments.keyspace.clone(),
        ..ChangesOptions::default()
    };
    let mut changes = begin(&db, arguments.from, &options)?;
    let first = fields(json!({ "from": changes.next_seqno() }));
    let mut list = output.list(&first, "changes")?;
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut count = 0;
    let read = loop {
        if count >= limit {
            break Ok(());
        }
        match changes.next() {
            Ok(Some(change)) => {
                count += 1;
                list.item(|| document(coding, &change), || lines(coding, &change))?;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // The changes before the failure are part of the answer, so the document is completed.
    let error = read.as_ref().err().map(ToString::to_string);
    let next = changes.next_seqno();
    list.end(&fields(
        json!({ "count": count, "next": next, "error": error }),
    ))?;
    read.context("the changes end here")?;
    Ok(Exit::Done)
}

fn begin(db: &Database, from: Option<u64>, options: &ChangesOptions) -> anyhow::Result<Changes> {
    let changes = |from| db.changes_with(from, options.clone());
    Ok(match (from, changes(from.unwrap_or(1))) {
        (None, Err(Error::ChangesLost { oldest, .. })) => changes(oldest)?,
        (_, opened) => opened?,
    })
}

fn document(coding: Coding, change: &Change) -> Value {
    let mut document = json!({ "seqno": change.seqno, "kind": kind(&change.kind) });
    match &change.kind {
        ChangeKind::Commit { operations, xid } => {
            if let Some(xid) = xid {
                document["xid"] = coding.show(xid).into();
            }
            let operations = operations.iter().map(|op| operation(coding, op));
            document["operations"] = operations.collect();
        }
        ChangeKind::Ingest { keyspaces } => {
            let part = |(keyspace, rows): &(std::sync::Arc<ChangedKeyspace>, u64)| json!({ "keyspace": keyspace.name, "id": keyspace.id.0, "rows": rows });
            document["keyspaces"] = keyspaces.iter().map(part).collect();
        }
        ChangeKind::KeyspaceCreated { keyspace, .. }
        | ChangeKind::KeyspaceDropped { keyspace }
        | ChangeKind::OptionsChanged { keyspace, .. } => {
            document["keyspace"] = keyspace.name.as_str().into();
            document["id"] = keyspace.id.0.into();
        }
        _ => {}
    }
    document
}

fn kind(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Commit { .. } => "commit",
        ChangeKind::Ingest { .. } => "ingest",
        ChangeKind::KeyspaceCreated { .. } => "create",
        ChangeKind::KeyspaceDropped { .. } => "drop",
        ChangeKind::OptionsChanged { .. } => "set options",
        _ => "unknown",
    }
}

fn operation(coding: Coding, operation: &Operation) -> Value {
    match operation {
        Operation::Put {
            keyspace,
            key,
            value,
            until_ms,
        } => json!({
            "kind": "put",
            "keyspace": keyspace.name,
            "key": coding.show(key),
            "value": coding.show(value),
            "until_ms": until_ms,
        }),
        Operation::Delete { keyspace, key } => json!({
            "kind": "delete",
            "keyspace": keyspace.name,
            "key": coding.show(key),
        }),
        Operation::DeleteRange {
            keyspace,
            start,
            end,
        } => json!({
            "kind": "range_delete",
            "keyspace": keyspace.name,
            "start": coding.show(start),
            "end": coding.show(end),
        }),
        _ => json!({ "kind": "unknown" }),
    }
}

fn lines(coding: Coding, change: &Change) -> String {
    let mut out = format!("{}\t{}", change.seqno, kind(&change.kind));
    match &change.kind {
        ChangeKind::Commit { operations, xid } => {
            if let Some(xid) = xid {
                out.push_str(&format!("\t{}", coding.show(xid)));
            }
            for operation in operations {
                let line = operation_line(coding, operation);
                out.push_str(line.trim_end_matches('\t'));
            }
        }
        ChangeKind::Ingest { keyspaces } => {
            for (keyspace, rows) in keyspaces {
                out.push_str(&format!("\n  {}\t{rows} rows", keyspace.name));
            }
        }
        ChangeKind::KeyspaceCreated { keyspace, .. }
        | ChangeKind::KeyspaceDropped { keyspace }
        | ChangeKind::OptionsChanged { keyspace, .. } => {
            out.push_str(&format!("\t{} (keyspace {})", keyspace.name, keyspace.id.0));
        }
        _ => {}
    }
    out
}

fn operation_line(coding: Coding, operation: &Operation) -> String {
    let show = |bytes: &[u8]| coding.show(bytes);
    match operation {
        Operation::Put {
            keyspace,
            key,
            value,
            until_ms,
        } => {
            let until = until_ms.map_or(String::new(), |ms| format!("\tuntil {ms}"));
            let (name, key, value) = (&keyspace.name, show(key), show(value));
            format!("\n  {name}\tput\t{key}\t{value}{until}")
        }
        Operation::Delete { keyspace, key } => {
            format!("\n  {}\tdelete\t{}", keyspace.name, show(key))
        }
        Operation::DeleteRange {
            keyspace,
            start,
            end,
        } => {
            let (name, start, end) = (&keyspace.name, show(start), show(end));
            format!("\n  {name}\trange_delete\t{start}\t{end}")
        }
        _ => "\n  unknown".to_owned(),
    }
}
