//! Wrong clocks: effect of jumps on expiring rows, on the stored time and on the rows that
//! compactions drop.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alluvium::internal::Manifest;
use alluvium::vfs::MemVfs;
use alluvium::{
    Clock, CursorOptions, Database, Error, Event, EventListener, Expiry, Isolation, Keyspace,
    KeyspaceOptions, Options, set_stored_time_on,
};

use crate::fixture::{all, assert_error, dir, of, open, rows, text, tiny};

const MINUTE: u64 = 60 * 1000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEARS: i64 = 80 * 365 * DAY as i64;
/// Wall-clock time of a machine that has just started.
const START: u64 = 56 * 365 * DAY;

/// The two clocks of a machine: boot time and wall clock.
#[derive(Clone, Default)]
struct Machine {
    boot_ms: Arc<AtomicU64>,
    set_by_ms: Arc<AtomicI64>,
}

impl Machine {
    fn pass(&self, ms: u64) {
        self.boot_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn set(&self, by_ms: i64) {
        self.set_by_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn wall(&self) -> u64 {
        let boot = self.boot_ms.load(Ordering::Relaxed);
        (START + boot).saturating_add_signed(self.set_by_ms.load(Ordering::Relaxed))
    }

    fn clock(&self) -> Clock {
        let (wall, boot) = (self.clone(), self.clone());
        Clock::checked(
            move || wall.wall(),
            move || boot.boot_ms.load(Ordering::Relaxed),
        )
    }

    /// Returns options with these clocks. Each commit is flushed, and each flushed table is due for
    /// compaction.
    fn options(&self) -> Options {
        Options {
            clock: self.clock(),
            memtable_bytes: Some(1),
            upper_fraction: 0.02,
            ..tiny()
        }
    }

    fn open(&self, vfs: &MemVfs) -> (Database, Keyspace) {
        let db = open(vfs, self.options());
        let k = keyspace(&db);
        (db, k)
    }
}

fn keyspace(db: &Database) -> Keyspace {
    let options = KeyspaceOptions {
        expiry: Expiry::After(Duration::from_millis(2 * HOUR)),
        ..KeyspaceOptions::default()
    };
    db.keyspace("k", options).expect("keyspace")
}

fn stored(vfs: &MemVfs) -> u64 {
    let (_, state) = Manifest::read(vfs, Path::new(dir())).expect("manifest");
    state.read_clock_ms
}

fn entries(db: &Database) -> u64 {
    of(&db.stats().expect("stats"), "k").table_entries
}

#[test]
fn a_deleted_row_stays_deleted_after_the_clock_steps_back_before_the_expiry_of_an_older_version() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let (db, k) = machine.open(&vfs);
    for key in [b"a", b"b"] {
        let soon = machine.wall() + 1_000;
        k.put_until(key, b"old", soon).expect("put");
    }
    db.settle().expect("settle");
    machine.pass(2_000);
    assert_eq!(all(&k).len(), 0, "both have expired");
    k.insert(b"a", b"new").expect("insert");
    k.delete(b"a").expect("delete");
    let transaction = db.begin(Isolation::ReadCommitted).expect("begin");
    transaction.insert(&k, b"b", b"new").expect("insert");
    transaction.delete(&k, b"b").expect("delete");
    transaction.commit().expect("commit");
    db.settle().expect("settle");
    drop((k, db));
    // A time that no clock has confirmed is not stored, so the next opening follows the clock.
    machine.set(-5_000);
    let (_db, k) = machine.open(&vfs);
    assert_eq!(all(&k).len(), 0, "both were deleted");
}

#[test]
fn a_glitch_of_the_clock_is_not_stored_and_hides_no_row_for_good() {
    for (is_confirmed, glitch) in [(true, YEARS), (false, YEARS), (true, -YEARS / 2)] {
        let (machine, vfs) = (Machine::default(), MemVfs::new());
        let (db, k) = machine.open(&vfs);
        if is_confirmed {
            machine.pass(10 * MINUTE);
            db.now_ms().expect("open");
        }
        k.put_until(b"before", b"v", machine.wall() + HOUR)
            .expect("put");
        let confirmed = machine.wall();
        machine.set(glitch);
        let seen = text(&k, "before");
        assert_eq!(seen.is_some(), is_confirmed, "in the glitch");
        k.put_until(b"within", b"v", confirmed + HOUR).expect("put");
        db.settle().expect("settle");
        machine.set(-glitch);
        k.put_until(b"after", b"v", machine.wall() + HOUR)
            .expect("put");
        db.settle().expect("settle");
        assert_eq!(all(&k).len(), 3, "the glitch is over");
        assert!(stored(&vfs) <= confirmed);
        drop(k);
        db.close().expect("close");
        machine.pass(MINUTE);
        let (_db, k) = machine.open(&vfs);
        assert_eq!(all(&k).len(), 3, "opened again");
        machine.pass(HOUR);
        assert!(all(&k).is_empty(), "at their time");
    }
}

#[test]
fn compactions_drop_expired_rows_by_a_confirmed_time_only() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let (db, k) = machine.open(&vfs);
    for n in 0..50 {
        let key = format!("key{n:03}");
        k.put_until(key.as_bytes(), &[7; 100], machine.wall() + MINUTE)
            .expect("put");
    }
    machine.pass(2 * MINUTE);
    assert!(all(&k).is_empty());
    k.compact_range(b"", None).expect("compact");
    assert_eq!(entries(&db), 50, "two minutes after the opening");
    assert_eq!(stored(&vfs), 0);
    machine.pass(8 * MINUTE);
    k.put_until(b"later", b"v", machine.wall() + HOUR)
        .expect("put");
    db.settle().expect("settle");
    assert_eq!(entries(&db), 1, "ten minutes after it");
    let confirmed = machine.wall();
    assert_eq!(stored(&vfs), confirmed);
    machine.set(2 * DAY as i64);
    assert_eq!(db.now_ms().expect("open"), confirmed);
    machine.pass(9 * MINUTE);
    assert_eq!(all(&k).len(), 1, "nine minutes after a jump");
    k.put(b"trigger", b"v").expect("put");
    db.settle().expect("settle");
    assert_eq!((entries(&db), stored(&vfs)), (2, confirmed));
    machine.pass(MINUTE);
    assert_eq!(db.now_ms().expect("open"), machine.wall());
    assert!(all(&k).is_empty(), "the jump is for good");
    db.settle().expect("settle");
    assert_eq!(entries(&db), 0, "the jump is for good");
}

