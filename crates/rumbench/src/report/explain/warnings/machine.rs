//! Faults of the machine: the build of the laboratory, other work on it, processor time taken by
//! its host, and data that fits in its memory.

use super::subjects::{names, requests, trial_name, usable, warning};
use crate::report::explain::finding::{Figure, Finding};
use crate::store::finding::Verdict;
use crate::store::result::{SuiteResult, TrialResult};
use crate::text::percent;
use crate::text::{gib, number};

/// Processor time of other programs, as a share of the trial's, above which it is reported.
const OTHERS: f64 = 0.1;
/// Processor time taken by the host, as a share of the demand, above which it is reported.
const STOLEN: f64 = 0.01;

pub(super) fn build(suite: &SuiteResult) -> Option<Finding> {
    let flags = suite.environment.get("compiler_flags")?;
    let text = "The laboratory and the embedded engines were built without optimization: none of these numbers means anything for a release \
                build.";
    flags.contains("profile debug").then(|| {
        warning(
            text.to_string(),
            vec![Figure::fact("environment.compiler_flags")],
        )
    })
}

/// Returns the doctor's warnings except load: [`others`] reports the load measured during trials,
/// and load before them often comes from the previous suite.
pub(super) fn doctor(suite: &SuiteResult) -> Vec<Finding> {
    let bad = suite.machine.iter();
    let bad = bad.filter(|found| found.verdict == Verdict::Warning && found.about != "load");
    let told = bad.map(|found| {
        let text = format!(
            "The machine, {}: {}; {}.",
            found.about, found.found, found.advice
        );
        warning(text, vec![Figure::fact("machine")])
    });
    told.collect()
}

/// Returns a warning if sampling was requested but not possible.
pub(super) fn profile(suite: &SuiteResult) -> Option<Finding> {
    let why = |trial: &TrialResult| {
        let words = trial.configuration.get("profile")?;
        words
            .strip_prefix("none (")?
            .strip_suffix(')')
            .map(str::to_string)
    };
    let found = usable(suite).find_map(why)?;
    let text = format!("No functions were sampled: {found}.");
    Some(warning(text, vec![Figure::fact("profile")]))
}

/// Returns a warning about phases in which other programs used the machine.
pub(super) fn others(suite: &SuiteResult) -> Option<Finding> {
    let mut told = Vec::new();
    let mut most: Option<f64> = None;
    for (trial, phase) in requests(suite).filter(|(_, phase)| phase.background.is_none()) {
        let Some(cpu) = phase.cpu_us_per_op else {
            continue;
        };
        let foreign = cpu.machine.map_or(0.0, |machine| {
            machine / cpu.total.max(f64::MIN_POSITIVE) - 1.0
        });
        if foreign > OTHERS {
            most = Some(most.unwrap_or(0.0).max(foreign));
            told.push(trial_name(trial));
        }
    }
    let text = format!(
        "Other work on the machine took up to {} of the processor time that the trial itself used: {}.",
        percent(most?),
        names(told)
    );
    Some(warning(
        text,
        vec![Figure::new("cpu_us_per_op.machine", None)],
    ))
}

/// Returns a warning about phases in which the host of a virtual machine took processors away.
pub(super) fn stolen(suite: &SuiteResult) -> Option<Finding> {
    let mut told = Vec::new();
    let mut most: Option<f64> = None;
    for (trial, phase) in requests(suite) {
        let share = phase.cpu_seconds.and_then(|cpu| {
            let wanted = cpu.machine? + cpu.stolen;
            (wanted > 0.0).then_some(cpu.stolen / wanted)
        });
        if let Some(share) = share.filter(|share| *share > STOLEN) {
            most = Some(most.unwrap_or(0.0).max(share));
            told.push(trial_name(trial));
        }
    }
    let text = format!(
        "The machine is a virtual one, and its host gave up to {} of the processor time that it wanted to others: {}. The longest response times hold such pauses.",
        percent(most?),
        names(told)
    );
    Some(warning(text, vec![Figure::new("cpu_seconds.stolen", None)]))
}

pub(super) fn page_cache(suite: &SuiteResult) -> Option<Finding> {
    let warm = usable(suite).filter(|trial| trial.cache_state.contains("not dropped"));
    let warm: Vec<String> = warm.map(|trial| trial.cache_state.clone()).collect();
    let first = warm.first()?.clone();
    let text = format!(
        "{} trials began with whatever the page cache held: {first}. Run as a user who may drop it where reads matter.",
        warm.len()
    );
    Some(warning(text, vec![Figure::fact("cache_state")]))
}

/// Returns a warning if the data fits in memory, so that it is not read from a device.
pub(super) fn memory(suite: &SuiteResult) -> Option<Finding> {
    let machine = || {
        let text = suite.environment.get("memory")?;
        let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024)
    };
    let limits = usable(suite).filter_map(|trial| trial.memory.as_ref());
    let limit = limits.map(|memory| memory.limit_bytes).max();
    let (bytes, metric) = match limit {
        Some(limit) => (limit, "memory.limit_bytes"),
        None => (machine()?, "environment.memory"),
    };
    let phases = usable(suite).flat_map(|trial| &trial.phases);
    let data = phases.filter_map(|phase| phase.size_bytes);
    let largest = data.map(|size| size.data).max();
    let largest = largest.filter(|data| *data > 0 && *data < bytes)?;
    let text = format!(
        "Memory ({} GiB) is larger than the data ({} GiB at most): the page cache holds what an engine's cache does not, and nothing here \
         is about a database that is larger than memory.",
        number(Some(gib(bytes))),
        number(Some(gib(largest)))
    );
    let figures = vec![
        Figure::new("size_bytes.data", Some(largest as f64)),
        Figure::new(metric, Some(bytes as f64)),
    ];
    Some(warning(text, figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn what_the_doctor_warns_of_is_told_and_what_it_only_notes_is_not() {
        let mut suite = sample::suite();
        let found = |about: &'static str, verdict| crate::store::finding::Finding {
            about: about.into(),
            verdict,
            found: "1 GiB".to_string(),
            advice: "switch it off".to_string(),
        };
        suite.machine = vec![
            found("swap", Verdict::Note),
            found("swap", Verdict::Warning),
            found("load", Verdict::Warning),
        ];
        let told = doctor(&suite);
        let texts: Vec<&str> = told.iter().map(|found| found.text.as_str()).collect();
        assert_eq!(texts, ["The machine, swap: 1 GiB; switch it off."]);
    }

    #[test]
    fn a_refused_profile_says_why() {
        let mut suite = sample::suite();
        assert_eq!(profile(&suite), None);
        let words = "none (the kernel gives no samples: denied; run as root)";
        let configuration = &mut suite.trials[1].configuration;
        configuration.insert("profile".to_string(), words.to_string());
        let told = profile(&suite).expect("told").text;
        let wanted = "No functions were sampled: the kernel gives no samples: denied; run as root.";
        assert_eq!(told, wanted);
    }
}
