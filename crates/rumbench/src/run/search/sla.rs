//! Conditions for a rate: response times below limits, and no backlog.
//!
//! A condition is `[OPERATION.]FIGURE=LIMIT`, for example `p99=5ms`. Without an operation it
//! applies to each kind of operation in the phase, because callers of the slowest kind also need
//! their answers.

use anyhow::Result;
use rumbench_core::names::unknown;
use serde::{Deserialize, Serialize};

use crate::catalog::usage;
use crate::report::compare::values::FIGURES;
use crate::report::marks::{RATE_KEPT, background_rate_unmet};
use crate::store::result::{Latency, PhaseResult};
use crate::text::number;

/// Maximum share of a phase's intended starts that may be missed at its end; a larger share means a
/// growing queue.
const BACKLOG: f64 = 0.01;

/// Other names of figures, as used in tables.
const ALIASES: &[(&str, &str)] = &[("p99.9", "p999"), ("p99.99", "p9999")];

/// Units of limits, in microseconds; the longest names first, because all end with `s`.
const UNITS: &[(&str, f64)] = &[("us", 1.0), ("ms", 1e3), ("s", 1e6)];

/// One limit of a response time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Text of the condition as given.
    pub text: String,
    /// Operation; `None` means every operation.
    pub operation: Option<String>,
    /// Figure of a latency, as `latency_us` names it.
    pub figure: String,
    /// Largest value that holds, in microseconds.
    pub limit_us: f64,
}

impl Condition {
    /// Parses `[OPERATION.]FIGURE=LIMIT`.
    ///
    /// # Errors
    /// A usage error with the expected form.
    pub fn parse(text: &str) -> Result<Condition> {
        let form = || {
            usage(format!(
                "--sla {text}: expected [OPERATION.]FIGURE=LIMIT with a limit in us, ms or s, for example p99=5ms"
            ))
        };
        let (name, limit) = text.split_once('=').ok_or_else(form)?;
        let (operation, figure) = figure(name.trim())?;
        let limit = limit.trim();
        let unit = UNITS.iter().find_map(|(unit, us)| {
            let number = limit.strip_suffix(unit)?.trim();
            Some(number.parse::<f64>().ok()? * us)
        });
        let limit_us = unit
            .filter(|us| us.is_finite() && *us > 0.0)
            .ok_or_else(form)?;
        Ok(Condition {
            text: text.to_string(),
            operation,
            figure,
            limit_us,
        })
    }

    /// Returns the value of this figure in a latency; NaN if it has none.
    pub fn figure_of(&self, latency: &Latency) -> f64 {
        let known = FIGURES.iter().find(|(name, _)| *name == self.figure);
        known
            .and_then(|(_, value)| value(latency))
            .unwrap_or(f64::NAN)
    }

