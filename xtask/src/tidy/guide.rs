//! Checks of the guide: links have targets, programs are compiled, and named tests exist.

use std::collections::{HashMap, HashSet};

use crate::files::TextFile;
use crate::finding::Finding;

const GUIDE: &str = "docs/guide/";
/// File that turns the pages into documentation tests.
const PROGRAMS: &str = "crates/alluvium/src/guide.rs";
/// Pages that name tests as `module::name`; the module is the path of its file below `src/` or
/// `tests/it/`.
const PROOFS: [&str; 2] = ["docs/guide/features.md", "docs/guide/complaints.md"];

/// Runs all checks of the guide. A workspace without one has nothing to check.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut found = Vec::new();
    let paths: HashSet<&str> = files.iter().map(|file| &file.path[..]).collect();
    let programs = files.iter().find(|file| file.path == PROGRAMS);
    let tests = tests_by_name(files);
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        found.extend(dead_links(page, &paths));
        if page.path.starts_with(GUIDE) {
            found.extend(programs.and_then(|programs| untested_program(page, &programs.text)));
        }
        if PROOFS.contains(&&page.path[..]) {
            found.extend(missing_tests(page, &tests));
        }
    }
    found
}

/// Finds links to missing files, relative to the page. Folders and web addresses are not checked.
fn dead_links(page: &TextFile, paths: &HashSet<&str>) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        for (_, rest) in line
            .match_indices("](")
            .map(|(at, _)| line.split_at(at + 2))
        {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            let is_file = [".md", ".rs", ".txt"]
                .iter()
                .any(|end| target.ends_with(end));
            if is_file && !target.contains("://") && !paths.contains(&resolved(folder, target)[..])
            {
                let message = format!("the link leads nowhere: {target}");
                found.push(Finding::error(&page.path, number, message));
            }
        }
    }
    found
}

/// Resolves a relative path from a folder of the workspace.
fn resolved(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Finds a page with a Rust program that is not among the documentation tests.
fn untested_program(page: &TextFile, programs: &str) -> Option<Finding> {
    let line = 1 + page
        .text
        .lines()
        .position(|line| line.starts_with("```rust"))?;
    let name = page.path.strip_prefix(GUIDE)?;
    let listed = programs.contains(&format!("\"{name}\""));
    let message = format!("programs that no test compiles: name the page in {PROGRAMS}");
    (!listed).then(|| Finding::error(&page.path, line, message))
}

/// Returns every test function of the workspace by name, with the files that have one.
fn tests_by_name(files: &[TextFile]) -> HashMap<&str, Vec<&str>> {
    let mut tests: HashMap<&str, Vec<&str>> = HashMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut attribute_seen = false;
        for line in file.text.lines().map(str::trim_start) {
            // A test's attribute is above its function; other attributes, comments or those of a
            // strategy may come between.
            attribute_seen |= line == "#[test]";
            if let Some(rest) = line.strip_prefix("fn ").filter(|_| attribute_seen) {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                tests.entry(name).or_default().push(&file.path);
                attribute_seen = false;
            }
        }
    }
    tests
}

/// Finds names of tests on the page that no file of their module has.
fn missing_tests(page: &TextFile, tests: &HashMap<&str, Vec<&str>>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        for name in line.split('`').skip(1).step_by(2) {
            let is_path = name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
            let Some((module, test)) = name.rsplit_once("::").filter(|_| is_path) else {
                continue;
            };
            let folder = format!("/{}", module.replace("::", "/"));
            let has_it = |path: &&str| {
                let path = path.strip_suffix(".rs").unwrap_or(path);
                path.strip_suffix("/mod").unwrap_or(path).ends_with(&folder)
            };
            if !tests
                .get(test)
                .is_some_and(|files| files.iter().any(has_it))
            {
                let message = format!("there is no test {name}");
                found.push(Finding::error(&page.path, number, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    #[test]
    fn links_to_missing_files_are_found() {
        let page = "# T\n[a](b.md#part), [c](../c.md), [d](https://x.y/z.md)\n[e](gone.md) [f](../gone.rs)\n";
        let files = [
            file("docs/guide/a.md", page),
            file("docs/guide/b.md", ""),
            file("docs/c.md", ""),
        ];
        let expected =
            ["gone.md", "../gone.rs"].map(|target| format!("3: the link leads nowhere: {target}"));
        assert_eq!(shown(&check(&files)), expected);
    }

    #[test]
    fn a_page_with_a_program_is_among_the_tests() {
        let programs = file(PROGRAMS, "page!(a, \"a.md\");\n");
        let page = |name: &str| file(name, "# T\n\n```rust,no_run\nfn main() {}\n```\n");
        let files = [
            programs,
            page("docs/guide/a.md"),
            page("docs/guide/b.md"),
            page("docs/other.md"),
        ];
        let found = check(&files);
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].path[..], found[0].line), ("docs/guide/b.md", 3));
    }

    #[test]
    fn named_tests_exist_in_their_module() {
        let tests = "#[test]\n#[cfg(unix)]\nfn one_is_one() {}\nfn helper() {}\n";
        let page =
            "`m::one_is_one` `a::m::one_is_one` `n::one_is_one`\n`m::helper` `Options::clock`\n";
        let files = [
            file("crates/x/src/a/m/mod.rs", tests),
            file(PROOFS[0], page),
        ];
        let expected = [
            "1: there is no test n::one_is_one",
            "2: there is no test m::helper",
        ];
        assert_eq!(shown(&check(&files)), expected);
    }
}
