//! Aging of a database: the equal steps of one trial, and the change of throughput, size and
//! written bytes from step to step.

use crate::measure::least_squares::solve;
use crate::measure::statistics::t_98;
use crate::report::throughput::rate;
use crate::run::turnover::turnover;
use crate::store::result::{PhaseResult, TrialResult};
use crate::store::sweep::{Aging, AgingStep, Estimate};

/// Fewest steps for a trend.
pub const STEPS_MIN: usize = 3;

/// Returns the aging of one trial. Its steps are all phases with the base name of the last phase
/// that has operations. `None` if it has no such phases or no settle before them.
pub fn of(trial: &TrialResult) -> Option<Aging> {
    let worked = |phase: &&PhaseResult| phase.operations > 0;
    let name = trial.phases.iter().rfind(worked)?.base_name();
    let start = trial
        .phases
        .iter()
        .take_while(|phase| phase.base_name() != name);
    let settled = start.filter(|phase| phase.base_name() == "settle").last()?;
    let start = data(settled).unwrap_or(0);
    let mut kb = Some(0.0);
    let steps = trial
        .phases
        .iter()
        .filter(|phase| phase.base_name() == name);
    let steps = steps.map(|phase| {
        kb = kb.zip(phase.kb_written).map(|(sum, kb)| sum + kb);
        let data_bytes = data(phase);
        let against = data_bytes.unwrap_or(0).max(start);
        AgingStep {
            phase: phase.name.clone(),
            turnover: kb.and_then(|kb| turnover(kb, against)),
            per_s: rate(phase),
            kb_written_per_op: phase.kb_written_per_op,
            data_bytes,
        }
    });
    let steps: Vec<AgingStep> = steps.collect();
    Some(Aging {
        engine: trial.name(),
        repetition: trial.repetition,
        reached: false,
        rate_change: change(&steps, |step| step.per_s),
        data_change: change(&steps, |step| step.data_bytes.map(|bytes| bytes as f64)),
        written_change: change(&steps, |step| step.kb_written_per_op),
        steps,
    })
}

fn data(phase: &PhaseResult) -> Option<u64> {
    phase.size_bytes.map(|size| size.data)
}

impl Aging {
    /// Sets `reached`: true if the last step has the requested turnover.
    pub fn judge(&mut self, asked: f64) {
        let last = self.steps.last().and_then(|step| step.turnover);
        self.reached = last.is_some_and(|reached| reached >= asked);
    }
}

/// Returns the mean factor from one step to the next: the slope of logarithms over steps, with its
/// 98 % interval.
fn change(steps: &[AgingStep], value: impl Fn(&AgingStep) -> Option<f64>) -> Option<Estimate> {
    let logs: Option<Vec<f64>> = steps
        .iter()
        .map(|step| value(step).filter(|value| *value > 0.0).map(f64::ln))
        .collect();
    let logs = logs.filter(|logs| logs.len() >= STEPS_MIN)?;
    let rows: Vec<Vec<f64>> = (0..logs.len()).map(|i| vec![1.0, i as f64]).collect();
    let line = solve(&rows, &logs)?;
    let slope = line.values[1];
    let half = line
        .covariance(1, 1)
        .map(|v| v.max(0.0).sqrt() * t_98(line.freedom));
    Some(Estimate {
        value: slope.exp(),
        low: half.map(|half| (slope - half).exp()),
        high: half.map(|half| (slope + half).exp()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_steady_loss_is_found_and_noise_around_none_is_not() {
        let steps = |rates: &[f64]| -> Vec<AgingStep> {
            let step = |rate: &f64| AgingStep {
                per_s: Some(*rate),
                ..AgingStep::default()
            };
            rates.iter().map(step).collect()
        };
        let falls: Vec<f64> = (0..6).map(|i| 1000.0 * 0.95_f64.powi(i)).collect();
        let found = change(&steps(&falls), |step| step.per_s).unwrap();
        assert!((found.value - 0.95).abs() < 1e-9 && found.high.unwrap() < 0.96);
        let noise = change(&steps(&[100.0, 104.0, 98.0, 101.0, 103.0]), |step| {
            step.per_s
        })
        .unwrap();
        assert!(noise.low.unwrap() < 1.0 && noise.high.unwrap() > 1.0);
        assert!(change(&steps(&[1.0, 2.0]), |step| step.per_s).is_none());
        assert!(change(&steps(&[1.0, 0.0, 2.0]), |step| step.per_s).is_none());
    }

    #[test]
    fn turnover_adds_up_over_the_steps_of_a_trial() {
        let suite = sample::aging();
        let mut found = of(&suite.trials[0]).unwrap();
        let turnovers: Vec<f64> = found.steps.iter().filter_map(|s| s.turnover).collect();
        let expected = [0.5, 1.0, 1.25];
        assert_eq!(turnovers.len(), 3);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
        assert!(turnovers.iter().zip(&expected).all(near), "{turnovers:?}");
        found.judge(1.25);
        assert!(found.reached);
        found.judge(1.5);
        assert!(!found.reached);
        assert!(
            of(&sample::suite().trials[0]).is_none(),
            "no settle before the steps"
        );
    }
}
