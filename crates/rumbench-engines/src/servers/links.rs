//! LinkBench connection of one client to a server: prepared statements, transactions, and the parts
//! of its operations (`link_operations`).
//!
//! A write of links begins a transaction, changes the link, then its count, and commits. A write
//! that changes nothing rolls back. Rows that are read for a change are locked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rumbench_core::engine::Result;
use rumbench_core::linkbench::{
    EqualTimes, Link, LinkConnection, LinkKey, LinkStore, Node, WriteOutcome,
};
use rumbench_core::tables::{
    ColumnType::{self, Bytes, U32, U64},
    Value,
};

use super::link_sql::{self, Query};
use super::server::Server;
use super::session::{Session, Statement};
use super::sql::Dialect;

/// Maximum rows of one insert statement.
const ROWS_MAX: usize = 1000;

/// LinkBench tables on a server.
pub(super) struct ServerLinks<S> {
    pub(super) server: Arc<S>,
    /// Highest id that the node sequence was moved to: loaded ids do not come from it.
    pub(super) highest_node: Arc<Mutex<u64>>,
}

impl<S: Server> LinkStore for ServerLinks<S> {
    fn connect(&self) -> Result<Box<dyn LinkConnection>> {
        Ok(Box::new(LinksConnection {
            session: self.server.connect()?,
            dialect: self.server.dialect(),
            statements: HashMap::new(),
            highest_node: Arc::clone(&self.highest_node),
        }))
    }

    fn separate_index(&self) -> bool {
        true
    }

    fn equal_times(&self) -> EqualTimes {
        link_sql::equal_times(self.server.dialect())
    }

    fn build_index(&self) -> Result<()> {
        let mut session = self.server.connect()?;
        session.query(&link_sql::create_index(self.server.dialect()))?;
        for table in ["nodetable", "linktable", "counttable"] {
            self.server.tidy(&mut session, table)?;
        }
        Ok(())
    }
}

pub(super) struct LinksConnection<S> {
    pub(super) session: S,
    pub(super) dialect: Dialect,
    statements: HashMap<Query, Statement>,
    highest_node: Arc<Mutex<u64>>,
}

/// Result of a transaction: commit a change, or roll back because nothing changed.
pub(super) enum Written<T> {
    Commit(T),
    Rollback(T),
}

pub(super) fn unsigned(number: impl Into<u64>) -> Value<'static> {
    Value::Unsigned(number.into())
}

pub(super) fn key_values(key: LinkKey) -> [Value<'static>; 3] {
    [key.link_type, key.id1, key.id2].map(Value::Unsigned)
}

/// Returns a number of a row. Sessions return values of the requested column types.
pub(super) fn number(row: &[Value<'_>], place: usize) -> u64 {
    row[place].unsigned().unwrap_or(0)
}

pub(super) fn bytes<'a>(row: &[Value<'a>], place: usize) -> &'a [u8] {
    match row[place] {
        Value::Bytes(bytes) => bytes,
        Value::Unsigned(_) | Value::Signed(_) => &[],
    }
}

impl<S: Session> LinksConnection<S> {
    pub(super) fn statement(&mut self, query: Query) -> Result<Statement> {
        if let Some(statement) = self.statements.get(&query) {
            return Ok(*statement);
        }
        let text = query.text(self.dialect);
        let statement = match query {
            Query::ListLinks => self.session.prepare_of_index(&text),
            _ => self.session.prepare(&text),
        }?;
        self.statements.insert(query, statement);
        Ok(statement)
    }