#[test]
fn a_snapshot_keeps_its_rows_through_jumps() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let (db, k) = machine.open(&vfs);
    machine.pass(10 * MINUTE);
    k.put_until(b"a", b"v", machine.wall() + HOUR).expect("put");
    let snapshot = db.snapshot().expect("snapshot");
    let seen = || {
        let cursor = snapshot.cursor(&k, CursorOptions::default());
        rows(cursor.expect("cursor")).len()
    };
    for by in [YEARS, -YEARS, -YEARS / 2, YEARS / 2, 2 * DAY as i64] {
        machine.set(by);
        db.now_ms().expect("open");
        assert_eq!(seen(), 1, "set by {by}");
        machine.pass(11 * MINUTE);
        k.put(b"trigger", b"v").expect("put");
        db.settle().expect("settle");
        assert_eq!(seen(), 1, "set by {by}");
    }
    drop(snapshot);
    assert_eq!(text(&k, "a"), None);
}

#[test]
fn a_clock_that_is_corrected_from_1970_is_adopted() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let from_1970 = -(START as i64);
    machine.set(from_1970);
    let (db, k) = machine.open(&vfs);
    machine.pass(MINUTE);
    machine.set(-from_1970);
    k.put(b"two hours", b"v").expect("put");
    machine.pass(10 * MINUTE);
    assert_eq!(all(&k).len(), 1);
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    assert_eq!(stats.confirmed_time_ms, machine.wall());
    assert_eq!(stats.clock_jumps, 1);
    machine.pass(2 * HOUR);
    assert!(all(&k).is_empty());
}

