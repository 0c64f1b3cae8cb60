//! Rules for every Rust file: a module comment, lengths, no leftovers, no sleeping tests, argued
//! `unsafe`.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::{self, Source};

/// Above this number of lines a file gets a warning: it may have a second subject.
const FILE_LINES_WARNING: usize = 600;
/// Above this number of lines a file must give a reason, in a comment line that starts with
/// [`LENGTH_REASON`].
const FILE_LINES_MAX: usize = 800;
const LENGTH_REASON: &str = "//! Length: ";
const FUNCTION_LINES_MAX: usize = 70;

/// Only file of tests that sleeps: its tests wait for states of other processes, and no event tells
/// of these.
const WAITS: &str = "crates/rumbench/tests/it/waits.rs";

/// Folders and files that may contain `unsafe`.
const UNSAFE_FOLDERS: [&str; 7] = [
    "crates/alluvium-lines/src/model.rs",
    "crates/alluvium-mem/",
    "crates/alluvium-c/",
    "crates/alluvium-testkit/src/fork.rs",
    "crates/rumbench-engines/",
    "crates/rumbench/",
    "crates/rumbench-powercut/",
];
/// Number of lines above an `unsafe` block within which its argument must begin.
const SAFETY_LINES: usize = 12;

/// Checks all rules for one file.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let source = Source::new(&file.text);
    let view = View {
        path: &file.path,
        code: source.code(),
        comments: source.comments(),
    };
    let mut found = view.lengths(&file.text);
    found.extend(compiled_in_folder(file));
    if !file.text.starts_with("//!") {
        let message = "opens without a module comment (//!)";
        found.push(Finding::error(&file.path, 1, message));
    }
    found.extend(view.leftovers());
    found.extend(view.sleeps());
    found.extend(view.unsafe_code());
    found
}

/// Finds folders that are compiled in. Checkouts share a target directory, and a binary that
/// another checkout has built from the same sources counts as fresh. Tests run in the folder of
/// their package.
fn compiled_in_folder(file: &TextFile) -> Vec<Finding> {
    let message = "the folder of another checkout may be compiled in: use a relative path, or ask for CARGO_MANIFEST_DIR at run time";
    let own = file.path.starts_with("xtask/");
    let lines = file.text.lines().enumerate().filter(|_| !own);
    lines
        .filter(|(_, line)| line.contains("env!(\"CARGO_MANIFEST_DIR\")"))
        .map(|(number, _)| Finding::error(&file.path, number + 1, message))
        .collect()
}

struct View<'a> {
    path: &'a str,
    code: String,
    comments: String,
}

