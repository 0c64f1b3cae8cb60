//! Expiring rows, and rows that a compaction filter removes or replaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium::vfs::MemVfs;
use alluvium::{
    BulkLoadOptions, Clock, CompactionFilter, CursorOptions, Database, Error, Expiry,
    FilterDecision, Isolation, Keyspace, KeyspaceOptions, Options, SeqNo, WriteBatch,
};
use alluvium_testkit::model::Direction;

use crate::driver::collect;
use crate::fixture::{all, assert_error, database, of, open, rows, text, tiny};

/// Clock that the test sets, in milliseconds.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::Relaxed);
    }

    /// Returns options with this clock.
    fn options(&self, memtable_bytes: usize) -> Options {
        let time = self.0.clone();
        Options {
            clock: Clock::custom(move || time.load(Ordering::Relaxed)),
            memtable_bytes: Some(memtable_bytes),
            upper_fraction: 0.02,
            ..tiny()
        }
    }
}

/// A large memtable: only a flush empties it.
const LARGE: usize = 1 << 20;
/// Each commit is flushed, and each flushed table is due for compaction.
const EAGER: usize = 1;

fn expiring(expiry: Expiry, memtable_bytes: usize) -> (Time, MemVfs, Database, Keyspace) {
    let time = Time::default();
    time.set(1_000);
    let vfs = MemVfs::new();
    let db = open(&vfs, time.options(memtable_bytes));
    let options = KeyspaceOptions {
        expiry,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("k", options).expect("keyspace");
    (time, vfs, db, keyspace)
}

#[test]
fn a_row_is_gone_from_its_time_on_wherever_it_is() {
    for work in ["memory", "flushed", "settled"] {
        let memtable_bytes = if work == "settled" { EAGER } else { LARGE };
        let expiry = Expiry::After(Duration::from_millis(500));
        let (time, _vfs, db, k) = expiring(expiry, memtable_bytes);
        k.put(b"a", b"one").expect("put");
        k.put_until(b"b", &[2; 100], 1_200).expect("put");
        k.put_until(b"c", b"", u64::MAX).expect("put");
        match work {
            "memory" => {}
            "flushed" => db.flush().expect("flush"),
            _ => db.settle().expect("settle"),
        }
        for (now, there) in [(1_199, "abc"), (1_200, "ac"), (1_499, "ac"), (1_500, "c")] {
            time.set(now);
            let found: Vec<u8> = all(&k).iter().map(|(key, _)| key[0]).collect();
            assert_eq!(found, there.as_bytes(), "{work} at {now}");
            let cursor = k.cursor(CursorOptions::default()).expect("cursor");
            let reverse = collect(cursor, Direction::Backward, 9);
            assert_eq!(reverse.len(), there.len(), "{work} at {now}");
            assert_eq!(text(&k, "a").is_some(), there.contains('a'), "{work} {now}");
            let values = k.multi_get(&["c", "b", "x", "a"]).expect("multi_get");
            assert_eq!(values[0].as_deref(), Some(&b""[..]));
            let second = there.contains('b').then_some(&[2; 100][..]);
            assert_eq!(values[1].as_deref(), second, "{work} at {now}");
            assert_eq!(values[2], None);
        }
    }
}

#[test]
fn what_a_snapshot_sees_does_not_expire_while_it_is_open() {
    let (time, _vfs, db, k) = expiring(Expiry::After(Duration::from_millis(500)), EAGER);
    for n in 0..100 {
        k.put(format!("key{n:03}").as_bytes(), b"v").expect("put");
    }
    let snapshot = db.snapshot().expect("snapshot");
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    time.set(2_000);
    db.settle().expect("settle");
    k.put(b"later", b"v").expect("put");
    db.settle().expect("settle");
    let old = snapshot.cursor(&k, CursorOptions::default());
    assert_eq!(rows(old.expect("cursor")).len(), 100);
    assert!(txn.get(&k, b"key007").expect("get").is_some());
    assert!(cursor.seek(b"key050").expect("seek"));
    assert_eq!(all(&k).len(), 1);
    drop((snapshot, txn, cursor));
    k.put(b"later still", b"v").expect("put");
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    assert_eq!(of(&stats, "k").table_entries, 2, "{stats:?}");
}

#[test]
fn expired_rows_return_their_space_without_writes() {
    let (time, _vfs, db, k) = expiring(Expiry::After(Duration::from_millis(500)), EAGER);
    for n in 0..100 {
        k.put(format!("key{n:03}").as_bytes(), &[7; 100])
            .expect("put");
    }
    db.settle().expect("settle");
    time.set(2_000);
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    assert_eq!(of(&stats, "k").table_entries, 0, "{stats:?}");
}

#[test]
fn expired_versions_that_a_snapshot_keeps_are_not_compacted_repeatedly() {
    let (time, _vfs, db, k) = expiring(Expiry::PerRow, LARGE);
    for n in 0..50 {
        let key = format!("key{n:03}");
        k.put_until(key.as_bytes(), &[7; 100], 1_100).expect("put");
    }
    time.set(1_200);
    let snapshot = db.snapshot().expect("snapshot");
    for n in 0..50 {
        k.put(format!("key{n:03}").as_bytes(), b"later")
            .expect("put");
    }
    // Half of the entries have expired and stay.
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    assert!(stats.compactions < 5, "{stats:?}");
    let old = snapshot.cursor(&k, CursorOptions::default());
    assert!(rows(old.expect("cursor")).is_empty());
    assert_eq!(all(&k).len(), 50);
}

#[test]
fn an_expired_row_still_hides_what_it_replaced() {
    let (time, _vfs, db, k) = expiring(Expiry::PerRow, EAGER);
    k.put(b"a", b"old").expect("put");
    db.settle().expect("settle");
    k.put_until(b"a", b"new", 1_100).expect("put");
    time.set(1_100);
    assert_eq!(text(&k, "a"), None);
    db.flush().expect("flush");
    assert_eq!(text(&k, "a"), None);
    db.settle().expect("settle");
    assert_eq!(text(&k, "a"), None);
}

#[test]
fn an_expired_row_does_not_return_when_the_clock_is_set_back() {
    let (time, vfs, db, k) = expiring(Expiry::After(Duration::from_millis(500)), LARGE);
    k.put(b"a", b"v").expect("put");
    time.set(1_600);
    assert_eq!(text(&k, "a"), None);
    time.set(1_000);
    assert_eq!(text(&k, "a"), None);
    db.flush().expect("flush");
    k.put_until(b"b", b"v", 1_550).expect("put");
    drop(k);
    db.close().expect("close");
    let db = open(&vfs, time.options(LARGE));
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert!(all(&k).is_empty(), "after a restart");
}

#[test]
fn a_transaction_reads_its_own_expiring_writes() {
    let (time, _vfs, db, k) = expiring(Expiry::PerRow, LARGE);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        time.set(1_000);
        let txn = db.begin(isolation).expect("begin");
        txn.put_until(&k, b"a", b"v", 1_100).expect("put");
        txn.put(&k, b"b", b"w").expect("put");
        assert_eq!(txn.get(&k, b"a").expect("get").as_deref(), Some(&b"v"[..]));
        let cursor = txn.cursor(&k, CursorOptions::default()).expect("cursor");
        assert_eq!(rows(cursor)[1], (b"b".to_vec(), b"w".to_vec()));
        let values = txn.multi_get(&k, &["b", "a"]).expect("multi_get");
        assert_eq!(values[0].as_deref(), Some(&b"w"[..]));
        txn.rollback();
    }
}

