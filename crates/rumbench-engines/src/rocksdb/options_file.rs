//! A user's RocksDB OPTIONS file in place of this laboratory's configuration.
//!
//! Such a file has a section of database options and, for each column family, one of its own
//! options and one of its tables. Each map takes the sections of the column family with its name,
//! or those of `default` if the file has none. So this module rewrites the file with a column
//! family for each map, and RocksDB reads that. RocksDB reports unknown options in its own words.
//!
//! The command line still decides `cache_bytes` and the durability class. Options that would change
//! them, the order of keys or the location of files are refused.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rocksdb::{Cache, ColumnFamilyDescriptor, DEFAULT_COLUMN_FAMILY_NAME, Env, Options};
use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::MapDef;

use crate::error::failed;
use crate::facts::Configuration;

/// Options, the only values that they may have here, and the reason.
const REFUSED: &[(&str, &[&str], &str)] = &[
    (
        "comparator",
        &["leveldb.BytewiseComparator"],
        "keys are ordered as bytes",
    ),
    ("wal_dir", &[""], "all files belong in the trial's folder"),
    (
        "db_log_dir",
        &[""],
        "all files belong in the trial's folder",
    ),
    (
        "avoid_flush_during_shutdown",
        &["false"],
        "a database that is closed must keep what was written without a log",
    ),
    (
        "manual_wal_flush",
        &["false"],
        "--durability says when the log is written",
    ),
];

/// Options file that was read and has no refused option.
pub(super) struct OptionsFile {
    path: PathBuf,
    sections: Vec<Section>,
}

/// Section of the file: a line in brackets and the options below it.
struct Section {
    /// Text between the brackets without the name of the column family, for example `CFOptions`.
    kind: String,
    /// Name of the column family; `None` for a section of the whole database.
    family: Option<String>,
    /// One `KEY=VALUE` each.
    options: Vec<String>,
}

impl OptionsFile {
    /// Reads a file and refuses options that this laboratory decides.
    pub(super) fn read(path: &Path) -> Result<OptionsFile> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| unusable(path, format!("cannot be read as text: {error}")))?;
        let sections = sections(&text).map_err(|reason| unusable(path, reason))?;
        for option in sections.iter().flat_map(|section| &section.options) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let refused = REFUSED.iter().find(|(name, _, _)| *name == key.trim());
            if let Some((name, allowed, reason)) = refused
                && !allowed.contains(&value.trim())
            {
                let reason = format!("{name}={} cannot be had here: {reason}", value.trim());
                return Err(unusable(path, reason));
            }
        }
        let file = OptionsFile {
            path: path.to_path_buf(),
            sections,
        };
        for kind in ["Version", "DBOptions"] {
            if file.of_kind(kind).next().is_none() {
                return Err(unusable(path, format!("has no section [{kind}]")));
            }
        }
        if file.of_family(DEFAULT_COLUMN_FAMILY_NAME).next().is_none() {
            let reason = "has no section [CFOptions \"default\"]".to_string();
            return Err(unusable(path, reason));
        }
        Ok(file)
    }

    /// Returns the options of the database and its column families: the mandatory one, then one for
    /// each map.
    pub(super) fn load(
        &self,
        schema: &[MapDef],
        cache: &Cache,
    ) -> Result<(Options, Vec<ColumnFamilyDescriptor>)> {
        // RocksDB reads only the newest OPTIONS file of a database's folder.
        let folder = tempfile::tempdir().map_err(failed("rocksdb: folder for the options file"))?;
        std::fs::write(folder.path().join("OPTIONS-000001"), self.for_maps(schema))
            .map_err(failed("rocksdb: copy the options file"))?;
        let env = Env::new().map_err(failed("rocksdb: environment"))?;
        const IGNORE_UNKNOWN: bool = false;
        Options::load_latest(folder.path(), env, IGNORE_UNKNOWN, cache.clone())
            .map_err(|error| unusable(&self.path, error.into_string()))
    }

    /// Returns the file's text with the column families of the maps in place of its own.
    fn for_maps(&self, schema: &[MapDef]) -> String {
        let mut text = String::new();
        for kind in ["Version", "DBOptions"] {
            for section in self.of_kind(kind) {
                section.write(&mut text, None);
            }
        }
        for name in std::iter::once(DEFAULT_COLUMN_FAMILY_NAME).chain(names(schema)) {
            for section in self.of_family(self.family_for(name)) {
                section.write(&mut text, Some(name));
            }
        }
        text
    }

    /// Returns the column family of the file that a map takes.
    fn family_for<'a>(&self, map: &'a str) -> &'a str {
        match self.of_family(map).next() {
            Some(_) => map,
            None => DEFAULT_COLUMN_FAMILY_NAME,
        }
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Section> {
        self.sections
            .iter()
            .filter(move |section| section.kind == kind)
    }

    /// Returns a column family's sections, its own options first: RocksDB requires them before
    /// those of its tables.
    fn of_family(&self, name: &str) -> impl Iterator<Item = &Section> {
        let of = move |section: &&Section| section.family.as_deref() == Some(name);
        let (own, other): (Vec<_>, Vec<_>) = self
            .sections
            .iter()
            .filter(of)
            .partition(|section| section.kind == "CFOptions");
        own.into_iter().chain(other)
    }

    /// Adds the file's sections to the result, and the column family of the file that each map
    /// takes.
    pub(super) fn describe(&self, schema: &[MapDef], c: &mut Configuration) {
        c.given("options_file", self.path.display());
        for section in &self.sections {
            let name = match &section.family {
                Some(family) => format!("options_file [{} {family}]", section.kind),
                None => format!("options_file [{}]", section.kind),
            };
            c.given(&name, section.options.join("; "));
        }
        for name in names(schema) {
            let key = format!("options_file column family of {name}");
            c.given(&key, self.family_for(name));
        }
    }
}