    pub(super) fn change(&mut self, query: Query, parameters: &[Value<'_>]) -> Result<u64> {
        let statement = self.statement(query)?;
        self.session.change(statement, parameters)
    }

    /// Returns the row of a query, if any.
    pub(super) fn first<T>(
        &mut self,
        query: Query,
        parameters: &[Value<'_>],
        columns: &[ColumnType],
        read: impl Fn(&[Value<'_>]) -> T,
    ) -> Result<Option<T>> {
        let statement = self.statement(query)?;
        let mut found = None;
        let mut visit = |row: &[Value<'_>]| found = Some(read(row));
        self.session
            .run(statement, parameters, columns, &mut visit)?;
        Ok(found)
    }

    pub(super) fn write<T>(
        &mut self,
        body: impl FnOnce(&mut LinksConnection<S>) -> Result<Written<T>>,
    ) -> Result<T> {
        self.session.query("BEGIN")?;
        let done = body(self).and_then(|written| match written {
            Written::Commit(value) => self.session.query("COMMIT").map(|_| value),
            Written::Rollback(value) => self.session.query("ROLLBACK").map(|_| value),
        });
        if done.is_err() {
            // The first error is the one to report; the connection must be usable for a retry.
            let _ = self.session.query("ROLLBACK");
        }
        done
    }

    /// Inserts rows with as few statements as possible, in one commit.
    pub(super) fn load<R>(
        &mut self,
        rows: &[R],
        query: fn(usize) -> Query,
        push: impl Fn(&mut S, &R) -> Result<()>,
    ) -> Result<()> {
        let insert = |connection: &mut LinksConnection<S>, rows: &[R]| {
            let statement = connection.statement(query(rows.len()))?;
            connection.session.start(statement);
            for row in rows {
                push(&mut connection.session, row)?;
            }
            connection.session.finish(&[], &mut |_| ()).map(drop)
        };
        if rows.len() <= ROWS_MAX {
            return match rows {
                [] => Ok(()),
                rows => insert(self, rows),
            };
        }
        self.write(|connection| {
            for part in rows.chunks(ROWS_MAX) {
                insert(connection, part)?;
            }
            Ok(Written::Commit(()))
        })
    }

    /// Inserts a link unless it exists; returns true if it inserted.
    pub(super) fn insert_link(&mut self, link: &Link<'_>) -> Result<bool> {
        let statement = self.statement(Query::AddLink)?;
        self.session.start(statement);
        push_link(&mut self.session, link)?;
        let inserted = self.session.finish(&[], &mut |_| ())? > 0;
        if inserted {
            self.add_to_count(link.key, link.time)?;
        }
        Ok(inserted)
    }

    /// Rewrites a link; returns `None` if it does not exist.
    pub(super) fn rewrite_link(
        &mut self,
        link: &Link<'_>,
    ) -> Result<Option<Written<WriteOutcome>>> {
        let query = Query::ReadLink { locked: true };
        let prior = self.first(query, &key_values(link.key), &LINK, |row| {
            let visibility = number(row, 0);
            let same = visibility == u64::from(link.visibility)
                && number(row, 1) == link.time
                && number(row, 2) == u64::from(link.version)
                && bytes(row, 3) == link.data;
            (visibility, same)
        })?;
        let Some((visibility, same)) = prior else {
            return Ok(None);
        };
        if same {
            return Ok(Some(Written::Rollback(WriteOutcome::Nothing)));
        }
        let [link_type, id1, id2] = key_values(link.key);
        let new = [
            unsigned(link.visibility),
            unsigned(link.time),
            unsigned(link.version),
            Value::Bytes(link.data),
            link_type,
            id1,
            id2,
        ];
        self.change(Query::UpdateLink, &new)?;
        if visibility != 0 {
            return Ok(Some(Written::Commit(WriteOutcome::Changed)));
        }
        self.add_to_count(link.key, link.time)?;
        Ok(Some(Written::Commit(WriteOutcome::Revived)))
    }

    fn add_to_count(&mut self, key: LinkKey, time: u64) -> Result<()> {
        let parameters = [key.id1, key.link_type, time].map(Value::Unsigned);
        self.change(Query::AddToCount, &parameters).map(drop)
    }

    /// Moves PostgreSQL's node sequence past the loaded ids, because they do not come from it.
    pub(super) fn move_sequence(&mut self, highest: u64) -> Result<()> {
        if self.dialect != Dialect::Postgres {
            return Ok(());
        }
        let known = Arc::clone(&self.highest_node);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if highest > *known {
            let text = format!("SELECT setval('nodetable_id_seq', {highest})");
            self.session.query(&text)?;
            *known = highest;
        }
        Ok(())
    }
}

/// Columns of the value of a link, a node, and a count.
pub(super) const LINK: [ColumnType; 4] = [U32, U64, U32, Bytes];
pub(super) const NODE: [ColumnType; 4] = [U32, U64, U32, Bytes];
pub(super) const COUNT: [ColumnType; 3] = [U64, U64, U64];

pub(super) fn push_link<S: Session>(session: &mut S, link: &Link<'_>) -> Result<()> {
    for value in key_values(link.key) {
        session.push(value)?;
    }
    session.push(unsigned(link.visibility))?;
    session.push(unsigned(link.time))?;
    session.push(unsigned(link.version))?;
    session.push(Value::Bytes(link.data))
}

/// Binds all columns of a node except its id.
pub(super) fn push_node<S: Session>(session: &mut S, node: &Node<'_>) -> Result<()> {
    session.push(unsigned(node.node_type))?;
    session.push(unsigned(node.version))?;
    session.push(unsigned(node.time))?;
    session.push(Value::Bytes(node.data))
}
