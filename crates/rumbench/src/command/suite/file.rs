//! The file of a suite: runs that follow each other, each with the flags of `rumbench run`.
//!
//! ```toml
//! description = "what it is for"
//!
//! [all]                       # flags of every run
//! engine = ["alluvium", "rocksdb?"]
//! set = { clients = 2 }
//!
//! [[run]]
//! name = "short"              # name of its folder; default: the workload's name
//! workload = "linkbench"
//! set = { seconds = 30 }      # added to the settings of [all]; other flags replace those of [all]
//! ```
//!
//! An engine with a question mark is left out if the build lacks it. Errors name file and line.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Args, Command};
use rumbench_core::names::unknown;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::catalog::usage;
use crate::command::run::RunArgs;

/// Parsed suite file.
#[derive(Debug, PartialEq, Eq)]
pub struct SuiteFile {
    /// Purpose of the suite, shown in lists.
    pub description: String,
    /// Runs in order.
    pub runs: Vec<Asked>,
}

/// One run of the suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Name of the run's folder.
    pub name: String,
    /// Arguments of `rumbench run`.
    pub words: Vec<String>,
}

/// Flags that the suite itself controls.
const NOT_HERE: [&str; 6] = ["out", "no-store", "json", "markdown", "keep-data", "help"];

/// Values of a flag; for `set`, values by key.
type Flags<'a> = BTreeMap<String, &'a Spanned<DeValue<'a>>>;

struct Text<'a> {
    file: &'a str,
    text: &'a str,
}

type Read<T> = Result<T, anyhow::Error>;

/// Parses a suite file; `is_built` returns true for engines of this build.
///
/// # Errors
/// A usage error with file and line.
pub fn read(file: &str, text: &str, is_built: &dyn Fn(&str) -> bool) -> Read<SuiteFile> {
    let source = Text { file, text };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.refuse(at, error.message())
    })?;
    let root = root.get_ref();
    source.check_keys(root, "a suite", &["description", "all", "run"])?;
    let description = match root.get("description") {
        Some(value) => source.word(value)?,
        None => return Err(source.refuse(0, "a suite needs `description`: what it is for")),
    };
    let empty = DeTable::new();
    let all = match root.get("all") {
        Some(value) => source.table(value)?,
        None => &empty,
    };
    let Some(list) = root.get("run").and_then(|value| value.get_ref().as_array()) else {
        return Err(source.refuse(0, "a suite needs runs: [[run]] with `workload`"));
    };
    let mut runs: Vec<Asked> = Vec::new();
    for value in list.iter() {
        let run = source.run(all, value, is_built)?;
        if runs.iter().any(|other| other.name == run.name) {
            let message = format!("two runs are named `{}`: give one another `name`", run.name);
            return Err(source.refuse(value.span().start, message));
        }
        runs.push(run);
    }
    Ok(SuiteFile { description, runs })
}

impl Text<'_> {
    fn refuse(&self, at: usize, message: impl std::fmt::Display) -> anyhow::Error {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        usage(format!("{}, line {line}: {message}", self.file))
    }

    fn check_keys(&self, table: &DeTable<'_>, what: &str, known: &[&str]) -> Read<()> {
        for (key, _) in table.iter() {
            if !known.contains(&&**key.get_ref()) {
                let message = unknown(&format!("key of {what}"), key.get_ref(), known);
                return Err(self.refuse(key.span().start, message));
            }
        }
        Ok(())
    }

    fn table<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Read<&'a DeTable<'a>> {
        let table = value.get_ref().as_table();
        table.ok_or_else(|| self.refuse(value.span().start, "this must be a table"))
    }

    /// Returns a string as it is; a number or a boolean as it is written on a command line.
    fn word(&self, value: &Spanned<DeValue<'_>>) -> Read<String> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Boolean(is) => Ok(is.to_string()),
            // Taken from the source text, without the digit separators of TOML.
            DeValue::Integer(_) | DeValue::Float(_) => Ok(self.text[value.span()].replace('_', "")),
            other => {
                let message = format!(
                    "this must be a string or a number, not a {}",
                    other.type_str()
                );
                Err(self.refuse(value.span().start, message))
            }
        }
    }

    fn run(
        &self,
        all: &DeTable<'_>,
        value: &Spanned<DeValue<'_>>,
        is_built: &dyn Fn(&str) -> bool,
    ) -> Read<Asked> {
        let (own, at) = (self.table(value)?, value.span().start);
        let flags = flag_names();
        let known: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.check_keys(all, "[all]", &known)?;
        let mut allowed = known.clone();
        allowed.extend(["name", "workload"]);
        self.check_keys(own, "[[run]]", &allowed)?;
        let Some(workload) = own.get("workload") else {
            return Err(self.refuse(at, "a run needs `workload`"));
        };
        let workload = self.word(workload)?;
        let name = match own.get("name") {
            Some(name) => self.word(name)?,
            None => {
                let stem = Path::new(&workload).file_stem();
                stem.unwrap_or_default().to_string_lossy().into_owned()
            }
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(is_plain) {
            let message = format!(
                "`{name}` cannot be the name of a folder: give the run a `name` of letters, digits, - and _"
            );
            return Err(self.refuse(at, message));
        }
        let (mut flags, mut sets) = (Flags::new(), Flags::new());
        for (key, value) in all.iter().chain(own.iter()) {
            match &**key.get_ref() {
                "name" | "workload" => {}
                "set" => self.flatten("", self.table(value)?, &mut sets),
                key => drop(flags.insert(key.to_string(), value)),
            }
        }
        let mut words = vec![workload];
        for (key, value) in flags {
            self.push(&mut words, &key, value, is_built)?;
        }
        for (key, value) in sets {
            words.push(format!("--set={key}={}", self.word(value)?));
        }
        Ok(Asked { name, words })
    }

    /// Collects settings under dotted keys. TOML parses `rocksdb.block_cache = "lru"` as a table
    /// in a table, but it is one setting.
    fn flatten<'a>(&self, before: &str, table: &'a DeTable<'a>, sets: &mut Flags<'a>) {
        for (key, value) in table.iter() {
            let key = format!("{before}{}", key.get_ref());
            match value.get_ref().as_table() {
                Some(inner) => self.flatten(&format!("{key}."), inner, sets),
                None => drop(sets.insert(key, value)),
            }
        }
    }

    fn push(
        &self,
        words: &mut Vec<String>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        is_built: &dyn Fn(&str) -> bool,
    ) -> Read<()> {
        let values: Vec<String> = match value.get_ref() {
            DeValue::Boolean(true) => {
                words.push(format!("--{key}"));
                return Ok(());
            }
            DeValue::Boolean(false) => return Ok(()),
            DeValue::Array(list) => list.iter().map(|v| self.word(v)).collect::<Read<_>>()?,
            _ => vec![self.word(value)?],
        };
        let mut left_out = 0;
        for word in &values {
            let word = match word.strip_suffix('?').filter(|_| key == "engine") {
                Some(engine) if !is_built(engine) => {
                    left_out += 1;
                    continue;
                }
                Some(engine) => engine,
                None => word,
            };
            words.push(format!("--{key}={word}"));
        }
        if left_out == values.len() && key == "engine" {
            Err(self.refuse(value.span().start, "this build has none of these engines"))
        } else {
            Ok(())
        }
    }
}

