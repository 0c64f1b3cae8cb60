//! The measured operations.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::{CursorOptions, Database, Isolation, Keyspace, KeyspaceOptions, Options};

use crate::model::{CLIENTS, Line};

/// Operation measured at all clients.
pub struct Scene {
    pub name: &'static str,
    pub about: &'static str,
    /// Most lines that a client itself may take from other cores by writing; `None` without a bar.
    pub writes_max: Option<f64>,
    /// True if each operation is a commit, and so leads a group.
    pub leads: bool,
    /// Fills a database in the folder and returns the operation of each client.
    pub prepare: fn(&Path) -> Prepared,
}

/// Result of a scene.
pub struct Measured {
    /// Measured scene.
    pub scene: &'static Scene,
    /// One entry for each line.
    pub lines: Vec<Line>,
}

/// Result of a scene's preparation: the operation of each client.
type Prepared = Result<Vec<Operation>, Box<dyn Error>>;

/// Maker of a client's operation, called in the client's thread.
pub type Operation = Box<dyn FnOnce() -> Box<dyn FnMut()> + Send>;

/// The scenes in the order of the page. The last one is the planted shared counter.
pub const ALL: &[Scene] = &[
    Scene {
        name: "get, cached, short value",
        about: "a row with a value of 50 bytes of a settled table whose block is in the cache",
        writes_max: Some(0.0),
        leads: false,
        prepare: get_short,
    },
    Scene {
        name: "get, cached",
        about: "a row with a value of 100 bytes, which is not copied but keeps its block in memory, of a settled table whose block is in the cache",
        writes_max: Some(0.0),
        leads: false,
        prepare: get_cached,
    },
    Scene {
        name: "get, in a memtable",
        about: "a row that no flush has written yet",
        writes_max: Some(0.0),
        leads: false,
        prepare: get_in_memtable,
    },
    Scene {
        name: "get of an absent key",
        about: "a key between two keys of a settled table, which its filter excludes",
        writes_max: Some(0.0),
        leads: false,
        prepare: get_absent,
    },
    Scene {
        name: "scan step",
        about: "the next row of an open cursor",
        writes_max: Some(0.0),
        leads: false,
        prepare: scan_step,
    },
    Scene {
        name: "scan of 10",
        about: "a new cursor, its seek and ten rows",
        writes_max: None,
        leads: false,
        prepare: scan_of_10,
    },
    Scene {
        name: "get, not cached",
        about: "a row of a table that is several times the cache, which is full",
        writes_max: None,
        leads: false,
        prepare: get_missed,
    },
    Scene {
        name: "put",
        about: "a buffered commit of one row; each client has rows of its own",
        writes_max: Some(3.0),
        leads: true,
        prepare: put,
    },
    Scene {
        name: "transaction",
        about: "a snapshot transaction that reads a row for update and writes it",
        writes_max: None,
        leads: true,
        prepare: transaction,
    },
    Scene {
        name: "planted",
        about: "a cached get that also adds to a counter that all clients share",
        writes_max: None,
        leads: false,
        prepare: planted,
    },
];

const ROWS: u64 = 20_000;
const VALUE_BYTES: usize = 100;

fn key(n: u64) -> [u8; 8] {
    // Even numbers, so that there are absent keys between them.
    (2 * n).to_be_bytes()
}

fn open(
    dir: &Path,
    memory_bytes: usize,
    rows: u64,
    value_bytes: usize,
) -> Result<(Database, Keyspace), Box<dyn Error>> {
    let options = Options {
        memory_bytes,
        idle_after: None,
        ..Options::default()
    };
    let db = Database::open(dir, options)?;
    let k = db.keyspace("rows", KeyspaceOptions::default())?;
    for n in 0..rows {
        k.put(&key(n), &value(n)[..value_bytes])?;
    }
    Ok((db, k))
}

/// Opens a database like [`open`] and settles it.
fn settled(
    dir: &Path,
    memory_bytes: usize,
    rows: u64,
    value_bytes: usize,
) -> Result<(Database, Keyspace), Box<dyn Error>> {
    let (db, k) = open(dir, memory_bytes, rows, value_bytes)?;
    db.settle()?;
    Ok((db, k))
}

