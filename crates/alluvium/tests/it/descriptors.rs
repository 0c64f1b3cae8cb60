//! More table files than the process has descriptors: files are closed and opened again. If there
//! is no descriptor at all, calls fail and the database continues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium::{Cursor, CursorOptions, Database, Error, Keyspace, KeyspaceOptions, Options};

use crate::fixture::{all, assert_error, dir};
use crate::hooks::{Call, HookVfs, wait_until};

const KEYSPACES: usize = 150;

fn unhooked() -> HookVfs {
    HookVfs::new(|_: Call, _| Ok(()))
}

fn few_files() -> Options {
    Options {
        open_files: Some(20),
        idle_after: None,
        ..Options::default()
    }
}

fn open(vfs: &HookVfs, options: Options) -> Database {
    Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open")
}

/// Creates keyspaces with a table and a value file each.
fn fill(db: &Database, value: u8) -> Vec<Keyspace> {
    let options = KeyspaceOptions {
        value_separation_bytes: Some(1_000),
        ..KeyspaceOptions::default()
    };
    let names = (0..KEYSPACES).map(|n| (format!("k{n}"), options.clone()));
    let keyspaces = db.keyspaces(&names.collect::<Vec<_>>()).expect("create");
    for keyspace in &keyspaces {
        keyspace.put(b"large", &[value; 2_000]).expect("put");
        keyspace.put(b"small", &[value; 20]).expect("put");
    }
    db.flush().expect("flush");
    keyspaces
}

fn check(keyspaces: &[Keyspace], value: u8) {
    for keyspace in keyspaces {
        let large = keyspace.get(b"large").expect("get");
        assert_eq!(large.as_deref(), Some(&[value; 2_000][..]));
        let small = keyspace.get(b"small").expect("get");
        assert_eq!(small.as_deref(), Some(&[value; 20][..]));
    }
}

#[test]
fn more_tables_than_descriptors_are_written_read_compacted_and_opened() {
    let vfs = unhooked();
    // Descriptors for tables and value files, for the log and the manifest, and for files being
    // written.
    vfs.open_files_max.store(40, Ordering::SeqCst);
    let db = open(&vfs, few_files());
    let keyspaces = fill(&db, 1);
    check(&keyspaces, 1);
    let cursors: Vec<Cursor> = (keyspaces.iter())
        .map(|keyspace| {
            let mut cursor = keyspace.cursor(CursorOptions::default()).expect("cursor");
            assert!(cursor.seek_first().expect("seek"));
            cursor
        })
        .collect();
    fill(&db, 2);
    for keyspace in &keyspaces {
        keyspace.compact_range(&[], None).expect("compact");
    }
    check(&keyspaces, 2);
    for mut cursor in cursors {
        assert_eq!(cursor.value(), [1; 2_000], "of a table that was replaced");
        assert!(cursor.next().expect("next"));
        assert_eq!(cursor.value(), [1; 20]);
    }
    assert!(db.verify().expect("verify").is_clean());
    db.close().expect("close");
    let open_now = vfs.open_files.load(Ordering::SeqCst);
    assert!(open_now < 10, "{open_now} files of a closed database");
    let db = open(&vfs, few_files());
    let name = |n| db.existing_keyspace(&format!("k{n}"));
    let keyspaces: Vec<Keyspace> = (0..KEYSPACES)
        .map(|n| name(n).expect("look").expect("keyspace"))
        .collect();
    check(&keyspaces, 2);
    assert!(vfs.open_files.load(Ordering::SeqCst) <= 40);
}

#[test]
fn kept_files_are_closed_where_the_process_has_fewer_descriptors_than_the_option_says() {
    let vfs = unhooked();
    let options = Options {
        open_files: Some(10_000),
        ..few_files()
    };
    let db = open(&vfs, options);
    let keyspaces = fill(&db, 1);
    let open_now = vfs.open_files.load(Ordering::SeqCst);
    assert!(open_now > 2 * KEYSPACES, "{open_now}");
    vfs.open_files_max.store(open_now, Ordering::SeqCst);
    fill(&db, 2);
    check(&keyspaces, 2);
}

#[test]
fn without_a_descriptor_calls_fail_and_the_database_goes_on() {
    let vfs = unhooked();
    let db = open(&vfs, few_files());
    let keyspaces = fill(&db, 1);
    for keyspace in &keyspaces {
        keyspace.put(b"small", &[2; 20]).expect("put");
    }
    // The program that uses the database takes all descriptors, again and again.
    vfs.open_files_max.store(0, Ordering::SeqCst);
    assert_error!(db.flush(), Error::Io { changed: false, .. });
    let closed = |keyspace: &&Keyspace| {
        matches!(
            keyspace.get(b"large"),
            Err(Error::Io { changed: false, .. })
        )
    };
    assert!(keyspaces.iter().filter(closed).count() > KEYSPACES / 2);
    keyspaces[0].put(b"more", b"1").expect("put");
    assert_eq!(all_or_error(&keyspaces[0]), None);
    vfs.open_files_max.store(usize::MAX, Ordering::SeqCst);
    wait_until(|| db.flush().is_ok());
    for keyspace in &keyspaces {
        let small = keyspace.get(b"small").expect("get");
        assert_eq!(small.as_deref(), Some(&[2; 20][..]));
        keyspace.compact_range(&[], None).expect("compact");
    }
    assert_eq!(all(&keyspaces[0]).len(), 3);
    let none: Vec<(String, KeyspaceOptions)> = Vec::new();
    db.keyspaces(&none).expect("not poisoned");
    db.keyspace("another", KeyspaceOptions::default())
        .expect("not poisoned");
    db.close().expect("close");
}

/// Returns the number of rows that a scan finds, or `None` if it gets no descriptor.
fn all_or_error(keyspace: &Keyspace) -> Option<usize> {
    let mut cursor = keyspace.cursor(CursorOptions::default()).expect("cursor");
    let (mut rows, mut more) = (0, cursor.seek_first());
    loop {
        match more {
            Ok(true) => rows += 1,
            Ok(false) => return Some(rows),
            Err(Error::Io { changed: false, .. }) => return None,
            Err(error) => panic!("{error}"),
        }
        more = cursor.next();
    }
}
