//! Power loss at any moment, also during recovery, and directories that cannot be opened.

use std::sync::Arc;

use alluvium::base::checksum::{checksum, place_seed};
use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, RealVfs, Vfs};
use alluvium::{Database, Durability, Error, KeyspaceOptions, Options, WriteBatch, WriteOptions};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::{chain, state_of};
use crate::fixture::{all, assert_error, database, dir, open, table_files, text, tiny};
use crate::script::{options, path_of, play};

/// The device stops at call `nth` of these kinds, for good.
fn stop_at(nth: u64, calls: &[IoCall]) -> Fault {
    Fault {
        calls: calls.to_vec(),
        nth,
        sticky: true,
        effect: FaultEffect::Error,
    }
}

const SYNCS: [IoCall; 2] = [IoCall::Sync, IoCall::SyncDir];

/// Plays the script up to each sync and looks at what power loss leaves.
fn power_loss_at_every_sync(durability: Durability, rng: &mut Rng) {
    let options = options(durability);
    for nth in 1.. {
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        faults.arm(stop_at(nth, &SYNCS));
        let played = play(&faults, &options, &mut || {});
        if !faults.tripped() {
            assert!(nth > 20, "the script syncs");
            return;
        }
        let losses = [CrashOptions::LOSE_UNSYNCED, CrashOptions::POWER_LOSS];
        for loss in [losses[0], losses[1], losses[1]] {
            let seed = rng.next_u64();
            let left = vfs.crash(seed, loss);
            let context = format!("{durability:?}, power lost at sync {nth}, {loss:?} {seed}");
            played.check(&left, &options, played.durable, &context);
        }
    }
}

#[test]
fn power_loss_at_every_sync_loses_nothing_acknowledged_under_sync() {
    Seeded::run("power_loss_at_every_sync (sync)", 2, |rng| {
        power_loss_at_every_sync(Durability::Sync, rng);
    });
}

#[test]
fn power_loss_at_every_sync_leaves_a_prefix_under_buffered() {
    Seeded::run("power_loss_at_every_sync (buffered)", 2, |rng| {
        power_loss_at_every_sync(Durability::Buffered, rng);
    });
}

#[test]
fn power_loss_during_recovery_loses_nothing_more() {
    Seeded::run("power_loss_during_recovery", 2, |rng| {
        let options = options(Durability::Sync);
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        // Late enough that there are tables, a log and dropped keyspaces.
        faults.arm(stop_at(rng.range(60..75) as u64, &SYNCS));
        let played = play(&faults, &options, &mut || {});
        for nth in 1..200 {
            let first = vfs.crash(rng.next_u64(), CrashOptions::POWER_LOSS);
            let again = FaultVfs::new(Arc::new(first.clone()));
            again.arm(stop_at(nth, &[]));
            let opened = Database::open_on(Arc::new(again.clone()), dir(), options.clone());
            let seed = rng.next_u64();
            let second = first.crash(seed, CrashOptions::POWER_LOSS);
            let context = format!("recovery stopped at call {nth}, seed {seed}");
            played.check(&second, &options, played.durable, &context);
            drop(opened);
            if !again.tripped() {
                return;
            }
        }
    });
}

#[test]
fn an_open_database_is_locked_until_it_is_closed_also_by_a_crash() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    let second = Database::open_on(Arc::new(vfs.clone()), dir(), tiny());
    assert_error!(second, Error::Locked(_));
    let crashed = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let after = open(&crashed, tiny());
    drop(after);
    db.close().expect("close");
    let db = open(&vfs, tiny());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
}

#[test]
fn a_real_directory_is_locked_while_it_is_open() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), tiny()).expect("open");
    assert_error!(Database::open(dir.path(), tiny()), Error::Locked(_));
    drop(db);
    Database::open(dir.path(), tiny()).expect("the last handle is gone");
}

