//! Causes of a result in words: `rumbench explain RUN`, and short sentences on the page.
//!
//! Every sentence is a [`Finding`] with its figures, so that a reader can check it. [`usage`] does
//! the arithmetic: it splits the time of the clients' threads.
//!
//! - [`bound`] names the bottleneck of a phase.
//! - [`cost`] names the costs that set an engine apart from the base.
//! - [`hot`] names the functions on which CPU time went.
//! - [`stalls`] lists the seconds without throughput and the engine's work in them.
//! - [`theory`] lists costs above their theoretical limit.
//! - [`warnings`] lists faults of the experiment itself.
//!
//! `docs/guide/explain.md` explains the rules to users. Nothing here measures; a sentence without
//! figures is not written.

pub mod account;
pub mod bound;
pub mod cost;
pub mod finding;
pub mod hot;
#[cfg(test)]
mod published;
pub mod stalls;
pub mod usage;
pub mod warnings;

use super::options::ReportOptions;
use super::selection::groups;
use super::theory;
use crate::store::result::SuiteResult;
pub use finding::{Figure, Finding, Kind, Scene};

/// Returns all findings of a result, group by group and phase by phase, warnings last.
pub fn explain(suite: &SuiteResult, options: &ReportOptions) -> Vec<Finding> {
    let found = groups(suite, options.mix_durability);
    let mut findings = Vec::new();
    for (number, group) in found.iter().enumerate() {
        let base = group.base(options.base.as_deref());
        let scene = Scene::new(suite, group, number, base);
        findings.extend(of_group(&scene));
    }
    findings.extend(warnings::findings(suite));
    findings
}

/// Returns all findings of one group.
pub fn of_group(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut others = cost::space(scene);
    others.extend(theory::findings(scene));
    for phase in scene.phases() {
        for engine in scene.group.engines_of(&phase) {
            findings.extend(of_phase(scene, &engine, &phase));
        }
        for engine in scene.group.engines_of(&phase) {
            findings.extend(stalls::findings(scene, &engine, &phase));
        }
        let own = |found: &mut Finding| found.phase.as_ref() == Some(&phase);
        findings.extend(others.extract_if(.., own));
    }
    // Findings about a settle, a phase without operations.
    findings.extend(others);
    findings
}

/// Returns the bottleneck of an engine in a phase, its differences from the base, and its hot
/// functions.
pub fn of_phase(scene: &Scene<'_>, engine: &str, phase: &str) -> Vec<Finding> {
    let bound = bound::finding(scene, engine, phase);
    bound
        .into_iter()
        .chain(cost::finding(scene, engine, phase))
        .chain(hot::finding(scene, engine, phase))
        .collect()
}

/// Renders the findings for a terminal, each followed by the names of its figures.
pub fn render(suite: &SuiteResult, options: &ReportOptions) -> String {
    let findings = explain(suite, options);
    let found = groups(suite, options.mix_durability);
    let mut out = format!("What decided {}: {}\n", suite.workload, suite.command);
    for (number, group) in found.iter().enumerate() {
        if found.len() > 1 {
            out += &format!("\n{}\n", group.heading());
        }
        let own: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.group == Some(number))
            .collect();
        let mut phase: Option<&String> = None;
        for finding in own {
            if finding.phase.as_ref() != phase {
                phase = finding.phase.as_ref();
                out += &format!("\n{}\n", phase.map_or("", String::as_str));
            }
            out += &line(finding);
        }
    }
    out += "\nAbout the experiment\n";
    let about = findings.iter().filter(|finding| finding.group.is_none());
    let about: String = about.map(line).collect();
    if about.is_empty() {
        out += "  nothing speaks against it\n"
    } else {
        out += &about
    }
    out + "\nIn brackets: the figures, see `rumbench explain METRIC`; --json has their values.\n"
}

fn line(finding: &Finding) -> String {
    let metrics = finding.metrics().join(", ");
    format!("  {} [{metrics}]\n", finding.sentence())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{assert_snapshot, sample};

    #[test]
    fn explanation_of_a_fixed_result_is_unchanged() {
        let text = render(&sample::suite(), &ReportOptions::default());
        assert_snapshot("explain.txt", &text);
    }

    #[test]
    fn every_sentence_names_a_figure() {
        for suite in [
            sample::suite(),
            sample::kv_sequence(),
            sample::insert_benchmark(),
            sample::clients(),
            sample::aging(),
        ] {
            let findings = explain(&suite, &ReportOptions::default());
            assert!(!findings.is_empty());
            for finding in findings {
                assert!(!finding.figures.is_empty(), "{finding:?}");
                assert!(finding.text.ends_with('.'), "{finding:?}");
            }
        }
    }

    #[test]
    fn engines_of_different_durability_are_never_compared() {
        let mut suite = sample::suite();
        let facts = suite.trials[1].durability_facts.as_mut().unwrap();
        facts.power_cut = "may corrupt".to_string();
        let costs = |options: &ReportOptions| {
            let findings = explain(&suite, options).into_iter();
            findings.filter(|found| found.kind == Kind::Cost).count()
        };
        assert_eq!(costs(&ReportOptions::default()), 0);
        let mixed = ReportOptions {
            mix_durability: true,
            ..ReportOptions::default()
        };
        assert!(costs(&mixed) > 0);
    }
}
