//! Large values in value files, in every operation that copies, checks or repairs a database.

use std::path::Path;
use std::sync::Arc;

use alluvium::backup::BackupStore;
use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{Database, Error, KeyspaceOptions, repair_on};
use alluvium_testkit::model::State;
use alluvium_testkit::random::Rng;

use crate::driver::state_of;
use crate::fixture::{dir, open, tiny};
use crate::script::path_of;

/// Returns a database with small and large rows, and those rows.
fn with_values() -> (MemVfs, Database, State) {
    let vfs = MemVfs::new();
    let db = open(&vfs, tiny());
    let options = KeyspaceOptions {
        value_separation_bytes: Some(1_000),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", options).expect("keyspace");
    let mut rng = Rng::new(11);
    for n in 0..60_u32 {
        let bytes = if n % 3 == 0 { 3_000 } else { 30 };
        k.put(&n.to_be_bytes(), &rng.bytes(bytes)).expect("put");
    }
    db.settle().expect("settle");
    assert!(!value_files(&vfs).is_empty());
    let state = state_of(&db);
    (vfs, db, state)
}

fn value_files(vfs: &MemVfs) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".val"));
    names
}

fn rows_at(vfs: &MemVfs, path: &str) -> State {
    let db = Database::open_on(Arc::new(vfs.clone()), Path::new(path), tiny());
    let db = db.expect("open");
    assert!(db.verify().expect("verify").is_clean());
    state_of(&db)
}

fn flip(vfs: &MemVfs, name: &str, at: u64) {
    let file = vfs.open(&path_of(name)).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("read");
    byte[0] ^= 2;
    file.write_at(&byte, at).expect("write");
}

#[test]
fn a_checkpoint_has_its_large_values_also_after_the_original_has_dropped_them() {
    let (vfs, db, expected) = with_values();
    db.checkpoint("copy").expect("checkpoint");
    let k = db.existing_keyspace("k").expect("look").expect("k");
    db.drop_keyspace(&k).expect("drop");
    drop(k);
    db.close().expect("close");
    assert!(rows_at(&vfs, "copy") == expected);
}

#[test]
fn a_backup_has_its_large_values_and_copies_them_once() {
    let (vfs, db, expected) = with_values();
    let store = BackupStore::open_on(Arc::new(vfs.clone()), "backups").expect("open");
    let first = store.create(&db).expect("create");
    assert!(first.copied_bytes > 20 * 3_000);
    assert_eq!(store.create(&db).expect("create").copied_bytes, 0);
    store.delete(first.id).expect("delete");
    assert!(store.verify(2).expect("verify").is_empty());
    store.restore(2, "restored").expect("restore");
    assert!(rows_at(&vfs, "restored") == expected);
}

#[test]
fn a_damaged_value_is_found_by_verify_and_only_its_row_is_lost_in_a_repair() {
    let (vfs, db, expected) = with_values();
    let name = value_files(&vfs).remove(0);
    flip(&vfs, &name, 100);
    let report = db.verify().expect("verify");
    assert_eq!(report.damage_count, 1, "{report:?}");
    match &report.damages[..] {
        [Error::Corruption { path, .. }] => assert_eq!(*path, path_of(&name)),
        other => panic!("{other:?}"),
    }
    let store = BackupStore::open_on(Arc::new(vfs.clone()), "backups").expect("open");
    store
        .create(&db)
        .expect_err("a damaged value is not backed up");
    db.close().expect("close");
    let report = repair_on(Arc::new(vfs.clone()), dir(), "repaired").expect("repair");
    assert_eq!(report.lost.len(), 1, "{report:?}");
    let found = rows_at(&vfs, "repaired");
    let missing = expected["k"]
        .keys()
        .filter(|key| !found["k"].contains_key(*key));
    assert_eq!(missing.count(), 1);
    assert_eq!(found["k"].len() + 1, expected["k"].len());
}

#[test]
fn a_repair_copies_large_values_with_their_tables() {
    let (vfs, db, expected) = with_values();
    db.close().expect("close");
    let report = repair_on(Arc::new(vfs.clone()), dir(), "repaired").expect("repair");
    assert!(report.is_complete(), "{report:?}");
    assert!(rows_at(&vfs, "repaired") == expected);
}
