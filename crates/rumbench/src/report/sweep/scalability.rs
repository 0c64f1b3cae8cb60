//! Fits of a sweep over `clients` with the Universal Scalability Law, and the conclusion from each
//! in words.

use super::curve::{Point, points};
use super::whole::Whole;
use crate::measure::scalability::{Fit, POINTS_MIN, different, fit};
use crate::report::throughput::{counts_rows, unit};
use crate::store::sweep::{Scalability, Sweep};
use crate::text::{count, number};

/// Setting of the sweeps that are fitted with the Universal Scalability Law.
pub const CLIENTS: &str = "clients";

/// Average error above which a fit describes its trials badly.
const ERROR_POOR: f64 = 0.10;

/// Returns one entry for each engine and phase: its fit, or the reason why there is none. Empty for
/// a sweep over another setting.
pub fn fits(sweep: &Sweep, whole: &Whole<'_>) -> Vec<Scalability> {
    if sweep.key != CLIENTS {
        return Vec::new();
    }
    let mut found = Vec::new();
    for phase in whole.phases() {
        for engine in whole.engines() {
            let points = points(sweep, whole, &engine, &phase);
            if !points.is_empty() {
                found.push(of_points(&engine, &phase, &points));
            }
        }
    }
    found
}

/// Returns clients and throughput of every trial.
pub fn trials(points: &[Point]) -> Vec<(f64, f64)> {
    let of_point = |point: &Point| {
        let clients: Option<f64> = point.value.parse().ok();
        let rates = point.rates.clone();
        clients.map(|n| rates.into_iter().map(move |(_, rate)| (n, rate)))
    };
    points.iter().filter_map(of_point).flatten().collect()
}

fn of_points(engine: &str, phase: &str, points: &[Point]) -> Scalability {
    let trials = trials(points);
    let metric = if counts_rows(phase) {
        "rows_per_s"
    } else {
        "ops_per_s"
    };
    let mut found = Scalability {
        engine: engine.to_string(),
        phase: phase.to_string(),
        metric: metric.to_string(),
        points: different(&trials),
        trials: trials.len(),
        ..Scalability::default()
    };
    let refused = refusal(points, found.points);
    match (refused, fit(&trials)) {
        (Some(why), _) => found.judgment = why,
        (None, None) => {
            found.judgment = "no fit: no such curve describes these trials".to_string();
        }
        (None, Some(fit)) => fill(&mut found, &fit, &trials),
    }
    found
}

/// Returns the reason why the trials cannot be fitted: a given rate, too few or equal numbers of
/// clients. `None` if they can.
fn refusal(points: &[Point], different: usize) -> Option<String> {
    if points.iter().any(|point| point.paced) {
        return Some("no fit: throughput is the rate that was asked for".to_string());
    }
    if different < POINTS_MIN {
        return Some(format!(
            "no fit: {different} numbers of clients, three parameters need at least {POINTS_MIN}"
        ));
    }
    let threads: Vec<Option<usize>> = points.iter().map(|point| point.clients).collect();
    let fixed = threads.windows(2).all(|pair| pair[0] == pair[1]) && threads[0].is_some();
    fixed.then(|| {
        let count = threads[0].unwrap_or(0);
        format!("no fit: this phase has the same number of clients at every value ({count})")
    })
}

fn fill(found: &mut Scalability, fit: &Fit, trials: &[(f64, f64)]) {
    found.lambda = Some(fit.lambda);
    found.sigma = Some(fit.sigma);
    found.kappa = Some(fit.kappa);
    found.peak_clients = fit.peak;
    found.peak_per_s = fit.peak_whole().map(|(_, per_s)| per_s);
    found.limit_per_s = fit.limit();
    found.error_rms = Some(fit.error_rms());
    let worst = fit.errors.iter().zip(trials);
    let worst = worst.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    found.error_max = worst.map(|(error, _)| *error);
    found.error_max_clients = worst.map(|(_, (clients, _))| *clients);
    found.judgment = judgment(found, fit, trials);
}

/// Formats the conclusion, with the doubts first.
fn judgment(found: &Scalability, fit: &Fit, trials: &[(f64, f64)]) -> String {
    let mut parts = Vec::new();
    let percent = |share: f64| number(Some(share * 100.0));
    let rms = fit.error_rms();
    if rms > ERROR_POOR {
        parts.push(format!(
            "poor fit: trials are {} % off it on average, {} % at {} clients; trust the measured points, not the coefficients",
            percent(rms),
            percent(found.error_max.unwrap_or(0.0)),
            count(found.error_max_clients)
        ));
    } else {
        parts.push(format!(
            "trials are {} % off the fit on average",
            percent(rms)
        ));
    }
    if fit.superlinear {
        parts.push(
            "throughput grew faster than clients at first, which the law does not know (sigma held at 0)"
                .to_string(),
        );
    }
    let most = trials.iter().map(|(n, _)| *n).fold(1.0, f64::max);
    parts.push(peak(fit, most, unit(&found.phase)));
    parts.join("; ")
}

