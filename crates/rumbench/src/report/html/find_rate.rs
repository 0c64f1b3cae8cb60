//! Section for a search of the highest rate: a sentence for each engine, response time against rate
//! with the limit as a line, and the tables of the text report.

use maud::{Markup, html};

use super::markup::{engine_line, path};
use super::page::style;
use super::plot::{Curve, Plot};
use super::scale::{Axis, Unit};
use crate::report::find_rate::{self as rows, FIGURES, Figure, figure_of};
use crate::report::sweep::whole;
use crate::report::{ReportOptions, decision};
use crate::store::rate_search::{FoundRate, RateSearch};
use crate::store::result::SuiteResult;

/// Renders the section that leads the page. Empty for a suite without a search.
pub fn html(suite: &SuiteResult, styles: &[String], options: &ReportOptions) -> Markup {
    let Some(search) = &suite.rate_search else {
        return Markup::default();
    };
    let id = |i| match i {
        0 => "verdict".to_string(),
        i => format!("rate-{i}"),
    };
    html! {
        @for (i, whole) in whole(suite, options.mix_durability).iter().enumerate() {
            @let own = rows::own(search, whole);
            section {
                h2 id=(id(i)) { "Highest rate" }
                p class="note pre" { (whole.title) }
                ul.verdict {
                    @for found in &own {
                        @let sentence = format_args!("{}.", found.judgment);
                        (engine_line(style(styles, &found.engine), &found.engine, sentence))
                    }
                }
                @for figure in figures(search) { (chart(search, &own, styles, figure)) }
                (rows::highest(search, &own))
                @if let Some(table) = rows::at_share(suite, search, &own) { (table) }
                (rows::curve(search, &own, false))
                @if let Some(table) = decision::of_points(suite, whole, options.endurance_tb) {
                    (table)
                }
            }
        }
    }
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
fn chart(search: &RateSearch, own: &[&FoundRate], styles: &[String], figure: Figure) -> Plot {
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
    let (x, y) = (
        Axis::linear(far, Unit::Number),
        Axis::log(low, high, Unit::Microseconds),
    );
    let mut plot = Plot::new(
        format!("{name} of response times by rate (op/s)"),
        x,
        y,
        curves,
    );
    if !limits.is_empty() {
        plot.title += "; dark line: the limit";
    }
    let ends = (plot.x.low, plot.x.high);
    plot.under = html! {
        @for us in limits { (path("strong", &plot.path(&[(ends.0, us), (ends.1, us)]))) }
        (plot.dots())
    };
    plot
}
