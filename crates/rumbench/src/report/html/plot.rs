//! One chart: a frame with axes. Its labels are HTML and its curves SVG.
//!
//! The drawing is stretched to the width of the page while strokes and text keep their size. So a
//! chart is as readable on a phone as on a wide screen and in print. Curves differ in color and in
//! dashes. Coordinates are thousandths of the frame. The script converts them back to show the
//! values at the pointer, so that no number is written twice.

use maud::{Markup, Render, html};

use super::markup::{path, swatch};
use super::scale::{Axis, Kind, Unit, label};
use super::series::Bucket;

/// Length of both sides of the drawing in its own coordinates.
const SIDE: f64 = 1000.0;

/// Curve of one engine, with an optional band.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// Index of the engine: color and dashes.
    pub style: usize,
    /// Name in the legend.
    pub name: String,
    /// Points from left to right; `None` interrupts the curve.
    pub points: Vec<Option<(f64, f64)>>,
    /// Range around the curve: x, lowest and highest value. Empty without a band.
    pub band: Vec<Option<(f64, f64, f64)>>,
}

impl Curve {
    /// Creates a curve from the means of buckets; `band` adds the range between their lowest and
    /// highest values.
    pub fn of_buckets(style: usize, name: &str, buckets: &[Option<Bucket>], band: bool) -> Curve {
        let points = buckets.iter().map(|b| b.map(|b| (b.middle(), b.mean)));
        let bands = buckets
            .iter()
            .map(|b| b.map(|b| (b.middle(), b.low, b.high)));
        Curve {
            style,
            name: name.to_string(),
            points: points.collect(),
            band: if band { bands.collect() } else { Vec::new() },
        }
    }
}

/// Chart with its axes, curves and options.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Title, with the unit.
    pub title: String,
    /// Content in words, for screen readers.
    pub alternative: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Curves, drawn so that the first is on top.
    pub curves: Vec<Curve>,
    /// SVG below the curves, in thousandths of the frame.
    pub under: Markup,
    /// True for a low chart in a stack.
    pub strip: bool,
    /// True to draw the labels of the horizontal axis.
    pub x_labels: bool,
    /// True to list the names of the curves above the chart; a group of charts needs them once.
    pub legend: bool,
}

impl Plot {
    /// Creates a chart of full size with all labels. Its alternative text is the title with the
    /// lowest, mean and highest value of each curve.
    pub fn new(title: String, x: Axis, y: Axis, curves: Vec<Curve>) -> Plot {
        let words = |curve: &Curve| format!("{}: {}", curve.name, in_words(curve, y.unit));
        let words: Vec<String> = curves.iter().map(words).collect();
        Plot {
            alternative: format!("{title}. {}", words.join("; ")),
            title,
            x,
            y,
            curves,
            under: Markup::default(),
            strip: false,
            x_labels: true,
            legend: true,
        }
    }

    /// Renders the frame: labels on both sides of the drawing.
    fn frame(&self) -> Markup {
        // Strips are left out, because a stack of them would be many stops for the keyboard.
        let stop = (!self.strip).then_some("0");
        let names: Vec<&str> = self.x.ticks.iter().map(|(_, name)| name.as_str()).collect();
        let names = (self.x.unit == Unit::Names).then(|| names.join("|"));
        html! {
            (self.y_labels())
            svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" tabindex=[stop]
                aria-label=(self.alternative) data-y=(self.range()) data-x=[self.time()]
                data-names=[names]
            {
                @if !self.strip { (self.grid()) }
                (self.under)
                @for curve in self.curves.iter().rev() {
                    (path(format_args!("b{}", curve.style), &self.band(curve)))
                }
                @for curve in self.curves.iter().rev() {
                    (path(format_args!("s{}", curve.style), &self.curve(curve)))
                }
            }
            @if self.x_labels { (self.x_labels()) }
        }
    }

    /// Returns the path of a line through points in the coordinates of the drawing.
    pub fn path(&self, points: &[(f64, f64)]) -> String {
        polyline('M', points.iter().map(|(x, y)| self.at(*x, *y)))
    }

    /// Draws a dot at every point of the curves: a stroke of zero length with round ends.
    pub fn dots(&self) -> Markup {
        html! {
            @for curve in &self.curves {
                @for point in curve.points.iter().flatten() {
                    (path(format_args!("d{}", curve.style), &self.path(&[*point, *point])))
                }
            }
        }
    }

    fn at(&self, x: f64, y: f64) -> (i64, i64) {
        let across = (self.x.place(x) * SIDE).round() as i64;
        (across, ((1.0 - self.y.place(y)) * SIDE).round() as i64)
    }

    /// Returns both ends of the vertical axis, with its unit and kind. The script turns coordinates
    /// into values with it.
    fn range(&self) -> String {
        let unit = if self.y.unit == Unit::Microseconds {
            "us"
        } else {
            "n"
        };
        let kind = if self.y.kind == Kind::Log {
            "log"
        } else {
            "linear"
        };
        format!("{} {} {unit} {kind}", self.y.low, self.y.high)
    }

    /// Returns both ends of the horizontal axis, with its unit if that is not time. Strips use the
    /// time axis of their stack.
    fn time(&self) -> Option<String> {
        let unit = if self.x.unit == Unit::Number {
            " n"
        } else {
            ""
        };
        (!self.strip).then(|| format!("{} {}{unit}", self.x.low, self.x.high))
    }

    fn grid(&self) -> Markup {
        let line =
            |(value, _): &(f64, String)| format!("M0 {}H1000", self.at(self.x.low, *value).1);
        path("grid", &self.y.ticks.iter().map(line).collect::<String>())
    }

