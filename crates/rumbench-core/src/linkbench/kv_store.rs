//! LinkBench's store on any ordered key-value engine: row encodings, transactions, bulk load.
//!
//! The code is generic over the engine. Single reads run outside of transactions, a multi-get is
//! one point read per id, and a link, its index entry and its count change in one transaction.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kv_check;
use super::kv_rows::{self, COUNT, INDEX, LINK, LINK_TAIL, NODE};
use super::store::{
    Count, Link, LinkConnection, LinkKey, LinkRow, LinkStore, ListQuery, ListResult, Node, NodeRow,
    TableTotals, WriteOutcome,
};
use crate::error::{EngineError, Result};
use crate::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapId, Scan};

pub use super::kv_rows::schema;

/// LinkBench's tables on an engine opened with [`schema`].
pub struct KvLinkStore<E: KvEngine> {
    engine: Arc<E>,
    /// Id of the next node that a request adds.
    next_node: Arc<AtomicU64>,
}

impl<E: KvEngine> KvLinkStore<E> {
    /// Creates the store on an open engine; reads the highest node id.
    pub fn new(engine: Arc<E>) -> Result<KvLinkStore<E>> {
        let mut highest = Ok(0);
        let all = Scan {
            start: &[0],
            end: &[0xff; 9],
            direction: Direction::Reverse,
            limit: 1,
        };
        engine.connect()?.scan(NODE, all, |key, _| {
            highest = kv_rows::read_node_key(key);
            false
        })?;
        let next = highest?.saturating_add(1);
        Ok(KvLinkStore {
            engine,
            next_node: Arc::new(AtomicU64::new(next)),
        })
    }
}

impl<E: KvEngine> LinkStore for KvLinkStore<E> {
    fn connect(&self) -> Result<Box<dyn LinkConnection>> {
        Ok(Box::new(KvLinkConnection {
            connection: self.engine.connect()?,
            next_node: Arc::clone(&self.next_node),
            value: Vec::new(),
        }))
    }
}

/// One client's connection. `value` is a row buffer that calls reuse.
struct KvLinkConnection<C> {
    connection: C,
    next_node: Arc<AtomicU64>,
    value: Vec<u8>,
}

impl<C: KvConnection> KvLinkConnection<C> {
    /// Performs ADD_LINK and UPDATE_LINK: with the row locked, both have the same effect.
    fn upsert(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        let key = kv_rows::link_key(link.key);
        let value = &mut self.value;
        value.clear();
        kv_rows::append_link(link, value);
        let mut txn = self.connection.begin()?;
        let prior = txn.get_for_update(LINK, &key, |row| {
            row.map(|row| Prior::read(link.key, row, value)).transpose()
        })??;
        let new_entry = kv_rows::index_key(link.key, link.visibility, link.time);
        let outcome = match prior {
            None => {
                txn.insert(LINK, &key, value)?;
                txn.insert(INDEX, &new_entry, &value[LINK_TAIL..])?;
                WriteOutcome::Inserted
            }
            Some(prior) if prior.same => return Ok(WriteOutcome::Nothing),
            Some(prior) => {
                txn.put(LINK, &key, value)?;
                let old_entry = kv_rows::index_key(link.key, prior.visibility, prior.time);
                if old_entry == new_entry {
                    txn.put(INDEX, &new_entry, &value[LINK_TAIL..])?;
                } else {
                    txn.delete(INDEX, &old_entry)?;
                    txn.insert(INDEX, &new_entry, &value[LINK_TAIL..])?;
                }
                match prior.visibility {
                    0 => WriteOutcome::Revived,
                    _ => WriteOutcome::Changed,
                }
            }
        };
        if outcome != WriteOutcome::Changed {
            change_count(&mut txn, link.key, link.time, true)?;
        }
        txn.commit()?;
        Ok(outcome)
    }

