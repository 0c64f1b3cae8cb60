//! Tests of the events that a listener receives.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use alluvium::{
    Database, Error, Event, EventListener, Keyspace, KeyspaceOptions, Options, WriteBatch,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{all, assert_error, dir, tiny};
use crate::hooks::{Call, HookVfs};

/// Records events as text without sizes and times.
#[derive(Default)]
struct Listener {
    told: Mutex<Vec<String>>,
    panics: AtomicBool,
}

impl EventListener for Listener {
    fn on_event(&self, event: &Event) {
        let text = match event {
            Event::FlushBegin { .. } => "flush begins".to_owned(),
            Event::FlushEnd { .. } => "flush ends".to_owned(),
            Event::CompactionBegin {
                keyspace,
                last_level,
                input_bytes,
            } => {
                assert!(*input_bytes > 0);
                format!("merge of {keyspace} begins, last level {last_level}")
            }
            Event::CompactionEnd { error: None, .. } => "merge ends".to_owned(),
            Event::TableCreated { table, .. } => format!("table {table} is made"),
            Event::TableDeleted { table } => format!("table {table} is gone"),
            Event::WriteDelayBegin => "delay begins".to_owned(),
            Event::WriteDelayEnd => "delay ends".to_owned(),
            Event::NoSpaceBegin { .. } => "no space".to_owned(),
            Event::NoSpaceEnd => "space again".to_owned(),
            Event::Poisoned { cause } => format!("poisoned: {}", crate::driver::chain(cause)),
            other => panic!("not expected here: {other:?}"),
        };
        self.told.lock().expect("not poisoned").push(text);
        assert!(
            !self.panics.load(Ordering::SeqCst),
            "this panic is part of the test"
        );
    }
}

impl Listener {
    fn told(&self) -> Vec<String> {
        self.told.lock().expect("not poisoned").clone()
    }

    /// Waits for an event that begins with `text`, forever if none comes.
    fn wait_for(&self, text: &str) {
        while !self.told().iter().any(|told| told.starts_with(text)) {
            std::thread::yield_now();
        }
    }
}

fn database(vfs: &HookVfs, options: Options) -> (Arc<Listener>, Database, Keyspace) {
    let listener = Arc::new(Listener::default());
    let options = Options {
        event_listener: Some(listener.clone()),
        idle_after: None,
        ..options
    };
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    (listener, db, k)
}

fn put_rows(db: &Database, k: &Keyspace, rows: u32, rng: &mut Rng) {
    let mut batch = WriteBatch::new();
    for n in 0..rows {
        batch
            .put(k, &n.to_be_bytes(), &rng.bytes(100))
            .expect("put");
    }
    db.write(&batch).expect("write");
}

#[test]
fn flushes_compactions_and_tables_are_reported_in_order() {
    let vfs = HookVfs::new(|_, _| Ok(()));
    let (listener, db, k) = database(&vfs, tiny());
    put_rows(&db, &k, 200, &mut Rng::new(1));
    db.settle().expect("settle");
    db.close().expect("close");
    drop((db, k));
    let told = listener.told();
    // The table of a flush may be compacted before the flush thread reports the end of the flush.
    let in_order = |expected: &[&str]| {
        let places = expected.iter().map(|e| told.iter().position(|t| t == e));
        let places: Vec<_> = places.collect();
        assert!(places.iter().all(Option::is_some), "{expected:?}: {told:?}");
        assert!(places.is_sorted(), "{expected:?}: {told:?}");
    };
    in_order(&["flush begins", "table 1 is made", "flush ends"]);
    in_order(&[
        "table 1 is made",
        "merge of k begins, last level true",
        "table 2 is made",
        "merge ends",
    ]);
    in_order(&["table 2 is made", "table 1 is gone"]);
}

