//! `result.json` of a failover test, and its table.

use std::collections::BTreeMap;

use rumbench_engines::replication::Promise;
use serde::Serialize;

use super::judge::Judgment;
use super::round::{Bytes, Round};
use crate::measure::statistics::median;
use crate::report::table::Table;
use crate::text::{count, number};

/// `result.json` of a failover test.
#[derive(Debug, Clone, Serialize)]
pub struct FailoverResult {
    /// Version of the result schema.
    pub schema_version: u32,
    /// Version of the laboratory.
    pub rumbench_version: String,
    /// Command line.
    pub command: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Machine and build.
    pub environment: BTreeMap<String, String>,
    /// Round trip between primary and replica that was asked for, in milliseconds.
    pub round_trip_ms: f64,
    /// Time that the primary lived without its network, in milliseconds.
    pub isolated_ms: f64,
    pub bytes: Bytes,
    pub writers: usize,
    pub seed: u64,
    pub modes: Vec<ModeResult>,
    /// True if the user interrupted the test.
    pub interrupted: bool,
}

/// Rounds of one mode of one product.
#[derive(Debug, Clone, Serialize)]
pub struct ModeResult {
    pub product: String,
    pub mode: String,
    /// Promised to survive: acknowledged commits, and commits that were seen.
    pub keeps_acknowledged: bool,
    pub keeps_seen: bool,
    pub rounds: Vec<Round>,
    /// Rounds without a judgment, in the words of the servers.
    pub errors: Vec<String>,
}

impl ModeResult {
    /// Creates the result of a mode before its first round.
    pub fn new(product: &str, mode: &str, promise: Promise) -> ModeResult {
        ModeResult {
            product: product.to_string(),
            mode: mode.to_string(),
            keeps_acknowledged: !promise.acknowledged_may_be_lost,
            keeps_seen: !promise.seen_may_be_lost,
            rounds: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Returns the rounds that are evidence.
    fn counted(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(|round| round.fell_back.is_none())
    }

    /// Returns a sum over these rounds, and the number of rounds in which it is not 0.
    fn sum(&self, part: impl Fn(&Judgment) -> u64) -> (u64, usize) {
        let parts = self.counted().map(|round| part(&round.judgment));
        parts.fold((0, 0), |(sum, rounds), part| {
            (sum + part, rounds + usize::from(part > 0))
        })
    }

    /// Returns true if the mode lost what it promises to keep, or made rows of its own.
    pub fn violated(&self) -> bool {
        let acknowledged = self.sum(|found| found.acknowledged_lost).0;
        let seen = self.sum(|found| found.seen_lost).0;
        (self.keeps_acknowledged && acknowledged > 0)
            || (self.keeps_seen && seen > 0)
            || self.sum(|found| found.unexplained).0 > 0
    }

    fn row(&self) -> Vec<String> {
        let whole = |n: u64| count(Some(n as f64));
        let counted = self.counted().count();
        let lost = |keeps: bool, (sum, rounds): (u64, usize)| {
            let promised = if keeps { "kept" } else { "may be lost" };
            match rounds {
                _ if counted == 0 => format!("{promised}; -"),
                0 => format!("{promised}; 0"),
                _ => format!("{promised}; {sum} in {rounds}"),
            }
        };
        let of = |part: fn(&Round) -> Option<f64>| {
            let times: Vec<f64> = self.counted().filter_map(part).collect();
            number(median(&times))
        };
        let first = self
            .counted()
            .filter(|round| round.replica_first > 0)
            .count();
        vec![
            self.product.clone(),
            self.mode.clone(),
            whole(counted as u64),
            whole((self.rounds.len() - counted) as u64),
            whole(self.errors.len() as u64),
            whole(self.sum(|found| found.acknowledged).0),
            lost(
                self.keeps_acknowledged,
                self.sum(|found| found.acknowledged_lost),
            ),
            lost(self.keeps_seen, self.sum(|found| found.seen_lost)),
            whole(first as u64),
            of(|round| round.times.drain_ms),
            of(|round| Some(round.times.promote_ms)),
            of(|round| Some(round.times.total_ms())),
        ]
    }

    /// Returns true if no round failed and at least one is evidence.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.counted().count() > 0
    }

    /// Returns what a reader of the row has to know.
    fn notes(&self) -> Vec<String> {
        let name = format!("{} {}", self.product, self.mode);
        let version = self.rounds.first().map(|round| &round.version);
        let mut notes: Vec<String> = version
            .map(|version| format!("{name}: {version}"))
            .into_iter()
            .collect();
        let errors = self.errors.iter().take(3);
        notes.extend(errors.map(|error| format!("{name}: a round failed: {error}")));
        let fell_back = self
            .rounds
            .iter()
            .find_map(|round| round.fell_back.as_ref());
        notes.extend(fell_back.map(|words| format!("{name}: fell back: {words}")));
        let late = self.counted().filter(|round| !round.delay_holds).count();
        if late > 0 {
            notes.push(format!(
                "{name}: the relay did not hold its delay in {late} rounds"
            ));
        }
        let unexplained = self.sum(|found| found.unexplained).0;
        if unexplained > 0 {
            notes.push(format!(
                "{name}: {unexplained} rows that no client tried to write"
            ));
        }
        notes
    }
}

impl FailoverResult {
    /// Returns true if a mode broke its promise.
    pub fn violated(&self) -> bool {
        self.modes.iter().any(ModeResult::violated)
    }

