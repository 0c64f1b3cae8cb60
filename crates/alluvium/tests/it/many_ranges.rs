//! Very many range deletes: their cost in memory and in the log, and the rows that they hide from
//! readers at any read point, however the ranges overlap.

use std::collections::BTreeMap;

use allocation_counter::measure;
use alluvium::vfs::MemVfs;
use alluvium::{
    CursorOptions, Database, Isolation, Keyspace, KeyspaceOptions, Options, Snapshot, WriteBatch,
};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::collect;
use crate::fixture::{Row, all, database, open, segments, tiny};

fn key(n: usize) -> Vec<u8> {
    format!("key{n:07}").into_bytes()
}

/// Returns the n-th range of a shape.
fn range(shape: &str, n: usize) -> (Vec<u8>, Vec<u8>) {
    match shape {
        "nested" => (key(0), key(n + 1)),
        "shrinking" => (key(0), key(1_000_000 - n)),
        _ => (key(2 * n), key(2 * n + 1)),
    }
}

const SHAPES: [&str; 3] = ["nested", "shrinking", "disjoint"];

/// Returns options under which only a flush seals memtables.
fn roomy() -> Options {
    Options {
        memory_bytes: 256 << 20,
        memtable_bytes: Some(64 << 20),
        ..tiny()
    }
}

#[test]
fn a_range_delete_allocates_about_the_same_however_many_there_are() {
    for shape in SHAPES {
        let (_vfs, db, k) = database(roomy());
        let allocated = measure(|| {
            for n in 0..4_000 {
                let (start, end) = range(shape, n);
                k.delete_range(&start, &end).expect("delete");
            }
        });
        // These include copies of up to 16 other range deletes, and of the list of runs.
        let each = allocated.bytes_total / 4_000;
        assert!(each < 8 << 10, "{shape}: {each} bytes for each");
        assert_eq!(
            db.stats().expect("stats").flushes,
            0,
            "one memtable: {shape}"
        );
    }
}

#[test]
fn a_batch_of_range_deletes_allocates_in_proportion() {
    for shape in SHAPES {
        let (_vfs, db, k) = database(roomy());
        let mut batch = WriteBatch::new();
        for n in 0..10_000 {
            let (start, end) = range(shape, n);
            batch.delete_range(&k, &start, &end).expect("delete");
        }
        let allocated = measure(|| db.write(&batch).expect("write"));
        let each = allocated.bytes_total / 10_000;
        assert!(each < 2 << 10, "{shape}: {each} bytes for each");
    }
}

#[test]
fn range_deletes_are_charged_and_sealed_by_what_they_take() {
    const COUNT: usize = 30_000;
    for shape in SHAPES {
        let options = Options {
            memory_bytes: 16 << 20,
            memtable_bytes: None,
            ..tiny()
        };
        let (vfs, db, k) = database(options);
        let mut most_memtables = 0;
        for n in 0..COUNT {
            let (start, end) = range(shape, n);
            k.delete_range(&start, &end).expect("delete");
            if n % 1_000 == 0 {
                let memory = db.stats().expect("stats").memory;
                most_memtables = memory.memtable_bytes.max(most_memtables);
                assert!(memory.total() <= 17 << 20, "{shape} {n}: {memory:?}");
            }
        }
        // Segments waiting for a flush, and segments that the sync thread has created in advance.
        let files = segments(&vfs).len();
        assert!(files < 40, "{shape}: {files} segments");
        assert!(
            most_memtables > 1 << 20,
            "{shape}: {most_memtables} charged"
        );
    }
}

#[test]
fn open_tables_are_charged_for_their_range_deletes() {
    let options = Options {
        idle_after: None,
        upper_fraction: 1.0,
        ..roomy()
    };
    let (_vfs, db, k) = database(options);
    // A compaction that follows the flush keeps them for this reader.
    let _older = db.snapshot().expect("snapshot");
    for n in 0..10_000 {
        let (start, end) = range("disjoint", n);
        k.delete_range(&start, &end).expect("delete");
    }
    db.flush().expect("flush");
    let charged = db.stats().expect("stats").memory.table_bytes;
    let keys = (2 * 10_000 * key(0).len()) as u64;
    assert!(charged > keys, "{charged} of {keys} and more");
}

