//! Commits while the log is in a sync: they go on, and no reader sees what is not durable yet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use alluvium::vfs::CrashOptions;
use alluvium::{
    Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    PreparedTransaction, TransactionOptions, WriteBatch, WriteOptions,
};

use crate::fixture::{assert_error, contents, dir, open, segments, text, tiny};
use crate::hooks::{Call, HookVfs, succeeds, wait_until};

/// Database whose next sync of the log waits until the test ends it.
struct Held {
    vfs: HookVfs,
    db: Database,
    k: Keyspace,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// True once a sync waits.
    entered: AtomicBool,
    open: AtomicBool,
    fails: AtomicBool,
}

impl Held {
    fn new() -> Held {
        let gate = Arc::new(Gate::default());
        let own = Arc::clone(&gate);
        let vfs = HookVfs::new(move |call, path| {
            if call != Call::Sync || !path.to_string_lossy().ends_with(".wal") {
                return Ok(());
            }
            own.entered.store(true, Ordering::SeqCst);
            wait_until(|| own.open.load(Ordering::SeqCst));
            match own.fails.load(Ordering::SeqCst) {
                true => Err(io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        });
        let options = Options {
            memtable_bytes: None,
            // Only the test's own syncs.
            sync_interval: Duration::from_secs(3600),
            idle_after: None,
            ..tiny()
        };
        let db = Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        vfs.set(true);
        Held { vfs, db, k, gate }
    }

    /// Writes the row `synced` on a thread, and returns while its sync is held.
    fn put_synced<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> ScopedJoinHandle<'scope, alluvium::Result<()>> {
        let thread = scope.spawn(|| put_synced(&self.db, &self.k, "synced"));
        self.wait();
        thread
    }

    /// Waits until a sync is held.
    fn wait(&self) {
        wait_until(|| self.gate.entered.load(Ordering::SeqCst));
    }

    /// Returns true if a commit of the key is in the log.
    fn is_logged(&self, key: &str) -> bool {
        let logs = segments(&self.vfs.files);
        let mut logs = logs.iter().map(|name| contents(&self.vfs.files, name));
        logs.any(|log| log.windows(key.len()).any(|part| part == key.as_bytes()))
    }

    fn end(&self) {
        self.gate.open.store(true, Ordering::SeqCst);
    }

    /// Ends the sync when a failed check unwinds: the scope waits for the threads.
    fn end_at_last(&self) -> impl Drop + use<> {
        struct End(Arc<Gate>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.open.store(true, Ordering::SeqCst);
            }
        }
        End(Arc::clone(&self.gate))
    }

    /// Prepares a write of a row without a sync.
    fn prepared(&self, key: &str) -> PreparedTransaction {
        let txn = self.db.begin_with(TransactionOptions::default());
        let txn = txn.expect("begin");
        txn.put(&self.k, key.as_bytes(), b"1").expect("put");
        let prepared = txn.prepare_with(key.as_bytes(), Durability::Buffered);
        prepared.expect("prepare")
    }
}

/// Writes a row and waits for its sync.
fn put_synced(db: &Database, k: &Keyspace, key: &str) -> alluvium::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(k, key.as_bytes(), b"1")?;
    let options = WriteOptions {
        durability: Some(Durability::Sync),
        ..WriteOptions::default()
    };
    db.write_with(&batch, &options)
}

#[test]
fn a_prepare_that_waits_for_the_device_holds_up_no_commit() {
    let held = Held::new();
    let (db, k) = (&held.db, &held.k);
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let txn = db.begin_with(TransactionOptions::default()).expect("begin");
        txn.put(k, b"prepared", b"1").expect("put");
        let preparing = scope.spawn(move || txn.prepare(b"x").expect("prepare"));
        held.wait();
        k.put(b"plain", b"1").expect("put");
        assert_eq!(text(k, "plain").as_deref(), Some("1"));
        let mut other = held.prepared("other");
        other.commit_ordered().expect("commit");
        assert_eq!(text(k, "other").as_deref(), Some("1"));
        other.commit().expect("finish");
        assert!(!preparing.is_finished());
        held.end();
        let mut prepared = preparing.join().expect("no panic");
        assert_eq!(text(k, "prepared"), None);
        prepared.commit_ordered().expect("commit");
        assert_eq!(text(k, "prepared").as_deref(), Some("1"));
    });
}

