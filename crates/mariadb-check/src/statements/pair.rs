//! One statement on both engines, and comparison of its answers.
//!
//! Each engine has a database of its own, and a connection with this engine as the default one. So
//! both get the same text.

use std::fmt;
use std::io;

use anyhow::Result;

use super::plans;
use super::statement::Compare;
use crate::client::{Answer, Client};
use crate::server::Server;

const ENGINES: [&str; 2] = ["InnoDB", "ALLUVIUM"];
/// Last lines of the server's log in the report of a lost connection.
const LOG_LINES: usize = 60;
/// Rows of an answer in a report.
const ROWS_SHOWN: usize = 40;

/// Statement of a list that can be run again.
#[derive(Debug, Clone)]
pub struct Step {
    pub sql: String,
    pub compare: Compare,
}

/// Difference between the engines.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Kind, which must stay the same while a list is shortened.
    pub kind: String,
    /// Statement and answers.
    text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Connections to new databases of both engines.
pub struct Pair {
    clients: [Client; 2],
    ignore: Vec<String>,
    folder: std::path::PathBuf,
    /// Queries in which InnoDB by an index differed from Alluvium and from InnoDB without indexes.
    pub self_differences: Vec<String>,
}

impl Pair {
    /// Creates new databases, and starts the server again if it has ended.
    ///
    /// # Errors
    /// If the server cannot be used.
    pub fn fresh(server: &mut Server, ignore: &[String]) -> Result<Pair> {
        if !server.is_alive() {
            server.start_again()?;
        }
        let connect = |engine: &str| -> Result<Client> {
            let mut client = server.connect()?;
            let name = format!("check_{}", engine.to_lowercase());
            for sql in [
                format!("DROP DATABASE IF EXISTS {name}"),
                format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
                format!("USE {name}"),
                format!(
                    "SET default_storage_engine = {engine}, time_zone = '+00:00', timestamp = 1700000000"
                ),
                "SET NAMES utf8mb4, lock_wait_timeout = 10".to_string(),
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_string(),
                "SET optimizer_switch = 'subquery_cache=off'".to_string(),
            ] {
                client.must(&sql)?;
            }
            Ok(client)
        };
        Ok(Pair {
            clients: [connect(ENGINES[0])?, connect(ENGINES[1])?],
            ignore: ignore.to_vec(),
            folder: server.folder().to_path_buf(),
            self_differences: Vec::new(),
        })
    }

    /// Runs a statement on both engines and returns the common answer.
    ///
    /// # Errors
    /// If the answers differ.
    pub fn run(&mut self, step: &Step) -> Result<Answer, Box<Difference>> {
        let [inno, alluvium] = &mut self.clients;
        let answers = [inno.query(&step.sql), alluvium.query(&step.sql)];
        let [Ok(left), Ok(right)] = answers else {
            return Err(Box::new(self.lost(step, answers)));
        };
        match difference(step.compare, &left, &right) {
            Some(kind) if kind == "rows" && self.differs_from_itself(step, &right) => {
                self.self_differences.push(step.sql.clone());
                Ok(right)
            }
            Some(kind)
                if !self
                    .ignore
                    .iter()
                    .any(|name| kind.starts_with(name.as_str())) =>
            {
                Err(Box::new(self.differ(kind, step, &left, &right)))
            }
            _ => Ok(left),
        }
    }

    /// Returns true if InnoDB without any index gives the answer of Alluvium.
    fn differs_from_itself(&mut self, step: &Step, right: &Answer) -> bool {
        if !matches!(right, Answer::Rows(_)) {
            return false;
        }
        let inno = &mut self.clients[0];
        let sql = plans::without_indexes(&step.sql, |table| index_names(inno, table));
        let Ok(left) = inno.query(&sql) else {
            return false;
        };
        difference(step.compare, &left, right).is_none()
    }

    fn lost(&self, step: &Step, answers: [io::Result<Answer>; 2]) -> Difference {
        let mut text = format!("{}\n", step.sql);
        for (engine, answer) in ENGINES.iter().zip(answers) {
            text += &match answer {
                Ok(answer) => format!("{engine}: {answer}\n"),
                Err(error) => format!("{engine}: no answer ({error})\n"),
            };
        }
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        text += &lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        Difference {
            kind: "lost".to_string(),
            text,
        }
    }

    fn differ(&mut self, kind: String, step: &Step, left: &Answer, right: &Answer) -> Difference {
        let mut text = format!("{}\n", step.sql);
        match (left, right) {
            (Answer::Rows(left), Answer::Rows(right)) => {
                let ordered = step.compare == Compare::Exactly;
                text += &rows_that_differ(left, right, ordered);
            }
            _ => text += &format!("InnoDB:   {left}\nALLUVIUM: {right}\n"),
        }
        for table in tables_of(&step.sql) {
            let rows = self.clients[1].query(&format!("SHOW CREATE TABLE {table}"));
            if let Ok(Answer::Rows(rows)) = rows
                && let Some(Some(sql)) = rows.first().and_then(|row| row.get(1))
            {
                text += &String::from_utf8_lossy(sql);
                text.push('\n');
            }
        }
        Difference { kind, text }
    }
}

