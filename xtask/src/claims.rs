//! The figures that README quotes: each has a tolerance, and a command to measure it again.
//!
//! `docs/results/claims.json` gives the command, phase and metric for each row of README's table of
//! results and for each figure in the sentences around it. Only README contains the figures
//! themselves. [`covered`] fails for a figure without a command, and needs no measurement;
//! [`verify`] runs the commands and compares medians. Absolute figures hold for one machine: on
//! another one only ratios to the base engine are comparable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::finding::Finding;
use crate::measured::{median, run};

const README: &str = "README.md";
const CLAIMS: &str = "docs/results/claims.json";
const BEGIN: &str = "<!-- results:begin -->";
const END: &str = "<!-- results:end -->";

/// Quoted figure with its measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Line of README, counted from 1.
    line: usize,
    engine: String,
    run: String,
    phase: String,
    metric: String,
    divided_by: f64,
    tolerance: f64,
    value: f64,
}

/// Kind of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Figures as they are.
    Absolute,
    /// Ratios to the figures of the base engine.
    Relative,
}

/// Returns the claims of README, findings for figures that no claim covers, and the specification.
fn claims(root: &Path) -> Result<(Vec<Claim>, Vec<Finding>, Value)> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let spec: Value =
        serde_json::from_str(&read(CLAIMS)?).with_context(|| format!("{CLAIMS} is no JSON"))?;
    let (claims, findings) = parse(&read(README)?, &spec)?;
    Ok((claims, findings, spec))
}

fn parse(readme: &str, spec: &Value) -> Result<(Vec<Claim>, Vec<Finding>)> {
    let (mut claims, mut findings) = (Vec::new(), Vec::new());
    let mut engines: Vec<&str> = Vec::new();
    let known: BTreeSet<&str> = strings(&spec["settings"]).collect();
    let figures = spec["figures"].as_array().map_or(&[][..], Vec::as_slice);
    let lines = readme.lines().enumerate();
    let begin = lines.clone().find(|(_, line)| *line == BEGIN);
    let Some((begin, _)) = begin else {
        bail!("{README} has no line {BEGIN}");
    };
    for (number, line) in lines.skip(begin + 1).take_while(|(_, line)| *line != END) {
        let number = number + 1;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            for figure in numbers(line)
                .into_iter()
                .filter(|text| !known.contains(&**text))
            {
                match figures.iter().find(|of| of["text"] == *figure) {
                    Some(of) => claims.push(claim(of, number, &figure, None)?),
                    None => findings.push(uncovered(number, &figure)),
                }
            }
        } else if engines.is_empty() {
            engines = cells[1..].to_vec();
        } else if !cells[0].starts_with("---") {
            match &spec["table"]["rows"][cells[0]] {
                Value::Null => findings.push(uncovered(number, cells[0])),
                of => {
                    for (engine, cell) in engines.iter().zip(&cells[1..]) {
                        let run = &spec["table"]["run"];
                        claims.push(claim(of, number, cell, Some((engine, run)))?);
                    }
                }
            }
        }
    }
    Ok((claims, findings))
}

fn uncovered(line: usize, what: &str) -> Finding {
    let message = format!("`{what}` is measured by no command: add it to {CLAIMS}");
    Finding::error(README, line, message)
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn claim(of: &Value, line: usize, figure: &str, table: Option<(&&str, &Value)>) -> Result<Claim> {
    let text = |value: &Value, name: &str| {
        let text = value.as_str().map(str::to_string);
        text.with_context(|| format!("{CLAIMS}: `{figure}` has no {name}"))
    };
    let (engine, run) = match table {
        Some((engine, run)) => ((*engine).to_string(), text(run, "run")?),
        None => (text(&of["engine"], "engine")?, text(&of["run"], "run")?),
    };
    let tolerance = of["tolerance_percent"].as_f64();
    Ok(Claim {
        line,
        engine,
        run,
        phase: text(&of["phase"], "phase")?,
        metric: text(&of["metric"], "metric")?,
        divided_by: of["divided_by"].as_f64().unwrap_or(1.0),
        tolerance: tolerance
            .with_context(|| format!("{CLAIMS}: `{figure}` has no tolerance_percent"))?
            / 100.0,
        value: parsed(figure)
            .with_context(|| format!("{README}:{line}: `{figure}` is no number"))?,
    })
}

fn parsed(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok()
}

/// Returns the numbers of a sentence, except in words, paths and links.
fn numbers(line: &str) -> Vec<String> {
    let words =
        line.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']' | ';' | ':'));
    let plain = words.map(|word| word.trim_end_matches(['.', ',']).trim_end_matches("'s"));
    plain
        .filter(|word| parsed(word).is_some())
        .map(str::to_string)
        .collect()
}

