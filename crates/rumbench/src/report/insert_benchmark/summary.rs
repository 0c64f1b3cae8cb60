//! The three summary tables with the published rules for colors: absolute, relative to the first
//! engine, background inserts.
//!
//! Text has a letter for each color of the page. `G` is green (top quarter), `R` is red (bottom
//! quarter), and `!` is a missed rate (gray, shown in addition to a color too). In the relative
//! table `+` is above 1.05 (blue) and `-` is below 0.95 (yellow).

use super::super::marks::background_rate_unmet;
use super::super::selection::Group;
use super::super::table::{Table, Tint};
use super::steps::{is_query, rate};
use crate::store::result::PhaseResult;
use crate::text::{count, number};

/// Returns the published colors of a column. Each row has its value, and true if it reached its
/// rate.
pub fn colors(column: &[(f64, bool)]) -> Vec<Option<Tint>> {
    // Ratio of lowest to highest value from which nothing in the column is bad.
    const CLOSE: f64 = 0.8;
    let min = column.iter().map(|cell| cell.0).reduce(f64::min);
    let met = column.iter().filter(|cell| cell.1);
    let max = met.map(|cell| cell.0).reduce(f64::max);
    let color = |(value, met): &(f64, bool)| {
        let min = min.filter(|_| column.len() > 1)?;
        // If no row reached its rate, there is no maximum: nothing is green or red.
        let (bottom, top) = match max {
            Some(max) => {
                let quarter = (max - min) / 4.0;
                let bottom = (min < CLOSE * max).then_some(min + quarter);
                (bottom, Some(max - quarter))
            }
            None => (None, None),
        };
        if bottom.is_some_and(|bottom| *value <= bottom) {
            Some(Tint::Bad)
        } else if !met {
            Some(Tint::Missed)
        } else {
            top.filter(|top| value >= top).map(|_| Tint::Good)
        }
    };
    column.iter().map(color).collect()
}

/// Returns the mark and color of a ratio, by its integer percent.
pub fn relative_mark(ratio: f64) -> (&'static str, Option<Tint>) {
    match (ratio * 100.0).round() {
        percent if percent < 95.0 => (" -", Some(Tint::Below)),
        percent if percent > 105.0 => (" +", Some(Tint::Above)),
        _ => ("", None),
    }
}

/// Returns an engine's value in a phase, and true if it reached its rate.
fn cell(group: &Group<'_>, engine: &str, phase: &str) -> Option<(f64, bool)> {
    let missed = is_query(phase) && group.of(engine, phase).any(background_rate_unmet);
    Some((group.median(engine, phase, rate)?, !missed))
}

/// Returns the inserts per second of load and write steps, and the queries per second of the
/// others.
pub fn absolute(group: &Group<'_>, phases: &[String]) -> Table {
    let mut table = Table::new(
        "Summary: rows inserted per second (l.*), queries per second (q*), median of repetitions",
        &["engine"],
    );
    table.headers.extend(phases.iter().cloned());
    let engines = group.engines();
    table.rows = engines
        .iter()
        .map(|engine| vec![group.label(engine)])
        .collect();
    for phase in phases {
        let cells: Vec<_> = engines
            .iter()
            .map(|engine| cell(group, engine, phase))
            .collect();
        let present: Vec<(f64, bool)> = cells.iter().flatten().copied().collect();
        let mut colors = colors(&present).into_iter();
        for (number, (row, cell)) in table.rows.iter_mut().zip(cells).enumerate() {
            let Some((value, met)) = cell else {
                row.push("-".to_string());
                continue;
            };
            let tint = colors.next().flatten();
            let color = match tint {
                Some(Tint::Bad) => " R",
                Some(Tint::Good) => " G",
                _ => "",
            };
            let missed = if met { "" } else { " !" };
            table
                .tints
                .extend(tint.map(|tint| ((number, row.len()), tint)));
            row.push(format!("{}{color}{missed}", count(Some(value))));
        }
    }
    table.notes.push(
        "G: in the top quarter of its column, R: in the bottom quarter, !: below 95 % of the background inserts that were asked for"
            .to_string(),
    );
    table
}

