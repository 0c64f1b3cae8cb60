//! The rows of LinkBench and the calls to an engine: the ten operations, the load, the final check.
//!
//! SQL engines implement [`LinkStore`] themselves; ordered key-value engines get it from
//! `linkbench::kv_store`. The transactional meaning is the same for all: a link, its index entry
//! and its count change atomically, and read-modify-write is protected from lost updates.

use crate::error::Result;

/// Primary key of a link; keys are ordered by (link_type, id1, id2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    /// Source node.
    pub id1: u64,
    /// Link type: 123456789 and up.
    pub link_type: u64,
    /// Destination node, which need not exist.
    pub id2: u64,
}

/// A link row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// Primary key of the link.
    pub key: LinkKey,
    /// 1 visible, 0 hidden.
    pub visibility: u8,
    /// Milliseconds since the epoch. Lists are ordered by time, newest first.
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
    /// Time of the last write in seconds since the epoch.
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
    /// Number of visible links.
    pub count: u64,
    /// Time of the last change in milliseconds since the epoch.
    pub time: u64,
    /// Number of changes since the row was written.
    pub version: u64,
}

/// The list query: visible links of (id1, link_type) in a time window, newest first.
/// [`LinkStore::equal_times`] gives the order of links with equal times.
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

/// Order of the links of a list that share a time. The published statement does not define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EqualTimes {
    /// By id2, ascending.
    Ascending,
    /// By id2, descending: an index without a direction per column, read backward.
    Descending,
}

/// Result of a list query. The store fetched and decoded every row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListResult {
    /// Rows returned.
    pub rows: u64,
    /// Time and id2 of the last (oldest) row returned; `None` if there are no rows.
    pub last: Option<(u64, u64)>,
}

/// Effect of a link write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// A row that did not exist was inserted.
    Inserted,
    /// A visible row was rewritten (or, by a delete, hidden).
    Changed,
    /// A hidden row became visible.
    Revived,
    /// Nothing changed: the row was missing, already hidden, or already had this content.
    Nothing,
}

/// A whole link row, read for checks: visibility, time, version, data.
pub type LinkRow = (u8, u64, u32, Vec<u8>);

/// A whole node row, read for checks: type, version, time, data.
pub type NodeRow = (u32, u64, u32, Vec<u8>);

/// The LinkBench tables of one open engine: nodes, links and counts.
pub trait LinkStore: Send + Sync {
    /// Opens a connection for one client thread.
    fn connect(&self) -> Result<Box<dyn LinkConnection>>;

    /// Returns true if written rows can be read. False only for an engine that measures the
    /// client's own cost; the answers of such an engine are not checked.
    fn keeps_rows(&self) -> bool {
        true
    }

    /// Returns true if [`LinkStore::build_index`] creates `id1_type` after the load; otherwise the
    /// load maintains it.
    fn separate_index(&self) -> bool {
        false
    }

    /// Returns the order of links with equal times in a list.
    fn equal_times(&self) -> EqualTimes {
        EqualTimes::Ascending
    }

    /// Creates the index over the loaded links if [`LinkStore::separate_index`] returns true.
    fn build_index(&self) -> Result<()> {
        Ok(())
    }
}

/// One client's connection. Each call is one transaction. On a conflict
/// ([`crate::error::EngineError::Retry`]) the caller runs it again.
pub trait LinkConnection: Send {
    /// Loads nodes with given ids in one commit.
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()>;

    /// Loads new links in one commit, with their index entries unless the index is built later.
    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()>;

    /// Loads new counts in one commit.
    fn load_counts(&mut self, counts: &[Count]) -> Result<()>;

    /// ADD_LINK, revised: inserts; if the row exists, continues as [`LinkConnection::update_link`].
    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome>;

    /// UPDATE_LINK, revised: rewrites the row; if it is missing, continues as
    /// [`LinkConnection::add_link`].
    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome>;

    /// DELETE_LINK: hides a visible row (only visibility changes) and sets the time of the count
    /// row to `time`. With `expunge` the row and its index entry are removed instead.
    fn delete_link(&mut self, key: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome>;

    /// COUNT_LINK: returns the count, 0 if there is no row.
    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64>;

    /// MULTIGET_LINK: returns the number of rows found among the distinct `id2s`, hidden ones
    /// included. Each row is fetched and decoded.
    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64>;

    /// GET_LINKS_LIST: runs the query on the index alone.
    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult>;

    /// ADD_NODE: inserts with an id chosen by the database and returns the id. `node.id` is
    /// ignored.
    fn add_node(&mut self, node: &Node<'_>) -> Result<u64>;

    /// UPDATE_NODE: rewrites the row if id and type match; returns true if a row changed.
    fn update_node(&mut self, node: &Node<'_>) -> Result<bool>;

    /// DELETE_NODE: removes the row if id and type match; returns true if a row was removed.
    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool>;

    /// GET_NODE: fetches and decodes the row; returns true if id and type match.
    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool>;

    /// Reads one whole link row, for checks: (visibility, time, version, data).
    fn read_link(&mut self, key: LinkKey) -> Result<Option<LinkRow>>;

    /// Reads one whole node row, for checks: (type, version, time, data).
    fn read_node(&mut self, id: u64) -> Result<Option<NodeRow>>;

    /// Reads one whole count row, for checks.
    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>>;

    /// Walks all tables while no client writes and checks them against each other: every count
    /// equals the visible links, and links and index entries correspond one to one with equal
    /// contents.
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
