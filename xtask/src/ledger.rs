//! The ledger of published claims: what the published comparisons say, and what this laboratory
//! measures of it.
//!
//! `docs/results/ledger.json` has an entry for each statement. [`update`] writes the page
//! `ledger.md` from it, [`check`] compares the page, and [`try_again`] runs a part of the commands
//! at a reduced scale. A verdict follows from two numbers, the published one and the measured one.
//! Only a statement that is not one number carries its verdict in the file, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::finding::Finding;
use crate::measured::{median, run};

const LEDGER: &str = "docs/results/ledger.json";
const PAGE: &str = "docs/results/ledger.md";

/// Factor between two numbers up to which a statement is reproduced, unless it names its own.
const WITHIN: f64 = 1.5;
/// Least part of the statements that must have been tried, in percent.
const TRIED_PERCENT: usize = 80;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    runs: BTreeMap<String, Run>,
    statements: Vec<Statement>,
}

/// Commands of `rumbench`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Command of the measurement on the page.
    command: String,
    /// Environment of the command.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Command for [`try_again`], of some minutes.
    reduced: Option<String>,
    /// Page in `docs/results` with all numbers.
    page: Option<String>,
    note: Option<String>,
}

/// Published statement. Numbers are ratios of `engine` to `base` or of two phases, or as they are
/// without either.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    id: String,
    source: String,
    says: String,
    published: Option<f64>,
    /// As [`WITHIN`], for this statement.
    within: Option<f64>,
    run: Option<String>,
    engine: Option<String>,
    base: Option<String>,
    phase: Option<String>,
    base_phase: Option<String>,
    /// Name of the phase in the reduced run if it has another one there.
    reduced_phase: Option<String>,
    metric: Option<String>,
    measured: Option<f64>,
    /// True if the nearest engine that can be had stands in place of the published one: it can show
    /// the direction at most.
    #[serde(default)]
    nearest: bool,
    verdict: Option<Verdict>,
    /// Reason why it cannot be tried here.
    impossible: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Contradicted,
    Direction,
    Reproduced,
}

/// State of a statement, in the order of the page's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Tried(Verdict),
    NotTried,
    Impossible,
}

impl Outcome {
    const ALL: [Outcome; 5] = [
        Outcome::Tried(Verdict::Contradicted),
        Outcome::Tried(Verdict::Direction),
        Outcome::Tried(Verdict::Reproduced),
        Outcome::NotTried,
        Outcome::Impossible,
    ];

    fn text(self) -> &'static str {
        match self {
            Outcome::Tried(Verdict::Contradicted) => "contradicted",
            Outcome::Tried(Verdict::Direction) => "in direction only",
            Outcome::Tried(Verdict::Reproduced) => "reproduced",
            Outcome::NotTried => "not tried yet",
            Outcome::Impossible => "impossible here",
        }
    }
}

/// Judges a measured number. It reproduces the published one within the factor, if both say the
/// same about which side of 1 they are on, or both are 1 within a tenth. It has the direction if it
/// is on the same side, unless the published one says that there is no difference.
fn judged(published: f64, measured: f64, within: f64) -> Verdict {
    let apart = (published / measured).max(measured / published);
    let is_even = |number: f64| (0.9..=1.0 / 0.9).contains(&number);
    let same_side = (published > 1.0) == (measured > 1.0);
    if apart <= within && (same_side || (is_even(published) && is_even(measured))) {
        Verdict::Reproduced
    } else if same_side && !(0.98..=1.02).contains(&published) {
        Verdict::Direction
    } else {
        Verdict::Contradicted
    }
}

impl Statement {
    fn outcome(&self) -> Outcome {
        if self.impossible.is_some() {
            return Outcome::Impossible;
        }
        let by_number = self.measured.and_then(|measured| self.judge(measured));
        let verdict = self.verdict.or(by_number);
        verdict.map_or(Outcome::NotTried, Outcome::Tried)
    }

