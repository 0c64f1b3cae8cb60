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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_cells_escape_bars() {
        let mut table = Table::new("t", &["a"]);
        table.rows.push(vec!["x|y".to_string()]);
        assert!(table.render(Format::Markdown).contains("x\\|y"));
    }
}
