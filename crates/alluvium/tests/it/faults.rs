//! Every I/O call of a short history fails once, or from then on: nothing panics, nothing
//! acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs};
use alluvium::{Durability, Error, KeyspaceOptions};
use alluvium_testkit::op::Op;

use crate::driver::state_of;
use crate::fixture::{assert_error, database, dir, open, table_files, text, tiny};
use crate::script::{Played, options, play};

/// Plays the script with the fault armed and checks every invariant. Returns false if the fault
/// never tripped.
fn visit(durability: Durability, fault: &Fault) -> bool {
    let context = format!("{durability:?} {fault:?}");
    let options = options(durability);
    let vfs = MemVfs::new();
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    faults.arm(fault.clone());
    let played = play(&faults, &options, &mut || faults.disarm());
    let tripped = faults.tripped();
    if let (Some((op, error)), Some(db)) = (&played.failed, &played.db) {
        stopped_writing_and_reads_on(&played, &faults, db, (op, error), fault.sticky, &context);
    }
    faults.disarm();
    let everything = played.model.last_commit();
    let killed = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    played.check(&killed, &options, everything, &context);
    let lost = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    played.check(&lost, &options, played.durable, &context);
    drop(played.db.as_ref().map(|db| db.close()));
    tripped
}

/// Returns true if the failure of this call must stop the database: only a write or a sync of the
/// log, the manifest or the directory does.
pub fn must_stop(call: IoCall, path: &std::path::Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of_log = name.ends_with(".wal");
    let is_of_manifest = name.ends_with(".manifest") || name.starts_with("CURRENT");
    match call {
        IoCall::SyncDir => true,
        IoCall::Write | IoCall::Sync => is_of_log || is_of_manifest,
        IoCall::Rename => is_of_manifest,
        _ => false,
    }
}

/// Writes, flushes and compacts.
fn use_further(db: &alluvium::Database) -> alluvium::Result<()> {
    db.sync()?;
    let more = db.keyspace("more", KeyspaceOptions::default())?;
    more.put(b"more", b"1")?;
    db.flush()?;
    db.settle()?;
    db.drop_keyspace(&more)
}

/// Uses the database again if the error of background work that began before the end of the fault
/// reaches the first calls. Each background thread has one such try at most.
fn use_further_after_background_failures(db: &alluvium::Database) -> alluvium::Result<()> {
    const BACKGROUND_THREADS: usize = 2;
    for _ in 0..BACKGROUND_THREADS {
        match use_further(db) {
            Err(Error::Io { changed: false, .. }) => {}
            result => return result,
        }
    }
    use_further(db)
}

fn stopped_writing_and_reads_on(
    played: &Played,
    faults: &FaultVfs,
    db: &alluvium::Database,
    (op, error): (&Op, &Error),
    is_sticky: bool,
    context: &str,
) {
    faults.disarm();
    assert_eq!(
        state_of(db),
        played.model.state(),
        "{context}: reads after {op}: {error}"
    );
    let (call, path) = faults.first_failure().expect("a call has failed");
    let may_go_on = is_sticky || !must_stop(call, &path);
    if may_go_on {
        match use_further_after_background_failures(db) {
            Ok(()) => return,
            // With many failures, a later one may have stopped the database, also one in a
            // background thread.
            Err(Error::Poisoned(_)) if is_sticky => {}
            Err(other) => {
                let (path, other) = (path.display(), crate::driver::chain(&other));
                panic!("{context}: {call:?} of {path} stopped it: {error}; then {other}");
            }
        }
    }
    // No caller has been promised these tables yet, so an ingest that cannot write them fails
    // alone.
    if matches!(op, Op::Ingest(_)) && db.sync().is_ok() {
        return;
    }
    let poisoned = |result: alluvium::Result<()>| match result {
        Err(Error::Poisoned(cause)) => {
            assert!(
                !matches!(*cause, Error::Poisoned(_)),
                "{context}: the first cause"
            );
        }
        other => panic!("{context}: {other:?} after {op}: {error}"),
    };
    // A name that is new: `use_further` may have created the other keyspace before the failure.
    poisoned(db.keyspace("another", KeyspaceOptions::default()).map(drop));
    if let Some(a) = db.existing_keyspace("a").expect("look") {
        poisoned(a.put(b"more", b"1"));
    }
    poisoned(db.flush());
}

/// Threads that try different calls in parallel, because some cases wait a second for space.
const WORKERS: usize = 6;

/// Fails call 1, 2, 3 and so on, until the script ends before the fault trips.
fn visit_all(durability: Durability, sticky: bool, effect: FaultEffect, calls: &[IoCall]) {
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(u64::MAX);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth > last.load(Ordering::Acquire) {
                        return;
                    }
                    let fault = Fault {
                        calls: calls.to_vec(),
                        nth,
                        sticky,
                        effect,
                    };
                    if !visit(durability, &fault) {
                        last.fetch_min(nth, Ordering::AcqRel);
                    }
                }
            });
        }
    });
    assert!(last.into_inner() > 10, "the script makes calls");
}

#[test]
fn one_failing_call_loses_nothing_under_sync() {
    visit_all(Durability::Sync, false, FaultEffect::Error, &[]);
}

#[test]
fn one_failing_call_loses_nothing_under_buffered() {
    visit_all(Durability::Buffered, false, FaultEffect::Error, &[]);
}