#[test]
fn a_listener_that_panics_or_closes_the_database_does_no_harm() {
    let vfs = HookVfs::new(|_, _| Ok(()));
    let (listener, db, k) = database(&vfs, tiny());
    listener.panics.store(true, Ordering::SeqCst);
    put_rows(&db, &k, 200, &mut Rng::new(1));
    db.settle().expect("settle");
    listener.wait_for("merge ends");
    assert_eq!(all(&k).len(), 200);
    db.close().expect("close");

    struct Closes(Mutex<Option<Database>>);
    impl EventListener for Closes {
        fn on_event(&self, _: &Event) {
            if let Some(db) = self.0.lock().expect("not poisoned").take() {
                db.close().expect("close");
            }
        }
    }
    let closes = Arc::new(Closes(Mutex::new(None)));
    let options = Options {
        event_listener: Some(closes.clone()),
        ..tiny()
    };
    let db = Database::open_on(vfs.files.clone(), dir(), options).expect("open");
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    *closes.0.lock().expect("not poisoned") = Some(db.clone());
    k.put(b"a", b"1").expect("put");
    // The listener may close the database first, so this may return `Closed`.
    let _ = db.flush();
    while k.get(b"a").is_ok() {
        std::thread::yield_now();
    }
    assert_error!(k.get(b"a"), Error::Closed);
}

#[test]
fn a_full_device_and_its_end_are_told_once_each() {
    let vfs = HookVfs::failing(Call::Create, ".sst", ErrorKind::StorageFull);
    let (listener, db, k) = database(&vfs, tiny());
    k.put(b"a", b"1").expect("put");
    vfs.set(true);
    assert_error!(db.flush(), Error::NoSpace { .. });
    assert_error!(db.flush(), Error::NoSpace { .. });
    vfs.set(false);
    db.flush().expect("flush");
    listener.wait_for("space again");
    let told = listener.told();
    for once in ["no space", "space again"] {
        assert_eq!(told.iter().filter(|t| *t == once).count(), 1, "{told:?}");
    }
}

#[test]
fn the_first_failure_is_told_once() {
    let vfs = HookVfs::failing(Call::Sync, ".wal", ErrorKind::Other);
    let (listener, db, k) = database(&vfs, tiny());
    vfs.set(true);
    // The sync thread may fail first, so the put may succeed or not.
    let _ = k.put(b"a", b"1");
    assert_error!(db.sync(), Error::Poisoned(_));
    assert_error!(k.put(b"b", b"1"), Error::Poisoned(_));
    listener.wait_for("poisoned: ");
    let _ = db.close();
    let told = listener.told();
    let poisoned = told.iter().filter(|t| t.starts_with("poisoned")).count();
    assert_eq!(poisoned, 1, "{told:?}");
}

#[test]
fn delays_of_writers_are_told_from_beginning_to_end() {
    let go = Arc::new(AtomicBool::new(false));
    let hook_go = Arc::clone(&go);
    // Flushes wait here until the test sets `go`.
    let vfs = HookVfs::new(move |call, path| {
        while call == Call::Create
            && path.to_string_lossy().ends_with(".sst")
            && !hook_go.load(Ordering::SeqCst)
        {
            std::thread::yield_now();
        }
        Ok(())
    });
    let options = Options {
        memtable_bytes: Some(500_000),
        ..tiny()
    };
    let (listener, db, k) = database(&vfs, options);
    vfs.set(true);
    let mut rng = Rng::new(1);
    // The delay begins when the write memory is full. That is far below the ceiling at which
    // commits wait for a flush, here forever.
    while !listener.told().contains(&"delay begins".to_owned()) {
        put_rows(&db, &k, 300, &mut rng);
    }
    go.store(true, Ordering::SeqCst);
    db.settle().expect("settle");
    listener.wait_for("delay ends");
    let stats = db.stats().expect("stats");
    assert!(stats.flush_us.total() > 0 && stats.flush_bytes.quantile(1.0) > Some(500_000));
    assert!(stats.commit_us.total() > 10);
}
