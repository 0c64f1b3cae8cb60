//! Files are opened for random reads; a sequential reader starts the device's reads in advance.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use alluvium::vfs::Vfs;
use alluvium::{CursorOptions, Database, Keyspace, KeyspaceOptions, Options};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::Rng;

use crate::driver::collect;
use crate::fixture::{Row, dir, tiny};
use crate::hooks::{Call, HookVfs};

const ROWS: u32 = 4_000;
/// Length from which values are separated: every tenth row has a value in a value file.
const APART_FROM: usize = 4_000;

fn row(n: u32) -> Row {
    let bytes = if n.is_multiple_of(10) { 5_000 } else { 500 };
    let value = Rng::new(u64::from(n)).bytes(bytes);
    (n.to_be_bytes().to_vec(), value)
}

/// Numbers of hints of each kind about files with one ending.
#[derive(Default)]
struct Hints {
    random: AtomicUsize,
    ahead: AtomicUsize,
}

/// Returns a compacted database with no cached blocks, and the hints about its tables and value
/// files while the hook is on.
fn cold() -> (HookVfs, Keyspace, Database, Arc<[Hints; 2]>) {
    let hints = Arc::new(<[Hints; 2]>::default());
    let noted = Arc::clone(&hints);
    let vfs = HookVfs::new(move |call: Call, path: &Path| -> io::Result<()> {
        let ending = |ending| path.extension().is_some_and(|is| is == ending);
        for (hints, _) in noted.iter().zip(["sst", "val"]).filter(|(_, e)| ending(*e)) {
            match call {
                Call::ExpectRandomReads => hints.random.fetch_add(1, SeqCst),
                Call::StartReading => hints.ahead.fetch_add(1, SeqCst),
                _ => 0,
            };
        }
        Ok(())
    });
    let options = || Options {
        memtable_bytes: None,
        table_bytes: 2 << 20,
        idle_after: None,
        ..tiny()
    };
    let open = || {
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        Database::open_on(shared, dir(), options()).expect("open")
    };
    let db = open();
    let keyspace = KeyspaceOptions {
        value_separation_bytes: Some(APART_FROM),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", keyspace).expect("keyspace");
    for n in 0..ROWS {
        let (key, value) = row(n);
        k.put(&key, &value).expect("put");
    }
    db.settle().expect("settle");
    db.close().expect("close");
    vfs.set(true);
    let db = open();
    let k = db.existing_keyspace("k").expect("open").expect("k");
    (vfs, k, db, hints)
}

#[test]
fn points_and_short_ranges_read_what_they_need() {
    let (_vfs, k, _db, hints) = cold();
    let mut rng = Rng::new(1);
    for _ in 0..300 {
        let n = rng.below(ROWS as usize) as u32;
        let (key, value) = row(n);
        assert_eq!(k.get(&key).expect("get").as_deref(), Some(&value[..]));
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        cursor.seek(&key).expect("seek");
        assert!(cursor.valid() && cursor.key() == key);
    }
    for kind in &*hints {
        assert!(kind.random.load(SeqCst) > 0, "the kernel would guess");
        assert_eq!(kind.ahead.load(SeqCst), 0);
    }
}

#[test]
fn a_scan_is_read_ahead_in_both_directions_and_its_values_forward() {
    for direction in [Direction::Forward, Direction::Backward] {
        let (_vfs, k, _db, hints) = cold();
        let cursor = k.cursor(CursorOptions::default()).expect("cursor");
        let found = collect(cursor, direction, usize::MAX);
        let expected = (0..ROWS).map(row);
        assert!(match direction {
            Direction::Forward => found.into_iter().eq(expected),
            Direction::Backward => found.into_iter().eq(expected.rev()),
        });
        for kind in &*hints {
            let ahead = kind.ahead.load(SeqCst);
            // Some 2 MB each, in pieces of 64 to 512 KiB.
            assert!((2..40).contains(&ahead), "{ahead} hints, {direction:?}");
        }
    }
}

#[test]
fn the_inputs_of_a_compaction_are_read_ahead() {
    let (_vfs, k, _db, hints) = cold();
    for n in (0..ROWS).step_by(50) {
        k.put(&n.to_be_bytes(), b"newer").expect("put");
    }
    k.compact_range(&[], None).expect("compact");
    assert!(hints[0].ahead.load(SeqCst) > 0);
}

#[test]
fn several_keys_are_asked_of_the_device_together() {
    let (_vfs, k, db, hints) = cold();
    // Far enough from each other to be in different blocks; either all values are separated or
    // none.
    let keys = |offset: u32| -> Vec<_> { (0..20).map(|n| row(n * 200 + offset)).collect() };
    let ask = |rows: &[Row]| {
        let before: [usize; 2] = [0, 1].map(|kind| hints[kind].ahead.load(SeqCst));
        let wanted: Vec<_> = rows.iter().map(|(key, _)| key).collect();
        let found = k.multi_get(&wanted).expect("read");
        for ((_, value), found) in rows.iter().zip(found) {
            assert_eq!(found.as_deref(), Some(&value[..]));
        }
        [0, 1].map(|kind| hints[kind].ahead.load(SeqCst) - before[kind])
    };
    let reads = || db.amplification().expect("amplification").keyspaces[0].gets;
    assert_eq!(ask(&keys(5)), [20, 0]);
    assert_eq!(ask(&keys(5)), [0, 0]);
    // Once the pointers are cached, only values are requested, every time: values are never cached.
    ask(&keys(0));
    assert_eq!(ask(&keys(0)), [0, 20]);
    assert_eq!(reads(), 80, "a read counts once");
    // A single key is read without a hint.
    assert_eq!(ask(&keys(101)[..1]), [0, 0]);
    // More keys than the number of reads started together.
    ask(&(0..ROWS).step_by(7).map(row).collect::<Vec<_>>());
}
