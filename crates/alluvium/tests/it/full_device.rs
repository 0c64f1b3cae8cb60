//! A device that fills up: writes are refused, nothing is lost, deletes continue, and service
//! resumes by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{
    Database, Durability, Error, Event, EventListener, Isolation, Keyspace, KeyspaceOptions,
    Options, PreparedTransaction,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::fixture::{all, assert_error, dir, of, open, seek_a_thousand};
use crate::hooks::wait_until;

const VALUE_BYTES: usize = 1000;

fn options(durability: Durability) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(200_000),
        table_bytes: 200_000,
        durability,
        ..Options::default()
    }
}

fn keyspace(db: &Database, name: &str) -> Keyspace {
    let keyspace = db.keyspace(name, KeyspaceOptions::default());
    keyspace.expect("keyspace")
}

/// Returns bytes that no codec compresses.
fn value(random: &mut Rng) -> Vec<u8> {
    (0..VALUE_BYTES).map(|_| random.next_u64() as u8).collect()
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts rows until one is refused, and again until background work makes no more room. Returns the
/// acknowledged rows.
fn fill(k: &Keyspace, random: &mut Rng, mut next: u64) -> Rows {
    let mut rows = Rows::new();
    let mut refused = 0;
    while refused < 50 {
        let (key, value) = (next.to_be_bytes().to_vec(), value(random));
        match k.put(&key, &value) {
            Ok(()) => {
                rows.insert(key, value);
                next += 1;
                refused = 0;
            }
            Err(Error::NoSpace { .. }) => {
                refused += 1;
                thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    rows
}

fn check(k: &Keyspace, rows: &Rows, context: &str) {
    let found: Rows = all(k).into_iter().collect();
    assert_eq!(found.len(), rows.len(), "{context}: rows");
    assert!(found == *rows, "{context}: values");
    let (key, value) = rows.last_key_value().expect("a row");
    let read = k.get(key).expect("get");
    assert_eq!(read.as_deref(), Some(&value[..]), "{context}");
}

/// Returns a database on a device of 12 MiB that is full of rows of keyspace `k`.
fn full(durability: Durability) -> (MemVfs, Database, Keyspace, Rows) {
    let vfs = MemVfs::with_capacity(12 << 20);
    let db = open(&vfs, options(durability));
    let k = keyspace(&db, "k");
    keyspace(&db, "small").put(b"a", b"1").expect("put");
    let rows = fill(&k, &mut Rng::new(1), 0);
    assert!(rows.len() > 1500, "{} rows filled the device", rows.len());
    (vfs, db, k, rows)
}

/// Fills the device, makes room, and writes again without a reopening.
fn resumes(durability: Durability, make_room: impl Fn(&Database, &Keyspace)) {
    let (vfs, db, k, rows) = full(durability);
    check(&k, &rows, "full");
    make_room(&db, &k);
    let small = keyspace(&db, "small");
    wait_until(|| small.put(b"b", b"2").is_ok());
    // Not with the last bytes of the ballast file: there is room for many more rows.
    let (mut random, mut more) = (Rng::new(2), 0u64);
    wait_until(|| {
        match small.put(&more.to_be_bytes(), &value(&mut random)) {
            Ok(()) => more += 1,
            Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        more == 1000
    });
    db.sync().expect("sync");
    let lost = open(
        &vfs.crash(1, CrashOptions::LOSE_UNSYNCED),
        options(durability),
    );
    let small = keyspace(&lost, "small");
    assert_eq!(all(&small).len(), 1002, "after a crash");
}

#[test]
fn a_full_device_refuses_writes_and_a_drop_makes_room() {
    resumes(Durability::Buffered, |db, k| {
        db.drop_keyspace(k).expect("drop");
    });
}

#[test]
fn a_range_delete_makes_room_on_a_full_device() {
    for durability in [Durability::Buffered, Durability::Sync] {
        resumes(durability, |_, k| {
            k.delete_range(&[], &[0xff]).expect("delete");
        });
    }
}

#[test]
fn deletes_make_room_on_a_full_device() {
    resumes(Durability::Buffered, |_, k| {
        for (key, _) in all(k) {
            // The log accepts deletes as fast as flushes release its segments.
            wait_until(|| match k.delete(&key) {
                Ok(()) => true,
                Err(Error::NoSpace { .. }) => false,
                Err(error) => panic!("{error}"),
            });
        }
    });
}

#[test]
fn room_that_somebody_else_makes_is_found() {
    let (vfs, db, k, rows) = full(Durability::Buffered);
    assert_error!(k.put(b"more", b"1"), Error::NoSpace { .. });
    assert_error!(db.ingest(), Error::NoSpace { .. });
    vfs.set_capacity(100 << 20);
    k.put(b"more", b"1").expect("put");
    assert_eq!(all(&k).len(), rows.len() + 1);
    db.ingest().expect("ingest");
}

#[test]
fn a_full_database_opens_again_with_all_rows_and_can_delete() {
    let (vfs, db, _, rows) = full(Durability::Sync);
    for (crash, at) in [
        (CrashOptions::PROCESS_KILLED, "killed"),
        (CrashOptions::LOSE_UNSYNCED, "power lost"),
    ] {
        let vfs = vfs.crash(1, crash);
        {
            let again = open(&vfs, options(Durability::Sync));
            check(&keyspace(&again, "k"), &rows, at);
        }
        // And again: an opening does not use up the space that the next opening needs.
        let again = open(&vfs, options(Durability::Sync));
        let k = keyspace(&again, "k");
        check(&k, &rows, at);
        again.drop_keyspace(&k).expect("drop");
        let small = keyspace(&again, "small");
        wait_until(|| small.put(b"b", b"2").is_ok());
    }
    drop(db);
}

/// Opens the database repeatedly, with little free space next to the ballast file, and with
/// sessions that end in different ways.
fn opens_any_number_of_times(vfs: &MemVfs, rows: &Rows, prepared: &[&[u8]]) {
    for free in [0, 100_000, 400_000, 1_100_000] {
        let mut left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
        let taken = (12 << 20) - left.free_bytes(dir()).expect("free bytes");
        left.set_capacity(taken + free);
        for nth in 0..12 {
            let again = open(&left, options(Durability::Sync));
            let context = format!("{free} bytes free, opening {nth}");
            check(&keyspace(&again, "k"), rows, &context);
            assert_eq!(again.prepared().expect("list"), prepared, "{context}");
            let losses = [CrashOptions::PROCESS_KILLED, CrashOptions::LOSE_UNSYNCED];
            match nth % 3 {
                2 => drop(again),
                loss => left = left.crash(1, losses[loss]),
            }
        }
    }
}

#[test]
fn a_full_database_opens_any_number_of_times() {
    let (vfs, db, _, rows) = full(Durability::Sync);
    opens_any_number_of_times(&vfs, &rows, &[]);
    drop(db);
}

#[test]
fn a_full_database_with_a_prepared_transaction_opens_any_number_of_times() {
    let vfs = MemVfs::with_capacity(12 << 20);
    let db = open(&vfs, options(Durability::Sync));
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&keyspace(&db, "l"), b"a", b"1").expect("put");
    let prepared = txn.prepare(b"x").expect("prepare");
    let rows = fill(&keyspace(&db, "k"), &mut Rng::new(8), 0);
    opens_any_number_of_times(&vfs, &rows, &[b"x"]);
    drop((prepared, db));
}

/// Prepares transactions of 60 rows in `p`, all of them with one value.
fn prepare(
    db: &Database,
    transactions: u64,
    random: &mut Rng,
) -> (Vec<PreparedTransaction>, Vec<u8>) {
    let (p, value) = (keyspace(db, "p"), value(random));
    let prepare = |n: u64| {
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        for row in 0..60 {
            let key = [n.to_be_bytes(), u64::to_be_bytes(row)].concat();
            txn.put(&p, &key, &value).expect("put");
        }
        txn.prepare(&n.to_be_bytes()).expect("prepare")
    };
    ((0..transactions).map(prepare).collect(), value)
}

#[test]
fn decisions_on_a_full_device_have_their_space_reserved() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let vfs = MemVfs::with_capacity(12 << 20);
        let db = open(&vfs, options(durability));
        let mut random = Rng::new(3);
        let (prepared, value) = prepare(&db, 20, &mut random);
        let rows = fill(&keyspace(&db, "k"), &mut random, 0);
        // Groups may have decisions and writes that are refused.
        let stop = AtomicBool::new(false);
        let k = keyspace(&db, "k");
        let mut committed = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(k.put(b"refused", &value));
                }
            });
            for (n, mut one) in prepared.into_iter().enumerate() {
                let decided = match n % 4 {
                    0 => one.rollback(),
                    1 => one.commit_ordered().and_then(|()| one.commit()),
                    _ => one.commit(),
                };
                if decided.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                decided.unwrap_or_else(|error| panic!("decision {n}: {error}"));
                committed += usize::from(n % 4 > 0);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let check = |db: &Database| {
            assert!(db.prepared().expect("list").is_empty());
            let found = all(&keyspace(db, "p"));
            assert_eq!(found.len(), 60 * committed);
            assert!(found.iter().all(|(_, found)| *found == value));
            assert!(all(&keyspace(db, "k")).len() >= rows.len());
        };
        check(&db);
        vfs.set_capacity(64 << 20);
        check(&open(
            &vfs.crash(1, CrashOptions::PROCESS_KILLED),
            options(durability),
        ));
    }
}

