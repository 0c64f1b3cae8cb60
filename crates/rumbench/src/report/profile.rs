//! Results of `--profile`: hardware counters for each operation, and the functions on which CPU
//! time went.

use super::selection::Group;
use super::table::Table;
use super::throughput::{item, per_item};
use crate::store::result::{CountsPerOp, HotFunction, PhaseResult, Profile};
use crate::text::{and, number};

/// Functions shown for each engine in a table.
const SHOWN: usize = 8;

/// Header of a column and its getter.
type Count = (&'static str, fn(&CountsPerOp) -> Option<f64>);

const COUNTS: [Count; 6] = [
    ("instructions", |counts| counts.instructions),
    ("cycles", |counts| counts.cycles),
    ("cache misses", |counts| counts.cache_misses),
    ("TLB misses", |counts| counts.tlb_misses),
    ("branch misses", |counts| counts.branch_misses),
    ("page faults", |counts| counts.page_faults),
];

/// Returns the tables of a phase.
pub fn tables(group: &Group<'_>, phase: &str) -> Vec<Table> {
    counts(group, phase)
        .into_iter()
        .chain(functions(group, phase))
        .collect()
}

/// Returns a table with the counters that were available; few machines have all of them.
fn counts(group: &Group<'_>, phase: &str) -> Option<Table> {
    let of = |engine: &str, value: fn(&CountsPerOp) -> Option<f64>| {
        let found = |p: &PhaseResult| per_item(p, p.counts_per_op.as_ref().and_then(value));
        group.median(engine, phase, found)
    };
    let engines = group.engines_of(phase);
    let counted = |(_, value): &&Count| engines.iter().any(|engine| of(engine, *value).is_some());
    let columns: Vec<&Count> = COUNTS.iter().filter(counted).collect();
    if columns.is_empty() {
        return None;
    }
    let mut table = Table::new(format!("{phase}: counts of the processor"), &["engine"]);
    let unit = |name: &str| format!("{name} (1/{})", item(phase));
    table
        .headers
        .extend(columns.iter().map(|(name, _)| unit(name)));
    for engine in &engines {
        let cells = columns.iter().map(|(_, value)| number(of(engine, *value)));
        let name = std::iter::once(group.label(engine));
        table.rows.push(name.chain(cells).collect());
    }
    let note = "of engine, server and laboratory together";
    table.notes.push(note.to_string());
    Some(table)
}

fn functions(group: &Group<'_>, phase: &str) -> Option<Table> {
    let title = format!("{phase}: where CPU time went");
    let headers = ["engine", "function", "own (%)", "with all it calls (%)"];
    let mut table = Table::new(title, &headers);
    table.text_columns = 2;
    for engine in group.engines_of(phase) {
        let Some(profile) = profile(group, &engine, phase) else {
            continue;
        };
        for function in profile.functions.iter().take(SHOWN) {
            let percent = |share: f64| format!("{:.1}", 100.0 * share);
            table.rows.push(vec![
                group.label(&engine),
                short(&function.name),
                percent(function.own_share),
                percent(function.share),
            ]);
        }
        let (samples, graph) = (number(Some(profile.samples as f64)), &profile.graph);
        let lost = match profile.lost {
            0 => String::new(),
            lost => format!(", {lost} more were lost"),
        };
        let label = group.label(&engine);
        let note = format!("{label}: {samples} samples{lost}; flame graph: {graph}");
        table.notes.push(note);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the profile of an engine, from its first trial that has one.
pub fn profile<'a>(group: &Group<'a>, engine: &str, phase: &str) -> Option<&'a Profile> {
    let own = |trial: &&&crate::store::result::TrialResult| trial.name() == engine;
    let mut trials = group.trials.iter().filter(own);
    trials.find_map(|trial| {
        let found = trial.phases.iter().find(|found| found.name == phase)?;
        found.profile.as_ref()
    })
}

/// Shortens a function's name: removes its type arguments, and cuts it if it is still long.
pub fn short(name: &str) -> String {
    const LETTERS: usize = 70;
    let mut out = String::new();
    let mut depth = 0;
    let mut before = ' ';
    for c in name.chars() {
        match c {
            // `operator<` and `->` are not brackets.
            '<' if !out.ends_with("operator") && !out.ends_with("operator<") && !out.is_empty() => {
                depth += 1;
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    // The remainder of `a::<T>::b`.
    let out = out.replace("::::", "::");
    let out = out.trim_end_matches("::");
    if out.chars().count() > LETTERS {
        out.chars().take(LETTERS - 2).chain("..".chars()).collect()
    } else {
        out.to_string()
    }
}

/// Formats the functions of a profile with their own share of CPU time: `f (31 %), g (12 %) and h
/// (9 %)`.
pub fn in_words(functions: &[HotFunction]) -> String {
    let told = |f: &HotFunction| format!("{} ({:.0} %)", short(&f.name), 100.0 * f.own_share);
    and(&functions.iter().map(told).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;
    use crate::report::table::Format;

    #[test]
    fn types_are_left_out_of_names() {
        for (name, wanted) in [
            (
                "alloc::vec::Vec<T,A>::extend_with",
                "alloc::vec::Vec::extend_with",
            ),
            ("a::b::<u8>::c", "a::b::c"),
            ("rocksdb::operator<", "rocksdb::operator<"),
            ("std::operator<< <char>", "std::operator<< "),
            (
                "<alluvium::Table as core::ops::Drop>::drop",
                "<alluvium::Table as core::ops::Drop>::drop",
            ),
            ("copy_user_[k]", "copy_user_[k]"),
        ] {
            assert_eq!(short(name), wanted);
        }
        assert_eq!(short(&"x".repeat(90)).len(), 70);
    }

    #[test]
    fn tables_show_what_was_counted_and_sampled_and_nothing_else() {
        let mut suite = sample::suite();
        assert!(tables(&groups(&suite, false)[0], "request").is_empty());
        sample::profiled(&mut suite);
        let groups = groups(&suite, false);
        let tables = tables(&groups[0], "request");
        let text: String = tables
            .iter()
            .map(|t| t.render(Format::Text) + "\n")
            .collect();
        crate::report::assert_snapshot("profile.txt", &text);
    }
}
