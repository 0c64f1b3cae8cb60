//! Splits the CPU of a phase into client, engine foreground and engine background.
//!
//! The client threads of a server count as the client: their CPU for its protocol is part of the
//! cost of using a server. The remaining CPU of the laboratory's process is the engine's
//! background, as for any engine. If the processes of a server cannot be seen, their CPU is
//! missing, also in the total.
//!
//! Client and engine share a thread in embedded engines. The client's share is the CPU of the same
//! operation stream on `null`, plus waiting for intended starts; the rest of the client threads is
//! the engine's foreground.

use std::collections::BTreeMap;

use crate::store::result::{Calibration, CpuPerOp, PhaseResult, SuiteResult};

/// Fills `cpu_us_per_op` of a phase from its `cpu_seconds`.
///
/// Without calibration the client's share is unknown and stays in the engine's foreground.
pub fn apply(phase: &mut PhaseResult, calibration: Option<&Calibration>) {
    let (Some(cpu), true) = (phase.cpu_seconds, phase.operations > 0) else {
        phase.cpu_us_per_op = None;
        return;
    };
    let per_op = |seconds: f64| seconds * 1e6 / phase.operations as f64;
    let threads = per_op(cpu.client_threads);
    let waiting = per_op(cpu.waiting);
    let measured = |values: &BTreeMap<String, f64>| values.get(phase.base_name()).copied();
    // The client cannot have used more than its threads.
    let (client, client_user) = if cpu.server.is_some() || cpu.server_unseen {
        (Some(threads), Some(per_op(cpu.client_threads_user)))
    } else {
        let client = calibration
            .and_then(|found| measured(&found.client_us_per_op))
            .map(|us| (us + waiting).min(threads));
        let client_user = calibration
            .and_then(|found| measured(&found.client_user_us_per_op))
            .zip(client)
            .map(|(us, client)| us.min(client));
        (client, client_user)
    };
    let server = cpu.server.map(per_op);
    let background = per_op((cpu.process - cpu.client_threads - cpu.background_client).max(0.0));
    phase.cpu_us_per_op = Some(CpuPerOp {
        total: threads + background + server.unwrap_or(0.0),
        client,
        client_user,
        engine_foreground: threads - client.unwrap_or(0.0),
        engine_background: background,
        server,
        machine: cpu.machine.map(per_op),
        engine_foreground_sampled: phase
            .cpu_us_per_op
            .and_then(|old| old.engine_foreground_sampled),
    });
}

/// Returns the client's CPU by phase name and the laboratory's memory, from the phases of a trial
/// on `null`.
pub fn calibration(phases: &[PhaseResult], overrides: BTreeMap<String, String>) -> Calibration {
    let mut found = Calibration {
        overrides,
        ..Calibration::default()
    };
    let memory = phases.iter().filter_map(|phase| phase.rss_bytes);
    found.laboratory_bytes = memory.map(|rss| rss.anonymous).max();
    // Sums over the steps of one name: operations, CPU in seconds, and CPU in user mode.
    let mut sums: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| phase.operations > 0) {
        let Some(cpu) = phase.cpu_seconds else {
            continue;
        };
        let sum = sums.entry(phase.base_name().to_string()).or_default();
        sum.0 += phase.operations as f64;
        sum.1 += (cpu.client_threads - cpu.waiting).max(0.0);
        sum.2 += cpu.client_threads_user;
    }
    for (name, (operations, busy, user)) in sums {
        let per_op = 1e6 / operations;
        let user = (user * per_op).min(busy * per_op);
        found.client_us_per_op.insert(name.clone(), busy * per_op);
        found.client_user_us_per_op.insert(name, user);
    }
    found
}

/// Applies the suite's calibration to every phase measured so far. On `null` itself all CPU is the
/// client's.
pub fn apply_to_suite(suite: &mut SuiteResult) {
    // Out of the suite, because its calibrations are read meanwhile.
    let mut trials = std::mem::take(&mut suite.trials);
    for trial in &mut trials {
        let measured = suite.calibration_of(trial);
        for phase in &mut trial.phases {
            if trial.engine == "null" {
                let own = calibration(std::slice::from_ref(phase), BTreeMap::new());
                apply(phase, Some(&own));
            } else {
                apply(phase, measured);
            }
        }
    }
    suite.trials = trials;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::CpuSeconds;

    fn phase(name: &str, threads: f64, waiting: f64, process: f64) -> PhaseResult {
        PhaseResult {
            name: name.to_string(),
            operations: 1_000_000,
            cpu_seconds: Some(CpuSeconds {
                process,
                client_threads: threads,
                client_threads_user: threads,
                waiting,
                ..CpuSeconds::default()
            }),
            ..PhaseResult::default()
        }
    }

    #[test]
    fn split_sums_to_the_total_and_charges_waiting_to_the_client() {
        let calibration = calibration(&[phase("request", 1.5, 0.0, 1.5)], BTreeMap::new());
        let mut measured = phase("request#2", 8.0, 1.0, 10.0);
        apply(&mut measured, Some(&calibration));
        let cpu = measured.cpu_us_per_op.unwrap();
        assert!((cpu.client.unwrap() - 2.5).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.engine_foreground - 5.5).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.engine_background - 2.0).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.total - 10.0).abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn a_background_client_is_in_no_part_of_the_split() {
        let mut measured = phase("request", 8.0, 0.0, 11.0);
        if let Some(cpu) = &mut measured.cpu_seconds {
            cpu.background_client = 2.0;
        }
        apply(&mut measured, None);
        let cpu = measured.cpu_us_per_op.unwrap();
        assert!((cpu.engine_background - 1.0).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.total - 9.0).abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn the_threads_of_a_servers_clients_are_the_clients_alone() {
        let calibration = calibration(&[phase("request", 1.0, 0.0, 1.0)], BTreeMap::new());
        let mut measured = phase("request", 6.0, 0.0, 6.5);
        if let Some(cpu) = &mut measured.cpu_seconds {
            (cpu.client_threads_user, cpu.server) = (2.0, Some(20.0));
        }
        apply(&mut measured, Some(&calibration));
        let cpu = measured.cpu_us_per_op.unwrap();
        let parts = (cpu.client, cpu.client_user, cpu.server);
        assert_eq!(parts, (Some(6.0), Some(2.0), Some(20.0)));
        assert_eq!(cpu.engine_foreground, 0.0);
        assert!((cpu.total - 26.5).abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn the_clients_of_a_server_that_cannot_be_seen_are_the_clients_too() {
        let mut measured = phase("request", 6.0, 0.0, 6.5);
        if let Some(cpu) = &mut measured.cpu_seconds {
            cpu.server_unseen = true;
        }
        apply(&mut measured, None);
        let cpu = measured.cpu_us_per_op.unwrap();
        assert_eq!((cpu.client, cpu.server), (Some(6.0), None));
        assert_eq!(cpu.engine_foreground, 0.0);
    }

    #[test]
    fn client_is_absent_without_calibration() {
        let mut measured = phase("request", 8.0, 0.0, 8.0);
        apply(&mut measured, None);
        let cpu = measured.cpu_us_per_op.unwrap();
        assert_eq!((cpu.client, cpu.engine_foreground), (None, 8.0));
    }
}
