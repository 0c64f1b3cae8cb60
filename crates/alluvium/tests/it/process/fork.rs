//! Forked children: their calls are refused, and they leave the parent's files alone.

use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::{Database, Error, KeyspaceOptions, Options};
use alluvium_testkit::fork::in_child;

use super::calls::{first_call_let_through, handles};
use super::open;
use crate::fixture::{all, text, tiny};

/// The case of the public report: a child that only drops its copies must not write into the
/// parent's log.
#[test]
fn a_child_that_drops_its_copies_leaves_the_log_to_the_parent() {
    let temp = tempfile::tempdir().expect("a directory");
    let db = Database::open(temp.path(), Options::default()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let write = |value: &[u8]| {
        for i in 0..1_000_u32 {
            k.put(&i.to_be_bytes(), value).expect("put");
        }
    };
    write(b"before");
    // Each child ends after the parent's writes have begun, one before each of two more rounds of
    // writes.
    for value in [b"after 1", b"after 2"] {
        let (db, k) = (db.clone(), k.clone());
        let code = in_child(|| {
            drop((k, db));
            0
        });
        assert_eq!(code, 0);
        write(value);
    }
    db.sync().expect("sync");
    db.close().expect("close");
    drop((k, db));
    let (db, k) = (
        Database::open(temp.path(), Options::default()).expect("open again"),
        "k",
    );
    let k = db.existing_keyspace(k).expect("look").expect("keyspace");
    let rows = all(&k);
    assert_eq!(rows.len(), 1_000);
    assert!(rows.iter().all(|(_, value)| value == b"after 2"));
}

#[test]
fn a_child_is_refused_everything_while_the_parent_writes_and_flushes() {
    let temp = tempfile::tempdir().expect("a directory");
    let (dir, store) = (temp.path().join("db"), temp.path().join("store"));
    let (db, k) = open(&dir);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u32)
            .map(|writer| {
                let (k, done) = (&k, &done);
                scope.spawn(move || {
                    let mut written = 0_u32;
                    while !done.load(Ordering::Relaxed) {
                        let key = [writer.to_be_bytes(), written.to_be_bytes()].concat();
                        k.put(&key, &[1; 100]).expect("put");
                        written += 1;
                    }
                    written
                })
            })
            .collect();
        let flusher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.flush().expect("flush");
            }
        });
        // Stops the threads even if a check below fails, because the scope waits for them.
        let stop = Stop(&done);
        for _ in 0..10 {
            let handles = handles(&db, &k, &store);
            let before = std::fs::read_dir(temp.path()).expect("list").count();
            let told = temp.path().join("let through");
            let code = in_child(|| match first_call_let_through(handles, temp.path()) {
                None => 0,
                Some(name) => i32::from(std::fs::write(&told, name).is_ok()),
            });
            let name = std::fs::read_to_string(&told).unwrap_or_default();
            assert_eq!((code, &name[..]), (0, ""), "the call was let through");
            let after = std::fs::read_dir(temp.path()).expect("list").count();
            assert_eq!(before, after, "the child left something");
            // The child has used up the handles in its own memory only; the parent's handles still
            // work.
            resolve(&db);
        }
        drop(stop);
        flusher.join().expect("the flusher");
        for writer in writers {
            assert!(writer.join().expect("a writer") > 0);
        }
    });
    k.put(b"last", b"1").expect("put");
    let rows = all(&k);
    db.close().expect("close");
    drop((k, db));
    let (db, k) = open(&dir);
    assert_eq!(all(&k), rows);
    assert!(db.verify().expect("verify").is_clean());
}

/// Tells the threads to end when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rolls back the prepared transaction that a round has left.
fn resolve(db: &Database) {
    let prepared = db.take_prepared(b"x");
    prepared.expect("prepared").rollback().expect("rollback");
}

#[test]
fn a_child_does_not_inherit_the_lock_of_the_parents_database() {
    let temp = tempfile::tempdir().expect("a directory");
    let (db, k) = open(temp.path());
    k.put(b"a", b"1").expect("put");
    // Only a refused open: a child of a process with threads must start a program before it opens
    // a database (see `docs/guide/process.md`).
    let is_locked = || {
        let opened = Database::open(temp.path(), tiny());
        matches!(opened, Err(Error::Locked { .. }))
    };
    assert_eq!(in_child(|| i32::from(!is_locked())), 0);
    db.close().expect("close");
    drop((db, k));
    let (_db, k) = open(temp.path());
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
}
