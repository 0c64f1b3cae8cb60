//! Limits: the largest of everything is stored and survives a crash; one more is refused and
//! changes nothing.

use alluvium::vfs::{CrashOptions, MemVfs};
use alluvium::{
    BulkLoadOptions, Database, Durability, Error, Isolation, KEY_BYTES_MAX, Keyspace,
    KeyspaceOptions, Options, Result, VALUE_BYTES_MAX, WriteBatch, XID_BYTES_MAX,
};

use crate::fixture::{all, assert_error, open};

fn options() -> Options {
    Options {
        memory_bytes: 32 << 20,
        durability: Durability::Sync,
        ..Options::default()
    }
}

fn database(options: Options) -> (MemVfs, Database, Keyspace) {
    let vfs = MemVfs::new();
    let db = open(&vfs, options);
    let k = db.keyspace("k", KeyspaceOptions::default());
    (vfs, db, k.expect("keyspace"))
}

/// Returns the keyspace `k` after a power loss and a reopening.
fn after_power_loss(vfs: &MemVfs, options: Options) -> Keyspace {
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, options);
    db.existing_keyspace("k").expect("look").expect("keyspace")
}

/// Returns the results of every way to write a row.
fn ways(db: &Database, k: &Keyspace, key: &[u8], value: &[u8]) -> Vec<Result<()>> {
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put(k, key, value)?;
        db.write(&batch)
    };
    let txn = || {
        let txn = db.begin(Isolation::Snapshot)?;
        txn.put(k, key, value)?;
        txn.commit()
    };
    let ingest = || {
        let mut ingest = db.ingest()?;
        ingest.put(k, key, value)?;
        ingest.finish().map(drop)
    };
    let load = || {
        let mut load = db.bulk_load(BulkLoadOptions::default())?;
        load.put(k, key, value)?;
        load.finish().map(drop)
    };
    vec![k.put(key, value), batch(), txn(), ingest(), load()]
}

#[test]
fn the_longest_key_is_stored_and_a_longer_one_is_refused_by_every_way_to_write() {
    let (vfs, db, k) = database(options());
    let long = vec![7; KEY_BYTES_MAX + 1];
    for refused in ways(&db, &k, &long, b"1") {
        assert_error!(refused, Error::InvalidArgument(_));
    }
    assert_error!(k.delete(&long), Error::InvalidArgument(_));
    assert_error!(k.delete_range(b"", &long), Error::InvalidArgument(_));
    assert!(all(&k).is_empty());
    let longest = &long[..KEY_BYTES_MAX];
    for done in ways(&db, &k, longest, b"1") {
        done.expect("the longest key");
    }
    db.flush().expect("flush");
    k.put(&[8; KEY_BYTES_MAX], b"2").expect("put");
    let k = after_power_loss(&vfs, options());
    let keys: Vec<_> = all(&k).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [longest.to_vec(), vec![8; KEY_BYTES_MAX]]);
}

#[test]
fn a_value_above_the_limit_is_refused_by_every_way_to_write() {
    let (vfs, db, k) = database(options());
    // Never touched, so it takes no memory.
    let large = vec![0; VALUE_BYTES_MAX + 1];
    for refused in ways(&db, &k, b"large", &large) {
        assert_error!(refused, Error::InvalidArgument(_));
    }
    assert!(all(&k).is_empty());
    let value = vec![5; 6 << 20];
    k.put(b"large", &value).expect("put");
    db.flush().expect("flush");
    k.put(b"in the log", &value).expect("put");
    let k = after_power_loss(&vfs, options());
    let rows = all(&k);
    assert!(rows.len() == 2 && rows.iter().all(|(_, stored)| *stored == value));
}

#[test]
fn a_transaction_and_a_batch_may_fill_their_limit_and_not_a_byte_more() {
    let limited = |transaction_bytes| Options {
        transaction_bytes: Some(transaction_bytes),
        ..options()
    };
    let rows: Vec<_> = (0..20_u8).map(|n| (vec![n; 30], vec![n; 200])).collect();
    let write = |bytes, as_batch| {
        let (vfs, db, k) = database(limited(bytes));
        let done = if as_batch {
            let mut batch = WriteBatch::new();
            let put = rows
                .iter()
                .try_for_each(|(key, value)| batch.put(&k, key, value));
            put.and_then(|()| db.write(&batch))
        } else {
            let txn = db.begin(Isolation::Snapshot).expect("begin");
            let put = rows
                .iter()
                .try_for_each(|(key, value)| txn.put(&k, key, value));
            put.and_then(|()| txn.commit())
        };
        let left = all(&after_power_loss(&vfs, options()));
        (done, left.len())
    };
    for as_batch in [true, false] {
        let refused = |bytes| match write(bytes, as_batch) {
            (Err(Error::TransactionTooLarge { bytes, .. }), 0) => Some(bytes),
            (Ok(()), 20) => None,
            other => panic!("{other:?}"),
        };
        let (mut least, mut most) = (1, 1 << 20);
        assert!(refused(least).is_some() && refused(most).is_none());
        while most - least > 1 {
            let middle = least.midpoint(most);
            match refused(middle) {
                Some(would_take) => {
                    assert!(would_take > middle);
                    least = middle;
                }
                None => most = middle,
            }
        }
        // The error reports the limit that would have been enough.
        assert_eq!(refused(least), Some(most));
    }
}

#[test]
fn the_longest_id_of_a_prepared_transaction_comes_back_and_a_longer_one_is_refused() {
    let (vfs, db, k) = database(options());
    let prepare = |xid: &[u8], key: &[u8]| {
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        txn.put(&k, key, b"1").expect("put");
        txn.prepare(xid).map(drop)
    };
    assert_error!(
        prepare(&[1; XID_BYTES_MAX + 1], b"a"),
        Error::InvalidArgument(_)
    );
    prepare(&[1; XID_BYTES_MAX], b"a").expect("prepare");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, options());
    assert_eq!(db.prepared().expect("list"), [vec![1; XID_BYTES_MAX]]);
}

#[test]
fn odd_and_long_names_of_keyspaces_and_many_of_them_come_back() {
    let (vfs, db, _) = database(options());
    let mut names: Vec<String> = ["", "/", "..", "k\0k", "Grüße", " "]
        .map(String::from)
        .to_vec();
    names.push("long".repeat(16_000));
    names.extend((0..500).map(|n| format!("keyspace {n}")));
    for name in &names {
        let keyspace = db.keyspace(name, KeyspaceOptions::default());
        let keyspace = keyspace.expect("keyspace");
        keyspace
            .put(b"name", &name.as_bytes()[..name.len().min(20)])
            .expect("put");
    }
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, options());
    assert_eq!(db.keyspace_names().expect("names").len(), names.len() + 1);
    for name in &names {
        let keyspace = db
            .existing_keyspace(name)
            .expect("look")
            .expect("a keyspace");
        let found = keyspace.get(b"name").expect("get");
        assert_eq!(
            found.as_deref(),
            Some(&name.as_bytes()[..name.len().min(20)])
        );
    }
}
