//! The lock of a directory, and the processes that hold it.

use alluvium::backup::BackupStore;
use alluvium::{Database, Error, Options};
use alluvium_testkit::fork::{Holder, in_child};

use super::open;
use crate::fixture::{assert_error, tiny};

#[test]
fn a_program_that_was_started_meanwhile_does_not_keep_the_lock() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let store = temp.path().join("store");
    let (db, k) = open(&dir);
    let backups = BackupStore::open(&store).expect("store");
    // Like another thread that starts a program: it has a copy of every descriptor until the
    // program is executed.
    let _program = Holder::start();
    db.close().expect("close");
    drop((db, k, backups));
    let again = (open(&dir), BackupStore::open(&store).expect("store"));
    drop(again);
}

#[test]
fn a_replaced_lock_file_lets_no_second_writer_in() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    for replace in [false, true] {
        let _ = std::fs::remove_file(dir.join("LOCK"));
        if replace {
            std::fs::write(dir.join("LOCK"), b"").expect("write");
        }
        assert_error!(Database::open(&dir, tiny()), Error::Locked { .. });
    }
    k.put(b"a", b"1").expect("put");
    db.close().expect("close");
    drop((db, k));
    open(&dir);
}

#[test]
fn a_refused_open_says_who_has_the_directory() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    let message = |options: Options| {
        let refused = Database::open(&dir, options);
        refused.err().expect("refused").to_string()
    };
    let read_only = || Options {
        read_only: true,
        ..tiny()
    };
    assert!(message(tiny()).contains("in use by this process"));
    assert!(message(read_only()).contains("in use by this process"));
    let code = in_child(|| {
        let refused = Database::open(&dir, tiny()).err();
        let told = refused.is_some_and(|e| e.to_string().contains("in use by another process"));
        i32::from(!told)
    });
    assert_eq!(code, 0);
    drop((db, k));
    let _reader = Database::open(&dir, read_only()).expect("open");
    assert!(message(tiny()).contains("in use by readers"));
}
