//! Opening without changing a byte.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use alluvium::vfs::{CrashOptions, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{
    BulkLoadOptions, Database, Durability, Error, Isolation, KeyspaceOptions, Options, WriteBatch,
};
use alluvium_testkit::random::Seeded;

use crate::driver::{chain, state_of};
use crate::fixture::{all, assert_error, database, dir, open, text, tiny};
use crate::script::{options, play};

fn read_only() -> Options {
    Options {
        read_only: true,
        ..tiny()
    }
}

fn reader(vfs: &MemVfs) -> Database {
    let opened = Database::open_on(Arc::new(vfs.clone()), dir(), read_only());
    opened.unwrap_or_else(|e| panic!("open: {}", chain(&e)))
}

/// Returns every name in the database directory with its content.
fn contents(vfs: &MemVfs) -> BTreeMap<String, Vec<u8>> {
    let names = vfs.list(dir()).expect("list").into_iter();
    let read = |name: String| {
        let Ok(file) = vfs.open_read(&dir().join(&name)) else {
            return (name, Vec::new());
        };
        let mut bytes = vec![0; file.len().expect("length") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        (name, bytes)
    };
    names.map(read).collect()
}

#[test]
fn reading_a_crashed_database_changes_no_byte_of_it() {
    Seeded::run("reading_changes_no_byte", 12, |rng| {
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let options = options(Durability::Buffered);
        faults.arm(alluvium::vfs::Fault {
            calls: vec![IoCall::Sync, IoCall::SyncDir, IoCall::Rename],
            nth: rng.range(8..90) as u64,
            sticky: true,
            effect: alluvium::vfs::FaultEffect::Error,
        });
        let played = play(&faults, &options, &mut || {});
        let left = vfs.crash(rng.next_u64(), CrashOptions::POWER_LOSS);
        if !left.exists(&dir().join("CURRENT")).expect("look") {
            return;
        }
        // A table that the manifest does not name, as an unfinished compaction leaves it.
        let stray = left.create(&dir().join("999999.sst")).expect("create");
        stray.write_at(b"stray", 0).expect("write");
        let before = contents(&left);
        let db = reader(&left);
        let seen = state_of(&db);
        db.close().expect("close");
        assert!(contents(&left) == before, "a byte changed");
        // A writer recovers the same.
        let db = open(&left, tiny());
        assert!(state_of(&db) == seen);
        drop(played);
    });
}

#[test]
fn a_reader_needs_no_call_that_writes() {
    let (vfs, db, k) = database(tiny());
    for n in 0..200_u32 {
        k.put(&n.to_be_bytes(), &[3; 60]).expect("put");
    }
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    drop(db);
    let faults = FaultVfs::new(Arc::new(left.clone()));
    let opened = Database::open_on(Arc::new(faults.clone()), dir(), read_only());
    let db = opened.expect("open");
    assert_eq!(state_of(&db)["k"].len(), 200);
    db.close().expect("close");
    let writing = [
        IoCall::Create,
        IoCall::Write,
        IoCall::Allocate,
        IoCall::Rename,
        IoCall::Remove,
        IoCall::SyncDir,
        IoCall::Link,
    ];
    for call in writing {
        assert_eq!(faults.calls(call), 0, "{call:?}");
    }
}

#[test]
fn every_write_is_refused_and_reads_go_on() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    db.close().expect("close");
    let db = reader(&vfs);
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_error!(k.put(b"a", b"2"), Error::ReadOnly);
    assert_error!(k.insert(b"b", b"2"), Error::ReadOnly);
    assert_error!(k.delete(b"a"), Error::ReadOnly);
    assert_error!(k.delete_range(b"a", b"b"), Error::ReadOnly);
    assert_error!(k.delete_prefix(b"a"), Error::ReadOnly);
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", b"2").expect("put");
    assert_error!(db.write(&batch), Error::ReadOnly);
    let mut deletes = WriteBatch::new();
    deletes.delete(&k, b"a").expect("delete");
    assert_error!(db.write(&deletes), Error::ReadOnly);
    let new = db.keyspace("new", KeyspaceOptions::default());
    assert_error!(new, Error::ReadOnly);
    db.keyspace("k", KeyspaceOptions::default())
        .expect("it exists");
    assert_error!(db.drop_keyspace(&k), Error::ReadOnly);
    assert_error!(db.flush(), Error::ReadOnly);
    assert_error!(db.settle(), Error::ReadOnly);
    assert_error!(db.sync(), Error::ReadOnly);
    assert_error!(db.checkpoint("copy"), Error::ReadOnly);
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    assert_error!(txn.put(&k, b"a", b"2"), Error::ReadOnly);
    assert_error!(txn.put_untracked(&k, b"a", b"2"), Error::ReadOnly);
    assert_error!(txn.delete(&k, b"a"), Error::ReadOnly);
    assert_error!(txn.delete_untracked(&k, b"a"), Error::ReadOnly);
    assert_error!(txn.delete_range(&k, b"a", b"b"), Error::ReadOnly);
    assert_error!(txn.delete_prefix(&k, b"a"), Error::ReadOnly);
    let found = txn.get_for_update(&k, b"a").expect("get");
    assert_eq!(found.as_deref(), Some(&b"1"[..]));
    txn.commit().expect("nothing was written");
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
    assert_eq!(all(&k).len(), 1);
    assert_eq!(db.stats().expect("stats").keyspaces.len(), 1);
    db.close().expect("close");
    assert_error!(k.get(b"a"), Error::Closed);
}

