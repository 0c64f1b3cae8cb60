//! A result as CSV: one line for each number of each phase, for spreadsheets and statistics
//! programs.
//!
//! `metric` is the path of the number in `result.json` below its phase, with dots between names:
//! `latency_us.INSERT.p99`. Lists (seconds of a phase, counts of responses) are left out: they are
//! in `result.json`.

use anyhow::Result;
use serde_json::Value;

use super::selection::durability_class;
use crate::store::result::{SuiteResult, TrialResult};

const HEADERS: [&str; 8] = [
    "workload",
    "engine",
    "point",
    "repetition",
    "durability",
    "phase",
    "metric",
    "value",
];

/// Renders all phases of all trials, including trials with marks.
///
/// # Errors
/// No result can cause an error.
pub fn render(suite: &SuiteResult) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(HEADERS)?;
    for trial in &suite.trials {
        for phase in &trial.phases {
            let mut numbers = Vec::new();
            flatten("", &serde_json::to_value(phase)?, &mut numbers);
            for (metric, value) in numbers {
                out.write_record(line(suite, trial, &phase.name, &metric, &value))?;
            }
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

fn line(
    suite: &SuiteResult,
    trial: &TrialResult,
    phase: &str,
    metric: &str,
    value: &str,
) -> [String; 8] {
    [
        suite.workload.clone(),
        trial.name(),
        trial.point.clone().unwrap_or_default(),
        trial.repetition.to_string(),
        durability_class(trial),
        phase.to_string(),
        metric.to_string(),
        value.to_string(),
    ]
}

/// Collects the numbers in a value, each with its path.
fn flatten(above: &str, value: &Value, out: &mut Vec<(String, String)>) {
    match value {
        Value::Number(number) => out.push((above.to_string(), number.to_string())),
        Value::Object(fields) => {
            for (name, field) in fields {
                let place = match above {
                    "" => name.clone(),
                    above => format!("{above}.{name}"),
                };
                flatten(&place, field, out);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn every_number_of_a_phase_has_a_line_under_its_name() {
        let mut suite = sample::suite();
        suite.trials[0].point = Some("values=1,2".to_string());
        let text = render(&suite).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next().unwrap(), HEADERS.join(","));
        let first = &suite.trials[0];
        let phase = &first.phases[0];
        let (name, per_s) = (&phase.name, phase.ops_per_s.unwrap());
        let expected = format!(
            "linkbench,{},\"values=1,2\",1,{},{name},ops_per_s,{per_s:?}",
            first.name(),
            durability_class(first)
        );
        assert!(
            lines.clone().any(|line| line == expected),
            "{expected}\n{text}"
        );
        assert!(text.contains(",request,latency_us.GET_NODE.p99,"), "{text}");
        assert!(lines.all(|line| line.split(',').count() >= HEADERS.len()));
        assert!(!text.contains("intervals"), "lists are left out");
    }
}
