//! Waits of the engine that must end after a failure elsewhere, under many schedules each.

use std::path::Path;
use std::sync::Arc;

use alluvium::simulation::threads::Builder;
use alluvium::simulation::{End, Policy, Setup, run};
use alluvium::vfs::{Fault, FaultEffect, FaultVfs, IoCall, MemVfs};
use alluvium::{Database, KeyspaceOptions, Options};

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        steps_max: 200_000,
        policy: Policy {
            switch_of_256: 64,
            uneven: seed % 2 == 1,
            jump_of_65536: 0,
            step_ns_max: 1_000,
            stall_of_65536: 500,
        },
    }
}

#[test]
fn a_flush_does_not_wait_for_ever_when_a_commit_poisons_the_database() {
    for seed in 0..1500 {
        let report = run(setup(seed), Box::new(|_, _| ()), move || {
            let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
            let opened =
                Database::open_on(Arc::new(vfs.clone()), Path::new("/db"), Options::default());
            let db = opened.unwrap();
            let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
            keyspace.put(b"a", b"1").unwrap();
            vfs.arm(Fault {
                calls: vec![IoCall::Write],
                nth: 1 + seed % 6,
                sticky: true,
                effect: FaultEffect::Error,
            });
            let flushing = db.clone();
            let body = move || drop(flushing.flush());
            let thread = Builder::new().name("flush".into()).spawn(body).unwrap();
            let _may_fail = keyspace.put(b"b", b"2");
            thread.join().unwrap();
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
    }
}