    fn judge(&self, measured: f64) -> Option<Verdict> {
        let within = self.within.unwrap_or(WITHIN);
        let verdict = judged(self.published?, measured, within);
        Some(if self.nearest {
            verdict.min(Verdict::Direction)
        } else {
            verdict
        })
    }

    /// Returns the errors of an entry.
    fn errors(&self, ledger: &Ledger) -> Vec<String> {
        let mut errors = Vec::new();
        let mut refuse = |wrong: bool, message: &str| {
            if wrong {
                errors.push(format!("`{}` {message}", self.id));
            }
        };
        let run = self.run.as_ref();
        refuse(
            run.is_some_and(|run| !ledger.runs.contains_key(run)),
            "names a run that is not there",
        );
        let states = [
            self.measured.is_some(),
            self.verdict.is_some(),
            self.impossible.is_some(),
        ];
        refuse(
            states.into_iter().filter(|state| *state).count() > 1,
            "has more than one of measured, verdict and impossible",
        );
        refuse(
            self.measured.is_some() && self.published.is_none(),
            "has a measured number and no published one",
        );
        refuse(
            self.verdict.is_some() && self.note.is_none(),
            "has a verdict of its own without a note",
        );
        refuse(
            self.impossible.is_none() && self.run.is_none() && self.verdict.is_none(),
            "has neither a run nor a reason why it is impossible",
        );
        errors
    }

    /// Returns the number that the statement is about in the result of a reduced run.
    fn number(&self, result: &serde_json::Value) -> Option<f64> {
        let engine = self.engine.as_deref()?;
        let phase = self.reduced_phase.as_deref().or(self.phase.as_deref())?;
        let metric = self.metric.as_deref()?;
        let own = median(result, engine, phase, metric)?;
        if self.base.is_none() && self.base_phase.is_none() {
            return Some(own);
        }
        let base = self.base.as_deref().unwrap_or(engine);
        let phase = self.base_phase.as_deref().unwrap_or(phase);
        Some(own / median(result, base, phase, metric)?)
    }
}

impl Ledger {
    fn read(root: &Path) -> Result<Ledger> {
        let text = fs::read_to_string(root.join(LEDGER)).with_context(|| LEDGER.to_string())?;
        serde_json::from_str(&text).with_context(|| LEDGER.to_string())
    }

    fn errors(&self, root: &Path) -> Vec<String> {
        let mut errors: Vec<String> = Vec::new();
        let mut ids = BTreeSet::new();
        for statement in &self.statements {
            errors.extend(statement.errors(self));
            if !ids.insert(&statement.id) {
                errors.push(format!("`{}` is there twice", statement.id));
            }
        }
        let used: BTreeSet<_> = self.statements.iter().flat_map(|s| &s.run).collect();
        for (name, run) in &self.runs {
            if !used.contains(name) {
                errors.push(format!("no statement uses the run `{name}`"));
            }
            let page = run.page.as_ref();
            if page.is_some_and(|page| !root.join("docs/results").join(page).exists()) {
                errors.push(format!("the page of the run `{name}` is not there"));
            }
        }
        let tried = self.tried_percent();
        if tried < TRIED_PERCENT {
            errors.push(format!(
                "{tried} % of the statements are tried, {TRIED_PERCENT} % must be"
            ));
        }
        errors
    }

    fn count(&self, outcome: Outcome) -> usize {
        let outcomes = self.statements.iter().map(Statement::outcome);
        outcomes.filter(|own| *own == outcome).count()
    }

    fn tried_percent(&self) -> usize {
        let not = self.count(Outcome::NotTried) + self.count(Outcome::Impossible);
        let all = self.statements.len();
        (all - not) * 100 / all.max(1)
    }
}

