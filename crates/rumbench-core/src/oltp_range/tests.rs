//! The tests, with the names, range lengths and statement counts of the published reports, and the
//! list of steps.

use std::fmt;

use super::columns::{C, ID};
use crate::names::unknown;
use crate::tables::Fold;

/// Group of tests that reports show together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Reads of single rows.
    Points,
    /// Ranges that are only read.
    Ranges,
    /// Ranges that are summed, counted or sorted.
    Aggregates,
    /// All tests that write.
    Writes,
}

/// Statements of an event of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads one row by its id.
    PointQuery,
    /// Reads rows by random ids.
    RandomPoints {
        /// Columns that a SQL server selects.
        columns: &'static [usize],
    },
    /// Reads the rows after the middle id, always the same ones.
    HotPoints,
    /// Reads index entries of random `k`, with or without their rows.
    PointsByK {
        /// True if the rows are read too.
        rows: bool,
    },
    /// Reads a range of ids, both ends included.
    Range {
        /// Columns that a SQL server selects.
        columns: &'static [usize],
    },
    /// Reads a range of `k`, with or without its rows.
    RangeByK {
        /// True if the rows are read too.
        rows: bool,
    },
    /// Reads ten points and four ranges: rows, sum, sorted, distinct.
    ReadOnly,
    /// Reads ten points and one range.
    PointsAndRange(Fold),
    /// Counts one range.
    Count,
    /// Scans one whole table.
    Scan,
    /// Sets `c` of some rows in one statement.
    UpdateInList,
    /// Adds one to `k` of one row.
    UpdateIndex,
    /// Sets `c` of one row.
    UpdateNonIndex,
    /// Sets `c` of the row with id 1.
    UpdateOne,
    /// Sets `c` of one row; low ids are chosen more often.
    UpdateZipf,
    /// Performs both updates, and a delete and an insert of the same id.
    WriteOnly,
    /// Performs the reads of `ReadOnly` and the writes of `WriteOnly`.
    ReadWrite,
    /// Deletes one row, which may be gone.
    Delete,
    /// Inserts one row above all ids.
    Insert,
}

/// One test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestDef {
    /// Published name.
    pub name: &'static str,
    /// Statements of an event.
    pub kind: Kind,
    /// Default number of rows of a range, or of ids of a list; 0: the test has none.
    pub range: u64,
    /// Statements of an event as counted by the reference, BEGIN and COMMIT of transactions
    /// included.
    pub queries: u64,
    /// Group in reports.
    pub group: Group,
    /// Description in one line for `rumbench list phases`.
    pub meaning: &'static str,
}

const fn test(
    name: &'static str,
    kind: Kind,
    range: u64,
    queries: u64,
    group: Group,
    meaning: &'static str,
) -> TestDef {
    TestDef {
        name,
        kind,
        range,
        queries,
        group,
        meaning,
    }
}