/// Checks that a claim with an existing run covers every figure of README.
///
/// # Errors
/// Fails if the files cannot be read.
pub fn covered(root: &Path) -> Result<Vec<Finding>> {
    let (claims, mut findings, spec) = claims(root)?;
    if claims.is_empty() && findings.is_empty() {
        findings.push(Finding::error(
            README,
            1,
            "quotes no figure, but claims.json covers some",
        ));
    }
    for claim in &claims {
        if spec["runs"][&claim.run].as_str().is_none() {
            let message = format!("{CLAIMS} has no run `{}`", claim.run);
            findings.push(Finding::error(README, claim.line, message));
        }
    }
    Ok(findings)
}

/// Runs every command with this binary into `out` and compares. An existing result folder in `out`
/// is used as it is.
///
/// # Errors
/// Fails if a command fails or if a result lacks a claimed figure.
pub fn verify(root: &Path, binary: &Path, out: &Path, compared: Compared) -> Result<Vec<Finding>> {
    let (claims, mut findings, spec) = claims(root)?;
    let base = spec["base"].as_str().unwrap_or_default();
    let mut results: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, command) in spec["runs"].as_object().into_iter().flatten() {
        let command = command.as_str().unwrap_or_default();
        results.insert(
            name,
            run(binary, command, &BTreeMap::new(), &out.join(name))?,
        );
    }
    for claim in &claims {
        let result = results
            .get(claim.run.as_str())
            .with_context(|| format!("{CLAIMS} has no run `{}`", claim.run))?;
        findings.extend(judged(claim, &claims, result, base, compared)?);
    }
    println!("{} figures of {README} compared", claims.len());
    Ok(findings)
}

/// Prints a figure next to its measured value; returns a finding if they differ too much.
fn judged(
    claim: &Claim,
    all: &[Claim],
    result: &Value,
    base: &str,
    compared: Compared,
) -> Result<Option<Finding>> {
    let missing = |engine: &str| {
        format!(
            "{} has no {} of {engine} in {}",
            claim.run, claim.metric, claim.phase
        )
    };
    let now = measured(result, claim, &claim.engine).with_context(|| missing(&claim.engine))?;
    let (then, now) = match compared {
        Compared::Absolute => (claim.value, now),
        Compared::Relative => {
            let same = |other: &&Claim| {
                (
                    other.engine.as_str(),
                    &other.run,
                    &other.phase,
                    &other.metric,
                ) == (base, &claim.run, &claim.phase, &claim.metric)
            };
            let Some(of_base) = all.iter().find(same).filter(|_| claim.engine != base) else {
                return Ok(None);
            };
            let base_now = measured(result, claim, base).with_context(|| missing(base))?;
            (claim.value / of_base.value, now / base_now)
        }
    };
    let change = now / then - 1.0;
    println!(
        "{README}:{}: {} {} {}: {then:.3} quoted, {now:.3} measured, {:+.1} % (up to {:.0} % allowed)",
        claim.line,
        claim.engine,
        claim.phase,
        claim.metric,
        change * 100.0,
        claim.tolerance * 100.0
    );
    // Twice the value is as far off as half the value.
    let apart = now / then > 1.0 + claim.tolerance || then / now > 1.0 + claim.tolerance;
    Ok(apart.then(|| {
        let message = format!(
            "{} of {} is {now:.3} now and not {then:.3}: measure again on a quiet machine, or correct it",
            claim.metric, claim.engine
        );
        Finding::error(README, claim.line, message)
    }))
}

/// Returns the median over the repetitions.
fn measured(result: &Value, claim: &Claim, engine: &str) -> Option<f64> {
    let median = median(result, engine, &claim.phase, &claim.metric)?;
    Some(median / claim.divided_by)
}

