//! Checkpoints: whole, of one commit, independent of the original, and absent if they failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Durability, Error, KeyspaceOptions, Options, WriteBatch};
use alluvium_testkit::model::State;
use alluvium_testkit::random::{Rng, Seeded};
use parking_lot::Mutex;

use crate::driver::{chain, state_of};
use crate::fixture::{all, assert_error, database, dir, open, table_files, text, tiny};
use crate::hooks::{Call, HookVfs};

fn target() -> &'static Path {
    Path::new("copy")
}

fn open_at(vfs: &dyn CloneVfs, path: &Path, read_only: bool) -> Database {
    let options = Options {
        read_only,
        create: false,
        ..tiny()
    };
    let opened = Database::open_on(vfs.shared(), path, options);
    opened.unwrap_or_else(|e| panic!("open {}: {}", path.display(), chain(&e)))
}

/// File systems with clones that share their files.
trait CloneVfs {
    fn shared(&self) -> Arc<dyn Vfs>;
}

impl CloneVfs for MemVfs {
    fn shared(&self) -> Arc<dyn Vfs> {
        Arc::new(self.clone())
    }
}

impl CloneVfs for HookVfs {
    fn shared(&self) -> Arc<dyn Vfs> {
        Arc::new(self.clone())
    }
}

/// Returns a settled database with tables in several groups, so that no background work is due.
fn settled() -> (MemVfs, FaultVfs, Database) {
    let vfs = MemVfs::new();
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    let db = Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    let mut rng = Rng::new(7);
    for name in ["a", "b"] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default());
        let keyspace = keyspace.expect("keyspace");
        for n in 0..200_u32 {
            let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
            keyspace.put(&key, &rng.bytes(90)).expect("put");
        }
    }
    db.settle().expect("settle");
    (vfs, faults, db)
}

fn left_over(vfs: &dyn Vfs) -> Vec<String> {
    let mut names = vfs.list(Path::new("")).expect("list");
    names.retain(|name| name.starts_with("copy"));
    names
}

#[test]
fn a_checkpoint_shares_its_tables_and_goes_its_own_way() {
    let (vfs, _, db) = settled();
    let unflushed = db.existing_keyspace("a").expect("look").expect("keyspace");
    unflushed.put(b"unflushed", b"1").expect("put");
    let expected = state_of(&db);
    let info = db.checkpoint(target()).expect("checkpoint");
    assert_eq!(info.seqno, db.visible_seqno());
    assert_eq!((info.copied_tables, info.copied_bytes), (0, 0));
    assert!(info.linked_tables > 4, "{info:?}");
    let copy = open_at(&vfs, target(), false);
    assert!(state_of(&copy) == expected);
    // From here both write, flush and compact, and reuse the same numbers for other tables.
    for (database, value) in [(&db, b"original"), (&copy, b"the copy")] {
        let a = database.existing_keyspace("a").expect("look").expect("a");
        for n in 0..300_u32 {
            a.put(&n.to_be_bytes(), value).expect("put");
        }
        a.delete(b"unflushed").expect("delete");
        database.settle().expect("settle");
        let b = database.existing_keyspace("b").expect("look").expect("b");
        database.drop_keyspace(&b).expect("drop");
    }
    let states = [state_of(&db), state_of(&copy)];
    assert_ne!(states[0]["a"], states[1]["a"]);
    db.close().expect("close");
    copy.close().expect("close");
    assert!(state_of(&open_at(&vfs, dir(), false)) == states[0]);
    assert!(state_of(&open_at(&vfs, target(), false)) == states[1]);
}

#[test]
fn a_checkpoint_of_real_files_is_made_of_links() {
    let parent = tempfile::tempdir().expect("directory");
    let (path, copy) = (parent.path().join("db"), parent.path().join("copy"));
    let db = Database::open(&path, tiny()).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default());
    k.expect("keyspace").put(b"a", b"1").expect("put");
    let info = db.checkpoint(&copy).expect("checkpoint");
    assert_eq!((info.linked_tables, info.copied_tables), (1, 0));
    let expected = state_of(&db);
    db.close().expect("close");
    std::fs::remove_dir_all(&path).expect("remove the original");
    let db = Database::open_read_only(&copy, tiny()).expect("open");
    assert!(state_of(&db) == expected);
}

