//! Tables with a bar in each row, next to its numbers, so that the drawing needs no other
//! description.

use maud::{Markup, Render, html};

use super::markup::path;

/// Horizontal bar; all positions are from 0 to 1.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// Colored parts: CSS class, begin and end.
    pub segments: Vec<(String, f64, f64)>,
    /// Range over the repetitions: low and high end.
    pub whisker: Option<(f64, f64)>,
    /// Positions of thin vertical lines.
    pub lines: Vec<f64>,
    /// Position of a strong vertical line.
    pub strong: Option<f64>,
}

/// Returns the CSS class that fills with an engine's color.
pub fn engine_class(style: usize) -> String {
    format!("f{style}")
}

impl Bar {
    /// Places the parts next to each other from the left, as shares of `whole`.
    pub fn stacked(parts: &[(&str, f64)], whole: f64) -> Bar {
        let mut bar = Bar::default();
        let mut from = 0.0;
        let visible = parts
            .iter()
            .filter(|(_, value)| *value > 0.0 && whole > 0.0);
        for (class, value) in visible {
            let to = (from + value / whole).min(1.0);
            bar.segments.push(((*class).to_string(), from, to));
            from = to;
        }
        bar
    }

    fn svg(&self) -> Markup {
        let at = |place: f64| (place * 1000.0).round() as i64;
        let lines = |places: &[f64]| -> String {
            let line = |place: &f64| format!("M{} 0V10", at(*place));
            places.iter().map(line).collect()
        };
        html! {
            svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                (path("grid", &lines(&self.lines)))
                @for (class, from, to) in &self.segments {
                    (path(class, &format!("M{} 2H{}V8H{0}z", at(*from), at(*to))))
                }
                @if let Some((low, high)) = self.whisker {
                    @let (low, high) = (at(low), at(high));
                    (path("whisker", &format!("M{low} 5H{high}M{low} 3.5V6.5M{high} 3.5V6.5")))
                }
                (path("strong", &lines(self.strong.as_slice())))
            }
        }
    }
}

/// Table with a name, a bar and numbers in each row.
#[derive(Debug, Clone, Default)]
pub struct BarTable {
    /// Caption of the table.
    pub caption: String,
    /// Headers of the numbers, with units.
    pub headers: Vec<String>,
    /// Legend of the colors inside a bar: CSS class and meaning.
    pub key: Vec<(&'static str, &'static str)>,
    /// Rows: engine name, bar, formatted numbers.
    pub rows: Vec<(String, Bar, Vec<String>)>,
}

impl BarTable {
    /// Creates a table without rows.
    pub fn new(caption: String, headers: &[&str]) -> BarTable {
        BarTable {
            caption,
            headers: headers.iter().map(|header| (*header).to_string()).collect(),
            ..BarTable::default()
        }
    }
}

impl Render for BarTable {
    fn render(&self) -> Markup {
        html! {
            div.card {
                table.bars {
                    caption {
                        (self.caption)
                        @if !self.key.is_empty() {
                            ul.legend {
                                @for (class, name) in &self.key { li { i class=(class) {} (name) } }
                            }
                        }
                    }
                    thead {
                        tr;
                        th scope="col"; "engine"
                        th scope="col"; span.unseen { "bar" }
                        @for header in &self.headers { th scope="col"; (header) }
                    }
                    tbody {
                        @for (name, bar, numbers) in &self.rows {
                            tr;
                            th scope="row"; (name)
                            td.bar; (bar.svg())
                            @for number in numbers { td; (number) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_of_bars_is_unchanged() {
        let mut table = BarTable::new("CPU <us>".to_string(), &["total (us/op)"]);
        table.key.push(("p0", "client"));
        let mut bar = Bar::stacked(&[("p0", 2.0), ("p1", 0.0), ("p2", 6.0)], 10.0);
        bar.whisker = Some((0.7, 0.9));
        bar.strong = Some(0.5);
        table
            .rows
            .push(("a&b".to_string(), bar, vec!["8.00".to_string()]));
        crate::report::assert_snapshot("bars.html", &table.render().0);
    }

    #[test]
    fn nothing_is_drawn_of_an_empty_whole() {
        assert!(Bar::stacked(&[("p0", 1.0)], 0.0).segments.is_empty());
    }
}
