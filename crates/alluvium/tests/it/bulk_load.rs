//! Bulk loads: rows in any order, more than fit in memory, with and without duplicates.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, MemVfs, Vfs};
use alluvium::{BulkLoad, BulkLoadOptions, Database, Duplicates, Error, KeyspaceOptions};
use alluvium_testkit::random::{Rng, Seeded};

use crate::fixture::{all, assert_error, database, dir, open, table_files, tiny};

fn options(memory_bytes: usize, duplicates: Duplicates) -> BulkLoadOptions {
    BulkLoadOptions {
        memory_bytes,
        duplicates,
    }
}

/// The minimum of memory: runs of about 32 KiB, merged eight at a time.
const LEAST: usize = 64 << 10;

fn run_files(vfs: &MemVfs) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".run"));
    names.sort();
    names
}

fn fill(
    load: &mut BulkLoad,
    k: &alluvium::Keyspace,
    rng: &mut Rng,
    rows: usize,
) -> alluvium::Result<()> {
    for _ in 0..rows {
        let key = rng.next_u64().to_be_bytes();
        load.put(k, &key, &rng.bytes(50))?;
    }
    Ok(())
}

#[test]
fn rows_in_any_order_come_out_in_order_and_the_last_of_a_key_wins() {
    Seeded::run("rows_in_any_order_come_out_in_order", 6, |rng| {
        let (vfs, db, k) = database(tiny());
        let other = db
            .keyspace("other", KeyspaceOptions::default())
            .expect("keyspace");
        let memory_bytes = *rng.pick(&[LEAST, 200 << 10, 16 << 20]);
        let mut load = db
            .bulk_load(options(memory_bytes, Duplicates::LastWins))
            .expect("load");
        let mut expected = [BTreeMap::new(), BTreeMap::new()];
        let (rows, keys) = (rng.range(1..20_000), rng.range(10..30_000));
        for n in 0..rows {
            let which = rng.below(2);
            let mut key = format!("{}", rng.below(keys)).into_bytes();
            key.resize(key.len() + rng.below(3), 0);
            let value = match rng.below(2000) {
                0 => rng.bytes(100_000),
                _ => format!("{n} {}", "x".repeat(rng.below(60))).into_bytes(),
            };
            load.put([&k, &other][which], &key, &value).expect("put");
            expected[which].insert(key, value);
        }
        let spilled = !run_files(&vfs).is_empty();
        let ingested = load.finish().expect("finish");
        assert_eq!(
            ingested.rows as usize,
            expected[0].len() + expected[1].len()
        );
        for (keyspace, expected) in [&k, &other].into_iter().zip(expected) {
            assert!(all(keyspace) == expected.into_iter().collect::<Vec<_>>());
        }
        assert!(run_files(&vfs).is_empty());
        assert!(spilled || memory_bytes > LEAST || rows < 2000);
    });
}

#[test]
fn a_load_that_fits_into_memory_writes_tables_only() {
    let (vfs, db, k) = database(tiny());
    let faults = vfs.list(dir()).expect("list").len();
    let mut load = db.bulk_load(BulkLoadOptions::default()).expect("load");
    fill(&mut load, &k, &mut Rng::new(1), 5000).expect("put");
    assert_eq!(vfs.list(dir()).expect("list").len(), faults);
    assert_eq!(load.finish().expect("finish").rows, 5000);
    assert_eq!(all(&k).len(), 5000);
}