#[test]
fn a_batch_of_the_original_is_refused_by_its_checkpoint() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    db.checkpoint(target()).expect("checkpoint");
    let copy = open_at(&vfs, target(), false);
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", b"2").expect("put");
    assert_error!(copy.write(&batch), Error::InvalidArgument(_));
}

#[test]
fn a_database_without_a_log_is_copied_with_what_was_in_memory() {
    let options = Options {
        durability: Durability::None,
        ..tiny()
    };
    let (vfs, db, k) = database(options);
    k.put(b"a", b"1").expect("put");
    db.checkpoint(target()).expect("checkpoint");
    let copy = open_at(&vfs, target(), true);
    assert!(state_of(&copy) == state_of(&db));
}

#[test]
fn targets_that_exist_or_cannot_be_are_refused() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    vfs.create_dir_all(Path::new("taken")).expect("directory");
    vfs.create(Path::new("file")).expect("file");
    for path in ["taken", "file", "db", "db/inside", "no/parent", ""] {
        assert_error!(db.checkpoint(path), Error::InvalidArgument(_));
    }
    db.checkpoint(target()).expect("checkpoint");
    assert_error!(db.checkpoint(target()), Error::InvalidArgument(_));
    db.checkpoint("taken/copy")
        .expect("a new name in another directory");
}

#[test]
fn another_file_system_gets_copies_and_the_caller_is_told() {
    let (vfs, faults, db) = settled();
    faults.arm(Fault {
        calls: vec![IoCall::Link],
        nth: 1,
        sticky: true,
        effect: FaultEffect::CrossesDevices,
    });
    let info = db.checkpoint(target()).expect("checkpoint");
    let tables = table_files(&vfs);
    assert_eq!(info.linked_tables, 0);
    assert_eq!(info.copied_tables, tables.len() as u64);
    let bytes = tables.iter().map(|name| {
        let file = vfs.open_read(&target().join(name)).expect("open");
        file.len().expect("length")
    });
    assert_eq!(info.copied_bytes, bytes.sum::<u64>());
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert!(state_of(&open_at(&left, target(), true)) == state_of(&db));
}

/// Fails each call of a checkpoint in turn; no failure may leave a file or harm the database.
fn fail_every_call(effect: FaultEffect, calls: &[IoCall]) {
    let (vfs, faults, db) = settled();
    let expected = state_of(&db);
    let mut whole = 0;
    for nth in 1.. {
        // For this thread only: the sync thread prepares and syncs log segments at any time.
        faults.arm_for_this_thread(Fault {
            calls: calls.to_vec(),
            nth,
            sticky: false,
            effect,
        });
        let made = db.checkpoint(target());
        let tripped = faults.tripped();
        faults.disarm();
        if !tripped {
            made.expect("no call failed");
            assert!(nth > 3, "a checkpoint makes calls");
            break;
        }
        let context = format!("{effect:?} at call {nth}: {made:?}");
        made.expect_err("a call failed");
        if left_over(&vfs) == ["copy"] {
            // Only the sync of its name failed.
            assert!(state_of(&open_at(&vfs, target(), true)) == expected);
            assert_eq!(std::mem::replace(&mut whole, nth), 0, "{context}");
            remove_all(&vfs, target());
        }
        assert!(left_over(&vfs).is_empty(), "{context}");
        let a = db.existing_keyspace("a").expect("look").expect("keyspace");
        a.get(b"x").expect("reads go on");
    }
    let a = db.existing_keyspace("a").expect("look").expect("keyspace");
    a.put(b"after", b"1").expect("writes go on");
    db.flush().expect("flush");
}

fn remove_all(vfs: &dyn Vfs, dir: &Path) {
    for name in vfs.list(dir).expect("list") {
        vfs.remove(&dir.join(name)).expect("remove");
    }
    vfs.remove_dir(dir).expect("remove");
}

#[test]
fn a_failed_checkpoint_leaves_no_files_and_the_database_unharmed() {
    fail_every_call(FaultEffect::Error, &[]);
    let fill = [
        IoCall::Create,
        IoCall::Allocate,
        IoCall::Write,
        IoCall::Link,
    ];
    fail_every_call(FaultEffect::NoSpace, &fill);
    fail_every_call(FaultEffect::ShortWrite, &[IoCall::Write]);
}

