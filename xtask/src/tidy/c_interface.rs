//! Check that the C interface offers everything offered to Rust; a list below gives reasons for
//! exceptions.
//!
//! The public names are the exports of `lib.rs`; their methods, fields and variants are read from
//! the engine's source. Each must have its counterpart in `alluvium.h`: the function `PREFIX_name`,
//! the field `name` (with or without a unit as suffix) of the struct `PREFIX`, or the enumerator
//! `PREFIX_NAME`. Traits and fields of variants are not checked.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::{Source, line_of, words};

const ENGINE: &str = "crates/alluvium/src/";
const EXPORTS: &str = "crates/alluvium/src/lib.rs";
const HEADER: &str = "crates/alluvium-c/include/alluvium.h";

/// Correspondence between names of the engine and of the C interface.
struct Names<'a> {
    /// Each public type with the prefixes of its counterparts.
    types: &'a [(&'a str, &'a [&'a str])],
    /// Names that differ in C.
    renamed: &'a [(&'a str, &'a str)],
    /// Names without a counterpart in C, with the reason.
    rust_only: &'a [(&'a str, &'a str)],
}

const NAMES: Names = Names {
    types: &[
        ("Amplification", &["alluvium_amplification"]),
        ("BackupInfo", &["alluvium_backup_info"]),
        ("BackupList", &["alluvium_backup_list"]),
        ("BackupStore", &["alluvium_backup_store"]),
        ("BulkLoad", &["alluvium_ingest", "alluvium"]),
        ("BulkLoadOptions", &["alluvium_ingest_options"]),
        ("Change", &["alluvium_change"]),
        ("ChangeKind", &["alluvium_change_kind"]),
        ("ChangedKeyspace", &["alluvium_changed_keyspace"]),
        ("Changes", &["alluvium_changes"]),
        ("ChangesOptions", &["alluvium_changes_options"]),
        ("CheckpointInfo", &["alluvium_checkpoint_info"]),
        ("Compared", &["alluvium_compared"]),
        ("Compression", &["alluvium_compression"]),
        ("Cursor", &["alluvium_cursor"]),
        ("CursorOptions", &["alluvium_cursor_options"]),
        ("Database", &["alluvium"]),
        ("Duplicates", &["alluvium_duplicates"]),
        ("Durability", &["alluvium_durability"]),
        ("Error", &["alluvium_code"]),
        ("Event", &["alluvium_event_kind"]),
        ("Expiry", &["alluvium_expiry"]),
        ("FilterDecision", &["alluvium_decision"]),
        ("Histogram", &["alluvium_histogram"]),
        ("Ingest", &["alluvium_ingest", "alluvium"]),
        ("Ingested", &["alluvium_ingested"]),
        ("Isolation", &["alluvium_isolation"]),
        ("Keyspace", &["alluvium_keyspace", "alluvium"]),
        (
            "KeyspaceAmplification",
            &["alluvium_keyspace_amplification"],
        ),
        ("KeyspaceOptions", &["alluvium_keyspace_options"]),
        ("KeyspaceStats", &["alluvium_keyspace_stats"]),
        ("LockCancel", &["alluvium_lock_cancel"]),
        ("LockMode", &["alluvium_lock_mode"]),
        ("LockOwner", &["alluvium_lock_owner"]),
        ("LockWaitInfo", &["alluvium_lock_wait"]),
        ("LostRange", &["alluvium_lost_range"]),
        ("MemoryUse", &["alluvium_memory_use"]),
        ("Operation", &["alluvium_operation_kind"]),
        ("Options", &["alluvium_options"]),
        ("PreparedTransaction", &["alluvium_prepared"]),
        (
            "RepairReport",
            &["alluvium_repair_report", "alluvium_repair_counts"],
        ),
        ("RangeEstimate", &[]),
        ("Snapshot", &["alluvium_snapshot", "alluvium"]),
        ("Stats", &["alluvium_stats", "alluvium_histogram_kind"]),
        ("Transaction", &["alluvium_transaction", "alluvium"]),
        ("TransactionOptions", &["alluvium_transaction_options"]),
        (
            "VerifyReport",
            &["alluvium_verify_report", "alluvium_verify_counts"],
        ),
        ("WriteBatch", &["alluvium_batch", "alluvium"]),
        ("WriteOptions", &["alluvium_write_options"]),
        ("WrongInsert", &["alluvium_wrong_insert"]),
    ],
    renamed: &[
        (
            "Amplification::keyspaces",
            "alluvium_keyspace_amplification",
        ),
        ("BackupList::backups", "alluvium_backup_list_item"),
        ("Change::kind", "alluvium_change_get_kind"),
        ("CursorOptions::range", "start_size"),
        ("Database::amplification", "alluvium_get_amplification"),
        ("Database::begin_with", "alluvium_begin"),
        ("Database::bulk_load", "any_order"),
        ("Database::changes", "alluvium_changes_open"),
        (
            "Database::prepared_writer",
            "alluvium_keyspace_has_prepared_writer",
        ),
        ("Database::changes_with", "alluvium_changes_open"),
        ("Database::drop_keyspace", "alluvium_keyspace_drop"),
        ("Database::existing_keyspace", "alluvium_keyspace_existing"),
        ("Database::ingest", "alluvium_ingest_begin"),
        ("Database::keyspace", "alluvium_keyspace_open"),
        ("Database::keyspaces", "alluvium_keyspaces_open"),
        ("Database::open_read_only", "read_only"),
        ("Database::prepared", "alluvium_prepared_list"),
        ("Database::snapshot", "alluvium_snapshot_open"),
        ("Database::stats", "alluvium_get_stats"),
        ("Database::take_prepared", "alluvium_prepared_take"),
        ("Database::verify_with", "alluvium_verify_options"),
        ("Database::write_with", "alluvium_write_options"),
        ("Keyspace::cursor", "alluvium_cursor_open"),
        ("Keyspace::options", "alluvium_keyspace_get_options"),
        ("KeyspaceAmplification::name", "alluvium_keyspace_name"),
        ("KeyspaceOptions::whole_key_filter", "no_whole_key_filter"),
        ("KeyspaceStats::name", "alluvium_keyspace_name"),
        ("MemoryUse::total", "total_bytes"),
        ("Options::create", "must_exist"),
        ("RangeEstimate::bytes", "byte_count"),
        ("RangeEstimate::rows", "row_count"),
        ("Snapshot::cursor", "alluvium_cursor_open"),
        ("Transaction::cursor", "alluvium_cursor_open"),
        (
            "Transaction::delete_untracked",
            "alluvium_transaction_writer_untracked",
        ),
        (
            "Transaction::insert_untracked",
            "alluvium_transaction_writer_untracked",
        ),
        (
            "Transaction::put_until_untracked",
            "alluvium_transaction_writer_untracked",
        ),
        (
            "Transaction::put_untracked",
            "alluvium_transaction_writer_untracked",
        ),
        ("WriteBatch::len", "alluvium_batch_count"),
        ("Clock", "clock"),
        ("CompactionFilter", "alluvium_compaction_filter"),
        ("EventListener", "event_listener"),
        ("KeyspaceId", "alluvium_keyspace_id"),
        ("LockWaitListener", "lock_wait_listener"),
        ("Result", "alluvium_code"),
        ("Savepoint", "alluvium_transaction_savepoint"),
        ("SeqNo", "seqno"),
        ("Value", "alluvium_value"),
    ],
    rust_only: &[
        ("BackupStore::open_on", "file systems of the caller's"),
        ("Database::open_on", "file systems of the caller's"),
        ("LockHolder", "the message says it"),
        (
            "BackupStore::open_read_only_on",
            "file systems of the caller's",
        ),
        ("repair_on", "file systems of the caller's"),
        ("set_stored_time_on", "file systems of the caller's"),
        ("Error::corruption", "for file systems of the caller's"),
        ("Error::io", "for file systems of the caller's"),
        ("Keyspace::read", "a closure reads in place"),
    ],
};

