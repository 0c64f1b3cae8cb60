//! Checks the maps against each other in one merging walk over all of them.
//!
//! The rows of a list must be the same in the link map and in the index, and its count must equal
//! the visible rows. Rows are compared by number and by a sum of 64-bit digests, so a list of
//! millions of links takes no memory. A mismatch names its list.

use super::kv_rows::{self, COUNT, INDEX, LINK, NODE};
use super::store::{Link, LinkKey, TableTotals};
use crate::error::{EngineError, Result};
use crate::kv::{Direction, KvConnection, MapId, Scan};
use crate::random::mix;

/// Rows per fetch.
const STRIDE: usize = 4096;
/// Upper bound of all keys.
const END: [u8; 40] = [0xff; 40];

/// Source and type of a list. The index and the counts are ordered by it.
type ListKey = (u64, u64);

/// Walks all maps of a database that no client writes.
pub(super) fn check<C: KvConnection>(connection: &mut C) -> Result<TableTotals> {
    let mut links = Vec::new();
    let mut from = Some(0);
    // Each round finds a higher link type.
    while let Some(link_type) = next_type(connection, from)? {
        from = link_type.checked_add(1);
        let end = from.map_or(END.to_vec(), |end| end.to_be_bytes().to_vec());
        links.push(Cursor::new(LINK, &link_type.to_be_bytes(), &end));
    }
    let mut index = Cursor::new(INDEX, &[0], &END);
    let mut counts = Cursor::new(COUNT, &[0], &END);
    let mut totals = TableTotals {
        nodes: count_nodes(connection)?,
        ..TableTotals::default()
    };
    // Each round consumes the rows of the lowest remaining list.
    loop {
        let mut lowest: Option<ListKey> = None;
        for cursor in links.iter_mut().chain([&mut index, &mut counts]) {
            let list = cursor.list(connection)?;
            lowest = [lowest, list].into_iter().flatten().min();
        }
        let Some(list) = lowest else {
            return Ok(totals);
        };
        let mut rows = Digest::default();
        for cursor in &mut links {
            rows.add_list(cursor, list, connection)?;
        }
        let mut entries = Digest::default();
        entries.add_list(&mut index, list, connection)?;
        if rows != entries {
            return Err(wrong(
                list,
                &format!("the link rows are {rows:?}, the index entries {entries:?}"),
            ));
        }
        let count = counts.take_count(list, connection)?;
        if count.unwrap_or(0) != rows.visible {
            return Err(wrong(
                list,
                &format!(
                    "{} visible links, but the count row says {count:?}",
                    rows.visible
                ),
            ));
        }
        totals.links += rows.rows;
        totals.visible_links += rows.visible;
        totals.counts += u64::from(count.is_some());
    }
}

fn wrong((id1, link_type): ListKey, what: &str) -> EngineError {
    EngineError::Wrong(format!("links of id1 {id1}, type {link_type}: {what}"))
}

/// Finds the lowest link type at or above `from`.
fn next_type<C: KvConnection>(connection: &mut C, from: Option<u64>) -> Result<Option<u64>> {
    let Some(from) = from else { return Ok(None) };
    let mut found = None;
    let scan = Scan {
        start: &from.to_be_bytes(),
        end: &END,
        direction: Direction::Forward,
        limit: 1,
    };
    connection.scan(LINK, scan, |key, _| {
        found = Some(kv_rows::read_link_key(key));
        false
    })?;
    Ok(found.transpose()?.map(|key| key.link_type))
}

fn count_nodes<C: KvConnection>(connection: &mut C) -> Result<u64> {
    let mut nodes = 0;
    let mut wrong = None;
    let scan = Scan {
        start: &[0],
        end: &END,
        direction: Direction::Forward,
        limit: usize::MAX,
    };
    connection.scan(NODE, scan, |key, value| {
        nodes += 1;
        wrong = kv_rows::read_node_key(key)
            .and_then(|id| kv_rows::read_node(id, value))
            .err();
        wrong.is_none()
    })?;
    wrong.map_or(Ok(nodes), Err)
}

