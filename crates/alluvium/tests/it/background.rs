//! Background work of the engine: compaction while no writes arrive, and the end of a compaction
//! when the database is closed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alluvium::vfs::Vfs;
use alluvium::{
    Database, Error, Event, EventListener, Keyspace, KeyspaceOptions, KeyspaceStats, Options,
    WriteBatch,
};

use alluvium_testkit::random::Rng;

use crate::fixture::{
    all, assert_error, database, dir, open, seek_a_thousand, stats_of_k, table_files, tiny,
};
use crate::hooks::{Call, HookVfs, stopping_at_table, wait_until};

fn put_all(db: &Database, k: &Keyspace, rows: u32, value: &[u8]) {
    let mut batch = WriteBatch::new();
    for n in 0..rows {
        batch.put(k, &n.to_be_bytes(), value).expect("put");
    }
    db.write(&batch).expect("write");
}

/// Returns true if each group is one run in the last level, with at least `rows` entries in total.
fn is_tidy(db: &Database, rows: u64) -> bool {
    let stats = stats_of_k(db);
    stats.table_entries >= rows && stats.upper_tables == 0
}

fn soon_idle() -> Options {
    Options {
        memtable_bytes: Some(1 << 20),
        idle_after: Some(Duration::from_millis(1)),
        ..tiny()
    }
}

#[test]
fn an_idle_database_compacts_itself_once() {
    let (_vfs, db, k) = database(soon_idle());
    for value in [[1; 50], [2; 50]] {
        put_all(&db, &k, 500, &value);
        db.flush().expect("flush");
    }
    put_all(&db, &k, 500, &[3; 50]);
    k.put(b"last", b"1").expect("put");
    wait_until(|| is_tidy(&db, 501));
    assert_eq!(
        stats_of_k(&db).table_entries,
        501,
        "one version of each row"
    );
    let written = db.stats().expect("stats").table_bytes_written;
    // Reads are not writes.
    for _ in 0..50 {
        assert_eq!(all(&k).len(), 501);
        std::thread::yield_now();
    }
    assert_eq!(db.stats().expect("stats").table_bytes_written, written);
}

#[test]
fn a_database_that_is_not_to_tidy_itself_does_not() {
    let options = Options {
        idle_after: None,
        ..soon_idle()
    };
    let (_vfs, db, k) = database(options);
    put_all(&db, &k, 500, &[1; 50]);
    for _ in 0..200 {
        assert_eq!(all(&k).len(), 500);
    }
    assert!(!is_tidy(&db, 1));
}

#[test]
fn read_triggered_compaction_runs_during_writes() {
    let options = Options {
        // So long that the database is never idle here.
        idle_after: Some(Duration::from_secs(3600)),
        ..soon_idle()
    };
    let (_vfs, db, k) = database(options);
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    // An upper table that is small compared with the last level and the space budget.
    put_all(&db, &k, 5_000, &[1; 50]);
    db.flush().expect("flush");
    k.compact_range(&[], None).expect("compact");
    put_all(&db, &k, 20, &[2; 50]);
    db.flush().expect("flush");
    db.settle().expect("settle");
    assert!(!is_tidy(&db, 1), "nothing was due");
    wait_until(|| {
        seek_a_thousand(&k);
        other.put(b"row", b"value").expect("put");
        // The end of a flush wakes the compaction threads.
        db.flush().expect("flush");
        is_tidy(&db, 5_000)
    });
    assert_eq!(all(&k).len(), 5_000);
}

#[test]
fn sealed_memtables_that_scans_meet_are_flushed_during_writes() {
    let options = Options {
        memtable_bytes: Some(200_000),
        // Too long to become idle here: there are commits all the time.
        idle_after: Some(Duration::from_secs(2)),
        ..Options::default()
    };
    let (_vfs, db, k) = database(options);
    put_all(&db, &k, 5_000, &[1; 50]);
    k.put(b"of the next memtable", b"").expect("put");
    assert_eq!(stats_of_k(&db).table_entries, 0, "a flush is not worth it");
    wait_until(|| {
        seek_a_thousand(&k);
        k.put(b"of the next memtable", b"").expect("put");
        stats_of_k(&db).table_entries > 0
    });
    assert_eq!(all(&k).len(), 5_001);
}

