//! Heat map of response times: the distribution of response times in each bucket of time.

use maud::{Markup, html};

use super::markup::path;
use super::scale::{Axis, Unit};
use crate::store::result::PhaseResult;

/// Shares of a column's operations at which the next deeper color begins.
const LEVELS: [f64; 4] = [0.001, 0.01, 0.1, 0.3];

/// Drawing of a heat map, with its axis.
pub struct Heat {
    /// Cells as SVG, in thousandths of the frame.
    pub svg: Markup,
    /// Axis of response times.
    pub y: Axis,
    /// Alternative text: the most frequent response times and the longest one.
    pub alternative: String,
}

/// Draws the heat map of a phase. `None` if its intervals hold no counts by class.
pub fn map(phase: &PhaseResult, width: usize, seconds: usize) -> Option<Heat> {
    let classes = phase
        .intervals
        .iter()
        .map(|interval| interval.response_counts.len())
        .max()?
        .min(64);
    let columns = columns(phase, classes, width);
    let used = |row: &Vec<f64>| row.iter().any(|&count| count > 0.0);
    let (first, last) = (
        columns.iter().position(used)?,
        columns.iter().rposition(used)?,
    );
    let y = Axis::log(edges(first).0, edges(last).1, Unit::Microseconds);
    let column_total = |i: usize| columns.iter().map(|row| row[i]).sum::<f64>();
    let totals: Vec<f64> = (0..columns[first].len()).map(column_total).collect();
    let mut paths = vec![String::new(); LEVELS.len() + 1];
    // Cells use buckets and classes as coordinates, the longest class first, and are scaled to the
    // frame: this keeps the paths short.
    let end = seconds as f64 / width as f64;
    for (row, class) in (first..=last).rev().enumerate() {
        let counts = columns[class].iter().zip(&totals);
        let levels: Vec<_> = counts.map(|(&count, &total)| level(count, total)).collect();
        cells(&levels, row, end, &mut paths);
    }
    let top = 1.0 - y.place(edges(last).1);
    let height = y.place(edges(last).1) - y.place(edges(last).0);
    let scale = format!(
        "translate(0 {:.1}) scale({:.3} {:.2})",
        top * 1000.0,
        1000.0 / end,
        height * 1000.0
    );
    let svg = html! {
        g transform=(scale) {
            @for (level, d) in paths.iter().enumerate() { (path(format_args!("h{level}"), d)) }
        }
    };
    let sums = columns.iter().map(|row| row.iter().sum::<f64>());
    let (most, _) = sums.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (low, high) = edges(most);
    let alternative = format!(
        "most operations took {low:.0} to {high:.0} us, the longest up to {:.0} us",
        edges(last).1
    );
    Some(Heat {
        svg,
        y,
        alternative,
    })
}

/// Returns the number of operations by class and bucket of time.
fn columns(phase: &PhaseResult, classes: usize, width: usize) -> Vec<Vec<f64>> {
    let whole = super::over_time::seconds(phase, |_| None).len();
    let mut columns = vec![vec![0.0; whole.div_ceil(width)]; classes];
    for interval in &phase.intervals {
        let second = usize::try_from(interval.second).unwrap_or(usize::MAX);
        let counts = interval.response_counts.iter().take(classes).enumerate();
        for (class, &count) in counts.filter(|_| second < whole) {
            columns[class][second / width] += count as f64;
        }
    }
    columns
}

/// Returns the shortest and longest response of a class in microseconds.
fn edges(class: usize) -> (f64, f64) {
    let high = 2f64.powi(class as i32);
    (high / 2.0, high)
}

fn level(count: f64, total: f64) -> Option<usize> {
    (count > 0.0).then(|| {
        LEVELS
            .iter()
            .filter(|&&limit| count / total >= limit)
            .count()
    })
}

/// Draws adjacent cells of one level as one stroke, as thick as a row.
fn cells(levels: &[Option<usize>], row: usize, end: f64, paths: &mut [String]) {
    let mut from = 0;
    for run in levels.chunk_by(|a, b| a == b) {
        let to = from + run.len();
        if let Some(level) = run[0] {
            let width = ((to as f64).min(end) - from as f64).max(0.0);
            let width = format!("{width:.1}");
            paths[level] += &format!("M{from} {row}.5h{}", width.trim_end_matches(".0"));
        }
        from = to;
    }
}

/// Renders the legend of the colors.
pub fn key() -> Markup {
    let names = ["below 0.1 %", "0.1 %", "1 %", "10 %", "30 % and more"];
    html! {
        ul.legend {
            li { "Heat map, share of the operations at that time:" }
            @for (level, name) in names.iter().enumerate() {
                li { i class={ "h" (level) } {} (name) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::Interval;

    #[test]
    fn cells_are_colored_by_their_share_and_joined() {
        let interval = |second, counts: &[u64]| Interval {
            second,
            response_counts: counts.to_vec(),
            ..Interval::default()
        };
        let phase = PhaseResult {
            seconds: 4.0,
            intervals: vec![
                interval(0, &[0, 0, 999, 1]),
                interval(1, &[0, 0, 999, 1]),
                interval(2, &[]),
                interval(3, &[0, 0, 10]),
            ],
            ..PhaseResult::default()
        };
        let heat = map(&phase, 1, 4).unwrap();
        // 2 to 4 us is the largest share in seconds 0, 1 and 3; 4 to 8 us is the thousandth
        // operation in 0 and 1.
        assert_eq!(heat.svg.0.matches('M').count(), 3, "{}", heat.svg.0);
        assert!(
            heat.svg.0.contains("class=\"h4\" d=\"M0 ")
                && heat.svg.0.contains("class=\"h1\" d=\"M0 "),
            "{}",
            heat.svg.0
        );
        assert_eq!(
            heat.alternative,
            "most operations took 2 to 4 us, the longest up to 8 us"
        );
        assert!(map(&PhaseResult::default(), 1, 4).is_none());
    }
}
