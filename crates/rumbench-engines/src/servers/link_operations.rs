//! LinkBench operations as SQL statements, the same as in the published stores for MySQL and
//! PostgreSQL. A read is one statement and one round trip.

use std::hint::black_box;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::linkbench::{
    Count, Link, LinkConnection, LinkKey, ListQuery, ListResult, Node, TableTotals, WriteOutcome,
};
use rumbench_core::tables::{
    ColumnType::{Bytes, U32, U64},
    Value,
};

use super::check::check_table;
use super::link_list::List;
use super::link_sql::{self, MULTIGET_SIZES, Query};
use super::links::{
    COUNT, LINK, LinksConnection, NODE, Written, bytes, key_values, number, push_link, push_node,
    unsigned,
};
use super::session::Session;
use super::sql::Dialect;

impl<S: Session> LinkConnection for LinksConnection<S> {
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        self.load(
            nodes,
            |rows| Query::LoadNodes { rows },
            |session, node| {
                session.push(unsigned(node.id))?;
                push_node(session, node)
            },
        )?;
        let highest = nodes.iter().map(|node| node.id).max().unwrap_or(0);
        self.move_sequence(highest)
    }

    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()> {
        self.load(links, |rows| Query::InsertLinks { rows }, push_link)
    }

    fn load_counts(&mut self, counts: &[Count]) -> Result<()> {
        self.load(
            counts,
            |rows| Query::InsertCounts { rows },
            |session, count| {
                let values = [
                    count.id,
                    count.link_type,
                    count.count,
                    count.time,
                    count.version,
                ];
                values
                    .into_iter()
                    .try_for_each(|value| session.push(Value::Unsigned(value)))
            },
        )
    }

    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.write(|connection| {
            if connection.insert_link(link)? {
                return Ok(Written::Commit(WriteOutcome::Inserted));
            }
            connection.rewrite_link(link)?.ok_or_else(vanished)
        })
    }

    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.write(|connection| {
            if let Some(written) = connection.rewrite_link(link)? {
                return Ok(written);
            }
            if connection.insert_link(link)? {
                Ok(Written::Commit(WriteOutcome::Inserted))
            } else {
                Err(vanished())
            }
        })
    }

    fn delete_link(&mut self, key: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome> {
        self.write(|connection| {
            let query = Query::ReadLink { locked: true };
            let read = |row: &[Value<'_>]| number(row, 0);
            let prior = connection.first(query, &key_values(key), &LINK, read)?;
            let Some(visibility) = prior.filter(|visibility| expunge || *visibility != 0) else {
                return Ok(Written::Rollback(WriteOutcome::Nothing));
            };
            let change = if expunge {
                Query::RemoveLink
            } else {
                Query::HideLink
            };
            connection.change(change, &key_values(key))?;
            if visibility != 0 {
                let count = [time, key.id1, key.link_type].map(Value::Unsigned);
                if connection.change(Query::TakeFromCount, &count)? != 1 {
                    return Err(EngineError::Wrong(format!(
                        "no count row above 0 for the visible link {key:?}"
                    )));
                }
            }
            Ok(Written::Commit(WriteOutcome::Changed))
        })
    }

    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64> {
        let count = self.read_count(id1, link_type)?;
        Ok(count.map_or(0, |count| count.count))
    }

    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64> {
        let mut found = 0;
        for id2s in id2s.chunks(MULTIGET_SIZES[MULTIGET_SIZES.len() - 1]) {
            let class = MULTIGET_SIZES.partition_point(|size| *size < id2s.len());
            let ids = MULTIGET_SIZES[class];
            let statement = self.statement(Query::Multiget { ids })?;
            self.session.start(statement);
            let padding = std::iter::repeat_n(&id2s[id2s.len() - 1], ids - id2s.len());
            for value in [link_type, id1].iter().chain(id2s).chain(padding) {
                self.session.push(Value::Unsigned(*value))?;
            }
            let columns = [U64, U32, U64, U32, Bytes];
            let mut other: Option<u64> = None;
            found += self.session.finish(&columns, &mut |row| {
                black_box(row);
                let id2 = number(row, 0);
                if !id2s.contains(&id2) {
                    other = Some(id2);
                }
            })?;
            if let Some(other) = other {
                return Err(EngineError::Wrong(format!(
                    "a link to {other} where links from {id1} to {id2s:?} were asked for"
                )));
            }
        }
        Ok(found)
    }

    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult> {
        let signed = |value: usize| i64::try_from(value).unwrap_or(i64::MAX) as u64;
        let time = |value: u64| value.min(i64::MAX as u64);
        let (limit, offset) = (signed(query.limit), signed(query.offset));
        // MariaDB takes the offset first.
        let (first, second) = match self.dialect {
            Dialect::Postgres => (limit, offset),
            Dialect::Maria(_) => (offset, limit),
        };
        let (min, max) = (time(query.time_min), time(query.time_max));
        let parameters = [query.id1, query.link_type, min, max, first, second].map(Value::Unsigned);
        let statement = self.statement(Query::ListLinks)?;
        let mut list = List::new(min..=max, link_sql::equal_times(self.dialect));
        let mut visit = |row: &[Value<'_>]| {
            black_box(row);
            list.add(number(row, 0), number(row, 1));
        };
        let columns = [U64, U64, U32, Bytes];
        self.session
            .run(statement, &parameters, &columns, &mut visit)?;
        list.end(query)
    }

    fn add_node(&mut self, node: &Node<'_>) -> Result<u64> {
        let statement = self.statement(Query::AddNode)?;
        self.session.start(statement);
        push_node(&mut self.session, node)?;
        let mut id = None;
        self.session
            .finish(&[U64], &mut |row| id = row[0].unsigned())?;
        id.ok_or_else(|| EngineError::Wrong("a new node got no id".to_string()))
    }

    fn update_node(&mut self, node: &Node<'_>) -> Result<bool> {
        let new = [
            unsigned(node.version),
            unsigned(node.time),
            Value::Bytes(node.data),
            unsigned(node.id),
            unsigned(node.node_type),
        ];
        self.change(Query::UpdateNode, &new).map(|rows| rows > 0)
    }

    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        let key = [unsigned(id), unsigned(node_type)];
        self.change(Query::DeleteNode, &key).map(|rows| rows > 0)
    }

    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        let found = self.first(Query::ReadNode, &[unsigned(id)], &NODE, |row| {
            number(black_box(row), 0)
        })?;
        Ok(found == Some(u64::from(node_type)))
    }

    fn read_link(&mut self, key: LinkKey) -> Result<Option<(u8, u64, u32, Vec<u8>)>> {
        let query = Query::ReadLink { locked: false };
        self.first(query, &key_values(key), &LINK, |row| {
            let (visibility, version) = (number(row, 0) as u8, number(row, 2) as u32);
            (visibility, number(row, 1), version, bytes(row, 3).to_vec())
        })
    }

    fn read_node(&mut self, id: u64) -> Result<Option<(u32, u64, u32, Vec<u8>)>> {
        self.first(Query::ReadNode, &[unsigned(id)], &NODE, |row| {
            let (node_type, time) = (number(row, 0) as u32, number(row, 2) as u32);
            (node_type, number(row, 1), time, bytes(row, 3).to_vec())
        })
    }

    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>> {
        let key = [id, link_type].map(Value::Unsigned);
        self.first(Query::ReadCount, &key, &COUNT, |row| Count {
            id,
            link_type,
            count: number(row, 0),
            time: number(row, 1),
            version: number(row, 2),
        })
    }

    fn check(&mut self) -> Result<TableTotals> {
        for table in ["nodetable", "linktable", "counttable"] {
            check_table(&mut self.session, self.dialect, table)?;
        }
        if self.dialect == Dialect::Postgres {
            // Because of the LIMIT, the planner would compare every count with every list.
            self.session.query("SET enable_nestloop = off")?;
        }
        let wrong = self.session.query(link_sql::WRONG_COUNTS)?;
        if self.dialect == Dialect::Postgres {
            self.session.query("RESET enable_nestloop")?;
        }
        if let Some(wrong) = wrong.first() {
            let [id, link_type, count, links] = &wrong[..] else {
                return Err(EngineError::Wrong("a check without an answer".to_string()));
            };
            return Err(EngineError::Wrong(format!(
                "count of ({id}, {link_type}) is {count}, but {links} links are visible"
            )));
        }
        let totals = self.session.query(link_sql::TOTALS)?;
        let total = |place: usize| -> Option<u64> { totals.first()?.get(place)?.parse().ok() };
        let all = || {
            Some(TableTotals {
                nodes: total(0)?,
                links: total(1)?,
                visible_links: total(2)?,
                counts: total(3)?,
            })
        };
        all().ok_or_else(|| EngineError::Wrong("the server returned no totals".to_string()))
    }
}

/// Error for a link that another client inserted or removed between two statements.
fn vanished() -> EngineError {
    EngineError::Retry("the link changed between two statements".to_string())
}
