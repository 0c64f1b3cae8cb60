//! Databases and backups with every kind of file and feature, and the result of every read when a
//! file is damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::backup::BackupStore;
use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Durability, Error, Expiry, Keyspace, KeyspaceOptions, Options, Result,
    WriteBatch, repair_on,
};
use alluvium_testkit::model::{Rows, State};
use alluvium_testkit::random::Rng;

use super::history::{keyspace_options, options};
use super::judge::Verdict;
use super::player::{backups_dir, copy_dir};
use crate::driver::{chain, state_of};
use crate::fixture::dir;

/// The way in which a flipped bit was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    Open,
    Read,
    Verify,
    /// The last commit of a log that was not closed is missing, as after a torn write: documented
    /// as ambiguous.
    TornTail,
    /// No read noticed the bit, and no answer was wrong.
    Nothing,
    /// As `Nothing`, in the mark after the last record or edit: the mark only says that everything
    /// before it was synced.
    LastMark,
}

/// A database or a backup store, and the rows that must be read from it.
pub struct Subject {
    pub dir: PathBuf,
    /// Tables that no manifest names, left by a killed compaction: no reader opens them.
    pub unnamed: Vec<String>,
    pub state: State,
    /// The state of the log without its last record.
    pub without_last: Option<State>,
}

/// All files, and their expected content.
pub struct Disk {
    pub vfs: MemVfs,
    pub subjects: Vec<Subject>,
}

const FAR: u64 = 40_000_000_000_000;

fn read_only() -> Options {
    Options {
        read_only: true,
        create: false,
        ..options(Durability::Sync)
    }
}

fn fill(k: &Keyspace, rng: &mut Rng, rows: std::ops::Range<u32>, bytes: usize) {
    for n in rows {
        let key = format!("row{n:03}");
        k.put(key.as_bytes(), &rng.bytes(bytes)).expect("put");
    }
}

fn per_row() -> KeyspaceOptions {
    KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..keyspace_options("e")
    }
}

/// Returns a database with tables of all features above and in the last level, large values, and a
/// manifest of several edits.
fn filled(vfs: &MemVfs, at: &Path) -> Database {
    let db = Database::open_on(Arc::new(vfs.clone()), at, options(Durability::Sync)).expect("open");
    let mut rng = Rng::new(11);
    let keyspace = |name: &str| db.keyspace(name, keyspace_options(name)).expect("keyspace");
    let (a, b, v) = (keyspace("a"), keyspace("b"), keyspace("v"));
    let e = db.keyspace("e", per_row()).expect("keyspace");
    fill(&a, &mut rng, 0..30, 30);
    fill(&b, &mut rng, 0..20, 20);
    fill(&v, &mut rng, 0..4, 400);
    e.put_until(b"row000", b"a while", FAR).expect("put");
    db.settle().expect("settle");
    fill(&a, &mut rng, 5..12, 30);
    // No row is overwritten: a large value that a compaction left without a pointer is never read
    // or verified.
    fill(&v, &mut rng, 4..7, 300);
    a.delete_range(b"row020", b"row024").expect("delete");
    b.delete(b"row003").expect("delete");
    e.put_until(b"row001", b"longer", FAR + 1).expect("put");
    let mut ingest = db.ingest().expect("ingest");
    ingest.put(&b, b"rowx", b"ingested").expect("put");
    ingest.finish().expect("finish");
    db.flush().expect("flush");
    db
}

/// Leaves commits of each kind in the log, each of them synced.
fn log(db: &Database) {
    let keyspace = |name: &str| db.keyspace(name, keyspace_options(name)).expect("keyspace");
    let (a, b) = (keyspace("a"), keyspace("b"));
    a.put(b"in the log", b"1").expect("put");
    let mut batch = WriteBatch::new();
    for n in 0..4_u32 {
        let key = format!("many rows that are alike {n}");
        batch
            .put(&b, key.as_bytes(), b"a value that is alike")
            .expect("put");
    }
    batch
        .delete_range(&a, b"row025", b"row027")
        .expect("delete");
    db.write(&batch).expect("write");
    let txn = db.begin(alluvium::Isolation::Snapshot).expect("begin");
    txn.put(&a, b"prepared", b"2").expect("put");
    txn.prepare(b"xid")
        .expect("prepare")
        .commit()
        .expect("commit");
}

pub fn subjects() -> Disk {
    let vfs = MemVfs::new();
    let closed = filled(&vfs, dir());
    log(&closed);
    let state = state_of(&closed);
    closed.checkpoint(copy_dir()).expect("checkpoint");
    let store = BackupStore::open_on(Arc::new(vfs.clone()), backups_dir()).expect("backups");
    store.create(&closed).expect("backup");
    drop(store);
    log(&closed);
    closed.close().expect("close");
    let killed_dir = Path::new("killed");
    let killed = filled(&vfs, killed_dir);
    log(&killed);
    let without_last = Some(state_of(&killed));
    let a = killed
        .keyspace("a", keyspace_options("a"))
        .expect("keyspace");
    a.put(b"the last one", b"3").expect("put");
    let killed_state = state_of(&killed);
    let left = vfs.crash(0, CrashOptions::PROCESS_KILLED);
    let copy = left.crash(0, CrashOptions::PROCESS_KILLED);
    let repaired = repair_on(Arc::new(copy), killed_dir, Path::new("repaired"));
    let unnamed = repaired.expect("repair").unnamed_tables;
    let subject = |dir: &Path, state: &State, without_last| Subject {
        dir: dir.to_path_buf(),
        unnamed: if dir == killed_dir {
            unnamed.clone()
        } else {
            Vec::new()
        },
        state: state.clone(),
        without_last,
    };
    let subjects = vec![
        subject(dir(), &state, None),
        subject(copy_dir(), &state, None),
        subject(backups_dir(), &state, None),
        subject(killed_dir, &killed_state, without_last),
    ];
    Disk {
        vfs: left,
        subjects,
    }
}

