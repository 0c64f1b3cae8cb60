//! One-line record of a step, 21 columns, with the formulas of the published reports.
//!
//! Two differences are intentional. Time is exact; in the published reports it is whole seconds and
//! includes the start of the clients. The rates at the 50th and 99th percentile are those of all
//! clients; in the published reports they are those of the first client.

use crate::text::gib;

/// Column names in the published order.
pub const COLUMNS: &[&str] = &[
    "ips", "qps", "rps", "rmbps", "wps", "wmbps", "rpq", "rkbpq", "wpi", "wkbpi", "csps", "cpups",
    "cspq", "cpupq", "dbgb1", "dbgb2", "rss", "maxop", "p50", "p99", "tag",
];

/// Measurements of a step. `None` means not measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// True if the step's operations are inserts, false for queries.
    pub writes: bool,
    /// Rows inserted per second; in query steps, those of the background clients.
    pub ips: Option<f64>,
    /// Queries per second.
    pub qps: Option<f64>,
    /// Device reads per second.
    pub rps: Option<f64>,
    /// KiB read per second.
    pub rkbps: Option<f64>,
    /// Device writes per second.
    pub wps: Option<f64>,
    /// KiB written per second.
    pub wkbps: Option<f64>,
    /// Context switches per second.
    pub csps: Option<f64>,
    /// CPU in use, in percent of all CPUs.
    pub cpups: Option<f64>,
    /// Number of CPUs of the machine.
    pub cpus: f64,
    /// Size of the data files in bytes.
    pub data_bytes: Option<u64>,
    /// Size of the whole directory in bytes.
    pub directory_bytes: Option<u64>,
    /// Resident memory in bytes.
    pub rss_bytes: Option<u64>,
    /// Longest insert or query, in seconds.
    pub max_op_seconds: Option<f64>,
    /// Rate of inserts or queries in the median second, per second ([`rate_at`]).
    pub p50: Option<f64>,
    /// Rate that 99 % of the seconds reach or exceed, per second ([`rate_at`]).
    pub p99: Option<f64>,
}

impl Measured {
    /// Returns the inserts or queries per second, the divisor of costs per operation.
    fn op_rate(&self) -> Option<f64> {
        if self.writes { self.ips } else { self.qps }
    }

    /// Returns a cost per operation.
    fn per_op(&self, a_second: Option<f64>) -> Option<f64> {
        Some(a_second? / self.op_rate().filter(|rate| *rate > 0.0)?)
    }

    /// Returns a cost per inserted row, in query steps too.
    fn per_insert(&self, a_second: Option<f64>) -> Option<f64> {
        Some(a_second? / self.ips.filter(|rate| *rate > 0.0)?)
    }

    /// Returns the CPU microseconds per operation: client, engine and everything else on the
    /// machine.
    fn cpu_us_per_op(&self) -> Option<f64> {
        self.per_op(self.cpups.map(|cpups| cpups / 100.0 * self.cpus * 1e6))
    }
}

/// Formats the cells of a record.
pub fn line(of: &Measured, tag: &str) -> Vec<String> {
    let cells = columns(of).into_iter();
    let mut line: Vec<String> = cells
        .map(|(value, decimals)| fixed(value, decimals))
        .collect();
    line.push(tag.to_string());
    line
}

/// Formats the cells of a record divided by those of a base. 0 / 0 is 1; any other value divided by
/// 0 is infinite.
pub fn relative(of: &Measured, base: &Measured, tag: &str) -> Vec<String> {
    let cells = columns(of).into_iter().zip(columns(base));
    let ratio = |((mine, _), (base, _)): (Column, Column)| match (mine, base) {
        (Some(0.0), Some(0.0)) => "1.00".to_string(),
        (Some(_), Some(0.0)) => "inf".to_string(),
        _ => fixed(mine.zip(base).map(|(mine, base)| mine / base), 2),
    };
    let mut line: Vec<String> = cells.map(ratio).collect();
    line.push(tag.to_string());
    line
}

/// Value with its number of decimals.
type Column = (Option<f64>, usize);

/// Returns the values of [`COLUMNS`] without the tag.
fn columns(of: &Measured) -> Vec<Column> {
    let mib = |kib: Option<f64>| kib.map(|kib| kib / 1024.0);
    let max_decimals = match of.max_op_seconds {
        Some(max) if max >= 10.0 => 1,
        _ => 3,
    };
    vec![
        (of.ips, 0),
        (of.qps, 0),
        (of.rps, 0),
        (mib(of.rkbps), 1),
        (of.wps, 1),
        (mib(of.wkbps), 1),
        (of.per_op(of.rps), 3),
        (of.per_op(of.rkbps), 3),
        (of.per_insert(of.wps), 3),
        (of.per_insert(of.wkbps), 3),
        (of.csps, 0),
        (of.cpups, 1),
        (of.per_op(of.csps), 3),
        (of.cpu_us_per_op(), 0),
        (of.data_bytes.map(gib), 1),
        (of.directory_bytes.map(gib), 1),
        (of.rss_bytes.map(gib), 1),
        (of.max_op_seconds, max_decimals),
        (of.p50, 0),
        (of.p99, 0),
    ]
}

