//! The steps of the Insert Benchmark.
//!
//! The number in the name of a query step is the rate of its background inserts for each client,
//! and of its deletes. Names with any rate are accepted.

use std::fmt;

/// Action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Loads the tables in key order.
    Load,
    /// Inserts a few rows and builds the indexes.
    Index,
    /// Inserts and deletes as fast as possible.
    Write(Writes),
    /// Runs range queries, with background inserts and deletes at this rate per client and second.
    Ranges(u64),
    /// Runs queries by primary key, with background inserts and deletes at this rate per client and
    /// second.
    Points(u64),
    /// Lets the engine work off its backlog.
    Settle,
}

/// The two write steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// `l.i1`: larger transactions.
    First,
    /// `l.i2`: small transactions.
    Second,
}

/// One step, named as in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step(pub Action);

/// Highest background rate in rows per second of one client.
const RATE_MAX: u64 = 100_000_000;

/// The ten steps in order, with the meaning of each for `rumbench list phases`.
pub const STEPS: &[(&str, &str)] = &[
    ("l.i0", "loads every table in the order of the primary key"),
    (
        "l.x",
        "inserts 100 rows more, then builds the three indexes",
    ),
    (
        "l.i1",
        "inserts and deletes as fast as possible, 50 rows a transaction",
    ),
    ("l.i2", "the same, 5 rows a transaction"),
    (
        "qr100",
        "range queries, with 100 background inserts and deletes a second of each client",
    ),
    (
        "qp100",
        "queries of 10 rows by primary key, with the same background writes",
    ),
    ("qr500", "as qr100, with 500 inserts and deletes a second"),
    ("qp500", "as qp100, with 500 inserts and deletes a second"),
    ("qr1000", "as qr100, with 1000 inserts and deletes a second"),
    ("qp1000", "as qp100, with 1000 inserts and deletes a second"),
    (
        "settle",
        "the engine works off its backlog; follows the writes before the first query step",
    ),
];

impl Step {
    /// Parses the name of a step.
    ///
    /// # Errors
    /// Fails on an unknown name; the message names the steps.
    pub fn named(name: &str) -> Result<Step, String> {
        let rate = |digits: &str| {
            let rate = digits.parse().ok();
            rate.filter(|rate| (1..=RATE_MAX).contains(rate))
        };
        let action = match name {
            "l.i0" => Some(Action::Load),
            "l.x" => Some(Action::Index),
            "l.i1" => Some(Action::Write(Writes::First)),
            "l.i2" => Some(Action::Write(Writes::Second)),
            "settle" => Some(Action::Settle),
            _ => match (name.strip_prefix("qr"), name.strip_prefix("qp")) {
                (Some(digits), _) => rate(digits).map(Action::Ranges),
                (_, Some(digits)) => rate(digits).map(Action::Points),
                _ => None,
            },
        };
        action.map(Step).ok_or_else(|| {
            let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
            let unknown = crate::names::unknown("step", name, &known);
            format!("{unknown} (qr and qp take any rate from 1 to {RATE_MAX})")
        })
    }

    /// Returns the rate of the background inserts in rows per second of one client; `None` for
    /// steps without queries.
    pub fn background_rate(self) -> Option<u64> {
        match self.0 {
            Action::Ranges(rate) | Action::Points(rate) => Some(rate),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Action::Load => f.write_str("l.i0"),
            Action::Index => f.write_str("l.x"),
            Action::Write(Writes::First) => f.write_str("l.i1"),
            Action::Write(Writes::Second) => f.write_str("l.i2"),
            Action::Ranges(rate) => write!(f, "qr{rate}"),
            Action::Points(rate) => write!(f, "qp{rate}"),
            Action::Settle => f.write_str("settle"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_names_round_trip_and_accept_any_rate() {
        for (name, _) in STEPS {
            assert_eq!(Step::named(name).unwrap().to_string(), *name);
        }
        assert_eq!(Step::named("qp250").unwrap().background_rate(), Some(250));
        for bad in ["qr0", "qr", "qp1e3", "l.i3", "q100"] {
            let error = Step::named(bad).unwrap_err();
            assert!(error.contains("no step is named"), "{error}");
        }
    }
}
