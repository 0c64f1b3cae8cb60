//! `--fail-if '[PHASE:]METRIC > +N%'`: the condition that a script treats as a regression.
//!
//! A threshold fails if the ratio is beyond it and the spread confirms a change. With five pairs or
//! more the interval must exclude 1, with two to four the range. A single pair has no spread and
//! counts as it is.

use serde::Serialize;

use super::Row;
use super::values::{FIGURES, NUMBERS, names};
use crate::catalog::usage;
use crate::store::result::base_name;
use rumbench_core::names::unknown;

/// Condition on the ratio of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Condition as given by the user.
    pub text: String,
    /// Phase of the condition; without `#n` it includes the repeated phases. `None` for all phases.
    phase: Option<String>,
    /// Metric as in the rows; for latencies without the operation.
    metric: String,
    /// Operation of a latency. `None` for all operations.
    operation: Option<String>,
    above: bool,
    ratio: f64,
}

/// Result of a threshold.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Condition as given by the user.
    pub threshold: String,
    /// True if the threshold failed.
    pub failed: bool,
    /// Rows that made it fail, or otherwise the row nearest to the limit.
    pub because: Vec<String>,
}

impl Threshold {
    /// Parses a condition.
    ///
    /// # Errors
    /// A usage error if it has another form or names an unknown metric.
    pub fn parse(text: &str) -> anyhow::Result<Threshold> {
        let form = || {
            usage(format!(
                "--fail-if '{text}': expected [PHASE:]METRIC > +N% or [PHASE:]METRIC < -N%"
            ))
        };
        let place = text.find(['<', '>']).ok_or_else(form)?;
        let (name, rest) = text.split_at(place);
        let above = rest.starts_with('>');
        let percent = rest[1..].trim().strip_suffix('%').ok_or_else(form)?.trim();
        let percent: f64 = percent.parse().map_err(|_| form())?;
        let ratio = 1.0 + percent / 100.0;
        if !ratio.is_finite() || ratio <= 0.0 {
            return Err(form());
        }
        let (phase, name) = match name.trim().split_once(':') {
            Some((phase, name)) => (Some(phase.trim().to_string()), name.trim()),
            None => (None, name.trim()),
        };
        let (metric, operation) = metric(name)?;
        Ok(Threshold {
            text: text.trim().to_string(),
            phase,
            metric,
            operation,
            above,
            ratio,
        })
    }

    fn speaks_of(&self, row: &Row) -> bool {
        let phase = self
            .phase
            .as_deref()
            .is_none_or(|phase| row.phase == phase || base_name(&row.phase) == phase);
        let metric = match row
            .metric
            .strip_prefix("latency_us.")
            .and_then(|rest| rest.rsplit_once('.'))
        {
            Some((operation, figure)) => {
                self.metric.strip_prefix("latency_us.") == Some(figure)
                    && self
                        .operation
                        .as_deref()
                        .is_none_or(|wanted| wanted == operation)
            }
            None => self.metric == row.metric,
        };
        phase && metric
    }

    fn is_beyond(&self, row: &Row) -> bool {
        let (beyond, changed) = if self.above {
            (row.ratio > self.ratio, row.ratio_low > 1.0)
        } else {
            (row.ratio < self.ratio, row.ratio_high < 1.0)
        };
        // A limit on the other side of 1 demands an improvement; then no change has to be
        // confirmed.
        let asks_for_improvement = self.above == (self.ratio < 1.0);
        beyond && (changed || asks_for_improvement)
    }

    /// Judges the rows.
    ///
    /// # Errors
    /// A usage error if no row has the metric, because such a check could never fail.
    pub fn judge(&self, rows: &[Row]) -> anyhow::Result<Outcome> {
        let mut own: Vec<&Row> = rows.iter().filter(|row| self.speaks_of(row)).collect();
        if own.is_empty() {
            return Err(usage(format!(
                "--fail-if '{}': no phase has this number above zero in both results, so nothing could be checked",
                self.text
            )));
        }
        own.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let failed: Vec<&Row> = own
            .iter()
            .copied()
            .filter(|row| self.is_beyond(row))
            .collect();
        let nearest = if self.above { own.last() } else { own.first() };
        let because = if failed.is_empty() {
            nearest.into_iter().copied().collect()
        } else {
            failed.clone()
        };
        Ok(Outcome {
            threshold: self.text.clone(),
            failed: !failed.is_empty(),
            because: because.into_iter().map(describe).collect(),
        })
    }
}

