//! Orders of two threads that make a storage engine answer wrongly or slowly unless it is designed
//! for them, under many schedules each.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use self::hooks::{Call, HookVfs};
use alluvium::simulation::threads::Builder;
use alluvium::simulation::{End, Policy, Setup, now_ns, run, step};
use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{Database, Isolation, KeyspaceOptions, LockMode, Options};

#[path = "../../../alluvium/tests/it/hooks.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod hooks;

fn setup(seed: u64, stall_of_65536: u16, step_ns_max: u64) -> Setup {
    Setup {
        seed,
        steps_max: 2_000_000,
        policy: Policy {
            switch_of_256: 64,
            uneven: false,
            jump_of_65536: 0,
            step_ns_max,
            stall_of_65536,
        },
    }
}

fn open(vfs: Arc<dyn Vfs>, options: Options) -> Database {
    Database::open_on(vfs, Path::new("/db"), options).expect("open")
}

/// Number of rows written, each twice and flushed.
const ROWS: u32 = 6;

/// A reader has its number and is about to register it; a commit replaces the row, and a flush
/// drops the version that only this reader needs.
#[test]
fn a_reader_that_sleeps_before_it_registers_finds_its_row() {
    for seed in 0..300 {
        let report = run(setup(seed, 500, 1_000), Box::new(|_, _| ()), move || {
            let db = open(Arc::new(MemVfs::new()), Options::default());
            let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("k");
            let newest = Arc::new(AtomicU32::new(0));
            keyspace.put(&[0; 4], b"old").expect("put");
            let (rows, written) = (keyspace.clone(), Arc::clone(&newest));
            let body = move || {
                // Terminates: the writer continues until it has written all rows.
                loop {
                    let n = written.load(Ordering::SeqCst);
                    let key = n.to_be_bytes();
                    let found = rows.get(&key).expect("get");
                    assert!(found.is_some(), "the row was there all the time");
                    if n == ROWS {
                        break;
                    }
                }
            };
            let reader = Builder::new().name("reader".into()).spawn(body);
            for n in 1..=ROWS {
                keyspace.put(&n.to_be_bytes(), b"old").expect("put");
                newest.store(n, Ordering::SeqCst);
                keyspace.put(&n.to_be_bytes(), b"new").expect("put");
                db.flush().expect("flush");
            }
            let found = reader.expect("spawn").join();
            assert!(found.is_ok(), "seed {seed}: the reader failed");
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
    }
}

/// A commit that is delayed by a compaction backlog releases its row locks before it waits.
#[test]
fn a_delayed_commit_holds_no_row_locks() {
    let (mut slowed, seeds) = (0, 40);
    for seed in 0..seeds {
        let waited = Arc::new(Mutex::new(None));
        let told = Arc::clone(&waited);
        let report = run(setup(seed, 0, 200_000), Box::new(|_, _| ()), move || {
            *told.lock().expect("told") = Some(slowed_commit());
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
        let waited = waited.lock().expect("waited").take();
        let (paid, next) = waited.expect("a measurement");
        if paid >= SLOWED_NS {
            slowed += 1;
            assert!(
                next < paid / 2,
                "seed {seed}: the next client waited {next} ns of {paid}"
            );
        }
    }
    assert!(2 * slowed > seeds, "only {slowed} commits were slowed");
}

/// More than anything else in these histories takes.
const SLOWED_NS: u64 = 20_000_000;

/// Returns the time of a delayed commit, and the time that a client waited meanwhile for its row.
fn slowed_commit() -> (u64, u64) {
    let slow = Arc::new(AtomicBool::new(true));
    let is_slow = Arc::clone(&slow);
    let vfs = HookVfs::new(move |call, path| {
        // No flush ends while the commit is measured.
        while call == Call::Create && path.extension().is_some_and(|e| e == "sst") {
            if !is_slow.load(Ordering::SeqCst) {
                break;
            }
            step();
        }
        Ok(())
    });
    vfs.set(true);
    let options = Options {
        memory_bytes: 8 << 20,
        ..Options::default()
    };
    let db = open(Arc::new(vfs), options);
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    let bytes: Vec<u8> = (0..1u32 << 20)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    // Sealed memtables beyond their share of 4 MiB are backlog.
    for n in 0..7u8 {
        k.put(&[n], &bytes).expect("put");
    }
    let first = db.begin(Isolation::ReadCommitted).expect("begin");
    first.put(&k, b"hot", &bytes[..300_000]).expect("put");
    let (other, rows) = (db.clone(), k.clone());
    let body = move || {
        let next = other.begin(Isolation::ReadCommitted).expect("begin");
        next.lock(&rows, b"hot", LockMode::Exclusive).expect("lock");
        now_ns().expect("virtual time")
    };
    let next = Builder::new().name("next".into()).spawn(body);
    let began = now_ns().expect("virtual time");
    first.commit().expect("commit");
    let paid = now_ns().expect("virtual time") - began;
    slow.store(false, Ordering::SeqCst);
    let granted = next.expect("spawn").join().expect("the next client");
    (paid, granted.saturating_sub(began))
}
