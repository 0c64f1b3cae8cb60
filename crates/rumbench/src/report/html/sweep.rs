//! Section for a sweep: its conclusions in sentences, throughput as a curve over the setting with
//! the fit below it, aging databases, and the tables of the text report.
//!
//! Numbers of clients use a linear axis, as the Universal Scalability Law does; values of other
//! settings are evenly spaced names.

use super::markup::{element, escape, heading};
use super::over_time::extremes;
use super::plot::{Curve, Plot, in_words, swatch};
use super::scale::{Axis, Unit};
use super::tables;
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
) -> String {
    let Some(sweep) = &suite.sweep else {
        return String::new();
    };
    let section = Section {
        suite,
        sweep,
        styles,
    };
    let wholes = whole(suite, options.mix_durability);
    let mut out = String::new();
    for (i, whole) in wholes.iter().enumerate() {
        let id = match i {
            0 if leads => "verdict".to_string(),
            0 => "sweep".to_string(),
            i => format!("sweep-{i}"),
        };
        out += &format!("<section>{}", heading(2, &id, &title(sweep)));
        out += &element("p", " class=\"note pre\"", &whole.title);
        out += &if has_points(suite) {
            section.points(whole)
        } else {
            whole
                .points
                .iter()
                .map(|group| section.aging(group))
                .collect()
        };
        if has_points(suite) {
            let table = decision::of_points(suite, whole, options.endurance_tb);
            out += &table.iter().map(tables::html).collect::<String>();
        }
        out += "</section>\n";
    }
    out
}

fn title(sweep: &Sweep) -> String {
    match sweep.key.as_str() {
        crate::store::sweep::TURNOVER => "Aging".to_string(),
        key => format!("Sweep over {key}"),
    }
}

impl Section<'_> {
    fn style(&self, engine: &str) -> usize {
        let place = self.styles.iter().position(|name| name == engine);
        place.unwrap_or(0)
    }

    fn points(&self, whole: &Whole<'_>) -> String {
        let mut out = self.sentences(whole);
        for phase in whole.phases() {
            out += &self.chart(whole, &phase);
            let table = rows::by_value(self.sweep, whole, &phase);
            out += &table.iter().map(tables::html).collect::<String>();
        }
        let fits = rows::fits(self.suite, self.sweep, whole);
        out + &fits.iter().map(tables::html).collect::<String>()
    }

    /// Renders for each engine the setting at which the main phase is fastest, and the conclusion
    /// from its fit.
    fn sentences(&self, whole: &Whole<'_>) -> String {
        let phases = whole.phases();
        let work = phases.iter().rev().find(|phase| !counts_rows(phase));
        let Some(phase) = work.or(phases.last()) else {
            return String::new();
        };
        let mut out = String::from("<ul class=\"verdict\">\n");
        for engine in whole.engines() {
            let style = self.style(&engine);
            out += &format!(
                "<li data-k=\"{style}\">{}<b>{}</b> {}</li>\n",
                swatch(style),
                escape(&engine),
                escape(&self.sentence(whole, &engine, phase))
            );
        }
        out + "</ul>\n"
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
    fn chart(&self, whole: &Whole<'_>, phase: &str) -> String {
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
                style: self.style(engine),
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
            .map(|engine| (self.style(engine), self.fit(engine, phase, far)))
            .collect();
        let fitted = fits.iter().flat_map(|(_, points)| points).map(|(_, y)| *y);
        let highest = fitted.fold(extremes(&curves).1, f64::max);
        let names: Vec<&str> = self.sweep.values.iter().map(String::as_str).collect();
        let drawn = fits.iter().any(|(_, points)| !points.is_empty());
        let mut plot = Plot {
            title: format!(
                "{phase}: {} by {}{}",
                unit(phase),
                self.sweep.key,
                if drawn { "; thin: the fit" } else { "" }
            ),
            alternative: self.alternative(phase, &curves),
            x: if clients {
                Axis::linear(far, Unit::Number)
            } else {
                Axis::names(&names)
            },
            y: Axis::linear(highest, Unit::Number),
            curves,
            under: String::new(),
            strip: false,
            x_labels: true,
            legend: true,
        };
        plot.under = under(&plot, &fits);
        plot.html()
    }

    /// Returns the points of the fit from one client to the most.
    fn fit(&self, engine: &str, phase: &str, far: f64) -> Vec<(f64, f64)> {
        let place = |i: usize| 1.0 + (far - 1.0) * i as f64 / FIT_POINTS as f64;
        let at = |n: f64| Some((n, rows::fitted(self.sweep, engine, phase, n)?));
        (0..=FIT_POINTS).filter_map(|i| at(place(i))).collect()
    }

    fn alternative(&self, phase: &str, curves: &[Curve]) -> String {
        let words = curves
            .iter()
            .map(|curve| format!("{}: {}", curve.name, in_words(curve, Unit::Number)));
        let words: Vec<String> = words.collect();
        let key = &self.sweep.key;
        format!("{phase}: {} by {key}. {}", unit(phase), words.join("; "))
    }

    /// Renders throughput, size and written bytes of aging databases by turnover.
    fn aging(&self, group: &Group<'_>) -> String {
        let engines = group.engines();
        let own = self.sweep.aging.iter();
        let own: Vec<&Aging> = own
            .filter(|found| engines.contains(&found.engine))
            .collect();
        let step = own.iter().find_map(|aging| aging.steps.first());
        let unit = step.map_or("op/s", |step| unit(&step.phase));
        let mut out = String::new();
        for (title, value) in [
            (
                format!("Throughput ({unit}) by turnover"),
                Aging::rates as fn(&Aging) -> _,
            ),
            ("Data (MiB) by turnover".to_string(), Aging::sizes),
            ("Written (KiB/op) by turnover".to_string(), Aging::written),
        ] {
            let curve = |engine: &String| {
                // Only the first repetition is drawn: the steps of the others have other turnovers.
                let found = own.iter().find(|found| found.engine == *engine)?;
                Some(Curve {
                    style: self.style(engine),
                    name: group.label(engine),
                    points: value(found),
                    band: Vec::new(),
                })
            };
            let curves: Vec<Curve> = engines.iter().filter_map(curve).collect();
            let far = curves
                .iter()
                .flat_map(|curve| curve.points.iter().flatten());
            let far = far.map(|(x, _)| *x).fold(0.0, f64::max);
            let plot = Plot {
                alternative: self.alternative(&title, &curves),
                title,
                x: Axis::linear(far, Unit::Number),
                y: Axis::linear(extremes(&curves).1, Unit::Number),
                curves,
                under: String::new(),
                strip: false,
                x_labels: true,
                legend: true,
            };
            out += &plot.html();
        }
        let tables = rows::of_aging(self.sweep, group);
        out + &tables.iter().map(tables::html).collect::<String>()
    }
}

/// Draws the fits as thin lines and a dot at every measured median.
fn under(plot: &Plot, fits: &[(usize, Vec<(f64, f64)>)]) -> String {
    let path = |class: char, style: usize, points: &[(f64, f64)]| {
        format!(
            "<path class=\"{class}{style}\" d=\"{}\"/>",
            plot.path(points)
        )
    };
    let drawn = fits.iter().filter(|(_, points)| !points.is_empty());
    let lines = drawn.map(|(style, points)| path('u', *style, points));
    let dots = plot.curves.iter().flat_map(|curve| {
        let points = curve.points.iter().flatten();
        // A stroke of zero length with round ends.
        points.map(|point| path('d', curve.style, &[*point, *point]))
    });
    lines.chain(dots).collect()
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
