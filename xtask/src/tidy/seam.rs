//! Check of the simulation seam: all time, threads, locks and randomness of the engine come from
//! its modules `sync`, `simulation` and `clock`. A simulation can control the order of events only
//! through these.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::{self, Source};

const ENGINE: &str = "crates/alluvium/src/";

/// Forbidden names, each with its replacement.
const OWNED: [(&str, &str); 9] = [
    ("parking_lot::", "sync::plain"),
    ("std::thread", "sync::thread"),
    ("std::time::Instant", "sync::time"),
    ("SystemTime", "clock::Clock"),
    ("RandomState", "sync::random_u64"),
    ("mpsc", "sync::channel"),
    ("std::collections::HashMap", "sync::collections"),
    ("std::collections::HashSet", "sync::collections"),
    ("std::sync::Mutex", "sync::plain"),
];

/// Exceptions, as (start of the path in the engine, name); an empty name permits all names.
const FREE: [(&str, &str); 11] = [
    // These modules are the seam.
    ("sync/", ""),
    ("simulation/", ""),
    // The only reader of the system's clock, and the code that names backups by day.
    ("clock.rs", "SystemTime"),
    ("backup/mod.rs", "SystemTime"),
    // Files in memory: their locks are held briefly, and the holder waits for nothing else.
    ("vfs/mem/", "parking_lot::"),
    ("vfs/fault.rs", "parking_lot::"),
    // All simulations of the process share these locks, and their holder waits for nothing else.
    ("table/buffers.rs", "parking_lot::"),
    ("table/dictionary.rs", "parking_lot::"),
    ("table/pool.rs", "parking_lot::"),
    // These maps have a fixed hash function, so their order is not random.
    ("txn/lock_table", "std::collections::HashMap"),
    // Example programs of the guide.
    ("guide.rs", ""),
];

/// Checks one file, if it belongs to the engine. Tests are exempt.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let Some(inside) = file.path.strip_prefix(ENGINE) else {
        return Vec::new();
    };
    let is_test = |part: &str| ["tests", "tests.rs", "model.rs"].contains(&part);
    if inside.split('/').any(is_test) {
        return Vec::new();
    }
    let code = Source::new(&file.text).code();
    let tests = source::test_ranges(&code);
    let mut found = Vec::new();
    for (name, instead) in OWNED {
        let free = |(path, what): &(&str, &str)| {
            inside.starts_with(path) && (what.is_empty() || *what == name)
        };
        if FREE.iter().any(free) {
            continue;
        }
        for (at, _) in code.match_indices(name) {
            if !tests.iter().any(|range| range.contains(&at)) {
                let line = source::line_of(&code, at);
                let message = format!("{name} is not a simulation's to decide: use {instead}");
                found.push(Finding::error(&file.path, line, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    fn at(path: &str, text: &str) -> Vec<String> {
        shown(&check(&file(&format!("{ENGINE}{path}"), text)))
    }

    #[test]
    fn locks_threads_and_time_come_from_the_seam() {
        let text = "use parking_lot::Mutex;\nfn f() { std::thread::spawn(|| ()); }\n";
        let expected = [
            "1: parking_lot:: is not a simulation's to decide: use sync::plain",
            "2: std::thread is not a simulation's to decide: use sync::thread",
        ];
        assert_eq!(at("wal/writer.rs", text), expected);
    }

    #[test]
    fn tests_and_the_seam_itself_are_free() {
        let text = "use std::time::SystemTime;\n";
        assert_eq!(at("wal/mod.rs", text).len(), 1);
        for path in ["clock.rs", "sync/mod.rs", "wal/tests.rs", "wal/tests/x.rs"] {
            assert!(at(path, text).is_empty(), "{path}");
        }
        let text = "#[cfg(test)]\nmod tests {\n use std::thread;\n}\n";
        assert!(at("wal/mod.rs", text).is_empty());
    }
}
