//! Estimates of ranges on evenly spread keys stay within the documented bound.

use alluvium::{Database, Keyspace, KeyspaceOptions, Options};
use alluvium_testkit::random::{Rng, Seeded};

use crate::fixture::{assert_error, database, of, tiny};

/// Returns options under which memtables are sealed by hand, and nothing is compacted unless the
/// test asks for it.
fn options() -> Options {
    Options {
        memtable_bytes: Some(4 << 20),
        table_bytes: 32 << 10,
        memory_bytes: 64 << 20,
        ..tiny()
    }
}

/// Ingests rows with evenly spread numbers of 8 bytes as keys.
fn load(db: &Database, k: &Keyspace, rows: u64, rng: &mut Rng) {
    let step = u64::MAX / rows;
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..rows {
        ingest
            .put(k, &(n * step).to_be_bytes(), &rng.bytes(100))
            .expect("put");
    }
    ingest.finish().expect("finish");
}

/// Asserts the bound for random ranges of all sizes: `slack` rows, and `share` of the rows in the
/// range.
fn check(k: &Keyspace, rows: u64, slack: f64, share: f64, rng: &mut Rng) {
    let step = u64::MAX / rows;
    for _ in 0..200 {
        let a = rng.below(rows as usize) as u64;
        let size = rng.below(16);
        let width = rng.below(1 << size) as u64;
        let b = (a + width).min(rows);
        // Between two keys, so that the number of rows in the range is certain.
        let before = |n: u64| (n * step).saturating_sub(step / 2).to_be_bytes();
        let (start, end) = (before(a), (b < rows).then(|| before(b)));
        let found = k
            .estimate_range(&start, end.as_ref().map(|e| &e[..]))
            .expect("estimate");
        let off = (found.rows as f64 - (b - a) as f64).abs();
        let bound = slack + share * (b - a) as f64;
        assert!(off <= bound, "{a}..{b}: {} rows, {bound}", found.rows);
    }
}

/// A block holds about 8 KiB of rows of 108 bytes.
const BLOCK_ROWS: f64 = 80.0;

#[test]
fn in_the_last_level_only_the_blocks_at_the_ends_are_uncertain() {
    Seeded::run("in_the_last_level_only_the_blocks_at_the_ends", 3, |rng| {
        let (_vfs, db, k) = database(options());
        load(&db, &k, 40_000, rng);
        let hits = |db: &Database| {
            let stats = db.stats().expect("stats");
            (stats.cache_hits, stats.cache_misses)
        };
        let before = hits(&db);
        check(&k, 40_000, 2.0 * BLOCK_ROWS, 0.01, rng);
        assert_eq!(hits(&db), before, "no block is read");
        let all = k.estimate_range(&[], None).expect("estimate");
        let stats = db.stats().expect("stats");
        let own = of(&stats, "k");
        assert_eq!((all.rows, own.rows_estimate), (40_000, 40_000));
        assert_eq!(all.bytes, own.last_bytes);
        let half = k.estimate_range(&[0x80], None).expect("estimate");
        assert!((half.bytes as f64 / all.bytes as f64 - 0.5).abs() < 0.02);
    });
}

#[test]
fn memtables_and_upper_tables_are_counted_too() {
    Seeded::run("memtables_and_upper_tables_are_counted_too", 3, |rng| {
        let (_vfs, db, k) = database(options());
        let rows = 9_000;
        let step = u64::MAX / rows;
        for part in 0..3 {
            for n in (part..rows).step_by(3) {
                k.put(&(n * step).to_be_bytes(), &rng.bytes(100))
                    .expect("put");
            }
            if part < 2 {
                db.flush().expect("flush");
            }
        }
        // Two blocks in each of two upper tables; the memtable beyond its first 1000 rows.
        check(&k, rows, 4.0 * BLOCK_ROWS, 0.06, rng);
        for n in 0..50 {
            let end = (n * step + 1).to_be_bytes();
            let found = k.estimate_range(&[], Some(&end)).expect("estimate").rows;
            assert!(found.abs_diff(n + 1) < 20, "{found} for {}", n + 1);
        }
        let all = k.estimate_range(&[], None).expect("estimate").rows;
        assert!(all.abs_diff(rows) < rows / 20, "{all}");
        let stats = db.stats().expect("stats");
        assert_eq!(of(&stats, "k").rows_estimate, rows);
    });
}

#[test]
fn deleted_rows_are_not_counted() {
    let (_vfs, db, k) = database(options());
    load(&db, &k, 1000, &mut Rng::new(1));
    let step = u64::MAX / 1000;
    for n in 0..500 {
        k.delete(&(n * step).to_be_bytes()).expect("delete");
    }
    let rows = |k: &Keyspace| k.estimate_range(&[], None).expect("estimate").rows;
    assert_eq!(rows(&k), 500);
    db.flush().expect("flush");
    assert_eq!(rows(&k), 500);
    db.settle().expect("settle");
    assert_eq!(rows(&k), 500);
}

#[test]
fn empty_ranges_and_keyspaces_hold_nothing() {
    let (_vfs, db, k) = database(options());
    let nothing = alluvium::RangeEstimate::default();
    assert_eq!(k.estimate_range(&[], None).expect("estimate"), nothing);
    load(&db, &k, 1000, &mut Rng::new(1));
    assert_eq!(
        k.estimate_range(b"b", Some(b"a")).expect("estimate"),
        nothing
    );
    assert_eq!(
        k.estimate_range(b"b", Some(b"b")).expect("estimate"),
        nothing
    );
    assert_eq!(
        k.estimate_range(&[0xFF; 9], None).expect("estimate"),
        nothing
    );
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    db.drop_keyspace(&other).expect("drop");
    assert_error!(
        other.estimate_range(&[], None),
        alluvium::Error::KeyspaceDropped(_)
    );
}
