//! Cost accounts for [`super::cost`]: the costs of an operation on both sides, and the part of the
//! throughput ratio that each one explains.
//!
//! [`of_threads`] is exact, for embedded engines; [`of_costs`] compares the other known costs.
//! Costs are per operation, or per row in phases measured in rows.

use super::finding::Scene;
use super::usage::{self, MATERIAL, Resource, Usage};
use crate::measure::statistics::median;
use crate::report::throughput::{per_item, rate};
use crate::store::result::PhaseResult;
use crate::text::number;
use crate::text::times;

/// Distance from a ratio of 1 up to which engines count as equal, as in published reports.
pub const EQUAL: f64 = 0.05;

/// One side of a comparison: medians of the repetitions, per operation or row.
pub struct Side {
    /// Operations or rows per second.
    pub per_s: f64,
    /// Time on a client's thread and its part on a processor, both in microseconds per operation or
    /// row. `None` if either is not measured.
    pub thread: Option<(f64, f64)>,
    costs: Vec<Cost>,
    waits_for: Option<Resource>,
}

/// A cost of one side.
#[derive(Clone)]
struct Cost {
    name: &'static str,
    unit: &'static str,
    metric: &'static str,
    value: f64,
    /// Estimated time in microseconds.
    us: f64,
}

/// Cost that explains part of a ratio, with its wording and its metrics.
pub struct Reason {
    /// Part of the ratio that this cost accounts for; 1 is all of it.
    pub share: f64,
    /// Wording without values.
    pub name: &'static str,
    /// Wording with values.
    pub text: String,
    /// Metric names as in `result.json`.
    pub metrics: Vec<&'static str>,
}

/// Returns the costs of an engine in a phase. `None` without a throughput.
pub fn side(scene: &Scene<'_>, engine: &str, phase: &str) -> Option<Side> {
    let of = |value: &dyn Fn(&PhaseResult) -> Option<f64>| scene.group.median(engine, phase, value);
    let usages: Vec<Usage> = scene
        .trials(engine)
        .filter_map(|trial| {
            let found = trial.phases.iter().find(|found| found.name == phase)?;
            Usage::of(scene.suite, trial, found)
        })
        .collect();
    let middle = |value: fn(&Usage) -> Option<f64>| {
        let values: Vec<f64> = usages.iter().filter_map(value).collect();
        median(&values)
    };
    let thread = middle(|usage| Some(usage.thread_us)).zip(middle(|usage| usage.cpu_us));
    let mut costs = Vec::new();
    let mut push = |name, unit, metric, value: Option<f64>, us: Option<f64>| {
        if let Some((value, us)) = value.zip(us) {
            costs.push(Cost {
                name,
                unit,
                metric,
                value,
                us,
            });
        }
    };
    let cpu = of(&usage::all_cpu);
    push("CPU", "us", "cpu_us_per_op.total", cpu, cpu);
    let reads = of(&|p| per_item(p, p.reads_per_op));
    let read_us = of(&|p| Some(usage::read_us(p)));
    let read_kib = of(&|p| per_item(p, p.kb_read_per_op));
    match reads {
        Some(_) => push("device reads", "reads", "reads_per_op", reads, read_us),
        None => push("KiB read", "KiB", "kb_read_per_op", read_kib, read_us),
    }
    let written = of(&|p| per_item(p, p.kb_written_per_op).filter(|_| p.background.is_none()));
    let write_us = of(&|p| Some(usage::write_us(p)));
    push("KiB written", "KiB", "kb_written_per_op", written, write_us);
    let waits = usages.first().and_then(|usage| {
        let mut parts = usage.parts.iter().map(|part| part.resource);
        parts.find(|resource| {
            !matches!(
                resource,
                Resource::Cpu | Resource::Client | Resource::Rate | Resource::Stalls
            )
        })
    });
    Some(Side {
        per_s: of(&rate).filter(|per_s| *per_s > 0.0)?,
        thread,
        costs,
        waits_for: waits,
    })
}