#[test]
fn a_full_device_leaves_no_partial_copies() {
    let (vfs, faults, db) = settled();
    faults.arm(Fault {
        calls: vec![IoCall::Link],
        nth: 1,
        sticky: true,
        effect: FaultEffect::CrossesDevices,
    });
    let free = vfs.free_bytes(dir()).expect("free bytes");
    let tables = table_files(&vfs);
    let first = vfs.open_read(&dir().join(&tables[0])).expect("open");
    vfs.set_capacity((1 << 40) - free + 2 * first.len().expect("length"));
    assert_error!(db.checkpoint(target()), Error::NoSpace { .. });
    assert!(left_over(&vfs).is_empty(), "{:?}", left_over(&vfs));
    vfs.set_capacity(1 << 40);
    db.checkpoint(target()).expect("there is room");
}

#[test]
fn power_loss_leaves_a_whole_checkpoint_or_none() {
    Seeded::run("power_loss_leaves_a_whole_checkpoint", 3, |rng| {
        for nth in 1.. {
            let (vfs, faults, db) = settled();
            let expected = state_of(&db);
            faults.arm_for_this_thread(Fault {
                calls: vec![IoCall::Sync, IoCall::SyncDir, IoCall::Rename],
                nth,
                sticky: true,
                effect: FaultEffect::Error,
            });
            // Power fails at this call: later writes of the failed checkpoint never reach the
            // device.
            let made = db.checkpoint(target());
            let tripped = faults.tripped();
            assert_eq!(made.is_ok(), !tripped);
            for loss in [CrashOptions::LOSE_UNSYNCED, CrashOptions::POWER_LOSS] {
                let left = vfs.crash(rng.next_u64(), loss);
                if left.exists(target()).expect("look") {
                    let copy = open_at(&left, target(), false);
                    assert!(state_of(&copy) == expected, "call {nth}, {loss:?}");
                } else {
                    assert!(tripped, "an acknowledged checkpoint is durable");
                }
                assert!(state_of(&open(&left, tiny())) == expected);
            }
            if !tripped {
                return;
            }
        }
    });
}

#[test]
fn a_checkpoint_under_load_is_one_point_of_the_commit_order() {
    let (vfs, db, x) = database(tiny());
    // The writer ends when the checkpoints are done or have failed.
    let goes_on = Arc::new(());
    let seen = Arc::downgrade(&goes_on);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each round copies y's row into x and drops y, so that every prefix of the order is
            // recognizable.
            let mut round = 0_u32;
            while seen.strong_count() > 0 {
                round += 1;
                let name = format!("y{round:06}");
                let y = db.keyspace(&name, KeyspaceOptions::default());
                let y = y.expect("keyspace");
                let mut batch = WriteBatch::new();
                batch.put(&y, b"row", &[1; 100]).expect("put");
                batch.put(&x, b"newest", &round.to_be_bytes()).expect("put");
                db.write(&batch).expect("write");
                x.put(&round.to_be_bytes(), &[2; 100]).expect("put");
                db.drop_keyspace(&y).expect("drop");
            }
        });
        let _goes_on = goes_on;
        for n in 0..25 {
            let path = format!("copy{n}");
            db.checkpoint(&path).expect("checkpoint");
            check_prefix(&open_at(&vfs, Path::new(&path), true));
        }
    });
}

fn check_prefix(db: &Database) {
    let mut state = state_of(db);
    let mut x = state.remove("k").expect("x exists from the beginning");
    let newest = x.remove(&b"newest"[..]).unwrap_or_else(|| vec![0; 4]);
    let newest = u32::from_be_bytes(newest.try_into().expect("4 bytes"));
    let copied = x.len() as u32;
    assert!(
        x.keys().eq((1..=copied)
            .map(u32::to_be_bytes)
            .map(Vec::from)
            .collect::<Vec<_>>()
            .iter())
    );
    assert!(
        copied == newest || copied + 1 == newest,
        "{copied} {newest}"
    );
    let exists: Vec<_> = state
        .iter()
        .map(|(name, rows)| (name.clone(), rows.len()))
        .collect();
    let name = |round: u32| format!("y{round:06}");
    let legal = [
        // Between two rounds, or copied and dropped.
        (copied == newest).then(Vec::new),
        // Copied and not yet dropped.
        (copied == newest && newest > 0).then(|| vec![(name(newest), 1)]),
        // The next keyspace is created and still empty.
        (copied == newest).then(|| vec![(name(newest + 1), 0)]),
        // Written and not yet copied.
        (copied < newest).then(|| vec![(name(newest), 1)]),
    ];
    assert!(
        legal.iter().flatten().any(|legal| *legal == exists),
        "{copied} {newest} {exists:?}"
    );
}