fn index_names(client: &mut Client, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
    );
    let Ok(Answer::Rows(rows)) = client.query(&sql) else {
        return Vec::new();
    };
    let names = rows.into_iter().filter_map(|row| row.into_iter().next()?);
    names
        .map(|name| String::from_utf8_lossy(&name).into_owned())
        .collect()
}

/// Returns the kind of difference between two answers, if they are not equal.
fn difference(compare: Compare, left: &Answer, right: &Answer) -> Option<String> {
    match (left, right) {
        (Answer::Refused(left), Answer::Refused(right)) if left.code == right.code => None,
        (Answer::Refused(left), Answer::Refused(right)) => {
            Some(format!("code {} and {}", left.code, right.code))
        }
        (Answer::Refused(left), _) => Some(format!("success, InnoDB refuses with {}", left.code)),
        (_, Answer::Refused(right)) => {
            Some(format!("success, ALLUVIUM refuses with {}", right.code))
        }
        _ if compare == Compare::Success => None,
        (Answer::Done(left), Answer::Done(right)) => {
            let kind = match () {
                () if left.affected != right.affected => "affected",
                () if left.last_id != right.last_id => "last-id",
                () if compare == Compare::Exactly && left.warnings != right.warnings => "warnings",
                () => return None,
            };
            Some(kind.to_string())
        }
        (Answer::Rows(left), Answer::Rows(right)) => {
            let equal = match compare {
                Compare::Exactly => left == right,
                _ => sorted(left) == sorted(right),
            };
            (!equal).then(|| "rows".to_string())
        }
        _ => Some("rows or none".to_string()),
    }
}

fn sorted<T: Ord + Clone>(rows: &[T]) -> Vec<T> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows
}

/// Shows both answers; if their order does not count, only the rows that one of them lacks.
fn rows_that_differ(
    left: &[Vec<crate::client::Value>],
    right: &[Vec<crate::client::Value>],
    ordered: bool,
) -> String {
    let (mut left, mut right) = (left.to_vec(), right.to_vec());
    if !ordered {
        // Takes away the rows that both have.
        left.retain(|row| match right.iter().position(|other| other == row) {
            Some(at) => {
                right.swap_remove(at);
                false
            }
            None => true,
        });
    }
    left.truncate(ROWS_SHOWN);
    right.truncate(ROWS_SHOWN);
    let of = if ordered { "" } else { "only in " };
    let (left, right) = (Answer::Rows(left), Answer::Rows(right));
    format!("{of}InnoDB:   {left}\n{of}ALLUVIUM: {right}\n")
}

/// Returns words of a statement that look like the generator's names of tables.
pub fn tables_of(sql: &str) -> Vec<String> {
    let words = sql.split(|c: char| !c.is_ascii_alphanumeric());
    let is_name = |word: &&str| {
        let rest = word.strip_prefix('t');
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut names: Vec<String> = words.filter(is_name).map(str::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Done, Refused};

    fn rows(values: &[&str]) -> Answer {
        let row = |value: &&str| vec![Some(value.as_bytes().to_vec())];
        Answer::Rows(values.iter().map(row).collect())
    }

    #[test]
    fn the_order_of_rows_counts_only_where_it_is_defined() {
        let (left, right) = (rows(&["a", "b"]), rows(&["b", "a"]));
        assert_eq!(difference(Compare::AnyOrder, &left, &right), None);
        assert_eq!(
            difference(Compare::Exactly, &left, &right).as_deref(),
            Some("rows")
        );
        let more = rows(&["b", "a", "a"]);
        assert!(difference(Compare::AnyOrder, &left, &more).is_some());
    }

    #[test]
    fn codes_and_numbers_count_and_messages_do_not() {
        let refused = |code, message: &str| {
            Answer::Refused(Refused {
                code,
                message: message.to_string(),
            })
        };
        assert_eq!(
            difference(Compare::Exactly, &refused(1, "a"), &refused(1, "b")),
            None
        );
        assert!(difference(Compare::Success, &refused(1, ""), &refused(2, "")).is_some());
        let done = |affected| {
            Answer::Done(Done {
                affected,
                ..Done::default()
            })
        };
        assert!(difference(Compare::Exactly, &done(1), &done(2)).is_some());
        assert_eq!(difference(Compare::Success, &done(1), &done(2)), None);
        assert!(difference(Compare::Success, &done(1), &refused(1, "")).is_some());
    }

    #[test]
    fn a_report_shows_the_tables_of_a_statement() {
        assert_eq!(tables_of("SELECT t.c1 FROM t1 a JOIN t22 b"), ["t1", "t22"]);
    }
}