fn describe(row: &Row) -> String {
    let spread = match row.pairs {
        1 => "one pair".to_string(),
        n => format!("{:.3} to {:.3}, {n} pairs", row.ratio_low, row.ratio_high),
    };
    format!(
        "{} {} {}: {:+.1} % ({spread})",
        row.engine,
        row.phase,
        row.metric,
        (row.ratio - 1.0) * 100.0
    )
}

/// Returns the metric of a name, and its operation. `response_us_p99` is another form of
/// `latency_us.p99`.
fn metric(name: &str) -> anyhow::Result<(String, Option<String>)> {
    let no_metric = || {
        let known = names();
        usage(format!(
            "--fail-if: {}",
            unknown(
                "comparable metric",
                name,
                &known.iter().map(String::as_str).collect::<Vec<_>>()
            )
        ))
    };
    if NUMBERS.iter().any(|(known, _)| *known == name) {
        return Ok((name.to_string(), None));
    }
    let rest = name
        .strip_prefix("latency_us.")
        .or(name.strip_prefix("response_us_"))
        .ok_or_else(no_metric)?;
    let (operation, figure) = match rest.rsplit_once('.') {
        Some((operation, figure)) => (Some(operation.to_string()), figure),
        None => (None, rest),
    };
    let known = FIGURES.iter().any(|(known, _)| *known == figure);
    known
        .then(|| (format!("latency_us.{figure}"), operation))
        .ok_or_else(no_metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::Verdict;

    fn row(phase: &str, metric: &str, ratio: f64, low: f64, high: f64) -> Row {
        Row {
            engine: "e".to_string(),
            phase: phase.to_string(),
            metric: metric.to_string(),
            unit: "us",
            base: 1.0,
            new: ratio,
            ratio,
            ratio_low: low,
            ratio_high: high,
            pairs: 5,
            verdict: Verdict::Undecided,
        }
    }

    #[test]
    fn a_threshold_fails_beyond_its_ratio_when_the_spread_agrees() {
        let failed = |text: &str, row: &Row| {
            Threshold::parse(text)
                .unwrap()
                .judge(std::slice::from_ref(row))
                .unwrap()
                .failed
        };
        let slow = row("request#2", "latency_us.GET_NODE.p99", 1.2, 1.1, 1.3);
        for text in [
            "response_us_p99 > +10%",
            "latency_us.p99>10%",
            "request: latency_us.GET_NODE.p99 > 10 %",
        ] {
            assert!(failed(text, &slow), "{text}");
        }
        assert!(!failed("response_us_p99 > +25%", &slow));
        assert!(!failed(
            "response_us_p99 > +10%",
            &row("request", "latency_us.GET_NODE.p99", 1.2, 0.9, 1.6)
        ));
        assert!(failed(
            "ops_per_s < -5%",
            &row("request", "ops_per_s", 0.9, 0.85, 0.95)
        ));
        // The threshold demands at least 20 % more.
        assert!(failed(
            "ops_per_s < +20%",
            &row("request", "ops_per_s", 1.1, 0.99, 1.2)
        ));
    }

    #[test]
    fn what_cannot_be_checked_is_an_error() {
        let text = |text: &str| Threshold::parse(text).unwrap_err().to_string();
        assert!(text("ops_per_s").contains("expected [PHASE:]METRIC"));
        assert!(text("ops_per_s < -100%").contains("expected"));
        assert!(text("ops_per_s < x%").contains("expected"));
        assert!(text("ops_per_second < -5%").contains("did you mean `ops_per_s`?"));
        let other = row("request", "latency_us.GET_NODE.p99", 1.0, 1.0, 1.0);
        let nothing = Threshold::parse("load:latency_us.p99 > 1%")
            .unwrap()
            .judge(&[other])
            .unwrap_err();
        assert!(
            nothing.to_string().contains("nothing could be checked"),
            "{nothing}"
        );
    }
}