/// Summary of one list in one map, for comparing two maps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digest {
    rows: u64,
    visible: u64,
    sum: u64,
}

impl Digest {
    /// Consumes the rows of one list.
    fn add_list<C: KvConnection>(
        &mut self,
        cursor: &mut Cursor,
        list: ListKey,
        connection: &mut C,
    ) -> Result<()> {
        while cursor.list(connection)? == Some(list) {
            let link = cursor.link()?;
            self.rows += 1;
            self.visible += u64::from(link.visibility != 0);
            self.sum = self.sum.wrapping_add(digest(&link));
            cursor.next += 1;
        }
        Ok(())
    }
}

fn digest(link: &Link<'_>) -> u64 {
    let LinkKey {
        id1,
        link_type,
        id2,
    } = link.key;
    let fields = [
        id1,
        link_type,
        id2,
        u64::from(link.visibility),
        link.time,
        u64::from(link.version),
    ];
    let hash = fields.into_iter().fold(link.data.len() as u64, mix);
    link.data.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u64::from_le_bytes(word))
    })
}

/// Cursor over a range of a map. It fetches in strides, because a scan holds its connection.
struct Cursor {
    map: MapId,
    start: Vec<u8>,
    end: Vec<u8>,
    at_end: bool,
    bytes: Vec<u8>,
    /// Ends of the key and the value of each fetched row.
    ends: Vec<(usize, usize)>,
    next: usize,
}

impl Cursor {
    fn new(map: MapId, start: &[u8], end: &[u8]) -> Cursor {
        Cursor {
            map,
            start: start.to_vec(),
            end: end.to_vec(),
            at_end: false,
            bytes: Vec::new(),
            ends: Vec::new(),
            next: 0,
        }
    }

    /// Returns the list of the current row; `None` at the end.
    fn list<C: KvConnection>(&mut self, connection: &mut C) -> Result<Option<ListKey>> {
        if self.next == self.ends.len() && !self.at_end {
            self.fetch(connection)?;
        }
        if self.next == self.ends.len() {
            return Ok(None);
        }
        let (key, value) = self.row();
        let list = match self.map {
            LINK => kv_rows::read_link_key(key).map(|key| (key.id1, key.link_type)),
            INDEX => kv_rows::read_index(key, value).map(|link| (link.key.id1, link.key.link_type)),
            _ => kv_rows::read_count_key(key),
        };
        list.map(Some)
    }

    fn row(&self) -> (&[u8], &[u8]) {
        let start = self
            .next
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[self.next];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }

    /// Decodes the current row of the link map or the index.
    fn link(&self) -> Result<Link<'_>> {
        let (key, value) = self.row();
        match self.map {
            LINK => kv_rows::read_link(kv_rows::read_link_key(key)?, value),
            _ => kv_rows::read_index(key, value),
        }
    }

    /// Consumes the count of a list; `None` if the list has no count row.
    fn take_count<C: KvConnection>(
        &mut self,
        list: ListKey,
        connection: &mut C,
    ) -> Result<Option<u64>> {
        if self.list(connection)? != Some(list) {
            return Ok(None);
        }
        let count = kv_rows::read_count(list.0, list.1, self.row().1)?.count;
        self.next += 1;
        Ok(Some(count))
    }

    fn fetch<C: KvConnection>(&mut self, connection: &mut C) -> Result<()> {
        let Cursor { bytes, ends, .. } = self;
        bytes.clear();
        ends.clear();
        let scan = Scan {
            start: &self.start,
            end: &self.end,
            direction: Direction::Forward,
            limit: STRIDE,
        };
        connection.scan(self.map, scan, |key, value| {
            bytes.extend_from_slice(key);
            let key_end = bytes.len();
            bytes.extend_from_slice(value);
            ends.push((key_end, bytes.len()));
            true
        })?;
        self.at_end = self.ends.len() < STRIDE;
        self.next = self.ends.len().saturating_sub(1);
        if !self.ends.is_empty() {
            // The first key after the last fetched one.
            self.start = self.row().0.to_vec();
            self.start.push(0);
        }
        self.next = 0;
        Ok(())
    }
}
