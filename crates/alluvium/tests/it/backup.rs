//! Backups: whole, shared, restored exactly, and never harmed by a later call that fails or by a
//! crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::backup::{BackupInfo, BackupStore};
use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Error, Keyspace, KeyspaceOptions};
use alluvium_testkit::model::State;
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::{chain, state_of};
use crate::fixture::{assert_error, database, dir, open, tiny};
use crate::hooks::{Call, HookVfs};

fn backups() -> &'static Path {
    Path::new("backups")
}

fn store_on(vfs: &dyn Vfs, clone: Arc<dyn Vfs>) -> BackupStore {
    assert!(vfs.exists(Path::new("")).expect("look"));
    BackupStore::open_on(clone, backups()).unwrap_or_else(|e| panic!("open: {}", chain(&e)))
}

fn store(vfs: &MemVfs) -> BackupStore {
    store_on(vfs, Arc::new(vfs.clone()))
}

fn fill(k: &Keyspace, rng: &mut Rng, rows: usize) {
    for _ in 0..rows {
        let key = rng.below(5_000).to_string();
        k.put(key.as_bytes(), &rng.bytes(60)).expect("put");
    }
}

/// Restores a backup and returns its contents.
fn restored(vfs: &MemVfs, store: &BackupStore, id: u64) -> State {
    let target = PathBuf::from(format!("restored{id}"));
    store
        .restore(id, &target)
        .unwrap_or_else(|e| panic!("restore {id}: {}", chain(&e)));
    let db = Database::open_on(Arc::new(vfs.clone()), &target, tiny()).expect("open");
    assert!(db.verify().expect("verify").is_clean());
    let state = state_of(&db);
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    k.put(b"restored", b"1").expect("it is a database as any");
    db.close().expect("close");
    for name in vfs.list(&target).expect("list") {
        vfs.remove(&target.join(name)).expect("remove");
    }
    vfs.remove_dir(&target).expect("remove");
    state
}

fn tables(vfs: &MemVfs) -> Vec<String> {
    let mut names = vfs.list(&backups().join("tables")).expect("list");
    names.sort();
    names
}

fn flip(vfs: &MemVfs, path: &Path, at: u64) {
    let file = vfs.open(path).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("read");
    byte[0] ^= 4;
    file.write_at(&byte, at).expect("write");
}

#[test]
fn each_backup_is_restored_as_it_was_and_shares_tables_with_the_others() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    let mut rng = Rng::new(1);
    // Compactions may rewrite all of `k` between two backups, but nothing of this settled keyspace.
    let still = KeyspaceOptions::default();
    let still = db.keyspace("still", still).expect("create");
    fill(&still, &mut rng, 400);
    db.settle().expect("settle");
    let mut made: Vec<(BackupInfo, State)> = Vec::new();
    for round in 0..4 {
        fill(&k, &mut rng, if round == 0 { 400 } else { 10 });
        let state = state_of(&db);
        let info = store.create(&db).expect("create");
        assert_eq!(info.id, round + 1);
        assert_eq!(info.seqno, db.visible_seqno());
        made.push((info, state));
    }
    db.settle().expect("settle");
    store.create(&db).expect("create");
    let again = store.create(&db).expect("create");
    assert_eq!(again.copied_bytes, 0, "nothing has changed");
    let first = made[0].0;
    assert!(first.copied_bytes > first.bytes / 2, "{first:?}");
    for (info, state) in &made {
        assert!(store.verify(info.id).expect("verify").is_empty());
        assert!(&restored(&vfs, &store, info.id) == state, "{info:?}");
    }
    let list = store.list().expect("list");
    assert!(list.damaged.is_empty());
    let ids: Vec<u64> = list.backups.iter().map(|backup| backup.id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    assert_eq!(list.backups[1].bytes, made[1].0.bytes);
    let (copied, bytes) = (made[1].0.copied_bytes, made[1].0.bytes);
    assert!(copied < bytes, "{copied} of {bytes} were copied again");
}