    /// Returns the largest value over the selected operations, with the name of the operation.
    pub fn worst<'a>(&self, phase: &'a PhaseResult) -> Option<(&'a str, f64)> {
        let meant = |name: &&String| self.operation.as_ref().is_none_or(|wanted| wanted == *name);
        let meant = phase.latency_us.iter().filter(|(name, _)| meant(name));
        let meant: Vec<(&String, &Latency)> = meant.collect();
        let frequent = meant
            .iter()
            .filter(|(_, of)| of.count >= needed(&self.figure));
        let frequent: Vec<(&String, &Latency)> = frequent.copied().collect();
        let all = if frequent.is_empty() { meant } else { frequent };
        all.into_iter()
            .map(|(name, latency)| (name.as_str(), self.figure_of(latency)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Returns the number of operations below which a percentile is the maximum: 100 for the 99th. A
/// kind with fewer is ignored if another kind has enough, so that the single slowest answer of the
/// rarest kind does not decide.
pub fn needed(figure: &str) -> u64 {
    match figure {
        "p95" => 20,
        "p99" => 100,
        "p999" => 1000,
        "p9999" => 10_000,
        _ => 1,
    }
}

/// Splits a name into operation and figure. Operations may contain dots, and so do two figures.
fn figure(name: &str) -> Result<(Option<String>, String)> {
    let plain = FIGURES.iter().map(|(figure, _)| (*figure, *figure));
    let mut known: Vec<(&str, &str)> = ALIASES.iter().copied().chain(plain).collect();
    // `GET.p99.9` ends with `p99.9`, not with `9`: the longest matching name counts.
    known.sort_by_key(|(written, _)| std::cmp::Reverse(written.len()));
    for (written, figure) in &known {
        let Some(rest) = name.strip_suffix(written) else {
            continue;
        };
        if rest.is_empty() {
            return Ok((None, (*figure).to_string()));
        }
        if let Some(operation) = rest.strip_suffix('.').filter(|left| !left.is_empty()) {
            return Ok((Some(operation.to_string()), (*figure).to_string()));
        }
    }
    let names: Vec<&str> = known.iter().map(|(written, _)| *written).collect();
    Err(usage(format!(
        "--sla: {}",
        unknown("figure of response times", name, &names)
    )))
}

/// Returns the reasons why a phase does not hold; empty if it does.
pub fn broken(conditions: &[Condition], phase: &PhaseResult) -> Vec<String> {
    let mut why = Vec::new();
    if phase.errors > 0 {
        why.push(format!("{} operations failed", phase.errors));
    }
    let Some((rate, reached)) = phase.rate.zip(phase.ops_per_s) else {
        why.push(format!("{} has no rate", phase.name));
        return why;
    };
    if reached < rate * RATE_KEPT {
        why.push(format!(
            "{} of {} operations/s reached",
            number(Some(reached)),
            number(Some(rate))
        ));
    }
    let missed = phase.missed_arrivals.unwrap_or(0) as f64;
    // Each client may still be in an operation at the end; that is not a queue.
    let allowed = (rate * phase.seconds * BACKLOG).max(phase.clients.unwrap_or(1) as f64);
    if missed > allowed {
        why.push(format!("{} missed starts at the end", number(Some(missed))));
    }
    if background_rate_unmet(phase) {
        why.push("the background clients missed their rate".to_string());
    }
    for condition in conditions {
        match condition.worst(phase) {
            Some((_, us)) if us <= condition.limit_us => {}
            Some((operation, us)) => why.push(format!(
                "{} of {operation} {} us",
                condition.figure,
                number(Some(us))
            )),
            None => why.push(format!("no response times for {}", condition.text)),
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(p99: f64) -> PhaseResult {
        let latency = |us| Latency {
            count: 100,
            p99: us,
            p999: us * 2.0,
            ..Latency::default()
        };
        PhaseResult {
            name: "request".to_string(),
            seconds: 10.0,
            clients: Some(2),
            rate: Some(1000.0),
            ops_per_s: Some(999.0),
            missed_arrivals: Some(0),
            latency_us: [("GET", p99), ("PUT", p99 / 2.0)]
                .map(|(name, us)| (name.to_string(), latency(us)))
                .into(),
            ..PhaseResult::default()
        }
    }

    fn conditions(text: &str) -> Vec<Condition> {
        vec![Condition::parse(text).unwrap()]
    }

    #[test]
    fn conditions_name_an_operation_a_figure_and_a_limit_with_its_unit() {
        let found = Condition::parse("p99=5ms").unwrap();
        assert_eq!((found.operation, found.limit_us), (None, 5000.0));
        let found = Condition::parse("GET_NODE.p99.9=250us").unwrap();
        assert_eq!(found.operation.as_deref(), Some("GET_NODE"));
        assert_eq!((found.figure.as_str(), found.limit_us), ("p999", 250.0));
        let found = Condition::parse("a.b.max = 1.5 s").unwrap();
        assert_eq!(found.operation.as_deref(), Some("a.b"));
        assert_eq!(found.limit_us, 1.5e6);
    }

    #[test]
    fn invalid_conditions_are_refused_with_the_expected_form() {
        let refusal = |text: &str| Condition::parse(text).unwrap_err().to_string();
        for text in ["p99", "p99=5", "p99=-1ms", "p99=ms", "p99=nans"] {
            assert!(refusal(text).contains("for example p99=5ms"), "{text}");
        }
        assert!(refusal("p98=5ms").contains("did you mean `p9"));
        assert!(
            refusal(".p99=5ms").contains("no figure"),
            "{}",
            refusal(".p99=5ms")
        );
    }

    #[test]
    fn the_slowest_kind_of_operation_decides_unless_one_is_named() {
        assert!(broken(&conditions("p99=5ms"), &phase(5000.0)).is_empty());
        let why = broken(&conditions("p99=5ms"), &phase(6000.0));
        assert_eq!(why, ["p99 of GET 6,000 us"]);
        assert!(broken(&conditions("PUT.p99=5ms"), &phase(6000.0)).is_empty());
        let why = broken(&conditions("SCAN.p99=5ms"), &phase(1.0));
        assert_eq!(why, ["no response times for SCAN.p99=5ms"]);
    }

    #[test]
    fn a_kind_with_too_few_operations_for_the_percentile_does_not_decide() {
        let mut some = phase(6000.0);
        some.latency_us.get_mut("GET").unwrap().count = 99;
        assert!(broken(&conditions("p99=5ms"), &some).is_empty());
        // It decides if it is named, and if no kind has enough.
        assert!(!broken(&conditions("GET.p99=5ms"), &some).is_empty());
        some.latency_us.get_mut("PUT").unwrap().count = 99;
        let why = broken(&conditions("p99=5ms"), &some);
        assert_eq!(why, ["p99 of GET 6,000 us"]);
    }

    #[test]
    fn a_queue_that_grows_does_not_hold_however_fast_answers_are() {
        let mut late = phase(10.0);
        late.missed_arrivals = Some(100);
        assert!(broken(&conditions("p99=5ms"), &late).is_empty());
        late.missed_arrivals = Some(101);
        let why = broken(&conditions("p99=5ms"), &late);
        assert_eq!(why, ["101 missed starts at the end"]);
        late.missed_arrivals = Some(0);
        late.ops_per_s = Some(940.0);
        let why = broken(&conditions("p99=5ms"), &late);
        assert_eq!(why, ["940 of 1,000 operations/s reached"]);
        late.rate = None;
        let why = broken(&conditions("p99=5ms"), &late);
        assert_eq!(why, ["request has no rate"]);
    }

    #[test]
    fn failed_operations_do_not_hold() {
        let mut failing = phase(10.0);
        failing.errors = 3;
        let why = broken(&conditions("p99=5ms"), &failing);
        assert_eq!(why, ["3 operations failed"]);
    }
}
