//! Answers that depend on the plan of the server, so that InnoDB differs from itself.
//!
//! The generator leaves out statements with which this happens often:
//!
//! - CHAR with a NO PAD collation: scans cut its trailing spaces before they compare, and indexes
//!   keep them (`types.rs`).
//! - LIKE of texts with a character below the space: with PAD SPACE the range of an index leaves
//!   some out (`reads.rs`).
//! - Comparisons with constants that the type rounds: only the lookup in an index rounds them
//!   (`types.rs`).
//! - Equality of text columns of different lengths: the lookup in an index cuts the longer text to
//!   the index's column. Where the cut part has no weight, equal rows are lost: `'a\0b'` is
//!   looked up as `'a\0'` in a CHAR(2), although it equals `'ab'` there. See [`may_cut`].
//! - GROUP BY and COUNT(DISTINCT) of long texts with a collation of several levels: a sort key has
//!   1,024 bytes (`max_sort_length`), which the first level fills, and so texts that differ only in
//!   accents or case are mixed and one group becomes several. See [`is_cut_by_sorts`].
//! - `WHERE (SELECT ...) > 1`: the cache of subqueries compares its keys by the collation of the
//!   outer column, not by that of the condition (`pair.rs` switches it off).
//!
//! Others are rare. For them [`without_indexes`] gives the statement as InnoDB answers it without
//! any index: if Alluvium gives this answer, it is right and InnoDB by its index is not. One known
//! case: in a transaction that has changed rows, InnoDB's ranges of an index with a VIRTUAL column
//! miss some of these rows until the commit (seed 1000539).

use super::schema::Column;
use super::types::Kind;

/// Sort keys of more characters are longer than `max_sort_length` in collations of the Unicode
/// algorithm, with at most eight weights of two bytes each.
const SORTED_CHARACTERS: u8 = 30;

/// Returns true if a lookup of one column's text in an index of the other may cut the text.
pub fn may_cut(left: &Column, right: &Column) -> bool {
    let is_uca = |column: &Column| {
        column
            .collation
            .is_some_and(|collation| collation.group.contains("uca"))
    };
    (is_uca(left) || is_uca(right)) && characters(left) != characters(right)
}

/// Returns the most characters of a text column, if its type has such a limit.
fn characters(column: &Column) -> Option<u8> {
    match column.kind {
        Kind::Char(n) | Kind::VarChar(n) => Some(n),
        _ => None,
    }
}

/// Returns true if the server sorts the column by a part of its weights only.
pub fn is_cut_by_sorts(column: &Column) -> bool {
    let levels = |name: &str| name.contains("_as_cs");
    column
        .collation
        .is_some_and(|collation| levels(collation.name))
        && characters(column).is_none_or(|n| n >= SORTED_CHARACTERS)
}

/// Returns a query with IGNORE INDEX for every index of its tables, instead of its own hints.
/// `indexes` gives the names of a table's indexes.
pub fn without_indexes(sql: &str, mut indexes: impl FnMut(&str) -> Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = sql;
    // Terminates: each turn takes a table from the rest.
    while let Some((before, name, after)) = next_table(rest) {
        let (alias, after) = split_alias(after);
        out += &format!("{before}{name}{alias}");
        let names = indexes(name);
        if !names.is_empty() {
            out += &format!(" IGNORE INDEX ({})", names.join(", "));
        }
        rest = skip_hint(after);
    }
    out + rest
}

/// Splits a query at its next table: the text before its name, the name, and the text after it.
fn next_table(sql: &str) -> Option<(&str, &str, &str)> {
    let starts = ["FROM t", "JOIN t"].iter().filter_map(|word| {
        let places = sql
            .match_indices(word)
            .map(|(at, word)| at + word.len() - 1);
        places
            .map(|at| (at, digits(&sql[at + 1..])))
            .find(|(_, digits)| *digits > 0)
    });
    let (at, digits) = starts.min()?;
    let end = at + 1 + digits;
    Some((&sql[..at], &sql[at..end], &sql[end..]))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Splits the alias `a` or `b` off, with the space before it.
fn split_alias(after: &str) -> (&str, &str) {
    let is_alias = |alias: &str| {
        let rest = after.strip_prefix(alias);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ')']))
    };
    let length = if is_alias(" a") || is_alias(" b") {
        2
    } else {
        0
    };
    after.split_at(length)
}

fn skip_hint(after: &str) -> &str {
    let is_hint = [" FORCE INDEX (", " IGNORE INDEX ("]
        .iter()
        .any(|hint| after.starts_with(hint));
    match after.find(')') {
        Some(end) if is_hint => &after[end + 1..],
        _ => after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignoring(sql: &str) -> String {
        without_indexes(sql, |name| match name {
            "t1" => vec!["PRIMARY".to_string(), "i0".to_string()],
            _ => Vec::new(),
        })
    }

    #[test]
    fn all_indexes_of_all_tables_are_ignored() {
        assert_eq!(
            ignoring("SELECT a.c0 FROM t1 a JOIN t2 b ON a.c0 = b.c1 WHERE a.c0 IN ('FROM t')"),
            "SELECT a.c0 FROM t1 a IGNORE INDEX (PRIMARY, i0) JOIN t2 b ON a.c0 = b.c1 WHERE a.c0 IN ('FROM t')"
        );
        assert_eq!(
            ignoring("SELECT c0 FROM t1 FORCE INDEX (i0) WHERE c0 > 1"),
            "SELECT c0 FROM t1 IGNORE INDEX (PRIMARY, i0) WHERE c0 > 1"
        );
        assert_eq!(
            ignoring("SELECT 1 FROM t2 a WHERE EXISTS (SELECT 1 FROM t1 b WHERE b.c0 = a.c0)"),
            "SELECT 1 FROM t2 a WHERE EXISTS (SELECT 1 FROM t1 b IGNORE INDEX (PRIMARY, i0) WHERE b.c0 = a.c0)"
        );
        assert_eq!(
            ignoring("SELECT * FROM t1"),
            "SELECT * FROM t1 IGNORE INDEX (PRIMARY, i0)"
        );
    }
}