/// Returns a value that no codec makes smaller.
fn value(n: u64) -> [u8; VALUE_BYTES] {
    let mut state = n;
    std::array::from_fn(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
}

/// Row numbers in an order that looks random, other ones for each client.
struct Numbers(u64);

impl Numbers {
    fn of(client: usize) -> Numbers {
        Numbers(client as u64 * 1_000_003)
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// Returns an operation for each client. `make` gets the client's number, and keeps what it needs
/// of the database alive.
fn for_all(make: impl Fn(usize) -> Box<dyn FnMut()> + Send + Sync + 'static) -> Vec<Operation> {
    let make = Arc::new(make);
    let operation = |client| -> Operation {
        let make = Arc::clone(&make);
        Box::new(move || make(client))
    };
    (0..CLIENTS).map(operation).collect()
}

fn found<T>(value: alluvium::Result<Option<T>>) -> bool {
    value.expect("the read succeeds").is_some()
}

fn gets(db: Database, k: Keyspace, rows: u64, odd: u64) -> Vec<Operation> {
    for n in 0..rows {
        assert!(found(k.get(&key(n))));
    }
    let held = Arc::new(db);
    for_all(move |client| {
        let (held, k, mut numbers) = (Arc::clone(&held), k.clone(), Numbers::of(client));
        Box::new(move || {
            let key = (u64::from_be_bytes(key(numbers.next(rows))) + odd).to_be_bytes();
            assert_eq!(found(k.get(&key)), odd == 0);
            let _ = &held;
        })
    })
}

fn get_short(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES / 2)?;
    Ok(gets(db, k, ROWS, 0))
}

fn get_cached(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES)?;
    Ok(gets(db, k, ROWS, 0))
}

fn get_in_memtable(dir: &Path) -> Prepared {
    let (db, k) = open(dir, 256 << 20, ROWS, VALUE_BYTES)?;
    Ok(gets(db, k, ROWS, 0))
}

fn get_absent(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES)?;
    Ok(gets(db, k, ROWS, 1))
}

fn get_missed(dir: &Path) -> Prepared {
    let rows = 8 * ROWS;
    let (db, k) = settled(dir, 8 << 20, rows, VALUE_BYTES)?;
    Ok(gets(db, k, rows, 0))
}

fn scan_step(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES)?;
    let held = Arc::new(db);
    Ok(for_all(move |_| {
        let held = Arc::clone(&held);
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        assert!(cursor.seek_first().expect("seek"));
        Box::new(move || {
            assert!(cursor.next().expect("next"));
            let _ = &held;
        })
    }))
}

fn scan_of_10(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES)?;
    let held = Arc::new(db);
    Ok(for_all(move |client| {
        let (held, k, mut numbers) = (Arc::clone(&held), k.clone(), Numbers::of(client));
        Box::new(move || {
            let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
            assert!(cursor.seek(&key(numbers.next(ROWS - 10))).expect("seek"));
            for _ in 0..9 {
                assert!(cursor.next().expect("next"));
            }
            let _ = &held;
        })
    }))
}

fn put(dir: &Path) -> Prepared {
    let (db, k) = open(dir, 256 << 20, ROWS, VALUE_BYTES)?;
    let held = Arc::new(db);
    Ok(for_all(move |client| {
        let (held, k, mut n) = (Arc::clone(&held), k.clone(), client as u64 * 1_000_000);
        Box::new(move || {
            n += 1;
            k.put(&key(n), &[7; 100]).expect("put");
            let _ = &held;
        })
    }))
}

fn transaction(dir: &Path) -> Prepared {
    let (db, k) = open(dir, 256 << 20, ROWS, VALUE_BYTES)?;
    let held = Arc::new(db);
    Ok(for_all(move |client| {
        let (db, k, mut numbers) = (Arc::clone(&held), k.clone(), Numbers::of(client));
        Box::new(move || {
            let transaction = db.begin(Isolation::Snapshot).expect("begin");
            // Rows of this client alone.
            let n = numbers.next(ROWS / CLIENTS as u64) * CLIENTS as u64 + client as u64;
            let row = transaction.get_for_update(&k, &key(n)).expect("get");
            assert!(row.is_some());
            transaction.put(&k, &key(n), &[8; 100]).expect("put");
            transaction.commit().expect("commit");
        })
    }))
}

/// Counter that no operation should have.
static SHARED: AtomicU64 = AtomicU64::new(0);

fn planted(dir: &Path) -> Prepared {
    let (db, k) = settled(dir, 64 << 20, ROWS, VALUE_BYTES)?;
    let held = Arc::new(db);
    Ok(for_all(move |client| {
        let (held, k, mut numbers) = (Arc::clone(&held), k.clone(), Numbers::of(client));
        Box::new(move || {
            assert!(found(k.get(&key(numbers.next(ROWS)))));
            SHARED.fetch_add(1, Ordering::Relaxed);
            let _ = &held;
        })
    }))
}