/// Name of the engine's public interface, with its place.
struct Offered<'a> {
    name: String,
    path: &'a str,
    line: usize,
    prefixes: &'a [&'a str],
}

/// Finds names without a counterpart, and entries of the lists that match nothing. Without the
/// header there is nothing to check.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    check_names(files, &NAMES)
}

fn check_names(files: &[TextFile], names: &Names) -> Vec<Finding> {
    let named = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(header), Some(exports)) = (named(HEADER), named(EXPORTS)) else {
        return Vec::new();
    };
    let mut offered = exported(exports, names);
    for file in files.iter().filter(|file| file.path.starts_with(ENGINE)) {
        offered.extend(members(file, names));
    }
    // A comment with a function's name does not declare it; comments have the same form in both
    // languages.
    let header = Source::new(&header.text).code();
    let mut found: Vec<Finding> = offered
        .iter()
        .filter(|offered| !is_declared(&header, offered, names))
        .map(|offered| {
            let message = format!(
                "{} has no counterpart in {HEADER}: add one, or name it in xtask/src/tidy/c_interface.rs",
                offered.name
            );
            Finding::error(offered.path, offered.line, message)
        })
        .collect();
    let listed = names.renamed.iter().chain(names.rust_only);
    for (name, _) in listed.filter(|(name, _)| offered.iter().all(|o| o.name != *name)) {
        let message = format!("the lists of the C interface name {name}, which is not there");
        found.push(Finding::error(EXPORTS, 1, message));
    }
    found
}