/// Returns the throughput divided by that of the base.
pub fn relative(group: &Group<'_>, phases: &[String], base: &str) -> Table {
    let mut table = Table::new(
        format!("Summary: throughput relative to {base}"),
        &["engine"],
    );
    table.headers.extend(phases.iter().cloned());
    for (number, engine) in group.engines().into_iter().enumerate() {
        let mut row = vec![group.label(&engine)];
        for phase in phases {
            let of = |name: &str| group.median(name, phase, rate);
            let ratio = of(&engine).zip(of(base)).map(|(mine, base)| mine / base);
            let (mark, tint) = ratio.map_or(("", None), relative_mark);
            table
                .tints
                .extend(tint.map(|tint| ((number, row.len()), tint)));
            row.push(ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}{mark}")));
        }
        table.rows.push(row);
    }
    table.notes.push("+: above 1.05, -: below 0.95".to_string());
    table
}

/// Returns the background inserts per second, with the requested rate in the last row.
pub fn background(group: &Group<'_>, phases: &[String]) -> Table {
    let mut table = Table::new(
        "Summary: background rows inserted per second in the query steps",
        &["engine"],
    );
    table.headers.extend(phases.iter().cloned());
    for (number, engine) in group.engines().into_iter().enumerate() {
        let mut row = vec![group.label(&engine)];
        for phase in phases {
            let reached = group.median(&engine, phase, |phase| {
                phase.background.as_ref()?.rows_per_s
            });
            let missed = group.of(&engine, phase).any(background_rate_unmet);
            if missed {
                table.tints.insert((number, row.len()), Tint::Bad);
            }
            row.push(format!(
                "{}{}",
                count(reached),
                if missed { " !" } else { "" }
            ));
        }
        table.rows.push(row);
    }
    let mut target = vec!["asked for".to_string()];
    let engines = group.engines();
    target.extend(phases.iter().map(|phase| {
        let asked = engines.iter().find_map(|engine| {
            group.median(engine, phase, |phase| phase.background.as_ref()?.rows_rate)
        });
        count(asked)
    }));
    let (row, cells) = (table.rows.len(), 1..target.len());
    table
        .tints
        .extend(cells.map(|cell| ((row, cell), Tint::Missed)));
    table.rows.push(target);
    table.notes.push(
        "!: below 95 % of what was asked for; the queries of such a step do not count".to_string(),
    );
    table
}

