//! Which module of the engine may use which: a lower one never uses a higher one.
//!
//! Tests may use anything. So may `lib.rs`, which only names the modules.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::{self, Source};

const ENGINE: &str = "crates/alluvium/src/";

/// The modules of the engine from low to high. Modules of one layer may use each other.
const LAYERS: &[&[&str]] = &[
    &["error", "base"],
    &["sync"],
    &["options", "metrics", "event", "read_points", "admission"],
    &["vfs"],
    &["cache", "table"],
    &["wal"],
    &["version"],
    &["memtable", "vlog"],
    &["iter"],
    &["flush", "compaction"],
    &["recovery", "commit"],
    &["txn"],
    &["keyspace"],
    &["db"],
];

/// Uses against the order that are argued where they stand, as (lower module, higher module).
const ALLOWED: &[(&str, &str)] = &[];

/// Checks one file of the engine; other files have no layers.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let Some(inside) = file.path.strip_prefix(ENGINE) else {
        return Vec::new();
    };
    let module = inside.split('/').next().unwrap_or(inside);
    let module = module.strip_suffix(".rs").unwrap_or(module);
    if module == "lib" || inside.ends_with("/tests.rs") || inside.contains("/tests/") {
        return Vec::new();
    }
    let Some(own) = layer(module) else {
        return vec![unknown(&file.path, 1, module)];
    };
    let code = Source::new(&file.text).code();
    let tests = source::test_ranges(&code);
    let mut found = Vec::new();
    for (at, used) in uses(&code) {
        if tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let line = source::line_of(&code, at);
        match layer(&used) {
            None => found.push(unknown(&file.path, line, &used)),
            Some(layer) if layer > own && !ALLOWED.contains(&(module, used.as_str())) => {
                let message = format!("{module} uses {used}, which is above it");
                found.push(Finding::error(&file.path, line, message));
            }
            Some(_) => {}
        }
    }
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn unknown(path: &str, line: usize, module: &str) -> Finding {
    let message = format!("module {module} has no layer: give it one in xtask/src/tidy/layers.rs");
    Finding::error(path, line, message)
}

/// Every module named behind `crate::`, with the offset of its name. Types that `lib.rs` exports are no modules.
fn uses(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in source::words(code, "crate") {
        let start = at + "crate".len();
        let Some(path) = code[start..].strip_prefix("::") else {
            continue;
        };
        let start = start + 2;
        match path.strip_prefix('{') {
            Some(group) => {
                for offset in group_heads(group) {
                    push_module(code, start + 1 + offset, &mut found);
                }
            }
            None => push_module(code, start, &mut found),
        }
    }
    found
}

/// Offsets of the first name of each path in `a::b, c::{d, e}}...`, up to the brace that closes the group.
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

fn push_module(code: &str, at: usize, found: &mut Vec<(usize, String)>) {
    let name = code[at..].split(|c: char| !c.is_ascii() || !source::is_word(c as u8));
    let name = name.into_iter().next().unwrap_or_default();
    if name.starts_with(|c: char| c.is_ascii_lowercase()) {
        found.push((at, name.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    fn at(path: &str, text: &str) -> Vec<String> {
        shown(&check(&file(&format!("{ENGINE}{path}"), text)))
    }

    #[test]
    fn a_lower_module_must_not_use_a_higher_one() {
        let text = "use crate::base::SeqNo;\nuse crate::txn::Transaction;\n";
        assert_eq!(
            at("wal/mod.rs", text),
            ["2: wal uses txn, which is above it"]
        );
        assert!(at("db/mod.rs", text).is_empty());
    }

    #[test]
    fn groups_and_plain_paths_are_seen() {
        let text = "use crate::{\n    Error,\n    base::{SeqNo, coding},\n    version::Version,\n};\nfn f() { crate::iter::merge() }\n";
        let expected = [
            "4: wal uses version, which is above it",
            "6: wal uses iter, which is above it",
        ];
        assert_eq!(at("wal/record.rs", text), expected);
    }

    #[test]
    fn tests_and_modules_of_one_layer_are_free() {
        let text =
            "use crate::cache::Cache;\n#[cfg(test)]\nmod tests {\n use crate::db::Database;\n}\n";
        assert!(at("table/mod.rs", text).is_empty());
        assert!(at("wal/tests.rs", "use crate::db::Database;").is_empty());
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
