//! Section for a sweep: its conclusions in sentences, throughput as a curve over the setting with
//! the fit below it, aging databases, and the tables of the text report.
//!
//! Numbers of clients use a linear axis, as the Universal Scalability Law does; values of other
//! settings are evenly spaced names.

use maud::{Markup, html};

use super::markup::{engine_line, path};
use super::over_time::extremes;
use super::page::style;
use super::plot::{Curve, Plot};
use super::scale::{Axis, Unit};
use crate::report::selection::Group;
use crate::report::sweep::curve::{Point, points};
use crate::report::sweep::{CLIENTS, Whole, has_points, tables as rows, whole};
use crate::report::throughput::{counts_rows, unit};
use crate::report::{ReportOptions, decision};
use crate::store::result::SuiteResult;
use crate::store::sweep::{Aging, Sweep};
use crate::text::number;

/// Number of segments of a drawn fit.
const FIT_POINTS: usize = 60;

/// Data that the parts of this section share.
struct Section<'a> {
    suite: &'a SuiteResult,
    sweep: &'a Sweep,
    /// Names of all engines; the index selects the color.
    styles: &'a [String],
}

/// Renders the summary of all points or steps. Empty for a suite without a sweep. If `leads` is
/// true, its anchor is that of the verdict.
pub fn html(
    suite: &SuiteResult,
    styles: &[String],
    options: &ReportOptions,
    leads: bool,
) -> Markup {
    let Some(sweep) = &suite.sweep else {
        return Markup::default();
    };
    let section = Section {
        suite,
        sweep,
        styles,
    };
    let id = |i| match i {
        0 if leads => "verdict".to_string(),
        0 => "sweep".to_string(),
        i => format!("sweep-{i}"),
    };
    html! {
        @for (i, whole) in whole(suite, options.mix_durability).iter().enumerate() {
            section {
                h2 id=(id(i)) { (title(sweep)) }
                p class="note pre" { (whole.title) }
                @if has_points(suite) {
                    (section.points(whole))
                    @if let Some(table) = decision::of_points(suite, whole, options.endurance_tb) {
                        (table)
                    }
                } @else {
                    @for group in &whole.points { (section.aging(group)) }
                }
            }
        }
    }
}

fn title(sweep: &Sweep) -> String {
    match sweep.key.as_str() {
        crate::store::sweep::TURNOVER => "Aging".to_string(),
        key => format!("Sweep over {key}"),
    }
}

