//! `get` and `scan`: rows as of the newest commit.

use std::path::PathBuf;

use alluvium::{Cursor, CursorOptions};
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use crate::database::{Exit, Usage, keyspace, open_to_read};
use crate::output::{Output, advise, fields};
use crate::text::Coding;

#[derive(Args)]
pub struct GetArgs {
    /// The database's directory
    dir: PathBuf,
    /// Name of the keyspace
    keyspace: String,
    /// The key
    key: String,
}

#[derive(Args)]
pub struct ScanArgs {
    /// The database's directory
    dir: PathBuf,
    /// Name of the keyspace
    keyspace: String,
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<String>,
    /// Only keys from this one on
    #[arg(long)]
    start: Option<String>,
    /// Only keys before this one
    #[arg(long)]
    end: Option<String>,
    /// At most this many rows
    #[arg(long)]
    limit: Option<u64>,
    /// From the last row to the first
    #[arg(long)]
    reverse: bool,
    /// Without values
    #[arg(long)]
    keys_only: bool,
}

/// Decodes an argument; `what` names it in the error message.
pub fn bytes(coding: Coding, what: &str, word: &str) -> anyhow::Result<Vec<u8>> {
    let read = coding.read(word);
    read.map_err(|error| Usage(format!("{what}: {error}")).into())
}

/// Runs `alluvium get`.
pub fn get(arguments: &GetArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let coding = form.coding();
    let key = bytes(coding, "KEY", &arguments.key)?;
    let db = open_to_read(&arguments.dir)?;
    let keyspace = keyspace(&db, &arguments.keyspace)?;
    let value = keyspace.get(&key).context("cannot read the row")?;
    let shown = value.as_deref().map(|value| coding.show(value));
    let document = json!({
        "keyspace": arguments.keyspace,
        "key": coding.show(&key),
        "found": shown.is_some(),
        "value": shown,
    });
    let line = shown.as_ref().map(|value| format!("{value}\n"));
    output.answer(&document, line.unwrap_or_default())?;
    if shown.is_none() {
        advise(&format!(
            "alluvium: keyspace {} has no row {}",
            arguments.keyspace,
            coding.show(&key)
        ));
        return Ok(Exit::NoRow);
    }
    Ok(Exit::Done)
}

/// Runs `alluvium scan`.
pub fn scan(arguments: &ScanArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let coding = form.coding();
    let options = cursor_options(arguments, coding)?;
    let db = open_to_read(&arguments.dir)?;
    let keyspace = keyspace(&db, &arguments.keyspace)?;
    let mut cursor = keyspace.cursor(options)?;
    let begin = fields(json!({ "keyspace": arguments.keyspace, "seqno": cursor.seqno() }));
    let mut list = output.list(&begin, "rows")?;
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut rows = 0;
    let scanned = loop {
        if rows >= limit {
            break Ok(());
        }
        match step(&mut cursor, arguments.reverse, rows == 0) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
        rows += 1;
        let key = coding.show(cursor.key());
        let value = (!arguments.keys_only).then(|| coding.show(cursor.value()));
        let document = || match &value {
            Some(value) => json!({ "key": key, "value": value }),
            None => json!({ "key": key }),
        };
        list.item(document, || match &value {
            Some(value) => format!("{key}\t{value}"),
            None => key.clone(),
        })?;
    };
    // The rows before the failure are part of the answer, so the document is completed.
    let error = scanned.as_ref().err().map(ToString::to_string);
    list.end(&fields(json!({ "count": rows, "error": error })))?;
    scanned.context("the scan ends here")?;
    Ok(Exit::Done)
}

fn cursor_options(arguments: &ScanArgs, coding: Coding) -> anyhow::Result<CursorOptions> {
    let optional = |what, word: &Option<String>| {
        let word = word.as_deref();
        word.map(|word| bytes(coding, what, word)).transpose()
    };
    let mut options = match optional("--prefix", &arguments.prefix)? {
        Some(prefix) => CursorOptions::prefix(&prefix),
        None => CursorOptions {
            start: optional("--start", &arguments.start)?.unwrap_or_default(),
            end: optional("--end", &arguments.end)?,
            keys_only: false,
        },
    };
    options.keys_only = arguments.keys_only;
    Ok(options)
}

fn step(cursor: &mut Cursor, reverse: bool, first: bool) -> alluvium::Result<bool> {
    match (first, reverse) {
        (true, false) => cursor.seek_first(),
        (true, true) => cursor.seek_last(),
        (false, false) => cursor.next(),
        (false, true) => cursor.prev(),
    }
}

/// Returns a value that may be missing as JSON.
pub fn nullable(coding: Coding, bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |bytes| coding.show(bytes).into())
}