fn is_declared(header: &str, offered: &Offered, names: &Names) -> bool {
    let name = &offered.name;
    if names.rust_only.iter().any(|(only, _)| only == name) {
        return true;
    }
    if let Some((_, other)) = names.renamed.iter().find(|(from, _)| from == name) {
        return words(header, other).next().is_some();
    }
    let member = name.rsplit("::").next().unwrap_or_default();
    offered.prefixes.iter().any(|prefix| {
        let function = format!("{prefix}_{member}(");
        let enumerator = format!("{prefix}_{}", screaming(member)).to_uppercase();
        let field = |ending: &str| format!("{member}{ending}");
        let fields = struct_body(header, prefix);
        header.contains(&function)
            || words(header, &enumerator).next().is_some()
            || ["", "_ms", "_us"]
                .iter()
                .any(|unit| words(fields, &field(unit)).next().is_some())
    })
}

/// Converts `FlushBegin` to `FLUSH_BEGIN`; constants stay as they are.
fn screaming(name: &str) -> String {
    let mut out = String::new();
    for character in name.chars() {
        if character.is_uppercase() && out.ends_with(|c: char| c.is_lowercase()) {
            out.push('_');
        }
        out.push(character);
    }
    out.to_uppercase()
}

/// Returns the text between the braces of a struct of the header; empty if it has none of this
/// name.
fn struct_body<'t>(header: &'t str, name: &str) -> &'t str {
    let start = format!("typedef struct {name} {{");
    let body = header.split_once(&start).map_or("", |(_, body)| body);
    body.split_once('}').map_or("", |(body, _)| body)
}

/// Returns functions, constants, and types not in the list, as `lib.rs` exports them.
fn exported<'a>(exports: &'a TextFile, names: &Names) -> Vec<Offered<'a>> {
    let code = Source::new(&exports.text).code();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub use ") {
        let statement = code[at..].split(';').next().unwrap_or_default();
        let list = statement.rsplit('{').next().unwrap_or_default();
        for item in list.trim_end_matches('}').split(',') {
            let last = item.rsplit([' ', ':', '\n']).find(|word| !word.is_empty());
            let Some(name) = last.filter(|name| names.types.iter().all(|(t, _)| t != name)) else {
                continue;
            };
            found.push(Offered {
                name: name.to_string(),
                path: &exports.path,
                line: line_of(&code, at),
                prefixes: &["alluvium"],
            });
        }
    }
    found
}