#[test]
fn duplicates_are_refused_within_memory_and_between_runs() {
    for between in [0, 10, 20_000] {
        let (vfs, db, k) = database(tiny());
        k.put(b"there", b"1").expect("put");
        let mut load = db
            .bulk_load(options(LEAST, Duplicates::Refuse))
            .expect("load");
        let loaded = (|| {
            load.put(&k, b"twice", b"1")?;
            fill(&mut load, &k, &mut Rng::new(1), between)?;
            load.put(&k, b"twice", b"2")?;
            load.finish()
        })();
        match loaded {
            Err(Error::DuplicateKey { keyspace, key }) => {
                assert_eq!((&keyspace[..], &key[..]), ("k", &b"twice"[..]));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(all(&k).len(), 1);
        assert!(run_files(&vfs).is_empty());
        db.flush().expect("flush");
        assert_eq!(table_files(&vfs).len(), 1, "only the flushed one");
        // A key that exists in the keyspace is not a duplicate: it is replaced.
        let mut load = db
            .bulk_load(options(LEAST, Duplicates::Refuse))
            .expect("load");
        load.put(&k, b"there", b"2").expect("put");
        load.finish().expect("finish");
        assert_eq!(all(&k), [(b"there".to_vec(), b"2".to_vec())]);
    }
}

#[test]
fn temporary_files_go_when_the_load_is_dropped_and_after_a_crash() {
    let (vfs, db, k) = database(tiny());
    let mut load = db
        .bulk_load(options(LEAST, Duplicates::LastWins))
        .expect("load");
    fill(&mut load, &k, &mut Rng::new(1), 5000).expect("put");
    assert!(run_files(&vfs).len() > 2);
    vfs.sync_dir(dir()).expect("sync");
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    assert!(run_files(&left).len() > 2);
    let after = open(&left, tiny());
    assert!(run_files(&left).is_empty());
    drop(after);
    drop(load);
    assert!(run_files(&vfs).is_empty());
    assert!(all(&k).is_empty() && table_files(&vfs).is_empty());
    let mut load = db
        .bulk_load(options(LEAST, Duplicates::LastWins))
        .expect("load");
    fill(&mut load, &k, &mut Rng::new(1), 5000).expect("put");
    db.close().expect("close");
    assert_error!(load.put(&k, b"a", b"1"), Error::Closed);
    assert_error!(load.finish(), Error::Closed);
    drop(open(&vfs, tiny()));
    assert!(run_files(&vfs).is_empty());
}

#[test]
fn a_damaged_temporary_file_is_found_and_nothing_is_installed() {
    let (vfs, db, k) = database(tiny());
    let mut load = db
        .bulk_load(options(LEAST, Duplicates::LastWins))
        .expect("load");
    fill(&mut load, &k, &mut Rng::new(1), 5000).expect("put");
    // The first run is complete: its buffer was reused before the third run was written.
    let name = run_files(&vfs).first().cloned().expect("a run");
    let file = vfs.open(&dir().join(name)).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, 1000).expect("read");
    file.write_at(&[byte[0] ^ 4], 1000).expect("write");
    assert_error!(load.finish(), Error::Corruption { .. });
    assert!(all(&k).is_empty());
    assert!(run_files(&vfs).is_empty() && table_files(&vfs).is_empty());
}

#[test]
fn a_load_that_meets_a_failing_call_is_there_as_a_whole_or_not_at_all() {
    for effect in [FaultEffect::Error, FaultEffect::NoSpace] {
        for nth in 1.. {
            let vfs = MemVfs::new();
            let faults = FaultVfs::new(Arc::new(vfs.clone()));
            let db = Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
            let k = db
                .keyspace("k", KeyspaceOptions::default())
                .expect("keyspace");
            k.put(b"before", b"1").expect("put");
            faults.arm(Fault {
                calls: Vec::new(),
                nth,
                sticky: false,
                effect,
            });
            let loaded = (|| {
                let mut load = db.bulk_load(options(LEAST, Duplicates::LastWins))?;
                fill(&mut load, &k, &mut Rng::new(1), 1500)?;
                load.finish()
            })();
            let tripped = faults.tripped();
            faults.disarm();
            let rows = all(&k).len();
            assert_eq!(rows, if loaded.is_ok() { 1501 } else { 1 }, "call {nth}");
            assert!(
                run_files(&vfs).len() <= 1,
                "call {nth}: one may not be removable"
            );
            drop((k, db));
            if !tripped {
                assert!(nth > 20, "a load makes calls");
                break;
            }
        }
    }
}