    /// Decodes the node row of `id` in place and passes it to `read`.
    fn read_typed_node<R>(
        &mut self,
        id: u64,
        read: impl FnOnce(Option<Node<'_>>) -> R,
    ) -> Result<R> {
        self.connection.get(NODE, &kv_rows::node_key(id), |row| {
            Ok(read(
                row.map(|row| kv_rows::read_node(id, row)).transpose()?,
            ))
        })?
    }

    /// Rewrites a node, or removes it if `node` is `None`, if it exists and has the type.
    fn change_node(&mut self, id: u64, node_type: u32, node: Option<&Node<'_>>) -> Result<bool> {
        let key = kv_rows::node_key(id);
        let mut txn = self.connection.begin()?;
        let found = txn.get_for_update(NODE, &key, |row| {
            row.map(|row| kv_rows::read_node(id, row).map(|node| node.node_type))
                .transpose()
        })??;
        if found != Some(node_type) {
            return Ok(false);
        }
        match node {
            Some(node) => {
                self.value.clear();
                kv_rows::append_node(node, &mut self.value);
                txn.put(NODE, &key, &self.value)?;
            }
            None => txn.delete(NODE, &key)?,
        }
        txn.commit()?;
        Ok(true)
    }
}

/// The part of the previous link row that a write needs.
struct Prior {
    visibility: u8,
    time: u64,
    same: bool,
}

impl Prior {
    fn read(key: LinkKey, row: &[u8], new: &[u8]) -> Result<Prior> {
        let link = kv_rows::read_link(key, row)?;
        Ok(Prior {
            visibility: link.visibility,
            time: link.time,
            same: row == new,
        })
    }
}

/// Adds or removes one visible link in the count of a list.
fn change_count(txn: &mut impl KvTxn, link: LinkKey, time: u64, more: bool) -> Result<()> {
    let (id, link_type) = (link.id1, link.link_type);
    let key = kv_rows::count_key(id, link_type);
    let found = txn.get_for_update(COUNT, &key, |row| {
        row.map(|row| kv_rows::read_count(id, link_type, row))
            .transpose()
    })??;
    let Some(old) = found else {
        if !more {
            return Err(EngineError::Wrong(format!(
                "no count row for the visible link {link:?}"
            )));
        }
        let first = Count {
            id,
            link_type,
            count: 1,
            time,
            version: 0,
        };
        return txn.insert(COUNT, &key, &kv_rows::count_value(&first));
    };
    let count = if more {
        old.count.checked_add(1)
    } else {
        old.count.checked_sub(1)
    };
    let count = count.ok_or_else(|| {
        EngineError::Wrong(format!("count {old:?} with the visible link {link:?}"))
    })?;
    let new = Count {
        count,
        time,
        version: old.version + 1,
        ..old
    };
    txn.put(COUNT, &key, &kv_rows::count_value(&new))
}

impl<C: KvConnection> LinkConnection for KvLinkConnection<C> {
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        let mut batch = BulkBatch::default();
        for node in nodes {
            batch.push(NODE, &kv_rows::node_key(node.id), |out| {
                kv_rows::append_node(node, out)
            });
            // Relaxed: only the number matters, and the row is published by the engine.
            self.next_node.fetch_max(node.id + 1, Ordering::Relaxed);
        }
        self.connection.bulk_insert(&batch.rows())
    }

    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()> {
        let mut batch = BulkBatch::default();
        for link in links {
            batch.push(LINK, &kv_rows::link_key(link.key), |out| {
                kv_rows::append_link(link, out)
            });
        }
        for link in links {
            let key = kv_rows::index_key(link.key, link.visibility, link.time);
            batch.push(INDEX, &key, |out| {
                out.extend_from_slice(&link.version.to_be_bytes());
                out.extend_from_slice(link.data);
            });
        }
        self.connection.bulk_insert(&batch.rows())
    }

