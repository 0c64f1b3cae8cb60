//! Converts the events of a trial's child process into the trial's result.

use super::protocol::Event;
use super::status::SuiteStatus;
use crate::store::result::{Amplification, PhaseResult, TrialResult};

/// Builds the result of one trial from the events of its child.
#[derive(Default)]
pub struct Follower {
    load_bytes: u64,
    /// True once the child has reported its end.
    pub finished: bool,
    /// True while the last entry of the trial's phases is running.
    open_phase: bool,
}

impl Follower {
    /// Applies one event to the trial and the status.
    pub fn apply(&mut self, event: Event, trial: &mut TrialResult, status: &mut SuiteStatus) {
        match event {
            Event::Opened {
                facts,
                workload,
                load_bytes,
                phases,
                ..
            } => {
                status.phases = phases;
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
                status.begin(&name, seconds, operations);
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
                status.seconds = seconds;
                status.operations = operations;
                status.note = note;
                status.take(&intervals);
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
            Event::Measured => status.note = "its rows are checked".to_string(),
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

/// Derives the numbers that need more than one phase: the bytes written by a settle belong to the
/// preceding phase.
fn finish_phase(phases: &mut [PhaseResult], load_bytes: u64) {
    let Some((last, earlier)) = phases.split_last_mut() else {
        return;
    };
    let reads = last
        .io_source
        .as_deref()
        .filter(|source| source.starts_with("device"));
    let read = reads.and(last.reads_per_op);
    // If the workload does not count the bytes it writes, only those of the load are known.
    let client_bytes = last
        .written_bytes
        .or_else(|| (last.name == "load" && load_bytes > 0).then_some(load_bytes));
    let write = last.kb_written.zip(client_bytes).map(per_client_byte);
    if last.base_name() != "settle" {
        last.amplification = read.or(write).map(|_| Amplification {
            read,
            write,
            ..Amplification::default()
        });
        return;
    }
    let data = last.size_bytes.map(|size| size.data as f64);
    let against = |bytes: u64| Some(data? / bytes as f64).filter(|_| bytes > 0);
    // The size of the rows as stored now is more exact than the estimate for the load.
    let space = against(last.stored_bytes.map_or(load_bytes, |stored| stored.raw));
    let stored = last.stored_bytes.map_or(0, |stored| stored.compressed);
    last.amplification = space.map(|space| Amplification {
        space: Some(space),
        space_compressed: against(stored),
        ..Amplification::default()
    });
    if let Some((before, settle_kb)) = indebted(earlier).zip(last.kb_written) {
        let settled_kb = before.kb_written.map(|kb| kb + settle_kb);
        before.kb_written_per_op_settled = settled_kb.map(|kb| kb / before.operations as f64);
        if let Some(amplification) = &mut before.amplification {
            amplification.write_settled = settled_kb.zip(before.written_bytes).map(per_client_byte);
        }
    }
}

/// KiB written for each byte that clients wrote.
fn per_client_byte((kb, bytes): (f64, u64)) -> f64 {
    kb * 1024.0 / bytes as f64
}

/// Returns the phase that caused the work of a settle. It is the last one since the previous settle
/// with known written bytes, or else the last one with operations. None if that phase and others
/// have background clients with uncounted writes, because the work cannot be attributed to one
/// phase.
fn indebted(earlier: &mut [PhaseResult]) -> Option<&mut PhaseResult> {
    let since = earlier
        .iter()
        .rposition(|phase| phase.base_name() == "settle")
        .map_or(0, |place| place + 1);
    let recent = &mut earlier[since..];
    let busy = |phase: &PhaseResult| phase.operations > 0;
    let place = recent
        .iter()
        .rposition(|phase| busy(phase) && phase.written_bytes.is_some())
        .or_else(|| recent.iter().rposition(busy))?;
    let beside = |phase: &&PhaseResult| phase.background.is_some() && phase.written_bytes.is_none();
    let several = recent.iter().filter(beside).count() > 1;
    let found = recent.get_mut(place)?;
    (!several || !beside(&&*found)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::BackgroundResult;

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
    fn a_backlog_of_background_writers_in_several_phases_is_not_attributed() {
        let phase = |name: &str, has_writer: bool| PhaseResult {
            name: name.to_string(),
            operations: 10,
            kb_written: Some(100.0),
            background: has_writer.then(BackgroundResult::default),
            ..PhaseResult::default()
        };
        let settled = |others: bool| {
            let settle = PhaseResult {
                operations: 0,
                ..phase("settle", false)
            };
            let mut phases = vec![phase("l.i2", false), phase("qr100", others)];
            phases.extend([phase("qp100", true), settle]);
            finish_phase(&mut phases, 0);
            phases[2].kb_written_per_op_settled
        };
        assert_eq!([settled(false), settled(true)], [Some(20.0), None]);
    }

    #[test]
    fn a_settle_in_the_middle_is_charged_to_the_last_phase_that_wrote_since_the_one_before() {
        let phase = |name: &str, operations, kb, written: u64| PhaseResult {
            name: name.to_string(),
            operations,
            kb_written: Some(kb),
            written_bytes: (written > 0).then_some(written),
            amplification: Some(Amplification::default()),
            ..PhaseResult::default()
        };
        let mut phases = vec![
            phase("load", 10, 100.0, 102_400),
            phase("get", 10, 0.0, 0),
            phase("settle", 0, 200.0, 0),
        ];
        finish_phase(&mut phases, 0);
        phases.push(phase("put", 10, 10.0, 10_240));
        phases.push(phase("get#2", 10, 5.0, 0));
        phases.push(phase("settle#2", 0, 40.0, 0));
        finish_phase(&mut phases, 0);
        let per_op: Vec<Option<f64>> = phases
            .iter()
            .map(|phase| phase.kb_written_per_op_settled)
            .collect();
        assert_eq!(per_op, [Some(30.0), None, None, Some(5.0), None, None]);
        let settled = phases[3].amplification.and_then(|amp| amp.write_settled);
        assert_eq!(settled, Some(5.0));
    }

    #[test]
    fn the_database_is_compared_with_the_rows_that_it_holds_where_they_are_counted() {
        let mut phases = vec![PhaseResult {
            name: "settle".to_string(),
            size_bytes: Some(crate::store::result::SizeBytes {
                data: 600,
                ..Default::default()
            }),
            ..PhaseResult::default()
        }];
        finish_phase(&mut phases, 100);
        let amplification = phases[0].amplification.unwrap();
        assert_eq!(
            (amplification.space, amplification.space_compressed),
            (Some(6.0), None)
        );
        phases[0].stored_bytes = Some(crate::store::result::StoredBytes {
            raw: 300,
            compressed: 150,
        });
        finish_phase(&mut phases, 100);
        let amplification = phases[0].amplification.unwrap();
        assert_eq!(
            (amplification.space, amplification.space_compressed),
            (Some(2.0), Some(4.0))
        );
    }

    #[test]
    fn write_amplification_of_a_load_uses_its_estimated_bytes() {
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
