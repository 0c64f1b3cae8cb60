//! How often the equal steps of a trial have rewritten its database, and whether that is enough.
//!
//! Turnover is KiB written by all steps so far over the data at the end of the last one. The data before the first step, which are
//! settled, are the least that they are taken for: what an engine holds in memory alone would make a database look small.

use super::plan::Turnover;
use crate::catalog::STEPS_MAX;
use crate::store::result::PhaseResult;

/// Steps after which a trial that would need too many of them is given up.
const STEPS_TRIED: usize = 3;

/// How often `data` bytes were written with so many KiB; `None` where nothing is stored.
pub fn turnover(kb: f64, data: u64) -> Option<f64> {
    (data > 0).then(|| kb * 1024.0 / data as f64)
}

/// What follows from a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The turnover is not reached.
    Step,
    /// It is.
    Enough,
    /// It cannot be, for this reason.
    GiveUp(String),
}

/// Counts steps.
#[derive(Debug)]
pub struct Counter<'a> {
    asked: &'a Turnover,
    /// Settled data before the first step.
    start: u64,
    steps: usize,
    kb: f64,
    reached: f64,
}

impl<'a> Counter<'a> {
    /// Before the first step, of a database of this size.
    pub fn new(asked: &'a Turnover, start: u64) -> Counter<'a> {
        Counter {
            asked,
            start,
            steps: 0,
            kb: 0.0,
            reached: 0.0,
        }
    }

    /// Whether a phase is one of the steps.
    pub fn counts(asked: &Turnover, phase: &str) -> bool {
        crate::store::result::base_name(phase) == asked.phase
    }

    /// Takes one step into account.
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

    /// How far it came.
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
        // The database has grown: two times its size is more now.
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