#[test]
fn a_device_that_fails_for_good_loses_nothing() {
    for durability in [Durability::Sync, Durability::Buffered] {
        visit_all(durability, true, FaultEffect::Error, &[]);
    }
}

#[test]
fn a_short_write_loses_nothing() {
    for durability in [Durability::Sync, Durability::Buffered] {
        visit_all(durability, false, FaultEffect::ShortWrite, &[IoCall::Write]);
    }
}

#[test]
fn a_write_or_sync_that_says_no_space_loses_nothing() {
    let calls = [IoCall::Write, IoCall::Sync, IoCall::SyncDir];
    visit_all(Durability::Sync, false, FaultEffect::NoSpace, &calls);
}

/// System errors that end by themselves, or when an operator removes their cause.
pub const SYSTEM_ERRORS: [i32; 8] = [
    libc::EMFILE,
    libc::ENFILE,
    libc::ENOMEM,
    libc::ENOSPC,
    libc::EDQUOT,
    libc::EROFS,
    libc::EINTR,
    libc::EIO,
];

/// Fails each call with one of the errors, a different one in each run; `reliability` tries them
/// all.
#[test]
fn a_resource_that_runs_out_for_a_moment_stops_only_what_needs_it() {
    let first = std::process::id() as usize;
    for (n, durability) in [Durability::Sync, Durability::Buffered].iter().enumerate() {
        let error = SYSTEM_ERRORS[(first + n) % SYSTEM_ERRORS.len()];
        visit_all(*durability, false, FaultEffect::Os(error), &[]);
    }
}

#[test]
fn a_failed_flush_tells_its_cause_and_is_done_when_the_cause_is_gone() {
    let faults = FaultVfs::new(Arc::new(MemVfs::new()));
    let db = alluvium::Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    k.put(b"a", b"1").expect("put");
    faults.arm(Fault {
        calls: vec![IoCall::Create],
        nth: 1,
        sticky: true,
        effect: FaultEffect::Os(libc::EMFILE),
    });
    let error = db.flush().expect_err("no descriptor");
    assert!(error.to_string().contains("Too many open files"), "{error}");
    let source = std::error::Error::source(&error).expect("a source");
    assert!(
        source.to_string().contains("Too many open files"),
        "{source}"
    );
    k.put(b"b", b"1").expect("the log needs none");
    db.sync().expect("nor does its sync");
    faults.disarm();
    db.flush().expect("flush");
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
    assert_eq!(text(&k, "b").as_deref(), Some("1"));
}

#[test]
fn a_poisoned_database_tells_the_first_cause_and_its_source() {
    let faults = FaultVfs::new(Arc::new(MemVfs::new()));
    let db = alluvium::Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    k.put(b"a", b"1").expect("put");
    faults.arm(Fault {
        calls: vec![IoCall::Sync],
        nth: 1,
        sticky: false,
        effect: FaultEffect::Os(libc::EIO),
    });
    assert!(db.sync().is_err());
    let error = k.put(b"b", b"1").expect_err("poisoned");
    assert!(error.to_string().contains("Input/output error"), "{error}");
    let first = std::error::Error::source(&error).expect("the first cause");
    let cause = first.source().expect("its own cause");
    assert!(cause.to_string().contains("Input/output error"), "{cause}");
}

#[test]
fn a_full_device_at_allocation_can_be_retried() {
    let calls = [IoCall::Allocate, IoCall::Create];
    for durability in [Durability::Sync, Durability::Buffered] {
        visit_all(durability, false, FaultEffect::NoSpace, &calls);
    }
}

#[test]
fn commits_go_on_after_a_full_device_got_room() {
    let (vfs, db, k) = database(tiny());
    k.put(b"before", b"1").expect("put");
    let mut written = 0_u32;
    vfs.set_capacity(0);
    let failure = loop {
        // Ends at the end of the segment, because the next one cannot be allocated.
        match k.put(&written.to_be_bytes(), &[7; 500]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_error!(Err::<(), _>(failure), Error::NoSpace { .. });
    assert_error!(k.put(b"full", b"1"), Error::NoSpace { .. });
    assert_eq!(text(&k, "before").as_deref(), Some("1"));
    assert_eq!(text(&k, "full"), None);
    vfs.set_capacity(1 << 40);
    k.put(b"after", b"1").expect("put");
    let killed = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let db_after = open(&killed, tiny());
    let k = db_after
        .existing_keyspace("k")
        .expect("look")
        .expect("keyspace");
    let rows = crate::fixture::all(&k);
    assert_eq!(rows.len(), written as usize + 2);
    drop(db);
}

#[test]
fn a_flush_that_met_a_full_device_leaves_no_tables_behind() {
    let vfs = MemVfs::new();
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    let db = alluvium::Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    for name in ["a", "b"] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default());
        keyspace.expect("keyspace").put(b"a", b"1").expect("put");
    }
    // The creations: the log's next segment, one keyspace's table, then the other's.
    faults.arm(Fault {
        calls: vec![IoCall::Create],
        nth: 3,
        sticky: false,
        effect: FaultEffect::NoSpace,
    });
    // The flush tries again by itself, with the space of the ballast file.
    let first = db.flush();
    assert!(matches!(first, Ok(()) | Err(Error::NoSpace { .. })));
    assert!(faults.tripped());
    db.flush().expect("the second try has room");
    assert_eq!(table_files(&vfs).len(), 2, "{:?}", table_files(&vfs));
}
