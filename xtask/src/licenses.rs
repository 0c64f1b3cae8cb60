//! `cargo xtask licenses`: every dependency, also of optional engines, has an accepted license.
//!
//! Dependencies of the engine have stricter rules. Apache-2.0 alone is not accepted for them,
//! because a user of the engine under MIT must not get additional terms with it. Exceptions for
//! tools do not apply to them either.
//!
//! The licenses are those declared by the packages; code in other languages in a package is covered
//! as far as the package's expression covers it. docs/decisions/0003-license-check.md describes the
//! limits of this check.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::finding::Finding;

/// Licenses that require only their notice.
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

/// Packages for users of the engine: these with all their dependencies, except those for tests.
const EMBEDDED: &[&str] = &["alluvium", "alluvium-c"];

/// License that is not accepted alone for embedded packages.
const NOT_EMBEDDED: &str = "Apache-2.0";

/// Our tools with licenses that require more than their notice. docs/decisions/0002-dependencies.md
/// justifies each.
const TOOLS: &[(&str, &str)] = &[("cbindgen", "MPL-2.0")];

/// Checks the licenses of all dependencies of all crates with all features, for the host's
/// platform.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    findings(&cargo_metadata(root, &host_platform()?)?)
}

/// Returns cargo's resolution for all crates with all features on one platform, as JSON.
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

/// Returns the platform that the compiler runs on and builds for.
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
    let embedded = embedded(&metadata);
    let mut found = Vec::new();
    // Packages of the workspace have no source.
    for package in packages
        .iter()
        .filter(|package| !package["source"].is_null())
    {
        let text = |field: &str| package[field].as_str().unwrap_or("?");
        let is_embedded = embedded.contains(text("id"));
        let allowed = |licence: &str| {
            if is_embedded {
                licence != NOT_EMBEDDED && ALLOWED.contains(&licence)
            } else {
                ALLOWED.contains(&licence) || TOOLS.contains(&(text("name"), licence))
            }
        };
        let name = format!("{} {}", text("name"), text("version"));
        let place = if is_embedded {
            "not on the list for what users build"
        } else {
            "not on the list"
        };
        let message = match package["license"].as_str() {
            None => format!("{name} declares no licence"),
            Some(licence) => match accepted(licence, &allowed) {
                Ok(true) => continue,
                Ok(false) => format!("{name} has a licence that is {place}: {licence}"),
                Err(reason) => format!("{name}: cannot read the licence {licence}: {reason}"),
            },
        };
        found.push(Finding::error("Cargo.lock", 1, message));
    }
    Ok(found)
}

/// Returns the ids of the packages that users of the engine build.
fn embedded(metadata: &Value) -> HashSet<&str> {
    let nodes = items(&metadata["resolve"]["nodes"]);
    let roots = items(&metadata["packages"]).iter().filter(|package| {
        let name = package["name"].as_str().unwrap_or("?");
        package["source"].is_null() && EMBEDDED.contains(&name)
    });
    let mut open: Vec<&str> = roots.filter_map(|package| package["id"].as_str()).collect();
    let mut seen = HashSet::new();
    // The loop ends because each package is opened once.
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let needed = node.map_or(&[][..], |node| items(&node["deps"]));
        let needed = needed.iter().filter(|needed| !only_for_tests(needed));
        open.extend(needed.filter_map(|needed| needed["pkg"].as_str()));
    }
    seen
}

/// Returns true if a dependency is only for tests.
fn only_for_tests(needed: &Value) -> bool {
    let kinds = items(&needed["dep_kinds"]);
    !kinds.is_empty() && kinds.iter().all(|kind| kind["kind"] == "dev")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns true if the allowed licenses satisfy a license expression.
fn accepted(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    // Old packages write a slash for OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = Words {
        words: spaced.split_whitespace().collect(),
        read: 0,
        allowed,
    };
    let accepted = words.any_of()?;
    match words.peek() {
        None => Ok(accepted),
        Some(word) => Err(format!("unexpected {word}")),
    }
}

/// Words of an expression, and the number of words read: `AND` binds closer than `OR`.
struct Words<'a> {
    words: Vec<&'a str>,
    read: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.read).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let taken = self.peek() == Some(word);
        self.read += usize::from(taken);
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
        self.read += 1;
        if !self.take("WITH") {
            return Ok((self.allowed)(name));
        }
        let exception = self.peek().ok_or("it ends early")?;
        self.read += 1;
        Ok((self.allowed)(&format!("{name} WITH {exception}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(licence: &str) -> bool {
        ALLOWED.contains(&licence)
    }

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
            assert_eq!(accepted(good, &listed), Ok(true), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR ISC) AND GPL-3.0",
            "MIT WITH odd-exception",
        ] {
            assert_eq!(accepted(bad, &listed), Ok(false), "{bad}");
        }
        for unreadable in ["", "MIT OR", "(MIT", "MIT ISC", "MIT WITH"] {
            assert!(accepted(unreadable, &listed).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn packages_with_other_or_no_licenses_are_named() {
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
    fn what_users_build_is_held_to_more() {
        let metadata = |id: &str, licence: &str, kind: &str| {
            format!(
                r#"{{"packages": [
                    {{"id": "0", "name": "alluvium", "version": "1.0.0", "source": null, "license": null}},
                    {{"id": "1", "name": "between", "version": "1.0.0", "source": "r", "license": "MIT"}},
                    {{"id": "2", "name": "cbindgen", "version": "1.0.0", "source": "r", "license": "{licence}"}}
                ], "resolve": {{"nodes": [
                    {{"id": "0", "deps": [{{"pkg": "1", "dep_kinds": [{{"kind": {kind}}}]}}]}},
                    {{"id": "1", "deps": [{{"pkg": "{id}", "dep_kinds": [{{"kind": null}}]}}]}},
                    {{"id": "2", "deps": []}}
                ]}}}}"#
            )
        };
        let count = |id, licence, kind| {
            let found = findings(metadata(id, licence, kind).as_bytes());
            found.expect("the metadata can be read").len()
        };
        for licence in ["Apache-2.0", "MPL-2.0"] {
            assert_eq!(count("2", licence, "null"), 1, "{licence}");
            assert_eq!(count("2", licence, "\"build\""), 1, "{licence}");
            assert_eq!(count("2", licence, "\"dev\""), 0, "{licence}");
            assert_eq!(count("1", licence, "null"), 0, "{licence}");
        }
        assert_eq!(count("2", "MIT OR Apache-2.0", "null"), 0);
        assert_eq!(count("1", "MPL-1.1", "null"), 1);
    }

    #[test]
    fn metadata_without_packages_is_an_error() {
        assert!(findings(b"{}").is_err());
    }
}