fn fixed(value: Option<f64>, decimals: usize) -> String {
    let value = value.filter(|value| value.is_finite());
    value.map_or("NA".to_string(), |value| format!("{value:.decimals$}"))
}

/// Returns the rate that a `share` of the seconds reach or exceed, so p99 is close to the worst
/// second. `rates` has one rate for each second; `None` for fewer than ten.
pub fn rate_at(rates: &[f64], share: f64) -> Option<f64> {
    const SECONDS_MIN: usize = 10;
    if rates.len() < SECONDS_MIN {
        return None;
    }
    let mut sorted = rates.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let rank = (share * rates.len() as f64).round() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(of: &Measured, column: &str) -> f64 {
        let place = COLUMNS.iter().position(|name| *name == column).unwrap();
        line(of, "tag")[place].parse().unwrap()
    }

    /// Compares to about three digits, because the published inputs are rounded.
    fn assert_published(of: &Measured, expected: &[(&str, f64)]) {
        for (column, expected) in expected {
            let found = cell(of, column);
            assert!(
                (found / expected - 1.0).abs() < 0.006,
                "{column}: {found}, published {expected}"
            );
        }
    }

    fn mib(mbps: f64) -> Option<f64> {
        Some(mbps * 1024.0)
    }

    #[test]
    fn published_load_and_write_steps_are_reproduced() {
        let load = Measured {
            writes: true,
            cpus: 80.0,
            ips: Some(625_815.0),
            wps: Some(2061.8),
            wkbps: mib(247.3),
            csps: Some(316_415.0),
            cpups: Some(38.2),
            ..Measured::default()
        };
        assert_published(&load, &[("wkbpi", 0.405), ("cspq", 0.506), ("cpupq", 49.0)]);
        assert_eq!(cell(&load, "wpi"), 0.003);
        let postgres = Measured {
            writes: true,
            cpus: 8.0,
            ips: Some(2068.0),
            rps: Some(3443.0),
            wps: Some(3497.6),
            wkbps: mib(50.5),
            csps: Some(8065.0),
            cpups: Some(15.3),
            ..Measured::default()
        };
        let expected = [
            ("rpq", 1.665),
            ("wpi", 1.691),
            ("wkbpi", 25.0),
            ("cspq", 3.9),
            ("cpupq", 592.0),
        ];
        assert_published(&postgres, &expected);
        let innodb = Measured {
            writes: true,
            cpus: 8.0,
            ips: Some(1720.0),
            rps: Some(8866.0),
            rkbps: mib(138.5),
            wkbps: mib(368.8),
            cpups: Some(23.0),
            ..Measured::default()
        };
        let expected = [
            ("rpq", 5.15),
            ("rkbpq", 82.5),
            ("wkbpi", 219.6),
            ("cpupq", 1070.0),
        ];
        assert_published(&innodb, &expected);
    }

    #[test]
    fn published_query_steps_are_reproduced_and_writes_are_those_of_inserts() {
        let ranges = Measured {
            cpus: 8.0,
            ips: Some(100.0),
            qps: Some(565.0),
            rps: Some(8.0),
            csps: Some(2476.0),
            cpups: Some(12.4),
            ..Measured::default()
        };
        assert_published(&ranges, &[("cspq", 4.38), ("cpupq", 1756.0)]);
        assert_eq!(cell(&ranges, "rpq"), 0.014);
        let points = Measured {
            cpus: 8.0,
            ips: Some(924.0),
            qps: Some(357.0),
            rps: Some(7954.0),
            wps: Some(2170.9),
            ..Measured::default()
        };
        assert_published(&points, &[("rpq", 22.3), ("wpi", 2.349)]);
    }

    #[test]
    fn a_record_is_divided_by_that_of_the_base() {
        let of = |ips: f64, rkbps: f64, csps: Option<f64>| Measured {
            writes: true,
            ips: Some(ips),
            qps: Some(0.0),
            rkbps: Some(rkbps),
            csps,
            ..Measured::default()
        };
        let line = relative(&of(1720.0, 10.0, None), &of(2068.0, 0.0, Some(1.0)), "tag");
        let cell = |column: &str| {
            let place = COLUMNS.iter().position(|name| *name == column);
            line[place.unwrap()].as_str()
        };
        let cells = ["ips", "qps", "rmbps", "csps", "wps", "tag"].map(cell);
        assert_eq!(cells, ["0.83", "1.00", "inf", "NA", "NA", "tag"]);
    }

    #[test]
    fn rates_are_ranked_from_the_best_second_and_absent_in_short_steps() {
        let rates: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(rate_at(&rates, 0.5), Some(101.0));
        assert_eq!(rate_at(&rates, 0.99), Some(3.0));
        assert_eq!(rate_at(&rates[..9], 0.5), None);
        let short = Measured::default();
        assert_eq!(line(&short, "t")[18..], ["NA", "NA", "t"]);
    }

    #[test]
    fn long_responses_have_one_decimal() {
        let of = |seconds| Measured {
            max_op_seconds: Some(seconds),
            ..Measured::default()
        };
        assert_eq!(line(&of(0.0804), "t")[17], "0.080");
        assert_eq!(line(&of(12.34), "t")[17], "12.3");
    }
}