#[test]
fn writes_into_dropped_keyspaces_do_not_keep_segments_of_the_log() {
    let options = Options {
        memory_bytes: 16 << 20,
        memtable_bytes: None,
        ..tiny()
    };
    let (vfs, db, _k) = database(options);
    for round in 0..80 {
        let passing = db.keyspace("passing", KeyspaceOptions::default());
        let passing = passing.expect("keyspace");
        let mut batch = WriteBatch::new();
        for n in 0..11_u32 {
            let value = Rng::new(round).bytes(100_000);
            batch.put(&passing, &n.to_be_bytes(), &value).expect("put");
        }
        // More than a memtable takes, so that the next commit seals the rest of it.
        db.write(&batch).expect("write");
        db.drop_keyspace(&passing).expect("drop");
    }
    let files = segments(&vfs).len();
    assert!(files < 40, "{files} segments");
}

#[test]
fn a_cursor_of_a_transaction_with_many_range_deletes_copies_none_of_them() {
    let (_vfs, db, k) = database(roomy());
    k.put(&key(1), b"hidden").expect("put");
    k.put(&key(1_500_000), b"seen").expect("put");
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for n in 0..5_000 {
        let (start, end) = range("shrinking", n);
        txn.delete_range(&k, &start, &end).expect("delete");
    }
    let savepoint = txn.savepoint();
    txn.delete_prefix(&k, b"key").expect("delete");
    txn.rollback_to(savepoint).expect("rollback");
    let mut found = Vec::new();
    let allocated = measure(|| {
        let cursor = txn.cursor(&k, CursorOptions::default()).expect("cursor");
        found = collect(cursor, Direction::Forward, usize::MAX);
    });
    assert_eq!(found, [(key(1_500_000), b"seen".to_vec())]);
    assert!(allocated.bytes_total < 64 << 10, "{allocated:?}");
    assert_eq!(txn.get(&k, &key(1)).expect("get"), None);
    txn.commit().expect("commit");
    assert_eq!(all(&k).len(), 1);
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database with few keys, its expected rows, and the expected rows of its snapshots.
struct Case {
    vfs: MemVfs,
    db: Database,
    k: Keyspace,
    rows: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
}

const KEYS: usize = 120;

impl Case {
    fn new() -> Case {
        let (vfs, db, k) = database(options());
        Case {
            vfs,
            db,
            k,
            rows: Rows::new(),
            snapshots: Vec::new(),
        }
    }

    /// Returns a range; half of them share their start with many others.
    fn range(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (rng.below(KEYS), rng.below(KEYS));
        let start = if rng.percent(50) {
            a.min(b) / 40 * 40
        } else {
            a.min(b)
        };
        (key(start), key(a.max(b) + 1))
    }

    fn delete(&mut self, (start, end): &(Vec<u8>, Vec<u8>)) {
        self.rows.retain(|key, _| key < start || key >= end);
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.weighted(&[30, 30, 6, 4, 6, 3, 6, 3, 2, 1]) {
            0 => {
                let (key, value) = (key(rng.below(KEYS)), rng.bytes(20));
                self.k.put(&key, &value).expect("put");
                self.rows.insert(key, value);
            }
            1 => {
                let range = Case::range(rng);
                self.k.delete_range(&range.0, &range.1).expect("delete");
                self.delete(&range);
            }
            2 => self.batch(rng),
            3 => self.transaction(rng),
            4 => {
                let snapshot = self.db.snapshot().expect("snapshot");
                self.snapshots.push((snapshot, self.rows.clone()));
            }
            5 if !self.snapshots.is_empty() => {
                let dropped = rng.below(self.snapshots.len());
                self.snapshots.swap_remove(dropped);
            }
            6 => self.db.flush().expect("flush"),
            7 => self.db.settle().expect("settle"),
            8 => self.k.compact_range(&[], None).expect("compact"),
            _ => self.reopen(),
        }
    }

    /// Commits very many range deletes in one batch, with some rows put into the ranges.
    fn batch(&mut self, rng: &mut Rng) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(60) {
            let range = Case::range(rng);
            batch
                .delete_range(&self.k, &range.0, &range.1)
                .expect("delete");
            self.delete(&range);
            if rng.percent(20) {
                let (key, value) = (key(rng.below(KEYS)), rng.bytes(20));
                batch.put(&self.k, &key, &value).expect("put");
                self.rows.insert(key, value);
            }
        }
        self.db.write(&batch).expect("write");
    }

    /// Commits nested range deletes around a savepoint; reads the rows before the commit.
    fn transaction(&mut self, rng: &mut Rng) {
        let txn = self.db.begin(Isolation::Snapshot).expect("begin");
        for part in 0..2 {
            let savepoint = txn.savepoint();
            let before = self.rows.clone();
            for _ in 0..rng.below(30) {
                let range = Case::range(rng);
                txn.delete_range(&self.k, &range.0, &range.1)
                    .expect("delete");
                self.delete(&range);
                let (key, value) = (key(rng.below(KEYS)), rng.bytes(20));
                txn.put(&self.k, &key, &value).expect("put");
                self.rows.insert(key, value);
            }
            if part == 1 && rng.percent(50) {
                txn.rollback_to(savepoint).expect("rollback");
                self.rows = before;
            }
        }
        let cursor = txn.cursor(&self.k, CursorOptions::default());
        let seen = collect(cursor.expect("cursor"), Direction::Backward, usize::MAX);
        assert!(seen.into_iter().rev().eq(self.rows.clone()));
        for n in 0..KEYS {
            let found = txn.get(&self.k, &key(n)).expect("get");
            assert_eq!(found.as_deref(), self.rows.get(&key(n)).map(|v| &v[..]));
        }
        txn.commit().expect("commit");
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.close().expect("close");
        self.db = open(&self.vfs, options());
        let k = self.db.existing_keyspace("k").expect("look");
        self.k = k.expect("keyspace");
    }

    fn check(&self, rng: &mut Rng) {
        let direction = *rng.pick(&[Direction::Forward, Direction::Backward]);
        let shown = |cursor, expected: &Rows| {
            let mut rows: Vec<Row> = collect(cursor, direction, usize::MAX);
            if let Direction::Backward = direction {
                rows.reverse();
            }
            assert!(rows.into_iter().eq(expected.clone()));
        };
        let cursor = self.k.cursor(CursorOptions::default());
        shown(cursor.expect("cursor"), &self.rows);
        let key = key(rng.below(KEYS));
        let found = self.k.get(&key).expect("get");
        assert_eq!(found.as_deref(), self.rows.get(&key).map(|v| &v[..]));
        for (snapshot, rows) in &self.snapshots {
            let cursor = snapshot.cursor(&self.k, CursorOptions::default());
            shown(cursor.expect("cursor"), rows);
            let found = snapshot.get(&self.k, &key).expect("get");
            assert_eq!(found.as_deref(), rows.get(&key).map(|v| &v[..]));
        }
    }
}

fn options() -> Options {
    Options {
        memtable_bytes: Some(20_000),
        ..tiny()
    }
}

#[test]
fn nested_and_overlapping_ranges_hide_the_right_rows_from_every_snapshot() {
    let name = "nested_and_overlapping_ranges_hide_the_right_rows_from_every_snapshot";
    Seeded::run(name, 12, |rng| {
        let mut case = Case::new();
        for step in 0..400 {
            case.step(rng);
            if step % 8 == 0 {
                case.check(rng);
            }
        }
        case.check(rng);
        let report = case.db.verify().expect("verify");
        assert!(report.is_clean(), "{report:?}");
    });
}
