//! `verify`: reads and checks every file, and reports each damage with its location.

use std::fmt::Write as _;
use std::path::PathBuf;

use alluvium::{Error, VerifyReport};
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use crate::database::{Exit, open_to_read};
use crate::output::{Output, advise};
use crate::text::{Coding, count, size};

#[derive(Args)]
pub struct VerifyArgs {
    /// The database's directory
    dir: PathBuf,
}

/// Runs `alluvium verify`.
pub fn run(arguments: &VerifyArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let db = match open_to_read(&arguments.dir) {
        Ok(db) => db,
        Err(error) => return cannot_open(error, output),
    };
    let report = db.verify()?;
    let coding = form.coding();
    output.answer(&document(&report, coding), lines(&report, coding))?;
    if report.is_clean() {
        return Ok(Exit::Done);
    }
    if report.damage_count > 0 {
        advise(
            "alluvium: restore a backup, or save what can be read with `alluvium repair DIR TARGET`",
        );
    }
    Ok(Exit::Wrong)
}

/// Reports damage that prevents opening the database as an answer. Any other error is a failure.
fn cannot_open(error: anyhow::Error, output: &mut Output) -> anyhow::Result<Exit> {
    let Some(damage @ Error::Corruption { .. }) = error.downcast_ref::<Error>() else {
        return Err(error);
    };
    let document = json!({
        "clean": false,
        "opened": false,
        "damages": [damage_json(damage)],
    });
    output.answer(&document, format!("{damage}\n"))?;
    advise(
        "alluvium: this keeps the database from being opened, so nothing behind it was checked: restore a backup, or \
         save what can be read with `alluvium repair DIR TARGET`",
    );
    Ok(Exit::Wrong)
}

/// Returns damage, or another failure of a file, as JSON.
pub fn damage_json(error: &Error) -> Value {
    let message = with_causes(error);
    match error {
        Error::Corruption {
            path,
            offset,
            what,
            expected,
            found,
        } => json!({
            "file": path.display().to_string(),
            "offset": offset,
            "what": what,
            "expected": expected,
            "found": found,
            "message": message,
        }),
        Error::Io { path, .. } | Error::NewerFormat { path, .. } => json!({
            "file": path.display().to_string(),
            "message": message,
        }),
        _ => json!({ "message": message }),
    }
}

/// Formats an error and its causes in one line.
pub fn with_causes(error: &Error) -> String {
    crate::text::with_causes(&anyhow::Error::new(error.clone()))
}

fn document(report: &VerifyReport, coding: Coding) -> Value {
    let wrong_inserts = report.wrong_inserts.iter().map(|wrong| {
        json!({
            "keyspace": wrong.keyspace,
            "key": coding.show(&wrong.key),
            "seqno": wrong.seqno,
            "older_seqno": wrong.older_seqno,
        })
    });
    json!({
        "clean": report.is_clean(),
        "opened": true,
        "damage_count": report.damage_count,
        "damages": report.damages.iter().map(damage_json).collect::<Vec<_>>(),
        "wrong_insert_count": report.wrong_insert_count,
        "wrong_inserts": wrong_inserts.collect::<Vec<_>>(),
        "groups_skipped": report.groups_skipped,
        "tables": report.tables,
        "entries": report.entries,
        "log_segments": report.log_segments,
        "log_records": report.log_records,
        "bytes": report.bytes,
    })
}

fn lines(report: &VerifyReport, coding: Coding) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    for damage in &report.damages {
        let _ = writeln!(out, "{}", with_causes(damage));
    }
    for wrong in &report.wrong_inserts {
        let _ = writeln!(
            out,
            "keyspace {}: commit {} inserted {} over a live row of commit {}",
            wrong.keyspace,
            wrong.seqno,
            coding.show(&wrong.key),
            wrong.older_seqno
        );
    }
    let shown = (report.damages.len() + report.wrong_inserts.len()) as u64;
    let more = (report.damage_count + report.wrong_insert_count).saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "and {more} more");
    }
    let verdict = match (report.damage_count, report.wrong_insert_count) {
        (0, 0) => "clean".to_owned(),
        (damages, 0) => count(damages, "damage", "damages"),
        (damages, wrong) => format!(
            "{}, {}",
            count(damages, "damage", "damages"),
            count(wrong, "insert over a live row", "inserts over live rows")
        ),
    };
    let _ = writeln!(
        out,
        "{verdict}: {} with {}, {} with {}, {} read",
        count(report.tables, "table", "tables"),
        count(report.entries, "entry", "entries"),
        count(report.log_segments, "log segment", "log segments"),
        count(report.log_records, "record", "records"),
        size(report.bytes)
    );
    if report.groups_skipped > 0 {
        let _ = writeln!(
            out,
            "{} with damaged tables not searched for wrong inserts",
            count(report.groups_skipped, "group", "groups")
        );
    }
    out
}
