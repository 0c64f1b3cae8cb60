//! SQLite connection of one client: LinkBench's operations as prepared statements.
//!
//! A write operation holds the process's writer mutex from `BEGIN IMMEDIATE` to `COMMIT`. A read is
//! one statement, which SQLite runs on a snapshot of its own. A write without changes rolls back,
//! so that nothing is logged.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::linkbench::{
    Count, Link, LinkConnection, LinkKey, ListQuery, ListResult, Node, TableTotals, WriteOutcome,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, ToSql, params};

use super::errors::sqlite_error;
use super::shared::Shared;
use super::sql;

pub(super) struct SqliteConnection {
    shared: Arc<Shared>,
    connection: Connection,
    /// Texts of the multiget statements by size class, created once.
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

    /// Runs `body` as the only writer, and commits if `body` returns `Written::Commit`.
    fn write<T>(&self, body: impl FnOnce(&Tables<'_>) -> Result<Written<T>>) -> Result<T> {
        as_only_writer(&self.shared, &self.connection, |tables| {
            tables.run(sql::BEGIN_WRITE)?;
            match body(tables)? {
                Written::Commit(value) => tables.run(sql::COMMIT).map(|()| value),
                Written::Rollback(value) => tables.run(sql::ROLLBACK).map(|()| value),
            }
        })
    }

    fn tables(&self) -> Tables<'_> {
        Tables(&self.connection)
    }

    /// Implements ADD_LINK and UPDATE_LINK, which are the same with the database locked.
    fn upsert_link(&self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.write(|tables| {
            let outcome = match tables.prior(link)? {
                None => {
                    tables.put_link(sql::INSERT_LINK, link)?;
                    WriteOutcome::Inserted
                }
                Some(prior) if prior.same => return Ok(Written::Rollback(WriteOutcome::Nothing)),
                Some(prior) => {
                    tables.put_link(sql::UPDATE_LINK, link)?;
                    match prior.visibility {
                        0 => WriteOutcome::Revived,
                        _ => WriteOutcome::Changed,
                    }
                }
            };
            if outcome != WriteOutcome::Changed {
                tables.add_to_count(link.key, link.time)?;
            }
            Ok(Written::Commit(outcome))
        })
    }
}

/// Runs `body` as the only writer of the process. If an error leaves a transaction open, it is
/// rolled back.
pub(super) fn as_only_writer<T>(
    shared: &Shared,
    connection: &Connection,
    body: impl FnOnce(&Tables<'_>) -> Result<T>,
) -> Result<T> {
    let _writer = shared.writer.lock().unwrap_or_else(PoisonError::into_inner);
    let tables = Tables(connection);
    let written = body(&tables);
    if written.is_err() && !connection.is_autocommit() {
        // The first error is the one to report; the connection must be usable for a retry.
        let _ = tables.run(sql::ROLLBACK);
    }
    written
}

/// Result of a transaction: commit its changes, or roll back because there are none.
enum Written<T> {
    Commit(T),
    Rollback(T),
}

/// Statements on a connection that is inside a transaction or needs none.
pub(super) struct Tables<'a>(pub(super) &'a Connection);

impl<'a> Tables<'a> {
    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>> {
        self.0
            .prepare_cached(sql)
            .map_err(sqlite_error("sqlite: prepare"))
    }

    pub(super) fn run(&self, sql: &str) -> Result<()> {
        self.change(sql, &[]).map(|_rows| ())
    }

    /// Runs a statement that returns no rows, and returns the number of rows it changed.
    pub(super) fn change(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<usize> {
        self.prepare(sql)?
            .execute(parameters)
            .map_err(sqlite_error("sqlite: write"))
    }

    /// Returns the first row of a query, if it has one.
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

/// Converts to SQLite's signed integer: ids and times above 2^63 - 1 are `Unsupported`.
pub(super) fn int(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| {
        EngineError::Unsupported(format!("sqlite cannot store {value}: it exceeds 63 bits"))
    })
}

/// Reads an integer that was unsigned when it was written.
fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// Key columns of a link, in the order of every statement.
struct Key {
    link_type: i64,
    id1: i64,
    id2: i64,
}

impl Key {
    fn of(key: LinkKey) -> Result<Key> {
        Ok(Key {
            link_type: int(key.link_type)?,
            id1: int(key.id1)?,
            id2: int(key.id2)?,
        })
    }
}

/// Existing link that a write found.
struct Prior {
    visibility: u8,
    /// `true` if all columns of the row equal those of the new one.
    same: bool,
}

impl Tables<'_> {
    /// Runs a statement with a link's seven columns as parameters.
    fn put_link(&self, sql: &str, link: &Link<'_>) -> Result<()> {
        let key = Key::of(link.key)?;
        let time = int(link.time)?;
        let columns = params![
            key.link_type,
            key.id1,
            key.id2,
            link.visibility,
            time,
            link.version,
            link.data
        ];
        self.change(sql, columns).map(|_rows| ())
    }

