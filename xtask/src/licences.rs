//! `cargo xtask licences`: every dependency, also of optional engines, has a licence that we accept.
//!
//! The licences are those that the packages declare; code in other languages that a package carries is covered as far
//! as its own expression covers it. docs/decisions/0003-licence-check.md says what that leaves open.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::finding::Finding;

/// Licences that ask for nothing but their notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks the licences of all dependencies of all crates with all features, for the host's platform.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    findings(&cargo_metadata(root, &host_platform()?)?)
}

/// What cargo resolves for all crates with all features on one platform, as JSON.
pub fn cargo_metadata(root: &Path, platform: &str) -> Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--all-features", "--filter-platform", platform])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {}", errors.trim());
    Ok(output.stdout)
}

/// The platform that the compiler runs on and builds for.
pub fn host_platform() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).context("rustc -vV names no host")
}

fn findings(metadata: &[u8]) -> Result<Vec<Finding>> {
    let metadata: Value = serde_json::from_slice(metadata).context("cargo metadata is no JSON")?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo metadata lists no packages")?;
    let mut found = Vec::new();
    // Packages of the workspace have no source.
    for package in packages
        .iter()
        .filter(|package| !package["source"].is_null())
    {
        let text = |field: &str| package[field].as_str().unwrap_or("?");
        let name = format!("{} {}", text("name"), text("version"));
        let message = match package["license"].as_str() {
            None => format!("{name} declares no licence"),
            Some(licence) => match accepted(licence) {
                Ok(true) => continue,
                Ok(false) => format!("{name} has a licence that is not on the list: {licence}"),
                Err(reason) => format!("{name}: cannot read the licence {licence}: {reason}"),
            },
        };
        found.push(Finding::error("Cargo.lock", 1, message));
    }
    Ok(found)
}

/// Whether a licence expression can be met with the allow-list alone.
fn accepted(expression: &str) -> Result<bool, String> {
    // Old packages write a slash for OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = Words(spaced.split_whitespace().collect(), 0);
    let accepted = words.any_of()?;
    match words.peek() {
        None => Ok(accepted),
        Some(word) => Err(format!("unexpected {word}")),
    }
}

/// The words of an expression and how many of them are read: `AND` binds closer than `OR`.
struct Words<'a>(Vec<&'a str>, usize);

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.0.get(self.1).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let taken = self.peek() == Some(word);
        self.1 += usize::from(taken);
        taken
    }

    fn any_of(&mut self) -> Result<bool, String> {
        let mut accepted = self.all_of()?;
        while self.take("OR") {
            accepted |= self.all_of()?;
        }
        Ok(accepted)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut accepted = self.one()?;
        while self.take("AND") {
            accepted &= self.one()?;
        }
        Ok(accepted)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let accepted = self.any_of()?;
            return self
                .take(")")
                .then_some(accepted)
                .ok_or("no closing bracket".into());
        }
        let name = self.peek().ok_or("it ends early")?;
        self.1 += 1;
        if !self.take("WITH") {
            return Ok(ALLOWED.contains(&name));
        }
        let exception = self.peek().ok_or("it ends early")?;
        self.1 += 1;
        Ok(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_with_and_before_or() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "MIT OR GPL-3.0 AND GPL-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert_eq!(accepted(good), Ok(true), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR ISC) AND GPL-3.0",
            "MIT WITH odd-exception",
        ] {
            assert_eq!(accepted(bad), Ok(false), "{bad}");
        }
        for unreadable in ["", "MIT OR", "(MIT", "MIT ISC", "MIT WITH"] {
            assert!(accepted(unreadable).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn packages_with_other_or_no_licences_are_named() {
        let metadata = r#"{"packages": [
            {"name": "ours", "version": "1.0.0", "source": null, "license": null},
            {"name": "good", "version": "1.0.0", "source": "r", "license": "MIT"},
            {"name": "bad", "version": "2.0.0", "source": "r", "license": "SSPL-1.0"},
            {"name": "none", "version": "3.0.0", "source": "r", "license": null}
        ]}"#;
        let found = findings(metadata.as_bytes()).unwrap_or_default();
        let messages: Vec<_> = found
            .iter()
            .map(|finding| finding.message.as_str())
            .collect();
        let expected = [
            "bad 2.0.0 has a licence that is not on the list: SSPL-1.0",
            "none 3.0.0 declares no licence",
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn metadata_without_packages_is_an_error() {
        assert!(findings(b"{}").is_err());
    }
}
