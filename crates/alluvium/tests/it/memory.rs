//! Writers far above what the background digests are slowed, and never stopped at the memory ceiling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use alluvium::{KeyspaceOptions, Options};
use alluvium_testkit::random::Rng;

use crate::fixture::{database, tiny};

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
    // A quarter of the memory number for memtables, at least 4 MiB; the ceiling is at twice that.
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
