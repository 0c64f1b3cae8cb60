//! `rumbench compare BASE NEW`: differences between two results, with verdicts; exit code 3 if a
//! threshold fails.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use rumbench_core::names::unknown;
use serde_json::json;

use super::process::{Exit, print};
use crate::catalog::usage;
use crate::report::compare::threshold::{Outcome, Threshold};
use crate::report::compare::{Row, compare, differences, overall, summary, table};
use crate::report::marks;
use crate::report::table::Format;
use crate::run::progress::say;
use crate::store::result::{SuiteResult, TrialResult};
use crate::store::{file, history};

/// Value of BASE that selects an earlier result in the results store.
const PREVIOUS: &str = "@previous";

/// Maximum number of difference lines shown for all engines together; JSON has all.
const DIFFERENCES: usize = 20;

/// Flags of `rumbench compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Result folder or name of a stored result (`rumbench results`), or its trials of one engine:
    /// DIR#ENGINE or DIR#ENGINE:VARIANT; of a sweep 'DIR#ENGINE KEY=VALUE'. @previous: the newest
    /// stored result before NEW with the same workload, the same machine and an engine in common
    base: String,
    /// Result folder or name of a stored result, as BASE
    new: String,
    /// Exit with 3 if this holds, for example 'response_us_p99 > +10%' or 'request:ops_per_s <
    /// -5%'; may be repeated
    #[arg(long, value_name = "[PHASE:]METRIC > +N%")]
    fail_if: Vec<String>,
    /// Compare engines even if their commits survive different failures
    #[arg(long)]
    mix_durability: bool,
    /// Show all figures of response times, not only p99
    #[arg(long)]
    all: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

/// One side of the comparison.
struct Side {
    selector: String,
    suite: SuiteResult,
    engine: Option<String>,
}

impl Side {
    /// Reads the result that `selector` names. An existing folder is used as it is, whatever
    /// characters its name has.
    fn read(selector: &str) -> Result<Side> {
        let (dir, engine) = match selector.rsplit_once('#') {
            Some((dir, engine)) if !Path::new(selector).exists() => (dir, Some(engine)),
            _ => (selector, None),
        };
        let path = Path::new(dir);
        let stored = match history::default_path() {
            Some(store) if !path.exists() => history::find(&store, dir)?,
            _ => None,
        };
        let suite = match stored {
            Some(suite) => suite,
            None => file::load(path).with_context(|| format!("cannot compare {selector}"))?,
        };
        Side::of(selector.to_string(), suite, engine)
    }

    /// Returns the newest comparable result stored before `new`, or its trials of one engine.
    fn before(new: &Side, engine: Option<&str>) -> Result<Side> {
        let engines = new.engines();
        let is_like = |suite: &SuiteResult| {
            let mut trials = suite.trials.iter().map(TrialResult::contestant);
            differences::same_machine(suite, &new.suite)
                && trials.any(|name| engines.contains(&name))
        };
        let store = history::default_path();
        let found = store.map(|store| history::before(&store, &new.suite, is_like));
        let (directory, suite) = found.transpose()?.flatten().ok_or_else(|| {
            usage(format!(
                "{PREVIOUS}: no stored result of {} on this machine started before {}; `rumbench results` lists what there is",
                new.suite.workload, new.selector
            ))
        })?;
        let engine_suffix = engine.map(|engine| format!("#{engine}"));
        Side::of(
            directory + &engine_suffix.unwrap_or_default(),
            suite,
            engine,
        )
    }

    fn of(selector: String, suite: SuiteResult, engine: Option<&str>) -> Result<Side> {
        let side = Side {
            selector,
            suite,
            engine: engine.map(str::to_string),
        };
        if let Some(engine) = &side.engine {
            let engines = side.engines();
            if !engines.contains(engine) {
                let known: Vec<&str> = engines.iter().map(String::as_str).collect();
                return Err(usage(format!(
                    "{}: {}",
                    side.selector,
                    unknown("engine of this result", engine, &known)
                )));
            }
        }
        Ok(side)
    }