#[test]
fn an_open_makes_room_for_decisions_or_works_without_it() {
    let vfs = MemVfs::with_capacity(24 << 20);
    let db = open(&vfs, options(Durability::Sync));
    let mut random = Rng::new(4);
    // Together less than the space that is kept for an open.
    drop(prepare(&db, 3, &mut random));
    let rows = fill(&keyspace(&db, "k"), &mut random, 0);
    let killed = || vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let fill_up = |vfs: &MemVfs, capacity: u64| {
        let free = vfs.free_bytes(dir()).expect("free bytes");
        vfs.set_capacity(capacity - free);
    };

    // On a full device nothing that needs no room is refused.
    let full = killed();
    fill_up(&full, 24 << 20);
    let again = open(&full, options(Durability::Sync));
    let k = keyspace(&again, "k");
    for (n, key) in rows.keys().take(20).enumerate() {
        let deleted = k.delete(key);
        deleted.unwrap_or_else(|error| panic!("delete {n}: {error}"));
    }
    for xid in again.prepared().expect("list") {
        let taken = again.take_prepared(&xid).expect("take");
        let rolled_back = taken.rollback();
        rolled_back.unwrap_or_else(|error| panic!("rollback of {xid:?}: {error}"));
    }
    again.drop_keyspace(&k).expect("drop");
    drop(again);

    // With room at the open, all decisions have theirs, though nothing was written since.
    let roomy = killed();
    roomy.set_capacity(64 << 20);
    let again = open(&roomy, options(Durability::Sync));
    fill_up(&roomy, 64 << 20);
    for xid in again.prepared().expect("list") {
        let taken = again.take_prepared(&xid).expect("take");
        taken.commit().expect("commit");
    }
    assert_eq!(all(&keyspace(&again, "p")).len(), 3 * 60);
    drop(db);
}