#[test]
fn a_write_without_a_lock_expires_as_others_do() {
    let (time, _vfs, db, k) = expiring(Expiry::PerRow, LARGE);
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put_until_untracked(&k, b"a", b"v", 1_100).expect("put");
    txn.put_untracked(&k, b"b", b"w").expect("put");
    assert_eq!(db.stats().expect("stats").row_locks, 0);
    txn.commit().expect("commit");
    assert_eq!(k.get(b"a").expect("get").as_deref(), Some(&b"v"[..]));
    time.set(1_100);
    assert_eq!(k.get(b"a").expect("get"), None);
    assert_eq!(k.get(b"b").expect("get").as_deref(), Some(&b"w"[..]));
}

#[test]
fn an_expiry_is_refused_where_rows_do_not_expire() {
    let (_vfs, db, k) = database(tiny());
    assert_error!(k.put_until(b"a", b"v", 9), Error::InvalidArgument(_));
    let mut batch = WriteBatch::new();
    assert_error!(
        batch.put_until(&k, b"a", b"v", 9),
        Error::InvalidArgument(_)
    );
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    assert_error!(txn.put_until(&k, b"a", b"v", 9), Error::InvalidArgument(_));
    assert_error!(
        txn.put_until_untracked(&k, b"a", b"v", 9),
        Error::InvalidArgument(_)
    );
    let options = KeyspaceOptions {
        expiry: Expiry::After(Duration::ZERO),
        ..KeyspaceOptions::default()
    };
    assert_error!(db.keyspace("zero", options), Error::InvalidArgument(_));
}

