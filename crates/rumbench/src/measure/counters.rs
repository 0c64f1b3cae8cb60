//! Counters of the processor and of the kernel's page faults, for this process and its descendants.
//!
//! A counter is opened before the engine and inherited by every later thread and process. The
//! result lacks counters that the machine lacks; many virtual machines lack all of the processor's.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware, Software};
use perf_event::{Builder, Counter, ReadFormat};

use crate::store::result::CountsPerOp;

/// Kinds of counts, in the order of [`CountsPerOp`].
const KINDS: usize = 6;

/// Counters that could be opened.
#[derive(Default)]
pub struct Counters([Option<Counter>; KINDS]);

/// Count, and the time in nanoseconds that it was enabled and running.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Count {
    count: u64,
    enabled: u64,
    running: u64,
}

/// Counts so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts([Option<Count>; KINDS]);

impl Counters {
    /// Opens counters for this thread and for all threads and processes that it starts later.
    pub fn open() -> Counters {
        let misses = |which| Cache {
            which,
            operation: CacheOp::READ,
            result: CacheResult::MISS,
        };
        Counters([
            counter(Hardware::INSTRUCTIONS),
            counter(Hardware::CPU_CYCLES),
            counter(misses(CacheId::LL)).or_else(|| counter(Hardware::CACHE_MISSES)),
            counter(misses(CacheId::DTLB)),
            counter(Hardware::BRANCH_MISSES),
            counter(Software::PAGE_FAULTS),
        ])
    }

    /// Returns the names of the processor's counters that could be opened.
    pub fn names(&self) -> Vec<&'static str> {
        const NAMES: [&str; KINDS - 1] = [
            "instructions",
            "cycles",
            "cache misses",
            "TLB misses",
            "branch misses",
        ];
        let opened = self
            .0
            .iter()
            .zip(NAMES)
            .filter(|(counter, _)| counter.is_some());
        opened.map(|(_, name)| name).collect()
    }

    /// Reads the counts so far; None for a counter that could not be opened.
    pub fn read(&mut self) -> Counts {
        Counts(self.0.each_mut().map(|counter| read(counter.as_mut()?)))
    }
}

/// Opens a counter with the kernel's part, or without it if the user may not observe the kernel.
fn counter(event: impl Event + Clone) -> Option<Counter> {
    let open = |with_kernel: bool| {
        let mut builder = Builder::new(event.clone());
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        builder
            .observe_self()
            .any_cpu()
            .inherit(true)
            .enabled(true)
            .exclude_kernel(!with_kernel)
            .read_format(times);
        builder.build().ok()
    };
    open(true).or_else(|| open(false))
}

fn read(counter: &mut Counter) -> Option<Count> {
    let found = counter.read_count_and_time().ok()?;
    Some(Count {
        count: found.count,
        enabled: found.time_enabled,
        running: found.time_running,
    })
}

impl Count {
    /// Returns the count since `before`. A processor may have fewer counters than there are kinds.
    /// Then each runs for a part of the time, and its count is extrapolated.
    fn since(self, before: Count) -> Option<f64> {
        let count = self.count.saturating_sub(before.count) as f64;
        let enabled = self.enabled.saturating_sub(before.enabled) as f64;
        match self.running.saturating_sub(before.running) {
            0 => (enabled == 0.0).then_some(0.0),
            running => Some(count * enabled / running as f64),
        }
    }
}

impl Counts {
    /// Returns the counts since `before`, per operation.
    pub fn per_op(self, before: Counts, operations: u64) -> Option<CountsPerOp> {
        let each = |kind: usize| {
            let difference = self.0[kind]?.since(before.0[kind]?)?;
            (operations > 0).then(|| difference / operations as f64)
        };
        let found = CountsPerOp {
            instructions: each(0),
            cycles: each(1),
            cache_misses: each(2),
            tlb_misses: each(3),
            branch_misses: each(4),
            page_faults: each(5),
        };
        (found != CountsPerOp::default()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_for_each_operation() {
        let count = |count, enabled, running| {
            Some(Count {
                count,
                enabled,
                running,
            })
        };
        let before = [
            count(100, 9, 9),
            None,
            count(5, 9, 3),
            None,
            None,
            count(0, 9, 9),
        ];
        // The third counter ran for half of the time, the fourth is new, the last never ran.
        let after = [
            count(300, 19, 19),
            None,
            count(105, 29, 13),
            count(7, 9, 9),
            None,
            count(0, 19, 9),
        ];
        let (before, after) = (Counts(before), Counts(after));
        let found = after.per_op(before, 50).expect("some");
        let wanted = CountsPerOp {
            instructions: Some(4.0),
            cache_misses: Some(4.0),
            ..CountsPerOp::default()
        };
        assert_eq!(found, wanted);
        assert_eq!(after.per_op(before, 0), None);
        assert_eq!(Counts::default().per_op(Counts::default(), 9), None);
    }

    #[test]
    fn counters_that_can_be_opened_count_what_later_threads_do() {
        let mut counters = Counters::open();
        let before = counters.read();
        let touch = || std::hint::black_box(vec![1_u8; 16 << 20]).len();
        assert_eq!(
            std::thread::spawn(touch).join().expect("no panic"),
            16 << 20
        );
        let after = counters.read();
        // If the kernel provides no counts to this user, there is nothing to test.
        if let Some((before, after)) = before.0[5].zip(after.0[5]) {
            assert!(after.since(before) >= Some(4.0), "{before:?} {after:?}");
        }
    }
}
