//! Check of the layers of the engine and the laboratory: a lower module never uses a higher one.
//!
//! Tests may use anything. So may `lib.rs` and `main.rs`, which only name the modules. A type
//! counts as part of the module that a path names. Items of lower modules must therefore be used by
//! their full path, not through a reexport of a higher module.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::{self, Source};

/// A crate with layers.
struct Crate {
    /// Folder of its source.
    source: &'static str,
    /// Modules from low to high; a part of a module (`db::options`) may have a layer of its own.
    /// Modules of one layer may use each other.
    layers: &'static [&'static [&'static str]],
    /// Permitted exceptions, as (lower module, higher module).
    allowed: &'static [(&'static str, &'static str)],
}

const CRATES: &[Crate] = &[
    Crate {
        source: "crates/alluvium/src/",
        layers: ENGINE,
        // A public type in a lower module that holds a handle.
        allowed: &[("iter::cursor", "keyspace")],
    },
    Crate {
        source: "crates/rumbench/src/",
        layers: LABORATORY,
        // Text for SVG and HTML.
        allowed: &[("profile::flame", "report")],
    },
];

const ENGINE: &[&[&str]] = &[
    &["error", "base", "range_deletes", "fuzz"],
    &["sync", "simulation"],
    &["vfs"],
    &["cache", "memory", "table"],
    &["wal"],
    &["version"],
    // Services and vocabulary that are independent of an open database.
    &["txn::lock_table"],
    &["txn::lock_waits"],
    &[
        "read_points",
        "clock",
        "keyspace::dead",
        "keyspace::found",
        "keyspace::resting",
        "keyspace::expiry",
        "admission",
        "event",
        "db::memory",
        "db::options",
        "db::poison",
        "keyspace::options",
    ],
    &["txn::write_set", "txn::layers", "txn::write_cursor"],
    &[
        "compaction::dictionaries",
        "compaction::fold",
        "compaction::merge",
        "compaction::pick",
        "compaction::retire",
    ],
    &["metrics"],
    &[
        "keyspace::memtable",
        "keyspace::memtable_maker",
        "keyspace::published",
        "keyspace::state",
        "keyspace::tree",
    ],
    &["iter", "txn::read_set"],
    // Parts of an open database that no pipeline is part of.
    &[
        "db::access",
        "db::backlog",
        "db::core",
        "db::files",
        "db::removals",
    ],
    // Pipelines and the parts that they share.
    &[
        "commit",
        "compaction",
        "flush",
        "db::ballast",
        "db::split",
        "db::store",
    ],
    &["db::row_locks", "db::shared", "recovery"],
    // The public handles lead to each other.
    &[
        "db",
        "ingest",
        "keyspace",
        "changes",
        "snapshot",
        "txn",
        "verify",
        "backup",
        "repair",
        "internal",
        "guide",
        "fuzz::forged",
    ],
];

const LABORATORY: &[&[&str]] = &[
    &["text"],
    // A program that only reads results needs nothing that measures.
    &["store"],
    &["measure"],
    &["catalog"],
    &["profile", "run::cgroup"],
    &["measure::doctor"],
    // A suite that runs draws conclusions from its trials; a rate search is reported and run.
    &["report", "run"],
    &["import", "durability"],
    &["failover"],
    &["command"],
];

/// Checks one file; files of other crates have no layers.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let inside = |of: &'static Crate| Some((of, file.path.strip_prefix(of.source)?));
    let Some((of, inside)) = CRATES.iter().find_map(inside) else {
        return Vec::new();
    };
    let module = module_of(inside);
    if module == "lib"
        || module == "main"
        || module.ends_with("::tests")
        || inside.contains("/tests/")
    {
        return Vec::new();
    }
    let Some(own) = of.layer(&module) else {
        return vec![unknown(&file.path, 1, &module)];
    };
    let code = Source::new(&file.text).code();
    let tests = source::test_ranges(&code);
    let mut found = Vec::new();
    for (at, used) in uses(&code) {
        if tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let line = source::line_of(&code, at);
        match of.layer(&used) {
            None => found.push(unknown(&file.path, line, &used)),
            Some(layer) if layer > own && !of.allows(&module, &used) => {
                let message = format!("{module} uses {used}, which is above it");
                found.push(Finding::error(&file.path, line, message));
            }
            Some(_) => {}
        }
    }
    found
}

/// Returns `wal` for `wal/mod.rs`, and `wal::frame` for `wal/frame.rs` and `wal/frame/x.rs`.
fn module_of(inside: &str) -> String {
    let path = inside.strip_suffix(".rs").unwrap_or(inside);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<&str> = path.split('/').take(2).collect();
    parts.join("::")
}

impl Crate {
    /// Returns the layer of a path of one or two names: its own, or that of the enclosing module.
    fn layer(&self, path: &str) -> Option<usize> {
        let of = |name: &str| self.layers.iter().position(|layer| layer.contains(&name));
        of(path).or_else(|| of(top(path)))
    }

    fn allows(&self, module: &str, used: &str) -> bool {
        self.allowed.contains(&(module, top(used)))
    }
}

