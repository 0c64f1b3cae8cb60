//! Counts of generated things, and the floor below which a run fails.
//!
//! A change of the generator could make statements fail or leave out a type without any difference
//! between the engines. The floor finds that.

use std::collections::BTreeMap;

/// Runs with fewer statements are not held to the floor.
pub const STATEMENTS_MIN: u64 = 10_000;

/// Least count of each thing in [`STATEMENTS_MIN`] statements that succeed.
const FLOOR: [(u64, &[&str]); 9] = [
    (
        2,
        &[
            "type: TINYINT",
            "type: SMALLINT",
            "type: MEDIUMINT",
            "type: INT",
            "type: BIGINT",
            "type: TINYINT UNSIGNED",
            "type: SMALLINT UNSIGNED",
            "type: MEDIUMINT UNSIGNED",
            "type: INT UNSIGNED",
            "type: BIGINT UNSIGNED",
            "type: DECIMAL",
            "type: FLOAT",
            "type: DOUBLE",
            "type: BIT",
            "type: DATE",
            "type: TIME",
            "type: DATETIME",
            "type: TIMESTAMP",
            "type: YEAR",
            "type: CHAR",
            "type: VARCHAR",
            "type: BINARY",
            "type: VARBINARY",
            "type: TINYTEXT",
            "type: TEXT",
            "type: MEDIUMTEXT",
            "type: LONGTEXT",
            "type: TINYBLOB",
            "type: BLOB",
            "type: MEDIUMBLOB",
            "type: LONGBLOB",
            "type: ENUM",
            "type: SET",
            "type: JSON",
            "type: UUID",
            "type: INET6",
            "statement: RELEASE SAVEPOINT",
        ],
    ),
    (
        1,
        &[
            "collation: pad",
            "collation: nopad",
            "collation: uca pad",
            "collation: uca nopad",
            "collation: binary pad",
            "collation: binary nopad",
        ],
    ),
    (
        5,
        &[
            "index: primary",
            "index: unique",
            "index: secondary",
            "index: prefix",
            "index: DESC",
            "index: several columns",
            "table: without primary key",
            "column: AUTO_INCREMENT",
            "column: STORED",
            "column: VIRTUAL",
        ],
    ),
    (
        50,
        &[
            "statement: SELECT",
            "statement: SELECT by an index",
            "statement: SELECT with ORDER BY",
            "statement: SELECT from an index",
            "statement: GROUP BY",
            "statement: join",
            "statement: subquery",
            "statement: aggregates",
            "statement: UNION",
            "statement: locking SELECT",
            "read: backward",
            "hint: FORCE INDEX",
            "answer: NULL",
            "answer: rows",
        ],
    ),
    (
        20,
        &[
            "statement: INSERT",
            "statement: INSERT of several rows",
            "statement: INSERT IGNORE",
            "statement: REPLACE",
            "statement: ON DUPLICATE KEY UPDATE",
            "statement: INSERT SELECT",
            "statement: UPDATE",
            "statement: UPDATE of keys",
            "statement: DELETE",
            "statement: DELETE with a join",
            "answer: changed rows",
            "answer: AUTO_INCREMENT",
            "answer: warnings",
        ],
    ),
    (
        20,
        &[
            "statement: BEGIN",
            "statement: COMMIT",
            "statement: ROLLBACK",
            "statement: SAVEPOINT",
            "statement: ROLLBACK TO SAVEPOINT",
        ],
    ),
    (
        3,
        &[
            "statement: ADD INDEX",
            "statement: DROP INDEX",
            "statement: ADD COLUMN",
            "statement: DROP COLUMN",
            "statement: RENAME COLUMN",
            "statement: RENAME TABLE",
            "statement: ALTER TABLE FORCE",
            "statement: TRUNCATE",
            "statement: ANALYZE",
        ],
    ),
    // Duplicate key; value out of range; data too long; savepoint that does not exist.
    (
        5,
        &["error: 1062", "error: 1264", "error: 1406", "error: 1305"],
    ),
    // NULL in a column that refuses it.
    (2, &["error: 1048"]),
];

/// Counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
    /// All statements.
    pub statements: u64,
}

impl Coverage {
    /// Counts a thing.
    pub fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_string()).or_default() += 1;
    }

    /// Returns a sentence for each thing below its floor.
    pub fn gaps(&self) -> Vec<String> {
        if self.statements < STATEMENTS_MIN {
            return Vec::new();
        }
        let mut gaps = Vec::new();
        for (least, names) in FLOOR {
            // Whole multiples only: the end of a run is not a full multiple.
            let wanted = least * (self.statements / STATEMENTS_MIN);
            for name in names {
                let count = self.counts.get(*name).copied().unwrap_or(0);
                if count < wanted {
                    gaps.push(format!("{name}: {count}, at least {wanted} wanted"));
                }
            }
        }
        gaps
    }

    /// Returns a line for each thing.
    pub fn lines(&self) -> Vec<String> {
        let line = |(name, count): (&String, &u64)| format!("{count:9} {name}");
        self.counts.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_without_counts_is_below_the_floor_and_a_short_one_is_not_judged() {
        let mut coverage = Coverage {
            statements: STATEMENTS_MIN,
            ..Coverage::default()
        };
        let all = coverage.gaps().len();
        assert!(all > 90);
        coverage.count("type: JSON");
        coverage.count("type: JSON");
        assert_eq!(coverage.gaps().len(), all - 1);
        coverage.statements -= 1;
        assert!(coverage.gaps().is_empty());
    }
}