/// Reads all rows in every way. Returns true if they are whole, false if only the last record is
/// missing, and the engine's error as the outer error.
fn read(db: &Database, subject: &Subject) -> Result<Verdict<bool>> {
    let state = match db.keyspace_names()? {
        names if names.iter().eq(subject.state.keys()) => &subject.state,
        names => return Ok(Err(format!("keyspaces {names:?}"))),
    };
    let shorter = subject.without_last.as_ref();
    let (mut whole, mut torn) = (true, shorter.is_some());
    for (name, rows) in state {
        let keyspace = db.existing_keyspace(name)?.expect("a listed keyspace");
        for key in rows
            .keys()
            .map(Vec::as_slice)
            .chain([&b"absent"[..], b"row0"])
        {
            let found = keyspace.get(key)?;
            let found = found.as_deref();
            whole &= found == rows.get(key).map(Vec::as_slice);
            torn &= shorter.is_some_and(|s| found == s[name].get(key).map(Vec::as_slice));
            if !whole && !torn {
                return Ok(Err(format!("get of {} in {name}", key.escape_ascii())));
            }
        }
        for forward in [true, false] {
            let found = scan(&keyspace, forward)?;
            whole &= found == *rows;
            torn &= shorter.is_some_and(|s| found == s[name]);
            if !whole && !torn {
                return Ok(Err(format!("scan of {name}, forward: {forward}")));
            }
        }
    }
    Ok(Ok(whole))
}

fn scan(keyspace: &Keyspace, forward: bool) -> Result<Rows> {
    let mut cursor = keyspace.cursor(CursorOptions::default())?;
    let mut rows = Rows::new();
    let mut more = if forward {
        cursor.seek_first()?
    } else {
        cursor.seek_last()?
    };
    while more {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
        more = if forward {
            cursor.next()?
        } else {
            cursor.prev()?
        };
    }
    Ok(rows)
}

/// Checks that an error reports corruption of the damaged file.
fn damage_of(error: &Error, file: &Path, found: Found) -> Verdict<Found> {
    match error {
        Error::Corruption { path, .. } if path == file => Ok(found),
        other => Err(format!("{found:?} blames something else: {}", chain(other))),
    }
}

fn database(vfs: &MemVfs, subject: &Subject, file: &Path) -> Verdict<Found> {
    let db = match Database::open_on(Arc::new(vfs.clone()), &subject.dir, read_only()) {
        Ok(db) => db,
        Err(error) => return damage_of(&error, file, Found::Open),
    };
    let whole = match read(&db, subject) {
        Ok(verdict) => verdict?,
        Err(error) => return damage_of(&error, file, Found::Read),
    };
    if !whole {
        return Ok(Found::TornTail);
    }
    let verified = db.verify().map_err(|e| chain(&e))?;
    match verified.damages.first() {
        Some(error) => damage_of(error, file, Found::Verify),
        None => Ok(Found::Nothing),
    }
}

fn backups(vfs: &MemVfs, subject: &Subject, file: &Path) -> Verdict<Found> {
    let store = BackupStore::open_on(Arc::new(vfs.clone()), &subject.dir);
    let store = store.map_err(|e| format!("cannot open the store: {}", chain(&e)))?;
    let list = store.list().map_err(|e| chain(&e))?;
    if let Some((_, error)) = list.damaged.first() {
        return damage_of(error, file, Found::Open);
    }
    let id = list.backups.first().ok_or("the backup is not listed")?.id;
    let target = Path::new("restored");
    let restored = store.restore(id, target);
    let left = vfs.exists(target).expect("look");
    let damages = store.verify(id).map_err(|e| chain(&e))?;
    match (restored, damages.first()) {
        (Err(first), Some(second)) if !left => {
            damage_of(&first, file, Found::Read)?;
            damage_of(second, file, Found::Verify)
        }
        (Err(_), Some(_)) => Err("a refused restore leaves files".into()),
        (restored, verified) => Err(format!(
            "restore: {:?}, verify: {:?}",
            restored.err().map(|e| chain(&e)),
            verified.map(|e| chain(e))
        )),
    }
}

impl Subject {
    /// Reads everything, and verifies, while `file` is damaged.
    pub fn look(&self, vfs: &MemVfs, file: &Path) -> Verdict<Found> {
        if self.is_backups() {
            backups(vfs, self, file)
        } else {
            database(vfs, self, file)
        }
    }

    pub fn is_backups(&self) -> bool {
        self.dir == backups_dir()
    }
}
