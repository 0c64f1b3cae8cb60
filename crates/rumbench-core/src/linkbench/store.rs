//! The rows of LinkBench and what an engine does with them: the ten operations, the load, the final check.
//!
//! Engines with SQL implement [`LinkStore`] themselves; ordered key-value engines get it from
//! `linkbench::kv_store`. The transactional meaning is the same for all: a link, its index entry and its count
//! change atomically, and read-modify-write is protected from lost updates.

use crate::engine::Result;

/// Primary key of a link: ordered (link_type, id1, id2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    /// Source node.
    pub id1: u64,
    /// One of the link types, 123456789 and up.
    pub link_type: u64,
    /// Destination node; need not exist.
    pub id2: u64,
}

/// A link row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// Its primary key.
    pub key: LinkKey,
    /// 1 visible, 0 hidden.
    pub visibility: u8,
    /// Milliseconds since the epoch; lists are ordered by it, newest first.
    pub time: u64,
    /// Always 0.
    pub version: u32,
    /// Payload, at most 255 bytes.
    pub data: &'a [u8],
}

/// A node row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Primary key.
    pub id: u64,
    /// Always 2048.
    pub node_type: u32,
    /// 1 when created, 2 after an update.
    pub version: u64,
    /// Seconds since the epoch of the last write.
    pub time: u32,
    /// Payload, at most 1 MiB.
    pub data: &'a [u8],
}

/// A count row: the number of visible links of (id, link_type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Source node.
    pub id: u64,
    /// Link type.
    pub link_type: u64,
    /// Visible links.
    pub count: u64,
    /// Milliseconds since the epoch of the last change.
    pub time: u64,
    /// Number of changes since the row was written.
    pub version: u64,
}

/// The list query: visible links of (id1, link_type) in a time window, newest first, equal times by id2 as the store says
/// ([`LinkStore::equal_times`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListQuery {
    /// Source node.
    pub id1: u64,
    /// Link type.
    pub link_type: u64,
    /// Oldest time, inclusive.
    pub time_min: u64,
    /// Newest time, inclusive.
    pub time_max: u64,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows to return.
    pub limit: usize,
}

/// The order of links in a list that share a time. The published statement leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EqualTimes {
    /// By id2, ascending.
    Ascending,
    /// By id2, descending: an index without columns of their own direction, read backwards.
    Descending,
}

/// What a list query found. Every row was fetched and decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListResult {
    /// Rows returned.
    pub rows: u64,
    /// Time and id2 of the last (oldest) row returned.
    pub last: Option<(u64, u64)>,
}

/// What a link write found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// A row that did not exist was inserted.
    Inserted,
    /// A visible row was rewritten (or, by a delete, hidden).
    Changed,
    /// A hidden row became visible.
    Revived,
    /// Nothing to do: the row was missing or already hidden, or nothing would have changed.
    Nothing,
}

/// A whole link row read for checks: visibility, time, version, data.
pub type LinkRow = (u8, u64, u32, Vec<u8>);

/// A whole node row read for checks: type, version, time, data.
pub type NodeRow = (u32, u64, u32, Vec<u8>);

/// The three tables of one open engine.
pub trait LinkStore: Send + Sync {
    /// A connection for one client thread.
    fn connect(&self) -> Result<Box<dyn LinkConnection>>;

    /// Whether rows written can be read. Only an engine that measures the client's own cost answers no; its answers
    /// are then not judged.
    fn keeps_rows(&self) -> bool {
        true
    }

    /// Whether [`LinkStore::build_index`] creates `id1_type` after the load; otherwise the load maintains it.
    fn separate_index(&self) -> bool {
        false
    }

    /// How lists order links of one time.
    fn equal_times(&self) -> EqualTimes {
        EqualTimes::Ascending
    }

    /// Creates the index over loaded links, where the engine separates it.
    fn build_index(&self) -> Result<()> {
        Ok(())
    }
}

/// One client's connection. Each call is one transaction, run again on conflict by the caller of the trait
/// ([`crate::engine::EngineError::Retry`] says so).
pub trait LinkConnection: Send {
    /// Loads nodes with given ids, one commit.
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()>;

    /// Loads new links (and their index entries unless the index comes later), one commit.
    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()>;

    /// Loads new counts, one commit.
    fn load_counts(&mut self, counts: &[Count]) -> Result<()>;

    /// ADD_LINK, revised: inserts; where the row exists continues as [`LinkConnection::update_link`].
    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome>;

    /// UPDATE_LINK, revised: rewrites the row; where it is missing continues as [`LinkConnection::add_link`].
    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome>;

    /// DELETE_LINK: hides a visible row (only visibility changes); the count row gets `time`. With `expunge` the
    /// row and its index entry are removed instead.
    fn delete_link(&mut self, key: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome>;

    /// COUNT_LINK: the count, 0 where there is no row.
    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64>;

    /// MULTIGET_LINK: rows found among `id2s` (distinct), hidden ones included; each is fetched and decoded.
    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64>;

    /// GET_LINKS_LIST, by the index alone.
    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult>;

    /// ADD_NODE: inserts with an id from the database, which it returns. `node.id` is ignored.
    fn add_node(&mut self, node: &Node<'_>) -> Result<u64>;

    /// UPDATE_NODE where id and type match: whether a row was changed.
    fn update_node(&mut self, node: &Node<'_>) -> Result<bool>;

    /// DELETE_NODE where id and type match: whether a row was removed.
    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool>;

    /// GET_NODE: whether a row with id and type was found; it is fetched and decoded.
    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool>;

    /// Reads one whole link row, for checks: (visibility, time, version, data).
    fn read_link(&mut self, key: LinkKey) -> Result<Option<LinkRow>>;

    /// Reads one whole node row, for checks: (type, version, time, data).
    fn read_node(&mut self, id: u64) -> Result<Option<NodeRow>>;

    /// Reads one whole count row, for checks.
    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>>;

    /// Walks all tables at rest and checks them against each other: every count equals the visible links, every
    /// link has its index entry with the same contents and the other way round.
    fn check(&mut self) -> Result<TableTotals>;
}

/// Row totals found by [`LinkConnection::check`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableTotals {
    /// Node rows.
    pub nodes: u64,
    /// Link rows, hidden ones included.
    pub links: u64,
    /// Visible link rows.
    pub visible_links: u64,
    /// Count rows.
    pub counts: u64,
}
