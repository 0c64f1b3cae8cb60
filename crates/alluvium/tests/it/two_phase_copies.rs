//! Prepared transactions in checkpoints and backups: a copy has those of its commit, and decides on
//! them independently.

use std::path::Path;
use std::sync::Arc;

use alluvium::backup::BackupStore;
use alluvium::vfs::{CrashOptions, MemVfs};
use alluvium::{Database, Durability, Error, Isolation, Keyspace, Options};

use crate::fixture::{assert_error, database, text, tiny};
use crate::two_phase::impatient;

/// Opens a copy for writing.
fn open_copy(vfs: &MemVfs, name: &str) -> (Database, Keyspace) {
    let db = Database::open_on(Arc::new(vfs.clone()), Path::new(name), tiny()).expect("open");
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    (db, k)
}

#[test]
fn prepared_transactions_are_in_copies_and_can_be_decided_there() {
    let (vfs, db, k) = database(tiny());
    k.put(b"row", b"1").expect("put");
    for (xid, key) in [(b"x1", b"a"), (b"x2", b"b"), (b"x3", b"c")] {
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        txn.put(&k, key, b"prepared").expect("put");
        drop(txn.prepare(xid).expect("prepare"));
    }
    let take = |db: &Database, xid: &[u8]| db.take_prepared(xid).expect("take");
    take(&db, b"x2").rollback().expect("rollback");
    take(&db, b"x3").commit().expect("commit");
    db.checkpoint("checkpoint").expect("checkpoint");
    // Nothing is left to flush now.
    db.checkpoint("again").expect("checkpoint");
    let store = BackupStore::open_on(Arc::new(vfs.clone()), "store").expect("store");
    let backup = store.create(&db).expect("backup");
    take(&db, b"x1").commit().expect("commit");
    db.checkpoint("decided").expect("checkpoint");
    assert!(store.verify(backup.id).expect("verify").is_empty());
    store.restore(backup.id, "restored").expect("restore");
    for (name, commit) in [("checkpoint", true), ("again", false), ("restored", true)] {
        let read_only = Options {
            read_only: true,
            ..tiny()
        };
        let reader = Database::open_on(Arc::new(vfs.clone()), Path::new(name), read_only);
        assert_eq!(reader.expect("open").prepared().expect("list"), [b"x1"]);
        let unlogged = Options {
            durability: Durability::None,
            ..tiny()
        };
        let unlogged = Database::open_on(Arc::new(vfs.clone()), Path::new(name), unlogged);
        assert_error!(unlogged, Error::InvalidArgument(_));
        let (copy, k) = open_copy(&vfs, name);
        assert_error!(
            impatient(&copy).put(&k, b"a", b"x"),
            Error::LockTimeout { .. }
        );
        assert!(copy.verify().expect("verify").is_clean());
        // From here on the prepared transaction is only in the log of the copy.
        let vfs = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
        let (copy, k) = open_copy(&vfs, name);
        assert_eq!(copy.prepared().expect("list"), [b"x1"]);
        let prepared = take(&copy, b"x1");
        if commit {
            prepared.commit().expect("commit")
        } else {
            prepared.rollback().expect("rollback")
        }
        k.put(b"later", b"1").expect("put");
        copy.flush().expect("flush");
        copy.close().expect("close");
        let (copy, k) = open_copy(&vfs, name);
        assert!(copy.prepared().expect("list").is_empty());
        assert_eq!(text(&k, "a").is_some(), commit);
        assert_eq!((text(&k, "b"), text(&k, "c").is_some()), (None, true));
    }
    let (decided, k) = open_copy(&vfs, "decided");
    assert!(decided.prepared().expect("list").is_empty() && text(&k, "a").is_some());
}

#[test]
fn a_checkpoint_under_load_has_the_prepared_transactions_of_its_commit() {
    const ROUNDS: u32 = 150;
    let (vfs, db, k) = database(tiny());
    let number = |k: &Keyspace, key: &[u8]| {
        let value = k.get(key).expect("get");
        value.map_or(0, |v| {
            u32::from_be_bytes(v[..4].try_into().expect("a number"))
        })
    };
    let copies = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=ROUNDS {
                // Large enough that flushes come in between.
                let value = [&n.to_be_bytes()[..], &[7; 700]].concat();
                let txn = db.begin(Isolation::Snapshot).expect("begin");
                txn.put(&k, b"decided", &value).expect("put");
                k.put(b"begun", &value).expect("put");
                let prepared = txn.prepare(&n.to_be_bytes()).expect("prepare");
                k.put(b"prepared", &value).expect("put");
                prepared.commit().expect("commit");
            }
        });
        let mut copies = 0;
        while !writer.is_finished() {
            db.checkpoint(format!("copy{copies}")).expect("checkpoint");
            copies += 1;
        }
        copies
    });
    for copy in 0..copies {
        let (copy, k) = open_copy(&vfs, &format!("copy{copy}"));
        let [begun, prepared, decided] =
            [&b"begun"[..], b"prepared", b"decided"].map(|key| number(&k, key));
        let listed = copy.prepared().expect("list");
        let at = format!("{begun} {prepared} {decided} {listed:?}");
        let own = [begun.to_be_bytes().to_vec()];
        match (prepared == begun, decided == begun) {
            (true, true) => assert!(listed.is_empty(), "{at}"),
            (true, false) => assert_eq!(listed, own, "{at}"),
            (false, _) => assert!(listed.is_empty() || listed == own, "{at}"),
        }
    }
}
