//! Tables of a sweep: each phase by value, the fits, the steps of aging databases.

use super::aging::STEPS_MIN;
use super::curve::{Point, against_first, frequent_operation, points};
use super::whole::Whole;
use crate::measure::scalability::throughput;
use crate::report::selection::Group;
use crate::report::spread;
use crate::report::table::Table;
use crate::report::throughput::{counts_rows, rate, unit};
use crate::store::result::{PhaseResult, SuiteResult};
use crate::store::sweep::{Aging, Estimate, Scalability, Sweep};
use crate::text::{gib, number};

/// Most rows in a table of steps; of more steps only every n-th is shown.
const STEPS_SHOWN: usize = 60;

/// Returns the tables of a sweep over a setting: one for each phase except the warm-up, then the
/// fits.
pub fn of_points(suite: &SuiteResult, sweep: &Sweep, whole: &Whole<'_>) -> Vec<Table> {
    let phases = whole.phases();
    let mut tables: Vec<Table> = Vec::new();
    for phase in &phases {
        tables.extend(by_value(sweep, whole, phase));
    }
    tables.extend(fits(suite, sweep, whole));
    tables
}

/// Returns the table of one phase, with a row for each engine and value.
pub fn by_value(sweep: &Sweep, whole: &Whole<'_>, phase: &str) -> Option<Table> {
    let item = if counts_rows(phase) { "row" } else { "op" };
    let first = format!("to {}={} (ratio)", sweep.key, sweep.values.first()?);
    let p99 = match frequent_operation(whole, phase) {
        Some(operation) => format!("p99 of {operation} (us)"),
        None => "p99 (us)".to_string(),
    };
    let (throughput, cpu) = (unit(phase), format!("CPU (us/{item})"));
    let title = format!("{phase}: throughput and cost by {}", sweep.key);
    let mut table = Table::new(
        title,
        &[
            "engine",
            &sweep.key,
            &format!("median ({throughput})"),
            &format!("lowest ({throughput})"),
            &format!("highest ({throughput})"),
            &first,
            "low",
            "high",
            "verdict",
            &p99,
            &cpu,
            &format!("written (KiB/{item})"),
            "data at the end (GiB)",
            "peak memory (MiB)",
            "repetitions",
        ],
    );
    for engine in whole.engines() {
        let found = points(sweep, whole, &engine, phase);
        for point in &found {
            table.rows.push(row(&engine, &found[0], point));
        }
    }
    let several = table.rows.iter().any(|row| row[14] != "1");
    if several {
        table.notes.push(spread::NOTE.to_string());
    }
    (!table.rows.is_empty()).then_some(table)
}

fn row(engine: &str, first: &Point, point: &Point) -> Vec<String> {
    let range = point.range().filter(|_| point.rates.len() > 1);
    let ratio = against_first(first, point).filter(|_| point.value != first.value);
    let end = |pick: fn(&crate::measure::statistics::Ratio) -> f64| {
        let known = ratio.as_ref().filter(|ratio| ratio.pairs > 1);
        known.map_or("-".to_string(), |ratio| format!("{:.2}", pick(ratio)))
    };
    vec![
        engine.to_string(),
        point.value.clone(),
        number(point.rate()),
        number(range.map(|(low, _)| low)),
        number(range.map(|(_, high)| high)),
        match (&ratio, point.value == first.value) {
            (_, true) => "1".to_string(),
            (Some(ratio), _) => format!("{:.2}", ratio.ratio),
            (None, _) => "-".to_string(),
        },
        end(|ratio| ratio.low),
        end(|ratio| ratio.high),
        ratio
            .as_ref()
            .map_or("-", |ratio| ratio.verdict())
            .to_string(),
        number(point.p99_us),
        number(point.cpu_us),
        number(point.written_kb),
        number(point.data_gib),
        number(point.rss_mib),
        point.rates.len().to_string(),
    ]
}

