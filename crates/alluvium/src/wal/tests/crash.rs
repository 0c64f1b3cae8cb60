//! Crashes and failing calls. After any of them a prefix of the written records comes back, and it
//! holds everything that was synced.

use super::*;
use crate::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall};

/// A client's record of its own log.
#[derive(Debug, Default)]
struct Ledger {
    /// Every record that was appended, in order.
    appended: Vec<Record>,
    /// Number of them that are known durable.
    synced: usize,
    /// Number of them that were written without an error.
    written: usize,
    /// A prepared segment file that was not yet offered to the writer.
    late: Option<PreparedSegment>,
}

impl Ledger {
    fn append(&mut self, wal: &mut WalWriter, random: &mut SplitMix) {
        // Lengths around the sector size, now and then larger than a segment.
        let len = match random.below(40) {
            0 => 5_000,
            1..=8 => random.below(1500),
            _ => random.below(200),
        };
        let record = record(self.appended.len() as u64 + 1, len as usize);
        append(wal, &record);
        self.appended.push(record);
    }

    fn write(&mut self, wal: &mut WalWriter) -> Result<WalPosition> {
        let position = wal.write()?;
        self.written = self.appended.len();
        Ok(position)
    }

    fn sync(&mut self, wal: &mut WalWriter) -> Result<()> {
        let position = self.write(wal)?;
        wal.syncer().sync()?;
        wal.note_durable(position);
        self.synced = self.written;
        Ok(())
    }

    /// Does a few steps of a client, until one fails.
    fn work(&mut self, wal: &mut WalWriter, random: &mut SplitMix, steps: u64) -> Result<()> {
        for _ in 0..steps {
            match random.below(12) {
                10 | 11 => self.prepare(wal, random)?,
                0..=5 => {
                    for _ in 0..=random.below(4) {
                        self.append(wal, random);
                    }
                    self.write(wal)?;
                }
                6 | 7 => self.sync(wal)?,
                8 => {
                    wal.mark_synced()?;
                    self.written = self.appended.len();
                }
                _ => drop(wal.rotate()?),
            }
        }
        Ok(())
    }

    /// Does the work of the sync thread, at any distance from the next roll.
    fn prepare(&mut self, wal: &mut WalWriter, random: &mut SplitMix) -> Result<()> {
        if let Some(late) = self.late.take() {
            if let Some(unneeded) = wal.offer(Some(late)) {
                unneeded.remove();
            }
            return Ok(());
        }
        let Some(plan) = wal.plan_next() else {
            return Ok(());
        };
        let prepared = plan.create()?;
        if prepared.is_some() && random.below(2) == 0 {
            self.late = prepared;
            return Ok(());
        }
        assert!(wal.offer(prepared).is_none(), "nothing rolled meanwhile");
        Ok(())
    }

    /// Continues with the records found by a replay, which are durable from then on.
    fn adopt(&mut self, found: &[Record]) {
        self.appended.truncate(found.len());
        self.synced = found.len();
        self.written = found.len();
        self.late = None;
    }
}

#[test]
fn after_power_loss_a_prefix_with_everything_synced_comes_back() {
    let mut lost_something = 0;
    for seed in 0..2_000 {
        let mut random = SplitMix::new(seed);
        let mut vfs = mem();
        let mut ledger = Ledger::default();
        let (mut first, mut previous) = (1, None);
        for _ in 0..=random.below(3) {
            let mut wal = writer(&vfs, first, previous);
            let steps = random.below(25);
            ledger.work(&mut wal, &mut random, steps).unwrap();
            vfs = vfs.crash(random.next(), CrashOptions::POWER_LOSS);
            let (found, end) =
                start(&vfs, dir(), 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(ledger.appended.starts_with(&found), "seed {seed}");
            assert!(found.len() >= ledger.synced, "seed {seed}");
            assert!(found.len() <= ledger.written, "seed {seed}");
            lost_something += u64::from(found.len() < ledger.written);
            ledger.adopt(&found);
            end.remove_cut(&vfs, dir()).unwrap();
            (first, previous) = (end.next_segment.0, end.end);
        }
    }
    // The test is meaningless unless crashes lose records.
    assert!(
        lost_something > 500,
        "only {lost_something} crashes lost records"
    );
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    for seed in 0..100 {
        let mut random = SplitMix::new(seed);
        let vfs = mem();
        let mut ledger = Ledger::default();
        let mut wal = writer(&vfs, 1, None);
        ledger.work(&mut wal, &mut random, 20).unwrap();
        let after = vfs.crash(seed, CrashOptions::PROCESS_KILLED);
        let (found, _) = start(&after, dir(), 1).unwrap();
        assert_eq!(found, ledger.appended[..ledger.written], "seed {seed}");
    }
}

/// Runs a client while the `nth` file system call of these kinds fails, then crashes. Returns true
/// if the fault tripped.
fn work_with_fault(calls: &[IoCall], nth: u64, effect: FaultEffect, seed: u64) -> bool {
    let context = format!("calls {calls:?} nth {nth} effect {effect:?} seed {seed}");
    let base = mem();
    let faulty = FaultVfs::new(Arc::new(base.clone()));
    faulty.arm(Fault {
        calls: calls.to_vec(),
        nth,
        sticky: false,
        effect,
    });
    let mut random = SplitMix::new(seed);
    let mut ledger = Ledger::default();
    let shared: Arc<dyn Vfs> = Arc::new(faulty.clone());
    if let Ok(mut wal) = WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, SMALL) {
        match ledger.work(&mut wal, &mut random, 30) {
            Ok(()) => {}
            Err(error) if error.may_be_retried() => {
                // Nothing happened: the same records are written once the cause is removed.
                ledger.sync(&mut wal).unwrap();
                ledger.work(&mut wal, &mut random, 5).unwrap();
            }
            Err(first) => {
                // Final: later calls repeat the first cause although the file system would accept
                // them.
                let repeated = [
                    wal.write().map(drop),
                    wal.rotate().map(drop),
                    wal.syncer().sync(),
                ];
                for later in repeated {
                    assert_eq!(
                        later.unwrap_err().to_string(),
                        first.to_string(),
                        "{context}"
                    );
                }
            }
        }
    }
    for options in [CrashOptions::PROCESS_KILLED, CrashOptions::POWER_LOSS] {
        let after = base.crash(seed, options);
        let (found, end) =
            start(&after, dir(), 0).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(ledger.appended.starts_with(&found), "{context}");
        assert!(found.len() >= ledger.synced, "{context}");
        end.remove_cut(&after, dir()).unwrap();
        let mut wal = writer(&after, end.next_segment.0, end.end);
        commit(&mut wal, &record(1_000, 10));
        let (again, _) = start(&after, dir(), 0).unwrap();
        assert_eq!(again.len(), found.len() + 1, "{context}");
    }
    faulty.tripped()
}

