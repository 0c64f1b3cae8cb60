//! Marks: qualifications that a reader needs in addition to the numbers. They are derived from a
//! trial and printed below the tables.

use crate::measure::levels::two_levels;
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};

/// Share of its rate that a phase must reach.
pub const RATE_KEPT: f64 = 0.95;
/// Share of the CPU of client threads and server above which the laboratory, not the engine, limits
/// a closed loop.
const CLIENT_BOUND: f64 = 0.5;
/// Shortest phase, in seconds, with marks for the background rate and the client's CPU: in a
/// shorter one, a single interruption of a thread would decide.
const SECONDS_MIN: f64 = 1.0;

/// Returns true if a phase missed its rate.
pub fn rate_unmet(phase: &PhaseResult) -> bool {
    match (phase.rate, phase.ops_per_s) {
        (Some(rate), Some(reached)) => reached < rate * RATE_KEPT,
        _ => false,
    }
}

/// Returns the reached and the requested rate of the background clients, in rows if their rate is
/// given in rows, with the unit.
fn background_rate(phase: &PhaseResult) -> Option<(f64, f64, &'static str)> {
    let background = phase.background.as_ref()?;
    Some(match background.rows_rate {
        Some(rate) => (background.rows_per_s.unwrap_or(0.0), rate, "rows"),
        None => (
            background.ops_per_s.unwrap_or(0.0),
            background.rate,
            "operations",
        ),
    })
}

/// Returns true if the background clients missed their rate in a phase that is long enough to be
/// judged.
pub fn background_rate_unmet(phase: &PhaseResult) -> bool {
    let missed = |(reached, rate, _)| reached < rate * RATE_KEPT;
    // Imported steps may lack their duration; their authors considered it long enough to publish
    // the rates.
    let is_judged = phase.seconds >= SECONDS_MIN || phase.lacks("seconds");
    is_judged && background_rate(phase).is_some_and(missed)
}

fn client_bound(phase: &PhaseResult) -> bool {
    let judged = phase.rate.is_none() && phase.seconds >= SECONDS_MIN;
    let Some(cpu) = phase.cpu_us_per_op.filter(|_| judged) else {
        return false;
    };
    // If the server's CPU is not visible, there is nothing to compare with.
    if phase.cpu_seconds.is_some_and(|cpu| cpu.server_unseen) {
        return false;
    }
    let threads = cpu.client.unwrap_or(0.0) + cpu.engine_foreground + cpu.server.unwrap_or(0.0);
    cpu.client
        .is_some_and(|client| client > threads * CLIENT_BOUND)
}

/// Returns the two rates between which the clients of a phase alternated. `None` without two such
/// rates, with a requested rate, or for a settle.
fn levels(phase: &PhaseResult) -> Option<(f64, f64)> {
    let levels = two_levels(&phase.ops_of_seconds());
    levels.filter(|_| phase.rate.is_none() && phase.base_name() != "settle")
}

/// Derives the marks from a trial's numbers and replaces the old ones; repeated calls add nothing
/// twice.
pub fn judge(trial: &mut TrialResult) {
    let mut found = Vec::new();
    for phase in &trial.phases {
        if rate_unmet(phase) {
            found.push(format!(
                "rate-unmet ({}: {:.0} of {:.0} operations/s)",
                phase.name,
                phase.ops_per_s.unwrap_or(0.0),
                phase.rate.unwrap_or(0.0)
            ));
        }
        let background = background_rate(phase).filter(|_| background_rate_unmet(phase));
        if let Some((reached, rate, what)) = background {
            found.push(format!(
                "background-rate-unmet ({}: {reached:.0} of {rate:.0} {what}/s)",
                phase.name
            ));
        }
        if trial.engine != "null" && client_bound(phase) {
            found.push(format!(
                "client-bound ({}: more than half of the {} CPU is the laboratory's)",
                phase.name,
                match phase.cpu_us_per_op.and_then(|cpu| cpu.server) {
                    Some(_) => "clients' and the server's",
                    None => "client threads'",
                }
            ));
        }
        if let Some((low, high)) = levels(phase) {
            found.push(format!(
                "bimodal ({}: {low:.0} and {high:.0} operations/s in turns)",
                phase.name
            ));
        }
        if phase.errors > 0 {
            let sample = phase.error_samples.first().map_or("", String::as_str);
            found.push(format!(
                "errors ({}: {} operations failed; {sample})",
                phase.name, phase.errors
            ));
        }
    }
    // Calibration and every phase change the numbers: old marks are removed, and only the newest
    // numbers count.
    const JUDGED: [&str; 5] = [
        "rate-unmet",
        "background-rate-unmet",
        "client-bound",
        "bimodal",
        "errors",
    ];
    trial.marks.retain(|mark| {
        !JUDGED
            .iter()
            .any(|name| mark.split(" (").next() == Some(name))
    });
    found.into_iter().for_each(|mark| trial.mark(mark));
}