#[test]
fn openings_of_less_than_ten_minutes_hide_expired_rows_and_keep_them() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    for opening in 0..4 {
        let (db, k) = machine.open(&vfs);
        let key = format!("{opening}");
        k.put_until(key.as_bytes(), b"v", machine.wall() + HOUR)
            .expect("put");
        assert_eq!(all(&k).len(), 1);
        machine.pass(9 * MINUTE);
        k.compact_range(b"", None).expect("compact");
        drop(k);
        assert_eq!(entries(&db), 1 + opening);
        db.close().expect("close");
        machine.pass(DAY);
    }
    let (db, k) = machine.open(&vfs);
    machine.pass(10 * MINUTE);
    k.compact_range(b"", None).expect("compact");
    assert!(all(&k).is_empty());
    db.settle().expect("settle");
    assert_eq!(entries(&db), 0);
}

/// Records clock events.
#[derive(Default)]
struct Heard(Mutex<Vec<(&'static str, u64, u64)>>);

impl EventListener for Heard {
    fn on_event(&self, event: &Event) {
        let told = match event {
            Event::ClockJump { wall_ms, time_ms } => ("jump", *wall_ms, *time_ms),
            Event::StoredTimeAhead { wall_ms, stored_ms } => ("ahead", *wall_ms, *stored_ms),
            _ => return,
        };
        self.0.lock().expect("no panic").push(told);
    }
}

/// Creates a database with a recorded time eighty years ahead, from a clock that the engine trusts.
/// Returns that time.
fn with_wrong_time(machine: &Machine, vfs: &MemVfs) -> u64 {
    let wrong = machine.wall().saturating_add_signed(YEARS);
    let options = Options {
        clock: Clock::custom(move || wrong),
        ..machine.options()
    };
    let db = open(vfs, options);
    let k = keyspace(&db);
    k.put(b"a", b"v").expect("put");
    db.flush().expect("flush");
    assert_eq!(stored(vfs), wrong);
    assert_error!(
        set_stored_time_on(Arc::new(vfs.clone()), dir(), 0),
        Error::Locked { .. }
    );
    drop(k);
    db.close().expect("close");
    wrong
}

#[test]
fn a_stored_time_that_is_ahead_is_told_and_can_be_set_back() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let wrong = with_wrong_time(&machine, &vfs);
    let heard = Arc::new(Heard::default());
    let options = Options {
        event_listener: Some(heard.clone()),
        ..machine.options()
    };
    let db = open(&vfs, options);
    let k = keyspace(&db);
    k.put_until(b"b", b"v", machine.wall() + HOUR).expect("put");
    assert!(text(&k, "b").is_none() && text(&k, "a").is_some());
    drop(k);
    db.close().expect("close");
    let told = std::mem::take(&mut *heard.0.lock().expect("no panic"));
    assert_eq!(told, [("ahead", machine.wall(), wrong)]);
    let set = |to_ms| set_stored_time_on(Arc::new(vfs.clone()), dir(), to_ms);
    assert_error!(set(wrong + 1), Error::InvalidArgument(_));
    assert_eq!(set(wrong).expect("set"), wrong);
    assert_eq!(set(machine.wall()).expect("set"), wrong);
    assert_eq!(set(0).expect("set"), machine.wall());
    assert_eq!(stored(&vfs), 0);
    let (db, k) = machine.open(&vfs);
    assert_eq!(all(&k).len(), 2);
    drop(k);
    db.close().expect("close");
    let empty = set_stored_time_on(Arc::new(MemVfs::new()), dir(), 0);
    assert_error!(empty, Error::InvalidArgument(_));
}

#[test]
fn a_jump_and_its_end_are_events() {
    let (machine, vfs) = (Machine::default(), MemVfs::new());
    let heard = Arc::new(Heard::default());
    let options = Options {
        event_listener: Some(heard.clone()),
        ..machine.options()
    };
    let db = open(&vfs, options);
    let k = keyspace(&db);
    machine.pass(10 * MINUTE);
    db.now_ms().expect("open");
    let confirmed = machine.wall();
    machine.set(YEARS);
    assert_eq!(db.now_ms().expect("open"), confirmed);
    machine.pass(MINUTE);
    machine.set(-YEARS);
    assert_eq!(db.now_ms().expect("open"), machine.wall());
    assert_eq!(db.stats().expect("stats").clock_jumps, 2);
    drop(k);
    db.close().expect("close");
    let wrong = confirmed.saturating_add_signed(YEARS);
    let expected = [
        ("jump", wrong, confirmed),
        ("jump", machine.wall(), machine.wall()),
    ];
    assert_eq!(*heard.0.lock().expect("no panic"), expected);
}
