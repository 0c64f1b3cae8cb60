//! Turns what a trial's child process reports into the trial's result.

use super::progress::Standing;
use super::protocol::Event;
use crate::store::result::{Amplification, PhaseResult, TrialResult};

/// Turns the events of one child into its trial.
#[derive(Default)]
pub struct Follower {
    load_bytes: u64,
    /// Whether the child said that it ended.
    pub finished: bool,
    /// The last entry of the trial's phases is still running.
    open_phase: bool,
}

impl Follower {
    /// Takes one event into the trial and the standing.
    pub fn apply(&mut self, event: Event, trial: &mut TrialResult, standing: &mut Standing) {
        match event {
            Event::Opened {
                facts,
                workload,
                load_bytes,
                ..
            } => {
                trial.engine_version = facts.version;
                trial.durability_facts = Some(facts.durability);
                trial.configuration = facts.configuration;
                for (key, value) in workload {
                    trial.configuration.insert(format!("workload.{key}"), value);
                }
                self.load_bytes = load_bytes;
            }
            Event::PhaseStarted {
                name,
                seconds,
                operations,
            } => {
                standing.phase.clone_from(&name);
                standing.seconds = 0.0;
                standing.operations = 0;
                standing.note.clear();
                standing.phase_seconds = seconds;
                standing.phase_operations = operations;
                trial.phases.push(PhaseResult {
                    name,
                    ..PhaseResult::default()
                });
                self.open_phase = true;
            }
            Event::Progress {
                seconds,
                operations,
                note,
                intervals,
            } => {
                standing.seconds = seconds;
                standing.operations = operations;
                standing.note = note;
                if let Some(phase) = trial.phases.last_mut().filter(|_| self.open_phase) {
                    phase.seconds = seconds;
                    phase.operations = operations;
                    phase.ops_per_s = (seconds > 0.0).then(|| operations as f64 / seconds);
                    phase.intervals.extend(intervals);
                }
            }
            Event::Phase { result } => {
                if self.open_phase {
                    trial.phases.pop();
                }
                self.open_phase = false;
                trial.phases.push(*result);
                finish_phase(&mut trial.phases, self.load_bytes);
            }
            Event::Mark { mark } => trial.mark(mark),
            Event::Verified { sentence } => trial.verified = Some(sentence),
            Event::Finished { error } => {
                self.finished = true;
                if let Some(error) = error {
                    trial.mark(format!("failed ({error})"));
                }
            }
        }
    }
}

/// Numbers that need more than one phase: what settling wrote belongs to the phase before it.
fn finish_phase(phases: &mut [PhaseResult], load_bytes: u64) {
    let Some((last, earlier)) = phases.split_last_mut() else {
        return;
    };
    let reads = last
        .io_source
        .as_deref()
        .filter(|source| source.starts_with("device"));
    let read = reads.and(last.reads_per_op);
    // Only of the load is it known how many bytes the client wrote.
    let write = last
        .kb_written
        .filter(|_| last.name == "load" && load_bytes > 0)
        .map(|kb| kb * 1024.0 / load_bytes as f64);
    if last.name != "settle" {
        last.amplification = read.or(write).map(|_| Amplification {
            read,
            write,
            ..Amplification::default()
        });
        return;
    }
    let data = last.size_bytes.map(|size| size.data as f64);
    let space = data
        .filter(|_| load_bytes > 0)
        .map(|data| data / load_bytes as f64);
    last.amplification = space.map(|space| Amplification {
        space: Some(space),
        ..Amplification::default()
    });
    if let Some(before) = earlier.iter_mut().rev().find(|phase| phase.operations > 0) {
        before.kb_written_per_op_settled = before
            .kb_written
            .zip(last.kb_written)
            .map(|(phase, settle)| (phase + settle) / before.operations as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_settling_are_added_to_the_last_phase_with_operations() {
        let phase = |name: &str, operations, kb| PhaseResult {
            name: name.to_string(),
            operations,
            kb_written: Some(kb),
            ..PhaseResult::default()
        };
        let mut phases = vec![
            phase("load", 10, 100.0),
            phase("request", 100, 300.0),
            phase("settle", 0, 200.0),
        ];
        finish_phase(&mut phases, 0);
        assert_eq!(phases[1].kb_written_per_op_settled, Some(5.0));
        assert_eq!(phases[0].kb_written_per_op_settled, None);
    }

    #[test]
    fn what_a_load_writes_is_compared_with_what_the_client_loaded() {
        let mut phases = vec![PhaseResult {
            name: "load".to_string(),
            kb_written: Some(300.0),
            ..PhaseResult::default()
        }];
        finish_phase(&mut phases, 100 * 1024);
        let write = |phase: &PhaseResult| phase.amplification.and_then(|amp| amp.write);
        assert_eq!(write(&phases[0]), Some(3.0));
        phases[0].name = "request".to_string();
        finish_phase(&mut phases, 100 * 1024);
        assert_eq!(write(&phases[0]), None);
    }
}