/// Returns the table of scalability coefficients (Universal Scalability Law), with a conclusion for
/// each engine and phase as a note.
pub fn fits(suite: &SuiteResult, sweep: &Sweep, whole: &Whole<'_>) -> Option<Table> {
    let engines = whole.engines();
    let all = sweep.scalability.iter();
    let own: Vec<&Scalability> = all.filter(|fit| engines.contains(&fit.engine)).collect();
    if own.is_empty() {
        return None;
    }
    let mut table = Table::new(
        "Universal Scalability Law: X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)), in brackets 98 % intervals",
        &[
            "engine",
            "phase",
            "lambda (1/s)",
            "sigma, contention",
            "kappa, coherency",
            "peak (clients)",
            "peak (1/s)",
            "error (%)",
            "largest error (%)",
        ],
    );
    table.text_columns = 2;
    for fit in own {
        if fit.lambda.is_some() {
            table.rows.push(fit_row(fit));
        }
        let judgment = format!("{}, {}: {}", fit.engine, fit.phase, fit.judgment);
        table.notes.push(judgment);
    }
    table.notes.extend(few_cpus(suite, sweep));
    Some(table)
}

/// Returns a note if clients had to share CPUs. A fit cannot distinguish this from contention in
/// the engine.
fn few_cpus(suite: &SuiteResult, sweep: &Sweep) -> Option<String> {
    let cpus: f64 = suite.environment.get("cpus")?.parse().ok()?;
    let values = sweep.values.iter().filter_map(|value| value.parse().ok());
    let most = values.fold(0.0, f64::max);
    (most > cpus).then(|| {
        format!("{cpus} CPUs for up to {most} clients: where clients wait for a CPU, sigma and kappa are as much the machine's as the engine's")
    })
}

fn fit_row(fit: &Scalability) -> Vec<String> {
    let percent = |share: Option<f64>| number(share.map(|share| share * 100.0));
    let estimate = |found: Option<Estimate>| found.map_or("-".to_string(), with_interval);
    vec![
        fit.engine.clone(),
        fit.phase.clone(),
        estimate(fit.lambda),
        estimate(fit.sigma),
        estimate(fit.kappa),
        fit.peak_clients.map_or("none".to_string(), with_interval),
        number(fit.peak_per_s),
        percent(fit.error_rms),
        percent(fit.error_max),
    ]
}

/// Formats an estimate as `0.12 [0.05, 0.20]`; a missing end is open.
fn with_interval(found: Estimate) -> String {
    let short = |value: f64| match value.abs() {
        // Kappa is small and still determines the position of the peak.
        size if size > 0.0 && size < 0.001 => format!("{value:.2e}"),
        _ => number(Some(value)),
    };
    let value = short(found.value);
    match (found.low, found.high) {
        (None, None) => value,
        (low, high) => {
            let end = |end: Option<f64>| end.map_or("..".to_string(), short);
            format!("{value} [{}, {}]", end(low), end(high))
        }
    }
}

/// Returns the throughput that the fitted law of an engine and phase predicts for a number of
/// clients.
pub fn fitted(sweep: &Sweep, engine: &str, phase: &str, clients: f64) -> Option<f64> {
    let mut fits = sweep.scalability.iter();
    let fit = fits.find(|fit| fit.engine == engine && fit.phase == phase)?;
    let value = |found: Option<Estimate>| found.map(|found| found.value);
    Some(throughput(
        value(fit.lambda)?,
        value(fit.sigma)?,
        value(fit.kappa)?,
        clients,
    ))
}

/// Returns the steps and trends of aging databases.
pub fn of_aging(sweep: &Sweep, group: &Group<'_>) -> Vec<Table> {
    let engines = group.engines();
    let own: Vec<&Aging> = sweep
        .aging
        .iter()
        .filter(|aging| engines.contains(&aging.engine))
        .collect();
    if own.is_empty() {
        return Vec::new();
    }
    let mut tables: Vec<Table> = engines
        .iter()
        .filter_map(|engine| steps(group, &own, engine))
        .collect();
    tables.push(trends(sweep, &own));
    tables
}