impl View<'_> {
    fn error_at(&self, offset: usize, message: impl Into<String>) -> Finding {
        Finding::error(self.path, source::line_of(&self.code, offset), message)
    }

    fn lengths(&self, text: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        let lines = text.lines().count();
        let argued = text.lines().any(|line| line.starts_with(LENGTH_REASON));
        if lines > FILE_LINES_MAX && !argued {
            let message =
                format!("{lines} lines: split it, or argue in a line \"{LENGTH_REASON}...\"");
            found.push(Finding::error(self.path, 1, message));
        } else if lines > FILE_LINES_WARNING {
            let message = format!("{lines} lines: look for its second subject");
            found.push(Finding::warning(self.path, 1, message));
        }
        for function in source::functions(&self.code) {
            if function.lines > FUNCTION_LINES_MAX {
                let (name, lines) = (function.name, function.lines);
                let message = format!("fn {name} has {lines} lines, {FUNCTION_LINES_MAX} at most");
                found.push(Finding::error(self.path, function.line, message));
            }
        }
        found
    }

    fn leftovers(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for macro_name in ["dbg", "todo", "unimplemented"] {
            for at in source::words(&self.code, macro_name) {
                if self.code[at + macro_name.len()..].starts_with("!(") {
                    found.push(self.error_at(at, format!("{macro_name}! is left over")));
                }
            }
        }
        for mark in ["TODO", "FIXME", "XXX", "HACK"] {
            for at in source::words(&self.comments, mark) {
                found.push(self.error_at(at, format!("a comment marks unfinished work: {mark}")));
            }
        }
        found
    }

    /// Finds sleeping tests: they are slow when they pass, and wrong when the machine is busy.
    fn sleeps(&self) -> Vec<Finding> {
        if self.path == WAITS {
            return Vec::new();
        }
        let all_tests = self
            .path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs");
        let ranges = source::test_ranges(&self.code);
        let calls = ["thread::sleep(", ".sleep("];
        let calls = calls.iter().flat_map(|call| self.code.match_indices(call));
        calls
            .filter(|(at, _)| all_tests || ranges.iter().any(|range| range.contains(at)))
            .map(|(at, _)| self.error_at(at, "a test must wait for an event, not sleep"))
            .collect()
    }

    fn unsafe_code(&self) -> Vec<Finding> {
        let allowed = UNSAFE_FOLDERS
            .iter()
            .any(|folder| self.path.starts_with(folder));
        let comments: Vec<&str> = self.comments.lines().collect();
        let mut found = Vec::new();
        for at in source::words(&self.code, "unsafe") {
            let rest = self.code[at + "unsafe".len()..].trim_start();
            if !allowed {
                found.push(self.error_at(at, "unsafe code belongs in alluvium-mem"));
            } else if rest.starts_with('{') || rest.starts_with("impl") {
                let line = source::line_of(&self.code, at);
                let above = &comments[line.saturating_sub(1 + SAFETY_LINES)..line];
                if !above.iter().any(|comment| comment.contains("SAFETY:")) {
                    found.push(self.error_at(at, "unsafe without a SAFETY comment"));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    fn at(path: &str, text: &str) -> Vec<String> {
        shown(&check(&file(path, text)))
    }

    #[test]
    fn the_folder_of_the_build_is_not_compiled_in() {
        let text = "//! A.\nconst A: &str = env!(\"CARGO_MANIFEST_DIR\");\n";
        let found = at("crates/a/tests/it/b.rs", text);
        assert!(found.len() == 1 && found[0].starts_with("2: "), "{found:?}");
        assert!(at("xtask/src/files.rs", text).is_empty());
    }

    #[test]
    fn a_file_without_module_comment_is_found() {
        assert_eq!(
            at("src/a.rs", "fn f() {}\n"),
            ["1: opens without a module comment (//!)"]
        );
        assert!(at("src/a.rs", "//! A.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn long_files_warn_then_need_a_reason() {
        let lines = |count: usize, reason: &str| {
            let text = format!("//! A.\n{reason}\n{}", "\n".repeat(count - 2));
            check(&file("src/a.rs", &text))
        };
        assert!(lines(600, "").is_empty());
        assert!(lines(601, "")[0].warning);
        assert!(!lines(801, "")[0].warning);
        assert!(lines(801, "//! Length: one table, one file.")[0].warning);
    }

    #[test]
    fn functions_over_seventy_lines_are_found() {
        let text = |body: usize| format!("//! A.\nfn long() {{\n{}}}\n", "x();\n".repeat(body));
        assert!(at("src/a.rs", &text(68)).is_empty());
        assert_eq!(
            at("src/a.rs", &text(69)),
            ["2: fn long has 71 lines, 70 at most"]
        );
    }

    #[test]
    fn leftovers_are_found_in_code_and_comments_but_not_in_strings() {
        let text = "//! A.\nfn f() { dbg!(1); todo!() }\n// FIXME: later\nconst S: &str = \"dbg!(XXX)\"; // NO_TODO_HERE\n";
        let expected = [
            "2: dbg! is left over",
            "2: todo! is left over",
            "3: a comment marks unfinished work: FIXME",
        ];
        assert_eq!(at("src/a.rs", text), expected);
    }

    #[test]
    fn sleeping_is_found_in_tests_only() {
        let text = "//! A.\nfn f() { thread::sleep(d); }\n#[cfg(test)]\nmod tests {\n fn g() { clock.sleep(d) }\n}\n";
        let message = "a test must wait for an event, not sleep";
        assert_eq!(at("crates/x/src/a.rs", text), [format!("5: {message}")]);
        assert_eq!(at("crates/x/tests/it/a.rs", text).len(), 2);
        assert!(at(WAITS, text).is_empty());
    }

    #[test]
    fn unsafe_needs_its_place_and_its_argument() {
        let bare = "//! A.\nfn f() { unsafe { g() } }\n";
        let argued =
            "//! A.\nfn f() {\n    // SAFETY: g has no conditions.\n    unsafe { g() }\n}\n";
        let outside = "unsafe code belongs in alluvium-mem";
        assert_eq!(
            at("crates/alluvium/src/a.rs", argued),
            [format!("4: {outside}")]
        );
        assert!(at("crates/alluvium-mem/src/a.rs", argued).is_empty());
        assert_eq!(
            at("crates/alluvium-mem/src/a.rs", bare),
            ["2: unsafe without a SAFETY comment"]
        );
        assert!(
            at(
                "crates/alluvium/src/lib.rs",
                "//! A.\n#![forbid(unsafe_code)]\n"
            )
            .is_empty()
        );
    }
}