/// Returns true if a trial counts as failed: exit code 1.
pub fn failed(trial: &TrialResult) -> bool {
    [
        "wrong-answer",
        "contradiction",
        "child-died",
        "out-of-memory",
        "stuck",
        "failed",
        "errors",
    ]
    .iter()
    .any(|name| trial.has_mark(name))
}

/// Renders all marks, one per line.
pub fn render(suite: &SuiteResult) -> String {
    let mut out = String::new();
    for trial in &suite.trials {
        for mark in &trial.marks {
            out += &format!("  {} #{}: {mark}\n", trial.contestant(), trial.repetition);
        }
    }
    if out.is_empty() {
        "\nMarks: none\n".to_string()
    } else {
        format!("\nMarks\n{out}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::store::result::{CpuPerOp, Interval};

    #[test]
    fn a_slow_background_client_is_marked_where_the_phase_is_long_enough() {
        let mut trial = sample::kv_sequence().trials.remove(0);
        judge(&mut trial);
        assert!(trial.marks.is_empty(), "{:?}", trial.marks);
        let place = trial.phases.iter().position(|p| p.background.is_some());
        let phase = &mut trial.phases[place.unwrap()];
        phase.background.as_mut().unwrap().ops_per_s = Some(4000.0);
        judge(&mut trial);
        assert!(trial.has_mark("background-rate-unmet"), "{:?}", trial.marks);
        trial.phases[place.unwrap()].seconds = 0.5;
        judge(&mut trial);
        assert!(trial.marks.is_empty(), "{:?}", trial.marks);
    }

    #[test]
    fn a_contradiction_fails_the_trial_and_stays_when_it_is_judged_again() {
        let mut trial = sample::suite().trials.remove(0);
        judge(&mut trial);
        assert!(!failed(&trial));
        trial.marks.push("contradiction (READ: 4 of 5)".to_string());
        judge(&mut trial);
        assert!(failed(&trial), "{:?}", trial.marks);
    }

    #[test]
    fn background_rows_are_judged_where_rows_are_what_counts() {
        let mut trial = sample::insert_benchmark().trials.remove(1);
        judge(&mut trial);
        assert_eq!(
            trial.marks,
            ["background-rate-unmet (qr100: 80 of 100 rows/s)"]
        );
    }

    #[test]
    fn a_phase_that_goes_back_and_forth_between_two_rates_is_marked() {
        let mut trial = sample::suite().trials.remove(0);
        let phase = &mut trial.phases[1];
        (phase.seconds, phase.rate) = (12.5, None);
        let ops = [80, 12, 12, 80, 80, 12, 12, 80, 80, 12, 80, 80, 1];
        phase.intervals = (0..)
            .zip(ops)
            .map(|(second, ops)| Interval {
                second,
                ops,
                ..Interval::default()
            })
            .collect();
        judge(&mut trial);
        let name = &trial.phases[1].name;
        let mark = format!("bimodal ({name}: 12 and 80 operations/s in turns)");
        assert!(trial.marks.contains(&mark), "{:?}", trial.marks);
        assert!(!failed(&trial));
        // Clients with a requested rate wait for their next start.
        trial.phases[1].rate = Some(46.0);
        judge(&mut trial);
        assert!(!trial.has_mark("bimodal"), "{:?}", trial.marks);
    }

    #[test]
    fn unmet_rate_and_client_bound_phases_are_marked_once() {
        let mut trial = sample::suite().trials.remove(0);
        trial.phases[1].rate = Some(10_000.0);
        trial.phases[0].cpu_us_per_op = Some(CpuPerOp {
            client: Some(3.0),
            engine_foreground: 2.0,
            ..CpuPerOp::default()
        });
        judge(&mut trial);
        judge(&mut trial);
        assert_eq!(trial.marks.len(), 2, "{:?}", trial.marks);
        assert!(trial.has_mark("rate-unmet") && trial.has_mark("client-bound"));
        assert!(!failed(&trial));
        trial.phases[0].seconds = 0.02;
        judge(&mut trial);
        assert!(!trial.has_mark("client-bound"), "{:?}", trial.marks);
    }
}
