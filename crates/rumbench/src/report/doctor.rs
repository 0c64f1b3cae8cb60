//! Table of the machine's properties that affect a measurement.

use super::table::Table;
use crate::store::finding::{Finding, Verdict};

/// Returns the findings as a table, with advice in the notes.
pub fn machine(found: &[Finding]) -> Table {
    let mut table = Table::new("This machine", &["", "what", "found"]);
    table.text_columns = 3;
    for of in found {
        let mark = match of.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "WARN",
        };
        let row = [mark, &of.about, &of.found];
        table.rows.push(row.map(str::to_string).into());
    }
    let advice = found.iter().filter(|of| !of.advice.is_empty());
    let advice: Vec<String> = advice
        .map(|of| format!("{}: {}", of.about, of.advice))
        .collect();
    if advice.is_empty() {
        table.notes.push("Nothing to do.".to_string())
    } else {
        table.notes = advice
    }
    table
}