#[test]
fn readers_share_a_database_and_keep_writers_out() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    let try_open = |options: Options| Database::open_on(Arc::new(vfs.clone()), dir(), options);
    assert_error!(try_open(read_only()), Error::Locked { .. });
    db.close().expect("close");
    let readers = [reader(&vfs), reader(&vfs)];
    assert_error!(try_open(tiny()), Error::Locked { .. });
    let [first, second] = readers;
    first.close().expect("close");
    assert_error!(try_open(tiny()), Error::Locked { .. });
    drop(second);
    drop(try_open(tiny()).expect("the last reader is gone"));
}

#[test]
fn real_readers_share_a_database_and_keep_writers_out() {
    let path = tempfile::tempdir().expect("directory");
    let db = Database::open(path.path(), tiny()).expect("open");
    db.keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let read = || Database::open_read_only(path.path(), tiny());
    assert_error!(read(), Error::Locked { .. });
    drop(db);
    let readers = [read().expect("open"), read().expect("open")];
    assert_error!(Database::open(path.path(), tiny()), Error::Locked { .. });
    drop(readers);
    Database::open(path.path(), tiny()).expect("no reader is left");
}

#[test]
fn only_a_database_can_be_read_and_nothing_is_created_for_a_reader() {
    let vfs = MemVfs::new();
    let try_open = || Database::open_on(Arc::new(vfs.clone()), dir(), read_only());
    assert_error!(try_open(), Error::InvalidArgument(_));
    assert!(!vfs.exists(dir()).expect("look"));
    vfs.create_dir_all(dir()).expect("directory");
    assert_error!(try_open(), Error::InvalidArgument(_));
    assert!(vfs.list(dir()).expect("list").is_empty());
}

#[test]
fn a_copy_without_a_lock_file_is_read_as_it_is() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    db.checkpoint("copy").expect("checkpoint");
    let copy = Path::new("copy");
    vfs.remove(&copy.join("LOCK")).expect("remove");
    let names = || vfs.list(copy).expect("list");
    let before = names();
    let opened = Database::open_on(Arc::new(vfs.clone()), copy, read_only());
    assert_eq!(state_of(&opened.expect("open"))["k"].len(), 1);
    assert_eq!(names(), before);
}

#[test]
fn what_would_write_beside_the_log_is_refused_and_leaves_no_file() {
    let (vfs, db, k) = database(tiny());
    for n in 0..200_u32 {
        k.put(&n.to_be_bytes(), &[7; 50]).expect("put");
    }
    db.flush().expect("flush");
    drop(k);
    db.close().expect("close");
    let names = |vfs: &MemVfs| {
        let mut names = vfs.list(dir()).expect("list");
        names.sort();
        names
    };
    let before = names(&vfs);
    let db = open(&vfs, read_only());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    let seqno = db.visible_seqno();
    assert_error!(db.ingest(), Error::ReadOnly);
    assert_error!(db.bulk_load(BulkLoadOptions::default()), Error::ReadOnly);
    assert_error!(k.compact_range(&[], None), Error::ReadOnly);
    assert_error!(k.set_options(k.options()), Error::ReadOnly);
    assert_error!(k.put(b"a", b"b"), Error::ReadOnly);
    assert_eq!(db.visible_seqno(), seqno);
    drop(k);
    db.close().expect("close");
    assert_eq!(names(&vfs), before);
}
