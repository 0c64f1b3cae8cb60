//! The memory budget bounds memtables, cache, tables, background work and transactions. Writers
//! that are far faster than the background work are slowed down, and never stopped at the memory
//! ceiling.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use alluvium::{
    BulkLoadOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, MemoryUse, Options,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{assert_error, database, tiny};

const MIB: usize = 1 << 20;

const WRITERS: usize = 3;
const ROWS: usize = 4_000;
const VALUE_BYTES: usize = 1_000;

#[test]
fn writers_without_a_pause_stay_below_the_memory_ceiling() {
    let options = Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(256 << 10),
        ..tiny()
    };
    // A quarter of the memory budget for memtables, at least 4 MiB; the ceiling is at twice that.
    let ceiling_bytes = 2 * (4 << 20);
    let (_vfs, db, first) = database(options);
    let second = db
        .keyspace("second", KeyspaceOptions::default())
        .expect("keyspace");
    let running = AtomicUsize::new(WRITERS);
    let sealed_bytes_max = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let keyspace = if writer % 2 == 0 { &first } else { &second };
            let running = &running;
            scope.spawn(move || {
                let mut rng = Rng::new(writer as u64);
                for _ in 0..ROWS {
                    let key = rng.bytes(12);
                    keyspace.put(&key, &rng.bytes(VALUE_BYTES)).expect("put");
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut most = 0;
        while running.load(Ordering::Acquire) > 0 {
            most = most.max(db.stats().expect("stats").sealed_bytes);
            thread::yield_now();
        }
        most
    });
    let stats = db.stats().expect("stats");
    assert_eq!(stats.ceiling_waits, 0, "{stats:?}");
    assert!(
        sealed_bytes_max < ceiling_bytes,
        "{sealed_bytes_max} of {ceiling_bytes}"
    );
    assert!(stats.flushes > 1, "the writers outran nothing: {stats:?}");
}

/// Updates the peak of each part and the peak of the total.
fn keep_peaks(peaks: &mut MemoryUse, total: &mut u64, now: MemoryUse) {
    *total = (*total).max(now.total());
    for (peak, now) in [
        (&mut peaks.memtable_bytes, now.memtable_bytes),
        (&mut peaks.cache_bytes, now.cache_bytes),
        (&mut peaks.table_bytes, now.table_bytes),
        (&mut peaks.job_bytes, now.job_bytes),
    ] {
        *peak = (*peak).max(now);
    }
}

