//! The working directory changes, and the directory of a database is moved or removed.
//!
//! The test that changes the whole process runs in a child process with the same test program.

use std::path::{Path, PathBuf};
use std::process::Command;

use alluvium::backup::BackupStore;
use alluvium::{Database, Error, Keyspace};

use super::open;
use crate::fixture::{all, assert_error, text, tiny};

/// Runs the test with this name in a child process. Returns true in the child, which must run it.
fn is_alone(test: &str) -> bool {
    const MARK: &str = "ALLUVIUM_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program)
        .args([
            "--exact",
            &format!("process::directories::{test}"),
            "--nocapture",
        ])
        .env(MARK, "1")
        .output()
        .expect("run it alone");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{output}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(output.contains("1 passed"), "{output}");
    false
}

fn write_and_flush(db: &Database, k: &Keyspace, value: &[u8]) {
    for key in 0..50_u32 {
        k.put(&key.to_be_bytes(), value).expect("put");
    }
    db.flush().expect("flush");
}

#[test]
fn a_changed_working_directory_leaves_open_databases_their_files() {
    if !is_alone("a_changed_working_directory_leaves_open_databases_their_files") {
        return;
    }
    let temp = tempfile::tempdir().expect("a directory");
    let places = ["one", "two"].map(|name| temp.path().join(name));
    // The same relative name in two directories.
    let opened = places.each_ref().map(|place| {
        std::fs::create_dir(place).expect("create");
        std::env::set_current_dir(place).expect("chdir");
        let (db, k) = open(Path::new("db"));
        let store = BackupStore::open("store").expect("store");
        write_and_flush(&db, &k, place.as_os_str().as_encoded_bytes());
        (db, k, store)
    });
    std::env::set_current_dir(temp.path()).expect("chdir");
    for (place, (db, k, store)) in places.iter().zip(&opened) {
        write_and_flush(db, k, place.as_os_str().as_encoded_bytes());
        // A relative path in a call is relative to the current working directory.
        let name = place.file_name().expect("a name").to_string_lossy();
        db.checkpoint(format!("copy of {name}"))
            .expect("checkpoint");
        let backup = store.create(db).expect("backup");
        assert!(place.join("store").join("000001.backup").exists());
        store
            .restore(backup.id, format!("restored {name}"))
            .expect("restore");
    }
    for (_, _, store) in &opened {
        assert_eq!(store.list().expect("list").backups.len(), 1);
    }
    for (db, ..) in &opened {
        db.close().expect("close");
    }
    drop(opened);
    for place in &places {
        let name = place.file_name().expect("a name").to_string_lossy();
        for dir in [
            place.join("db"),
            temp.path().join(format!("copy of {name}")),
            temp.path().join(format!("restored {name}")),
        ] {
            let (db, k) = open(&dir);
            let rows = all(&k);
            assert_eq!(rows.len(), 50);
            let value = place.as_os_str().as_encoded_bytes();
            assert!(rows.iter().all(|(_, found)| found == value));
            assert!(db.verify().expect("verify").is_clean());
        }
    }
    alluvium::repair("one/db", "repaired").expect("repair");
    assert!(temp.path().join("repaired").exists());
}

#[test]
fn a_moved_database_and_the_one_in_its_old_place_keep_apart() {
    let temp = tempfile::tempdir().expect("a directory");
    let [db, old, new] = ["db", "old", "new"].map(|name| temp.path().join(name));
    let (first, of_first) = open(&db);
    write_and_flush(&first, &of_first, b"first");
    let (second, of_second) = open(&new);
    write_and_flush(&second, &of_second, b"second");
    std::fs::rename(&db, &old).expect("move away");
    std::fs::rename(&new, &db).expect("move into its place");
    for _ in 0..3 {
        write_and_flush(&first, &of_first, b"first");
        write_and_flush(&second, &of_second, b"second");
    }
    first.settle().expect("settle");
    // Their locks have moved with them.
    for dir in [&db, &old] {
        assert_error!(Database::open(dir, tiny()), Error::Locked { .. });
    }
    for (db, k) in [(first, of_first), (second, of_second)] {
        db.close().expect("close");
        drop((db, k));
    }
    for (dir, value) in [(&old, b"first".to_vec()), (&db, b"second".to_vec())] {
        let (db, k) = open(dir);
        let rows = all(&k);
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|(_, found)| *found == value));
        assert!(db.verify().expect("verify").is_clean());
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("list");
    entries.map(|entry| entry.expect("entry").path()).collect()
}

#[test]
fn nothing_is_created_in_a_directory_that_was_removed() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    write_and_flush(&db, &k, b"1");
    k.put(b"in memory", b"1").expect("put");
    std::fs::remove_dir_all(&dir).expect("remove");
    assert_error!(db.flush(), Error::Poisoned(_));
    assert_error!(k.put(b"more", b"1"), Error::Poisoned(_));
    // Rows in memory are still readable.
    assert_eq!(text(&k, "in memory").as_deref(), Some("1"));
    let closed = db.close();
    assert!(closed.is_err(), "{closed:?}");
    drop((db, k));
    assert!(names(temp.path()).is_empty());
}

#[test]
fn nothing_is_created_in_the_successor_of_a_directory_that_was_removed() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    write_and_flush(&db, &k, b"1");
    k.put(b"in memory", b"1").expect("put");
    std::fs::remove_dir_all(&dir).expect("remove");
    std::fs::create_dir(&dir).expect("create");
    assert_error!(db.flush(), Error::Poisoned(_));
    drop((db, k));
    assert!(names(&dir).is_empty());
}
