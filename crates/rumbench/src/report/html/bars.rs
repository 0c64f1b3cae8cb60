//! Tables with a bar in each row, next to its numbers, so that the drawing needs no other
//! description.

use super::markup::escape;

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
    pub fn stacked(parts: &[(String, f64)], whole: f64) -> Bar {
        let mut bar = Bar::default();
        let mut from = 0.0;
        for (class, value) in parts
            .iter()
            .filter(|(_, value)| *value > 0.0 && whole > 0.0)
        {
            let to = (from + value / whole).min(1.0);
            bar.segments.push((class.clone(), from, to));
            from = to;
        }
        bar
    }

    fn svg(&self) -> String {
        let at = |place: f64| (place * 1000.0).round() as i64;
        let lines = |places: &[f64]| {
            places
                .iter()
                .map(|place| format!("M{} 0V10", at(*place)))
                .collect::<String>()
        };
        let mut out = String::from(
            "<svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        );
        if !self.lines.is_empty() {
            out += &format!("<path class=\"grid\" d=\"{}\"/>", lines(&self.lines));
        }
        for (class, from, to) in &self.segments {
            out += &format!(
                "<path class=\"{class}\" d=\"M{} 2H{}V8H{0}z\"/>",
                at(*from),
                at(*to)
            );
        }
        if let Some((low, high)) = self.whisker {
            out += &format!(
                "<path class=\"whisker\" d=\"M{} 5H{}M{0} 3.5V6.5M{1} 3.5V6.5\"/>",
                at(low),
                at(high)
            );
        }
        if let Some(place) = self.strong {
            out += &format!("<path class=\"strong\" d=\"{}\"/>", lines(&[place]));
        }
        out + "</svg>"
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
    pub key: Vec<(String, String)>,
    /// Rows: engine name, bar, formatted numbers.
    pub rows: Vec<(String, Bar, Vec<String>)>,
}

impl BarTable {
    /// Creates a table without rows.
    pub fn new(caption: String, headers: Vec<String>) -> BarTable {
        BarTable {
            caption,
            headers,
            ..BarTable::default()
        }
    }

    /// Renders the table as HTML.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<div class=\"card\"><table class=\"bars\"><caption>{}",
            escape(&self.caption)
        );
        if !self.key.is_empty() {
            let entries = self
                .key
                .iter()
                .map(|(class, name)| format!("<li><i class=\"{class}\"></i>{}</li>", escape(name)));
            out += &format!("<ul class=\"legend\">{}</ul>", entries.collect::<String>());
        }
        out += "</caption>\n<thead><tr><th scope=\"col\">engine<th scope=\"col\"><span class=\"unseen\">bar</span>";
        for header in &self.headers {
            out += &format!("<th scope=\"col\">{}", escape(header));
        }
        out += "</thead><tbody>\n";
        for (name, bar, numbers) in &self.rows {
            out += &format!(
                "<tr><th scope=\"row\">{}<td class=\"bar\">{}",
                escape(name),
                bar.svg()
            );
            for number in numbers {
                out += &format!("<td>{}", escape(number));
            }
            out.push('\n');
        }
        out + "</tbody></table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_of_bars_is_unchanged() {
        let mut table = BarTable::new("CPU <us>".to_string(), vec!["total (us/op)".to_string()]);
        table.key.push(("p0".to_string(), "client".to_string()));
        let parts = [
            ("p0".to_string(), 2.0),
            ("p1".to_string(), 0.0),
            ("p2".to_string(), 6.0),
        ];
        let mut bar = Bar::stacked(&parts, 10.0);
        bar.whisker = Some((0.7, 0.9));
        bar.strong = Some(0.5);
        table
            .rows
            .push(("a&b".to_string(), bar, vec!["8.00".to_string()]));
        crate::report::assert_snapshot("bars.html", &table.html());
    }

    #[test]
    fn nothing_is_drawn_of_an_empty_whole() {
        assert!(
            Bar::stacked(&[("p0".to_string(), 1.0)], 0.0)
                .segments
                .is_empty()
        );
    }
}