fn peak(fit: &Fit, most: f64, unit: &str) -> String {
    let Some((clients, per_s)) = fit.peak_whole() else {
        return match fit.limit() {
            Some(limit) if fit.sigma.value > 1.0 => format!(
                "one client is fastest: with more throughput falls towards {} {unit}",
                number(Some(limit))
            ),
            Some(limit) => format!(
                "no peak: throughput approaches {} {unit}",
                number(Some(limit))
            ),
            None => format!("no limit shows up to {} clients", count(Some(most))),
        };
    };
    let mut text = format!(
        "peak at {} clients with {} {unit}",
        count(Some(clients)),
        number(Some(per_s))
    );
    if clients > most {
        text += &format!(
            ", beyond the {} that were measured: measure there before believing it",
            count(Some(most))
        );
    }
    match fit.peak.map(|peak| (peak.low, peak.high)) {
        Some((Some(low), Some(high))) => {
            let ends = [low, high].map(|end| number(Some(end)));
            text += &format!(" (98 % interval {} to {})", ends[0], ends[1]);
        }
        _ => text += "; that there is one is not proven",
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::scalability::throughput;

    fn point(clients: u32, rate: f64, threads: usize) -> Point {
        Point {
            value: clients.to_string(),
            rates: vec![(1, rate)],
            clients: Some(threads),
            paced: false,
            p99_us: None,
            cpu_us: None,
            written_kb: None,
            data_gib: None,
            rss_mib: None,
        }
    }

    fn points_of(clients: &[u32], x: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |n: &u32| point(*n, x(f64::from(*n)), *n as usize);
        clients.iter().map(point).collect()
    }

    #[test]
    fn a_clear_peak_is_said_with_its_interval() {
        let points = points_of(&[1, 2, 4, 8, 16, 32], |n| {
            throughput(1000.0, 0.05, 0.004, n)
        });
        let found = of_points("a", "request", &points);
        assert!(
            found.judgment.contains("peak at 15 clients")
                && found.judgment.contains("98 % interval"),
            "{}",
            found.judgment
        );
        assert!((found.sigma.unwrap().value - 0.05).abs() < 1e-6);
    }

    #[test]
    fn doubts_are_said_few_points_bad_fits_far_peaks_fixed_clients_and_rates() {
        let said = |points: &[Point]| of_points("a", "request", points).judgment;
        let three = points_of(&[1, 2, 4], |n| throughput(1000.0, 0.05, 0.004, n));
        assert!(
            said(&three).contains("3 numbers of clients"),
            "{}",
            said(&three)
        );
        let far = points_of(&[1, 2, 3, 4], |n| throughput(1000.0, 0.05, 0.001, n));
        assert!(
            said(&far).contains("beyond the 4 that were measured"),
            "{}",
            said(&far)
        );
        let jumps = points_of(
            &[1, 2, 4, 8, 16],
            |n| if n == 4.0 { 9000.0 } else { 1000.0 },
        );
        assert!(said(&jumps).starts_with("poor fit"), "{}", said(&jumps));
        assert!(said(&jumps).contains("not proven"), "{}", said(&jumps));
        let mut fixed = points_of(&[1, 2, 4, 8], |_| 1000.0);
        for point in &mut fixed {
            point.clients = Some(1);
        }
        assert!(
            said(&fixed).contains("same number of clients"),
            "{}",
            said(&fixed)
        );
        fixed[0].paced = true;
        assert!(said(&fixed).contains("rate that was asked for"));
        let faster = points_of(&[1, 2, 4, 8], |n| 10.0 * n.powf(1.2));
        assert!(
            said(&faster).contains("sigma held at 0"),
            "{}",
            said(&faster)
        );
    }

    #[test]
    fn a_limit_is_approached_from_below_or_from_above() {
        let of =
            |sigma: f64| points_of(&[1, 2, 4, 8, 16], |n| 500.0 * n / (1.0 + sigma * (n - 1.0)));
        let rises = of_points("a", "load", &of(0.3));
        assert_eq!((rises.metric.as_str(), rises.points), ("rows_per_s", 5));
        let said = |sigma: f64| {
            // Noise, so that no rounding error moves kappa above 0.
            let mut points = of(sigma);
            points[4].rates[0].1 *= 1.01;
            of_points("a", "load", &points).judgment
        };
        assert!(
            said(0.3).contains("no peak: throughput approaches"),
            "{}",
            said(0.3)
        );
        assert!(said(1.2).contains("falls towards"), "{}", said(1.2));
    }
}
