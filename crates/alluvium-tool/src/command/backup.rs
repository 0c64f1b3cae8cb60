//! `backup`: a directory of numbered backups that share tables.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use alluvium::Error;
use alluvium::backup::{BackupInfo, BackupStore};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::verify::{damage_json, with_causes};
use crate::database::{CannotOpen, Exit, Usage, open_to_write};
use crate::output::{Output, advise};
use crate::text::{count, listed, size, utc};

#[derive(Subcommand)]
pub enum BackupCommand {
    /// Back up a database; only files that no earlier backup has are copied
    Create(CreateArgs),
    /// List the backups of a store
    List(StoreArgs),
    /// Read and check every file of a backup, or of all of them
    Verify(VerifyArgs),
    /// Make a database of a backup
    Restore(RestoreArgs),
    /// Delete a backup
    Delete(DeleteArgs),
}

#[derive(Args)]
pub struct CreateArgs {
    /// The directory of backups; created if it does not exist
    store: PathBuf,
    /// The database's directory
    dir: PathBuf,
}

#[derive(Args)]
pub struct StoreArgs {
    /// The directory of backups
    store: PathBuf,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// The directory of backups
    store: PathBuf,
    /// The backup's number
    id: Option<u64>,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// The directory of backups
    store: PathBuf,
    /// The backup's number
    id: u64,
    /// The new database's directory, which must not exist
    target: PathBuf,
}

#[derive(Args)]
pub struct DeleteArgs {
    /// The directory of backups
    store: PathBuf,
    /// The backup's number
    id: u64,
}

/// Runs `alluvium backup`.
pub fn run(command: &BackupCommand, output: &mut Output) -> anyhow::Result<Exit> {
    match command {
        BackupCommand::Create(arguments) => create(arguments, output),
        BackupCommand::List(arguments) => list(arguments, output),
        BackupCommand::Verify(arguments) => verify(arguments, output),
        BackupCommand::Restore(arguments) => {
            let store = to_read(&arguments.store)?;
            known(&store, arguments.id)?;
            store.restore(arguments.id, &arguments.target)?;
            let target = arguments.target.display().to_string();
            let line = format!("{target} is backup {}\n", arguments.id);
            output.answer(&json!({ "id": arguments.id, "target": target }), line)?;
            Ok(Exit::Done)
        }
        BackupCommand::Delete(arguments) => {
            check_there(&arguments.store)?;
            let store = open(&arguments.store)?;
            known(&store, arguments.id)?;
            store.delete(arguments.id)?;
            let line = format!("backup {} is deleted\n", arguments.id);
            output.answer(&json!({ "deleted": arguments.id }), line)?;
            Ok(Exit::Done)
        }
    }
}

/// Returns an error if the directory is no store: opening one for writing creates missing parts,
/// and only `create` wants that.
fn check_there(dir: &Path) -> anyhow::Result<()> {
    if dir.join("tables").is_dir() {
        return Ok(());
    }
    let what = format!("{} is no directory of backups", dir.display());
    let message = format!("{what}: `alluvium backup create` makes one");
    Err(CannotOpen(message).into())
}

/// Opens an existing store read-only; no byte of it changes.
fn to_read(dir: &Path) -> anyhow::Result<BackupStore> {
    check_there(dir)?;
    opened(dir, BackupStore::open_read_only(dir))
}

fn open(dir: &Path) -> anyhow::Result<BackupStore> {
    opened(dir, BackupStore::open(dir))
}

fn opened(dir: &Path, store: alluvium::Result<BackupStore>) -> anyhow::Result<BackupStore> {
    store.with_context(|| format!("cannot open the backups in {}", dir.display()))
}

/// Returns an error that lists the existing backups, if there is no backup of this number.
fn known(store: &BackupStore, id: u64) -> anyhow::Result<()> {
    let list = store.list()?;
    let good = list.backups.iter().map(|backup| backup.id);
    let mut ids: Vec<u64> = good.chain(list.damaged.iter().map(|(id, _)| *id)).collect();
    ids.sort_unstable();
    if ids.contains(&id) {
        return Ok(());
    }
    let there = listed(&ids);
    Err(Usage(format!("there is no backup {id}; {there}")).into())
}

fn create(arguments: &CreateArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let db = open_to_write(&arguments.dir)?;
    let store = open(&arguments.store)?;
    let made = store.create(&db)?;
    db.close()?;
    let line = format!("{}\n", backup_line(&made, true));
    output.answer(&backup_json(&made), line)?;
    Ok(Exit::Done)
}

fn backup_json(backup: &BackupInfo) -> Value {
    json!({
        "id": backup.id,
        "seqno": backup.seqno,
        "created": backup.created,
        "files": backup.tables,
        "bytes": backup.bytes,
        "copied_bytes": backup.copied_bytes,
    })
}

fn backup_line(backup: &BackupInfo, copied: bool) -> String {
    let copied = if copied {
        format!(", {} of it copied now", size(backup.copied_bytes))
    } else {
        format!(", made {}", utc(backup.created))
    };
    format!(
        "backup {}: every commit up to {}, {} with {}{copied}",
        backup.id,
        backup.seqno,
        count(backup.tables, "file", "files"),
        size(backup.bytes)
    )
}

fn list(arguments: &StoreArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let list = to_read(&arguments.store)?.list()?;
    let mut lines = String::new();
    // Writing to a string never fails.
    for backup in &list.backups {
        let _ = writeln!(lines, "{}", backup_line(backup, false));
    }
    for (id, error) in &list.damaged {
        let _ = writeln!(lines, "backup {id}: {}", with_causes(error));
    }
    if list.backups.is_empty() && list.damaged.is_empty() {
        lines.push_str("no backups\n");
    }
    let damaged = list.damaged.iter();
    let damaged = damaged.map(|(id, error)| json!({ "id": id, "damage": damage_json(error) }));
    let document = json!({
        "backups": list.backups.iter().map(backup_json).collect::<Vec<_>>(),
        "damaged": damaged.collect::<Vec<_>>(),
    });
    output.answer(&document, lines)?;
    Ok(if list.damaged.is_empty() {
        Exit::Done
    } else {
        Exit::Wrong
    })
}

fn verify(arguments: &VerifyArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let store = to_read(&arguments.store)?;
    let ids = match arguments.id {
        Some(id) => {
            known(&store, id)?;
            vec![id]
        }
        None => {
            let list = store.list()?;
            let damaged = list.damaged.iter().map(|(id, _)| *id);
            list.backups.iter().map(|b| b.id).chain(damaged).collect()
        }
    };
    let mut lines = String::new();
    let mut documents = Vec::new();
    let mut clean = true;
    for id in ids {
        let damages: Vec<Error> = store.verify(id)?;
        clean &= damages.is_empty();
        let verdict = match damages.len() {
            0 => "clean".to_owned(),
            damages => count(damages as u64, "damage", "damages"),
        };
        let _ = writeln!(lines, "backup {id}: {verdict}");
        for damage in &damages {
            let _ = writeln!(lines, "  {}", with_causes(damage));
        }
        let damages: Vec<Value> = damages.iter().map(damage_json).collect();
        documents.push(json!({ "id": id, "damages": damages }));
    }
    output.answer(&json!({ "clean": clean, "backups": documents }), lines)?;
    if clean {
        return Ok(Exit::Done);
    }
    advise(
        "alluvium: restore another backup, and make a new one of a database that `alluvium verify` finds clean",
    );
    Ok(Exit::Wrong)
}
