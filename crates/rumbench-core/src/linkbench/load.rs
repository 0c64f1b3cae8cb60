//! The load: one queue of pieces from which any number of loaders takes work.
//!
//! The lists longer than `loader_split_links` come first, in pieces, so that no giant list remains
//! for a single loader at the end. After them pieces of consecutive ids alternate: nodes from the
//! lowest id up, and links from the highest id down. Rows are a function of their key, so the
//! queue's order and the number of loaders never change the data.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::Config;
use super::graph::{FIRST_LINK_TYPE, Graph, NODE_TYPE};
use super::store::{Count, Link, LinkConnection, LinkKey, Node};
use super::workload::Hooks;
use crate::error::EngineError;
use crate::retry::retried;
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of the load phase; each is one commit.
pub const LOAD_OPERATIONS: &[&str] = &["LOAD_NODE_BULK", "LOAD_LINKS_BULK", "LOAD_COUNTS_BULK"];
const NODES: OpIndex = 0;
const LINKS: OpIndex = 1;
const COUNTS: OpIndex = 2;

/// Bytes of a node row apart from its payload, for the limit in KiB.
const NODE_OVERHEAD: u64 = 24;

/// One piece of the load.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// The nodes of these ids.
    Nodes(Range<u64>),
    /// The links of these sources except split lists, and the counts of all their lists.
    Links(Range<u64>),
    /// These places of the list with this source and type number.
    List(u64, u64, Range<u64>),
}

/// All pieces, and the number of pieces taken.
#[derive(Debug)]
pub(super) struct LoadQueue {
    graph: Arc<Graph>,
    chunk_ids: u64,
    split_rows: u64,
    /// Source, type number and first piece of each split list.
    split_lists: Vec<(u64, u64, u64)>,
    split_pieces: u64,
    taken: AtomicU64,
}

impl LoadQueue {
    pub(super) fn new(config: &Config, graph: Arc<Graph>) -> LoadQueue {
        let mut split_lists = Vec::new();
        let mut split_pieces = 0;
        for id1 in graph.ids_with_lists_above(config.split_rows) {
            for index in 0..graph.link_types() {
                let links = graph.links(id1, index);
                if links > config.split_rows {
                    split_lists.push((id1, index, split_pieces));
                    split_pieces += links.div_ceil(config.split_rows);
                }
            }
        }
        LoadQueue {
            chunk_ids: config.chunk_ids,
            split_rows: config.split_rows,
            graph,
            split_lists,
            split_pieces,
            taken: AtomicU64::new(0),
        }
    }

