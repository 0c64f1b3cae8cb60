//! A table of text cells, as aligned text or as Markdown.

use std::collections::BTreeMap;

/// Output format of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns aligned by spaces.
    #[default]
    Text,
    /// GitHub's Markdown.
    Markdown,
}

/// Meaning of a cell's background. Only HTML shows it; in text a letter, a sign or the number
/// itself has the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    /// In the better quarter of its column.
    Good,
    /// In the worse quarter of its column.
    Bad,
    /// Missed its rate; also used for the row of requested rates.
    Missed,
    /// Above the base by more than a twentieth.
    Above,
    /// Below the base by more than a twentieth.
    Below,
    /// A share of the whole, in twentieths.
    Share(u8),
}

/// Title, headers with units, rows, notes.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Title, one line above the table.
    pub title: String,
    /// Column headers, with the unit.
    pub headers: Vec<String>,
    /// Number of columns from the left with text instead of numbers.
    pub text_columns: usize,
    /// Rows of formatted cells.
    pub rows: Vec<Vec<String>>,
    /// Lines below the table.
    pub notes: Vec<String>,
    /// Tinted cells, by row and column.
    pub tints: BTreeMap<(usize, usize), Tint>,
}

impl Table {
    /// Creates a table without rows with text in the first column.
    pub fn new(title: impl Into<String>, headers: &[&str]) -> Table {
        Table {
            title: title.into(),
            headers: headers.iter().map(|header| (*header).to_string()).collect(),
            text_columns: 1,
            ..Table::default()
        }
    }

    /// Tints the last cell of the last row.
    pub fn tint_last(&mut self, tint: Option<Tint>) {
        let row = self.rows.len().checked_sub(1);
        let cell = row.and_then(|row| Some((row, self.rows[row].len().checked_sub(1)?)));
        self.tints.extend(cell.zip(tint));
    }

    /// Renders the table, ending with a newline.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Markdown => self.markdown(),
        }
    }

    fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.headers.len())
            .map(|column| self.width(column))
            .collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, &width))| {
                    if i < self.text_columns {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            format!("{}\n", padded.join("  ").trim_end())
        };
        let mut out = format!("{}\n{}", self.title, line(&self.headers));
        for row in &self.rows {
            out += &line(row);
        }
        for note in &self.notes {
            out += &format!("{note}\n");
        }
        out
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells
            .chain(self.headers.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let escaped: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", escaped.join(" | "))
        };
        let rule: Vec<&str> = (0..self.headers.len())
            .map(|i| if i < self.text_columns { "---" } else { "---:" })
            .collect();
        let mut out = format!("### {}\n\n{}", self.title, line(&self.headers));
        out += &format!("| {} |\n", rule.join(" | "));
        for row in &self.rows {
            out += &line(row);
        }
        for note in &self.notes {
            out += &format!("\n{note}\n");
        }
        out
    }
}

/// Converts bytes to GiB.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Formats a number with about three significant digits and separated thousands; `-` if nothing was
/// measured.
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return "-".to_string();
    };
    match value.abs() {
        0.0 => "0".to_string(),
        size if size < 0.0095 => format!("{value:.4}"),
        size if size < 0.995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => thousands(value.round()),
    }
}

/// Formats a count: a whole number with separated thousands.
pub fn count(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| thousands(value.round()))
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits_and_separate_thousands() {
        let text = |value| number(Some(value));
        assert_eq!(text(1234567.8), "1,234,568");
        assert_eq!(text(0.1234), "0.123");
        assert_eq!(text(12.34), "12.3");
        assert_eq!(text(99.97), "100");
        assert_eq!(count(Some(6.0)), "6");
        assert_eq!(
            (number(None), text(f64::NAN)),
            ("-".to_string(), "-".to_string())
        );
    }

    #[test]
    fn markdown_cells_escape_bars() {
        let mut table = Table::new("t", &["a"]);
        table.rows.push(vec!["x|y".to_string()]);
        assert!(table.render(Format::Markdown).contains("x\\|y"));
    }
}