/// Writes the page of the ledger.
///
/// # Errors
/// Fails if the ledger cannot be read or the page cannot be written.
pub fn update(root: &Path) -> Result<Vec<Finding>> {
    let ledger = Ledger::read(root)?;
    fs::write(root.join(PAGE), page(&ledger)).with_context(|| PAGE.to_string())?;
    check(root)
}

/// Checks the ledger and that the page is what [`update`] writes.
///
/// # Errors
/// Fails if a file cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let ledger = Ledger::read(root)?;
    let wrong = ledger.errors(root).into_iter();
    let mut findings: Vec<Finding> = wrong.map(|e| Finding::error(LEDGER, 1, e)).collect();
    let there = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_string())?;
    if there != page(&ledger) {
        let message = "differs from ledger.json: run `cargo xtask ledger`";
        findings.push(Finding::error(PAGE, 1, message));
    }
    Ok(findings)
}

fn page(ledger: &Ledger) -> String {
    let mut page = String::new();
    page.push_str("# Ledger of the published claims\n\n");
    page.push_str("`cargo xtask ledger` writes this page from [ledger.json](ledger.json); `make ledger PART=..` tries a part again at a reduced scale.\n");
    page.push_str("The published numbers are from other machines, versions and scales, so only ratios are compared.\n");
    let _ = writeln!(
        page,
        "A statement is *reproduced* if the measured number is within a factor of {WITHIN} of the published one (or the factor in its row) and on the same side of 1, *in direction only* if it is only on the same side, and *contradicted* otherwise. Two numbers within a tenth of 1 agree.\n"
    );
    page.push_str("| statements | |\n|---|---|\n");
    for outcome in Outcome::ALL {
        let _ = writeln!(page, "| {} | {} |", outcome.text(), ledger.count(outcome));
    }
    let _ = writeln!(
        page,
        "| **tried** | **{} % of {}** |",
        ledger.tried_percent(),
        ledger.statements.len()
    );
    let contradicted = Outcome::Tried(Verdict::Contradicted);
    let rows = ledger.statements.iter();
    table(
        &mut page,
        "Contradicted",
        rows.filter(|s| s.outcome() == contradicted),
    );
    let mut sources: Vec<&str> = Vec::new();
    for statement in &ledger.statements {
        if !sources.contains(&&*statement.source) {
            sources.push(&statement.source);
        }
    }
    for source in sources {
        let rows = ledger.statements.iter().filter(|s| s.source == source);
        table(&mut page, source, rows);
    }
    runs(&mut page, ledger);
    page
}

fn table<'a>(page: &mut String, title: &str, rows: impl Iterator<Item = &'a Statement>) {
    let _ = write!(page, "\n## {title}\n\n");
    page.push_str("| statement | published | here | verdict | |\n|---|---|---|---|---|\n");
    for row in rows {
        let number = |n: Option<f64>| n.map_or(String::new(), rounded);
        let within = row.within.map(|within| format!(" (within {within})"));
        let run = row.run.as_ref().map(|run| format!("run `{run}`"));
        let nearest = row.nearest.then(|| "the nearest engine".to_string());
        let rest = [run, nearest, row.impossible.clone(), row.note.clone()];
        let rest: Vec<String> = rest.into_iter().flatten().collect();
        let _ = writeln!(
            page,
            "| {} | {}{} | {} | {} | {} |",
            row.says,
            number(row.published),
            within.unwrap_or_default(),
            number(row.measured),
            row.outcome().text(),
            rest.join("; ")
        );
    }
}

fn runs(page: &mut String, ledger: &Ledger) {
    page.push_str(
        "\n## Runs\n\nEach line is a command of `rumbench`; a page has all its numbers.\n",
    );
    for (name, run) in &ledger.runs {
        let _ = write!(page, "\n### {name}\n\n");
        if let Some(of) = &run.page {
            let _ = write!(page, "Numbers: [{of}]({of}).\n\n");
        }
        if let Some(note) = &run.note {
            let _ = write!(page, "{note}\n\n");
        }
        let env = run
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value} "));
        let env: String = env.collect();
        let _ = write!(page, "```sh\n{env}rumbench {}\n", run.command);
        if let Some(reduced) = &run.reduced {
            let _ = write!(page, "# reduced\n{env}rumbench {reduced}\n");
        }
        page.push_str("```\n");
    }
}