/// All tests.
#[rustfmt::skip] // One test a line.
pub const TESTS: &[TestDef] = &[
    test("point-query", Kind::PointQuery, 0, 1, Group::Points, "one row by its id"),
    test("random-points", Kind::RandomPoints { columns: &[C] }, 100, 1, Group::Points, "R rows by random ids, in one call"),
    test("hot-points", Kind::HotPoints, 100, 1, Group::Points, "R rows by the ids after the middle, always the same"),
    test("points-covered-pk", Kind::RandomPoints { columns: &[ID] }, 100, 1, Group::Points, "the ids of R random rows"),
    test("points-notcovered-pk", Kind::RandomPoints { columns: &[ID, C] }, 100, 1, Group::Points, "R random rows by id"),
    test("points-covered-si", Kind::PointsByK { rows: false }, 100, 1, Group::Points, "entries of the index for R random values"),
    test("points-notcovered-si", Kind::PointsByK { rows: true }, 100, 1, Group::Points, "rows by the index for R random values"),
    test("range-covered-pk", Kind::Range { columns: &[ID] }, 100, 1, Group::Ranges, "the ids of R + 1 rows in order"),
    test("range-notcovered-pk", Kind::Range { columns: &[ID, C] }, 100, 1, Group::Ranges, "R + 1 rows in order"),
    test("range-covered-si", Kind::RangeByK { rows: false }, 100, 1, Group::Ranges, "entries of the index for R + 1 values in order"),
    test("range-notcovered-si", Kind::RangeByK { rows: true }, 100, 1, Group::Ranges, "rows by the index for R + 1 values in order"),
    test("scan", Kind::Scan, 0, 1, Group::Ranges, "one whole table for each event; client n scans table n"),
    test("read-only", Kind::ReadOnly, 100, 16, Group::Aggregates, "transaction: 10 points, and ranges of R rows read, added up, sorted, made distinct"),
    test("read-only-simple", Kind::PointsAndRange(Fold::Rows), 1000, 13, Group::Aggregates, "transaction: 10 points and a range of R rows"),
    test("read-only-sum", Kind::PointsAndRange(Fold::Sum), 1000, 13, Group::Aggregates, "transaction: 10 points and a range whose k are added up"),
    test("read-only-order", Kind::PointsAndRange(Fold::Order), 1000, 13, Group::Aggregates, "transaction: 10 points and a range sorted by c"),
    test("read-only-distinct", Kind::PointsAndRange(Fold::Distinct), 1000, 13, Group::Aggregates, "transaction: 10 points and the different c of a range, sorted"),
    test("read-only-count", Kind::Count, 1000, 1, Group::Aggregates, "a range of R rows, counted"),
    test("update-inlist", Kind::UpdateInList, 10, 1, Group::Writes, "the same new c for R random rows"),
    test("update-index", Kind::UpdateIndex, 0, 1, Group::Writes, "k + 1 for a random row"),
    test("update-nonindex", Kind::UpdateNonIndex, 0, 1, Group::Writes, "another c for a random row"),
    test("update-one", Kind::UpdateOne, 0, 1, Group::Writes, "another c for the row with id 1"),
    test("update-zipf", Kind::UpdateZipf, 0, 1, Group::Writes, "another c for a row, low ids more often"),
    test("write-only", Kind::WriteOnly, 0, 6, Group::Writes, "transaction: both updates, delete and insert of the same id"),
    test("read-write", Kind::ReadWrite, 100, 20, Group::Writes, "transaction: read-only and write-only together"),
    test("delete", Kind::Delete, 0, 1, Group::Writes, "deletes a random row, which may be gone"),
    test("insert", Kind::Insert, 0, 1, Group::Writes, "inserts a row above all ids"),
];

/// Returns the names of the phases with a description of each.
pub fn phases() -> Vec<(&'static str, &'static str)> {
    let mut phases = PHASES.to_vec();
    phases.extend(TESTS.iter().map(|test| (test.name, test.meaning)));
    phases
}

/// Phases that are not tests.
pub const PHASES: &[(&str, &str)] = &[
    (
        "load",
        "inserts the rows of all tables in the order of their ids",
    ),
    ("index", "builds the index of k of each table"),
    ("settle", "the engine works off its backlog"),
];

/// One step of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Loads the tables.
    Load,
    /// Builds the indexes.
    Index,
    /// Lets the engine work off its backlog.
    Settle,
    /// Runs a test.
    Test {
        /// The test to run.
        test: &'static TestDef,
        /// Range given with the step; `None`: the configured one or the test's.
        range: Option<u64>,
        /// True if the run is not recorded and only fills caches.
        warmup: bool,
    },
}

/// Prefix of the name of a test that is not recorded.
const WARMUP: &str = "warmup-";
/// Longest range.
pub const RANGE_MAX: u64 = 1_000_000;

