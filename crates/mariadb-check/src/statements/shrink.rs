//! Shortens a list of statements while the last one still shows a difference of the same kind.
//!
//! Parts of the list are left out and the rest runs on new databases. First go all statements
//! about other tables, then all reads, then halves of the list, then smaller and smaller parts. A
//! list that differs earlier ends there.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::pair::{Difference, Pair, Step, tables_of};
use crate::server::Server;

/// Returns a short list and its difference. If the whole list does not show the difference again,
/// it is returned as it is.
pub fn shrink(
    steps: &[Step],
    difference: &Difference,
    server: &mut Server,
    ignore: &[String],
    limit: Duration,
) -> Result<(Vec<Step>, Difference)> {
    let until = Instant::now() + limit;
    let mut best = (steps.to_vec(), difference.clone());
    for shorten in [without_other_tables, without_reads] {
        let list = shorten(&best.0);
        if let Some(shorter) = attempt(&list, difference, server, ignore)? {
            best = shorter;
        }
    }
    let mut part = steps.len() / 2;
    // Terminates: the parts become smaller, and a part that goes makes the list shorter.
    while part > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at + 1 < best.0.len() && Instant::now() < until {
            let mut list = best.0.clone();
            let end = (at + part).min(list.len() - 1);
            list.drain(at..end);
            match attempt(&list, difference, server, ignore)? {
                Some(short) => {
                    best = short;
                    shorter = true;
                }
                None => at += part,
            }
        }
        if part > 1 || !shorter {
            part /= 2;
        }
    }
    Ok(best)
}

/// Returns the list up to its first difference, if that has the wanted kind.
fn attempt(
    list: &[Step],
    wanted: &Difference,
    server: &mut Server,
    ignore: &[String],
) -> Result<Option<(Vec<Step>, Difference)>> {
    let found = replay(list, server, ignore)?;
    let found = found.filter(|(_, found)| found.kind == wanted.kind);
    Ok(found.map(|(count, found)| (list[..count].to_vec(), found)))
}

/// Leaves out statements that name none of the tables of the last one. Tables that were renamed
/// since are missing then, and the attempt fails.
fn without_other_tables(steps: &[Step]) -> Vec<Step> {
    let Some(last) = steps.last() else {
        return Vec::new();
    };
    let wanted = tables_of(&last.sql);
    let is_wanted = |step: &&Step| {
        let tables = tables_of(&step.sql);
        tables.is_empty() || tables.iter().any(|table| wanted.contains(table))
    };
    steps.iter().filter(is_wanted).cloned().collect()
}

fn without_reads(steps: &[Step]) -> Vec<Step> {
    let last = steps.len().saturating_sub(1);
    let stays = |(at, step): &(usize, &Step)| *at == last || !step.sql.starts_with("SELECT");
    let stay = steps.iter().enumerate().filter(stays);
    stay.map(|(_, step)| step.clone()).collect()
}

/// Runs a list on new databases; returns its first difference and the length up to there.
fn replay(
    list: &[Step],
    server: &mut Server,
    ignore: &[String],
) -> Result<Option<(usize, Difference)>> {
    let mut pair = Pair::fresh(server, ignore)?;
    for (number, step) in list.iter().enumerate() {
        if let Err(difference) = pair.run(step) {
            return Ok(Some((number + 1, *difference)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::statement::Compare;

    fn steps(texts: &[&str]) -> Vec<Step> {
        let step = |text: &&str| Step {
            sql: text.to_string(),
            compare: Compare::Exactly,
        };
        texts.iter().map(step).collect()
    }

    fn texts(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.sql.as_str()).collect()
    }

    #[test]
    fn statements_of_other_tables_go_and_those_of_no_table_stay() {
        let list = steps(&[
            "BEGIN",
            "DELETE FROM t1",
            "DELETE FROM t2",
            "SELECT * FROM t1",
        ]);
        let expected = ["BEGIN", "DELETE FROM t1", "SELECT * FROM t1"];
        assert_eq!(texts(&without_other_tables(&list)), expected);
    }

    #[test]
    fn reads_go_but_for_the_last_one() {
        let list = steps(&["SELECT 1", "BEGIN", "SELECT 2"]);
        assert_eq!(texts(&without_reads(&list)), ["BEGIN", "SELECT 2"]);
    }
}
