//! `inspect`: the parts of a database. Keyspaces, groups and tables come from its manifest, value
//! files from the tables that point into them, the rest from the directory.

mod files;
mod show;

use std::path::PathBuf;

use alluvium::internal::Manifest;
use alluvium::vfs::RealVfs;
use alluvium::{Compression, Expiry, KeyspaceOptions};
use clap::Args;
use serde_json::{Value, json};

use self::files::Files;
pub use self::files::table_json;
use super::form::Form;
use crate::database::{Exit, keyspace, open_to_read};
use crate::output::Output;

#[derive(Args)]
pub struct InspectArgs {
    /// The database's directory
    dir: PathBuf,
    /// Only this keyspace
    #[arg(long)]
    keyspace: Option<String>,
    /// Show each table; with --json they are always there
    #[arg(long)]
    tables: bool,
}

/// Runs `alluvium inspect`.
pub fn run(arguments: &InspectArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_read(&arguments.dir)?;
    if let Some(name) = &arguments.keyspace {
        keyspace(&db, name)?;
    }
    let (uid, state) = Manifest::read(&RealVfs::new(), &arguments.dir)?;
    let stats = db.stats()?;
    let files = files::survey(&arguments.dir, &state)?;
    let coding = form.coding();
    let mut keyspaces = Vec::new();
    for (&id, stored) in &state.keyspaces {
        let wanted = arguments.keyspace.as_ref();
        if wanted.is_some_and(|wanted| *wanted != stored.name) {
            continue;
        }
        let Some(open) = db.existing_keyspace(&stored.name)? else {
            continue;
        };
        let sizes = stats.keyspaces.iter().find(|k| k.name == stored.name);
        keyspaces.push(json!({
            "id": id.0,
            "name": stored.name,
            "options": options_json(&open.options()),
            "created_seqno": stored.created_seqno,
            "flushed_seqno": stored.flushed_seqno,
            "rows_estimate": sizes.map(|k| k.rows_estimate),
            "memtable_bytes": sizes.map(|k| k.memtable_bytes),
            "groups": stored.groups.iter().map(|(low, group)| files::group_json(coding, low, group)).collect::<Vec<_>>(),
        }));
    }
    let prepared = db.prepared()?;
    let document = json!({
        "directory": arguments.dir.display().to_string(),
        "uid": format!("{uid:016x}"),
        "seqno": db.visible_seqno(),
        "formats": formats(&files),
        "stored_time_ms": state.read_clock_ms,
        "prepared_transactions": prepared.iter().map(|xid| coding.show(xid)).collect::<Vec<_>>(),
        "keyspaces": keyspaces,
        "value_files": files.values,
        "log": { "oldest_needed": state.oldest_segment.0, "segments": files.segments },
        "other_files": files.others,
        "bytes": files.bytes,
    });
    let lines = if form.json {
        String::new()
    } else {
        show::lines(&document, arguments.tables)
    };
    output.answer(&document, lines)?;
    Ok(Exit::Done)
}

fn formats(files: &Files) -> Value {
    json!({
        "manifest": files.manifest_version,
        "log": files.log_version,
        "tables": files.table_version,
    })
}

/// Returns the options of a keyspace as JSON.
pub fn options_json(options: &KeyspaceOptions) -> Value {
    let compression = match options.compression {
        Compression::Adaptive => "adaptive",
        Compression::Lz4 => "lz4",
        Compression::None => "none",
    };
    let expiry = match options.expiry {
        Expiry::Never => json!("never"),
        Expiry::PerRow => json!("per row"),
        Expiry::After(after) => json!(format!("after {after:?}")),
    };
    json!({
        "whole_key_filter": options.whole_key_filter,
        "prefix_filter_bytes": options.prefix_filter_bytes,
        "expect_hits": options.expect_hits,
        "compression": compression,
        "block_bytes": options.block_bytes,
        "expiry": expiry,
        "value_separation_bytes": options.value_separation_bytes,
    })
}
