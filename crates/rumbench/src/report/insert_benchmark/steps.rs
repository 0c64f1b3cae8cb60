//! Kinds of steps of the Insert Benchmark.

use crate::store::result::{PhaseResult, base_name};

/// Returns true for a load or write step, measured by its inserts.
pub fn is_write(phase: &str) -> bool {
    base_name(phase).starts_with("l.")
}

/// Returns true for a step measured by its queries.
pub fn is_query(phase: &str) -> bool {
    base_name(phase).starts_with('q')
}

/// Returns the throughput of a step: rows inserted per second, or queries per second.
pub fn rate(phase: &PhaseResult) -> Option<f64> {
    if is_write(&phase.name) {
        phase.rows_per_s
    } else {
        phase.ops_per_s
    }
}
