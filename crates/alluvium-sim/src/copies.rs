//! Copies of a database: checkpoints, databases repaired from them, backups, and databases restored
//! from backups.
//!
//! Each copy holds the state after one commit and reports the number of that commit. The number
//! lies between those of the newest commits at the beginning and at the end of the call. Commits to
//! a copy are not part of the history.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use alluvium::backup::BackupStore;
use alluvium::{Database, Options, WriteBatch};

use crate::client::Client;
use crate::disk::{REPAIRED, STORE};
use crate::history::aside;
use crate::places::{open_to_write, remove_under};
use crate::plan::CopyUse;
use crate::reading::{Content, content, difference};
use crate::records::{Backup, Checked};
use crate::state::{State, Stored};
use crate::world::World;

impl Client {
    pub(crate) fn checkpoint(&self, copy_use: CopyUse) -> Checked<()> {
        let world = &*self.world;
        let number = world.records.history().intend();
        let target = PathBuf::from(format!("/copy-{number}"));
        let before = world.db.visible_seqno();
        let Some(info) = world.known(world.db.checkpoint(&target))? else {
            return Ok(());
        };
        let what = format!("a checkpoint of commit {}", info.seqno);
        let Some(state) = state_between(world, &what, before, info.seqno)? else {
            return Ok(());
        };
        match copy_use {
            CopyUse::Read => {
                world.records.count("checkpoints compared", 1);
                compare_copy(world, &what, &target, &state, true)
            }
            CopyUse::Write => {
                world.records.count("checkpoints written to", 1);
                aside(|| write_copy(world, &what, &target, number, &state))
            }
            CopyUse::Remove => aside(|| remove_under(world, &what, &target)),
            CopyUse::Repair => {
                let repaired = PathBuf::from(format!("{REPAIRED}-{number}"));
                let disk = Arc::new(world.disk.clone());
                let report = aside(|| alluvium::repair_on(disk, &target, &repaired));
                let Some(report) = world.known(report)? else {
                    return Ok(());
                };
                world.records.count("checkpoints repaired", 1);
                for damage in &report.damages {
                    world.tolerate(damage)?;
                }
                if report.is_complete() {
                    compare_copy(world, &what, &repaired, &state, true)
                } else {
                    Ok(())
                }
            }
        }
    }

    pub(crate) fn backup(&self) -> Checked<()> {
        let world = &*self.world;
        let Some(store) = open_store(world)? else {
            return Ok(());
        };
        let before = world.db.visible_seqno();
        // A failed backup may still be listed.
        world.records.outside().backup_tried = true;
        let Some(info) = world.known(store.create(&world.db))? else {
            return Ok(());
        };
        if world.disk.is_dead() {
            return Ok(());
        }
        world.records.count("backups", 1);
        let what = format!("backup {} of commit {}", info.id, info.seqno);
        let state = state_between(world, &what, before, info.seqno)?;
        let backup = Backup {
            seqno: info.seqno,
            state,
            delete_tried: false,
        };
        world.records.outside().backups.insert(info.id, backup);
        Ok(())
    }

    pub(crate) fn restore(&self, number: u64) -> Checked<()> {
        let Some((id, backup)) = chosen(&self.world, number) else {
            return Ok(());
        };
        match open_store(&self.world)? {
            Some(store) => restore(&self.world, &store, id, &backup),
            None => Ok(()),
        }
    }

    pub(crate) fn delete_backup(&self, number: u64) -> Checked<()> {
        let world = &*self.world;
        let Some((id, _)) = chosen(world, number) else {
            return Ok(());
        };
        let Some(store) = open_store(world)? else {
            return Ok(());
        };
        // From now on it may disappear at any moment, and a new one may get its number: no other
        // client may rely on it.
        let taken = world.records.outside().backups.remove(&id);
        let Some(backup) = taken else {
            return Ok(());
        };
        if world.known(store.delete(id))?.is_some() && !world.disk.is_dead() {
            world.records.count("backups deleted", 1);
            return Ok(());
        }
        let delete_tried = true;
        let mut outside = world.records.outside();
        let left = Backup {
            delete_tried,
            ..backup
        };
        outside.backups.entry(id).or_insert(left);
        Ok(())
    }
}

/// Returns the state that a copy must hold; `None` if it is not known for certain.
fn state_between(
    world: &World,
    what: &str,
    before: u64,
    seqno: u64,
) -> Checked<Option<Arc<State>>> {
    if world.disk.is_dead() {
        return Ok(None);
    }
    let after = world.db.visible_seqno();
    // A copy is made at the newest logged commit, which may not be visible yet.
    let newest = world.records.history().last().max(after);
    if seqno < before || seqno > newest {
        return Err(format!(
            "{what} was made while {before} to {after} were visible"
        ));
    }
    let history = world.records.history();
    Ok((!history.is_uncertain(seqno)).then(|| history.at(seqno)))
}

