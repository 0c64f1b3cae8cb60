//! SQL of sysbench's statements that aggregate one column or return some columns of a row.

use rumbench_core::tables::{Fold, Table};

use super::sql::{Dialect, key_is, names, parameters};

/// Selects one column of the row with a key.
pub(super) fn column(dialect: Dialect, table: &Table, column: usize) -> String {
    dialect.text(&format!(
        "SELECT `{}` FROM `{}` WHERE {}",
        table.columns[column].name,
        table.name,
        key_is(table)
    ))
}

/// Selects a fold of a column over the rows with a first key column between two values.
pub(super) fn fold(dialect: Dialect, table: &Table, column: usize, fold: Fold) -> String {
    let (name, first) = (&table.columns[column].name, &table.columns[0].name);
    let column = format!("`{name}`");
    let (answer, order) = match (fold, dialect) {
        (Fold::Rows, _) => (column, String::new()),
        (Fold::Order, _) => (column.clone(), format!(" ORDER BY {column}")),
        (Fold::Distinct, _) => (format!("DISTINCT {column}"), format!(" ORDER BY {column}")),
        (Fold::Count, _) => (format!("COUNT({column})"), String::new()),
        (Fold::Sum, Dialect::Maria(_)) => (format!("COALESCE(SUM({column}), 0)"), String::new()),
        // PostgreSQL has no sum of unsigned numbers, and its sum of bigint is numeric.
        (Fold::Sum, Dialect::Postgres) => {
            let sum = format!("COALESCE(SUM({column}::bigint), 0)::bigint");
            (sum, String::new())
        }
    };
    dialect.text(&format!(
        "SELECT {answer} FROM `{}` WHERE `{first}` BETWEEN ? AND ?{order}",
        table.name
    ))
}

/// Sets a column of the rows with a first key column among `keys` values.
pub(super) fn set(dialect: Dialect, table: &Table, column: usize, keys: usize) -> String {
    let name = |column: usize| &table.columns[column].name;
    dialect.text(&format!(
        "UPDATE `{}` SET `{}` = ? WHERE `{}` IN ({})",
        table.name,
        name(column),
        name(0),
        parameters(keys)
    ))
}

/// Condition of a [`Where`], without its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Condition {
    In { values: usize },
    Between,
    Longer { bytes: usize },
}

/// Selects some columns of the rows that meet a condition on one column.
pub(super) fn select(
    dialect: Dialect,
    table: &Table,
    columns: &[usize],
    by: usize,
    condition: Condition,
) -> String {
    let by = format!("`{}`", table.columns[by].name);
    let condition = match condition {
        Condition::In { values } => format!("{by} IN ({})", parameters(values)),
        Condition::Between => format!("{by} BETWEEN ? AND ?"),
        Condition::Longer { bytes } => format!("LENGTH({by}) > {bytes}"),
    };
    dialect.text(&format!(
        "SELECT {} FROM `{}` WHERE {condition}",
        names(table, columns.iter().copied()),
        table.name
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sql::Form;
    use super::super::sql::tests::table;
    use super::*;

    const MARIA: Dialect = Dialect::Maria(Form::InnoDb);

    #[test]
    fn queries_of_one_column_are_those_of_sysbench() {
        let of = |dialect, what| fold(dialect, &table(), 1, what);
        let from = "FROM `t` WHERE `a` BETWEEN ? AND ?";
        assert_eq!(of(MARIA, Fold::Rows), format!("SELECT `b` {from}"));
        assert_eq!(
            of(MARIA, Fold::Order),
            format!("SELECT `b` {from} ORDER BY `b`")
        );
        assert_eq!(
            of(MARIA, Fold::Distinct),
            format!("SELECT DISTINCT `b` {from} ORDER BY `b`")
        );
        assert_eq!(of(MARIA, Fold::Count), format!("SELECT COUNT(`b`) {from}"));
        assert_eq!(
            of(MARIA, Fold::Sum),
            format!("SELECT COALESCE(SUM(`b`), 0) {from}")
        );
        assert_eq!(
            of(Dialect::Postgres, Fold::Sum),
            "SELECT COALESCE(SUM(\"b\"::bigint), 0)::bigint FROM \"t\" WHERE \"a\" BETWEEN $1 AND $2"
        );
        assert_eq!(
            select(MARIA, &table(), &[1, 2], 1, Condition::In { values: 2 }),
            "SELECT `b`, `c` FROM `t` WHERE `b` IN (?, ?)"
        );
        assert_eq!(
            select(Dialect::Postgres, &table(), &[0], 0, Condition::Between),
            "SELECT \"a\" FROM \"t\" WHERE \"a\" BETWEEN $1 AND $2"
        );
        assert_eq!(
            select(MARIA, &table(), &[0], 2, Condition::Longer { bytes: 9 }),
            "SELECT `a` FROM `t` WHERE LENGTH(`c`) > 9"
        );
        assert_eq!(
            set(Dialect::Postgres, &table(), 2, 2),
            "UPDATE \"t\" SET \"c\" = $1 WHERE \"a\" IN ($2, $3)"
        );
        assert_eq!(
            column(MARIA, &table(), 2),
            "SELECT `c` FROM `t` WHERE `a` = ? AND `b` = ?"
        );
    }
}
