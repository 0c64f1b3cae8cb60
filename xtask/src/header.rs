//! `cargo xtask header`: the header of the C interface is generated from its crate, and checked in.
//!
//! cbindgen reads the source, so its comments become comments of the header.
//! `crates/alluvium-c/cbindgen.toml` configures the output.

use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::Finding;

const CRATE: &str = "crates/alluvium-c";
const HEADER: &str = "crates/alluvium-c/include/alluvium.h";

/// Compares the header with the output generated from its crate.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let present = std::fs::read_to_string(root.join(HEADER)).unwrap_or_default();
    Ok(difference(&present, &generated(root)?)
        .into_iter()
        .collect())
}

/// Writes the header.
pub fn update(root: &Path) -> Result<Vec<Finding>> {
    let text = generated(root)?;
    std::fs::write(root.join(HEADER), text).with_context(|| format!("cannot write {HEADER}"))?;
    Ok(Vec::new())
}

fn generated(root: &Path) -> Result<String> {
    let folder = root.join(CRATE);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"));
    let config = config.map_err(anyhow::Error::msg)?;
    let bindings = cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .with_context(|| format!("cannot read {CRATE}"))?;
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    String::from_utf8(bytes).context("the header is not UTF-8")
}

/// Returns a finding for the first line that differs.
fn difference(present: &str, expected: &str) -> Option<Finding> {
    if present == expected {
        return None;
    }
    let same = present.lines().zip(expected.lines());
    let line = same
        .take_while(|(present, expected)| present == expected)
        .count()
        + 1;
    let message =
        "the C interface changed: run `cargo xtask header`, and look at what that changes";
    Some(Finding::error(HEADER, line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let line = |present| difference(present, "a\nb\n").map(|found| found.line);
        assert_eq!(line("a\nc\n"), Some(2));
        assert_eq!(line("a\n"), Some(2));
        assert_eq!(line(""), Some(1));
    }
}