#[test]
fn no_commit_is_seen_before_the_sync_of_an_earlier_one() {
    let held = Held::new();
    let (db, k) = (&held.db, &held.k);
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let mut ordered = held.prepared("ordered");
        let synced = held.put_synced(scope);
        let before = db.visible_seqno();
        // Returns, but is not visible, and keeps its row from others.
        ordered.commit_ordered().expect("commit");
        let late = scope.spawn(|| {
            k.put(b"late", b"1").expect("put");
            text(k, "late")
        });
        wait_until(|| held.is_logged("late"));
        assert_eq!(db.visible_seqno(), before);
        for key in ["synced", "ordered", "late"] {
            assert_eq!(text(k, key), None, "{key}");
        }
        let impatient = TransactionOptions {
            isolation: Isolation::ReadCommitted,
            lock_timeout: Some(Duration::ZERO),
            ..TransactionOptions::default()
        };
        let other = db.begin_with(impatient).expect("begin");
        assert_error!(other.put(k, b"ordered", b"2"), Error::LockTimeout { .. });
        held.end();
        ordered.commit().expect("finish");
        synced.join().expect("no panic").expect("put");
        let own = late.join().expect("no panic");
        assert_eq!(own.as_deref(), Some("1"), "not seen by its own client");
        for key in ["synced", "ordered"] {
            assert_eq!(text(k, key).as_deref(), Some("1"), "{key}");
        }
        other.put(k, b"ordered", b"2").expect("the row is free");
    });
}

#[test]
fn no_prepared_writer_is_left_once_its_commit_is_visible() {
    let held = Held::new();
    let (db, k) = (&held.db, &held.k);
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let mut ordered = held.prepared("ordered");
        let synced = held.put_synced(scope);
        ordered.commit_ordered().expect("commit");
        let looking = scope.spawn(|| {
            assert_eq!(db.prepared_writer(k).expect("look"), None);
            text(k, "ordered")
        });
        // Meanwhile the look begins.
        let late = scope.spawn(|| k.put(b"late", b"1"));
        wait_until(|| held.is_logged("late"));
        assert!(!looking.is_finished());
        held.end();
        late.join().expect("no panic").expect("put");
        let seen = looking.join().expect("no panic");
        assert_eq!(seen.as_deref(), Some("1"));
        ordered.commit().expect("finish");
        synced.join().expect("no panic").expect("put");
    });
}

#[test]
fn a_handle_that_is_dropped_after_its_ordered_commit_frees_its_rows_once_it_is_visible() {
    let held = Held::new();
    let k = &held.k;
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let mut ordered = held.prepared("row");
        let synced = held.put_synced(scope);
        ordered.commit_ordered().expect("commit");
        let dropped = scope.spawn(move || drop(ordered));
        held.end();
        dropped.join().expect("no panic");
        synced.join().expect("no panic").expect("put");
        assert_eq!(text(k, "row").as_deref(), Some("1"));
        k.put(b"row", b"2").expect("the row is free");
    });
    let mut decided = held.prepared("x");
    decided.commit_ordered().expect("commit");
    assert_error!(decided.rollback(), Error::InvalidArgument(_));
}

#[test]
fn after_a_failed_sync_nothing_that_waited_for_it_is_seen_or_acknowledged() {
    let held = Held::new();
    let k = &held.k;
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let mut ordered = held.prepared("ordered");
        let synced = held.put_synced(scope);
        ordered.commit_ordered().expect("commit");
        let late = scope.spawn(|| k.put(b"late", b"1"));
        wait_until(|| held.is_logged("late"));
        held.gate.fails.store(true, Ordering::SeqCst);
        held.end();
        assert!(synced.join().expect("no panic").is_err());
        assert!(late.join().expect("no panic").is_err());
        assert_error!(ordered.commit(), Error::Poisoned(_));
        for key in ["synced", "ordered", "late"] {
            assert_eq!(text(k, key), None, "{key}");
        }
        assert_error!(k.put(b"next", b"1"), Error::Poisoned(_));
    });
    held.vfs.set(false);
}

#[test]
fn commits_continue_while_a_flush_syncs_prepares_that_a_seal_has_written_again() {
    let held = Held::new();
    let prepared = held.prepared("prepared");
    held.k.put(b"before", b"1").expect("put");
    thread::scope(|scope| {
        let _end = held.end_at_last();
        let flush = scope.spawn(|| held.db.flush());
        held.wait();
        let put = scope.spawn(|| held.k.put(b"meanwhile", b"1"));
        succeeds("committed", || put.is_finished());
        held.end();
        flush.join().expect("thread").expect("flush");
        put.join().expect("thread").expect("put");
    });
    // The flush has removed the segment of the prepare.
    let lost = held.vfs.files.crash(1, CrashOptions::LOSE_UNSYNCED);
    let lost = open(&lost, tiny());
    assert_eq!(lost.prepared().expect("list"), [b"prepared"]);
    drop(prepared);
}