/// Parses `--binary FILE --out DIR [--relative]`.
///
/// # Errors
/// Fails if an argument is missing.
pub fn arguments(given: &[&str]) -> Result<(PathBuf, PathBuf, Compared)> {
    let after = |name: &str| {
        let place = given.iter().position(|word| *word == name);
        let value = place.and_then(|place| given.get(place + 1));
        value
            .map(PathBuf::from)
            .with_context(|| format!("claims: {name} is missing"))
    };
    let compared = if given.contains(&"--relative") {
        Compared::Relative
    } else {
        Compared::Absolute
    };
    Ok((after("--binary")?, after("--out")?, compared))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# x\n<!-- results:begin -->\nOver 3,000 operations, in [a page](b/2.md):\n\n| | ours | theirs |\n|---|---|---|\n| operations/s | 2,000 | 1,000 |\n\nIt is 0.5 against ours' 0.25.\n<!-- results:end -->\nlater 77\n";

    fn spec() -> Value {
        serde_json::json!({
            "base": "ours",
            "runs": {"r": "run x"},
            "table": {"run": "r", "rows": {"operations/s": {"phase": "request", "metric": "ops_per_s", "tolerance_percent": 10}}},
            "figures": [
                {"text": "0.5", "run": "r", "engine": "theirs", "phase": "settle", "metric": "size_bytes.data", "divided_by": 2, "tolerance_percent": 10},
                {"text": "0.25", "run": "r", "engine": "ours", "phase": "settle", "metric": "size_bytes.data", "divided_by": 2, "tolerance_percent": 10}],
            "settings": ["3,000"],
        })
    }

    fn result(theirs: f64) -> Value {
        let trial = |engine: &str, rate: f64, size: f64| {
            serde_json::json!({"engine": engine, "phases": [
                {"name": "request", "ops_per_s": rate}, {"name": "settle", "size_bytes": {"data": size}}]})
        };
        serde_json::json!({"trials": [
            trial("ours", 1900.0, 0.5), trial("theirs", theirs, 1.0), trial("ours", 2100.0, 0.5), trial("theirs", theirs, 1.0)]})
    }

    fn found(result: &Value, compared: Compared) -> Vec<String> {
        let (claims, _) = parse(PAGE, &spec()).unwrap();
        let judged = claims
            .iter()
            .map(|claim| judged(claim, &claims, result, "ours", compared).unwrap());
        judged
            .flatten()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn every_figure_between_the_marks_is_a_claim() {
        let (claims, findings) = parse(PAGE, &spec()).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        let values: Vec<f64> = claims.iter().map(|claim| claim.value).collect();
        assert_eq!(values, [2000.0, 1000.0, 0.5, 0.25]);
        let mut less = spec();
        less["figures"].as_array_mut().unwrap().pop();
        less["table"]["rows"] = serde_json::json!({});
        let (_, findings) = parse(PAGE, &less).unwrap();
        let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(
            said[0].starts_with("README.md:7: `operations/s` is measured by no command"),
            "{said:?}"
        );
        assert!(
            said[1].starts_with("README.md:9: `0.25` is measured"),
            "{said:?}"
        );
    }

    #[test]
    fn medians_within_the_tolerance_hold_and_others_are_named() {
        assert!(found(&result(1090.0), Compared::Absolute).is_empty());
        let said = found(&result(880.0), Compared::Absolute);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("ops_per_s of theirs is 880.000 now and not 1000.000"),
            "{said:?}"
        );
    }

    #[test]
    fn on_another_machine_ratios_to_the_base_are_compared() {
        let mut faster = result(2000.0);
        for trial in faster["trials"].as_array_mut().unwrap() {
            if trial["engine"] == "ours" {
                trial["phases"][0]["ops_per_s"] = 4000.0.into();
            }
        }
        assert!(found(&faster, Compared::Relative).is_empty());
        assert_eq!(found(&faster, Compared::Absolute).len(), 2);
        assert_eq!(found(&result(2000.0), Compared::Relative).len(), 1);
    }

    #[test]
    fn the_readme_of_this_workspace_is_covered() {
        let findings = covered(&crate::files::root()).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
    }
}