impl Section<'_> {
    fn points(&self, whole: &Whole<'_>) -> Markup {
        html! {
            (self.sentences(whole))
            @for phase in whole.phases() {
                (self.chart(whole, &phase))
                @if let Some(table) = rows::by_value(self.sweep, whole, &phase) { (table) }
            }
            @if let Some(table) = rows::fits(self.suite, self.sweep, whole) { (table) }
        }
    }

    /// Renders for each engine the setting at which the main phase is fastest, and the conclusion
    /// from its fit.
    fn sentences(&self, whole: &Whole<'_>) -> Markup {
        let phases = whole.phases();
        let work = phases.iter().rev().find(|phase| !counts_rows(phase));
        html! {
            @if let Some(phase) = work.or(phases.last()) {
                ul.verdict {
                    @for engine in whole.engines() {
                        @let sentence = self.sentence(whole, &engine, phase);
                        (engine_line(style(self.styles, &engine), &engine, sentence))
                    }
                }
            }
        }
    }

    fn sentence(&self, whole: &Whole<'_>, engine: &str, phase: &str) -> String {
        let found = points(self.sweep, whole, engine, phase);
        let rate = |point: &&Point| point.rate().unwrap_or(0.0);
        let best = found.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let (Some(first), Some(best)) = (found.first(), best) else {
            return format!("has no numbers of {phase}.");
        };
        let key = &self.sweep.key;
        let mut text = format!(
            "is fastest in {phase} at {key}={} with {} {}",
            best.value,
            number(best.rate()),
            unit(phase)
        );
        if best.value != first.value {
            let times = rate(&best) / rate(&first);
            text += &format!(
                ", {} times that of {key}={}",
                number(Some(times)),
                first.value
            );
        }
        let mut fits = self.sweep.scalability.iter();
        match fits.find(|fit| fit.engine == engine && fit.phase == phase) {
            Some(fit) => text + &format!("; Universal Scalability Law: {}.", fit.judgment),
            None => text + ".",
        }
    }

    /// Renders the medians with the band of the repetitions, and below them the fit.
    fn chart(&self, whole: &Whole<'_>, phase: &str) -> Plot {
        let clients = self.sweep.key == CLIENTS;
        let place = |value: &str| {
            if clients {
                value.parse().ok()
            } else {
                let mut values = self.sweep.values.iter();
                values.position(|known| known == value).map(|i| i as f64)
            }
        };
        let curve = |engine: &String| {
            let found = points(self.sweep, whole, engine, phase);
            let at = found
                .iter()
                .map(|point| Some((place(&point.value)?, point.rate()?)));
            let band = found.iter().map(|point| {
                let (low, high) = point.range()?;
                Some((place(&point.value)?, low, high))
            });
            Curve {
                style: style(self.styles, engine),
                name: engine.clone(),
                points: at.collect(),
                band: band.collect(),
            }
        };
        let engines = whole.engines();
        let curves: Vec<Curve> = engines.iter().map(curve).collect();
        let far = curves
            .iter()
            .flat_map(|curve| curve.points.iter().flatten());
        let far = far.map(|(x, _)| *x).fold(1.0, f64::max);
        let fits: Vec<(usize, Vec<(f64, f64)>)> = engines
            .iter()
            .map(|engine| (style(self.styles, engine), self.fit(engine, phase, far)))
            .collect();
        let fitted = fits.iter().flat_map(|(_, points)| points).map(|(_, y)| *y);
        let highest = fitted.fold(extremes(&curves).1, f64::max);
        let names: Vec<&str> = self.sweep.values.iter().map(String::as_str).collect();
        let drawn = fits.iter().any(|(_, points)| !points.is_empty());
        let x = if clients {
            Axis::linear(far, Unit::Number)
        } else {
            Axis::names(&names)
        };
        let title = format!("{phase}: {} by {}", unit(phase), self.sweep.key);
        let mut plot = Plot::new(title, x, Axis::linear(highest, Unit::Number), curves);
        if drawn {
            plot.title += "; thin: the fit";
        }
        plot.under = under(&plot, &fits);
        plot
    }

    /// Returns the points of the fit from one client to the most.
    fn fit(&self, engine: &str, phase: &str, far: f64) -> Vec<(f64, f64)> {
        let place = |i: usize| 1.0 + (far - 1.0) * i as f64 / FIT_POINTS as f64;
        let at = |n: f64| Some((n, rows::fitted(self.sweep, engine, phase, n)?));
        (0..=FIT_POINTS).filter_map(|i| at(place(i))).collect()
    }

    /// Renders throughput, size and written bytes of aging databases by turnover.
    fn aging(&self, group: &Group<'_>) -> Markup {
        let engines = group.engines();
        let own = self.sweep.aging.iter();
        let own: Vec<&Aging> = own
            .filter(|found| engines.contains(&found.engine))
            .collect();
        let step = own.iter().find_map(|aging| aging.steps.first());
        let rate = step.map_or("op/s", |step| unit(&step.phase));
        let chart = |title: String, values: fn(&Aging) -> Points| {
            let curve = |engine: &String| {
                // Only the first repetition is drawn: the steps of the others have other turnovers.
                let found = own.iter().find(|found| found.engine == *engine)?;
                Some(Curve {
                    style: style(self.styles, engine),
                    name: group.label(engine),
                    points: values(found),
                    band: Vec::new(),
                })
            };
            let curves: Vec<Curve> = engines.iter().filter_map(curve).collect();
            let points = curves
                .iter()
                .flat_map(|curve| curve.points.iter().flatten());
            let far = points.map(|(x, _)| *x).fold(0.0, f64::max);
            let y = Axis::linear(extremes(&curves).1, Unit::Number);
            let words = format!("{title}: {} by {}", unit(&title), self.sweep.key);
            Plot {
                title,
                ..Plot::new(words, Axis::linear(far, Unit::Number), y, curves)
            }
        };
        html! {
            (chart(format!("Throughput ({rate}) by turnover"), Aging::rates))
            (chart("Data (MiB) by turnover".to_string(), Aging::sizes))
            (chart("Written (KiB/op) by turnover".to_string(), Aging::written))
            @for table in rows::of_aging(self.sweep, group) { (table) }
        }
    }
}

/// Draws the fits as thin lines and a dot at every measured median.
fn under(plot: &Plot, fits: &[(usize, Vec<(f64, f64)>)]) -> Markup {
    html! {
        @for (style, points) in fits { (path(format_args!("u{style}"), &plot.path(points))) }
        (plot.dots())
    }
}

/// Values of the steps over turnover, as points of a chart.
type Points = Vec<Option<(f64, f64)>>;

impl Aging {
    fn rates(&self) -> Points {
        let steps = self.steps.iter();
        steps.map(|step| step.turnover.zip(step.per_s)).collect()
    }

    fn sizes(&self) -> Points {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let steps = self.steps.iter();
        steps
            .map(|step| step.turnover.zip(step.data_bytes.map(mib)))
            .collect()
    }

    fn written(&self) -> Points {
        let steps = self.steps.iter();
        steps
            .map(|step| step.turnover.zip(step.kb_written_per_op))
            .collect()
    }
}
