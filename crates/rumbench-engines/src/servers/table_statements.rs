//! Statements of a table connection, by kind, and their texts.

use rumbench_core::tables::{Fold, Path, Table};

use super::query_sql::{self, Condition};
use super::sql::{self, Dialect, ScanShape};

/// Highest limit with a statement of its own. For a higher one, the next power of two is read and
/// the excess rows are skipped.
const LIMIT_EXACT: usize = 128;

/// Statement kind; the key of the statement cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Insert {
        rows: usize,
        /// The server parses the statement on each run.
        parsed: bool,
    },
    Replace,
    Delete,
    DeleteFirst {
        from: usize,
        rows: usize,
    },
    Update {
        column: usize,
        adds: bool,
    },
    SetOfList {
        column: usize,
        keys: usize,
    },
    Get {
        keys: usize,
    },
    Scan(ScanShape),
    Column {
        column: usize,
    },
    Fold {
        column: usize,
        fold: Fold,
    },
    Select {
        columns: &'static [usize],
        by: usize,
        condition: Condition,
    },
}

impl Kind {
    /// Returns true if the statement reads an index and not the rows.
    pub(super) fn is_of_index(self, table: &Table) -> bool {
        match self {
            Kind::Scan(shape) => matches!(shape.path, Path::Index(_)),
            Kind::Select { columns, by, .. } => (0..table.indexes.len()).any(|index| {
                let held = |column| table.path_columns(Path::Index(index)).any(|c| c == column);
                table.indexes[index].columns.first() == Some(&by)
                    && columns.iter().all(|column| held(*column))
            }),
            _ => false,
        }
    }

    pub(super) fn text(self, dialect: Dialect, table: &Table) -> String {
        match self {
            Kind::Insert { rows, .. } => sql::insert(dialect, table, rows),
            Kind::Replace => sql::replace(dialect, table),
            Kind::Delete => sql::delete(dialect, table),
            Kind::DeleteFirst { from, rows } => sql::delete_first(dialect, table, from, rows),
            Kind::Update { column, adds } => sql::update(dialect, table, column, adds),
            Kind::SetOfList { column, keys } => query_sql::set(dialect, table, column, keys),
            Kind::Get { keys } => sql::get(dialect, table, keys),
            Kind::Scan(shape) => sql::scan(dialect, table, shape),
            Kind::Column { column } => query_sql::column(dialect, table, column),
            Kind::Fold { column, fold } => query_sql::fold(dialect, table, column, fold),
            Kind::Select {
                columns,
                by,
                condition,
            } => query_sql::select(dialect, table, columns, by, condition),
        }
    }
}

/// Returns the limit in the statement's text.
pub(super) fn limit_of_text(limit: usize) -> Option<usize> {
    match limit {
        usize::MAX => None,
        0..=LIMIT_EXACT => Some(limit),
        _ => limit.checked_next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_few_texts() {
        assert_eq!(limit_of_text(10), Some(10));
        assert_eq!(limit_of_text(1000), Some(1024));
        assert_eq!(limit_of_text(usize::MAX), None);
        assert_eq!(limit_of_text(usize::MAX - 1), None);
    }
}
