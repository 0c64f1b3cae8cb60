//! `cargo xtask tidy`: style rules that a text check can enforce instead of reviewers.
//!
//! [`rust`] has the rules for every source file, [`language`] those for the words of comments,
//! [`layers`] those for uses between modules of a crate. [`seam`] checks that a simulation
//! controls the order of events, [`markdown`] checks pages, [`guide`] the guide's statements about
//! itself, [`c_interface`] the completeness of the C interface. [`circles`] and [`wide_types`] look
//! at the uses between files. Rules for every text file are here.

mod c_interface;
mod circles;
mod guide;
mod language;
mod layers;
mod markdown;
mod modules;
mod rust;
mod seam;
mod uses;
mod wide_types;

use std::path::Path;

use anyhow::Result;

use crate::files::{self, TextFile};
use crate::finding::Finding;

/// Checks all files of the workspace.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = files::text_files(root)?;
    let mut found = findings(&files);
    found.extend(structure(&files));
    Ok(found)
}

/// Checks the uses between all files. The lists of exceptions name files of the workspace, so these
/// checks say nothing about a part of it.
fn structure(files: &[TextFile]) -> Vec<Finding> {
    let modules = modules::Modules::read(files);
    let uses = uses::uses(&modules);
    let mut found = circles::check(&uses);
    found.extend(wide_types::check(&modules, &uses));
    found
}

fn findings(files: &[TextFile]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        found.extend(machine_paths(file));
        if file.path.ends_with(".rs") {
            found.extend(rust::check(file));
            found.extend(layers::check(file));
            found.extend(seam::check(file));
        } else if file.path.ends_with(".md") {
            found.extend(markdown::check_page(file));
        }
    }
    found.extend(language::check(files));
    found.extend(markdown::check_decisions(files));
    found.extend(markdown::check_readme(files));
    found.extend(markdown::check_named_tests(files));
    found.extend(guide::check(files));
    found.extend(c_interface::check(files));
    found
}

/// Folders that exist only on one developer's machine. Written in halves, so that this file passes
/// its own check.
const MACHINE_FOLDERS: [&str; 3] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
];

/// Finds absolute paths of a developer's machine, which mean nothing elsewhere.
fn machine_paths(file: &TextFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for folder in MACHINE_FOLDERS {
            let absolute = line.match_indices(folder).any(|(at, _)| {
                // After a name or a closing bracket, the folder is part of a relative path or an
                // address.
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-~})/".contains(c))
            });
            if absolute {
                let message = format!("a path of one machine: {folder}");
                found.push(Finding::error(&file.path, number, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with this path and text.
    pub fn file(path: &str, text: &str) -> TextFile {
        let (path, text) = (path.to_string(), text.to_string());
        TextFile { path, text }
    }

    /// Returns findings as `line: message`.
    pub fn shown(found: &[Finding]) -> Vec<String> {
        let show = |f: &Finding| format!("{}: {}", f.line, f.message);
        found.iter().map(show).collect()
    }

    #[test]
    fn absolute_machine_paths_are_found_and_relative_ones_are_not() {
        let home = MACHINE_FOLDERS[1];
        let text = format!("ok\nsee {home}ann/x\nsee src{home}x and $HOME/x\n");
        let found = machine_paths(&file("a.toml", &text));
        assert_eq!(shown(&found), [format!("2: a path of one machine: {home}")]);
    }

    #[test]
    fn every_kind_of_file_gets_its_checks() {
        let files = [
            file("crates/x/src/lib.rs", "fn f() {}\n"),
            file("docs/guide/a.md", "no title\n"),
            file("docs/decisions/README.md", "# Decisions\n"),
            file("docs/decisions/1-short.md", "# One\n"),
            file(
                "crates/alluvium/src/wal/mod.rs",
                "//! W.\nuse crate::db::Database;\n",
            ),
        ];
        let paths: Vec<_> = findings(&files).into_iter().map(|f| f.path).collect();
        let mut expected: Vec<_> = files.iter().map(|f| f.path.clone()).collect();
        expected.retain(|path| !path.ends_with("README.md"));
        expected.sort();
        let mut paths: Vec<_> = paths;
        paths.sort();
        paths.dedup();
        assert_eq!(paths, expected);
    }
}
