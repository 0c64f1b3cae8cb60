//! Counts how often the equal steps of a trial have rewritten its database, until that is enough.
//!
//! Turnover is the KiB written by all steps so far divided by the data after the last one. The
//! divisor is at least the settled data before the first step. Otherwise data that an engine holds
//! only in memory would make a database look small.

use super::plan::Turnover;
use crate::catalog::STEPS_MAX;
use crate::store::result::PhaseResult;

/// Number of steps after which a trial is given up if it would need too many.
const STEPS_TRIED: usize = 3;

/// Returns how often `data` bytes were written with `kb` KiB; `None` if no data is stored.
pub fn turnover(kb: f64, data: u64) -> Option<f64> {
    (data > 0).then(|| kb * 1024.0 / data as f64)
}

/// Next action after a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The turnover is not reached; another step follows.
    Step,
    /// The turnover is reached.
    Enough,
    /// The turnover cannot be reached, for this reason.
    GiveUp(String),
}

/// Counter of steps and written KiB.
#[derive(Debug)]
pub struct Counter<'a> {
    asked: &'a Turnover,
    /// Bytes of settled data before the first step.
    start: u64,
    steps: usize,
    kb: f64,
    reached: f64,
}

impl<'a> Counter<'a> {
    /// Returns a counter before the first step, for a database of `start` bytes.
    pub fn new(asked: &'a Turnover, start: u64) -> Counter<'a> {
        Counter {
            asked,
            start,
            steps: 0,
            kb: 0.0,
            reached: 0.0,
        }
    }

    /// Returns true if a phase is one of the steps.
    pub fn counts(asked: &Turnover, phase: &str) -> bool {
        crate::store::result::base_name(phase) == asked.phase
    }

    /// Adds one step and returns the next action.
    pub fn add(&mut self, step: &PhaseResult) -> Next {
        self.steps += 1;
        let Some(kb) = step.kb_written else {
            return Next::GiveUp("the kernel does not tell what was written".to_string());
        };
        self.kb += kb;
        let data = step.size_bytes.map_or(0, |size| size.data).max(self.start);
        if let Some(reached) = turnover(self.kb, data) {
            self.reached = reached;
        }
        if self.reached >= self.asked.multiple {
            return Next::Enough;
        }
        let needed = self.asked.multiple / self.reached * self.steps as f64;
        if self.steps >= STEPS_TRIED && needed > STEPS_MAX as f64 || self.steps >= STEPS_MAX {
            return Next::GiveUp(self.unmet());
        }
        Next::Step
    }

    /// Describes the turnover reached and the requested one.
    pub fn unmet(&self) -> String {
        format!(
            "{:.3} of {} times the data after {} steps; longer steps or a smaller database reach more",
            self.reached, self.asked.multiple, self.steps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::SizeBytes;

    fn step(kb: f64, data: u64) -> PhaseResult {
        PhaseResult {
            kb_written: Some(kb),
            size_bytes: Some(SizeBytes {
                data,
                ..SizeBytes::default()
            }),
            ..PhaseResult::default()
        }
    }

    fn asked(multiple: f64) -> Turnover {
        Turnover {
            multiple,
            phase: "request".to_string(),
        }
    }

    #[test]
    fn steps_go_on_until_the_data_were_written_often_enough() {
        let asked = asked(2.0);
        let mut counter = Counter::new(&asked, 1024);
        assert_eq!(counter.add(&step(1.0, 1024)), Next::Step);
        // The database has grown, so a turnover of 2 needs more bytes.
        assert_eq!(counter.add(&step(1.0, 2048)), Next::Step);
        assert_eq!(counter.add(&step(2.0, 2048)), Next::Enough);
        assert!(Counter::counts(&asked, "request#7") && !Counter::counts(&asked, "load"));
    }

    #[test]
    fn data_that_are_only_in_memory_do_not_make_the_database_small() {
        let asked = asked(2.0);
        let mut counter = Counter::new(&asked, 4096);
        assert_eq!(counter.add(&step(4.0, 1)), Next::Step);
    }

    #[test]
    fn a_workload_that_hardly_writes_is_given_up_with_how_far_it_came() {
        let asked = asked(5.0);
        let mut counter = Counter::new(&asked, 1 << 30);
        assert_eq!(counter.add(&step(1.0, 0)), Next::Step);
        assert_eq!(counter.add(&step(1.0, 0)), Next::Step);
        let Next::GiveUp(why) = counter.add(&step(1.0, 0)) else {
            panic!("three steps show it");
        };
        assert!(why.contains("0.000 of 5 times"), "{why}");
        let mut none = Counter::new(&asked, 0);
        let last = (0..3).map(|_| none.add(&step(0.0, 0))).last();
        assert!(matches!(last, Some(Next::GiveUp(_))), "{last:?}");
        let unknown = none.add(&PhaseResult::default());
        assert!(matches!(unknown, Next::GiveUp(why) if why.contains("kernel")));
    }
}
