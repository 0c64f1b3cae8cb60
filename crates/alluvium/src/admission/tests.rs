//! Tests of admission control on a virtual clock: clients that commit as fast as they are allowed
//! to.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const DRAIN: f64 = 20.0 * 1024.0 * 1024.0;

/// Returns the bytes per second that `clients` closed-loop clients reach in the virtual seconds
/// after a first one.
///
/// Each client commits `bytes`, waits as told, and takes 20 us for the commit itself.
fn rate_reached(admission: &Admission, clients: usize, bytes: u64, seconds: u64) -> f64 {
    let start = Instant::now();
    let from = start + Duration::from_secs(1);
    let until = from + Duration::from_secs(seconds);
    let mut ready: BinaryHeap<Reverse<Instant>> = (0..clients).map(|_| Reverse(start)).collect();
    let mut committed = 0;
    while let Some(Reverse(now)) = ready.pop() {
        if now >= until {
            break;
        }
        let joins_queue = now + admission.charge(bytes, now);
        if joins_queue >= from && joins_queue < until {
            committed += bytes;
        }
        ready.push(Reverse(joins_queue + Duration::from_micros(20)));
    }
    committed as f64 / seconds as f64
}

#[test]
fn one_client_and_two_hundred_converge_to_the_drain_rate_at_debt_one() {
    for clients in [1, 2, 200] {
        for bytes in [300, 4_000, 100_000] {
            let admission = Admission::new();
            admission.set_debt(1.0, DRAIN);
            // One small commit after another cannot reach the drain rate; it must not be slowed
            // either.
            let unlimited = clients as f64 * bytes as f64 / 20e-6;
            let expected = DRAIN.min(unlimited);
            let reached = rate_reached(&admission, clients, bytes, 5);
            assert!(
                (reached / expected - 1.0).abs() < 0.03,
                "{clients} clients, {bytes} bytes: {reached} B/s, expected {expected}"
            );
        }
    }
}

#[test]
fn clients_slow_below_the_drain_rate_beyond_debt_one() {
    let admission = Admission::new();
    admission.set_debt(2.0, DRAIN);
    let reached = rate_reached(&admission, 200, 4_000, 5);
    assert!((reached / (DRAIN / 4.0) - 1.0).abs() < 0.03, "{reached}");
}

#[test]
fn no_commit_waits_without_debt() {
    let admission = Admission::new();
    let now = Instant::now();
    for debt in [0.0, -0.5, f64::NAN] {
        admission.set_debt(debt, DRAIN);
        for _ in 0..1_000 {
            assert_eq!(admission.charge(1 << 30, now), Duration::ZERO);
        }
    }
    assert_eq!(admission.admit(1 << 30), Duration::ZERO);
}

#[test]
fn the_rate_is_a_continuous_falling_function_of_debt() {
    let mut before = allowed_rate(0.001, DRAIN);
    for step in 2..5_000 {
        let rate = allowed_rate(f64::from(step) * 0.001, DRAIN);
        assert!(rate < before);
        // Adjacent debts differ by 1 / step, so the rates differ by about twice that.
        assert!(before / rate <= 1.0 + 3.1 / f64::from(step - 1));
        before = rate;
    }
    assert_eq!(allowed_rate(1.0, DRAIN), DRAIN);
    assert_eq!(allowed_rate(0.5, DRAIN), 4.0 * DRAIN);
    // Towards no debt the rate exceeds that of any device, so there is no step where the limit
    // ends.
    assert!(allowed_rate(1e-3, DRAIN) > 1e12);
}

#[test]
fn waits_of_concurrent_commits_line_up() {
    let admission = Admission::new();
    admission.set_debt(1.0, DRAIN);
    let now = Instant::now();
    let each = Duration::from_millis(20);
    let bytes = (DRAIN * each.as_secs_f64()) as u64;
    let waits: Vec<Duration> = (0..5).map(|_| admission.charge(bytes, now)).collect();
    for (n, wait) in waits.iter().enumerate() {
        // The first commit has the bytes that the bucket saved up.
        let expected = each * (n as u32 + 1) - SAVED;
        assert!(
            wait.abs_diff(expected) < Duration::from_micros(1),
            "{waits:?}"
        );
    }
}

#[test]
fn a_giant_commit_waits_a_second_and_leaves_the_rest_to_those_after_it() {
    let admission = Admission::new();
    admission.set_debt(1.0, DRAIN);
    let start = Instant::now();
    assert_eq!(admission.charge(DRAIN as u64 * 10, start), WAIT_MAX);
    for second in 1..9 {
        assert_eq!(admission.charge(1, start + WAIT_MAX * second), WAIT_MAX);
    }
    assert!(admission.charge(1, start + WAIT_MAX * 10) < Duration::from_millis(1));
}

#[test]
fn an_idle_time_saves_up_ten_milliseconds_and_no_more() {
    let admission = Admission::new();
    admission.set_debt(1.0, DRAIN);
    let start = Instant::now();
    admission.charge(0, start);
    let later = start + Duration::from_secs(60);
    let saved = (DRAIN * SAVED.as_secs_f64()) as u64;
    assert_eq!(admission.charge(saved, later), Duration::ZERO);
    assert!(admission.charge(saved, later) >= SAVED - Duration::from_micros(1));
}

#[test]
fn a_drained_backlog_clears_the_negative_balance() {
    let admission = Admission::new();
    admission.set_debt(1.0, DRAIN);
    let now = Instant::now();
    assert_eq!(admission.charge(DRAIN as u64 * 100, now), WAIT_MAX);
    admission.set_debt(0.0, DRAIN);
    admission.set_debt(1.0, DRAIN);
    assert!(admission.charge(1, now) < Duration::from_millis(1));
}

#[test]
fn an_unmeasured_drain_rate_stops_no_writer() {
    let admission = Admission::new();
    for drain in [0.0, -1.0, f64::NAN] {
        admission.set_debt(1.0, drain);
        assert_eq!(admission.rate(), DRAIN_MIN);
    }
}

#[test]
fn closing_ends_waits() {
    let admission = Admission::new();
    admission.set_debt(1.0, DRAIN);
    admission.close();
    let start = Instant::now();
    let told = admission.admit(DRAIN as u64 * 100);
    assert_eq!(told, WAIT_MAX);
    assert!(start.elapsed() < WAIT_MAX);
}