/// Compaction filter that removes a row if its value begins with `x`, and replaces the value if it
/// begins with `r`.
struct ByFirstByte;

impl CompactionFilter for ByFirstByte {
    fn filter(&self, _: &[u8], value: &[u8], _: SeqNo) -> FilterDecision {
        match value.first() {
            Some(b'x') => FilterDecision::Remove,
            Some(b'r') => FilterDecision::Replace(b"another, longer value".to_vec()),
            _ => FilterDecision::Keep,
        }
    }
}

#[test]
fn a_compaction_filter_removes_and_replaces_rows() {
    for expiry in [Expiry::Never, Expiry::After(Duration::from_secs(60))] {
        let (_time, _vfs, db, k) = expiring(expiry, EAGER);
        k.put(b"hidden", b"old").expect("put");
        db.settle().expect("settle");
        for (key, value) in [("a", "xa"), ("b", "rb"), ("c", "c"), ("hidden", "x")] {
            k.put(key.as_bytes(), value.as_bytes()).expect("put");
        }
        k.set_compaction_filter(Some(Arc::new(ByFirstByte)))
            .expect("set");
        assert_eq!(all(&k).len(), 4);
        for work in ["flush", "settle"] {
            match work {
                "flush" => db.flush().expect("flush"),
                _ => db.settle().expect("settle"),
            }
            assert_eq!(text(&k, "a"), None, "{work}");
            assert_eq!(text(&k, "b").as_deref(), Some("another, longer value"));
            assert_eq!(text(&k, "c").as_deref(), Some("c"));
            assert_eq!(text(&k, "hidden"), None, "{work}");
        }
        k.set_compaction_filter(None).expect("unset");
        k.put(b"a", b"xa").expect("put");
        db.settle().expect("settle");
        assert_eq!(text(&k, "a").as_deref(), Some("xa"));
    }
}

#[test]
fn several_keys_are_read_at_one_commit() {
    let (_vfs, db, k) = database(tiny());
    for n in 0..500 {
        k.put(format!("key{n:03}").as_bytes(), format!("v{n}").as_bytes())
            .expect("put");
    }
    let snapshot = db.snapshot().expect("snapshot");
    k.delete(b"key007").expect("delete");
    let keys = ["key499", "key007", "absent", "key000", "key499"];
    let shown = |values: Vec<Option<alluvium::Value>>| -> Vec<String> {
        let text = |v: Option<alluvium::Value>| {
            v.map_or("-".into(), |v| String::from_utf8_lossy(&v).into_owned())
        };
        values.into_iter().map(text).collect()
    };
    let now = shown(k.multi_get(&keys).expect("multi_get"));
    assert_eq!(now, ["v499", "-", "-", "v0", "v499"]);
    let old = shown(snapshot.multi_get(&k, &keys).expect("multi_get"));
    assert_eq!(old, ["v499", "v7", "-", "v0", "v499"]);
    assert!(k.multi_get::<&str>(&[]).expect("multi_get").is_empty());
}

#[test]
fn ingested_and_bulk_loaded_rows_expire_as_others_do() {
    for sorted in [true, false] {
        let expiry = Expiry::After(Duration::from_millis(500));
        let (time, _vfs, db, k) = expiring(expiry, LARGE);
        if sorted {
            let mut ingest = db.ingest().expect("ingest");
            ingest.put(&k, b"a", b"1").expect("put");
            ingest.put_until(&k, b"b", b"2", 9_000).expect("put");
            ingest.finish().expect("finish");
        } else {
            let mut load = db.bulk_load(BulkLoadOptions::default()).expect("load");
            load.put_until(&k, b"b", b"2", 9_000).expect("put");
            load.put(&k, b"a", b"1").expect("put");
            load.finish().expect("finish");
        }
        assert_eq!(all(&k).len(), 2);
        assert_eq!(text(&k, "a").as_deref(), Some("1"));
        time.set(1_500);
        assert_eq!(all(&k), [(b"b".to_vec(), b"2".to_vec())]);
        time.set(9_000);
        assert!(all(&k).is_empty());
        let never = db
            .keyspace("never", KeyspaceOptions::default())
            .expect("keyspace");
        let mut ingest = db.ingest().expect("ingest");
        let refused = ingest.put_until(&never, b"a", b"1", 9_000);
        assert_error!(refused, Error::InvalidArgument(_));
        assert_error!(ingest.finish(), Error::InvalidArgument(_));
    }
}
