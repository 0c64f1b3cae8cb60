//! Response time against rate, as a curve.

use crate::report::table::Table;
use crate::store::rate_search::{FoundRate, RateSearch};
use crate::store::result::Latency;
use crate::text::number;

/// Characters of the longest bar.
const BAR: usize = 30;

/// Name of a figure and its getter.
pub type Figure = (&'static str, fn(&Latency) -> f64);

/// Figures of the curve.
pub const FIGURES: [Figure; 4] = [
    ("p50", |l| l.p50),
    ("p99", |l| l.p99),
    ("p99.9", |l| l.p999),
    ("max", |l| l.max),
];

/// Returns the table of response time against rate. `bars` adds bars on a logarithmic scale, for
/// text.
pub fn curve(search: &RateSearch, own: &[&FoundRate], bars: bool) -> Table {
    let mut table = Table::new(
        "Response time by rate, the largest over the kinds of operations",
        &["engine", "rate (op/s)", "reached (op/s)"],
    );
    table
        .headers
        .extend(FIGURES.iter().map(|(name, _)| format!("{name} (us)")));
    table.headers.push("holds".to_string());
    let limit = search.sla.first();
    let shown = limit.and_then(|limit| figure_of(&limit.figure));
    let scale = shown.map(|(_, value)| Scale::of(own, value, limit.map(|l| l.limit_us)));
    if let Some((name, _)) = shown.filter(|_| bars) {
        let header = format!("{name}, logarithmic, | is the limit");
        table.headers.push(format!("{header:<BAR$}"));
    }
    for found in own {
        for point in &found.points {
            let latency = point.response_us.as_ref();
            let mut row = vec![
                found.engine.clone(),
                point
                    .rate
                    .map_or("closed loop".to_string(), |rate| number(Some(rate))),
                number(point.ops_per_s),
            ];
            row.extend(FIGURES.iter().map(|(_, value)| number(latency.map(value))));
            row.push(
                match point.holds {
                    None => "-",
                    Some(true) => "yes",
                    Some(false) => "no",
                }
                .to_string(),
            );
            if let Some(((_, value), scale)) = shown.zip(scale.as_ref()).filter(|_| bars) {
                row.push(scale.bar(latency.map(value)));
            }
            table.rows.push(row);
        }
    }
    table
}

/// Returns the figure of a limit, with its name in tables.
pub fn figure_of(name: &str) -> Option<Figure> {
    const ALL: [(&str, Figure); 7] = [
        ("mean", ("mean", |l| l.mean)),
        ("p50", ("p50", |l| l.p50)),
        ("p95", ("p95", |l| l.p95)),
        ("p99", ("p99", |l| l.p99)),
        ("p999", ("p99.9", |l| l.p999)),
        ("p9999", ("p99.99", |l| l.p9999)),
        ("max", ("max", |l| l.max)),
    ];
    let known = ALL.iter().find(|(known, _)| *known == name);
    known.map(|(_, figure)| *figure)
}

/// Logarithmic scale of the bars for response times.
struct Scale {
    low: f64,
    high: f64,
    limit: Option<f64>,
}

impl Scale {
    /// Creates a scale from half of the smallest to the largest value, with the limit included.
    fn of(own: &[&FoundRate], value: fn(&Latency) -> f64, limit: Option<f64>) -> Scale {
        let points = own.iter().flat_map(|found| &found.points);
        let values = points.filter_map(|point| point.response_us.as_ref().map(value));
        let (low, high) = values
            .chain(limit)
            .filter(|us| *us > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high), us: f64| {
                (us.min(low), us.max(high))
            });
        Scale {
            low: low / 2.0,
            high,
            limit,
        }
    }

    fn place(&self, us: f64) -> usize {
        let share = (us / self.low).ln() / (self.high / self.low).ln();
        if share.is_finite() {
            (share * BAR as f64).round().clamp(0.0, BAR as f64) as usize
        } else {
            0
        }
    }

    /// Returns a bar, padded to the full length so that the column is aligned.
    fn bar(&self, us: Option<f64>) -> String {
        let length = us.map_or(0, |us| self.place(us));
        let limit = self.limit.map(|us| self.place(us).max(1));
        (1..=BAR)
            .map(|place| match (place <= length, Some(place) == limit) {
                (_, true) => '|',
                (true, false) => '#',
                (false, false) => ' ',
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_equally_long_and_show_the_limit() {
        let scale = Scale {
            low: 1.0,
            high: 1024.0,
            limit: Some(32.0),
        };
        let bar = scale.bar(Some(1024.0));
        assert_eq!(bar, format!("{}|{}", "#".repeat(14), "#".repeat(15)));
        let bar = scale.bar(Some(4.0));
        assert_eq!(bar, format!("######{}|{}", " ".repeat(8), " ".repeat(15)));
        assert_eq!(scale.bar(None).len(), BAR);
    }
}