/// Returns public methods, fields and variants of the types in the list.
fn members<'a>(file: &'a TextFile, names: &Names<'a>) -> Vec<Offered<'a>> {
    let code = Source::new(&file.text).code();
    let mut found = Vec::new();
    let mut inside: Option<(&str, &[&str], bool)> = None;
    for (line, text) in (1..).zip(code.lines()) {
        if !text.is_empty() && !text.starts_with(' ') {
            inside = opened(text).and_then(|(name, is_enum)| {
                let known = names.types.iter().find(|(known, _)| *known == name)?;
                Some((known.0, known.1, is_enum))
            });
        }
        let Some((type_name, prefixes, is_enum)) = inside else {
            continue;
        };
        if let Some(member) = member(text, is_enum) {
            found.push(Offered {
                name: format!("{type_name}::{member}"),
                path: &file.path,
                line,
                prefixes,
            });
        }
    }
    found
}

/// Returns the type of the item that a line opens, and true if it is an enum.
fn opened(line: &str) -> Option<(&str, bool)> {
    let is_enum = line.starts_with("pub enum ");
    let kinds = ["impl ", "pub struct ", "pub enum "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    Some((rest.strip_suffix(" {")?, is_enum))
}

/// Returns the public member that a line of such an item begins.
fn member(line: &str, is_enum: bool) -> Option<&str> {
    let line = line.strip_prefix("    ")?;
    let name = match line.strip_prefix("pub ") {
        Some(rest) => rest.trim_start_matches("const ").trim_start_matches("fn "),
        None if is_enum && line.starts_with(|c: char| c.is_ascii_uppercase()) => line,
        None => return None,
    };
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, shown};

    const TEST_NAMES: Names = Names {
        types: &[("Thing", &["c_thing"]), ("Kind", &["c_kind"])],
        renamed: &[("Thing::len", "c_thing_count")],
        rust_only: &[("Thing::open_on", "own file systems")],
    };

    const ENGINE_TEXT: &str = "\
pub struct Thing {
    pub size: u64,
    pub wait: u64,
    pub lost: u64,
    hidden: u64,
}
impl Thing {
    pub fn len(&self) -> u64 {
        1
    }

    pub fn open_on() {}
    pub fn put(&self) {}
    pub fn forgotten(&self) {}
    pub(crate) fn inner(&self) {}
}
impl Drop for Thing {
    pub fn none() {}
}
pub enum Kind {
    OneTwo,
    Lost { events: u64 },
}
";

    const HEADER_TEXT: &str = "\
// See c_thing_forgotten() and lost.
typedef struct c_thing {
  uint64_t size;
  uint64_t wait_ms;
} c_thing;
enum c_kind { C_KIND_ONE_TWO = 0 };
void c_thing_count(void);
void c_thing_put(void);
void alluvium_repair(void);
";

    #[test]
    fn what_has_no_counterpart_is_found() {
        let files = [
            file(HEADER, HEADER_TEXT),
            file(
                EXPORTS,
                "pub use a::Thing;\npub use b::{\n    Kind, repair,\n    salvage,\n};\n",
            ),
            file("crates/alluvium/src/a.rs", ENGINE_TEXT),
        ];
        let found: Vec<_> = check_names(&files, &TEST_NAMES)
            .iter()
            .map(|f| (f.line, f.message.split(' ').next().map(str::to_string)))
            .collect();
        let expected = [
            (2, "salvage"),
            (4, "Thing::lost"),
            (14, "Thing::forgotten"),
            (22, "Kind::Lost"),
        ];
        assert_eq!(
            found,
            expected.map(|(line, name)| (line, Some(name.into())))
        );
    }

    #[test]
    fn every_public_name_has_its_counterpart_or_stands_in_a_list() {
        let files = crate::files::text_files(&crate::files::root()).expect("the workspace");
        assert_eq!(shown(&check(&files)), [""; 0]);
    }

    #[test]
    fn entries_of_the_lists_that_fit_nothing_are_found() {
        let files = [file(HEADER, ""), file(EXPORTS, "")];
        let missing = ["Thing::len", "Thing::open_on"]
            .map(|name| format!("1: the lists of the C interface name {name}, which is not there"));
        assert_eq!(shown(&check_names(&files, &TEST_NAMES)), missing);
        assert_eq!(shown(&check_names(&files[1..], &TEST_NAMES)), [""; 0]);
    }
}
