//! Thousands of small keyspaces: the cost of each must not depend on their number.

use std::sync::Arc;

use allocation_counter::measure;
use alluvium::vfs::{FaultVfs, IoCall, MemVfs};
use alluvium::{Compression, Database, Error, KeyspaceOptions, Options};

use crate::fixture::{assert_error, dir, open};
use crate::hooks::wait_until;

/// Returns options without background work.
fn quiet() -> Options {
    Options {
        idle_after: None,
        sync_interval: std::time::Duration::from_secs(3_600),
        ..Options::default()
    }
}

fn names(count: usize) -> Vec<(String, KeyspaceOptions)> {
    let name = |n| (format!("keyspace{n:05}"), KeyspaceOptions::default());
    (0..count).map(name).collect()
}

#[test]
fn creating_one_keyspace_or_many_at_once_takes_two_syncs() {
    let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), quiet()).expect("open");
    let syncs = |create: &dyn Fn()| {
        let before = vfs.calls(IoCall::Sync);
        create();
        vfs.calls(IoCall::Sync) - before
    };
    let one = || drop(db.keyspace("one", KeyspaceOptions::default()).expect("one"));
    assert_eq!(syncs(&one), 2);
    let many = || drop(db.keyspaces(&names(5_000)).expect("many"));
    assert_eq!(syncs(&many), 2);
    assert_eq!(syncs(&many), 0, "they exist");
    assert_eq!(db.keyspace_names().expect("names").len(), 5_001);
}

#[test]
fn a_batch_of_keyspaces_is_created_as_a_whole_in_the_order_of_its_names() {
    let vfs = MemVfs::new();
    let db = open(&vfs, quiet());
    let uncompressed = KeyspaceOptions {
        compression: Compression::None,
        ..KeyspaceOptions::default()
    };
    let old = db.keyspace("old", KeyspaceOptions::default()).expect("old");
    let wanted = [
        ("b", uncompressed.clone()),
        ("old", uncompressed.clone()),
        ("a", KeyspaceOptions::default()),
        ("b", KeyspaceOptions::default()),
    ];
    let made = db.keyspaces(&wanted).expect("create");
    let names: Vec<&str> = made.iter().map(|k| k.name()).collect();
    assert_eq!(names, ["b", "old", "a", "b"]);
    assert_eq!((made[0].id(), made[1].id()), (made[3].id(), old.id()));
    assert_eq!(made[0].options(), uncompressed, "the first of two");
    assert_eq!(made[1].options(), KeyspaceOptions::default(), "it existed");
    made[2].put(b"key", b"value").expect("put");

    let wrong = KeyspaceOptions {
        block_bytes: 1,
        ..KeyspaceOptions::default()
    };
    let refused = db.keyspaces(&[("c", KeyspaceOptions::default()), ("d", wrong)]);
    assert_error!(refused, Error::InvalidArgument(_));
    let none: [(&str, KeyspaceOptions); 0] = [];
    assert!(db.keyspaces(&none).expect("none").is_empty());
    db.close().expect("close");
    let db = open(&vfs, quiet());
    assert_eq!(db.keyspace_names().expect("names"), ["a", "b", "old"]);
    let a = db.existing_keyspace("a").expect("look").expect("a");
    assert_eq!(a.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    assert_error!(
        db.keyspaces(&[("a", KeyspaceOptions::default())])
            .and_then(|_| {
                db.close()?;
                db.keyspaces(&[("a", KeyspaceOptions::default())])
            }),
        Error::Closed
    );
}

/// Returns the lowest number of allocations of ten creations.
fn allocations_of_a_creation(db: &Database, from: usize) -> u64 {
    let allocations = |n| {
        let name = format!("single{n:05}");
        let create = || {
            drop(
                db.keyspace(&name, KeyspaceOptions::default())
                    .expect("create"),
            )
        };
        measure(create).count_total
    };
    (from..from + 10).map(allocations).min().expect("some")
}

#[test]
fn creating_a_keyspace_costs_the_same_however_many_there_are() {
    let db = open(&MemVfs::new(), quiet());
    let few = allocations_of_a_creation(&db, 0);
    db.keyspaces(&names(4_000)).expect("create");
    let many = allocations_of_a_creation(&db, 10);
    assert!(many <= few + few / 5, "{few}, among many {many}");
}

#[test]
fn opening_costs_as_much_for_each_keyspace_however_many_there_are() {
    let vfs = MemVfs::new();
    let mut allocations = Vec::new();
    for n in 0..3 {
        let db = open(&vfs, quiet());
        // One manifest edit each.
        for (name, options) in &names(500 << n) {
            db.keyspace(name, options.clone()).expect("create");
        }
        db.close().expect("close");
        allocations.push(measure(|| drop(open(&vfs, quiet()))).count_total);
    }
    let more = [
        allocations[1] - allocations[0],
        allocations[2] - allocations[1],
    ];
    // Twice as many additional keyspaces.
    assert!(more[1] < more[0] * 5 / 2, "{allocations:?}");
}

#[test]
fn a_keyspace_takes_memory_for_rows_from_its_first_one_on_and_in_small_steps() {
    const KEYSPACES: usize = 2_000;
    let options = Options {
        memory_bytes: 64 << 20,
        ..quiet()
    };
    let db = open(&MemVfs::new(), options);
    let keyspaces = db.keyspaces(&names(KEYSPACES)).expect("create");
    let memory = || db.stats().expect("stats").memory;
    assert_eq!(memory().memtable_bytes, 0);
    assert!(
        memory().total() < 4_096 * KEYSPACES as u64,
        "{:?}",
        memory()
    );
    for keyspace in &keyspaces[..500] {
        keyspace.put(b"key", &[7; 100]).expect("put");
    }
    let with_a_row = memory().memtable_bytes;
    assert!(
        (500 * 1_000..500 * 4_096).contains(&with_a_row),
        "{with_a_row}"
    );
    for keyspace in &keyspaces {
        for row in 0..10_u8 {
            keyspace.put(&[row], &[7; 100]).expect("put");
        }
    }
    assert!(memory().total() < 32 << 20, "{:?}", memory());
    db.flush().expect("flush");
    // The flush thread releases the memtables after it has reported that their rows are in tables.
    wait_until(|| memory().memtable_bytes == 0);
    for keyspace in &keyspaces {
        assert!(keyspace.get(&[9]).expect("get").is_some());
    }
    assert_eq!(memory().memtable_bytes, 0, "reads need none");
}
