//! Check of import circles: files that use each other, directly or through other files, outside
//! tests. Such files can only be understood together.
//!
//! The lists below name the circles that are allowed, each with all of its files. An entry that is
//! no longer true is an error too, so the lists only shrink.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;

use super::uses::Use;

/// Folder, files in it separated by blanks, and reason.
type Allowed = (&'static str, &'static str, &'static str);

/// Circles of parts that are one thing.
const HARMLESS: &[Allowed] = &[
    (
        "crates/alluvium-c/src",
        "borrow.rs call.rs error.rs value.rs",
        "A slice, an error and the call that reports it are defined by each other.",
    ),
    (
        "crates/alluvium-c/src",
        "callback.rs database.rs keyspace.rs listener.rs lock_wait.rs options.rs prepared.rs \
         transaction.rs",
        "Opaque types of the C interface: each takes or returns others.",
    ),
    (
        "crates/alluvium-mem/src/memtable",
        "cursor.rs mod.rs",
        "`Memtable::cursor` returns the cursor of a memtable.",
    ),
    (
        "crates/alluvium/src",
        "db/mod.rs db/stats.rs ingest/bulk_load.rs ingest/merge_runs.rs ingest/mod.rs \
         iter/cursor.rs keyspace/estimate.rs keyspace/mod.rs snapshot.rs txn/batch.rs \
         txn/transaction.rs",
        "The public handles lead to each other: a database opens keyspaces, which keep it open.",
    ),
    (
        "crates/alluvium/src/simulation",
        "mod.rs state.rs threads.rs",
        "A scheduler with its state and its threads.",
    ),
    (
        "crates/alluvium/src/table",
        "cursor.rs reader.rs scan.rs",
        "`Table::cursor` and `Table::scan` return readers of a table.",
    ),
    (
        "crates/alluvium/src/txn",
        "lock_table.rs lock_table/deadlock.rs lock_table/locks.rs lock_table/slot.rs lock_table/wait.rs",
        "One lock table; its slots, waiters and deadlock detector share its vocabulary.",
    ),
    (
        "crates/rumbench-core/src/linkbench",
        "client.rs load.rs sample.rs workload.rs",
        "A workload makes its clients and loaders, which read its settings.",
    ),
];

/// Uses of other files by a file: one for each.
type Edges<'u> = BTreeMap<&'u str, BTreeMap<&'u str, &'u Use<'u>>>;

/// Finds circles that are not allowed, and entries of the lists that are not true.
pub fn check(uses: &[Use<'_>]) -> Vec<Finding> {
    check_lists(uses, HARMLESS)
}

fn check_lists(uses: &[Use<'_>], allowed: &[Allowed]) -> Vec<Finding> {
    let edges = edges(uses);
    let circles = circles(&edges);
    let mut found = Vec::new();
    for circle in &circles {
        if !allowed.iter().any(|allowed| *circle == paths(allowed)) {
            found.push(Finding::error(circle[0], 1, shown(circle, &edges)));
        }
    }
    for allowed in allowed {
        let paths = paths(allowed);
        if !circles.iter().any(|circle| *circle == paths) {
            let message = "its entry in xtask/src/tidy/circles.rs is no circle, or not all of one";
            found.push(Finding::error(&paths[0], 1, message));
        }
    }
    found
}

fn paths((folder, files, _): &Allowed) -> Vec<String> {
    let paths = files.split_whitespace();
    paths.map(|file| format!("{folder}/{file}")).collect()
}

fn edges<'u>(uses: &'u [Use<'u>]) -> Edges<'u> {
    let mut edges = Edges::new();
    for used in uses {
        let from = edges.entry(used.from).or_default();
        let first = from.entry(used.to).or_insert(used);
        if used.line < first.line {
            *first = used;
        }
    }
    edges
}

/// Returns the circles: sets of at least two files, each of which reaches all others.
fn circles<'u>(edges: &Edges<'u>) -> Vec<Vec<&'u str>> {
    let reached = edges.keys().map(|file| (*file, reached(edges, file)));
    let reached: BTreeMap<&str, BTreeSet<&str>> = reached.collect();
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (file, others) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|of| of.contains(file));
        let circle: Vec<&str> = others.iter().filter(back).copied().collect();
        if circle.first() == Some(file) {
            found.push(circle);
        }
    }
    found
}

/// Returns the files that `file` uses, directly or through others.
fn reached<'u>(edges: &Edges<'u>, file: &str) -> BTreeSet<&'u str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    // The loop ends because each file is opened once.
    while let Some(file) = open.pop() {
        for next in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Describes a circle: each use of one of its files by another one.
fn shown(circle: &[&str], edges: &Edges<'_>) -> String {
    let mut text = format!("{} files use each other in a circle:", circle.len());
    for from in circle {
        for (to, used) in &edges[from] {
            if circle.contains(to) {
                let (line, path) = (used.line, &used.path);
                text.push_str(&format!("\n    {from}:{line} uses {to} ({path})"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, shown};
    use super::super::{modules::Modules, uses};
    use super::*;

    const A: &str = "use crate::b::{B, other};\npub struct A;\n";
    const B: &str = "pub struct B;\nfn f() {\n    crate::c::C::new(other);\n}\n";
    const C: &str = "use super::a::A;\npub struct C;\n";

    fn found(parts: &[(&str, &str)], allowed: &[Allowed]) -> Vec<String> {
        let mut files = vec![file(
            "x/src/lib.rs",
            "mod a;\nmod b;\nmod c;\npub use a::A;\n",
        )];
        files.extend(
            parts
                .iter()
                .map(|(name, text)| file(&format!("x/src/{name}.rs"), text)),
        );
        let modules = Modules::read(&files);
        shown(&check_lists(&uses::uses(&modules), allowed))
    }

    #[test]
    fn a_circle_is_told_with_one_use_for_each_edge() {
        let parts = [("a", A), ("b", B), ("c", C)];
        let expected = "1: 3 files use each other in a circle:
    x/src/a.rs:1 uses x/src/b.rs (crate::b::B)
    x/src/b.rs:3 uses x/src/c.rs (crate::c::C::new)
    x/src/c.rs:1 uses x/src/a.rs (super::a::A)";
        assert_eq!(found(&parts, &[]), [expected]);
        let open = [("a", A), ("b", B), ("c", "pub struct C;\n")];
        assert_eq!(found(&open, &[]), [""; 0]);
    }

    #[test]
    fn an_entry_allows_exactly_its_circle() {
        let parts = [("a", A), ("b", B), ("c", C)];
        let exact = ("x/src", "a.rs b.rs c.rs", "one thing");
        assert_eq!(found(&parts, &[exact]), [""; 0]);
        // A file is missing in the entry: the circle is not allowed, and the entry is none.
        let smaller = ("x/src", "a.rs b.rs", "one thing");
        assert_eq!(found(&parts, &[smaller]).len(), 2);
    }

    #[test]
    fn an_entry_of_a_circle_that_is_gone_or_smaller_is_found() {
        let entry = ("x/src", "a.rs b.rs c.rs", "one thing");
        let stale = "1: its entry in xtask/src/tidy/circles.rs is no circle, or not all of one";
        let gone = [("a", A), ("b", B), ("c", "pub struct C;\n")];
        assert_eq!(found(&gone, &[entry]), [stale]);
        let smaller = [("a", A), ("b", "use crate::A;\npub struct B;\n")];
        let left = found(&smaller, &[entry]);
        assert!(left.len() == 2 && left[0].starts_with("1: 2 files") && left[1] == stale);
    }
}