    fn load_counts(&mut self, counts: &[Count]) -> Result<()> {
        let mut batch = BulkBatch::default();
        for count in counts {
            let key = kv_rows::count_key(count.id, count.link_type);
            batch.push(COUNT, &key, |out| {
                out.extend_from_slice(&kv_rows::count_value(count))
            });
        }
        self.connection.bulk_insert(&batch.rows())
    }

    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.upsert(link)
    }

    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.upsert(link)
    }

    fn delete_link(&mut self, link: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome> {
        let key = kv_rows::link_key(link);
        let value = &mut self.value;
        let mut txn = self.connection.begin()?;
        let prior = txn.get_for_update(LINK, &key, |row| {
            row.map(|row| {
                value.clear();
                value.extend_from_slice(row);
                Prior::read(link, row, row)
            })
            .transpose()
        })??;
        let Some(prior) = prior.filter(|prior| expunge || prior.visibility != 0) else {
            return Ok(WriteOutcome::Nothing);
        };
        txn.delete(
            INDEX,
            &kv_rows::index_key(link, prior.visibility, prior.time),
        )?;
        if expunge {
            txn.delete(LINK, &key)?;
        } else {
            value[0] = 0;
            txn.put(LINK, &key, value)?;
            txn.insert(
                INDEX,
                &kv_rows::index_key(link, 0, prior.time),
                &value[LINK_TAIL..],
            )?;
        }
        if prior.visibility != 0 {
            change_count(&mut txn, link, time, false)?;
        }
        txn.commit()?;
        Ok(WriteOutcome::Changed)
    }

    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64> {
        let count = self.read_count(id1, link_type)?;
        Ok(count.map_or(0, |count| count.count))
    }

    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64> {
        let mut found = 0;
        for &id2 in id2s {
            let key = LinkKey {
                id1,
                link_type,
                id2,
            };
            found += self.connection.get(LINK, &kv_rows::link_key(key), |row| {
                let link = row.map(|row| kv_rows::read_link(key, row)).transpose()?;
                Ok::<u64, EngineError>(u64::from(black_box(link).is_some()))
            })??;
        }
        Ok(found)
    }

    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult> {
        let edge = |time, id2| {
            kv_rows::index_key(
                LinkKey {
                    id1: query.id1,
                    link_type: query.link_type,
                    id2,
                },
                1,
                time,
            )
        };
        // The last key of the window plus one byte is the first key after the window.
        let mut end = [0; 34];
        end[..33].copy_from_slice(&edge(query.time_min, u64::MAX));
        let scan = Scan {
            start: &edge(query.time_max, 0),
            end: &end,
            direction: Direction::Forward,
            limit: query.limit.saturating_add(query.offset),
        };
        let mut skip = query.offset;
        let mut result = ListResult::default();
        let mut wrong = None;
        self.connection.scan(INDEX, scan, |key, value| {
            if skip > 0 {
                skip -= 1;
                return true;
            }
            match kv_rows::read_index(key, value) {
                Ok(link) => {
                    let link = black_box(link);
                    result.rows += 1;
                    result.last = Some((link.time, link.key.id2));
                    true
                }
                Err(error) => {
                    wrong = Some(error);
                    false
                }
            }
        })?;
        wrong.map_or(Ok(result), Err)
    }

    fn add_node(&mut self, node: &Node<'_>) -> Result<u64> {
        // Relaxed: only the number matters.
        let id = self.next_node.fetch_add(1, Ordering::Relaxed);
        self.value.clear();
        kv_rows::append_node(node, &mut self.value);
        let mut txn = self.connection.begin()?;
        txn.insert(NODE, &kv_rows::node_key(id), &self.value)?;
        txn.commit()?;
        Ok(id)
    }

    fn update_node(&mut self, node: &Node<'_>) -> Result<bool> {
        self.change_node(node.id, node.node_type, Some(node))
    }

    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        self.change_node(id, node_type, None)
    }

    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        self.read_typed_node(id, |node| {
            black_box(node).is_some_and(|node| node.node_type == node_type)
        })
    }

    fn read_link(&mut self, key: LinkKey) -> Result<Option<LinkRow>> {
        self.connection.get(LINK, &kv_rows::link_key(key), |row| {
            let link = row.map(|row| kv_rows::read_link(key, row)).transpose()?;
            Ok(link.map(|link| (link.visibility, link.time, link.version, link.data.to_vec())))
        })?
    }

    fn read_node(&mut self, id: u64) -> Result<Option<NodeRow>> {
        self.read_typed_node(id, |node| {
            node.map(|node| (node.node_type, node.version, node.time, node.data.to_vec()))
        })
    }

    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>> {
        self.connection
            .get(COUNT, &kv_rows::count_key(id, link_type), |row| {
                row.map(|row| kv_rows::read_count(id, link_type, row))
                    .transpose()
            })?
    }

    fn check(&mut self) -> Result<TableTotals> {
        kv_check::check(&mut self.connection)
    }
}

/// Rows of one load commit, encoded into one buffer.
#[derive(Default)]
struct BulkBatch {
    bytes: Vec<u8>,
    /// Map, end of the key and end of the value of each row.
    ends: Vec<(MapId, usize, usize)>,
}

impl BulkBatch {
    fn push(&mut self, map: MapId, key: &[u8], append_value: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        append_value(&mut self.bytes);
        self.ends.push((map, key_end, self.bytes.len()));
    }

    fn rows(&self) -> Vec<BulkRow<'_>> {
        let mut start = 0;
        let rows = self.ends.iter().map(|&(map, key_end, end)| {
            let row = BulkRow {
                map,
                key: &self.bytes[start..key_end],
                value: &self.bytes[key_end..end],
            };
            start = end;
            row
        });
        rows.collect()
    }
}