impl Step {
    /// Parses the name of a step. A test may have the prefix `warmup-`, and a range after a colon.
    ///
    /// # Errors
    /// Fails on an unknown name or an invalid range; the message lists the valid ones.
    pub fn named(name: &str) -> Result<Step, String> {
        match name {
            "load" => return Ok(Step::Load),
            "index" => return Ok(Step::Index),
            "settle" => return Ok(Step::Settle),
            _ => {}
        }
        let (warmup, rest) = match name.strip_prefix(WARMUP) {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let (own, range) = match rest.split_once(':') {
            Some((own, range)) => (own, Some(range)),
            None => (rest, None),
        };
        let Some(test) = find(own) else {
            let names: Vec<&str> = phases().iter().map(|(name, _)| *name).collect();
            return Err(unknown("step", own, &names));
        };
        let range = match range {
            None => None,
            Some(_) if test.range == 0 => return Err(format!("{own} has no range")),
            Some(text) => Some(range_of(text)?),
        };
        Ok(Step::Test {
            test,
            range,
            warmup,
        })
    }
}

/// Parses a range from 1 to [`RANGE_MAX`].
fn range_of(text: &str) -> Result<u64, String> {
    let range = text.parse().ok();
    let allowed = range.filter(|range| (1..=RANGE_MAX).contains(range));
    allowed.ok_or_else(|| format!("a range from 1 to {RANGE_MAX} is allowed after the colon"))
}

/// Finds a test by its name.
pub fn find(name: &str) -> Option<&'static TestDef> {
    TESTS.iter().find(|test| test.name == name)
}

/// Finds the test of a phase; ignores the prefix, range and number in the name of the phase.
pub fn of_phase(phase: &str) -> Option<&'static TestDef> {
    let name = phase.split(['#', ':']).next()?;
    find(name.strip_prefix(WARMUP).unwrap_or(name))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Load => f.write_str("load"),
            Step::Index => f.write_str("index"),
            Step::Settle => f.write_str("settle"),
            Step::Test {
                test,
                range,
                warmup,
            } => {
                f.write_str(if *warmup { WARMUP } else { "" })?;
                f.write_str(test.name)?;
                match range {
                    Some(range) => write!(f, ":{range}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Order of a published run, after the load: reads of fresh tables, writes, then all tests that
/// read.
#[rustfmt::skip]
pub const ORDER: &[&str] = &[
    "load", "index", "warmup-point-query", "settle", "warmup-scan", "point-query", "range-notcovered-si",
    "update-inlist", "update-index", "update-nonindex", "update-one", "update-zipf", "write-only",
    "read-write:10", "read-write:100", "settle", "warmup-scan", "scan",
    "read-only:10", "read-only:100", "read-only:10000", "read-only-simple", "read-only-sum", "read-only-order",
    "read-only-distinct", "read-only-count",
    "point-query", "random-points:10", "random-points:100", "random-points:1000", "hot-points",
    "points-covered-pk", "points-notcovered-pk", "range-covered-pk", "range-notcovered-pk",
    "warmup-points-covered-si", "points-covered-si", "points-notcovered-si", "range-covered-si", "range-notcovered-si",
    "delete", "insert",
];

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_step_of_the_published_order_has_its_name() {
        for name in ORDER {
            assert_eq!(Step::named(name).unwrap().to_string(), *name);
        }
        assert_eq!(of_phase("warmup-scan#2").unwrap().name, "scan");
        assert_eq!(of_phase("read-write:10").unwrap().queries, 20);
        assert!(of_phase("settle").is_none());
    }

    #[test]
    fn invalid_steps_are_rejected_with_a_reason() {
        let refusal = |name| Step::named(name).unwrap_err();
        assert!(refusal("read-onyl").contains("did you mean `read-only`?"));
        assert!(refusal("scan:5").contains("scan has no range"));
        assert!(refusal("read-only:0").contains("from 1 to"));
        assert!(refusal("warmup-load").contains("no step is named"));
    }

    #[test]
    fn groups_have_the_sizes_of_the_published_ones() {
        // The published sizes are nine, five, eight and ten. Tests with several ranges are counted
        // once here.
        let count = |group| TESTS.iter().filter(|test| test.group == group).count();
        let groups = [
            Group::Points,
            Group::Ranges,
            Group::Aggregates,
            Group::Writes,
        ];
        assert_eq!(groups.map(count), [7, 5, 6, 9]);
    }
}
