//! A device that is full before the flush thread has run: the log holds many sealed memtables and
//! leaves the room that their flush needs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{Database, Durability, Error, Keyspace, KeyspaceOptions, Options};
use alluvium_testkit::random::Rng;

use crate::fixture::{Row, all, dir, open};
use crate::hooks::{Call, HookVfs, succeeds, wait_until};

const CAPACITY: u64 = 12 << 20;

fn options(durability: Durability) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(200_000),
        table_bytes: 200_000,
        durability,
        // No file made ahead for the log is removed meanwhile.
        sync_interval: Duration::from_secs(3600),
        ..Options::default()
    }
}

fn keyspace(db: &Database, name: &str) -> Keyspace {
    let keyspace = db.keyspace(name, KeyspaceOptions::default());
    keyspace.expect("keyspace")
}

/// Returns bytes that no codec compresses.
fn value(random: &mut Rng) -> Vec<u8> {
    (0..1000).map(|_| random.next_u64() as u8).collect()
}

/// Database in which no flush makes a table before [`Late::flush`].
struct Late {
    files: MemVfs,
    go: Arc<AtomicBool>,
    db: Database,
    k: Keyspace,
}

impl Late {
    fn new(durability: Durability, capacity: u64) -> Late {
        let go = Arc::new(AtomicBool::new(false));
        let may_go = Arc::clone(&go);
        let vfs = HookVfs::new(move |call: Call, path: &Path| -> io::Result<()> {
            if call == Call::Create && path.to_string_lossy().ends_with(".sst") {
                wait_until(|| may_go.load(Ordering::SeqCst));
            }
            Ok(())
        });
        vfs.set(true);
        vfs.files.set_capacity(capacity);
        let files = MemVfs::clone(&vfs.files);
        let db = Database::open_on(Arc::new(vfs), dir(), options(durability)).expect("open");
        let k = keyspace(&db, "k");
        Late { files, go, db, k }
    }

    /// Puts rows until one is refused, or at most this many. Returns the acknowledged rows.
    fn fill(&self, most: usize) -> Vec<Row> {
        let mut random = Rng::new(1);
        let mut rows = Vec::new();
        loop {
            if rows.len() == most {
                return rows;
            }
            let (key, value) = (u64::to_be_bytes(rows.len() as u64), value(&mut random));
            match self.k.put(&key, &value) {
                Ok(()) => rows.push((key.to_vec(), value)),
                Err(Error::NoSpace { .. }) => return rows,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn flush(&self) {
        self.go.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_log_leaves_room_for_a_flush_that_begins_late() {
    for n in 0..16 {
        // The space after the last segment has many lengths.
        let durability = [Durability::Buffered, Durability::Sync][n as usize % 2];
        let late = Late::new(durability, CAPACITY + n * 80_000);
        let rows = late.fill(usize::MAX);
        assert!(all(&late.k) == rows);
        late.flush();
        succeeds("flushed", || late.db.flush().is_ok());
        assert!(all(&late.k) == rows);
        late.k.delete_range(&[], &[0xff]).expect("delete");
        succeeds("accepted", || late.k.put(b"more", b"1").is_ok());
        late.db.sync().expect("sync");
        let lost = late.files.crash(1, CrashOptions::LOSE_UNSYNCED);
        let lost = open(&lost, options(durability));
        assert_eq!(all(&keyspace(&lost, "k")).len(), 1);
    }
}

/// Checks that a call found no space, or enough in files that the database could give up.
fn ends<T>(result: Result<T, Error>) {
    if let Err(error) = result {
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    }
}

/// Returns a database that has put 1500 rows into memtables, and others have then taken the rest of
/// the device.
fn taken_by_others() -> (Late, Vec<Row>) {
    let late = Late::new(Durability::Buffered, CAPACITY);
    let rows = late.fill(1500);
    assert_eq!(rows.len(), 1500);
    let free = late.files.free_bytes(dir()).expect("free bytes");
    late.files.set_capacity(CAPACITY - free);
    late.flush();
    (late, rows)
}

#[test]
fn a_flush_without_room_holds_no_caller_that_waits_for_it() {
    let (late, rows) = taken_by_others();
    for _ in 0..3 {
        ends(late.db.flush());
        ends(late.db.settle());
        ends(late.k.compact_range(&[], None));
        assert!(all(&late.k) == rows);
    }
    late.db.sync().expect("sync");
    let lost = late.files.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert!(all(&keyspace(&open(&lost, options(Durability::Buffered)), "k")) == rows);
    late.db.close().expect("close");
}

#[test]
fn deletes_make_room_for_a_flush_that_others_left_none() {
    let by_range = |late: &Late, _: &[Row]| late.k.delete_range(&[], &[0xff]).expect("delete");
    let by_key = |late: &Late, rows: &[Row]| {
        for (key, _) in rows {
            succeeds("deleted", || late.k.delete(key).is_ok());
        }
    };
    type Way<'a> = &'a dyn Fn(&Late, &[Row]);
    let ways: [Way<'_>; 2] = [&by_range, &by_key];
    for delete in ways {
        let (late, rows) = taken_by_others();
        ends(late.db.flush());
        delete(&late, &rows);
        assert!(all(&late.k).is_empty());
        succeeds("accepted", || late.k.put(b"more", b"1").is_ok());
        late.db.sync().expect("sync");
        let lost = late.files.crash(1, CrashOptions::LOSE_UNSYNCED);
        assert_eq!(
            all(&keyspace(&open(&lost, options(Durability::Buffered)), "k")).len(),
            1
        );
    }
}

#[test]
fn an_open_on_a_full_device_leaves_room_for_the_flush_of_its_log() {
    for n in 0..8 {
        let late = Late::new(Durability::Sync, CAPACITY + n * 160_000);
        let rows = late.fill(usize::MAX);
        for (crash, at) in [
            (CrashOptions::PROCESS_KILLED, "killed"),
            (CrashOptions::LOSE_UNSYNCED, "power lost"),
        ] {
            let again = open(&late.files.crash(1, crash), options(Durability::Sync));
            let k = keyspace(&again, "k");
            assert!(all(&k) == rows, "{at}");
            succeeds("flushed", || again.flush().is_ok());
            k.delete_range(&[], &[0xff]).expect("delete");
            succeeds("accepted", || k.put(b"more", b"1").is_ok());
        }
        late.flush();
    }
}
