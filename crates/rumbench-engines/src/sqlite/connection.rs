//! One client's SQLite connection: LinkBench's operations as prepared statements.
//!
//! A write operation holds the process's writer mutex from `BEGIN IMMEDIATE` to `COMMIT`; a read is one statement,
//! which SQLite runs on a snapshot of its own. A write that changes nothing rolls back, so that it logs nothing.

use std::hint::black_box;
use std::sync::{Arc, PoisonError};

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::linkbench::{
    Count, Link, LinkConnection, LinkKey, ListQuery, ListResult, Node, TableTotals, WriteOutcome,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, ToSql, params};

use super::{Shared, convert, sql, sqlite_error};

pub(super) struct SqliteConnection {
    shared: Arc<Shared>,
    connection: Connection,
    /// The multiget statements by size class, written once.
    multigets: [String; sql::MULTIGET_SIZES.len()],
}

impl SqliteConnection {
    pub(super) fn new(shared: Arc<Shared>, connection: Connection) -> SqliteConnection {
        SqliteConnection {
            shared,
            connection,
            multigets: sql::MULTIGET_SIZES.map(sql::multiget),
        }
    }

    /// Runs `body` as the only writer; commits where it answers that something changed.
    fn write<T>(&self, body: impl FnOnce(&Tables<'_>) -> Result<Written<T>>) -> Result<T> {
        let _writer = self
            .shared
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let tables = Tables(&self.connection);
        tables.run(sql::BEGIN_WRITE)?;
        let written = body(&tables).and_then(|written| match written {
            Written::Commit(value) => tables.run(sql::COMMIT).map(|()| value),
            Written::Rollback(value) => tables.run(sql::ROLLBACK).map(|()| value),
        });
        if written.is_err() && !self.connection.is_autocommit() {
            // The first error is the one to report; the connection must be usable for a retry.
            let _ = tables.run(sql::ROLLBACK);
        }
        written
    }

    fn tables(&self) -> Tables<'_> {
        Tables(&self.connection)
    }

    /// Adds `link` or rewrites it, as [`LinkConnection::add_link`] and `update_link` do in either order.
    fn upsert_link(&self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.write(|tables| {
            let outcome = match tables.visibility(link.key)? {
                None => {
                    tables.insert_link(link)?;
                    WriteOutcome::Inserted
                }
                Some(before) => {
                    tables.change(sql::UPDATE_LINK, &link_row(link)?)?;
                    match (before, link.visibility) {
                        (0, 1) => WriteOutcome::Revived,
                        _ => WriteOutcome::Changed,
                    }
                }
            };
            if matches!(outcome, WriteOutcome::Inserted | WriteOutcome::Revived) {
                tables.add_to_count(link.key, 1, link.time)?;
            }
            Ok(Written::Commit(outcome))
        })
    }
}

/// Whether a transaction changed anything.
enum Written<T> {
    Commit(T),
    Rollback(T),
}

/// The statements, on a connection that is inside a transaction or needs none.
struct Tables<'a>(&'a Connection);

impl<'a> Tables<'a> {
    fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>> {
        self.0
            .prepare_cached(sql)
            .map_err(sqlite_error("sqlite: prepare"))
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.change(sql, &[]).map(|_rows| ())
    }

    /// Runs a statement that returns no rows; answers how many it changed.
    fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<usize> {
        self.prepare(sql)?
            .execute(parameters)
            .map_err(sqlite_error("sqlite: write"))
    }

    /// The first row of a query, if it has one.
    fn first<T>(
        &self,
        sql: &str,
        parameters: &[&dyn ToSql],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.prepare(sql)?
            .query_row(parameters, read)
            .optional()
            .map_err(sqlite_error("sqlite: read"))
    }
}