    fn engines(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.suite.trials.iter().map(TrialResult::contestant) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the trials of `engine` that have durability facts and no wrong answer.
    fn trials(&self, engine: &str) -> Vec<&TrialResult> {
        let usable = |trial: &&TrialResult| {
            trial.contestant() == engine
                && !trial.has_mark("wrong-answer")
                && trial.durability_facts.is_some()
        };
        self.suite.trials.iter().filter(usable).collect()
    }

    /// Returns one warning for each failed trial of this side.
    fn failures(&self, what: &str) -> Vec<String> {
        let failed = self
            .suite
            .trials
            .iter()
            .filter(|trial| marks::failed(trial));
        failed
            .map(|trial| {
                format!(
                    "{what} {} #{} is marked: {}",
                    trial.contestant(),
                    trial.repetition,
                    trial.marks.join("; ")
                )
            })
            .collect()
    }
}

/// Pairs the engines of the two sides.
fn engine_pairs(base: &Side, new: &Side) -> Result<Vec<(String, String)>> {
    let (a, b) = (base.engines(), new.engines());
    let only = |engines: &[String]| (engines.len() == 1).then(|| engines[0].clone());
    let partner = |engine: &String, side: &[String]| {
        let same = side.contains(engine).then(|| engine.clone());
        same.or_else(|| only(side))
    };
    let found: Vec<(String, String)> = match (&base.engine, &new.engine) {
        (Some(a), Some(b)) => vec![(a.clone(), b.clone())],
        (Some(engine), None) => partner(engine, &b)
            .map(|other| (engine.clone(), other))
            .into_iter()
            .collect(),
        (None, Some(engine)) => partner(engine, &a)
            .map(|other| (other, engine.clone()))
            .into_iter()
            .collect(),
        (None, None) => {
            let same = a
                .iter()
                .filter(|name| b.contains(name))
                .map(|name| (name.clone(), name.clone()));
            let same: Vec<_> = same.collect();
            if same.is_empty() {
                only(&a).zip(only(&b)).into_iter().collect()
            } else {
                same
            }
        }
    };
    if found.is_empty() {
        return Err(usage(format!(
            "{} has {}, {} has {}: name one of each as DIR#ENGINE",
            base.selector,
            a.join(", "),
            new.selector,
            b.join(", ")
        )));
    }
    Ok(found)
}

/// Compares one pair of engines and returns its rows and the differences between its trials.
fn compare_engines(
    arguments: &CompareArgs,
    base: &Side,
    new: &Side,
    names: &(String, String),
) -> Result<(Vec<Row>, Vec<String>)> {
    let label = if names.0 == names.1 {
        names.0.clone()
    } else {
        format!("{} / {}", names.1, names.0)
    };
    let (a, b) = (base.trials(&names.0), new.trials(&names.1));
    let (Some(first), Some(other)) = (a.first(), b.first()) else {
        let side = if a.is_empty() { base } else { new };
        bail!(
            "{}: no trial of {label} has numbers; see `rumbench report`",
            side.selector
        );
    };
    if !arguments.mix_durability && !differences::same_promise(first, other) {
        return Err(usage(format!(
            "{label}: commits of the two survive different things; --mix-durability compares them all the same"
        )));
    }
    let mut lines = differences::of_trials(first, other);
    // Two different engines differ in nearly every setting, so only workload settings are of
    // interest.
    if names.0 != names.1 {
        lines.retain(|line| {
            !line.starts_with("configuration ") || line.starts_with("configuration workload.")
        });
    }
    let lines = lines.into_iter().map(|line| format!("{label}: {line}"));
    Ok((compare(&label, &a, &b), lines.collect()))
}

/// Returns true for rows in the table and the verdict without `--all`.
fn is_principal(row: &Row) -> bool {
    !row.metric.starts_with("latency_us.") || row.metric.ends_with(".p99")
}

/// Compares two results and prints the differences.
///
/// # Errors
/// Fails if a side has no readable result, if the workloads differ, or if a threshold cannot be
/// checked.
pub fn run(arguments: &CompareArgs) -> Result<Exit> {
    let thresholds: Vec<Threshold> = arguments
        .fail_if
        .iter()
        .map(|text| Threshold::parse(text))
        .collect::<Result<_>>()?;
    let new = Side::read(&arguments.new)?;
    let base = match arguments.base.strip_prefix(PREVIOUS) {
        Some("") => Side::before(&new, None)?,
        Some(rest) if rest.starts_with('#') => Side::before(&new, Some(&rest[1..]))?,
        _ => Side::read(&arguments.base)?,
    };
    differences::refuse(&base.suite, &new.suite)?;
    let mut warnings = differences::of_suites(&base.suite, &new.suite);
    warnings.extend(base.failures("base"));
    warnings.extend(new.failures("new"));
    let mut rows = Vec::new();
    for names in engine_pairs(&base, &new)? {
        let (found, lines) = compare_engines(arguments, &base, &new, &names)?;
        rows.extend(found);
        warnings.extend(lines);
    }
    if rows.is_empty() {
        bail!(
            "no repetition of one side has a number that the same repetition of the other has too"
        );
    }
    let outcomes: Vec<Outcome> = thresholds
        .iter()
        .map(|threshold| threshold.judge(&rows))
        .collect::<Result<_>>()?;
    if !arguments.all {
        rows.retain(is_principal);
    }
    if arguments.json {
        let verdict = overall(&rows.iter().collect::<Vec<_>>());
        let all = json!({"base": base.selector, "new": new.selector, "verdict": verdict, "differences": warnings, "comparisons": rows, "thresholds": outcomes});
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        let sides = format!("base {}\nnew  {}\n", base.selector, new.selector);
        print(&(sides + &text(arguments, &warnings, &rows, &outcomes)))?;
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failed).count();
    if failed > 0 {
        say(&format!(
            "rumbench: {failed} of {} thresholds failed",
            outcomes.len()
        ));
        return Ok(Exit::Threshold);
    }
    Ok(Exit::Done)
}

fn text(
    arguments: &CompareArgs,
    warnings: &[String],
    rows: &[Row],
    outcomes: &[Outcome],
) -> String {
    let mut out = String::new();
    if !warnings.is_empty() {
        out += "\nWhat differs besides the numbers\n";
        for line in warnings.iter().take(DIFFERENCES) {
            out += &format!("  {line}\n");
        }
        if warnings.len() > DIFFERENCES {
            out += &format!(
                "  and {} more; --json shows all\n",
                warnings.len() - DIFFERENCES
            );
        }
    }
    out += &format!("\n{}\n", summary(rows));
    out += &table(rows).render(if arguments.markdown {
        Format::Markdown
    } else {
        Format::Text
    });
    if !outcomes.is_empty() {
        out += "\nThresholds\n";
    }
    for outcome in outcomes {
        let state = if outcome.failed { "FAILED" } else { "ok    " };
        out += &format!(
            "  {state} {}: {}\n",
            outcome.threshold,
            outcome.because.join("; ")
        );
    }
    out
}
