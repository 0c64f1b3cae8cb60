//! Index check after a trial: compares the indexes of a table with its rows by the server's own
//! means.

use std::collections::BTreeMap;

use rumbench_core::engine::{EngineError, Result};

use super::session::Session;
use super::sql::{Dialect, Form};

/// Compares the indexes of a table with its rows; returns the number of indexes.
pub(super) fn check_table<S: Session>(
    session: &mut S,
    dialect: Dialect,
    table: &str,
) -> Result<usize> {
    match dialect {
        Dialect::Postgres => by_amcheck(session, table),
        Dialect::Maria(Form::MyRocks) => by_scans(session, table),
        Dialect::Maria(_) => {
            by_check_table(session, table)?;
            by_scans(session, table)
        }
    }
}

fn by_amcheck<S: Session>(session: &mut S, table: &str) -> Result<usize> {
    session.query("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS amcheck")?;
    let check = format!(
        "SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = '\"{table}\"'::regclass"
    );
    session.query(&check).map_err(wrong)?;
    let count = session.ask(&format!(
        "SELECT count(*) FROM pg_index WHERE NOT indisprimary AND indrelid = '\"{table}\"'::regclass"
    ))?;
    count
        .parse()
        .map_err(|_| EngineError::Wrong(format!("{count} indexes")))
}

/// Checks pages, entry order, and entry count. Omits `EXTENDED`, which looks up the row of each
/// index entry at random, as MyRocks' check does.
fn by_check_table<S: Session>(session: &mut S, table: &str) -> Result<()> {
    let verdicts = session.query(&format!("CHECK TABLE `{table}`"))?;
    let bad = |row: &&Vec<String>| {
        row.get(2)
            .is_some_and(|kind| kind != "status" && kind != "note")
    };
    let last = verdicts.last().and_then(|row| row.get(3));
    if let Some(bad) = verdicts.iter().find(bad) {
        let bad = bad.join(" ");
        return Err(EngineError::Wrong(format!("check of {table}: {bad}")));
    }
    if last.is_none_or(|text| text != "OK") {
        return Err(EngineError::Wrong(format!("check of {table}: {last:?}")));
    }
    Ok(())
}

/// Checks that every index agrees with the rows in its own columns and those of the primary key.
/// Two ordered scans detect as much as MyRocks' own check. The latter looks up the row of each
/// index entry at random, which takes minutes for a few million entries.
fn by_scans<S: Session>(session: &mut S, table: &str) -> Result<usize> {
    let (primary, others) = indexes(session, table)?;
    for (name, own) in &others {
        let mut columns = primary.clone();
        columns.extend(
            own.iter()
                .filter(|column| !primary.contains(column))
                .cloned(),
        );
        let columns = columns.join(", ");
        let mut of = |index: &str| {
            session.query(&format!(
                "SELECT count(*), coalesce(sum(crc32(concat_ws(',', {columns}))), 0) FROM `{table}` FORCE INDEX (`{index}`)"
            ))
        };
        let (rows, entries) = (of("PRIMARY")?, of(name)?);
        if rows != entries {
            return Err(EngineError::Wrong(format!(
                "check of {table}: number and checksum of the rows are {rows:?}, of the entries of {name} {entries:?}"
            )));
        }
    }
    Ok(others.len())
}

/// Quoted columns of the primary key, and of every other index by index name.
type Indexes = (Vec<String>, BTreeMap<String, Vec<String>>);

fn indexes<S: Session>(session: &mut S, table: &str) -> Result<Indexes> {
    let rows = session.query(&format!(
        "SELECT index_name, column_name FROM information_schema.statistics \
         WHERE table_schema = database() AND table_name = '{table}' ORDER BY index_name, seq_in_index"
    ))?;
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let [index, column] = &row[..] else {
            return Err(EngineError::Wrong("an index without a name".to_string()));
        };
        let columns = all.entry(index.clone()).or_default();
        columns.push(format!("`{column}`"));
    }
    Ok((all.remove("PRIMARY").unwrap_or_default(), all))
}

/// Turns a failed check into a wrong answer: the check found an error in the data.
fn wrong(error: EngineError) -> EngineError {
    match error {
        EngineError::Failed { context, source } => {
            EngineError::Wrong(format!("{context}: {source}"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rumbench_core::tables::{ColumnType, Value};

    use super::super::session::{Statement, Visit};
    use super::*;

    /// Session with scripted answers: the last entry with text contained in the query wins.
    struct Scripted(Vec<(&'static str, Vec<Vec<&'static str>>)>);

    impl Session for Scripted {
        fn prepare(&mut self, _text: &str) -> Result<Statement> {
            unreachable!("a check prepares nothing")
        }
        fn unprepared(&mut self, _text: &str) -> Result<Statement> {
            unreachable!("a check runs nothing with parameters")
        }
        fn start(&mut self, _statement: Statement) {}
        fn push(&mut self, _value: Value<'_>) -> Result<()> {
            Ok(())
        }
        fn finish(&mut self, _columns: &[ColumnType], _visit: &mut Visit<'_>) -> Result<u64> {
            Ok(0)
        }
        fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>> {
            let found = self.0.iter().rfind(|(part, _)| text.contains(part));
            let (_, rows) = found.unwrap_or_else(|| panic!("asked: {text}"));
            let row = |row: &Vec<&str>| row.iter().map(|&value| value.to_string()).collect();
            Ok(rows.iter().map(row).collect())
        }
        fn met_duplicate(&self) -> bool {
            false
        }
    }

    fn scripted(entries_of_by_price: [&'static str; 2]) -> Scripted {
        let primary = vec!["8", "1234"];
        Scripted(vec![
            ("CHECK TABLE", vec![vec!["d.t", "check", "status", "OK"]]),
            (
                "information_schema.statistics",
                vec![
                    vec!["PRIMARY", "id"],
                    vec!["by_price", "price"],
                    vec!["by_price", "id"],
                ],
            ),
            (
                "crc32(concat_ws(',', `id`, `price`))), 0) FROM `t` FORCE INDEX (`PRIMARY`)",
                vec![primary],
            ),
            (
                "crc32(concat_ws(',', `id`, `price`))), 0) FROM `t` FORCE INDEX (`by_price`)",
                vec![entries_of_by_price.to_vec()],
            ),
        ])
    }

    #[test]
    fn an_index_with_other_entries_than_the_rows_is_a_wrong_answer() {
        for form in [Form::InnoDb, Form::MyRocks, Form::Alluvium] {
            let check = |entries| check_table(&mut scripted(entries), Dialect::Maria(form), "t");
            assert_eq!(check(["8", "1234"]).expect("they agree"), 1);
            for entries in [["7", "1234"], ["8", "1235"]] {
                let error = check(entries).expect_err("they differ");
                assert!(matches!(error, EngineError::Wrong(_)), "{error}");
                assert!(error.to_string().contains("by_price"), "{error}");
            }
        }
    }

    #[test]
    fn check_table_errors_are_reported() {
        let check = |kind, text| {
            let mut session = scripted(["8", "1234"]);
            session
                .0
                .push(("CHECK TABLE `t`", vec![vec!["d.t", "check", kind, text]]));
            check_table(&mut session, Dialect::Maria(Form::InnoDb), "t")
        };
        assert_eq!(check("status", "OK").expect("fine"), 1);
        assert!(check("error", "Corrupt").is_err() && check("status", "failed").is_err());
    }
}
