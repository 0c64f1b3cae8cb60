//! Checks of all pages: one title; numbered and listed decision records; a README with a program
//! that compiles.

use crate::files::TextFile;
use crate::finding::Finding;

const DECISIONS: &str = "docs/decisions/";

/// Checks that a page has exactly one `#` title. Expected outputs of tests are not pages.
pub fn check_page(file: &TextFile) -> Vec<Finding> {
    if file.path.split('/').any(|folder| folder == "tests") {
        return Vec::new();
    }
    let mut titles = 0;
    let mut found = Vec::new();
    for (number, _) in headings(&file.text) {
        titles += 1;
        if titles == 2 {
            found.push(Finding::error(&file.path, number, "a second # title"));
        }
    }
    if titles == 0 {
        found.push(Finding::error(&file.path, 1, "no # title"));
    }
    found
}

/// Returns first-level headings outside code blocks, as (line, title).
fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        let title = line.strip_prefix("# ").filter(|_| fence.is_none());
        title.map(|title| (number, title))
    })
}

const README: &str = "README.md";
const README_PROGRAM: &str = "crates/alluvium/examples/readme.rs";

/// Checks that the program in the README is the compiled and linted example, without its module
/// comment.
pub fn check_readme(files: &[TextFile]) -> Vec<Finding> {
    let text = |path: &str| {
        files
            .iter()
            .find(|file| file.path == path)
            .map(|f| &f.text[..])
    };
    let (Some(readme), Some(example)) = (text(README), text(README_PROGRAM)) else {
        return Vec::new();
    };
    let start = example.split("\n\n").next().unwrap_or_default();
    let program = example[start.len()..].trim_start();
    let block = format!("```rust\n{program}```\n");
    if readme.contains(&block) {
        return Vec::new();
    }
    let line = 1 + readme.lines().take_while(|line| *line != "```rust").count();
    let message = format!("the program differs from {README_PROGRAM}");
    vec![Finding::error(README, line, message)]
}

/// Checks that a test named as `file.rs::name` on a page exists: in a file below `crates/`, or at
/// the path as given.
pub fn check_named_tests(files: &[TextFile]) -> Vec<Finding> {
    let mut found = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in (1..).zip(page.text.lines()) {
            for (path, name) in line.split('`').filter_map(|word| word.split_once(".rs::")) {
                let own = format!("{path}.rs");
                let is_it = |file: &&TextFile| {
                    file.path.strip_prefix("crates/") == Some(&own) || file.path == own
                };
                let head = format!("fn {name}(");
                let file = files.iter().find(is_it);
                if !file.is_some_and(|file| file.text.contains(&head)) {
                    let message = format!("there is no {name} in {own}");
                    found.push(Finding::error(&page.path, number, message));
                }
            }
        }
    }
    found
}

/// Checks that decision records are named `NNNN-*.md`, have unique numbers and are listed in their
/// README.
pub fn check_decisions(files: &[TextFile]) -> Vec<Finding> {
    let readme = files
        .iter()
        .find(|file| file.path == format!("{DECISIONS}README.md"));
    let listed = readme.map_or("", |file| file.text.as_str());
    let mut numbers = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(DECISIONS) else {
            continue;
        };
        if name == "README.md" {
            continue;
        }
        let Some(number) = record_number(name) else {
            found.push(Finding::error(
                &file.path,
                1,
                "the name of a record is NNNN-subject.md",
            ));
            continue;
        };
        if !numbers.insert(number.to_string()) {
            let message = format!("record {number} exists twice");
            found.push(Finding::error(&file.path, 1, message));
        }
        if !listed.contains(&format!("({name})")) {
            let message = format!("not listed in {DECISIONS}README.md");
            found.push(Finding::error(&file.path, 1, message));
        }
    }
    found
}

fn record_number(name: &str) -> Option<&str> {
    let (number, subject) = name.strip_suffix(".md")?.split_once('-')?;
    let digits = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !subject.is_empty()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    #[test]
    fn a_test_that_a_page_names_exists() {
        let code = || file("crates/a/src/b.rs", "#[test]\nfn it_works() {}\n");
        let named = |words: &str| {
            let page = file("docs/a.md", &format!("# A\n\n| x | {words} |\n"));
            shown(&check_named_tests(&[page, code()]))
        };
        assert!(named("`a/src/b.rs::it_works`, `b.rs` and `it_works`").is_empty());
        let missing = "3: there is no it_fails in a/src/b.rs";
        assert_eq!(
            named("`a/src/b.rs::it_works`<br>`a/src/b.rs::it_fails`"),
            [missing]
        );
        assert_eq!(named("`c.rs::x`"), ["3: there is no x in c.rs"]);
    }

    #[test]
    fn a_page_has_exactly_one_title() {
        let titles = |text: &str| shown(&check_page(&file("a.md", text)));
        assert!(titles("# One\n\n```sh\n# a comment\n```\n## Part\n").is_empty());
        assert_eq!(titles("text\n"), ["1: no # title"]);
        assert!(check_page(&file("crates/a/tests/out.md", "text\n")).is_empty());
        assert_eq!(titles("# One\n# Two\n# Three\n"), ["2: a second # title"]);
    }

    #[test]
    fn the_program_in_the_readme_is_the_example() {
        let check = |block: &str| {
            let readme = format!("# Title\n\n```rust\n{block}```\n");
            let example = "//! Why.\n\nuse a::b;\n\nfn main() {}\n";
            shown(&check_readme(&[
                file(README, &readme),
                file(README_PROGRAM, example),
            ]))
        };
        assert!(check("use a::b;\n\nfn main() {}\n").is_empty());
        let message = format!("3: the program differs from {README_PROGRAM}");
        assert_eq!(check("use a::b;\n\nfn main() { b() }\n"), [message]);
    }

    #[test]
    fn records_are_numbered_once_and_listed() {
        let files = [
            file(
                "docs/decisions/README.md",
                "# Decisions\n- [a](0001-a.md)\n- [b](0001-b.md)\n",
            ),
            file("docs/decisions/0001-a.md", ""),
            file("docs/decisions/0001-b.md", ""),
            file("docs/decisions/0002-c.md", ""),
            file("docs/decisions/12-d.md", ""),
        ];
        let expected = [
            "1: record 0001 exists twice",
            "1: not listed in docs/decisions/README.md",
            "1: the name of a record is NNNN-subject.md",
        ];
        assert_eq!(shown(&check_decisions(&files)), expected);
    }
}
