//! `dump log`: lists the records of the write-ahead log, from the oldest segment that the database
//! still needs.

use std::path::PathBuf;

use alluvium::base::SegmentId;
use alluvium::internal::dump::{self, LogContent, LogRecord, LoggedOperation};
use alluvium::internal::{Manifest, RecordKind, parse_segment_name};
use alluvium::vfs::{RealVfs, Vfs};
use alluvium::{Error, Result};
use clap::Args;
use serde_json::{Value, json};

use super::answer::{end, kind_name};
use crate::command::form::Form;
use crate::database::{Exit, Usage, lock_to_read};
use crate::output::{Output, fields};
use crate::text::{Coding, listed};

#[derive(Args)]
pub struct LogArgs {
    /// The database's directory
    dir: PathBuf,
    /// Only this segment
    #[arg(long)]
    segment: Option<u64>,
}

pub fn run(arguments: &LogArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let dir = &arguments.dir;
    let _lock = lock_to_read(dir)?;
    let mut damages = Vec::new();
    let (uid, state) = match Manifest::read(&RealVfs::new(), dir) {
        Err(Error::Corruption { .. }) => {
            Manifest::salvage(&RealVfs::new(), dir, &mut |error| damages.push(error))?
        }
        read => read?,
    };
    let oldest = state.oldest_segment;
    if let Some(segment) = arguments.segment {
        check_segment(dir, SegmentId(segment), oldest)?;
    }
    let wanted = arguments.segment.map(SegmentId);
    let coding = form.coding();
    let mut list = output.list(&fields(json!({ "oldest_needed": oldest.0 })), "records")?;
    let (mut records, mut malformed, mut failure) = (0, Vec::new(), None);
    let mut visit = |record: LogRecord| {
        if wanted.is_some_and(|wanted| wanted != record.segment) {
            return true;
        }
        records += 1;
        if record.content == LogContent::Malformed {
            malformed.push((record.segment, record.seqno));
        }
        let written = list.item(
            || record_json(coding, &record),
            || record_lines(coding, &record),
        );
        failure = written.err();
        failure.is_none()
    };
    let stopped = dump::log(&RealVfs::new(), dir, uid, oldest, &mut visit)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    damages.extend(malformed.into_iter().map(|(segment, seqno)| {
        let path = dir.join(segment.to_string());
        let found = format!("others in commit {seqno}");
        Error::corruption(&path, 0, "payload of a log record", "operations", found)
    }));
    damages.extend(stopped);
    end(list, records, json!({}), &damages)
}

/// Returns an error that lists the segments of the log, if `wanted` is not one of them.
fn check_segment(
    dir: &std::path::Path,
    wanted: SegmentId,
    oldest: SegmentId,
) -> anyhow::Result<()> {
    let names: Result<Vec<String>> = RealVfs::new()
        .list(dir)
        .map_err(|e| Error::io("list", dir, e));
    let mut ids: Vec<u64> = names?
        .iter()
        .filter_map(|name| parse_segment_name(name))
        .filter(|&id| id >= oldest)
        .map(|id| id.0)
        .collect();
    ids.sort_unstable();
    if ids.contains(&wanted.0) {
        return Ok(());
    }
    let there = listed(&ids);
    Err(Usage(format!("the log has no segment {}; {there}", wanted.0)).into())
}

fn record_kind(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Commit => "commit",
        RecordKind::Prepare => "prepare",
        RecordKind::CommitPrepared => "commit_prepared",
        RecordKind::Rollback => "rollback",
        RecordKind::Ingest => "ingest",
        RecordKind::Ddl => "keyspace",
        RecordKind::SyncMark => "sync_mark",
        RecordKind::PackedCommit => "packed_commit",
    }
}

fn record_json(coding: Coding, record: &LogRecord) -> Value {
    let mut document = json!({
        "segment": record.segment.0,
        "seqno": record.seqno,
        "kind": record_kind(record.kind),
        "payload_bytes": record.payload_bytes,
    });
    let operations = |list: &[LoggedOperation]| -> Value {
        list.iter().map(|op| operation_json(coding, op)).collect()
    };
    match &record.content {
        LogContent::Operations(list) => document["operations"] = operations(list),
        LogContent::Prepared(xid, list) => {
            document["xid"] = coding.show(xid).into();
            document["operations"] = operations(list);
        }
        LogContent::Keyspace(action, id, name) => {
            document["action"] = (*action).into();
            document["keyspace"] = id.0.into();
            document["name"] = name.as_str().into();
        }
        LogContent::Marker => {}
        LogContent::Malformed => document["malformed"] = true.into(),
    }
    document
}

fn operation_json(coding: Coding, op: &LoggedOperation) -> Value {
    let value = match op.kind {
        alluvium::base::ValueKind::RangeDelete => "end",
        _ => "value",
    };
    json!({
        "keyspace": op.keyspace.0,
        "kind": kind_name(op.kind),
        "key": coding.show(&op.key),
        value: coding.show(&op.value),
    })
}

fn record_lines(coding: Coding, record: &LogRecord) -> String {
    let mut out = format!(
        "{}\t{}\t{}",
        record.seqno,
        record_kind(record.kind),
        record.segment
    );
    let operations: &[LoggedOperation] = match &record.content {
        LogContent::Operations(list) => list,
        LogContent::Prepared(xid, list) => {
            out.push_str(&format!("\t{}", coding.show(xid)));
            list
        }
        LogContent::Keyspace(action, id, name) => {
            out.push_str(&format!("\t{action} {name} ({id})"));
            &[]
        }
        LogContent::Marker => &[],
        LogContent::Malformed => {
            out.push_str("\tmalformed");
            &[]
        }
    };
    for op in operations {
        let line = format!(
            "\n  {}\t{}\t{}\t{}",
            op.keyspace,
            kind_name(op.kind),
            coding.show(&op.key),
            coding.show(&op.value)
        );
        out.push_str(line.trim_end_matches('\t'));
    }
    out
}