#[test]
fn memtables_that_are_seldom_written_to_are_sealed_when_scans_meet_them() {
    let options = Options {
        // The rows below take less than half of it.
        memtable_bytes: Some(1 << 20),
        idle_after: Some(Duration::from_secs(2)),
        ..Options::default()
    };
    let (_vfs, db, k) = database(options);
    put_all(&db, &k, 5_000, &[1; 50]);
    wait_until(|| {
        seek_a_thousand(&k);
        k.put(b"a row that is written again", b"").expect("put");
        stats_of_k(&db).table_entries > 0
    });
    assert_eq!(all(&k).len(), 5_001);
}

#[test]
fn tombstones_kept_for_a_snapshot_are_dropped_in_idle_time_after_it_is_closed() {
    let (_vfs, db, k) = database(soon_idle());
    put_all(&db, &k, 500, &[1; 50]);
    wait_until(|| is_tidy(&db, 500));
    let snapshot = db.snapshot().expect("snapshot");
    let mut batch = WriteBatch::new();
    for n in 0..400_u32 {
        batch.delete(&k, &n.to_be_bytes()).expect("delete");
    }
    db.write(&batch).expect("write");
    wait_until(|| is_tidy(&db, 900));
    assert_eq!(stats_of_k(&db).table_entries, 900);
    assert_eq!(
        snapshot.get(&k, &[0; 4]).expect("get").as_deref(),
        Some(&[1; 50][..])
    );
    drop(snapshot);
    wait_until(|| stats_of_k(&db).table_entries == 100);
    assert_eq!(all(&k).len(), 100);
}

#[test]
fn a_remover_thread_deletes_replaced_tables_before_compact_range_returns() {
    let removers: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let noted = Arc::clone(&removers);
    let vfs = HookVfs::new(move |call, path| {
        if call == Call::Remove && path.to_string_lossy().ends_with(".sst") {
            let thread = std::thread::current();
            noted
                .lock()
                .expect("lock")
                .push(thread.name().map(String::from));
        }
        Ok(())
    });
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let db = Database::open_on(shared, dir(), tiny()).expect("open");
    let options = KeyspaceOptions::default();
    let k = db.keyspace("k", options).expect("keyspace");
    vfs.set(true);
    for value in [[1; 50], [2; 50]] {
        put_all(&db, &k, 500, &value);
        db.flush().expect("flush");
    }
    let before = table_files(&vfs.files);
    k.compact_range(&[], None).expect("compact");
    let merged = table_files(&vfs.files);
    assert!(!before.iter().any(|name| merged.contains(name)));
    db.drop_keyspace(&k).expect("drop");
    // A background thread that looks for work may hold tables for a moment.
    wait_until(|| table_files(&vfs.files).is_empty());
    let removers = removers.lock().expect("lock").clone();
    assert!(removers.len() > before.len());
    let own = Some("alv-remove".to_owned());
    assert!(removers.iter().all(|name| *name == own), "{removers:?}");
}

/// Returns options under which one flushed table of a few thousand rows is due for compaction.
fn merging() -> Options {
    Options {
        memtable_bytes: Some(100_000),
        table_bytes: 1 << 20,
        idle_after: None,
        ..tiny()
    }
}

