//! Begin and end events of compactions and delays alternate, and the first failure is reported
//! while others occur, under many schedules each.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use alluvium::simulation::threads::Builder;
use alluvium::simulation::{End, Policy, Setup, run};
use alluvium::vfs::{Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Event, EventListener, Keyspace, KeyspaceOptions, Options};

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        steps_max: 1_000_000,
        policy: Policy {
            switch_of_256: 128,
            uneven: seed % 2 == 1,
            jump_of_65536: 0,
            step_ns_max: 1_000,
            stall_of_65536: 300,
        },
    }
}

/// Counts operations that have begun and not ended.
#[derive(Default)]
struct Listener {
    merges: AtomicI64,
    delays: AtomicI64,
    failures: AtomicI64,
    wrong: Mutex<Vec<String>>,
}

impl EventListener for Listener {
    fn on_event(&self, event: &Event) {
        let (count, by, most) = match event {
            Event::CompactionBegin { .. } => (&self.merges, 1, 2),
            Event::CompactionEnd { .. } => (&self.merges, -1, 2),
            Event::WriteDelayBegin => (&self.delays, 1, 1),
            Event::WriteDelayEnd => (&self.delays, -1, 1),
            Event::Poisoned { .. } => (&self.failures, 1, 1),
            _ => return,
        };
        let now = count.fetch_add(by, Ordering::SeqCst) + by;
        if !(0..=most).contains(&now) {
            let mut wrong = self.wrong.lock().expect("wrong");
            wrong.push(format!("{now} after {event:?}"));
        }
    }
}

fn database(vfs: Arc<dyn Vfs>, listener: &Arc<Listener>) -> (Database, Keyspace) {
    let options = Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(600),
        table_bytes: 4096,
        upper_fraction: 0.02,
        compaction_threads: 2,
        event_listener: Some(listener.clone()),
        ..Options::default()
    };
    let db = Database::open_on(vfs, Path::new("/db"), options).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    (db, k)
}

#[test]
fn every_compaction_and_delay_that_begins_ends() {
    for seed in 0..60 {
        let report = run(setup(seed), Box::new(|_, _| ()), move || {
            let listener = Arc::new(Listener::default());
            let (db, k) = database(Arc::new(MemVfs::new()), &listener);
            let clients = (0..3u8).map(|client| {
                let k = k.clone();
                let body = move || {
                    for n in 0..12u8 {
                        k.put(&[n, client], &[n; 90]).expect("put");
                        if n % 4 == client {
                            k.compact_range(b"", None).expect("merge");
                        }
                    }
                };
                Builder::new().name(format!("client {client}")).spawn(body)
            });
            let clients: Vec<_> = clients.collect();
            for client in clients {
                client.expect("spawn").join().expect("a client");
            }
            db.close().expect("close");
            let wrong = listener.wrong.lock().expect("wrong");
            assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
            assert_eq!(listener.merges.load(Ordering::SeqCst), 0, "seed {seed}");
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
    }
}

#[test]
fn the_first_failure_is_told_while_other_threads_fail() {
    for seed in 0..100 {
        let report = run(setup(seed), Box::new(|_, _| ()), move || {
            let listener = Arc::new(Listener::default());
            let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
            let (db, k) = database(Arc::new(vfs.clone()), &listener);
            k.put(b"a", &[0; 500]).expect("put");
            vfs.arm(Fault {
                calls: vec![IoCall::Write, IoCall::Sync],
                nth: 1 + seed % 6,
                sticky: true,
                effect: FaultEffect::Error,
            });
            let flushing = db.clone();
            let body = move || drop(flushing.flush());
            let thread = Builder::new().name("flush".into()).spawn(body);
            for n in 0..4u8 {
                let _may_fail = k.put(&[n], &[n; 400]);
            }
            let _may_fail = db.sync();
            thread.expect("spawn").join().expect("the flush");
            let _may_fail = db.close();
            assert_eq!(listener.failures.load(Ordering::SeqCst), 1, "seed {seed}");
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
    }
}