#[test]
fn whichever_call_fails_nothing_synced_is_lost_and_nothing_later_is_accepted() {
    let all: &[IoCall] = &[];
    for effect in [
        FaultEffect::Error,
        FaultEffect::ShortWrite,
        FaultEffect::NoSpace,
    ] {
        for seed in 0..4 {
            let trips = (1..)
                .take_while(|&nth| work_with_fault(all, nth, effect, seed))
                .count();
            assert!(trips > 20, "only {trips} calls in the scenario");
        }
    }
}

#[test]
fn a_full_device_at_allocation_is_retriable() {
    let calls = &[IoCall::Allocate];
    let mut nth = 1;
    while work_with_fault(calls, nth, FaultEffect::NoSpace, 3) {
        nth += 1;
    }
    assert!(nth > 3);
}

#[test]
fn a_failing_read_is_an_error_and_never_the_end_of_the_log() {
    let base = mem();
    let mut wal = writer(&base, 1, None);
    (1..=40).for_each(|seqno| commit(&mut wal, &record(seqno, 400)));
    let faulty = FaultVfs::new(Arc::new(base));
    let mut nth = 1;
    loop {
        faulty.arm(Fault {
            calls: Vec::new(),
            nth,
            sticky: false,
            effect: FaultEffect::Error,
        });
        let result = start(&faulty, dir(), 1);
        if !faulty.tripped() {
            assert_eq!(result.unwrap().0.len(), 40);
            break;
        }
        assert!(
            matches!(result, Err(Error::Io { .. })),
            "call {nth}: {result:?}"
        );
        nth += 1;
    }
    assert!(nth > 20, "only {nth} calls in the scenario");
}

/// Returns a log with a few records and a prepared next segment, and the file system to inject
/// faults into.
fn prepared_log() -> (MemVfs, FaultVfs, WalWriter) {
    let base = mem();
    let faulty = FaultVfs::new(Arc::new(base.clone()));
    let shared: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let mut wal = WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, SMALL).unwrap();
    (1..=3).for_each(|seqno| commit(&mut wal, &record(seqno, 50)));
    let prepared = wal.plan_next().unwrap().create().unwrap();
    assert!(wal.offer(prepared).is_none());
    assert!(wal.plan_next().is_none(), "once for each segment");
    (base, faulty, wal)
}

#[test]
fn a_roll_into_a_prepared_segment_creates_nothing_and_syncs_no_directory() {
    let (base, faulty, mut wal) = prepared_log();
    faulty.arm(Fault {
        calls: vec![IoCall::Create, IoCall::Allocate, IoCall::SyncDir],
        nth: 1,
        sticky: true,
        effect: FaultEffect::Error,
    });
    assert_eq!(wal.rotate().unwrap(), SegmentId(2));
    commit(&mut wal, &record(4, 50));
    assert!(!faulty.tripped());
    let after = base.crash(1, CrashOptions::LOSE_UNSYNCED);
    let (found, end) = start(&after, dir(), 1).unwrap();
    assert_eq!(found.len(), 4);
    assert_eq!(end.segments, [SegmentId(1), SegmentId(2)]);
}