    fn y_labels(&self) -> Markup {
        if self.strip {
            // Strips label only the upper end: they begin at 0, and readers look for the longest
            // response time.
            let highest = self.y.ticks.last().map_or("", |(_, label)| label.as_str());
            return html! { div.y { span { (highest) } } };
        }
        html! {
            div.y aria-hidden="true" {
                @for (value, label) in &self.y.ticks {
                    @let top = (1.0 - self.y.place(*value)) * 100.0;
                    span style=(format_args!("top:{top:.0}%")) { (label) }
                }
            }
        }
    }

    fn x_labels(&self) -> Markup {
        let every = match self.x.unit {
            Unit::Names => crowding(&self.x),
            _ => 1,
        };
        html! {
            div.x aria-hidden="true" {
                @for (value, label) in self.x.ticks.iter().step_by(every) {
                    @let place = self.x.place(*value);
                    @let class = match place {
                        0.0 => Some("first"),
                        p if p > 0.96 => Some("last"),
                        _ => None,
                    };
                    @let style = format!("left:{:.0}%", place * 100.0);
                    span class=[class] style=(style) { (label) }
                }
            }
        }
    }

    fn curve(&self, curve: &Curve) -> String {
        let mut path = String::new();
        let parts = curve.points.split(Option::is_none);
        for part in parts.map(|part| part.iter().flatten().copied().collect::<Vec<_>>()) {
            if let [(x, y)] = part[..] {
                // A single point: a stroke of zero length with round ends is a dot.
                let (x, y) = self.at(x, y);
                path += &format!("M{x} {y}h0");
            } else {
                path += &polyline('M', part.iter().map(|(x, y)| self.at(*x, *y)));
            }
        }
        path
    }

    fn band(&self, curve: &Curve) -> String {
        let mut path = String::new();
        for part in curve.band.split(Option::is_none) {
            let part: Vec<_> = part.iter().flatten().copied().collect();
            if part.len() > 1 {
                path += &polyline('M', part.iter().map(|(x, _, high)| self.at(*x, *high)));
                path += &polyline('L', part.iter().rev().map(|(x, low, _)| self.at(*x, *low)));
                path.push('z');
            }
        }
        path
    }
}

impl Render for Plot {
    fn render(&self) -> Markup {
        if self.strip {
            return html! { div.frame { p { (self.title) } (self.frame()) } };
        }
        html! {
            figure.plot {
                figcaption { (self.title) }
                @if self.legend && self.curves.len() > 1 { (legend(&self.curves)) }
                div.frame { (self.frame()) }
            }
        }
    }
}

/// Returns the n for which every n-th name has room below a chart on a phone.
fn crowding(axis: &Axis) -> usize {
    /// Characters that fit, including spaces, measured at 360 pixels.
    const ROOM: usize = 30;
    let names = axis.ticks.iter();
    let longest = names
        .map(|(_, name)| name.chars().count())
        .max()
        .unwrap_or(0)
        + 1;
    axis.ticks.len().div_ceil((ROOM / longest).max(1))
}

/// Returns a path through points, with relative coordinates after the first to keep it short.
fn polyline(first: char, points: impl Iterator<Item = (i64, i64)>) -> String {
    let mut out = String::new();
    let mut last: Option<(i64, i64)> = None;
    for (x, y) in points {
        match last {
            None => out += &format!("{first}{x} {y}"),
            Some((px, py)) => {
                let (dx, dy) = (x - px, y - py);
                let separator = if dy < 0 { "" } else { " " };
                out += &format!("l{dx}{separator}{dy}");
            }
        }
        last = Some((x, y));
    }
    out
}

/// Renders the names of the curves, each with a sample of its line.
pub fn legend(curves: &[Curve]) -> Markup {
    html! {
        ul.legend {
            @for curve in curves {
                li class={ "k" (curve.style) } { (swatch(curve.style)) (curve.name) }
            }
        }
    }
}

/// Formats the lowest, mean and highest value of a curve.
pub fn in_words(curve: &Curve, unit: Unit) -> String {
    let values: Vec<f64> = curve.points.iter().flatten().map(|(_, y)| *y).collect();
    if values.is_empty() {
        return "no values".to_string();
    }
    let band = |pick: fn(&(f64, f64, f64)) -> f64| {
        curve.band.iter().flatten().map(pick).collect::<Vec<_>>()
    };
    let lowest = band(|b| b.1)
        .into_iter()
        .chain(values.iter().copied())
        .fold(f64::INFINITY, f64::min);
    let highest = band(|b| b.2)
        .into_iter()
        .chain(values.iter().copied())
        .fold(f64::NEG_INFINITY, f64::max);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    format!(
        "lowest {}, mean {}, highest {}",
        label(lowest, unit),
        label(mean, unit),
        label(highest, unit)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::series::buckets;

    fn plot(curves: Vec<Curve>) -> Plot {
        let (x, y) = (Axis::time(4.0), Axis::linear(100.0, Unit::Number));
        Plot {
            alternative: "a \"chart\"".to_string(),
            ..Plot::new("Throughput <of> it (op/s)".to_string(), x, y, curves)
        }
    }

    #[test]
    fn a_small_chart_is_unchanged() {
        let seconds = vec![Some(0.0), Some(50.0), None, Some(100.0)];
        let curve = Curve::of_buckets(3, "a&b", &buckets(&[seconds], 1), true);
        crate::report::assert_snapshot("plot.html", &plot(vec![curve]).render().0);
    }

    #[test]
    fn a_chart_without_values_has_a_frame_and_no_curve() {
        let html = plot(vec![Curve::default()]).render().0;
        assert!(
            html.contains("class=\"grid\"") && !html.contains("class=\"s0\""),
            "{html}"
        );
    }
}
