//! `cargo xtask formats`: the code of an on-disk format and its page change together.
//!
//! The last line of each page in `docs/format/` names the source files of its format (paths from
//! the root of the workspace) and a hash over their code:
//! `<!-- formats: crates/x/src/a.rs crates/x/src/b.rs = 0123456789abcdef -->`.
//! Comments, white space and tests do not count. A change of the code fails the check until the
//! hash on the page is updated.

use std::path::Path;

use anyhow::{Context, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::files::{self, TextFile};
use crate::finding::Finding;
use crate::source::{self, Source};

const PAGES: &str = "docs/format/";
const OPEN: &str = "<!-- formats:";
const CHANGED: &str =
    "the code of this format changed: check the page, then run `cargo xtask formats --update`";
const NO_LINE: &str =
    "no last line `<!-- formats: FILE... = HASH -->` that names the source files of this format";

/// Checks all pages.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    Ok(findings(&files::text_files(root)?))
}

/// Writes the current hash into each outdated page, and returns findings for the rest.
pub fn update(root: &Path) -> Result<Vec<Finding>> {
    let files = files::text_files(root)?;
    for page in pages(&files) {
        if let Some(text) = updated(page, &files) {
            let path = root.join(&page.path);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", page.path))?;
        }
    }
    check(root)
}

fn pages(files: &[TextFile]) -> impl Iterator<Item = &TextFile> {
    files.iter().filter(|file| {
        let name = file.path.strip_prefix(PAGES);
        name.is_some_and(|name| name.ends_with(".md") && name != "README.md")
    })
}

fn findings(files: &[TextFile]) -> Vec<Finding> {
    let check = |page: &TextFile| {
        let last = page.text.lines().count();
        let Some(line) = FormatLine::parse(&page.text) else {
            return Some(Finding::error(&page.path, last, NO_LINE));
        };
        match line.present_hash(files) {
            Ok(hash) if hash == line.hash => None,
            Ok(_) => Some(Finding::error(&page.path, last, CHANGED)),
            Err(error) => Some(Finding::error(&page.path, last, error)),
        }
    };
    pages(files).filter_map(check).collect()
}

/// Returns the page with the current hash, if its hash is outdated.
fn updated(page: &TextFile, files: &[TextFile]) -> Option<String> {
    let line = FormatLine::parse(&page.text)?;
    let hash = line.present_hash(files).ok()?;
    if hash == line.hash {
        return None;
    }
    let start = page.text.rfind(OPEN)?;
    let sources = line.sources.join(" ");
    Some(format!(
        "{}{OPEN} {sources} = {hash} -->\n",
        &page.text[..start]
    ))
}

/// Machine-readable last line of a page.
struct FormatLine<'a> {
    sources: Vec<&'a str>,
    hash: &'a str,
}

impl<'a> FormatLine<'a> {
    fn parse(page: &'a str) -> Option<FormatLine<'a>> {
        let line = page.lines().next_back()?.trim();
        let content = line.strip_prefix(OPEN)?.strip_suffix("-->")?;
        let (sources, hash) = content.split_once('=')?;
        let sources: Vec<&str> = sources.split_whitespace().collect();
        let hash = hash.trim();
        (!sources.is_empty()).then_some(FormatLine { sources, hash })
    }

    /// Returns the hash of the current code, or an error that names a missing file.
    fn present_hash(&self, files: &[TextFile]) -> Result<String, String> {
        let mut code = String::new();
        for path in &self.sources {
            let file = files.iter().find(|file| file.path == *path);
            let file = file.ok_or_else(|| format!("no source file {path}"))?;
            code.push_str(&format_code(&file.text));
            // Moving code from one file to the next is a change too.
            code.push('\0');
        }
        Ok(format!("{:016x}", xxh3_64(code.as_bytes())))
    }
}

/// Returns the relevant part of a source file: code and literals, without comments, white space and
/// tests.
fn format_code(text: &str) -> String {
    let source = Source::new(text);
    let tests = source::test_ranges(&source.code());
    let bytes = source
        .without_comments()
        .into_bytes()
        .into_iter()
        .enumerate();
    let kept = bytes.filter(|(at, byte)| {
        !byte.is_ascii_whitespace() && !tests.iter().any(|range| range.contains(at))
    });
    kept.map(|(_, byte)| char::from(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A.\nconst MAGIC: &[u8] = b\"AL\";\n";

    fn file(path: &str, text: &str) -> TextFile {
        let (path, text) = (path.to_string(), text.to_string());
        TextFile { path, text }
    }

    /// Returns a workspace with one page, up to date for [`CODE`], and this source.
    fn workspace(code: &str) -> Vec<TextFile> {
        let page = file(
            "docs/format/a.md",
            "# A\n\n<!-- formats: src/a.rs = 0 -->\n",
        );
        let current = updated(&page, &[file("src/a.rs", CODE)]).unwrap_or_default();
        vec![file("docs/format/a.md", &current), file("src/a.rs", code)]
    }

    #[test]
    fn comments_spaces_and_tests_do_not_count() {
        let other = "//! B.\nconst MAGIC : &[u8]\n = b\"AL\"; // why\n#[cfg(test)]\nmod tests {}\n";
        assert!(findings(&workspace(CODE)).is_empty());
        assert!(findings(&workspace(other)).is_empty());
    }

    #[test]
    fn a_change_of_code_or_literal_is_found_and_update_accepts_it() {
        let mut files = workspace("const MAGIC: &[u8] = b\"AM\";");
        assert_eq!(findings(&files)[0].message, CHANGED);
        files[0].text = updated(&files[0], &files).unwrap_or_default();
        assert!(
            files[0]
                .text
                .starts_with("# A\n\n<!-- formats: src/a.rs = ")
        );
        assert!(findings(&files).is_empty());
    }

    #[test]
    fn missing_lines_and_files_are_found() {
        let page = file("docs/format/a.md", "# A\n");
        assert_eq!(findings(&[page])[0].message, NO_LINE);
        let page = file("docs/format/a.md", "# A\n<!-- formats: src/b.rs = 0 -->");
        assert_eq!(findings(&[page])[0].message, "no source file src/b.rs");
        assert!(findings(&[file("docs/format/README.md", "# Formats\n")]).is_empty());
    }
}
