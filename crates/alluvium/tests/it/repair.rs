//! Repair: the rows it saves from a damaged database, and its report of the lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Error, KeyspaceOptions, RepairReport, repair_on};
use alluvium_testkit::model::State;
use alluvium_testkit::random::Rng;

use crate::driver::{chain, state_of};
use crate::fixture::{assert_error, contents, database, dir, table_files, tiny};
use crate::script::path_of;

fn target() -> &'static Path {
    Path::new("repaired")
}

fn repair(vfs: &MemVfs) -> alluvium::Result<RepairReport> {
    repair_on(Arc::new(vfs.clone()), dir(), target())
}

/// Repairs, and returns the report and the state of the new database, which must be sound.
fn repaired(vfs: &MemVfs, context: &str) -> (RepairReport, State) {
    let report = repair(vfs).unwrap_or_else(|e| panic!("{context}: {}", chain(&e)));
    let db = Database::open_on(Arc::new(vfs.clone()), target(), tiny()).expect("open");
    let found = db.verify().expect("verify");
    assert_eq!(found.damage_count, 0, "{context}: {found:?}");
    let state = state_of(&db);
    db.settle().expect("settle");
    assert_eq!(state_of(&db), state, "{context}");
    db.close().expect("close");
    (report, state)
}

/// Returns a closed database with tables above and in the last level, range deletes, two keyspaces
/// and a log; and its rows.
fn closed() -> (MemVfs, State) {
    let (vfs, db, k) = database(tiny());
    let other = db.keyspace("other", KeyspaceOptions::default());
    let other = other.expect("keyspace");
    let mut rng = Rng::new(8);
    let mut fill = |from: u32, to: u32| {
        for n in from..to {
            let key = (n % 150).wrapping_mul(2_654_435_761).to_be_bytes();
            k.put(&key, &rng.bytes(60)).expect("put");
            other.put(&n.to_be_bytes(), &rng.bytes(20)).expect("put");
        }
    };
    fill(0, 150);
    db.settle().expect("settle");
    fill(150, 180);
    k.delete_range(&[1], &[20]).expect("delete a range");
    k.delete(&0_u32.to_be_bytes()).expect("delete");
    db.flush().expect("flush");
    fill(180, 195);
    let state = state_of(&db);
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    drop(db);
    (left, state)
}

fn copy_of(vfs: &MemVfs) -> MemVfs {
    vfs.crash(0, CrashOptions::PROCESS_KILLED)
}

/// Returns the tables that the manifest names: an interrupted compaction may have left others.
fn named_tables(vfs: &MemVfs) -> Vec<String> {
    let report = repair(&copy_of(vfs)).expect("repair");
    let mut names = table_files(vfs);
    names.retain(|name| !report.unnamed_tables.contains(name));
    names
}

fn everything(vfs: &MemVfs) -> BTreeMap<String, Vec<u8>> {
    let names = vfs.list(dir()).expect("list").into_iter();
    names
        .map(|name| (name.clone(), contents(vfs, &name)))
        .collect()
}

fn flip(vfs: &MemVfs, name: &str, at: u64) {
    let file = vfs.open(&path_of(name)).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("read");
    byte[0] ^= 1 << (at % 8);
    file.write_at(&byte, at).expect("write");
}

/// Checks that every changed row is in a reported range.
fn check_losses(expected: &State, found: &State, report: &RepairReport, context: &str) {
    let names: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for name in names {
        let (old, new) = (&expected[name], &found[name]);
        for key in old.keys().chain(new.keys()) {
            let told = report
                .lost
                .iter()
                .any(|lost| lost.keyspace == *name && lost.from <= *key && *key <= lost.to);
            let key_shown = key.escape_ascii();
            assert!(
                told || old.get(key) == new.get(key),
                "{context}: {name} {key_shown}"
            );
        }
    }
}

#[test]
fn a_whole_database_is_copied_and_not_changed() {
    let (vfs, expected) = closed();
    let before = everything(&vfs);
    let named = named_tables(&vfs).len() as u64;
    let (report, state) = repaired(&vfs, "whole");
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.tables_copied, named);
    assert!(report.commits_replayed > 0 && report.lost.is_empty());
    assert!(state == expected);
    assert!(everything(&vfs) == before);
}

#[test]
fn all_rows_outside_of_the_named_ranges_survive_damage_to_any_part_of_a_table() {
    let (closed, expected) = closed();
    let mut kept_some = 0;
    for name in named_tables(&closed) {
        let len = contents(&closed, &name).len() as u64;
        for at in (0..len).step_by(997).chain([len - 100, len - 250]) {
            let vfs = copy_of(&closed);
            flip(&vfs, &name, at);
            let context = format!("{name} byte {at}");
            let (report, state) = repaired(&vfs, &context);
            assert!(!report.damages.is_empty(), "{context}");
            check_losses(&expected, &state, &report, &context);
            kept_some += report.tables_salvaged;
        }
    }
    assert!(kept_some > 10, "good blocks of damaged tables are saved");
}