#[test]
fn a_roll_that_makes_its_file_syncs_nothing_and_the_next_sync_makes_its_name_durable() {
    for late in [false, true] {
        let (base, faulty, mut wal) = prepared_log();
        wal.rotate().unwrap();
        commit(&mut wal, &record(4, 50));
        faulty.arm(Fault {
            calls: vec![IoCall::Sync, IoCall::SyncDir],
            nth: 1,
            sticky: false,
            effect: FaultEffect::Error,
        });
        assert_eq!(wal.rotate().unwrap(), SegmentId(3), "none was prepared");
        append(&mut wal, &record(5, 50));
        wal.write().unwrap();
        assert!(!faulty.tripped());
        faulty.disarm();
        let records = || {
            let lost = base.crash(1, CrashOptions::LOSE_UNSYNCED);
            start(&lost, dir(), 1).unwrap().0.len()
        };
        assert_eq!(records(), 4);
        if late {
            wal.late_syncer().sync().unwrap()
        } else {
            wal.syncer().sync().unwrap()
        }
        assert_eq!(records(), 5);
    }
}

#[test]
fn a_prepared_segment_that_was_never_used_is_passed_over_and_its_number_not_used_again() {
    let (base, _faulty, _wal) = prepared_log();
    for options in [CrashOptions::PROCESS_KILLED, CrashOptions::LOSE_UNSYNCED] {
        let after = base.crash(1, options);
        let (found, end) = start(&after, dir(), 1).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(end.segments, [SegmentId(1)]);
        assert_eq!(end.next_segment, SegmentId(3));
        end.remove_cut(&after, dir()).unwrap();
        let mut wal = writer(&after, 3, end.end);
        commit(&mut wal, &record(4, 50));
        assert_eq!(start(&after, dir(), 1).unwrap().0.len(), 4);
    }
}

#[test]
fn power_loss_at_every_call_of_a_preparation_and_its_roll_loses_nothing_synced() {
    for nth in 1.. {
        let base = mem();
        let faulty = FaultVfs::new(Arc::new(base.clone()));
        let shared: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut wal =
            WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, SMALL).unwrap();
        commit(&mut wal, &record(1, 50));
        faulty.arm(Fault {
            calls: Vec::new(),
            nth,
            sticky: true,
            effect: FaultEffect::Error,
        });
        let mut synced = 1;
        let mut work = || -> Result<()> {
            let prepared = wal.plan_next().unwrap().create()?;
            wal.offer(prepared);
            append(&mut wal, &record(2, 50));
            wal.write()?;
            wal.rotate()?;
            append(&mut wal, &record(3, 50));
            let position = wal.write()?;
            wal.syncer().sync()?;
            wal.note_durable(position);
            synced = 3;
            Ok(())
        };
        let worked = work();
        for seed in 0..20 {
            let after = base.crash(seed, CrashOptions::POWER_LOSS);
            let context = format!("call {nth} seed {seed}");
            let (found, end) = start(&after, dir(), 1).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(found.len() >= synced, "{context}");
            end.remove_cut(&after, dir()).unwrap();
            let mut wal = writer(&after, end.next_segment.0, end.end);
            commit(&mut wal, &record(9, 10));
            assert_eq!(
                start(&after, dir(), 1).unwrap().0.len(),
                found.len() + 1,
                "{context}"
            );
        }
        if worked.is_ok() {
            assert!(nth > 8, "only {nth} calls");
            return;
        }
    }
}

#[test]
fn power_loss_while_cut_segments_are_removed_leaves_the_same_log() {
    let mut cut = 0;
    for seed in 0..200 {
        let (base, mut random) = (mem(), SplitMix::new(seed));
        let mut wal = writer(&base, 1, None);
        commit(&mut wal, &record(1, 50));
        for seqno in 2..12 {
            append(&mut wal, &record(seqno, 400));
            wal.write().unwrap();
            if random.below(3) == 0 {
                wal.rotate().unwrap();
            }
        }
        let base = base.crash(seed, CrashOptions::POWER_LOSS);
        let (found, end) = start(&base, dir(), 1).unwrap();
        cut += usize::from(end.cut.len() > 1);
        for nth in 1..=2 * end.cut.len() as u64 {
            let copy = base.crash(seed, CrashOptions::PROCESS_KILLED);
            let faulty = FaultVfs::new(Arc::new(copy.clone()));
            faulty.arm(Fault {
                calls: Vec::new(),
                nth,
                sticky: true,
                effect: FaultEffect::Error,
            });
            assert!(end.remove_cut(&faulty, dir()).is_err());
            let after = copy.crash(seed, CrashOptions::POWER_LOSS);
            let (again, left) = start(&after, dir(), 1).unwrap();
            assert_eq!(
                (again, left.end),
                (found.clone(), end.end),
                "seed {seed} call {nth}"
            );
        }
    }
    assert!(cut > 50, "only {cut} logs lost more than one segment");
}
