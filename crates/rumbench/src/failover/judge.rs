//! Judge of a round: compares what writers and readers were told before the loss of the primary
//! with what the promoted replica has.
//!
//! Each writer inserts the numbers 1, 2, 3 and so on, one commit each, and stops at the first that
//! is not acknowledged. So its list is two numbers: the last one acknowledged, and the last one
//! tried, which may be one more. The outcome of that one is unknown: it may be there or not. A
//! reader's list is the greatest number that it saw of each writer.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Lists of one writer and of the reader of its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct List {
    /// Last number with an acknowledged commit.
    pub acknowledged: u64,
    /// Last number that was sent.
    pub tried: u64,
    /// Greatest number that a reader saw on the primary.
    pub seen: u64,
}

/// Outcome of the commits of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgment {
    pub acknowledged: u64,
    pub acknowledged_lost: u64,
    /// Commits that were seen on the primary and lost, acknowledged or not.
    pub seen_lost: u64,
    /// Commits without an outcome that the promoted replica has, and lacks.
    pub unknown_present: u64,
    pub unknown_absent: u64,
    /// Rows that no writer tried to insert.
    pub unexplained: u64,
}

/// Judges a round. The promoted replica has the rows `found`, each a writer, counted from 0, and a
/// number.
pub fn judge(told: &[List], found: &BTreeSet<(usize, u64)>) -> Judgment {
    let mut judgment = Judgment::default();
    for (writer, told) in told.iter().enumerate() {
        judgment.acknowledged += told.acknowledged;
        let lost = |number: &u64| !found.contains(&(writer, *number));
        judgment.acknowledged_lost += (1..=told.acknowledged).filter(lost).count() as u64;
        judgment.seen_lost += (1..=told.seen).filter(lost).count() as u64;
        for number in told.acknowledged + 1..=told.tried {
            match lost(&number) {
                true => judgment.unknown_absent += 1,
                false => judgment.unknown_present += 1,
            }
        }
    }
    let tried = |row: &&(usize, u64)| {
        let told = told.get(row.0);
        told.is_some_and(|told| (1..=told.tried).contains(&row.1))
    };
    judgment.unexplained = (found.len() - found.iter().filter(tried).count()) as u64;
    judgment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[(usize, std::ops::RangeInclusive<u64>)]) -> BTreeSet<(usize, u64)> {
        let rows = of.iter().cloned();
        rows.flat_map(|(writer, numbers)| numbers.map(move |number| (writer, number)))
            .collect()
    }

    const TOLD: [List; 2] = [
        List {
            acknowledged: 10,
            tried: 11,
            seen: 10,
        },
        List {
            acknowledged: 5,
            tried: 6,
            seen: 6,
        },
    ];

    #[test]
    fn nothing_is_lost_where_all_that_was_told_is_there() {
        let found = judge(&TOLD, &rows(&[(0, 1..=10), (1, 1..=6)]));
        let expected = Judgment {
            acknowledged: 15,
            unknown_present: 1,
            unknown_absent: 1,
            ..Judgment::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn commits_that_were_acknowledged_or_only_seen_are_missed() {
        let found = judge(&TOLD, &rows(&[(0, 1..=8), (1, 1..=5)]));
        assert_eq!((found.acknowledged_lost, found.seen_lost), (2, 3));
        let mut hole = rows(&[(0, 1..=10), (1, 1..=6)]);
        hole.remove(&(0, 4));
        let found = judge(&TOLD, &hole);
        assert_eq!((found.acknowledged_lost, found.seen_lost), (1, 1));
    }

    #[test]
    fn rows_that_nobody_tried_are_found() {
        let found = judge(&TOLD, &rows(&[(0, 0..=12), (1, 1..=6), (7, 1..=1)]));
        // Numbers 0 and 12 of the first writer, and a writer that does not exist.
        assert_eq!(found.unexplained, 3);
    }

    #[test]
    fn a_list_that_lacks_a_number_is_found() {
        let mut told = TOLD;
        told[0].acknowledged = 9;
        told[0].tried = 9;
        assert_eq!(
            judge(&told, &rows(&[(0, 1..=10), (1, 1..=6)])).unexplained,
            1
        );
    }
}