fn top(path: &str) -> &str {
    path.split("::").next().unwrap_or(path)
}

fn unknown(path: &str, line: usize, module: &str) -> Finding {
    let module = top(module);
    let message = format!("module {module} has no layer: give it one in xtask/src/tidy/layers.rs");
    Finding::error(path, line, message)
}

/// Returns every path after `crate::`, cut to two names, with its offset. Types that `lib.rs`
/// exports are not modules.
fn uses(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in source::words(code, "crate") {
        for first in heads(code, at + "crate".len()) {
            let module = name(&code[first..]);
            if !module.starts_with(|c: char| c.is_ascii_lowercase()) {
                continue;
            }
            let inner = heads(code, first + module.len());
            if inner.is_empty() {
                found.push((first, module.to_string()));
            }
            for second in inner {
                found.push((second, format!("{module}::{}", name(&code[second..]))));
            }
        }
    }
    found
}

/// Returns the identifier at the start of `text`.
fn name(text: &str) -> &str {
    let end = text.bytes().position(|byte| !source::is_word(byte));
    &text[..end.unwrap_or(text.len())]
}

/// Returns offsets after the `::` at `at`: of one name, or of the first name of each path in a
/// group.
fn heads(code: &str, at: usize) -> Vec<usize> {
    let Some(path) = code[at..].strip_prefix("::") else {
        return Vec::new();
    };
    match path.strip_prefix('{') {
        Some(group) => group_heads(group)
            .into_iter()
            .map(|head| at + 3 + head)
            .collect(),
        None => vec![at + 2],
    }
}

/// Returns offsets of the first name of each path in `a::b, c::{d, e}}...`, up to the brace that
/// closes the group.
fn group_heads(group: &str) -> Vec<usize> {
    let (mut depth, mut heads, mut expect) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expect = true,
            _ if expect && !c.is_whitespace() => {
                heads.push(at);
                expect = false;
            }
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    fn at(path: &str, text: &str) -> Vec<String> {
        shown(&check(&file(&format!("crates/alluvium/src/{path}"), text)))
    }

    #[test]
    fn the_laboratory_has_layers_of_its_own() {
        let at = |path: &str, text: &str| {
            shown(&check(&file(&format!("crates/rumbench/src/{path}"), text)))
        };
        let text = "use crate::measure::doctor::Machine;\nuse crate::text::number;\n";
        let expected = ["1: store::result uses measure::doctor, which is above it"];
        assert_eq!(at("store/result.rs", text), expected);
        assert!(at("run/suite.rs", text).is_empty() && at("main.rs", text).is_empty());
        assert_eq!(at("measure/size.rs", text).len(), 1);
    }

    #[test]
    fn a_lower_module_must_not_use_a_higher_one() {
        let text = "use crate::base::SeqNo;\nuse crate::txn::Transaction;\n";
        let expected = ["2: wal uses txn::Transaction, which is above it"];
        assert_eq!(at("wal/mod.rs", text), expected);
        assert!(at("db/mod.rs", text).is_empty());
    }

    #[test]
    fn groups_and_plain_paths_are_seen() {
        let text = "use crate::{\n    Error,\n    base::{SeqNo, coding},\n    version::{\n    Version},\n};\nfn f() { crate::iter::merge() }\n";
        let expected = [
            "5: wal::record uses version::Version, which is above it",
            "7: wal::record uses iter::merge, which is above it",
        ];
        assert_eq!(at("wal/record.rs", text), expected);
    }

    #[test]
    fn a_part_of_a_module_may_lie_lower_than_the_module() {
        let text = "use crate::db::options::Options;\nuse crate::db::{Database, poison::Poison};\n";
        let expected = ["2: recovery uses db::Database, which is above it"];
        assert_eq!(at("recovery/mod.rs", text), expected);
        let expected = ["1: db::options uses db::Database, which is above it"];
        assert_eq!(at("db/options.rs", "use crate::db::Database;"), expected);
    }

    #[test]
    fn argued_exceptions_are_allowed() {
        let text = "use crate::keyspace::Keyspace;";
        assert!(at("iter/cursor.rs", text).is_empty());
        assert_eq!(at("iter/merge.rs", text).len(), 1);
    }

    #[test]
    fn tests_and_modules_of_one_layer_are_free() {
        let text =
            "use crate::cache::Cache;\n#[cfg(test)]\nmod tests {\n use crate::db::Database;\n}\n";
        assert!(at("table/mod.rs", text).is_empty());
        assert!(at("wal/tests.rs", "use crate::db::Database;").is_empty());
        assert!(at("wal/replay/tests/x.rs", "use crate::db::Database;").is_empty());
    }

    #[test]
    fn a_module_without_layer_is_found() {
        let message = "module helpers has no layer: give it one in xtask/src/tidy/layers.rs";
        assert_eq!(at("helpers.rs", ""), [format!("1: {message}")]);
        assert_eq!(
            at("db.rs", "use crate::helpers::x;"),
            [format!("1: {message}")]
        );
    }
}
