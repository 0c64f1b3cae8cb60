//! Check of wide types: a type with many fields that many files name is a place where unrelated
//! subjects meet. Each of these files should get the part that it needs.
//!
//! A list names the types that are allowed. An entry that is no longer needed is an error too.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;

use super::modules::Modules;
use super::uses::Use;

const FIELDS_MAX: usize = 12;
/// Files outside tests that may name such a type, besides its own.
const FILES_MAX: usize = 10;

/// Type that is allowed: its file and name, and the reason.
type Allowed = (&'static str, &'static str, &'static str);

/// Types with many fields that many files may name.
const ALLOWED: &[Allowed] = &[
    (
        "crates/alluvium/src/db/options.rs",
        "Options",
        "settings of a user, plain data",
    ),
    (
        "crates/alluvium/src/version/edit.rs",
        "VersionEdit",
        "record of the manifest, plain data",
    ),
    (
        "crates/rumbench/src/store/phase.rs",
        "Interval",
        "part of a result file, plain data",
    ),
    (
        "crates/rumbench/src/store/phase.rs",
        "PhaseResult",
        "part of a result file, plain data",
    ),
    (
        "crates/rumbench/src/store/result.rs",
        "SuiteResult",
        "a result file, plain data",
    ),
    (
        "crates/rumbench/src/store/result.rs",
        "TrialResult",
        "part of a result file, plain data",
    ),
];

/// Finds wide types that are not allowed, and entries of the list that are not needed.
pub fn check(modules: &Modules, uses: &[Use<'_>]) -> Vec<Finding> {
    check_list(modules, uses, ALLOWED)
}

fn check_list(modules: &Modules, uses: &[Use<'_>], allowed: &[Allowed]) -> Vec<Finding> {
    let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for used in uses {
        let of = files.entry((used.to, &used.item)).or_default();
        of.insert(used.from);
    }
    let mut found = Vec::new();
    let mut wide = BTreeSet::new();
    for module in &modules.all {
        for (name, fields) in &module.items {
            let place = (module.file.as_str(), name.as_str());
            let files = files.get(&place).map_or(0, BTreeSet::len);
            if *fields <= FIELDS_MAX || files <= FILES_MAX {
                continue;
            }
            wide.insert(place);
            if !allowed
                .iter()
                .any(|(file, name, _)| (*file, *name) == place)
            {
                let message = format!(
                    "{name} has {fields} fields and is named in {files} files: with more than \
                     {FIELDS_MAX} fields, {FILES_MAX} at most"
                );
                found.push(Finding::error(&module.file, 1, message));
            }
        }
    }
    for (file, name, _) in allowed {
        if !wide.contains(&(*file, *name)) {
            let message = format!("{name} is not wide: remove it from wide_types.rs");
            found.push(Finding::error(file, 1, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, shown};
    use super::super::uses;
    use super::*;

    /// Checks a type with so many fields that so many other files name.
    fn found(fields: usize, files: usize, allowed: &[Allowed]) -> Vec<String> {
        let listed: String = (0..fields).map(|n| format!("    f{n}: a::B,\n")).collect();
        let others = |text: fn(usize) -> String| (0..files).map(text).collect::<String>();
        let root = others(|n| format!("mod m{n};\n"));
        let wide = format!("{root}pub struct Wide<T: Copy> {{\n{listed}}}\n");
        let mut all = vec![file("x/src/lib.rs", &wide)];
        for n in 0..files {
            let text = "use crate::Wide;\n#[cfg(test)]\nmod tests {\n    use crate::Wide;\n}\n";
            all.push(file(&format!("x/src/m{n}.rs"), text));
        }
        let modules = Modules::read(&all);
        shown(&check_list(&modules, &uses::uses(&modules), allowed))
    }

    #[test]
    fn a_wide_type_in_many_files_is_found() {
        let message = "1: Wide has 13 fields and is named in 11 files: with more than 12 fields, \
                       10 at most";
        assert_eq!(found(13, 11, &[]), [message]);
        assert_eq!(found(12, 11, &[]), [""; 0]);
        assert_eq!(found(13, 10, &[]), [""; 0]);
    }

    #[test]
    fn the_list_allows_wide_types_and_nothing_else() {
        let entry = ("x/src/lib.rs", "Wide", "a list of settings");
        assert_eq!(found(13, 11, &[entry]), [""; 0]);
        let message = "1: Wide is not wide: remove it from wide_types.rs";
        assert_eq!(found(12, 11, &[entry]), [message]);
    }
}
