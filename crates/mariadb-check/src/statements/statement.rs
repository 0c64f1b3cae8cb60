//! Statements with their expectations.
//!
//! Invariant: an answer depends on the tables and the statement only, not on the plan or the order
//! in which an engine reads rows. So LIMIT comes only with an order of rows that is total, a
//! statement that changes unique columns of several rows has such an order, and values that are
//! equal but not the same are not asked for where any of them is a right answer.

use super::schema::Table;

/// Comparison of two answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Rows in their order, or all numbers of a statement without rows.
    Exactly,
    /// Rows without their order.
    AnyOrder,
    /// Numbers of changed rows. Conditions may warn once for each row that the plan reads.
    Changes,
    /// Success or the code of the error.
    Success,
}

/// Change of the generator's tables by a statement that succeeds.
#[derive(Debug, Clone)]
pub enum Change {
    Create(Table),
    /// Replaces a table, perhaps by one of another name.
    Replace {
        name: String,
        table: Table,
    },
}

/// Statement with its expectations.
#[derive(Debug, Clone)]
pub struct Statement {
    pub sql: String,
    pub compare: Compare,
    pub change: Option<Change>,
    /// Names under which the report counts the statement if it succeeds.
    pub marks: Vec<String>,
}

impl Statement {
    /// Creates a statement that is counted under one name.
    pub fn new(mark: &str, sql: String, compare: Compare) -> Statement {
        Statement {
            sql,
            compare,
            change: None,
            marks: vec![format!("statement: {mark}")],
        }
    }

    /// Adds a name to count.
    pub fn mark(mut self, mark: impl Into<String>) -> Statement {
        self.marks.push(mark.into());
        self
    }

    /// Adds the change of the generator's tables.
    pub fn changing(mut self, change: Change) -> Statement {
        self.change = Some(change);
        self
    }
}