    /// Returns the table of all modes.
    pub fn table(&self) -> Table {
        let bytes = match self.bytes {
            Bytes::Drained => "the bytes under way delivered".to_string(),
            Bytes::Cut if self.isolated_ms > 0.0 => {
                format!("{} ms after its network", number(Some(self.isolated_ms)))
            }
            Bytes::Cut => "the bytes under way lost with it".to_string(),
        };
        let title = format!(
            "The primary loses power, {bytes}; round trip {} ms, {} writers; promised, then measured",
            number(Some(self.round_trip_ms)),
            self.writers
        );
        let mut table = Table::new(
            title,
            &[
                "product",
                "mode",
                "rounds",
                "fell back",
                "failed",
                "acknowledged",
                "acknowledged lost",
                "seen lost",
                "replica first (rounds)",
                "drain p50 (ms)",
                "promote p50 (ms)",
                "to a commit p50 (ms)",
            ],
        );
        table.text_columns = 2;
        for mode in &self.modes {
            table.rows.push(mode.row());
            table.notes.extend(mode.notes());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::round::Times;
    use crate::report::table::Format;

    fn round(judgment: Judgment) -> Round {
        Round {
            version: "MariaDB 10.11.18".to_string(),
            judgment,
            replica_first: 0,
            times: Times {
                drain_ms: Some(1.0),
                promote_ms: 20.0,
                commit_ms: 2.0,
            },
            fell_back: None,
            round_trip_ms: [2.0, 2.4],
            delay_holds: true,
        }
    }

    fn mode(promise: Promise, rounds: &[Judgment]) -> ModeResult {
        ModeResult {
            rounds: rounds.iter().copied().map(round).collect(),
            ..ModeResult::new("mariadb-innodb", "a-mode", promise)
        }
    }

    #[test]
    fn only_what_was_promised_is_a_violation() {
        let seen = Judgment {
            acknowledged: 100,
            seen_lost: 2,
            ..Judgment::default()
        };
        assert!(!mode(Promise::ACKNOWLEDGED, &[seen]).violated());
        let acknowledged = Judgment {
            acknowledged_lost: 1,
            ..seen
        };
        assert!(mode(Promise::ACKNOWLEDGED, &[seen, acknowledged]).violated());
        let unexplained = Judgment {
            unexplained: 1,
            ..Judgment::default()
        };
        assert!(mode(Promise::ACKNOWLEDGED, &[unexplained]).violated());
    }

    #[test]
    fn a_round_that_fell_back_is_no_evidence() {
        let lost = Judgment {
            acknowledged: 10,
            acknowledged_lost: 3,
            ..Judgment::default()
        };
        let mut result = mode(Promise::ACKNOWLEDGED, &[lost]);
        result.rounds[0].fell_back = Some("status OFF".to_string());
        assert!(!result.violated());
        assert_eq!(result.row()[2..4], ["0", "1"]);
        assert_eq!(
            result.notes(),
            [
                "mariadb-innodb a-mode: MariaDB 10.11.18",
                "mariadb-innodb a-mode: fell back: status OFF"
            ]
        );
        assert_eq!(result.row()[6], "kept; -");
        assert!(!result.is_complete());
    }

    #[test]
    fn the_table_has_promise_and_measurement_in_one_cell() {
        let lost = Judgment {
            acknowledged: 100,
            seen_lost: 2,
            ..Judgment::default()
        };
        let mut one = mode(Promise::ACKNOWLEDGED, &[lost, Judgment::default()]);
        one.errors.push("the replica cannot connect".to_string());
        let result = FailoverResult {
            schema_version: 1,
            rumbench_version: String::new(),
            command: String::new(),
            started_at: String::new(),
            environment: BTreeMap::new(),
            round_trip_ms: 2.0,
            isolated_ms: 0.0,
            bytes: Bytes::Cut,
            writers: 8,
            seed: 1,
            modes: vec![one],
            interrupted: false,
        };
        let table = result.table();
        assert_eq!(table.rows[0][6..8], ["kept; 0", "may be lost; 2 in 1"]);
        let text = table.render(Format::Text);
        assert!(text.contains("round trip 2"), "{text}");
        assert!(
            text.contains("a round failed: the replica cannot connect"),
            "{text}"
        );
    }
}