/// Runs `other` in another thread during the flush of a checkpoint. The rows of keyspace `quiet`
/// are in tables, the rows of `busy` in memory. The copy must not show `other`, and `other` must be
/// done after the checkpoint.
fn beside_a_checkpoint(other: fn(&Database), done: fn(&State) -> bool) {
    let handle: Arc<OnceLock<Database>> = Arc::default();
    let (own, begun) = (Arc::clone(&handle), Arc::<OnceLock<_>>::default());
    let thread = Arc::clone(&begun);
    let vfs = HookVfs::new(move |call, path| {
        let flushes = call == Call::Create && path.to_string_lossy().ends_with(".sst");
        if !flushes || begun.get().is_some() {
            return Ok(());
        }
        let db = own.get().expect("set before").clone();
        let other = begun.get_or_init(|| Mutex::new(Some(thread::spawn(move || other(&db)))));
        // `other` waits for the checkpoint; if it does not, this gives it time to finish.
        for _ in 0..100_000 {
            if other.lock().as_ref().is_some_and(JoinHandle::is_finished) {
                break;
            }
            thread::yield_now();
        }
        Ok(())
    });
    let db = Database::open_on(vfs.shared(), dir(), tiny()).expect("open");
    let [quiet, busy] = ["quiet", "busy"].map(|name| {
        let keyspace = db.keyspace(name, KeyspaceOptions::default());
        keyspace.expect("keyspace")
    });
    quiet.put(b"a", b"1").expect("put");
    db.settle().expect("settle");
    busy.put(b"a", b"1").expect("put");
    let expected = state_of(&db);
    handle.set(db.clone()).ok().expect("once");
    vfs.set(true);
    db.checkpoint(target()).expect("checkpoint");
    vfs.set(false);
    let other = thread.get().and_then(|thread| thread.lock().take());
    let other = other.expect("the checkpoint flushes");
    other.join().expect("join");
    assert_eq!(state_of(&open_at(&vfs, target(), true)), expected);
    assert!(done(&state_of(&db)));
    // The hook holds the last handle.
    db.close().expect("close");
}

#[test]
fn a_drop_during_a_checkpoint_waits_for_it() {
    let drop_quiet = |db: &Database| {
        let quiet = db.existing_keyspace("quiet").expect("look");
        db.drop_keyspace(&quiet.expect("keyspace")).expect("drop");
    };
    beside_a_checkpoint(drop_quiet, |state| !state.contains_key("quiet"));
}

#[test]
fn an_ingest_during_a_checkpoint_waits_for_it() {
    let ingest = |db: &Database| {
        let quiet = db.existing_keyspace("quiet").expect("look");
        let mut ingest = db.ingest().expect("ingest");
        let row = ingest.put(&quiet.expect("keyspace"), b"ingested", b"1");
        row.expect("put");
        ingest.finish().expect("finish");
    };
    beside_a_checkpoint(ingest, |state| state["quiet"].len() == 2);
}

#[test]
fn a_keyspace_created_after_the_point_is_left_out() {
    let handle: Arc<OnceLock<Database>> = Arc::default();
    let own = Arc::clone(&handle);
    let done = AtomicBool::new(false);
    let vfs = HookVfs::new(move |call, path| {
        let table = path.to_string_lossy().ends_with(".sst");
        if call == Call::Create && table && !done.swap(true, Ordering::SeqCst) {
            let db = own.get().expect("set before");
            let k = db.existing_keyspace("k").expect("look").expect("keyspace");
            k.put(b"later", b"1").expect("put");
            let late = db.keyspace("late", KeyspaceOptions::default());
            late.expect("keyspace").put(b"a", b"1").expect("put");
        }
        Ok(())
    });
    let db = Database::open_on(vfs.shared(), dir(), tiny()).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default());
    k.expect("keyspace").put(b"before", b"1").expect("put");
    handle.set(db.clone()).ok().expect("once");
    vfs.set(true);
    db.checkpoint(target()).expect("checkpoint");
    let names: BTreeMap<_, _> = state_of(&open_at(&vfs, target(), true));
    assert_eq!(names.keys().collect::<Vec<_>>(), ["k"]);
    assert_eq!(names["k"].len(), 1);
    let late = db.existing_keyspace("late").expect("look").expect("late");
    assert_eq!(text(&late, "a").as_deref(), Some("1"));
    assert_eq!(all(&late).len(), 1);
    db.close().expect("close");
}