/// Lets two threads put `rows` random rows of `value_bytes` each and one thread read random rows.
/// Calls `look` all the time.
fn saturate(keyspace: &Keyspace, rows: usize, value_bytes: usize, mut look: impl FnMut()) {
    let running = AtomicUsize::new(2);
    let key = |rng: &mut Rng| (rng.below(rows) as u32).to_be_bytes();
    thread::scope(|scope| {
        for writer in 0..2 {
            let running = &running;
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                for _ in 0..rows {
                    let key = key(&mut rng);
                    keyspace.put(&key, &rng.bytes(value_bytes)).expect("put");
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let running = &running;
        scope.spawn(move || {
            let mut rng = Rng::new(7);
            while running.load(Ordering::Acquire) > 0 {
                keyspace.get(&key(&mut rng)).expect("get");
            }
        });
        while running.load(Ordering::Acquire) > 0 {
            look();
            thread::yield_now();
        }
    });
}

fn memory(db: &Database) -> MemoryUse {
    db.stats().expect("stats").memory
}

/// Returns the memory of one moment; `None` if other uses than the cache changed meanwhile: `stats`
/// reads the parts one after the other, and the cache takes what the others return.
fn memory_at_once(db: &Database) -> Option<MemoryUse> {
    let (first, second) = (memory(db), memory(db));
    let but_cache = |memory: MemoryUse| MemoryUse {
        cache_bytes: 0,
        ..memory
    };
    (but_cache(first) == but_cache(second)).then_some(first)
}

#[test]
fn charged_memory_stays_within_the_memory_budget() {
    let options = Options {
        memory_bytes: 16 * MIB,
        memtable_bytes: None,
        table_bytes: 2 << 20,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let (mut peaks, mut total, mut without_jobs) = (MemoryUse::default(), 0, 0);
    saturate(&k, 16_000, 1_000, || {
        if let Some(now) = memory_at_once(&db) {
            keep_peaks(&mut peaks, &mut total, now);
            without_jobs = without_jobs.max(now.total() - now.job_bytes);
        }
    });
    // On a busy machine, the reader has too little time to fill the cache.
    assert!(peaks.memtable_bytes as usize > 2 * MIB, "{peaks:?}");
    assert!(peaks.job_bytes as usize > MIB, "{peaks:?}");
    assert!(peaks.table_bytes as usize > 32 << 10, "{peaks:?}");
    db.settle().expect("settle");
    assert_eq!(memory(&db).job_bytes, 0, "buffers go with their jobs");
    for n in 0..16_000u32 {
        k.get(&n.to_be_bytes()).expect("get");
        if n % 100 == 0 {
            keep_peaks(&mut peaks, &mut total, memory(&db));
            assert!(memory(&db).total() as usize <= 17 * MIB, "{peaks:?}");
        }
    }
    assert!(peaks.cache_bytes as usize > 8 * MIB, "{peaks:?}");
    // A job charges memory before it uses it, and evicts as much from the cache in between. Other
    // threads can see the sum of both, up to 6 MiB here, for as long as the scheduler stops the job
    // there.
    assert!(total as usize <= 22 * MIB, "{total}: {peaks:?}");
    assert!(
        without_jobs as usize <= 18 * MIB,
        "{without_jobs}: {peaks:?}"
    );
    assert!(total as usize > 12 * MIB, "{total}: {peaks:?}");
}

/// Returns a database with a memory budget of 16 MiB and a full cache.
fn with_full_cache() -> (Database, Keyspace) {
    let options = Options {
        memory_bytes: 16 * MIB,
        memtable_bytes: None,
        table_bytes: 2 << 20,
        idle_after: None,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let mut rng = Rng::new(1);
    for n in 0..18_000_u32 {
        k.put(&n.to_be_bytes(), &rng.bytes(1_000)).expect("put");
    }
    db.settle().expect("settle");
    // The memory that the memtables have released is available to the cache immediately.
    for n in 0..18_000_u32 {
        assert!(k.get(&n.to_be_bytes()).expect("get").is_some());
    }
    let now = memory(&db);
    assert!(now.cache_bytes as usize > 10 * MIB, "{now:?}");
    (db, k)
}

#[test]
fn writes_of_open_and_prepared_transactions_take_from_the_cache() {
    let (db, k) = with_full_cache();
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for n in 0..3_000_u32 {
        txn.put(&k, &n.to_be_bytes(), &[7; 1_000]).expect("put");
    }
    let open = memory(&db);
    assert!(open.transaction_bytes as usize > 3 * MIB, "{open:?}");
    assert!(open.total() as usize <= 16 * MIB, "{open:?}");
    assert!(open.cache_bytes as usize <= 12 * MIB, "{open:?}");
    let prepared = txn.prepare(b"x").expect("prepare");
    let now = memory(&db);
    assert_eq!(now.transaction_bytes, 0);
    assert!(now.prepared_bytes as usize > 2_900_000, "{now:?}");
    prepared.commit().expect("commit");
    assert_eq!(memory(&db).prepared_bytes, 0);
    assert_eq!(memory(&db).commit_bytes, 0);
    // Locks cost memory too.
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for n in 0..2_000_u32 {
        txn.get_for_update(&k, &n.to_be_bytes()).expect("lock");
    }
    assert!(memory(&db).transaction_bytes as usize >= 64 << 10);
    txn.rollback();
    assert_eq!(memory(&db).transaction_bytes, 0);
}

#[test]
fn a_write_that_waits_for_a_row_lock_is_charged() {
    let (_vfs, db, k) = database(Options {
        memory_bytes: 16 * MIB,
        ..tiny()
    });
    let holder = db.begin(Isolation::ReadCommitted).expect("begin");
    holder.put(&k, b"row", b"1").expect("put");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| k.put(b"row", &[7; MIB]));
        while memory(&db).commit_bytes < MIB as u64 {
            assert!(!waiting.is_finished(), "the lock was not waited for");
            thread::yield_now();
        }
        holder.rollback();
        waiting.join().expect("no panic").expect("put");
    });
    assert_eq!(memory(&db).commit_bytes, 0);
}

#[test]
fn open_transactions_together_are_bounded_and_small_ones_go_on() {
    let (_vfs, db, k) = database(Options {
        memory_bytes: 8 * MIB,
        ..tiny()
    });
    let mut open = Vec::new();
    let refused = 'refused: {
        for client in 0..4_u8 {
            let txn = db.begin(Isolation::ReadCommitted).expect("begin");
            // Without a range delete it would move its writes to files.
            txn.delete_range(&k, b"x", b"y").expect("delete");
            for n in 0..1_500_u16 {
                let key = [&[client][..], &n.to_be_bytes()].concat();
                if let Err(error) = txn.put(&k, &key, &[7; 1_000]) {
                    break 'refused Err(error);
                }
            }
            open.push(txn);
        }
        Ok(())
    };
    // Half of the memory budget is for open transactions.
    assert_error!(
        refused,
        Error::TransactionTooLarge {
            limit: 0x40_0000,
            ..
        }
    );
    assert!(!open.is_empty());
    let small = db.begin(Isolation::ReadCommitted).expect("begin");
    small
        .put(&k, b"small", b"1")
        .expect("small ones are never refused");
    small.commit().expect("commit");
    for txn in open {
        txn.commit().expect("what was accepted is committed");
    }
    let txn = db.begin(Isolation::ReadCommitted).expect("begin");
    for n in 0..1_500_u16 {
        txn.put(&k, &n.to_be_bytes(), &[7; 1_000])
            .expect("there is room again");
    }
}