#[test]
fn backups_made_at_once_are_made_one_after_the_other() {
    const THREADS: u64 = 4;
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    let mut rng = Rng::new(3);
    for round in 0..4 {
        fill(&k, &mut rng, 400);
        let together = std::sync::Barrier::new(THREADS as usize);
        let make = || {
            together.wait();
            store.create(&db).map(|info| info.id)
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(make)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
            threads.into_iter().map(join).collect()
        });
        let made = made.into_iter().map(|id| id.expect("no panic"));
        let id = |id: Result<u64, Error>| id.unwrap_or_else(|e| panic!("create: {}", chain(&e)));
        let mut ids: Vec<u64> = made.map(id).collect();
        ids.sort_unstable();
        let first = round * THREADS + 1;
        assert_eq!(ids, (first..first + THREADS).collect::<Vec<_>>());
    }
    for backup in store.list().expect("list").backups {
        assert!(store.verify(backup.id).expect("verify").is_empty());
    }
}

#[test]
fn deleting_a_backup_removes_its_own_tables_and_no_others() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    let mut rng = Rng::new(2);
    fill(&k, &mut rng, 200);
    store.create(&db).expect("create");
    fill(&k, &mut rng, 400);
    db.settle().expect("settle");
    let state = state_of(&db);
    store.create(&db).expect("create");
    let before = tables(&vfs);
    store.delete(1).expect("delete");
    assert!(tables(&vfs).len() < before.len());
    assert!(restored(&vfs, &store, 2) == state);
    assert_error!(store.delete(1), Error::InvalidArgument(_));
    assert_error!(store.verify(1), Error::InvalidArgument(_));
    assert_error!(store.restore(1, "x"), Error::InvalidArgument(_));
    store.delete(2).expect("delete");
    assert!(tables(&vfs).is_empty());
    let mut left = vfs.list(backups()).expect("list");
    left.sort();
    assert_eq!(left, ["LOCK", "tables"]);
}

#[test]
fn every_damaged_file_is_named_by_verify_and_restore_refuses_it() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    fill(&k, &mut Rng::new(3), 100);
    let id = store.create(&db).expect("create").id;
    let mut files: Vec<PathBuf> = tables(&vfs)
        .iter()
        .map(|name| backups().join("tables").join(name))
        .collect();
    files.push(backups().join("000001.state"));
    files.push(backups().join("000001.backup"));
    for path in files {
        let file = vfs.open(&path).expect("open");
        let len = file.len().expect("length");
        for at in (0..len).step_by(53) {
            flip(&vfs, &path, at);
            let damages = store.verify(id).expect("verify");
            match &damages[..] {
                [Error::Corruption { path: named, .. }] => assert_eq!(*named, path),
                other => panic!("{}: {other:?}", path.display()),
            }
            match store.restore(id, "target") {
                Err(Error::Corruption { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{}: {other:?}", path.display()),
            }
            flip(&vfs, &path, at);
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0).expect("read");
        for length in [0, len - 1] {
            file.truncate(length).expect("truncate");
            assert_error!(store.restore(id, "target"), Error::Corruption { .. });
            file.write_at(&bytes, 0).expect("write");
        }
    }
    let names = vfs.list(Path::new("")).expect("list");
    assert!(!names.iter().any(|n| n.starts_with("target")), "{names:?}");
    assert!(store.verify(id).expect("verify").is_empty());
}

#[test]
fn nothing_is_removed_while_a_listing_cannot_be_read() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    let mut rng = Rng::new(4);
    for _ in 0..2 {
        fill(&k, &mut rng, 200);
        db.settle().expect("settle");
        store.create(&db).expect("create");
    }
    let before = tables(&vfs);
    flip(&vfs, &backups().join("000001.backup"), 20);
    let list = store.list().expect("list");
    assert_eq!((list.backups.len(), list.damaged.len()), (1, 1));
    assert_eq!(list.damaged[0].0, 1);
    store.delete(2).expect("delete");
    assert_eq!(tables(&vfs), before);
    assert_eq!(
        store.create(&db).expect("create").id,
        3,
        "the state of 2 is kept too"
    );
    flip(&vfs, &backups().join("000001.backup"), 20);
    assert!(store.verify(1).expect("verify").is_empty());
}

