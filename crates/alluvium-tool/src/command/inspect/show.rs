//! Formats the document of `inspect` as text for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::text::{count, size};

/// Maximum length of a shown key; keys here only indicate a location.
const KEY_CHARACTERS_MAX: usize = 32;

/// Formats the document as text. Groups are summarized unless `tables` is set.
pub fn lines(document: &Value, tables: bool) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = writeln!(
        out,
        "database {}, last commit {}, {}",
        text(&document["uid"]),
        document["seqno"],
        size(number(&document["bytes"]))
    );
    let formats = &document["formats"];
    let version = |kind: &str| match formats[kind].as_u64() {
        Some(version) => format!("{kind} {version}"),
        None => format!("{kind} none"),
    };
    let _ = writeln!(
        out,
        "formats: {}, {}, {}",
        version("manifest"),
        version("log"),
        version("tables")
    );
    if let Some(stored_ms) = document["stored_time_ms"].as_u64().filter(|ms| *ms > 0) {
        let _ = writeln!(out, "stored time: {stored_ms} ms since 1970");
    }
    for xid in list(&document["prepared_transactions"]) {
        let _ = writeln!(out, "prepared transaction {}", text(xid));
    }
    for keyspace in list(&document["keyspaces"]) {
        keyspace_lines(&mut out, keyspace, tables);
    }
    let values = list(&document["value_files"]);
    if !values.is_empty() {
        out.push_str("\nvalue files\n");
    }
    for file in values {
        let _ = writeln!(
            out,
            "  {}  {}, {} of it used by {}",
            text(&file["file"]),
            size(number(&file["bytes"])),
            size(number(&file["used_bytes"])),
            count(number(&file["entries"]), "row", "rows")
        );
    }
    let log = &document["log"];
    let _ = writeln!(out, "\nlog, needed from segment {}", log["oldest_needed"]);
    file_lines(&mut out, &log["segments"]);
    out.push_str("\nother files\n");
    file_lines(&mut out, &document["other_files"]);
    out
}

fn file_lines(out: &mut String, files: &Value) {
    for file in list(files) {
        let bytes = size(number(&file["bytes"]));
        let _ = writeln!(out, "  {}  {bytes}", text(&file["file"]));
    }
}

fn keyspace_lines(out: &mut String, keyspace: &Value, tables: bool) {
    let _ = writeln!(
        out,
        "\nkeyspace {} (id {}), about {}",
        text(&keyspace["name"]),
        keyspace["id"],
        count(number(&keyspace["rows_estimate"]), "row", "rows")
    );
    let options = keyspace["options"].as_object().into_iter().flatten();
    let options: Vec<String> = options
        .filter(|(_, value)| !value.is_null() && **value != Value::Bool(false))
        .map(|(name, value)| match value {
            Value::Bool(_) => name.clone(),
            _ => format!("{name} {}", text(value)),
        })
        .collect();
    let _ = writeln!(out, "  options: {}", options.join(", "));
    let _ = writeln!(
        out,
        "  created by commit {}, in tables up to commit {}, memtables {}",
        keyspace["created_seqno"],
        keyspace["flushed_seqno"],
        size(number(&keyspace["memtable_bytes"]))
    );
    for group in list(&keyspace["groups"]) {
        group_lines(out, group, tables);
    }
}

fn group_lines(out: &mut String, group: &Value, tables: bool) {
    let low = match text(&group["low"]) {
        low if low.is_empty() => "the start".to_owned(),
        low => cut(&low),
    };
    let runs = list(&group["upper"]);
    let upper: Vec<&Value> = runs.iter().flat_map(|run| list(&run["tables"])).collect();
    let last: Vec<&Value> = list(&group["last"]).iter().collect();
    let _ = writeln!(
        out,
        "  group from {low}: {} in {} ({}), last level {}",
        count(runs.len() as u64, "upper run", "upper runs"),
        count(upper.len() as u64, "table", "tables"),
        sum(&upper),
        match last.len() {
            0 => "empty".to_owned(),
            tables => format!(
                "{} ({})",
                count(tables as u64, "table", "tables"),
                sum(&last)
            ),
        }
    );
    if !tables {
        return;
    }
    for run in runs {
        for table in list(&run["tables"]) {
            table_line(out, &format!("run {}", run["run"]), table);
        }
    }
    for table in last {
        table_line(out, "last", table);
    }
}

fn table_line(out: &mut String, level: &str, table: &Value) {
    let _ = writeln!(
        out,
        "    {level:7} {}  {}, {} ({}), commits {} to {}, {} .. {}",
        text(&table["file"]),
        size(number(&table["bytes"])),
        count(number(&table["entries"]), "entry", "entries"),
        count(number(&table["tombstones"]), "tombstone", "tombstones"),
        table["min_seqno"],
        table["max_seqno"],
        cut(&text(&table["first_key"])),
        cut(&text(&table["last_key"]))
    );
}

/// Formats the bytes and entries of tables.
fn sum(tables: &[&Value]) -> String {
    let bytes = tables.iter().map(|t| number(&t["bytes"])).sum();
    let entries = tables.iter().map(|t| number(&t["entries"])).sum();
    format!("{}, {}", size(bytes), count(entries, "entry", "entries"))
}

fn cut(key: &str) -> String {
    // Shown keys are ASCII, so any offset is a character boundary.
    if key.len() > KEY_CHARACTERS_MAX {
        format!("{}...", &key[..KEY_CHARACTERS_MAX])
    } else {
        key.to_owned()
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