#[test]
fn closing_ends_a_running_compaction_and_leaves_no_files_of_it() {
    let (vfs, there, go) = stopping_at_table(2);
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let db = Database::open_on(shared, dir(), merging()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    vfs.set(true);
    let mut rng = Rng::new(1);
    let mut batch = WriteBatch::new();
    for n in 0..5_000_u32 {
        batch
            .put(&k, &n.to_be_bytes(), &rng.bytes(200))
            .expect("put");
    }
    db.write(&batch).expect("write");
    // The flush writes table 1, the compaction table 2.
    db.flush().expect("flush");
    wait_until(|| there.load(Ordering::SeqCst));
    let closing = std::thread::spawn({
        let db = db.clone();
        move || db.close()
    });
    wait_until(|| matches!(k.get(b"a"), Err(Error::Closed)));
    go.store(true, Ordering::SeqCst);
    closing.join().expect("join").expect("close");
    // The flushed table, without any output of the compaction.
    assert_eq!(table_files(&vfs.files), ["000001.sst"]);
    assert_error!(db.stats(), Error::Closed);
    let db = open(&vfs.files, merging());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(all(&k).len(), 5_000);
}

/// Records the output bytes of each compaction.
#[derive(Default)]
struct Merges(Mutex<Vec<u64>>);

impl EventListener for Merges {
    fn on_event(&self, event: &Event) {
        if let Event::CompactionEnd { output_bytes, .. } = event {
            self.0.lock().expect("not poisoned").push(*output_bytes);
        }
    }
}

#[test]
fn a_writer_ends_an_idle_compaction() {
    let (vfs, there, go) = stopping_at_table(2);
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let merges = Arc::new(Merges::default());
    let options = Options {
        idle_after: Some(Duration::from_millis(1)),
        memtable_bytes: Some(4 << 20),
        event_listener: Some(merges.clone()),
        ..merging()
    };
    let db = Database::open_on(shared, dir(), options).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    vfs.set(true);
    put_all(&db, &k, 5_000, &[1; 100]);
    wait_until(|| there.load(Ordering::SeqCst));
    k.put(b"new", b"1").expect("put");
    go.store(true, Ordering::SeqCst);
    // The engine runs the compaction again later.
    wait_until(|| is_tidy(&db, 5_001));
    assert_eq!(all(&k).len(), 5_001);
    db.close().expect("close");
    let merges = merges.0.lock().expect("not poisoned").clone();
    assert_eq!(merges[0], 0, "given up: {merges:?}");
    assert!(merges[merges.len() - 1] > 0, "{merges:?}");
}

#[test]
fn amplification_counts_reads_and_writes_of_each_keyspace() {
    let options = Options {
        memtable_bytes: Some(1 << 20),
        idle_after: None,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    other.put(b"a", b"1").expect("put");
    for round in 0..2 {
        put_all(&db, &k, 1_000, &[round; 96]);
        db.flush().expect("flush");
    }
    for n in 0..100_u32 {
        assert!(k.get(&n.to_be_bytes()).expect("get").is_some());
    }
    assert_eq!(all(&k).len(), 1_000);
    let amplification = db.amplification().expect("amplification");
    let of_k = &amplification.keyspaces[0];
    assert_eq!((of_k.name.as_str(), of_k.gets, of_k.seeks), ("k", 100, 1));
    assert_eq!(
        of_k.get_sources.measured,
        Some(1.0),
        "the newest table has all"
    );
    assert_eq!(
        of_k.seek_sources.measured,
        Some(2.0),
        "two tables: nothing was written since the flush"
    );
    assert_eq!(
        of_k.seek_sources.predicted, 3.0,
        "with a memtable, as there mostly is"
    );
    assert_eq!(of_k.user_bytes, 200_000);
    let tables: u64 = stats_of_k(&db).upper_bytes;
    assert_eq!(of_k.stored_bytes, tables);
    assert_eq!(of_k.flush_writes.measured, Some(tables as f64 / 200_000.0));
    assert_eq!(of_k.last_level_writes.measured, Some(0.0));
    assert!(of_k.log_writes.measured.is_some_and(|n| n > 0.0 && n < 2.0));
    let blocks = amplification.blocks_per_read.expect("reads were counted");
    assert!(blocks >= 1.0, "{blocks}");
    let of_other = &amplification.keyspaces[1];
    assert_eq!((of_other.gets, of_other.user_bytes), (0, 2));
    assert_eq!(of_other.get_sources.measured, None);
}

#[test]
fn statistics_have_the_oldest_reader_and_the_bytes_above_the_last_level() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    let snapshot = db.snapshot().expect("snapshot");
    k.put(b"a", b"2").expect("put");
    let stats = db.stats().expect("stats");
    assert_eq!(stats.oldest_read_seqno, snapshot.seqno());
    assert_eq!(stats.visible_seqno, snapshot.seqno() + 1);
    assert!(stats.log_bytes_written > 0);
    drop(snapshot);
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    assert_eq!(stats.oldest_read_seqno, stats.visible_seqno);
    assert_eq!(stats.backlog_bytes, 0);
    let sum = |bytes: fn(&KeyspaceStats) -> u64| stats.keyspaces.iter().map(bytes).sum::<u64>();
    assert_eq!(stats.upper_bytes, sum(|keyspace| keyspace.upper_bytes));
    assert_eq!(stats.last_bytes, sum(|keyspace| keyspace.last_bytes));
    assert!(stats.upper_bytes + stats.last_bytes > 0);
}