fn names(schema: &[MapDef]) -> impl Iterator<Item = &'static str> {
    schema.iter().map(|map| map.name)
}

impl Section {
    fn write(&self, text: &mut String, family: Option<&str>) {
        // Writing to a string does not fail.
        let _ = match family {
            Some(family) => writeln!(text, "[{} \"{family}\"]", self.kind),
            None => writeln!(text, "[{}]", self.kind),
        };
        for option in &self.options {
            let _ = writeln!(text, "  {option}");
        }
    }
}

/// Splits the text; comments begin with `#`.
fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let header = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'));
        match (header, sections.last_mut()) {
            (Some(header), _) => sections.push(section(header)),
            (None, Some(section)) if line.contains('=') => section.options.push(line.to_string()),
            (None, _) => {
                let number = number + 1;
                return Err(format!(
                    "line {number} is neither [SECTION] nor KEY=VALUE below one: {line}"
                ));
            }
        }
    }
    Ok(sections)
}

fn section(header: &str) -> Section {
    let (kind, family) = match header.split_once('"') {
        Some((kind, rest)) => (kind, Some(rest.trim_end().trim_end_matches('"'))),
        None => (header, None),
    };
    Section {
        kind: kind.trim().to_string(),
        family: family.map(str::to_string),
        options: Vec::new(),
    }
}

fn unusable(path: &Path, reason: String) -> EngineError {
    EngineError::Unsupported(format!(
        "rocksdb: options file {}: {reason}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# A comment.
[Version]
  rocksdb_version=11.8.1
  options_file_version=1.1
[DBOptions]
  max_background_jobs=3
  wal_dir=
[CFOptions \"default\"]
  write_buffer_size=1048576
[TableOptions/BlockBasedTable \"default\"]
  block_size=16384
[CFOptions \"node\"]
  write_buffer_size=2097152  # larger
";

    fn map(name: &'static str) -> MapDef {
        MapDef {
            name,
            scan_prefix_bytes: None,
            point_reads: true,
            expect_hits: true,
            is_queue: false,
        }
    }

    fn read(text: &str) -> Result<OptionsFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("OPTIONS");
        std::fs::write(&path, text).unwrap();
        OptionsFile::read(&path)
    }

    fn refusal(text: &str) -> String {
        let file = read(text);
        let loaded = file.and_then(|file| {
            let cache = Cache::new_lru_cache(1 << 20);
            file.load(&[map("node")], &cache).map(drop)
        });
        loaded.unwrap_err().to_string()
    }

    #[test]
    fn each_map_takes_its_own_column_family_or_the_default_one() {
        let text = read(FILE).unwrap().for_maps(&[map("node"), map("link")]);
        let expected = "\
[Version]
  rocksdb_version=11.8.1
  options_file_version=1.1
[DBOptions]
  max_background_jobs=3
  wal_dir=
[CFOptions \"default\"]
  write_buffer_size=1048576
[TableOptions/BlockBasedTable \"default\"]
  block_size=16384
[CFOptions \"node\"]
  write_buffer_size=2097152
[CFOptions \"link\"]
  write_buffer_size=1048576
[TableOptions/BlockBasedTable \"link\"]
  block_size=16384
";
        assert_eq!(text, expected);
    }

    #[test]
    fn rocksdb_reads_the_file_with_a_family_for_each_map() {
        let cache = Cache::new_lru_cache(1 << 20);
        let maps = [map("node"), map("link")];
        let (_, families) = read(FILE).unwrap().load(&maps, &cache).unwrap();
        let names: Vec<_> = families.iter().map(ColumnFamilyDescriptor::name).collect();
        assert_eq!(names, ["default", "node", "link"]);
    }

    #[test]
    fn unknown_options_and_values_are_refused_by_name() {
        let unknown = FILE.replace("max_background_jobs", "max_background_jobz");
        let message = refusal(&unknown);
        assert!(message.contains("max_background_jobz"), "{message}");
        let no_number = FILE.replace("16384", "many");
        let message = refusal(&no_number);
        assert!(message.contains("block_size"), "{message}");
    }

    #[test]
    fn options_that_the_laboratory_decides_are_refused_with_the_reason() {
        let elsewhere = FILE.replace("wal_dir=", "wal_dir=/elsewhere");
        let message = refusal(&elsewhere);
        assert!(
            message.contains("wal_dir=/elsewhere cannot be had here"),
            "{message}"
        );
        let reversed = FILE.replace(
            "write_buffer_size=1048576",
            "comparator=rocksdb.ReverseBytewiseComparator",
        );
        assert!(refusal(&reversed).contains("ordered as bytes"));
    }

    #[test]
    fn a_file_that_is_no_options_file_is_refused() {
        assert!(refusal("write_buffer_size=1").contains("line 1 is neither"));
        assert!(refusal("[Version]\n").contains("no section [DBOptions]"));
        assert!(refusal("[Version]\n[DBOptions]\n").contains("[CFOptions \"default\"]"));
        let missing = OptionsFile::read(Path::new("no-such-file")).err().unwrap();
        assert!(missing.to_string().contains("no-such-file"), "{missing}");
    }
}
