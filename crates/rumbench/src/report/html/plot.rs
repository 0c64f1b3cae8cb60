//! One chart: a frame with axes. Its labels are HTML and its curves SVG.
//!
//! The drawing is stretched to the width of the page while strokes and text keep their size. So a
//! chart is as readable on a phone as on a wide screen and in print. Curves differ in color and in
//! dashes. Coordinates are thousandths of the frame. The script converts them back to show the
//! values at the pointer, so that no number is written twice.

use super::markup::escape;
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
    pub under: String,
    /// True for a low chart in a stack.
    pub strip: bool,
    /// True to draw the labels of the horizontal axis.
    pub x_labels: bool,
    /// True to list the names of the curves above the chart; a group of charts needs them once.
    pub legend: bool,
}

impl Plot {
    /// Renders the chart as a figure.
    pub fn html(&self) -> String {
        let mut out = if self.strip {
            format!("<div class=\"frame\"><p>{}</p>", escape(&self.title))
        } else {
            format!(
                "<figure class=\"plot\"><figcaption>{}</figcaption>\n",
                escape(&self.title)
            )
        };
        if self.legend && self.curves.len() > 1 {
            out += &legend(&self.curves);
        }
        if !self.strip {
            out += "<div class=\"frame\">";
        }
        out += &self.y_labels();
        out += &format!(
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\"{} aria-label=\"{}\"{}>",
            // Strips are left out, because a stack of them would be many stops for the keyboard.
            if self.strip { "" } else { " tabindex=\"0\"" },
            escape(&self.alternative),
            self.data()
        );
        if !self.strip {
            out += &self.grid();
        }
        out += &self.under;
        for curve in self.curves.iter().rev() {
            out += &self.band(curve);
        }
        for curve in self.curves.iter().rev() {
            out += &self.curve(curve);
        }
        out += "</svg>";
        out += &self.x_labels();
        out + if self.strip {
            "</div>\n"
        } else {
            "</div></figure>\n"
        }
    }

    /// Returns the path of a line through points in the coordinates of the drawing.
    pub fn path(&self, points: &[(f64, f64)]) -> String {
        polyline('M', points.iter().map(|(x, y)| self.at(*x, *y)))
    }

    fn at(&self, x: f64, y: f64) -> (i64, i64) {
        let across = (self.x.place(x) * SIDE).round() as i64;
        (across, ((1.0 - self.y.place(y)) * SIDE).round() as i64)
    }

    /// Returns the attributes with which the script turns coordinates into values. Strips use the
    /// time axis of their stack.
    fn data(&self) -> String {
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
        let mut data = format!(" data-y=\"{} {} {unit} {kind}\"", self.y.low, self.y.high);
        if !self.strip {
            data += &self.time();
        }
        if self.x.unit == Unit::Names {
            let names: Vec<&str> = self.x.ticks.iter().map(|(_, name)| name.as_str()).collect();
            data += &format!(" data-names=\"{}\"", escape(&names.join("|")));
        }
        data
    }

    /// Returns both ends of the horizontal axis, with its unit if that is not time.
    fn time(&self) -> String {
        let unit = if self.x.unit == Unit::Number {
            " n"
        } else {
            ""
        };
        format!(" data-x=\"{} {}{unit}\"", self.x.low, self.x.high)
    }

    fn grid(&self) -> String {
        let lines = self
            .y
            .ticks
            .iter()
            .map(|(value, _)| format!("M0 {}H1000", self.at(self.x.low, *value).1));
        format!("<path class=\"grid\" d=\"{}\"/>", lines.collect::<String>())
    }

    fn y_labels(&self) -> String {
        if self.strip {
            // Strips label only the upper end: they begin at 0, and readers look for the longest
            // response time.
            let highest = self.y.ticks.last().map_or("", |(_, label)| label.as_str());
            return format!("<div class=\"y\"><span>{}</span></div>", escape(highest));
        }
        let labels = self.y.ticks.iter().map(|(value, label)| {
            let top = (1.0 - self.y.place(*value)) * 100.0;
            format!("<span style=\"top:{top:.0}%\">{}</span>", escape(label))
        });
        format!(
            "<div class=\"y\" aria-hidden=\"true\">{}</div>",
            labels.collect::<String>()
        )
    }

    fn x_labels(&self) -> String {
        if !self.x_labels {
            return String::new();
        }
        let every = match self.x.unit {
            Unit::Names => crowding(&self.x),
            _ => 1,
        };
        let labels = self.x.ticks.iter().step_by(every).map(|(value, label)| {
            let place = self.x.place(*value);
            let class = match place {
                0.0 => " class=\"first\"",
                p if p > 0.96 => " class=\"last\"",
                _ => "",
            };
            format!(
                "<span{class} style=\"left:{:.0}%\">{}</span>",
                place * 100.0,
                escape(label)
            )
        });
        format!(
            "<div class=\"x\" aria-hidden=\"true\">{}</div>",
            labels.collect::<String>()
        )
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
        if path.is_empty() {
            return String::new();
        }
        format!("<path class=\"s{}\" d=\"{path}\"/>", curve.style)
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
        if path.is_empty() {
            return String::new();
        }
        format!("<path class=\"b{}\" d=\"{path}\"/>", curve.style)
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
pub fn legend(curves: &[Curve]) -> String {
    let entries = curves.iter().map(|curve| {
        format!(
            "<li class=\"k{}\">{}{}</li>",
            curve.style,
            swatch(curve.style),
            escape(&curve.name)
        )
    });
    format!(
        "<ul class=\"legend\">{}</ul>\n",
        entries.collect::<String>()
    )
}

/// Renders a sample of an engine's line.
pub fn swatch(style: usize) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path class=\"s{style}\" d=\"M1 4H27\"/></svg>"
    )
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
        Plot {
            title: "Throughput <of> it (op/s)".to_string(),
            alternative: "a \"chart\"".to_string(),
            x: Axis::time(4.0),
            y: Axis::linear(100.0, Unit::Number),
            curves,
            under: String::new(),
            strip: false,
            x_labels: true,
            legend: true,
        }
    }

    #[test]
    fn a_small_chart_is_unchanged() {
        let seconds = vec![Some(0.0), Some(50.0), None, Some(100.0)];
        let curve = Curve::of_buckets(3, "a&b", &buckets(&[seconds], 1), true);
        crate::report::assert_snapshot("plot.html", &plot(vec![curve]).html());
    }

    #[test]
    fn a_chart_without_values_has_a_frame_and_no_curve() {
        let html = plot(vec![Curve::default()]).html();
        assert!(
            html.contains("class=\"grid\"") && !html.contains("class=\"s0\""),
            "{html}"
        );
    }
}