#[test]
fn a_directory_without_a_database_is_created_only_where_that_is_allowed() {
    let vfs = MemVfs::new();
    let options = Options {
        create: false,
        ..tiny()
    };
    let opened = Database::open_on(Arc::new(vfs.clone()), dir(), options.clone());
    let error = opened.err().expect("there is no directory");
    assert!(chain(&error).contains("db"), "{}", chain(&error));
    vfs.create_dir_all(dir()).expect("directory");
    match Database::open_on(Arc::new(vfs.clone()), dir(), options.clone()) {
        Err(Error::InvalidArgument(message)) => assert!(message.contains("create"), "{message}"),
        other => panic!("{:?}", other.err()),
    }
    drop(open(&vfs, tiny()));
    drop(open(&vfs, options));
}

/// A closed database with tables and a short log.
fn closed() -> (MemVfs, Vec<crate::fixture::Row>) {
    let (vfs, db, k) = database(tiny());
    let mut rng = Rng::new(5);
    for n in 0..60 {
        k.put(format!("key{n:03}").as_bytes(), &rng.bytes(50))
            .expect("put");
    }
    db.flush().expect("flush");
    k.put(b"in the log", b"1").expect("put");
    let rows = all(&k);
    db.close().expect("close");
    (vfs, rows)
}

fn read_file(vfs: &MemVfs, name: &str) -> Vec<u8> {
    let file = vfs.open_read(&path_of(name)).expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn write_file(vfs: &MemVfs, name: &str, bytes: &[u8]) {
    let file = vfs.open(&path_of(name)).expect("open");
    file.truncate(bytes.len() as u64).expect("truncate");
    file.write_at(bytes, 0).expect("write");
}

fn names(vfs: &MemVfs, extension: &str) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(extension));
    names.sort();
    names
}

fn reopen(vfs: &MemVfs) -> alluvium::Result<Database> {
    Database::open_on(Arc::new(vfs.clone()), dir(), tiny())
}

/// Writes a version into a header whose checksum covers all before it, seeded with the file's number.
fn renew_header(vfs: &MemVfs, name: &str, header_bytes: usize) {
    let mut bytes = read_file(vfs, name);
    bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let number = name.split('.').next().and_then(|n| n.parse().ok());
    let at = header_bytes - 8;
    let sum = checksum(&bytes[..at], number.expect("a number"));
    bytes[at..header_bytes].copy_from_slice(&sum.to_le_bytes());
    write_file(vfs, name, &bytes);
}

#[test]
fn files_of_a_newer_format_are_refused_as_such() {
    let newer = |change: &dyn Fn(&MemVfs) -> String| {
        let (vfs, _) = closed();
        let name = change(&vfs);
        match reopen(&vfs) {
            Err(Error::NewerFormat {
                path,
                found,
                supported,
            }) => {
                assert_eq!((path, found, supported), (path_of(&name), 2, 1));
            }
            other => panic!("{name}: {:?}", other.err()),
        }
    };
    newer(&|vfs| {
        let text = String::from_utf8(read_file(vfs, "CURRENT")).expect("text");
        let name = text.split(' ').nth(2).expect("a name").to_owned();
        let line = format!("alluvium 2 {name}");
        let line = format!("{line} {:016x}\n", checksum(line.as_bytes(), 0));
        write_file(vfs, "CURRENT", line.as_bytes());
        "CURRENT".to_owned()
    });
    newer(&|vfs| {
        let name = names(vfs, ".manifest").pop().expect("a manifest");
        renew_header(vfs, &name, 48);
        name
    });
    newer(&|vfs| {
        let name = names(vfs, ".wal").pop().expect("a segment");
        renew_header(vfs, &name, 80);
        name
    });
    newer(&|vfs| {
        let name = table_files(vfs).remove(0);
        let mut bytes = read_file(vfs, &name);
        let (footer, end) = (bytes.len() - 192, bytes.len());
        bytes[end - 16..end - 12].copy_from_slice(&2_u32.to_le_bytes());
        let uid = u64::from_le_bytes(bytes[footer + 8..footer + 16].try_into().expect("8 bytes"));
        let sum = checksum(&bytes[footer + 8..], place_seed(uid, footer as u64));
        bytes[footer..footer + 8].copy_from_slice(&sum.to_le_bytes());
        write_file(vfs, &name, &bytes);
        name
    });
}