    fn prior(&self, link: &Link<'_>) -> Result<Option<Prior>> {
        let key = Key::of(link.key)?;
        self.first(
            sql::READ_LINK,
            params![key.link_type, key.id1, key.id2],
            |row| {
                let visibility: u8 = row.get(0)?;
                let same = visibility == link.visibility
                    && unsigned(row, 1)? == link.time
                    && row.get::<_, u32>(2)? == link.version
                    && row.get_ref(3)?.as_blob()? == link.data;
                Ok(Prior { visibility, same })
            },
        )
    }

    fn add_to_count(&self, link: LinkKey, time: u64) -> Result<()> {
        let columns = params![int(link.id1)?, int(link.link_type)?, int(time)?];
        self.change(sql::ADD_TO_COUNT, columns).map(|_rows| ())
    }

    fn take_from_count(&self, link: LinkKey, time: u64) -> Result<()> {
        let columns = params![int(link.id1)?, int(link.link_type)?, int(time)?];
        match self.change(sql::TAKE_FROM_COUNT, columns)? {
            1 => Ok(()),
            _ => Err(EngineError::Wrong(format!(
                "no count row above 0 for the visible link {link:?}"
            ))),
        }
    }
}

impl LinkConnection for SqliteConnection {
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        self.write(|tables| {
            for node in nodes {
                tables.insert_node(node.id, node)?;
            }
            Ok(Written::Commit(()))
        })?;
        let next = nodes.iter().map(|node| node.id + 1).max().unwrap_or(0);
        // Relaxed: only the number matters, and the commit publishes the rows.
        self.shared.next_node.fetch_max(next, Ordering::Relaxed);
        Ok(())
    }

    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()> {
        self.write(|tables| {
            for link in links {
                tables.put_link(sql::INSERT_LINK, link)?;
            }
            Ok(Written::Commit(()))
        })
    }

    fn load_counts(&mut self, counts: &[Count]) -> Result<()> {
        self.write(|tables| {
            for count in counts {
                let columns = params![
                    int(count.id)?,
                    int(count.link_type)?,
                    int(count.count)?,
                    int(count.time)?,
                    int(count.version)?
                ];
                tables.change(sql::INSERT_COUNT, columns)?;
            }
            Ok(Written::Commit(()))
        })
    }

    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.upsert_link(link)
    }

    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.upsert_link(link)
    }

    fn delete_link(&mut self, link: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome> {
        let key = Key::of(link)?;
        let key = params![key.link_type, key.id1, key.id2];
        self.write(|tables| {
            let prior: Option<u8> = tables.first(sql::READ_LINK, key, |row| row.get(0))?;
            let Some(visibility) = prior.filter(|visibility| expunge || *visibility != 0) else {
                return Ok(Written::Rollback(WriteOutcome::Nothing));
            };
            let statement = if expunge {
                sql::REMOVE_LINK
            } else {
                sql::HIDE_LINK
            };
            tables.change(statement, key)?;
            if visibility != 0 {
                tables.take_from_count(link, time)?;
            }
            Ok(Written::Commit(WriteOutcome::Changed))
        })
    }

    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64> {
        let count = self.read_count(id1, link_type)?;
        Ok(count.map_or(0, |count| count.count))
    }

    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64> {
        let largest = sql::MULTIGET_SIZES[sql::MULTIGET_SIZES.len() - 1];
        let mut found = 0;
        for id2s in id2s.chunks(largest) {
            found += self.multiget_chunk(id1, link_type, id2s)?;
        }
        Ok(found)
    }

    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let columns = params![
            int(query.id1)?,
            int(query.link_type)?,
            signed(query.time_min),
            signed(query.time_max),
            signed(query.offset as u64),
            signed(query.limit as u64)
        ];
        let tables = self.tables();
        let mut statement = tables.prepare(sql::LIST_LINKS)?;
        let mut list = || {
            let mut rows = statement.query(columns)?;
            let mut result = ListResult::default();
            while let Some(row) = rows.next()? {
                let (time, id2) = (unsigned(row, 0)?, unsigned(row, 1)?);
                let version: u32 = row.get(2)?;
                black_box((version, row.get_ref(3)?.as_blob()?));
                result.rows += 1;
                result.last = Some((time, id2));
            }
            Ok(result)
        };
        list().map_err(sqlite_error("sqlite: list links"))
    }

    fn add_node(&mut self, node: &Node<'_>) -> Result<u64> {
        // Relaxed: only the number matters.
        let id = self.shared.next_node.fetch_add(1, Ordering::Relaxed);
        self.write(|tables| {
            tables.insert_node(id, node)?;
            Ok(Written::Commit(id))
        })
    }

    fn update_node(&mut self, node: &Node<'_>) -> Result<bool> {
        let columns = params![
            int(node.id)?,
            node.node_type,
            int(node.version)?,
            node.time,
            node.data
        ];
        self.change_node(sql::UPDATE_NODE, columns)
    }

    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        self.change_node(sql::DELETE_NODE, params![int(id)?, node_type])
    }

    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        let found = self
            .tables()
            .first(sql::READ_NODE, params![int(id)?], |row| {
                let (found, version, time): (u32, i64, u32) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                black_box((version, time, row.get_ref(3)?.as_blob()?));
                Ok(found)
            })?;
        Ok(found == Some(node_type))
    }

    fn read_link(&mut self, key: LinkKey) -> Result<Option<(u8, u64, u32, Vec<u8>)>> {
        let key = Key::of(key)?;
        let key = params![key.link_type, key.id1, key.id2];
        self.tables().first(sql::READ_LINK, key, |row| {
            Ok((row.get(0)?, unsigned(row, 1)?, row.get(2)?, row.get(3)?))
        })
    }

    fn read_node(&mut self, id: u64) -> Result<Option<(u32, u64, u32, Vec<u8>)>> {
        self.tables()
            .first(sql::READ_NODE, params![int(id)?], |row| {
                Ok((row.get(0)?, unsigned(row, 1)?, row.get(2)?, row.get(3)?))
            })
    }

    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>> {
        let key = params![int(id)?, int(link_type)?];
        self.tables().first(sql::READ_COUNT, key, |row| {
            Ok(Count {
                id,
                link_type,
                count: unsigned(row, 0)?,
                time: unsigned(row, 1)?,
                version: unsigned(row, 2)?,
            })
        })
    }

    fn check(&mut self) -> Result<TableTotals> {
        let tables = self.tables();
        // The index is checked first: SQLite may answer the other queries from it.
        tables.check_index()?;
        tables.check_counts()?;
        let totals = tables.first(sql::TOTALS, &[], |row| {
            Ok(TableTotals {
                nodes: unsigned(row, 0)?,
                links: unsigned(row, 1)?,
                visible_links: unsigned(row, 2)?,
                counts: unsigned(row, 3)?,
            })
        })?;
        totals.ok_or_else(|| EngineError::Wrong("sqlite returned no totals".to_string()))
    }
}

