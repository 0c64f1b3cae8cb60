//! Remaining trials of a stopped suite: ended trials are kept, the running one and all later ones
//! run again. Trials run in the order of the plan, so the ended ones are its beginning.

use std::path::Path;

use anyhow::{Context, Result};

use super::plan::{self, Suite};
use super::schedule::{self, Upcoming};
use crate::catalog::usage;
use crate::store::result::{SuiteResult, TrialResult};

/// Returns the ended trials of a result, checked against the plan.
///
/// # Errors
/// A usage error when the result is not of this suite.
pub fn kept(suite: &Suite, result: &SuiteResult) -> Result<Vec<TrialResult>> {
    let refused = |why: String| {
        usage(format!(
            "{}: result.json and suite.json are not of the same suite: {why}; run it again into another folder: {}",
            suite.out.display(),
            suite.command
        ))
    };
    if result.command != suite.command {
        return Err(refused(format!("the result is of `{}`", result.command)));
    }
    if (&result.workload, result.seed) != (&suite.workload, suite.seed) {
        return Err(refused(format!(
            "the result is of {} with seed {}",
            result.workload, result.seed
        )));
    }
    let ended = result
        .trials
        .iter()
        .filter(|trial| trial.ended_at.is_some());
    let ended: Vec<TrialResult> = ended.cloned().collect();
    for (number, trial) in ended.iter().enumerate() {
        let Some(upcoming) = schedule::upcoming(suite, &ended[..number]) else {
            return Err(refused(format!(
                "it has {} trials of {number}",
                ended.len()
            )));
        };
        let (name, repetition) = (contestant(&upcoming), upcoming.repetition);
        let seed = suite.seed + u64::from(repetition) - 1;
        let same = trial.contestant() == name
            && (trial.repetition, trial.seed) == (repetition, seed)
            && trial.durability == suite.durability;
        if !same {
            return Err(refused(format!(
                "trial {} is {} #{} with seed {}, it should be {name} #{repetition} with seed {seed}",
                number + 1,
                trial.contestant(),
                trial.repetition,
                trial.seed
            )));
        }
    }
    Ok(ended)
}

/// Returns the trial's engine with the setting of a sweep or a search.
fn contestant(upcoming: &Upcoming) -> String {
    let name = upcoming.choice().name();
    match &upcoming.point.label {
        Some(label) => format!("{name} {label}"),
        None => name,
    }
}

/// Removes the data left by the stopped suite: that of the running trial and, unless data is kept,
/// of earlier trials. Only folders named by the plan are removed.
///
/// # Errors
/// When a folder cannot be removed, because a trial would find the data of another.
pub fn remove_leftovers(suite: &Suite, kept: &[TrialResult]) -> Result<()> {
    let data = suite.out.join("data");
    let first = if suite.keep_data { kept.len() } else { 0 };
    let folders = (first..=kept.len()).filter_map(|index| {
        let upcoming = schedule::upcoming(suite, &kept[..index])?;
        Some(plan::folder(index, upcoming.choice()))
    });
    for folder in folders.chain([plan::CALIBRATION_FOLDER.to_string()]) {
        remove(&data.join(folder))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(path).with_context(|| {
        format!(
            "cannot remove {}, which the stopped suite left; remove it and resume again",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::run::plan::tests::suite;

    /// Returns a result with the first trials of the plan, all but the last of them ended.
    fn result(suite: &Suite, trials: usize) -> SuiteResult {
        let mut result = sample::suite();
        let like = result.trials[0].clone();
        result.command.clone_from(&suite.command);
        result.workload.clone_from(&suite.workload);
        result.seed = suite.seed;
        result.trials.clear();
        while result.trials.len() < trials {
            let Some(next) = schedule::upcoming(suite, &result.trials) else {
                break;
            };
            let ended = result.trials.len() + 1 < trials;
            result.trials.push(TrialResult {
                engine: next.choice().engine.clone(),
                repetition: next.repetition,
                seed: suite.seed + u64::from(next.repetition) - 1,
                ended_at: ended.then(|| "2026-01-01T00:00:00Z".to_string()),
                ..like.clone()
            });
        }
        result
    }

    #[test]
    fn the_trial_that_was_running_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let suite = suite(dir.path());
        let kept = kept(&suite, &result(&suite, 3)).unwrap();
        let names: Vec<String> = kept.iter().map(TrialResult::name).collect();
        assert_eq!(names, ["null", "sqlite"]);
    }

    #[test]
    fn a_result_of_another_suite_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let suite = suite(dir.path());
        type Change = fn(&mut SuiteResult);
        let cases: [(Change, &str); 4] = [
            (|r| r.command += " --seed 2", "the result is of `"),
            (|r| r.seed = 7, "with seed 7"),
            (
                |r| r.trials[1].engine = "lmdb".to_string(),
                "trial 2 is lmdb #1",
            ),
            (|r| r.trials[0].seed = 9, "trial 1 is null #1 with seed 9"),
        ];
        for (change, expected) in cases {
            let mut other = result(&suite, 3);
            change(&mut other);
            let said = kept(&suite, &other).unwrap_err().to_string();
            assert!(
                said.contains(expected) && said.contains("not of the same suite"),
                "{said}"
            );
        }
    }

    #[test]
    fn leftovers_go_and_kept_data_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut suite = suite(dir.path());
        suite.keep_data = true;
        let data = dir.path().join("data");
        for name in ["001-null", "002-sqlite", "calibration", "mine"] {
            std::fs::create_dir_all(data.join(name).join("deep")).unwrap();
        }
        let kept = kept(&suite, &result(&suite, 2)).unwrap();
        remove_leftovers(&suite, &kept).unwrap();
        let left = || {
            let entries = std::fs::read_dir(&data).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(left(), ["001-null", "mine"]);
        suite.keep_data = false;
        remove_leftovers(&suite, &kept).unwrap();
        assert_eq!(left(), ["mine"], "only what the plan names");
    }
}
