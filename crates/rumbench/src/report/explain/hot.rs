//! Functions on which an engine spent its CPU time, if it was sampled.

use super::finding::{Figure, Finding, Kind, Scene};
use crate::report::profile::{in_words, profile};

/// Number of functions in a sentence.
const TOLD: usize = 3;
/// Fewest samples that say anything about single functions.
const SAMPLES_MIN: u64 = 100;

/// Returns the sentence about an engine in a phase.
pub fn finding(scene: &Scene<'_>, engine: &str, phase: &str) -> Option<Finding> {
    let found = profile(scene.group, engine, phase)?;
    if found.samples < SAMPLES_MIN {
        return None;
    }
    let few = &found.functions[..found.functions.len().min(TOLD)];
    let text = format!(
        "spent most CPU time in {}; flame graph: {}.",
        in_words(few),
        found.graph
    );
    let largest = few.first().map(|function| function.own_share);
    let figures = vec![Figure::new("profile", largest)];
    Some(scene.finding(Kind::Function, engine, phase, text, figures))
}

#[cfg(test)]
mod tests {
    use crate::report::ReportOptions;
    use crate::report::explain::{Kind, explain};
    use crate::report::sample;
    use crate::store::result::SuiteResult;

    #[test]
    fn the_functions_that_take_most_are_told() {
        let mut suite = sample::suite();
        sample::profiled(&mut suite);
        let told = |suite: &SuiteResult| {
            let findings = explain(suite, &ReportOptions::default()).into_iter();
            let functions = findings.filter(|found| found.kind == Kind::Function);
            functions.map(|found| found.sentence()).collect::<Vec<_>>()
        };
        let first = told(&suite).swap_remove(0);
        assert!(
            first.contains(
                "most CPU time in alluvium::table::lookup (40 %) and copy_user_[k] (20 %)"
            ),
            "{first}"
        );
        let phase = &mut suite.trials[0].phases[1];
        phase.profile.as_mut().expect("sampled").samples = 99;
        assert_eq!(told(&suite).len(), 1);
    }
}
