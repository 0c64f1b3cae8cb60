//! Scheduler: the seed decides, time is virtual, a deadlock is reported.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Instant;
use super::locks::{Condvar, Mutex};
use super::threads::Builder;
use super::*;

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        steps_max: 100_000,
        policy: Policy {
            switch_of_256: 128,
            uneven: false,
            jump_of_65536: 10,
            step_ns_max: 100,
            stall_of_65536: 10,
        },
    }
}

fn no_observer() -> Box<Observer> {
    Box::new(|_, _| ())
}

/// Returns the order in which three threads append to a list.
fn order_of(seed: u64) -> (Vec<u32>, Report) {
    let list = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&list);
    let report = run(setup(seed), no_observer(), move || {
        let spawn = |number| {
            let list = Arc::clone(&shared);
            let body = move || (0..5).for_each(|_| list.lock().push(number));
            Builder::new()
                .name(format!("t{number}"))
                .spawn(body)
                .unwrap()
        };
        let threads: Vec<_> = (0..3).map(spawn).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    let order = list.lock().clone();
    (order, report)
}

#[test]
#[should_panic(expected = "what the body says")]
fn a_panic_of_the_body_is_one_of_the_run() {
    run(setup(1), no_observer(), || {
        let body = || ();
        let thread = Builder::new().name("other".into()).spawn(body).unwrap();
        thread.join().unwrap();
        panic!("what the body says");
    });
}

#[test]
fn one_seed_is_one_history_and_other_seeds_are_others() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (first, second) = (order_of(seed), order_of(seed));
        assert_eq!(first, second);
        assert_eq!(first.1.end, End::Finished);
        orders.insert(first.0);
    }
    assert!(orders.len() > 10, "{}", orders.len());
}

#[test]
fn a_deadlock_lists_the_waiting_threads() {
    let mut found = None;
    for seed in 0..50 {
        let report = run(setup(seed), no_observer(), || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = Arc::clone(&locks);
            let body = move || {
                let _second = other.1.lock();
                let _first = other.0.lock();
            };
            let thread = Builder::new().name("crosswise".into()).spawn(body).unwrap();
            let first = locks.0.lock();
            let second = locks.1.lock();
            drop((first, second));
            thread.join().unwrap();
        });
        if let End::Deadlock(listing) = report.end {
            found = Some(listing);
            break;
        }
    }
    let listing = found.expect("two locks in two orders");
    let expected = "thread 0 (main): waits for a lock\nthread 1 (crosswise): waits for a lock\n";
    assert_eq!(listing, expected);
}

#[test]
fn a_wait_of_an_hour_takes_no_time_and_a_notification_ends_it_early() {
    let report = run(setup(1), no_observer(), || {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let before = Instant::now();
        let hour = Duration::from_secs(3600);
        let mut flag = pair.0.lock();
        assert!(pair.1.wait_for(&mut flag, hour).timed_out());
        assert!(before.elapsed() >= hour);
        drop(flag);
        let other = Arc::clone(&pair);
        let body = move || {
            *other.0.lock() = true;
            other.1.notify_one();
        };
        let thread = Builder::new().spawn(body).unwrap();
        let mut flag = pair.0.lock();
        while !*flag {
            pair.1.wait(&mut flag);
        }
        drop(flag);
        thread.join().unwrap();
    });
    assert_eq!(report.end, End::Finished);
}

#[test]
fn a_run_without_end_is_told() {
    let report = run(setup(1), no_observer(), || {
        let forever = Mutex::new(());
        loop {
            drop(forever.lock());
        }
    });
    assert!(matches!(report.end, End::TooLong(listing) if listing.contains("could go on")));
}

#[test]
fn a_channel_brings_all_items_in_order_and_waits_at_its_bound() {
    for seed in 0..20 {
        let got = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&got);
        let report = run(setup(seed), no_observer(), move || {
            let (sender, receiver) = channel::sync_channel(2);
            let body = move || (0..10).for_each(|item| sender.send(item).unwrap());
            let thread = Builder::new().spawn(body).unwrap();
            receiver.iter().for_each(|item| list.lock().push(item));
            thread.join().unwrap();
            let (sender, receiver) = channel::channel();
            drop(receiver);
            assert!(sender.send(1).is_err());
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
        assert_eq!(*got.lock(), (0..10).collect::<Vec<_>>());
    }
}
