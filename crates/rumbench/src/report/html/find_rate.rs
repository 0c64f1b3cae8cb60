//! Section for a search of the highest rate: a sentence for each engine, response time against rate
//! with the limit as a line, and the tables of the text report.

use super::markup::{element, escape, heading};
use super::plot::{Curve, Plot, in_words, swatch};
use super::scale::{Axis, Unit};
use super::tables;
use crate::report::find_rate::{self as rows, FIGURES, Figure, figure_of};
use crate::report::sweep::whole;
use crate::report::{ReportOptions, decision};
use crate::store::rate_search::{FoundRate, RateSearch};
use crate::store::result::SuiteResult;

/// Renders the section that leads the page. Empty for a suite without a search.
pub fn html(suite: &SuiteResult, styles: &[String], options: &ReportOptions) -> String {
    let Some(search) = &suite.rate_search else {
        return String::new();
    };
    let mut out = String::new();
    for (i, whole) in whole(suite, options.mix_durability).iter().enumerate() {
        let id = match i {
            0 => "verdict".to_string(),
            i => format!("rate-{i}"),
        };
        let own = rows::own(search, whole);
        out += &format!("<section>{}", heading(2, &id, "Highest rate"));
        out += &element("p", " class=\"note pre\"", &whole.title);
        out += &sentences(&own, styles);
        for figure in figures(search) {
            out += &chart(search, &own, styles, figure);
        }
        let mut all = vec![rows::highest(search, &own)];
        all.extend(rows::at_share(suite, search, &own));
        all.push(rows::curve(search, &own, false));
        all.extend(decision::of_points(suite, whole, options.endurance_tb));
        out += &all.iter().map(tables::html).collect::<String>();
        out += "</section>\n";
    }
    out
}

fn style(styles: &[String], engine: &str) -> usize {
    let place = styles.iter().position(|name| name == engine);
    place.unwrap_or(0)
}

fn sentences(own: &[&FoundRate], styles: &[String]) -> String {
    let mut out = String::from("<ul class=\"verdict\">\n");
    for found in own {
        let style = style(styles, &found.engine);
        out += &format!(
            "<li data-k=\"{style}\">{}<b>{}</b> {}.</li>\n",
            swatch(style),
            escape(&found.engine),
            escape(&found.judgment)
        );
    }
    out + "</ul>\n"
}

/// Returns the figures of the limits first, then the usual ones.
fn figures(search: &RateSearch) -> Vec<Figure> {
    let limits = search
        .sla
        .iter()
        .filter_map(|limit| figure_of(&limit.figure));
    let mut found: Vec<Figure> = Vec::new();
    for figure in limits.chain(FIGURES) {
        if !found.iter().any(|(name, _)| *name == figure.0) {
            found.push(figure);
        }
    }
    found
}

/// Renders a chart of one figure against the requested rate.
fn chart(search: &RateSearch, own: &[&FoundRate], styles: &[String], figure: Figure) -> String {
    let (name, value) = figure;
    let curve = |found: &&FoundRate| {
        let points = found.points.iter();
        let paced = points
            .filter_map(|point| Some(Some((point.rate?, value(point.response_us.as_ref()?)))));
        Curve {
            style: style(styles, &found.engine),
            name: found.engine.clone(),
            points: paced.collect(),
            band: Vec::new(),
        }
    };
    let curves: Vec<Curve> = own.iter().map(curve).collect();
    let limits = search
        .sla
        .iter()
        .filter(|limit| figure_of(&limit.figure).is_some_and(|(known, _)| known == name));
    let limits: Vec<f64> = limits.map(|limit| limit.limit_us).collect();
    let points = curves
        .iter()
        .flat_map(|curve| curve.points.iter().flatten());
    let far = points.clone().map(|(x, _)| *x).fold(0.0, f64::max);
    let heights = points.map(|(_, us)| *us).chain(limits.iter().copied());
    let (low, high) = heights.fold((f64::INFINITY, 0.0), |(low, high), us: f64| {
        (us.min(low), us.max(high))
    });
    let words = curves
        .iter()
        .map(|curve| format!("{}: {}", curve.name, in_words(curve, Unit::Microseconds)));
    let words: Vec<String> = words.collect();
    let title = format!("{name} of response times by rate (op/s)");
    let line = if limits.is_empty() {
        ""
    } else {
        "; dark line: the limit"
    };
    let mut plot = Plot {
        alternative: format!("{title}. {}", words.join("; ")),
        title: format!("{title}{line}"),
        x: Axis::linear(far, Unit::Number),
        y: Axis::log(low, high, Unit::Microseconds),
        curves,
        under: String::new(),
        strip: false,
        x_labels: true,
        legend: true,
    };
    plot.under = under(&plot, &limits);
    plot.html()
}

/// Draws the limits as lines, and a dot at every tested rate.
fn under(plot: &Plot, limits: &[f64]) -> String {
    let ends = (plot.x.low, plot.x.high);
    let limits = limits.iter().map(|us| {
        let line = plot.path(&[(ends.0, *us), (ends.1, *us)]);
        format!("<path class=\"strong\" d=\"{line}\"/>")
    });
    let dots = plot.curves.iter().flat_map(|curve| {
        let points = curve.points.iter().flatten();
        points.map(|point| {
            let dot = plot.path(&[*point, *point]);
            format!("<path class=\"d{}\" d=\"{dot}\"/>", curve.style)
        })
    });
    limits.chain(dots).collect()
}
