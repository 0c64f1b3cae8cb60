//! Check of a server's answer to LinkBench's list query, row by row: each link must lie within the
//! requested times and follow the previous link in order. Missing links are found after the run,
//! when tables and counts are compared.

use std::ops::RangeInclusive;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::linkbench::{EqualTimes, ListQuery, ListResult};

/// Rows of a list received so far.
pub(super) struct List {
    times: RangeInclusive<u64>,
    equal_times: EqualTimes,
    result: ListResult,
    /// Error in the first wrong row.
    wrong: Option<String>,
}

impl List {
    pub(super) fn new(times: RangeInclusive<u64>, equal_times: EqualTimes) -> List {
        List {
            times,
            equal_times,
            result: ListResult::default(),
            wrong: None,
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, time: u64, id2: u64) {
        let is_behind = |(before, other): (u64, u64)| match self.equal_times {
            _ if time != before => time < before,
            EqualTimes::Ascending => id2 > other,
            EqualTimes::Descending => id2 < other,
        };
        if !self.times.contains(&time) {
            self.refuse(format!("a link of time {time}"));
        } else if let Some(last) = self.result.last.filter(|last| !is_behind(*last)) {
            self.refuse(format!("the link ({time}, {id2}) after {last:?}"));
        }
        self.result.rows += 1;
        self.result.last = Some((time, id2));
    }

    #[cold]
    fn refuse(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    /// Returns the list after its last row.
    ///
    /// # Errors
    /// [`EngineError::Wrong`] with the first row that does not match `query`.
    pub(super) fn end(self, query: &ListQuery) -> Result<ListResult> {
        match self.wrong {
            None => Ok(self.result),
            Some(why) => Err(EngineError::Wrong(format!("{why} for {query:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error in these links, newest first, for the times 10 to 20.
    fn wrong(equal_times: EqualTimes, links: &[(u64, u64)]) -> Option<String> {
        let mut list = List::new(10..=20, equal_times);
        for (time, id2) in links {
            list.add(*time, *id2);
        }
        assert_eq!(list.result.rows, links.len() as u64);
        list.wrong
    }

    #[test]
    fn a_list_goes_from_new_to_old_within_its_times() {
        let of = |links: &[(u64, u64)]| wrong(EqualTimes::Ascending, links);
        assert_eq!(of(&[(20, 5), (15, 7), (15, 8), (10, 1)]), None);
        assert_eq!(of(&[(21, 5)]).as_deref(), Some("a link of time 21"));
        assert_eq!(of(&[(20, 5), (9, 1)]).as_deref(), Some("a link of time 9"));
        let newer = of(&[(12, 5), (13, 1), (9, 1)]);
        assert_eq!(newer.as_deref(), Some("the link (13, 1) after (12, 5)"));
        assert!(of(&[(12, 5), (12, 5)]).is_some() && of(&[(12, 5), (12, 4)]).is_some());
    }

    #[test]
    fn links_of_one_time_may_go_the_other_way() {
        let of = |links: &[(u64, u64)]| wrong(EqualTimes::Descending, links);
        assert_eq!(of(&[(12, 5), (12, 4)]), None);
        assert!(of(&[(12, 4), (12, 5)]).is_some());
    }
}