/// Returns a number with three digits that count.
fn rounded(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.995 => 2,
        _ => 3,
    };
    format!("{number:.digits$}")
}

/// Runs the reduced commands of the runs whose names begin with `part` into `out`, and prints each
/// statement that they try.
///
/// # Errors
/// Fails if a command fails, or if no run has such a name.
pub fn try_again(root: &Path, binary: &Path, out: &Path, part: &str) -> Result<Vec<Finding>> {
    let ledger = Ledger::read(root)?;
    let mut findings = Vec::new();
    let chosen = ledger
        .runs
        .iter()
        .filter(|(name, _)| name.starts_with(part));
    let mut any = false;
    for (name, of) in chosen {
        let Some(command) = &of.reduced else {
            continue;
        };
        any = true;
        println!("{name}: rumbench {command}");
        let result = run(binary, command, &of.env, &out.join(name))?;
        let own = |statement: &&Statement| statement.run.as_ref() == Some(name);
        for statement in ledger.statements.iter().filter(own) {
            let Some(now) = statement.number(&result) else {
                if statement.metric.is_some() {
                    let message = format!(
                        "`{}`: the result of `{name}` lacks its number",
                        statement.id
                    );
                    findings.push(Finding::error(LEDGER, 1, message));
                }
                continue;
            };
            let verdict = statement.judge(now).map(|v| Outcome::Tried(v).text());
            println!(
                "  {}: published {}, at full scale {}, now {}: {}",
                statement.id,
                statement.published.map_or("none".into(), rounded),
                statement.measured.map_or("none".into(), rounded),
                rounded(now),
                verdict.unwrap_or("no published number")
            );
        }
    }
    anyhow::ensure!(
        any,
        "no run of {LEDGER} whose name begins with `{part}` has a reduced command"
    );
    Ok(findings)
}