#[test]
fn a_bit_that_is_read_wrongly_once_is_told_or_makes_no_difference() {
    let (left, expected) = closed();
    // Ends: with the first number that is larger than the reads of a repair.
    for nth in 1.. {
        let vfs = copy_of(&left);
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        faults.arm(Fault {
            calls: vec![IoCall::Read],
            nth,
            sticky: false,
            effect: FaultEffect::FlippedBit,
        });
        let report = repair_on(Arc::new(faults.clone()), dir(), target());
        if !faults.tripped() {
            assert!(nth > 20, "{nth} reads");
            return;
        }
        let report = match report {
            Err(Error::Corruption { .. } | Error::NewerFormat { .. } | Error::Poisoned(_)) => {
                continue;
            }
            other => other.unwrap_or_else(|e| panic!("read {nth}: {}", chain(&e))),
        };
        let db = Database::open_on(Arc::new(vfs), target(), tiny());
        let db = db.unwrap_or_else(|e| panic!("read {nth}: {}", chain(&e)));
        let found = db.verify().expect("verify");
        assert_eq!(found.damage_count, 0, "read {nth}: {found:?}");
        if report.is_complete() {
            assert_eq!(state_of(&db), expected, "read {nth}");
        }
    }
}

#[test]
fn a_missing_table_is_named_with_its_range() {
    let (closed, expected) = closed();
    for name in named_tables(&closed) {
        let vfs = copy_of(&closed);
        vfs.remove(&path_of(&name)).expect("remove");
        let (report, state) = repaired(&vfs, &name);
        assert_eq!(report.tables_lost, 1);
        assert!(report.lost.iter().all(|lost| lost.table == name));
        check_losses(&expected, &state, &report, &name);
    }
}

#[test]
fn a_damaged_log_is_replayed_up_to_the_damage() {
    let (vfs, db, k) = database(tiny());
    k.put(b"flushed", b"1").expect("put");
    db.flush().expect("flush");
    for n in 0..40_u32 {
        k.put(&n.to_be_bytes(), &[5; 50]).expect("put");
        db.sync().expect("sync");
    }
    let closed = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    drop(db);
    let mut names = closed.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".wal"));
    let (mut shortest, mut longest) = (usize::MAX, 0);
    for name in names {
        let bytes = contents(&closed, &name);
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        for at in (0..used as u64).step_by(101) {
            let vfs = copy_of(&closed);
            flip(&vfs, &name, at);
            let (report, mut state) = repaired(&vfs, &format!("{name} byte {at}"));
            let mut rows = state.remove("k").expect("k");
            assert!(rows.remove(&b"flushed"[..]).is_some());
            let prefix = (0..rows.len() as u32).map(|n| n.to_be_bytes().to_vec());
            assert!(rows.keys().cloned().eq(prefix), "{name} byte {at}");
            let told = rows.len() >= 39 || !report.damages.is_empty();
            assert!(told, "{name} byte {at}: {} rows", rows.len());
            shortest = shortest.min(rows.len());
            longest = longest.max(rows.len());
        }
    }
    assert!(shortest < 10 && longest > 30, "{shortest} {longest}");
}

#[test]
fn without_a_pointer_the_newest_manifest_is_taken() {
    let (vfs, expected) = closed();
    vfs.remove(&path_of("CURRENT")).expect("remove");
    let (report, state) = repaired(&vfs, "no pointer");
    assert!(!report.is_complete());
    assert!(state == expected);
}

#[test]
fn a_damaged_manifest_gives_the_last_good_edits_or_an_error_and_never_a_panic() {
    let (closed, _) = closed();
    let mut names = closed.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".manifest"));
    let name = names.into_iter().max().expect("a manifest");
    let bytes = contents(&closed, &name);
    let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    for at in (0..used as u64).step_by(211) {
        let vfs = copy_of(&closed);
        flip(&vfs, &name, at);
        match repair(&vfs) {
            Ok(report) => assert!(!report.damages.is_empty() || at + 40 >= used as u64),
            Err(Error::Corruption { .. }) => assert!(!vfs.exists(target()).expect("look")),
            Err(other) => panic!("byte {at}: {}", chain(&other)),
        }
    }
}

#[test]
fn a_database_in_use_and_a_target_that_exists_are_refused() {
    let (vfs, db, _) = database(tiny());
    assert_error!(repair(&vfs), Error::Locked { .. });
    db.close().expect("close");
    vfs.create_dir_all(target()).expect("directory");
    assert_error!(repair(&vfs), Error::InvalidArgument(_));
    vfs.remove_dir(target()).expect("remove");
    assert!(repair(&vfs).expect("repair").is_complete());
}
