//! Counters of a server, as it names them.

use std::collections::BTreeMap;

use rumbench_core::engine::Counter;

/// Converts rows of name and number to counters; keeps only the `wanted` names.
pub(super) fn counters(rows: &[Vec<String>], wanted: &[(&str, &str)]) -> Vec<Counter> {
    let found: BTreeMap<String, f64> = rows
        .iter()
        .filter_map(|row| {
            let (name, value) = (row.first()?, row.get(1)?);
            Some((name.to_ascii_lowercase(), value.parse().ok()?))
        })
        .collect();
    let counter = |(theirs, ours): &(&str, &str)| {
        let value = *found.get(*theirs)?;
        Some(Counter {
            name: (*ours).to_string(),
            value,
        })
    };
    wanted.iter().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_that_were_asked_for_and_that_are_numbers() {
        let rows = [["Reads", "5"], ["State", "good"], ["Other", "1"]];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.map(str::to_string).to_vec())
            .collect();
        let found = counters(
            &rows,
            &[
                ("reads", "page_reads"),
                ("state", "state"),
                ("none", "none"),
            ],
        );
        let found: Vec<(String, f64)> = found.into_iter().map(|c| (c.name, c.value)).collect();
        assert_eq!(found, [("page_reads".to_string(), 5.0)]);
    }
}