    fn take(&self) -> Option<Piece> {
        // Relaxed: the piece is computed from the number alone.
        self.piece(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    fn piece(&self, number: u64) -> Option<Piece> {
        if number < self.split_pieces {
            let after = self
                .split_lists
                .partition_point(|(_, _, first)| *first <= number);
            let (id1, index, first) = self.split_lists[after - 1];
            let start = (number - first) * self.split_rows;
            let end = (start + self.split_rows).min(self.graph.links(id1, index));
            return Some(Piece::List(id1, index, start..end));
        }
        let chunks = self.graph.nodes().div_ceil(self.chunk_ids);
        let (chunk, is_links) = (
            (number - self.split_pieces) / 2,
            (number - self.split_pieces) % 2 == 1,
        );
        if chunk >= chunks {
            return None;
        }
        let ids = |chunk: u64| {
            let start = self.graph.start_id() + chunk * self.chunk_ids;
            start..(start + self.chunk_ids).min(self.graph.end_id())
        };
        Some(if is_links {
            Piece::Links(ids(chunks - 1 - chunk))
        } else {
            Piece::Nodes(ids(chunk))
        })
    }
}

/// Rows with their payloads in one buffer.
#[derive(Debug)]
struct Batch<T> {
    rows: Vec<(T, usize)>,
    data: Vec<u8>,
}

impl<T> Batch<T> {
    fn new() -> Batch<T> {
        Batch {
            rows: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Ends a row after its payload was appended to `data`.
    fn push(&mut self, row: T) {
        self.rows.push((row, self.data.len()));
    }

    /// Returns the rows with their payloads.
    fn iter(&self) -> impl Iterator<Item = (&T, &[u8])> {
        let starts = std::iter::once(0).chain(self.rows.iter().map(|(_, end)| *end));
        self.rows
            .iter()
            .zip(starts)
            .map(|((row, end), start)| (row, &self.data[start..*end]))
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.data.clear();
    }
}

/// One client of the load.
pub(super) struct Loader {
    queue: Arc<LoadQueue>,
    graph: Arc<Graph>,
    connection: Box<dyn LinkConnection>,
    hooks: Hooks,
    bulk_rows: usize,
    bulk_bytes: u64,
    /// The rest of the current piece: a stack, because the lists of a source interrupt its piece.
    work: Vec<Piece>,
    nodes: Batch<(u64, u32)>,
    links: Batch<(LinkKey, u64)>,
    counts: Vec<Count>,
    operation: OpIndex,
}

impl Loader {
    pub(super) fn new(
        queue: Arc<LoadQueue>,
        connection: Box<dyn LinkConnection>,
        config: &Config,
        hooks: Hooks,
    ) -> Loader {
        Loader {
            graph: Arc::clone(&queue.graph),
            queue,
            connection,
            hooks,
            bulk_rows: config.bulk_rows,
            bulk_bytes: match config.bulk_kb {
                0 => u64::MAX,
                kb => kb * 1024,
            },
            work: Vec::new(),
            nodes: Batch::new(),
            links: Batch::new(),
            counts: Vec::new(),
            operation: NODES,
        }
    }

    /// Returns the batch to write now: a full one, or any batch with rows if the work is at its
    /// end.
    fn ready(&self, at_end: bool) -> Option<OpIndex> {
        let node_bytes =
            self.nodes.data.len() as u64 + NODE_OVERHEAD * self.nodes.rows.len() as u64;
        let full = |rows: usize| rows >= self.bulk_rows || (at_end && rows > 0);
        if full(self.nodes.rows.len()) || node_bytes >= self.bulk_bytes {
            return Some(NODES);
        }
        if full(self.links.rows.len()) {
            return Some(LINKS);
        }
        full(self.counts.len()).then_some(COUNTS)
    }

    /// Generates rows of the piece from the top of the stack until it ends or a batch may be full.
    fn step(&mut self, piece: Piece) {
        match piece {
            Piece::Nodes(mut ids) => {
                let Some(id) = ids.next() else { return };
                let time = self.graph.node_row(id, &mut self.nodes.data);
                self.nodes.push((id, time));
                self.work.push(Piece::Nodes(ids));
            }
            Piece::Links(mut ids) => {
                let Some(id1) = ids.next() else { return };
                self.work.push(Piece::Links(ids));
                self.begin_source(id1);
            }
            Piece::List(id1, index, mut places) => {
                self.push_links(id1, index, &mut places);
                if !places.is_empty() {
                    self.work.push(Piece::List(id1, index, places));
                }
            }
        }
    }

    /// Generates the counts of a source and pushes its lists as the next pieces, except split ones.
    fn begin_source(&mut self, id1: u64) {
        for index in (0..self.graph.link_types()).rev() {
            self.counts.extend(self.graph.count_row(id1, index));
            let links = self.graph.links(id1, index);
            if (1..=self.queue.split_rows).contains(&links) {
                self.work.push(Piece::List(id1, index, 0..links));
            }
        }
    }

    fn push_links(&mut self, id1: u64, index: u64, places: &mut Range<u64>) {
        let link_type = FIRST_LINK_TYPE + index;
        while self.links.rows.len() < self.bulk_rows {
            let Some(place) = places.next() else { return };
            let id2 = self.graph.destination(id1, link_type, place);
            let key = LinkKey {
                id1,
                link_type,
                id2,
            };
            let time = self.graph.link_row(key, &mut self.links.data);
            self.links.push((key, time));
        }
    }

    fn write_nodes(&mut self) -> Result<Done, EngineError> {
        let rows: Vec<Node<'_>> = self
            .nodes
            .iter()
            .map(|(&(id, time), data)| loaded_node(id, time, data))
            .collect();
        retried(self.hooks.backoff, rows.len() as u64, || {
            self.connection.load_nodes(&rows)
        })
    }

    fn write_links(&mut self) -> Result<Done, EngineError> {
        let rows: Vec<Link<'_>> = self
            .links
            .iter()
            .map(|(&(key, time), data)| loaded_link(key, time, data))
            .collect();
        retried(self.hooks.backoff, rows.len() as u64, || {
            self.connection.load_links(&rows)
        })
    }
}

impl PhaseClient for Loader {
    fn prepare(&mut self) -> Option<OpIndex> {
        loop {
            if let Some(operation) = self.ready(false) {
                self.operation = operation;
                return Some(operation);
            }
            match self.work.pop().or_else(|| self.queue.take()) {
                Some(piece) => self.step(piece),
                None => break,
            }
        }
        self.operation = self.ready(true)?;
        Some(self.operation)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        match self.operation {
            NODES => {
                let done = self.write_nodes()?;
                self.nodes.clear();
                Ok(done)
            }
            LINKS => {
                let done = self.write_links()?;
                self.links.clear();
                Ok(done)
            }
            _ => {
                let rows = self.counts.len().min(self.bulk_rows);
                let batch = &self.counts[..rows];
                let done = retried(self.hooks.backoff, rows as u64, || {
                    self.connection.load_counts(batch)
                })?;
                self.counts.drain(..rows);
                Ok(done)
            }
        }
    }
}

/// Builds a node as the load writes it.
pub(super) fn loaded_node(id: u64, time: u32, data: &[u8]) -> Node<'_> {
    Node {
        id,
        node_type: NODE_TYPE,
        version: 1,
        time,
        data,
    }
}

/// Builds a link as the load writes it.
pub(super) fn loaded_link(key: LinkKey, time: u64, data: &[u8]) -> Link<'_> {
    Link {
        key,
        visibility: 1,
        time,
        version: 0,
        data,
    }
}