/// Returns the exact account: processor time and waiting on a client's thread.
pub fn of_threads(
    own: &Side,
    base: &Side,
    own_thread: (f64, f64),
    base_thread: (f64, f64),
    item: &str,
) -> Vec<Reason> {
    let difference = own_thread.0 - base_thread.0;
    if difference == 0.0 {
        return Vec::new();
    }
    let wait = |thread: (f64, f64)| (thread.0 - thread.1).max(0.0);
    let values = |own: f64, base: f64| {
        format!(
            "{} against {} us/{item}",
            number(Some(own)),
            number(Some(base))
        )
    };
    let dearer = if difference > 0.0 { own } else { base };
    let cpu = Reason {
        share: (own_thread.1 - base_thread.1) / difference,
        name: "CPU on the clients' threads",
        text: format!(
            "CPU on the clients' threads, {}",
            values(own_thread.1, base_thread.1)
        ),
        metrics: vec!["cpu_us_per_op.engine_foreground", "cpu_us_per_op.client"],
    };
    let (waiting, metric) = waiting(dearer.waits_for);
    let wait = Reason {
        share: (wait(own_thread) - wait(base_thread)) / difference,
        name: waiting,
        text: format!("{waiting}, {}", values(wait(own_thread), wait(base_thread))),
        metrics: vec![metric],
    };
    let mut reasons = vec![cpu, wait];
    reasons.retain(|reason| reason.share >= MATERIAL);
    reasons.sort_by(|a, b| b.share.total_cmp(&a.share));
    reasons
}

fn value(side: &Side, metric: &str) -> Option<f64> {
    let found = side.costs.iter().find(|cost| cost.metric == metric)?;
    Some(found.value)
}

/// Returns the wording for the main cause of waiting, and its metric.
fn waiting(resource: Option<Resource>) -> (&'static str, &'static str) {
    match resource {
        Some(Resource::Reads) => ("waiting, mostly for device reads", "reads_per_op"),
        Some(Resource::Writes) => ("waiting, mostly for device writes", "kb_written_per_op"),
        Some(Resource::Machine) => ("waiting for a processor", "cpu_us_per_op.machine"),
        Some(Resource::Throttle) => (
            "waiting, mostly for the engine's own brakes",
            "engine_counters",
        ),
        _ => ("waiting, as for locks", "context_switches_per_op"),
    }
}

/// Returns the costs that differ in the direction of the ratio and are large enough to matter, the
/// largest difference first.
pub fn of_costs(own: &Side, base: &Side, ratio: f64, item: &str) -> Vec<Reason> {
    let mut found: Vec<(f64, Reason)> = Vec::new();
    for (dear, cheap, own, base) in pairs(own, base, ratio) {
        let item_us = 1e6 / if ratio < 1.0 { own.per_s } else { base.per_s };
        let factor = if cheap.value > 0.0 {
            dear.value / cheap.value
        } else {
            f64::INFINITY
        };
        if dear.us < MATERIAL * item_us || factor < 1.0 + EQUAL {
            continue;
        }
        let share = (factor.ln() / ratio.ln().abs()).min(1.0);
        let (own, base) = (value(own, dear.metric), value(base, dear.metric));
        let text = format!(
            "{} ({} against {} {}/{item}, {})",
            dear.name,
            number(own),
            number(base),
            dear.unit,
            more(ratio, factor)
        );
        let reason = Reason {
            share,
            name: dear.name,
            text,
            metrics: vec![dear.metric],
        };
        found.push((factor, reason));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, reason)| reason).collect()
}

fn more(ratio: f64, factor: f64) -> String {
    match (factor.is_finite(), ratio < 1.0) {
        (false, _) => "against none".to_string(),
        (_, true) => format!("{} times as much", times(factor)),
        (_, false) => format!("{} times less", times(factor)),
    }
}

/// Pairs the costs that both sides have: the slower side's cost, the faster side's cost, and both
/// sides.
fn pairs<'s>(
    own: &'s Side,
    base: &'s Side,
    ratio: f64,
) -> Vec<(&'s Cost, &'s Cost, &'s Side, &'s Side)> {
    let (dear, cheap) = if ratio < 1.0 {
        (own, base)
    } else {
        (base, own)
    };
    let both = |cost: &'s Cost| {
        let other = cheap
            .costs
            .iter()
            .find(|other| other.metric == cost.metric)?;
        Some((cost, other, own, base))
    };
    dear.costs.iter().filter_map(both).collect()
}