#[test]
fn a_damaged_table_of_the_database_is_not_backed_up() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    fill(&k, &mut Rng::new(5), 100);
    db.flush().expect("flush");
    let name = crate::fixture::table_files(&vfs).remove(0);
    flip(&vfs, &dir().join(&name), 40);
    match store.create(&db) {
        Err(Error::Corruption { path, .. }) => assert_eq!(path, dir().join(&name)),
        other => panic!("{other:?}"),
    }
    assert!(store.list().expect("list").backups.is_empty());
    assert!(tables(&vfs).is_empty());
    flip(&vfs, &dir().join(&name), 40);
    store.create(&db).expect("create");
}

#[test]
fn a_damaged_value_file_of_the_database_is_named_and_not_backed_up() {
    let (vfs, db, k) = database(tiny());
    let store = store(&vfs);
    k.put(b"large", &[7; 20_000]).expect("put");
    db.flush().expect("flush");
    let names = vfs.list(dir()).expect("list");
    let name = names.iter().find(|name| name.ends_with(".val"));
    let path = dir().join(name.expect("a value file"));
    flip(&vfs, &path, 40);
    match store.create(&db) {
        Err(Error::Corruption { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{other:?}"),
    }
    assert!(store.list().expect("list").backups.is_empty());
    assert!(tables(&vfs).is_empty());
    flip(&vfs, &path, 40);
    store.create(&db).expect("create");
}

#[test]
fn a_store_is_open_once_and_is_no_database() {
    let (vfs, db, _) = database(tiny());
    let first = store(&vfs);
    let open = |path: &Path| BackupStore::open_on(Arc::new(vfs.clone()), path);
    assert_error!(open(backups()), Error::Locked { .. });
    drop(first);
    drop(open(backups()).expect("open"));
    assert_error!(open(dir()), Error::InvalidArgument(_));
    let store = open(backups()).expect("open");
    store.create(&db).expect("an empty database");
    for target in ["db", "backups/x", "no/parent"] {
        assert_error!(store.restore(1, target), Error::InvalidArgument(_));
    }
}

/// A database with one backup, changed since then: `first` is the state in the backup, `second` the
/// current state.
struct Scene {
    vfs: MemVfs,
    faults: FaultVfs,
    store: BackupStore,
    db: Database,
    first: State,
    second: State,
}

fn scene(seed: u64) -> Scene {
    let (vfs, db, k) = database(tiny());
    let mut rng = Rng::new(seed);
    fill(&k, &mut rng, 120);
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    let store = store_on(&vfs, Arc::new(faults.clone()));
    let first = state_of(&db);
    store.create(&db).expect("create");
    fill(&k, &mut rng, 120);
    db.settle().expect("settle");
    let second = state_of(&db);
    Scene {
        vfs,
        faults,
        store,
        db,
        first,
        second,
    }
}

/// A call on a store that has a first backup.
type Action = fn(&BackupStore, &Database) -> alluvium::Result<()>;

fn make(store: &BackupStore, db: &Database) -> alluvium::Result<()> {
    store.create(db).map(|_| ())
}

fn make_and_delete(store: &BackupStore, db: &Database) -> alluvium::Result<()> {
    let id = store.create(db)?.id;
    store.delete(id)
}

/// Checks that the first backup is listed and every listed backup is whole.
fn check_store(vfs: &MemVfs, scene: &Scene, context: &str) {
    let store = store(vfs);
    let list = store.list().expect("list");
    assert!(list.damaged.is_empty(), "{context}: {list:?}");
    assert_eq!(list.backups[0].id, 1, "{context}");
    for backup in list.backups {
        let damages = store.verify(backup.id).expect("verify");
        assert!(damages.is_empty(), "{context}: {damages:?}");
        let expected = match backup.id {
            1 => &scene.first,
            _ => &scene.second,
        };
        assert!(restored(vfs, &store, backup.id) == *expected, "{context}");
    }
    let db = open(vfs, tiny());
    let id = store.create(&db).expect("create").id;
    assert!(restored(vfs, &store, id) == scene.second, "{context}");
}

fn fail_every_call(action: Action, effect: FaultEffect, calls: &[IoCall]) {
    for nth in 1.. {
        let scene = scene(nth);
        scene.faults.arm(Fault {
            calls: calls.to_vec(),
            nth,
            sticky: false,
            effect,
        });
        let done = action(&scene.store, &scene.db);
        let tripped = scene.faults.tripped();
        scene.faults.disarm();
        // A call that may fail without harm, such as the removal of a useless file, returns no
        // error.
        assert!(tripped || done.is_ok());
        let context = format!("{effect:?} at call {nth}: {done:?}");
        let left = scene.vfs.crash(1, CrashOptions::PROCESS_KILLED);
        check_store(&left, &scene, &context);
        if !tripped {
            return;
        }
    }
}

#[test]
fn a_backup_or_a_deletion_that_fails_harms_no_other_backup() {
    fail_every_call(make, FaultEffect::Error, &[]);
    let changes = [IoCall::SyncDir, IoCall::Remove, IoCall::Rename];
    fail_every_call(make_and_delete, FaultEffect::Error, &changes);
    let fill = [IoCall::Create, IoCall::Allocate];
    fail_every_call(make, FaultEffect::NoSpace, &fill);
}

fn lose_power_at_every_change(action: Action, rng: &mut Rng) {
    for nth in 1.. {
        let scene = scene(nth);
        scene.faults.arm(Fault {
            calls: vec![
                IoCall::Sync,
                IoCall::SyncDir,
                IoCall::Rename,
                IoCall::Remove,
            ],
            nth,
            sticky: true,
            effect: FaultEffect::Error,
        });
        let done = action(&scene.store, &scene.db);
        let tripped = scene.faults.tripped();
        for loss in [CrashOptions::LOSE_UNSYNCED, CrashOptions::POWER_LOSS] {
            let seed = rng.next_u64();
            let left = scene.vfs.crash(seed, loss);
            let context = format!("{loss:?} {seed} at change {nth}: {done:?}");
            check_store(&left, &scene, &context);
        }
        if !tripped {
            done.expect("nothing failed");
            return;
        }
    }
}

#[test]
fn power_loss_leaves_every_listed_backup_whole() {
    Seeded::run("power_loss_in_a_backup_store", 2, |rng| {
        lose_power_at_every_change(make, rng);
        lose_power_at_every_change(make_and_delete, rng);
    });
}

#[test]
fn a_deletion_whose_sync_failed_leaves_a_backup_whole_or_gone() {
    for seed in 0..24 {
        let scene = scene(seed);
        let id = scene.store.create(&scene.db).expect("create").id;
        let failing_sync = |calls: &[IoCall], sticky| Fault {
            calls: calls.to_vec(),
            nth: 1,
            sticky,
            effect: FaultEffect::Error,
        };
        scene.faults.arm(failing_sync(&[IoCall::SyncDir], false));
        scene.store.delete(id).expect_err("its sync fails");
        // A call that removes leftovers, and stops before the directory is synced.
        let syncs = [IoCall::Sync, IoCall::SyncDir];
        scene.faults.arm(failing_sync(&syncs, true));
        scene.store.create(&scene.db).expect_err("a sync fails");
        let left = scene.vfs.crash(seed, CrashOptions::POWER_LOSS);
        check_store(&left, &scene, &format!("seed {seed}"));
    }
}

#[test]
fn an_acknowledged_backup_and_an_acknowledged_deletion_survive_power_loss() {
    let scene = scene(1);
    let id = scene.store.create(&scene.db).expect("create").id;
    let left = scene.vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let kept = store(&left);
    assert!(restored(&left, &kept, id) == scene.second);
    scene.store.delete(1).expect("delete");
    let left = scene.vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let kept = store(&left).list().expect("list").backups;
    assert_eq!(kept.iter().map(|b| b.id).collect::<Vec<_>>(), [id]);
}

/// Returns a file system with the backup store on a mount that refuses changes while the hook is
/// on.
fn read_only_mount(kind: std::io::ErrorKind) -> HookVfs {
    HookVfs::new(move |call, path: &Path| {
        let changes = !matches!(
            call,
            Call::Sync | Call::ExpectRandomReads | Call::StartReading
        );
        if changes && path.starts_with(backups()) {
            Err(kind.into())
        } else {
            Ok(())
        }
    })
}

/// Returns the names and bytes of a store's files.
fn contents(vfs: &MemVfs) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for dir in [backups().to_path_buf(), backups().join("tables")] {
        let names = vfs.list(&dir).expect("list").into_iter();
        paths.extend(names.filter(|n| n != "tables").map(|n| dir.join(n)));
    }
    paths.sort();
    let read = |path: PathBuf| {
        let file = vfs.open_read(&path).expect("open");
        let mut bytes = vec![0; file.len().expect("length") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn a_store_that_cannot_be_written_is_listed_verified_and_restored_from() {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    for (kind, lock_file) in [
        (ReadOnlyFilesystem, true),
        (PermissionDenied, true),
        (ReadOnlyFilesystem, false),
    ] {
        let vfs = read_only_mount(kind);
        let files = MemVfs::clone(&vfs.files);
        let db = Database::open_on(Arc::new(vfs.clone()), dir(), tiny()).expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        fill(&k, &mut Rng::new(6), 300);
        let state = state_of(&db);
        let made = store(&files).create(&db).expect("create");
        if !lock_file {
            files.remove(&backups().join("LOCK")).expect("remove");
        }
        vfs.set(true);
        let before = contents(&files);
        let open = || BackupStore::open_on(Arc::new(vfs.clone()), backups());
        let readers = [
            open().expect("the store is there"),
            BackupStore::open_read_only_on(Arc::new(vfs.clone()), backups()).expect("open"),
        ];
        for store in &readers {
            assert_eq!(store.list().expect("list").backups[0].id, made.id);
            assert!(store.verify(made.id).expect("verify").is_empty());
            assert_eq!(restored(&files, store, made.id), state);
        }
        let [fallen_back, asked] = readers;
        for refused in [fallen_back.create(&db).map(drop), fallen_back.delete(1)] {
            match refused {
                Err(Error::Io { source, .. }) => assert_eq!(source.kind(), kind),
                other => panic!("{other:?}"),
            }
        }
        assert_error!(asked.create(&db), Error::ReadOnly);
        assert_error!(asked.delete(1), Error::ReadOnly);
        assert!(contents(&files) == before, "a reader has written");
        let nothing = BackupStore::open_read_only_on(Arc::new(vfs.clone()), "nothing");
        assert_error!(nothing, Error::InvalidArgument(_));
    }
}

#[test]
fn readers_share_a_store_and_keep_writers_out() {
    let (vfs, db, _k) = database(tiny());
    let writer = store(&vfs);
    writer.create(&db).expect("create");
    let read = || BackupStore::open_read_only_on(Arc::new(vfs.clone()), backups());
    assert_error!(read(), Error::Locked { .. });
    drop(writer);
    let readers = [read().expect("open"), read().expect("open")];
    let write = || BackupStore::open_on(Arc::new(vfs.clone()), backups());
    assert_error!(write(), Error::Locked { .. });
    drop(readers);
    write().expect("open");
    let of_database = BackupStore::open_read_only_on(Arc::new(vfs.clone()), dir());
    assert_error!(of_database, Error::InvalidArgument(_));
}