/// Parses `--binary FILE --out DIR --part NAME`.
///
/// # Errors
/// Fails if an argument is missing.
pub fn arguments(given: &[&str]) -> Result<(PathBuf, PathBuf, String)> {
    let after = |name: &str| {
        let place = given.iter().position(|word| *word == name);
        let value = place.and_then(|place| given.get(place + 1));
        value.with_context(|| format!("ledger: {name} is missing"))
    };
    let paths = (after("--binary")?.into(), after("--out")?.into());
    Ok((paths.0, paths.1, (*after("--part")?).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(statements: serde_json::Value) -> Ledger {
        let runs = serde_json::json!({"r": {"command": "run x", "reduced": "run y"}});
        let ledger = serde_json::json!({"runs": runs, "statements": statements});
        serde_json::from_value(ledger).unwrap()
    }

    #[test]
    fn a_verdict_follows_from_two_numbers() {
        assert_eq!(judged(2.0, 2.9, 1.5), Verdict::Reproduced);
        assert_eq!(judged(2.0, 1.4, 1.5), Verdict::Reproduced);
        assert_eq!(judged(2.0, 1.1, 1.5), Verdict::Direction);
        assert_eq!(judged(0.5, 0.9, 1.5), Verdict::Direction);
        assert_eq!(judged(2.0, 0.9, 1.5), Verdict::Contradicted);
        assert_eq!(judged(1.03, 1.2, 1.05), Verdict::Direction);
        assert_eq!(judged(2.0, 0.0, 1.5), Verdict::Contradicted);
        assert_eq!(judged(1.04, 0.996, 1.5), Verdict::Reproduced);
        assert_eq!(judged(0.85, 1.09, 1.5), Verdict::Contradicted);
        assert_eq!(judged(1.0, 2.0, 1.5), Verdict::Contradicted);
    }

    #[test]
    fn entries_that_contradict_themselves_are_refused() {
        let ledger = ledger(serde_json::json!([
            {"id": "a", "source": "s", "says": "x", "published": 2, "run": "r", "measured": 1.9},
            {"id": "a", "source": "s", "says": "x", "measured": 1.9, "impossible": "no"},
            {"id": "b", "source": "s", "says": "x", "verdict": "reproduced", "run": "q"},
            {"id": "c", "source": "s", "says": "x"}]));
        let errors = ledger.errors(&crate::files::root()).join("\n");
        assert_eq!(
            errors,
            "`a` has more than one of measured, verdict and impossible\n\
             `a` has a measured number and no published one\n\
             `a` is there twice\n\
             `b` names a run that is not there\n\
             `b` has a verdict of its own without a note\n\
             `c` has neither a run nor a reason why it is impossible\n\
             50 % of the statements are tried, 80 % must be"
        );
    }

    #[test]
    fn a_page_begins_with_the_counts_and_what_is_contradicted() {
        let ledger = ledger(serde_json::json!([
            {"id": "a", "source": "S", "says": "A.", "published": 2, "run": "r", "measured": 1.9},
            {"id": "b", "source": "S", "says": "B.", "published": 2, "run": "r", "measured": 0.5},
            {"id": "c", "source": "T", "says": "C.", "impossible": "no such disk", "note": "n"}]));
        let page = page(&ledger);
        let from = page.find("| statements").unwrap();
        assert_eq!(
            &page[from..],
            "| statements | |\n|---|---|\n\
             | contradicted | 1 |\n| in direction only | 0 |\n| reproduced | 1 |\n\
             | not tried yet | 0 |\n| impossible here | 1 |\n| **tried** | **66 % of 3** |\n\n\
             ## Contradicted\n\n| statement | published | here | verdict | |\n|---|---|---|---|---|\n\
             | B. | 2.00 | 0.500 | contradicted | run `r` |\n\n\
             ## S\n\n| statement | published | here | verdict | |\n|---|---|---|---|---|\n\
             | A. | 2.00 | 1.90 | reproduced | run `r` |\n\
             | B. | 2.00 | 0.500 | contradicted | run `r` |\n\n\
             ## T\n\n| statement | published | here | verdict | |\n|---|---|---|---|---|\n\
             | C. |  |  | impossible here | no such disk; n |\n\n\
             ## Runs\n\nEach line is a command of `rumbench`; a page has all its numbers.\n\n\
             ### r\n\n```sh\nrumbench run x\n# reduced\nrumbench run y\n```\n"
        );
    }

    #[test]
    fn a_number_is_a_ratio_of_engines_or_phases_or_as_it_is() {
        let phase = |name: &str, rate: f64| serde_json::json!({"name": name, "rate": rate});
        let result = serde_json::json!({"trials": [
            {"engine": "x", "phases": [phase("p", 6.0), phase("q", 3.0)]},
            {"engine": "y", "phases": [phase("p", 2.0)]}]});
        let number = |more: serde_json::Value| {
            let mut entry = serde_json::json!({"id": "a", "source": "s", "says": "x",
                "engine": "x", "phase": "p", "metric": "rate"});
            let more = more.as_object().unwrap().clone();
            entry.as_object_mut().unwrap().extend(more);
            let statement: Statement = serde_json::from_value(entry).unwrap();
            statement.number(&result)
        };
        assert_eq!(number(serde_json::json!({"base": "y"})), Some(3.0));
        assert_eq!(number(serde_json::json!({"base_phase": "q"})), Some(2.0));
        assert_eq!(number(serde_json::json!({})), Some(6.0));
        assert_eq!(number(serde_json::json!({"base": "z"})), None);
    }
}