/// Returns all flags of `rumbench run` that are allowed in a file.
fn flag_names() -> Vec<String> {
    let command = RunArgs::augment_args(Command::new("run"));
    let longs = command.get_arguments().filter_map(|flag| flag.get_long());
    let here = longs.filter(|long| !NOT_HERE.contains(long));
    here.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Usage;

    fn read_it(text: &str) -> Result<SuiteFile, String> {
        let built = |engine: &str| engine != "rocksdb";
        read("f.toml", text, &built).map_err(|error| {
            assert!(error.is::<Usage>());
            error.to_string()
        })
    }

    #[test]
    fn runs_have_the_flags_of_all_unless_they_have_their_own_and_settings_are_added() {
        let text = r#"
            description = "d"
            [all]
            engine = ["null", "rocksdb?", "sqlite?"]
            repeat = 5
            mix-durability = true
            set = { clients = 2, sqlite.page_size = 4_096 }
            [[run]]
            workload = "linkbench"
            [[run]]
            name = "own"
            workload = "./dir/own.toml"
            repeat = 1
            no-such = false
        "#;
        let error = read_it(text).unwrap_err();
        assert!(
            error.starts_with("f.toml, line 14: no key of [[run]] is named `no-such`"),
            "{error}"
        );
        let text = text.replace(
            "no-such = false",
            "mix-durability = false\nset = { clients = 4, rate = 1.5 }",
        );
        let runs = read_it(&text).unwrap().runs;
        let words = |run: usize| runs[run].words.join(" ");
        assert_eq!(runs[0].name, "linkbench");
        assert_eq!(
            words(0),
            "linkbench --engine=null --engine=sqlite --mix-durability --repeat=5 --set=clients=2 --set=sqlite.page_size=4096"
        );
        assert_eq!(runs[1].name, "own");
        assert_eq!(
            words(1),
            "./dir/own.toml --engine=null --engine=sqlite --repeat=1 --set=clients=4 --set=rate=1.5 --set=sqlite.page_size=4096"
        );
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_line() {
        let run = "[[run]]\nworkload = \"linkbench\"\n";
        for (text, expected) in [
            ("description = 1 2", "line 1: "),
            ("[all]", "a suite needs `description`"),
            ("description = \"d\"", "a suite needs runs"),
            (
                "description = \"d\"\nruns = 1",
                "line 2: no key of a suite is named `runs`; did you mean `run`?",
            ),
            (
                "description = \"d\"\n[[run]]\nname = \"a\"",
                "line 2: a run needs `workload`",
            ),
            (
                "description = \"d\"\n[[run]]\nworkload = \"a\"\nname = \"../a\"",
                "`../a` cannot be the name of a folder",
            ),
            (
                "description = \"d\"\n[all]\nout = \"x\"\n[[run]]\nworkload = \"a\"",
                "no key of [all] is named `out`",
            ),
            (
                "description = \"d\"\n[all]\nengine = [\"rocksdb?\"]\n[[run]]\nworkload = \"a\"",
                "line 3: this build has none of these engines",
            ),
            (
                "description = \"d\"\n[all]\nset = 1\n[[run]]\nworkload = \"a\"",
                "line 3: this must be a table",
            ),
            (
                "description = \"d\"\n[all]\nrepeat = 2020-01-01\n[[run]]\nworkload = \"a\"",
                "line 3: this must be a string or a number",
            ),
            (
                &format!("description = \"d\"\n{run}{run}"),
                "line 4: two runs are named `linkbench`",
            ),
        ] {
            let error = read_it(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