impl SqliteConnection {
    /// Runs one multiget of at most as many ids as the largest statement takes.
    fn multiget_chunk(&self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64> {
        let Some(last) = id2s.last() else {
            return Ok(0);
        };
        let class = sql::MULTIGET_SIZES.partition_point(|size| *size < id2s.len());
        let padding = std::iter::repeat_n(last, sql::MULTIGET_SIZES[class] - id2s.len());
        let tables = self.tables();
        let mut statement = tables.prepare(&self.multigets[class])?;
        let mut bind = |index, value| {
            statement
                .raw_bind_parameter(index, value)
                .map_err(sqlite_error("sqlite: bind"))
        };
        bind(1, int(link_type)?)?;
        bind(2, int(id1)?)?;
        for (position, id2) in id2s.iter().chain(padding).enumerate() {
            bind(position + 3, int(*id2)?)?;
        }
        let mut fetch = || {
            let mut rows = statement.raw_query();
            let mut found = 0;
            while let Some(row) = rows.next()? {
                let (visibility, time, version): (u8, i64, u32) =
                    (row.get(1)?, row.get(2)?, row.get(3)?);
                black_box((visibility, time, version, row.get_ref(4)?.as_blob()?));
                found += 1;
            }
            Ok(found)
        };
        fetch().map_err(sqlite_error("sqlite: multiget"))
    }

    /// Writes or removes a node if id and type match. Returns `true` if there was one.
    fn change_node(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<bool> {
        self.write(|tables| {
            Ok(match tables.change(sql, parameters)? {
                0 => Written::Rollback(false),
                _ => Written::Commit(true),
            })
        })
    }
}

impl Tables<'_> {
    fn insert_node(&self, id: u64, node: &Node<'_>) -> Result<()> {
        let columns = params![
            int(id)?,
            node.node_type,
            int(node.version)?,
            node.time,
            node.data
        ];
        self.change(sql::INSERT_NODE, columns).map(|_rows| ())
    }

    fn check_counts(&self) -> Result<()> {
        let wrong = self.first(sql::WRONG_COUNTS, &[], |row| {
            Ok(format!(
                "count of ({}, {}) is {}, but {} links are visible",
                unsigned(row, 0)?,
                unsigned(row, 1)?,
                unsigned(row, 2)?,
                unsigned(row, 3)?
            ))
        })?;
        wrong.map_or(Ok(()), |message| Err(EngineError::Wrong(message)))
    }

    /// Lets SQLite compare the index with the table. The index exists only after the load.
    fn check_index(&self) -> Result<()> {
        let verdict: Option<String> = self.first(sql::CHECK_INDEX, &[], |row| row.get(0))?;
        match verdict.as_deref() {
            Some("ok") => Ok(()),
            other => Err(EngineError::Wrong(format!(
                "integrity check: {}",
                other.unwrap_or("no answer")
            ))),
        }
    }
}
