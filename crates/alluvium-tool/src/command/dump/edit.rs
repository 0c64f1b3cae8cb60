//! `dump manifest`: the edits that add up to the present state. The first edit of a file contains
//! the whole state at the time the file was begun.

use std::path::PathBuf;

use alluvium::Error;
use alluvium::base::KeyspaceId;
use alluvium::internal::{GroupEdit, VersionEdit, dump, manifest};
use alluvium::vfs::RealVfs;
use clap::Args;
use serde_json::{Map, Value, json};

use super::answer::end;
use crate::command::form::Form;
use crate::command::inspect::{options_json, table_json};
use crate::database::{Exit, lock_to_read};
use crate::output::Output;
use crate::text::Coding;

#[derive(Args)]
pub struct ManifestArgs {
    /// The database's directory
    dir: PathBuf,
}

pub fn run(arguments: &ManifestArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let dir = &arguments.dir;
    let _lock = lock_to_read(dir)?;
    let coding = form.coding();
    let mut list = output.list(&Map::new(), "edits")?;
    let (mut edits, mut failure) = (0, None);
    let mut damages: Vec<Error> = Vec::new();
    let mut visit = |offset: u64, edit: &VersionEdit| {
        edits += 1;
        let document = edit_json(coding, offset, edit);
        let written = list.item(|| document.clone(), || edit_lines(&document));
        failure = written.err();
        failure.is_none()
    };
    let read = manifest::edits(&RealVfs::new(), dir, &mut visit, &mut |e| damages.push(e));
    if let Some(failure) = failure {
        return Err(failure);
    }
    let file = match read {
        Ok(file) => Value::from(file),
        Err(error) => {
            damages.push(error);
            Value::Null
        }
    };
    end(list, edits, json!({ "file": file }), &damages)
}

fn edit_json(coding: Coding, offset: u64, edit: &VersionEdit) -> Value {
    let mut document = json!({ "offset": offset });
    let numbers = [
        ("next_table", edit.next_table.map(|id| id.0)),
        ("next_segment", edit.next_segment.map(|id| id.0)),
        ("next_keyspace", edit.next_keyspace.map(|id| id.0.into())),
        ("last_seqno", edit.last_seqno),
        ("oldest_segment", edit.oldest_segment.map(|id| id.0)),
        ("read_clock_ms", edit.read_clock_ms),
        (
            "prepared_transactions",
            Some(edit.prepared.len() as u64).filter(|count| *count > 0),
        ),
        ("prepared_logged", edit.prepared_logged.then_some(1)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            document[name] = number.into();
        }
    }
    let changes = changes(coding, edit);
    if !changes.is_empty() {
        document["changes"] = changes.into();
    }
    document
}

/// Returns the parts of an edit that concern one keyspace each, in the order in which they apply.
fn changes(coding: Coding, edit: &VersionEdit) -> Vec<Value> {
    let change = |name: &str, id: KeyspaceId| json!({ "change": name, "keyspace": id.0 });
    let mut changes = Vec::new();
    for (id, seqno) in &edit.dropped {
        let mut drop = change("drop_keyspace", *id);
        drop["seqno"] = (*seqno).into();
        changes.push(drop);
    }
    for (id, name) in &edit.renamed {
        let mut rename = change("rename_keyspace", *id);
        rename["name"] = name.as_str().into();
        changes.push(rename);
    }
    for record in &edit.created {
        let mut create = change("create_keyspace", record.id);
        create["name"] = record.name.as_str().into();
        create["seqno"] = record.created_seqno.into();
        create["options"] = stored_options(&record.options);
        changes.push(create);
    }
    for (id, options) in &edit.options_changed {
        let mut set = change("set_options", *id);
        set["options"] = stored_options(options);
        changes.push(set);
    }
    for (id, seqno) in &edit.flushed_seqno {
        let mut flushed = change("flushed", *id);
        flushed["seqno"] = (*seqno).into();
        changes.push(flushed);
    }
    changes.extend(edit.groups.iter().map(|group| group_json(coding, group)));
    changes
}

/// Returns the options, or their bytes as hexadecimal digits if a newer build wrote them.
fn stored_options(stored: &[u8]) -> Value {
    let options = dump::keyspace_options(stored);
    options.map_or_else(
        || Coding::Hex.show(stored).into(),
        |options| options_json(&options),
    )
}

fn group_json(coding: Coding, edit: &GroupEdit) -> Value {
    let mut document = json!({ "keyspace": edit.keyspace().0, "low": coding.show(edit.low()) });
    let name = match edit {
        GroupEdit::AddUpper { table, run, .. } => {
            document["run"] = (*run).into();
            document["table"] = table_json(coding, table);
            "add_upper"
        }
        GroupEdit::AddLast { table, .. } => {
            document["table"] = table_json(coding, table);
            "add_last"
        }
        GroupEdit::RemoveUpper { table, .. } => {
            document["table"] = table.to_string().into();
            "remove_upper"
        }
        GroupEdit::RemoveLast { table, .. } => {
            document["table"] = table.to_string().into();
            "remove_last"
        }
        GroupEdit::Split { at, .. } => {
            document["at"] = coding.show(at).into();
            "split_group"
        }
        GroupEdit::Join { .. } => "join_group",
    };
    document["change"] = name.into();
    document
}

/// Formats the document as text: the numbers in the first line, then one line per change.
fn edit_lines(document: &Value) -> String {
    let mut out = format!("edit at {}:", document["offset"]);
    let fields = document.as_object().into_iter().flatten();
    let numbers = fields.filter(|(name, _)| !["offset", "changes"].contains(&name.as_str()));
    for (name, value) in numbers {
        out.push_str(&format!(" {name}={value}"));
    }
    for change in document["changes"].as_array().into_iter().flatten() {
        let name = change["change"].as_str().unwrap_or_default();
        out.push_str(&format!("\n  {name} keyspace={}", change["keyspace"]));
        let rest = change.as_object().into_iter().flatten();
        for (name, value) in rest.filter(|(n, _)| !["change", "keyspace"].contains(&n.as_str())) {
            match value.as_object() {
                Some(table) if name == "table" => out.push_str(&table_words(table)),
                _ => out.push_str(&format!(" {name}={value}")),
            }
        }
    }
    out
}

fn table_words(table: &Map<String, Value>) -> String {
    let words = [
        "file",
        "bytes",
        "entries",
        "tombstones",
        "min_seqno",
        "max_seqno",
        "global_seqno",
        "first_key",
        "last_key",
    ];
    let there = words.iter().filter(|name| !table[**name].is_null());
    let words = there.map(|name| format!(" {name}={}", table[*name]));
    words.collect::<String>().replace(" file=", " table=")
}
