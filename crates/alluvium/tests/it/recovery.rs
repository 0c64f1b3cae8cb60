//! Power loss at any moment, also during recovery; locks; opening with another durability.

use std::sync::Arc;

use alluvium::vfs::{CrashOptions, FaultEffect, FaultVfs, IoCall, MemVfs, RealVfs, Vfs};
use alluvium::{Database, Durability, Error, KeyspaceOptions, Options, WriteBatch, WriteOptions};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::{chain, state_of};
use crate::fixture::{all, assert_error, database, dir, open, segments, stop_at, text, tiny};
use crate::hooks::wait_until;
use crate::script::{options, play};

const SYNCS: [IoCall; 2] = [IoCall::Sync, IoCall::SyncDir];

/// Plays the script up to each sync and checks the state after a power loss.
fn power_loss_at_every_sync(durability: Durability, rng: &mut Rng) {
    let options = options(durability);
    for nth in 1.. {
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        faults.arm(stop_at(nth, &SYNCS, FaultEffect::Error));
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
fn the_number_of_a_segment_that_was_cut_off_is_not_given_out_again() {
    let (vfs, db, k) = database(tiny());
    // Half of a segment, so that the next one is prepared.
    k.put(b"a", &[7; 600_000]).expect("put");
    wait_until(|| segments(&vfs).len() > 1);
    let vfs = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    drop((k, db));
    let ahead = segments(&vfs).pop().expect("a segment");
    for nth in 1.. {
        let vfs = vfs.crash(1, CrashOptions::PROCESS_KILLED);
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        faults.arm(stop_at(
            nth,
            &[IoCall::Allocate, IoCall::SyncDir],
            FaultEffect::Error,
        ));
        let opened = Database::open_on(Arc::new(faults.clone()), dir(), tiny());
        if !faults.tripped() {
            assert!(nth > 2, "an opening removes one and begins another");
            return;
        }
        drop(opened);
        let vfs = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
        let db = open(&vfs, tiny());
        assert!(
            segments(&vfs).pop().as_ref() > Some(&ahead),
            "stopped at {nth}"
        );
        drop(db);
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
        faults.arm(stop_at(
            rng.range(60..75) as u64,
            &SYNCS,
            FaultEffect::Error,
        ));
        let played = play(&faults, &options, &mut || {});
        for nth in 1..200 {
            let first = vfs.crash(rng.next_u64(), CrashOptions::POWER_LOSS);
            let again = FaultVfs::new(Arc::new(first.clone()));
            again.arm(stop_at(nth, &[], FaultEffect::Error));
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
    assert_error!(second, Error::Locked { .. });
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
    assert_error!(Database::open(dir.path(), tiny()), Error::Locked { .. });
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

/// Returns the files in the database directory with their bytes.
fn contents(vfs: &MemVfs) -> Vec<(String, Vec<u8>)> {
    let mut names = vfs.list(dir()).expect("list");
    names.sort();
    let read = |name: String| {
        let file = vfs.open_read(&dir().join(&name)).expect("open");
        let mut bytes = vec![0; file.len().expect("length") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// Opens a directory without `CURRENT` in every way. Each opening reports lost files, and none
/// changes a file.
fn assert_lost(vfs: &MemVfs, durability: Durability, context: &str) {
    let before = contents(vfs);
    for (read_only, create) in [(false, true), (false, false), (true, true)] {
        let options = Options {
            read_only,
            create,
            durability,
            ..tiny()
        };
        match Database::open_on(Arc::new(vfs.clone()), dir(), options) {
            Err(error @ Error::Corruption { .. }) => {
                let message = error.to_string();
                assert!(message.contains("CURRENT"), "{context}: {message}");
                assert!(message.contains("restore"), "{context}: {message}");
                assert!(message.contains("repair"), "{context}: {message}");
            }
            other => panic!("{context}, create {create}: {:?}", other.err()),
        }
        assert!(contents(vfs) == before, "{context}: files were changed");
    }
}

#[test]
fn a_database_without_its_pointer_is_never_created_anew_whatever_else_is_left_of_it() {
    for durability in [Durability::Buffered, Durability::None] {
        let (vfs, db, k) = database(Options {
            durability,
            ..tiny()
        });
        let separated = KeyspaceOptions {
            value_separation_bytes: Some(256),
            ..KeyspaceOptions::default()
        };
        let values = db.keyspace("values", separated).expect("keyspace");
        values.put(b"long", &[7; 1000]).expect("put");
        k.put(b"a", b"1").expect("put");
        db.settle().expect("settle");
        k.put(b"b", b"2").expect("put");
        let expected = state_of(&db);
        db.close().expect("close");
        vfs.remove(&dir().join("CURRENT")).expect("remove");
        assert_lost(&vfs, durability, "all but the pointer");
        let kinds: &[&str] = match durability {
            Durability::None => &[".sst", ".val", ".manifest"],
            _ => &[".sst", ".val", ".manifest", ".wal"],
        };
        for kind in kinds {
            let left = vfs.crash(0, CrashOptions::PROCESS_KILLED);
            for name in left.list(dir()).expect("list") {
                if name.ends_with(kind) || name == "LOCK" {
                    continue;
                }
                left.remove(&dir().join(name)).expect("remove");
            }
            assert_lost(&left, durability, &format!("{durability:?}, only {kind}"));
        }
        let shared: Arc<dyn Vfs> = Arc::new(vfs);
        let report = alluvium::repair_on(Arc::clone(&shared), dir(), "saved").expect("repair");
        assert_eq!(report.damages.len(), 1, "the pointer: {report:?}");
        let db = Database::open_on(shared, "saved", tiny()).expect("open");
        assert_eq!(state_of(&db), expected);
    }
}

#[test]
fn a_creation_that_stopped_anywhere_is_begun_again() {
    for durability in [Durability::Buffered, Durability::None] {
        let options = Options {
            durability,
            ..tiny()
        };
        for effect in [
            FaultEffect::Error,
            FaultEffect::ShortWrite,
            FaultEffect::NoSpace,
        ] {
            for nth in 1.. {
                let vfs = MemVfs::new();
                let faults = FaultVfs::new(Arc::new(vfs.clone()));
                faults.arm(stop_at(nth, &[], effect));
                drop(Database::open_on(
                    Arc::new(faults.clone()),
                    dir(),
                    options.clone(),
                ));
                if !faults.tripped() {
                    assert!(nth > 10, "a creation has {nth} calls");
                    break;
                }
                let mut seeds = (nth * 10..).map(|seed| (seed, CrashOptions::POWER_LOSS));
                let losses = [
                    (0, CrashOptions::PROCESS_KILLED),
                    (0, CrashOptions::LOSE_UNSYNCED),
                ];
                for (seed, loss) in losses.into_iter().chain(seeds.by_ref().take(5)) {
                    let left = vfs.crash(seed, loss);
                    // Twice, because the third opening finds the files that the second one leaves.
                    let again = FaultVfs::new(Arc::new(left.clone()));
                    again.arm(stop_at(nth, &[], effect));
                    drop(Database::open_on(Arc::new(again), dir(), options.clone()));
                    let left = left.crash(seed, loss);
                    let opened = Database::open_on(Arc::new(left.clone()), dir(), options.clone());
                    let context = format!("{durability:?}, {effect:?} at call {nth}, {seed}");
                    let db = opened.unwrap_or_else(|e| panic!("{context}: {}", chain(&e)));
                    assert!(db.keyspace_names().expect("names").is_empty(), "{context}");
                }
            }
        }
    }
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
    let names = vfs.list(dir()).expect("list");
    assert!(
        !names.iter().any(|name| name.ends_with(".wal")),
        "{names:?}"
    );
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

/// Returns the bytes of the log that records take.
fn log_bytes(vfs: &MemVfs) -> usize {
    let names = vfs.list(dir()).expect("list");
    let used = names
        .iter()
        .filter(|name| name.ends_with(".wal"))
        .map(|name| {
            let file = vfs.open_read(&dir().join(name)).expect("open");
            let mut bytes = vec![0; file.len().expect("length") as usize];
            file.read_at(&mut bytes, 0).expect("read");
            bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |last| last + 1)
        });
    used.sum()
}

#[test]
fn a_commit_whose_rows_repeat_is_packed_in_the_log_and_survives_power_loss() {
    let options = Options {
        memtable_bytes: None,
        durability: Durability::Sync,
        ..tiny()
    };
    let (vfs, db, k) = database(options.clone());
    let before = log_bytes(&vfs);
    let mut raw = 0;
    let mut batch = WriteBatch::new();
    for row in 0..200_u32 {
        let (key, value) = (
            format!("a key of row {row:06}"),
            format!("what row {row} holds"),
        );
        raw += key.len() + value.len();
        batch
            .put(&k, key.as_bytes(), value.as_bytes())
            .expect("put");
    }
    db.write(&batch).expect("write");
    let written = log_bytes(&vfs) - before;
    assert!(written < raw / 2, "{written} bytes for {raw}");
    let rows = all(&k);
    assert_eq!(rows.len(), 200);
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, options);
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(all(&k), rows);
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
    let db = Database::open_on(Arc::new(RealVfs::new()), dir.path(), tiny()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    k.put(b"a", b"1").expect("put");
    db.settle().expect("settle");
    db.close().expect("close");
    drop(Database::open(dir.path(), tiny()).expect("open"));
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
}