#[test]
fn a_bulk_load_takes_at_most_half_of_the_memory_budget_and_takes_it_from_the_cache() {
    let (db, k) = with_full_cache();
    let mut load = db
        .bulk_load(BulkLoadOptions {
            memory_bytes: 1 << 30,
            ..BulkLoadOptions::default()
        })
        .expect("bulk load");
    let mut most = 0;
    for n in 0..30_000_u32 {
        let key = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        load.put(&k, &key, &[7; 1_000]).expect("put");
        if !n.is_multiple_of(64) {
            continue;
        }
        let now = memory(&db);
        assert!(now.total() as usize <= 17 * MIB, "{now:?}");
        most = most.max(now.job_bytes as usize);
    }
    assert!((8 * MIB..11 * MIB).contains(&most), "{most}");
    drop(load);
    assert_eq!(memory(&db).job_bytes, 0);
}

/// Returns the resident bytes of this process's heap and stacks, as the kernel reports them.
fn rss_anon_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.expect("RssAnon").parse::<usize>().expect("a number") << 10
}

const CHILD_MEMORY_BYTES: usize = 32 * MIB;

/// Runs in a child process, because other tests have databases in this process's memory.
#[test]
#[cfg(target_os = "linux")]
fn anonymous_memory_stays_near_the_memory_budget() {
    let child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "memory::saturated_child", "--ignored"])
        .output()
        .expect("a child");
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && output.contains("1 passed"),
        "{output}"
    );
}

#[test]
#[ignore = "the test above starts it in a process of its own"]
fn saturated_child() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_bytes: CHILD_MEMORY_BYTES,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let mut most = 0;
    saturate(&k, 10_000, 4_000, || most = most.max(rss_anon_bytes()));
    // With a full cache: a bulk load that requests memory for all its rows.
    for n in 0..10_000_u32 {
        k.get(&n.to_be_bytes()).expect("get");
    }
    let options = BulkLoadOptions {
        memory_bytes: 1 << 30,
        ..BulkLoadOptions::default()
    };
    let mut load = db.bulk_load(options).expect("bulk load");
    for n in 0..12_000_u32 {
        let key = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        load.put(&k, &key, &[7; 4_000]).expect("put");
        most = most.max(rss_anon_bytes());
    }
    let limit = CHILD_MEMORY_BYTES + CHILD_MEMORY_BYTES / 20 + 32 * MIB;
    assert!(most <= limit, "{most} of {limit}: {:?}", memory(&db));
    // The excess over that depends on the scheduling of its threads.
    let full = CHILD_MEMORY_BYTES / 4 * 3;
    assert!(most > full, "{most} of {full}: nothing was tested");
}