#[test]
fn every_damaged_byte_of_a_table_is_reported_or_harmless() {
    Seeded::run("every_damaged_byte", 1, |rng| {
        damage_every_byte(rng.below(STRIDE))
    });
}

/// Bytes from one damaged place to the next: each run of the test has other ones.
const STRIDE: usize = 13;

fn damage_every_byte(from: usize) {
    let (closed, rows) = closed();
    let name = table_files(&closed).remove(0);
    let intact = read_file(&closed, &name);
    let (mut tried, mut reported) = (0, 0);
    for at in (from..intact.len()).step_by(STRIDE) {
        tried += 1;
        let vfs = closed.crash(0, CrashOptions::PROCESS_KILLED);
        let mut bytes = intact.clone();
        bytes[at] ^= 1 << (at % 8);
        write_file(&vfs, &name, &bytes);
        let found = reopen(&vfs).and_then(|db| {
            let k = db.existing_keyspace("k")?.expect("keyspace");
            let mut cursor = k.cursor(alluvium::CursorOptions::default())?;
            let (mut found, mut step) = (Vec::new(), cursor.seek_first()?);
            while step {
                found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                step = cursor.next()?;
            }
            Ok(found)
        });
        match found {
            Ok(found) => assert!(found == rows, "byte {at} changes rows"),
            Err(Error::Corruption { path, .. }) => {
                assert_eq!(path, path_of(&name), "byte {at}");
                reported += 1;
            }
            Err(other) => panic!("byte {at}: {}", chain(&other)),
        }
    }
    // Filters are not read by a scan, so damage there can wait for a point read.
    assert!(reported * 10 > tried * 8, "{reported} of {tried}");
}

