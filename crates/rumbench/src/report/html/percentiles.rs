//! Response times by percentile: one chart for each of the most frequent operations of a phase.

use maud::{Markup, html};

use super::over_time::extremes;
use super::page::View;
use super::plot::{Curve, Plot, legend};
use super::scale::{Axis, Unit, label};
use crate::measure::statistics::median;
use crate::store::result::Latency;

/// Number of operations with a chart; the table has all of them.
const OPERATIONS: usize = 4;

const PLACES: [&str; 6] = ["p50", "p95", "p99", "p99.9", "p99.99", "max"];

fn values(latency: &Latency) -> [f64; 6] {
    [
        latency.p50,
        latency.p95,
        latency.p99,
        latency.p999,
        latency.p9999,
        latency.max,
    ]
}

/// Renders the charts of a phase.
pub fn charts(view: &View<'_>, phase: &str) -> Markup {
    let (shown, all) = operations(view, phase);
    if shown.is_empty() {
        return Markup::default();
    }
    let named = |engine: &String| Curve {
        style: view.style(engine),
        name: view.group.label(engine),
        ..Curve::default()
    };
    let engines: Vec<Curve> = view.group.engines_of(phase).iter().map(named).collect();
    html! {
        (legend(&engines))
        div.pair {
            @for operation in &shown { (chart(view, phase, operation)) }
        }
        @if all > shown.len() {
            p.note {
                "The " (shown.len()) " most frequent of " (all) " operations; the table has all."
            }
        }
    }
}

/// Returns the most frequent operations of a phase over all engines, and the number of all
/// operations.
fn operations(view: &View<'_>, phase: &str) -> (Vec<String>, usize) {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for engine in view.group.engines_of(phase) {
        for (name, latency) in view
            .group
            .of(&engine, phase)
            .flat_map(|found| &found.latency_us)
        {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count = count.saturating_add(latency.count),
                None => counts.push((name.clone(), latency.count)),
            }
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let all = counts.len();
    (
        counts
            .into_iter()
            .take(OPERATIONS)
            .map(|(name, _)| name)
            .collect(),
        all,
    )
}

fn chart(view: &View<'_>, phase: &str, operation: &str) -> Plot {
    let mut curves = Vec::new();
    for engine in view.group.engines_of(phase) {
        let found: Vec<[f64; 6]> = view
            .group
            .of(&engine, phase)
            .filter_map(|phase| phase.latency_us.get(operation))
            .map(values)
            .collect();
        let point = |i: usize| {
            let at: Vec<f64> = found.iter().map(|values| values[i]).collect();
            median(&at).filter(|us| *us > 0.0).map(|us| (i as f64, us))
        };
        curves.push(Curve {
            style: view.style(&engine),
            name: view.group.label(&engine),
            points: (0..PLACES.len()).map(point).collect(),
            band: Vec::new(),
        });
    }
    let (low, high) = extremes(&curves);
    let title = format!("{operation}: response time by percentile (logarithmic)");
    let alternative = format!("{title}. {}; {}", extent(&curves, 0), extent(&curves, 2));
    let y = Axis::log(low, high, Unit::Microseconds);
    Plot {
        alternative,
        legend: false,
        ..Plot::new(title, Axis::names(&PLACES), y, curves)
    }
}

/// Formats the lowest and highest value of one percentile, with their engines. The table has all
/// values.
fn extent(curves: &[Curve], place: usize) -> String {
    let found = curves
        .iter()
        .filter_map(|curve| Some((curve.points[place]?.1, &curve.name)));
    let lowest = found.clone().min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((lowest, highest)) = lowest.zip(found.max_by(|a, b| a.0.total_cmp(&b.0))) else {
        return format!("no {}", PLACES[place]);
    };
    format!(
        "{} from {} ({}) to {} ({})",
        PLACES[place],
        label(lowest.0, Unit::Microseconds),
        lowest.1,
        label(highest.0, Unit::Microseconds),
        highest.1
    )
}