/// Runs two clients with puts and deletes on a device that is full most of the time.
fn crowd(random: &mut Rng) {
    let vfs = MemVfs::with_capacity((4 << 20) + random.next_u64() % (4 << 20));
    let db = open(&vfs, options(Durability::Buffered));
    let names = ["a", "b"];
    let models: Vec<Rows> = thread::scope(|scope| {
        let clients: Vec<_> = names
            .iter()
            .map(|name| {
                let (db, mut random) = (db.clone(), Rng::new(random.next_u64()));
                scope.spawn(move || client(&keyspace(&db, name), &mut random))
            })
            .collect();
        let joined = clients.into_iter().map(|client| client.join());
        joined.map(|rows| rows.expect("client")).collect()
    });
    for (name, rows) in names.iter().zip(&models) {
        let found: Rows = all(&keyspace(&db, name)).into_iter().collect();
        assert!(found == *rows, "{name}");
    }
    let killed = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let again = open(&killed, options(Durability::Buffered));
    for (name, rows) in names.iter().zip(&models) {
        let found: Rows = all(&keyspace(&again, name)).into_iter().collect();
        assert!(found == *rows, "{name} after a crash");
    }
}

fn client(k: &Keyspace, random: &mut Rng) -> Rows {
    let mut rows = Rows::new();
    for _ in 0..6000 {
        let key = (random.next_u64() % 5000).to_be_bytes().to_vec();
        if random.next_u64().is_multiple_of(4) {
            match k.delete(&key) {
                Ok(()) => drop(rows.remove(&key)),
                Err(Error::NoSpace { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            continue;
        }
        let value = value(random);
        match k.put(&key, &value) {
            Ok(()) => drop(rows.insert(key, value)),
            Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    rows
}

#[test]
fn a_crowded_device_loses_nothing_that_was_acknowledged() {
    Seeded::run("a_crowded_device", 3, crowd);
}

#[test]
fn the_ballast_file_is_released_and_restored() {
    let (vfs, db, k, _) = full(Durability::Buffered);
    let ballast = || {
        let file = vfs.open_read(&dir().join("ballast")).expect("ballast");
        file.len().expect("length")
    };
    wait_until(|| {
        // The rest of the ballast file is for commits that make room.
        let _ = k.put(b"more", b"0");
        ballast() <= 1 << 20
    });
    vfs.set_capacity(100 << 20);
    k.put(b"more", b"1").expect("put");
    // The size of the ballast file follows the size of the tables.
    db.flush().expect("flush");
    wait_until(|| ballast() > 1 << 20);
    db.close().expect("close");
}

#[test]
fn a_reserve_that_cannot_be_made_costs_nothing_but_itself() {
    let vfs = MemVfs::new();
    let db = open(&vfs, options(Durability::Buffered));
    keyspace(&db, "k").put(b"a", b"1").expect("put");
    drop(db);
    // A directory has the name of the ballast file.
    vfs.remove(&dir().join("ballast")).expect("remove");
    vfs.create_dir_all(&dir().join("ballast"))
        .expect("directory");
    let db = open(&vfs, options(Durability::Buffered));
    keyspace(&db, "k").put(b"b", b"1").expect("put");
    db.flush().expect("flush");
    assert_eq!(all(&keyspace(&db, "k")).len(), 2);
}

/// Counts the compactions of keyspace `k` that began.
#[derive(Default)]
struct Merges(AtomicUsize);

impl EventListener for Merges {
    fn on_event(&self, event: &Event) {
        if let Event::CompactionBegin { keyspace, .. } = event
            && keyspace == "k"
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

const ROOMY: u64 = 100 << 20;

/// Returns options that count compactions.
fn counted(merges: &Arc<Merges>) -> Options {
    Options {
        table_bytes: 64 << 20,
        event_listener: Some(Arc::clone(merges) as _),
        ..options(Durability::Buffered)
    }
}

/// Returns a database with a last level of 12 MB and a small table above it that is not due for
/// compaction. The device has room for small flushes, but not for twice the space that a compaction
/// of the two may take.
fn one_table_above(merges: &Arc<Merges>) -> (MemVfs, Database, Keyspace) {
    let vfs = MemVfs::with_capacity(ROOMY);
    let db = open(&vfs, counted(merges));
    let k = keyspace(&db, "k");
    let mut random = Rng::new(3);
    let mut put = |rows| {
        for n in 0..rows {
            let row = value(&mut random);
            k.put(&u32::to_be_bytes(n), &row).expect("put");
        }
        db.flush().expect("flush");
    };
    put(12_000);
    k.compact_range(&[], None).expect("compact");
    put(30);
    db.settle().expect("settle");
    assert_eq!(upper_tables(&db), 1, "nothing was due");
    let used = ROOMY - vfs.free_bytes(dir()).expect("space");
    // A prepared segment that is counted here may be removed later.
    vfs.set_capacity(used + (16 << 20));
    (vfs, db, k)
}

fn upper_tables(db: &Database) -> u64 {
    of(&db.stats().expect("stats"), "k").upper_tables
}

#[test]
fn a_read_triggered_compaction_that_could_fill_the_device_is_not_started() {
    let merges = Arc::new(Merges::default());
    let (vfs, db, k) = one_table_above(&merges);
    let small = keyspace(&db, "small");
    let scan = || {
        seek_a_thousand(&k);
        small.put(b"a", b"1").expect("nothing is refused");
        // The end of the flush wakes the compaction threads.
        db.flush().expect("flush");
    };
    let begun = merges.0.load(Ordering::SeqCst);
    (0..200).for_each(|_| scan());
    db.settle().expect("nothing is due");
    assert_eq!(merges.0.load(Ordering::SeqCst), begun);
    vfs.set_capacity(ROOMY);
    wait_until(|| {
        scan();
        upper_tables(&db) == 0
    });
    assert_eq!(all(&k).len(), 12_000);
}

#[test]
fn an_idle_compaction_that_could_fill_the_device_is_not_started() {
    let merges = Arc::new(Merges::default());
    let (vfs, db, _) = one_table_above(&merges);
    db.close().expect("close");
    let options = Options {
        idle_after: Some(Duration::from_millis(1)),
        ..counted(&merges)
    };
    let begun = merges.0.load(Ordering::SeqCst);
    let db = open(&vfs, options);
    let k = keyspace(&db, "k");
    let small = keyspace(&db, "small");
    for _ in 0..5 {
        // There is room for this compaction.
        small.put(b"a", b"1").expect("put");
        wait_until(|| {
            let stats = db.stats().expect("stats");
            let small = of(&stats, "small");
            small.upper_tables == 0 && small.last_tables == 1
        });
    }
    assert_eq!(merges.0.load(Ordering::SeqCst), begun);
    vfs.set_capacity(ROOMY);
    // The engine considers the group again once something has changed.
    k.put(b"new", b"1").expect("put");
    wait_until(|| upper_tables(&db) == 0);
    assert_eq!(all(&k).len(), 12_001);
}

#[test]
fn a_full_database_with_large_prepared_transactions_opens() {
    let vfs = MemVfs::with_capacity(12 << 20);
    let db = open(&vfs, options(Durability::Sync));
    let mut random = Rng::new(9);
    // Together more than the space that is kept for an open.
    let (prepared, value) = prepare(&db, 20, &mut random);
    let rows = fill(&keyspace(&db, "k"), &mut random, 0);
    let xids: Vec<Vec<u8>> = (0..20u64).map(|n| n.to_be_bytes().to_vec()).collect();
    let xids: Vec<&[u8]> = xids.iter().map(|xid| &xid[..]).collect();
    opens_any_number_of_times(&vfs, &rows, &xids);

    let again = open(
        &vfs.crash(1, CrashOptions::LOSE_UNSYNCED),
        options(Durability::Sync),
    );
    for xid in again.prepared().expect("list") {
        let taken = again.take_prepared(&xid).expect("take");
        let rolled_back = taken.rollback();
        rolled_back.unwrap_or_else(|error| panic!("rollback of {xid:?}: {error}"));
    }
    keyspace(&again, "k")
        .delete_range(&[], &[0xff])
        .expect("delete");
    let small = keyspace(&again, "small");
    wait_until(|| small.put(b"b", b"2").is_ok());
    assert_eq!(all(&keyspace(&again, "p")).len(), 0);

    // Flushes and further opens keep the records of the prepared transactions.
    let vfs = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let full = open(&vfs, options(Durability::Sync));
    let _ = full.flush();
    drop(full);
    let again = open(&vfs, options(Durability::Sync));
    vfs.set_capacity(64 << 20);
    for xid in again.prepared().expect("list") {
        let taken = again.take_prepared(&xid).expect("take");
        taken.commit().expect("commit");
    }
    let found = all(&keyspace(&again, "p"));
    assert_eq!(found.len(), 20 * 60);
    assert!(found.iter().all(|(_, found)| *found == value));
    drop((prepared, db));
}