/// Opens a copy and compares its whole content.
fn compare_copy(
    world: &World,
    what: &str,
    dir: &Path,
    state: &State,
    read_only: bool,
) -> Checked<()> {
    let (options, watch) = world.records.watched(&world.options);
    let options = Options {
        read_only,
        ..options
    };
    let disk = Arc::new(world.disk.clone());
    let Some(copy) = world.known(Database::open_on(disk, dir, options))? else {
        return Ok(());
    };
    let Some(found) = world.known(content(&copy, &watch))? else {
        return Ok(());
    };
    check_content(world, what, &found, state)?;
    world.known(copy.close()).map(drop)
}

fn check_content(world: &World, what: &str, found: &Content, state: &State) -> Checked<()> {
    let lasting = world.keyspaces.iter().map(|keyspace| keyspace.id().0);
    let missing: Vec<u32> = lasting.filter(|id| !found.ids.contains(id)).collect();
    if !missing.is_empty() {
        return Err(format!("{what} lacks the keyspaces {missing:?}"));
    }
    let times = world.records.history().times(found.read_at.clone());
    if world.records.history().is_of(found, state, &times) {
        Ok(())
    } else {
        Err(format!(
            "{what} differs: {}",
            difference(state, found, &times)
        ))
    }
}

/// Writes to a copy, closes and reopens it: it must hold its old content and the new row.
fn write_copy(world: &World, what: &str, dir: &Path, number: u64, state: &State) -> Checked<()> {
    let Some((copy, marks)) = open_to_write(world, dir)? else {
        return Ok(());
    };
    let (key, value) = (format!("copy {number}"), number.to_be_bytes());
    let mut batch = WriteBatch::new();
    let put = batch.put(&marks, key.as_bytes(), &value);
    put.map_err(|error| error.to_string())?;
    if world.known(copy.write(&batch))?.is_none() || world.known(copy.close())?.is_none() {
        return Ok(());
    }
    let mut state = state.clone();
    let row = (marks.id().0, key.into_bytes());
    state.insert(row, Stored::lasting(&value));
    compare_copy(world, what, dir, &state, false)
}

/// Returns one of the backups that no client is about to delete.
fn chosen(world: &World, number: u64) -> Option<(u64, Backup)> {
    let outside = world.records.outside();
    let whole = outside.backups.iter().filter(|(_, b)| !b.delete_tried);
    let all: Vec<_> = whole.collect();
    let at = number as usize % all.len().max(1);
    all.get(at).map(|(id, backup)| (**id, (*backup).clone()))
}

/// Returns the store of backups, shared by all clients of an incarnation.
pub(crate) fn open_store(world: &World) -> Checked<Option<Arc<BackupStore>>> {
    let opened = || world.store.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = &*opened() {
        return Ok(Some(Arc::clone(store)));
    }
    let disk = Arc::new(world.disk.clone());
    let Some(store) = world.known(BackupStore::open_on(disk, STORE))? else {
        return Ok(None);
    };
    let store = Arc::new(store);
    *opened() = Some(Arc::clone(&store));
    Ok(Some(store))
}

/// Restores a backup and compares the restored database.
pub(crate) fn restore(world: &World, store: &BackupStore, id: u64, backup: &Backup) -> Checked<()> {
    let number = world.records.history().intend();
    let target = PathBuf::from(format!("/restored-{number}"));
    let restored = store.restore(id, &target);
    // If another client has deleted the backup meanwhile, any result is right.
    let still = world.records.outside().backups.get(&id).cloned();
    if still.is_none_or(|still| still.delete_tried || still.seqno != backup.seqno) {
        return Ok(());
    }
    let (true, Some(state)) = (world.known(restored)?.is_some(), &backup.state) else {
        return Ok(());
    };
    world.records.count("backups restored", 1);
    let what = format!("restored backup {id} of commit {}", backup.seqno);
    compare_copy(world, &what, &target, state, number.is_multiple_of(2))
}

/// Checks after an opening that the store holds all acknowledged backups, and records the others it
/// holds.
pub(crate) fn judge_store(world: &World) -> Checked<()> {
    let outside = world.records.outside();
    let (known, tried) = (outside.backups.clone(), outside.backup_tried);
    drop(outside);
    if known.is_empty() && !tried {
        return Ok(());
    }
    let store = open_store(world)?.ok_or("the store of backups cannot be opened")?;
    let list = store.list().map_err(|error| error.to_string())?;
    if !list.damaged.is_empty() {
        return Err(format!("damaged backups: {:?}", list.damaged));
    }
    for (id, backup) in &known {
        let listed = list.backups.iter().find(|listed| listed.id == *id);
        let right = listed.is_some_and(|listed| listed.seqno == backup.seqno);
        if !right && !backup.delete_tried {
            let seqno = backup.seqno;
            return Err(format!("backup {id} of commit {seqno} is lost: {list:?}"));
        }
    }
    let backups = list.backups.iter().map(|listed| {
        let known = known.get(&listed.id).filter(|b| b.seqno == listed.seqno);
        let history = world.records.history();
        // A backup without an acknowledgment is durable like any other, and so are its commits.
        let state = known.map_or_else(|| Some(history.at(listed.seqno)), |b| b.state.clone());
        let backup = Backup {
            seqno: listed.seqno,
            state,
            delete_tried: false,
        };
        (listed.id, backup)
    });
    let backups = backups.collect();
    world.records.outside().backups = backups;
    Ok(())
}