/// Returns the worst second of the background inserts in each query step, over all trials. A mean
/// rate hides a stall if later inserts make up for it. `None` if no seconds were recorded.
pub fn worst_seconds(group: &Group<'_>, phases: &[String]) -> Option<Table> {
    let mut table = Table::new(
        "Summary: fewest background rows in a second, and the longest insert (ms), in the query steps",
        &["engine"],
    );
    table.headers.extend(phases.iter().cloned());
    for engine in group.engines() {
        let cells: Vec<Option<String>> = phases
            .iter()
            .map(|phase| worst_second(group.of(&engine, phase)))
            .collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| number(None)));
            let label = std::iter::once(group.label(&engine));
            table.rows.push(label.chain(cells).collect());
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn worst_second<'a>(steps: impl Iterator<Item = &'a PhaseResult>) -> Option<String> {
    let (mut fewest, mut longest) = (f64::MAX, 0.0_f64);
    for step in steps {
        let Some(background) = &step.background else {
            continue;
        };
        let Some(inserts) = background.latency_us.get("INSERT") else {
            continue;
        };
        longest = longest.max(inserts.max);
        let rows = background.rows_per_s.unwrap_or(0.0) * step.seconds;
        let rows_per_insert = rows / inserts.count.max(1) as f64;
        for second in step.whole_seconds() {
            if second.background_ops.is_some() {
                let count = second.background_op_counts.get("INSERT");
                fewest = fewest.min(count.map_or(0.0, |count| *count as f64 * rows_per_insert));
            }
        }
    }
    (fewest < f64::MAX)
        .then(|| format!("{} ({})", count(Some(fewest)), number(Some(longest / 1e3))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::{BackgroundResult, Interval, Latency};
    use std::collections::BTreeMap;

    #[test]
    fn the_worst_second_is_that_of_any_trial_and_of_inserts_only() {
        let second = |inserts, deletes| Interval {
            background_ops: Some(inserts + deletes),
            background_op_counts: BTreeMap::from([("INSERT".to_string(), inserts)]),
            background_max_us: Some(9_000.0),
            ..Interval::default()
        };
        let step = |intervals: [Interval; 3], max| PhaseResult {
            seconds: 3.0,
            background: Some(BackgroundResult {
                rows_per_s: Some(50.0),
                latency_us: BTreeMap::from([(
                    "INSERT".to_string(),
                    Latency {
                        count: 15,
                        max,
                        ..Latency::default()
                    },
                )]),
                ..BackgroundResult::default()
            }),
            intervals: intervals.to_vec(),
            ..PhaseResult::default()
        };
        let one = step([second(5, 5), second(5, 5), second(5, 5)], 900.0);
        // After the last insert there is nothing to count.
        let rest = [second(2, 8), second(13, 2), Interval::default()];
        let worst = worst_second([&one, &step(rest, 2_000.0)].into_iter());
        assert_eq!(worst.as_deref(), Some("20 (2.00)"));
        let stood = [second(15, 0), second(0, 10), Interval::default()];
        let worst = worst_second([&step(stood, 1.0)].into_iter());
        assert_eq!(worst.as_deref(), Some("0 (0.0010)"));
        assert_eq!(worst_second([&PhaseResult::default()].into_iter()), None);
    }

    const GREEN: Option<Tint> = Some(Tint::Good);
    const GRAY: Option<Tint> = Some(Tint::Missed);
    const RED: Option<Tint> = Some(Tint::Bad);

    #[test]
    fn the_quarters_of_a_column_are_colored() {
        let met = |values: &[f64]| {
            values
                .iter()
                .map(|value| (*value, true))
                .collect::<Vec<_>>()
        };
        // The published l.i1 of 2024: Postgres, InnoDB, MyRocks.
        assert_eq!(colors(&met(&[2068.0, 1720.0, 23_669.0])), [RED, RED, GREEN]);
        assert_eq!(
            colors(&met(&[100.0, 60.0, 40.0, 85.0, 55.0])),
            [GREEN, None, RED, GREEN, RED]
        );
        // The lowest is at least 80 % of the highest: nothing is red.
        assert_eq!(colors(&met(&[100.0, 85.0, 81.0])), [GREEN, None, None]);
        assert_eq!(colors(&met(&[5.0])), [None]);
    }

    #[test]
    fn red_comes_before_gray_and_what_missed_its_rate_is_not_the_maximum() {
        // qp1000 of 2024: the first engine missed its rate and is the lowest.
        let column = [(357.0, false), (513.0, true), (790.0, true)];
        assert_eq!(colors(&column), [RED, None, GREEN]);
        let column = [(900.0, false), (500.0, true), (400.0, true), (200.0, true)];
        assert_eq!(colors(&column), [GRAY, GREEN, None, RED]);
        let column = [(900.0, false), (500.0, false)];
        assert_eq!(colors(&column), [GRAY, GRAY]);
    }

    #[test]
    fn ratios_are_compared_as_integer_percent() {
        assert_eq!(relative_mark(0.9449), (" -", Some(Tint::Below)));
        assert_eq!(relative_mark(0.9451), ("", None));
        assert_eq!(relative_mark(1.054), ("", None));
        assert_eq!(relative_mark(1.056), (" +", Some(Tint::Above)));
    }
}
