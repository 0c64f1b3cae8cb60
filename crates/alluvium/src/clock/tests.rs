//! Tests of the clock of an open database: windows between judgments, held times, events.

use super::*;

use crate::event::EventListener;

const MINUTE: u64 = 60 * 1000;
const YEAR: u64 = 365 * 24 * 60 * MINUTE;

fn stepped() -> (Arc<AtomicU64>, Clock) {
    let time = Arc::new(AtomicU64::new(100));
    let source = Arc::clone(&time);
    (time, Clock::custom(move || source.load(Ordering::Relaxed)))
}

/// A wall clock and a boot-time clock.
#[derive(Clone, Default)]
struct Machine {
    wall_ms: Arc<AtomicU64>,
    boot_ms: Arc<AtomicU64>,
}

impl Machine {
    fn new(wall_ms: u64) -> Machine {
        let machine = Machine::default();
        machine.wall_ms.store(wall_ms, Ordering::Relaxed);
        machine
    }

    fn clock(&self) -> Clock {
        let Machine { wall_ms, boot_ms } = self.clone();
        Clock::checked(
            move || wall_ms.load(Ordering::Relaxed),
            move || boot_ms.load(Ordering::Relaxed),
        )
    }

    fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::Relaxed);
        self.boot_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn set(&self, by: i64) {
        let wall = self.wall_ms.load(Ordering::Relaxed);
        let wall = wall.saturating_add_signed(by);
        self.wall_ms.store(wall, Ordering::Relaxed);
    }

    fn wall(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    /// Returns the clock of a database on this machine that has confirmed the time.
    fn confirmed(&self) -> Arc<ReadClock> {
        let clock = ReadClock::new(self.clock(), 0, Events::new(None));
        clock.use_it();
        self.pass(10 * MINUTE);
        assert_eq!(clock.confirmed(), self.wall());
        clock
    }
}

#[test]
fn the_time_of_a_believed_clock_never_runs_backwards() {
    let (time, source) = stepped();
    let clock = ReadClock::new(source, 150, Events::new(None));
    assert_eq!(clock.now(), 150);
    time.store(200, Ordering::Relaxed);
    assert_eq!(clock.now(), 200);
    time.store(50, Ordering::Relaxed);
    assert_eq!((clock.now(), clock.confirmed()), (200, 200));
}

#[test]
fn what_expires_after_the_oldest_time_held_has_not_expired_for_all() {
    let (time, source) = stepped();
    let clock = ReadClock::new(source, 0, Events::new(None));
    clock.use_it();
    let first = clock.hold();
    time.store(120, Ordering::Relaxed);
    let second = clock.hold();
    time.store(130, Ordering::Relaxed);
    let copy = first.clone();
    assert_eq!((first.now_ms(), second.now_ms()), (100, 120));
    assert_eq!(clock.expired_for_all(), 100);
    drop(first);
    assert_eq!(clock.expired_for_all(), 100);
    drop(copy);
    assert_eq!(clock.expired_for_all(), 120);
    drop(second);
    assert_eq!(clock.expired_for_all(), 130);
}

#[test]
fn nothing_has_expired_for_all_by_a_time_that_is_not_confirmed() {
    let machine = Machine::new(50 * YEAR);
    let clock = ReadClock::new(machine.clock(), 0, Events::new(None));
    clock.use_it();
    assert_eq!((clock.now(), clock.expired_for_all()), (machine.wall(), 0));
    machine.pass(10 * MINUTE);
    assert_eq!(clock.expired_for_all(), machine.wall());
    let confirmed = machine.wall();
    machine.set(80 * YEAR as i64);
    machine.pass(MINUTE);
    assert_eq!(clock.now(), confirmed + MINUTE);
    assert_eq!(clock.expired_for_all(), confirmed);
}

#[test]
fn most_reads_take_no_mutex_in_a_jump_neither() {
    let machine = Machine::new(50 * YEAR);
    let clock = machine.confirmed();
    for by in [0, 80 * YEAR as i64] {
        machine.set(by);
        let time = clock.now();
        let judging = clock.judge.lock();
        machine.pass(WINDOW_MS);
        assert_eq!(clock.now(), time + WINDOW_MS, "set by {by}");
        drop(judging);
        machine.pass(1);
        assert_eq!(clock.now(), time + WINDOW_MS + 1, "set by {by}");
    }
}

#[test]
fn small_steps_back_between_judgments_do_not_take_the_time_back() {
    let machine = Machine::new(50 * YEAR);
    let clock = machine.confirmed();
    machine.pass(WINDOW_MS);
    let time = clock.now();
    machine.set(-(WINDOW_MS as i64) / 2);
    assert_eq!(clock.now(), time);
    machine.set(-(WINDOW_MS as i64));
    assert_eq!(clock.now(), time);
}

#[test]
fn a_read_that_was_suspended_in_a_glitch_does_not_bring_its_time_back() {
    let machine = Machine::new(50 * YEAR);
    let clock = ReadClock::new(machine.clock(), 0, Events::new(None));
    let wall = machine.wall();
    assert_eq!(clock.now(), wall);
    machine.set(80 * YEAR as i64);
    assert_eq!(clock.now(), wall + 80 * YEAR);
    machine.set(-(80 * YEAR as i64));
    machine.pass(WINDOW_MS + 1);
    assert_eq!(clock.now(), machine.wall());
    // The reader has read the wall clock in the glitch, and continues now.
    clock.raise_latest(wall + 80 * YEAR);
    assert_eq!(clock.now(), machine.wall());
    machine.pass(1);
    assert_eq!(clock.now(), machine.wall());
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventListener for Heard {
    fn on_event(&self, event: &Event) {
        self.0.lock().push(format!("{event:?}"));
    }
}

#[test]
fn a_jump_and_a_stored_time_that_is_ahead_are_events_once() {
    let heard = Arc::new(Heard::default());
    let events = Events::new(Some(heard.clone()));
    let machine = Machine::new(1_000);
    let stored = 50 * YEAR;
    let clock = ReadClock::new(machine.clock(), stored, Arc::clone(&events));
    clock.use_it();
    machine.pass(1_000);
    assert_eq!(clock.now(), stored + 1_000);
    assert_eq!(clock.jumps(), 0);
    machine.set(stored as i64);
    let wall = machine.wall();
    // The boot-time clock serves reads until the next judgment.
    machine.pass(WINDOW_MS);
    assert_eq!(clock.now(), wall + WINDOW_MS);
    assert_eq!((clock.now(), clock.jumps()), (wall + WINDOW_MS, 1));
    events.stop();
    events.run();
    let wall = wall + WINDOW_MS;
    let expected = [
        format!("StoredTimeAhead {{ wall_ms: 1000, stored_ms: {stored} }}"),
        format!("ClockJump {{ wall_ms: {wall}, time_ms: {wall} }}"),
    ];
    assert_eq!(*heard.0.lock(), expected);
}

#[test]
fn the_systems_clocks_advance() {
    let Readings::Checked { wall, boot } = Clock::system().0 else {
        panic!("the system's clock is checked");
    };
    let (wall_ms, boot_ms) = (wall(), boot());
    assert!(wall_ms > 50 * YEAR && boot_ms > 0);
    assert!(boot() >= boot_ms);
}