/// Returns the steps of one engine: medians of the repetitions that reached each step.
fn steps(group: &Group<'_>, all: &[&Aging], engine: &str) -> Option<Table> {
    let own: Vec<&&Aging> = all.iter().filter(|aging| aging.engine == engine).collect();
    let longest = own.iter().max_by_key(|aging| aging.steps.len())?;
    let first = &longest.steps.first()?.phase;
    let item = if counts_rows(first) { "rows/s" } else { "op/s" };
    let mut table = Table::new(
        format!("{engine}: aging in equal steps"),
        &[
            "step",
            "turnover",
            &format!("throughput ({item})"),
            "to the first (ratio)",
            "written (KiB/op)",
            "to the first (ratio)",
            "data (GiB)",
            "to the first (ratio)",
            "repetitions",
        ],
    );
    let every = longest.steps.len().div_ceil(STEPS_SHOWN);
    let last = longest.steps.len() - 1;
    for (i, step) in longest.steps.iter().enumerate() {
        if i % every != 0 && i != last {
            continue;
        }
        let turnovers: Vec<f64> = own
            .iter()
            .filter_map(|aging| aging.steps.get(i)?.turnover)
            .collect();
        let pair = |value: &dyn Fn(&PhaseResult) -> Option<f64>| {
            let of = |phase: &str| group.median(engine, phase, value);
            let (now, before) = (of(&step.phase), of(first));
            let ratio = now.zip(before).filter(|(_, before)| *before > 0.0);
            let ratio = ratio.map_or("-".to_string(), |(now, before)| {
                format!("{:.3}", now / before)
            });
            [number(now), ratio]
        };
        let mut row = vec![
            (i + 1).to_string(),
            number(crate::measure::statistics::median(&turnovers)),
        ];
        row.extend(pair(&rate));
        row.extend(pair(&|phase| phase.kb_written_per_op));
        row.extend(pair(&|phase| phase.size_bytes.map(|size| gib(size.data))));
        row.push(group.of(engine, &step.phase).count().to_string());
        table.rows.push(row);
    }
    if every > 1 {
        let note = format!(
            "every {every}th step of {}; result.json has all",
            longest.steps.len()
        );
        table.notes.push(note);
    }
    Some(table)
}

fn trends(sweep: &Sweep, all: &[&Aging]) -> Table {
    let asked = sweep.values.first().map_or("", String::as_str);
    let mut table = Table::new(
        "Change from one step to the next: slope of logarithms, in brackets 98 % intervals (%)",
        &[
            "engine",
            "repetition",
            "steps",
            "turnover",
            "throughput (%)",
            "data (%)",
            "written per operation (%)",
        ],
    );
    for aging in all {
        let change = |found: Option<Estimate>| {
            // A value that rounds to zero gets no minus sign, because it is no loss.
            let percent = |factor: f64| ((factor - 1.0) * 1e4).round() / 100.0 + 0.0;
            let signed = |factor: f64| format!("{:+.2}", percent(factor));
            match found {
                None => "-".to_string(),
                Some(Estimate {
                    value,
                    low: Some(low),
                    high: Some(high),
                }) => {
                    format!("{} [{}, {}]", signed(value), signed(low), signed(high))
                }
                Some(found) => signed(found.value),
            }
        };
        let last = aging.steps.last().and_then(|step| step.turnover);
        let short = if aging.reached { "" } else { " !" };
        table.rows.push(vec![
            aging.engine.clone(),
            aging.repetition.to_string(),
            aging.steps.len().to_string(),
            format!("{}{short}", number(last)),
            change(aging.rate_change),
            change(aging.data_change),
            change(aging.written_change),
        ]);
    }
    table.notes.push(
        "turnover: KiB written by the steps so far over the data at the end of the step"
            .to_string(),
    );
    if all.iter().any(|aging| aging.steps.len() < STEPS_MIN) {
        table.notes.push(format!(
            "fewer than {STEPS_MIN} steps have no trend; shorter ones (`seconds`, `operations`) are more of them"
        ));
    }
    if all.iter().any(|aging| !aging.reached) {
        table.notes.push(format!(
            "! below the turnover of {asked} that was asked for"
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_coefficients_keep_their_digits_and_open_ends_are_seen() {
        let estimate = |value, low, high| with_interval(Estimate { value, low, high });
        assert_eq!(estimate(0.00012, Some(0.0), None), "1.20e-4 [0, ..]");
        assert_eq!(estimate(0.25, Some(0.2), Some(0.3)), "0.250 [0.200, 0.300]");
        assert_eq!(estimate(4000.0, None, None), "4,000");
    }
}