#[test]
fn a_missing_or_cut_table_is_corruption_that_names_it() {
    let (vfs, _) = closed();
    let name = table_files(&vfs).remove(0);
    let intact = read_file(&vfs, &name);
    for length in [intact.len() - 1, intact.len() / 2, 0] {
        write_file(&vfs, &name, &intact[..length]);
        match reopen(&vfs) {
            Err(Error::Corruption { path, .. }) => assert_eq!(path, path_of(&name)),
            other => panic!("{length} bytes: {:?}", other.err()),
        }
    }
    vfs.remove(&path_of(&name)).expect("remove");
    match reopen(&vfs) {
        Err(Error::Corruption { path, .. }) => assert_eq!(path, path_of(&name)),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_table_under_another_tables_name_is_corruption() {
    let (vfs, db, k) = database(tiny());
    for value in ["1", "2"] {
        k.put(b"a", value.as_bytes()).expect("put");
        db.flush().expect("flush");
    }
    db.close().expect("close");
    let tables = table_files(&vfs);
    let [one, two] = [0, 1].map(|n| read_file(&vfs, &tables[n]));
    write_file(&vfs, &tables[0], &two);
    write_file(&vfs, &tables[1], &one);
    assert_error!(reopen(&vfs), Error::Corruption { .. });
}

fn unlogged() -> Options {
    Options {
        durability: Durability::None,
        ..tiny()
    }
}

#[test]
fn without_a_log_all_keyspaces_come_back_at_the_same_flush() {
    Seeded::run("without_a_log", 6, |rng| {
        let (vfs, db, a) = database(unlogged());
        let b = db
            .keyspace("b", KeyspaceOptions::default())
            .expect("keyspace");
        let mut flushed = 0;
        for n in 1..=rng.range(20..400) as u32 {
            let mut batch = WriteBatch::new();
            batch.put(&a, b"n", &n.to_be_bytes()).expect("put");
            batch.put(&b, &n.to_be_bytes(), &[1; 20]).expect("put");
            db.write(&batch).expect("write");
            match rng.below(60) {
                0 => db.flush().expect("flush"),
                1 => db.sync().expect("sync"),
                2 => db.settle().expect("settle"),
                _ => continue,
            }
            flushed = n;
        }
        let seed = rng.next_u64();
        let left = vfs.crash(seed, CrashOptions::POWER_LOSS);
        let db = open(&left, unlogged());
        let state = state_of(&db);
        let n = state["k"].get(&b"n"[..]).map_or(0, |v| {
            u32::from_be_bytes(v.as_slice().try_into().expect("4 bytes"))
        });
        assert!(n >= flushed, "crash seed {seed}: {n} of {flushed}");
        let keys: Vec<_> = state["b"].keys().cloned().collect();
        let expected: Vec<_> = (1..=n).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(keys, expected, "crash seed {seed}");
    });
}

#[test]
fn without_a_log_closing_keeps_everything() {
    let (vfs, db, k) = database(unlogged());
    k.put(b"a", b"1").expect("put");
    db.close().expect("close");
    let db = open(&vfs, unlogged());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
    assert!(names(&vfs, ".wal").is_empty());
}

#[test]
fn a_single_commit_cannot_choose_to_have_a_log_or_none() {
    let refused = |database_has: Durability, asked: Durability| {
        let options = Options {
            durability: database_has,
            ..tiny()
        };
        let (_vfs, db, k) = database(options);
        let mut batch = WriteBatch::new();
        batch.put(&k, b"a", b"1").expect("put");
        let options = WriteOptions {
            durability: Some(asked),
            ..WriteOptions::default()
        };
        assert_error!(db.write_with(&batch, &options), Error::InvalidArgument(_));
        assert!(all(&k).is_empty());
    };
    refused(Durability::None, Durability::Sync);
    refused(Durability::None, Durability::Buffered);
    refused(Durability::Buffered, Durability::None);
    refused(Durability::Sync, Durability::None);
}

#[test]
fn a_sync_commit_of_a_buffered_database_survives_power_loss_with_all_before_it() {
    let (vfs, db, k) = database(tiny());
    k.put(b"before", b"1").expect("put");
    let mut batch = WriteBatch::new();
    batch.put(&k, b"synced", b"2").expect("put");
    let options = WriteOptions {
        durability: Some(Durability::Sync),
        ..WriteOptions::default()
    };
    db.write_with(&batch, &options).expect("write");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, tiny());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn a_database_may_change_its_durability_at_each_opening() {
    Seeded::run("a_database_may_change_its_durability", 8, |rng| {
        let vfs = MemVfs::new();
        let mut written = 0_u32;
        for _ in 0..6 {
            let durabilities = [Durability::None, Durability::Buffered, Durability::Sync];
            let options = Options {
                durability: *rng.pick(&durabilities),
                ..tiny()
            };
            let db = open(&vfs, options);
            let k = db
                .keyspace("k", KeyspaceOptions::default())
                .expect("keyspace");
            assert_eq!(all(&k).len(), written as usize);
            for _ in 0..rng.range(1..120) {
                k.put(&written.to_be_bytes(), &[1; 50]).expect("put");
                written += 1;
            }
            if rng.percent(30) {
                db.flush().expect("flush");
            }
            db.close().expect("close");
        }
    });
}

#[test]
fn files_of_other_programs_are_left_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "mine").expect("write");
    let db = Database::open_on(Arc::new(RealVfs), dir.path(), tiny()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    k.put(b"a", b"1").expect("put");
    db.settle().expect("settle");
    db.close().expect("close");
    drop(Database::open(dir.path(), tiny()).expect("open"));
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
}
