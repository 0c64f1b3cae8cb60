//! Encoding of LinkBench's rows in ordered maps: fixed-width big-endian keys that sort as the SQL
//! indexes do.
//!
//! ```text
//! map    key                                                       value
//! node   id 8                                                      type 4, version 8, time 4, data
//! link   link_type 8, id1 8, id2 8                                 visibility 1, time 8,
//!                                                                  version 4, data
//! index  id1 8, link_type 8, visibility 1, inverted time 8, id2 8  version 4, data
//! count  id 8, link_type 8                                         count 8, time 8, version 8
//! ```
//!
//! The time is inverted, so a list is a forward scan: newest first, equal times by id2 ascending.
//! The index's value is the tail of the link's value.

use super::store::{Count, Link, LinkKey, Node};
use crate::error::{EngineError, Result};
use crate::kv::{MapDef, MapId};

/// Map of nodes, keyed by id.
pub const NODE: MapId = MapId(0);
/// Map of links.
pub const LINK: MapId = MapId(1);
/// Map of the index `id1_type`.
pub const INDEX: MapId = MapId(2);
/// Map of counts.
pub const COUNT: MapId = MapId(3);

/// Bytes of the prefix of a list in the index.
pub const LIST_PREFIX_BYTES: usize = 16;
/// Offset in a link's value of the tail that is also the value of its index entry.
pub const LINK_TAIL: usize = 9;

/// Encoded key of the index.
pub type IndexKey = [u8; 33];

/// Returns the four maps, indexed by [`MapId`].
pub fn schema() -> [MapDef; 4] {
    let map = |name, scan_prefix_bytes, point_reads| MapDef {
        name,
        scan_prefix_bytes,
        point_reads,
        // Half of the links in multi-gets are missing, and so are all links before their insert.
        expect_hits: point_reads && name != "link",
        is_queue: false,
    };
    [
        map("node", None, true),
        map("link", None, true),
        map("index", Some(LIST_PREFIX_BYTES), false),
        map("count", None, true),
    ]
}

/// Encodes the key of a node.
pub fn node_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// Encodes the key of a link.
pub fn link_key(key: LinkKey) -> [u8; 24] {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&key.link_type.to_be_bytes());
    out[8..16].copy_from_slice(&key.id1.to_be_bytes());
    out[16..].copy_from_slice(&key.id2.to_be_bytes());
    out
}

/// Encodes the key of a link's index entry.
pub fn index_key(key: LinkKey, visibility: u8, time: u64) -> IndexKey {
    let mut out = [0; 33];
    out[..8].copy_from_slice(&key.id1.to_be_bytes());
    out[8..16].copy_from_slice(&key.link_type.to_be_bytes());
    out[16] = visibility;
    out[17..25].copy_from_slice(&(!time).to_be_bytes());
    out[25..].copy_from_slice(&key.id2.to_be_bytes());
    out
}

/// Encodes the key of a count.
pub fn count_key(id: u64, link_type: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&id.to_be_bytes());
    out[8..].copy_from_slice(&link_type.to_be_bytes());
    out
}

/// Appends the value of a node to `out`.
pub fn append_node(node: &Node<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&node.node_type.to_be_bytes());
    out.extend_from_slice(&node.version.to_be_bytes());
    out.extend_from_slice(&node.time.to_be_bytes());
    out.extend_from_slice(node.data);
}

/// Appends the value of a link to `out`.
pub fn append_link(link: &Link<'_>, out: &mut Vec<u8>) {
    out.push(link.visibility);
    out.extend_from_slice(&link.time.to_be_bytes());
    out.extend_from_slice(&link.version.to_be_bytes());
    out.extend_from_slice(link.data);
}

/// Encodes the value of a count.
pub fn count_value(count: &Count) -> [u8; 24] {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&count.count.to_be_bytes());
    out[8..16].copy_from_slice(&count.time.to_be_bytes());
    out[16..].copy_from_slice(&count.version.to_be_bytes());
    out
}

/// Decodes a node's key and returns the id.
pub fn read_node_key(key: &[u8]) -> Result<u64> {
    let mut fields = Fields::of("node key", key);
    let id = fields.u64()?;
    fields.end(id)
}

/// Decodes a node's value.
pub fn read_node(id: u64, value: &[u8]) -> Result<Node<'_>> {
    let mut fields = Fields::of("node", value);
    Ok(Node {
        id,
        node_type: fields.u32()?,
        version: fields.u64()?,
        time: fields.u32()?,
        data: fields.rest,
    })
}

/// Decodes a link's key.
pub fn read_link_key(key: &[u8]) -> Result<LinkKey> {
    let mut fields = Fields::of("link key", key);
    let (link_type, id1, id2) = (fields.u64()?, fields.u64()?, fields.u64()?);
    fields.end(LinkKey {
        id1,
        link_type,
        id2,
    })
}

/// Decodes a link's value.
pub fn read_link(key: LinkKey, value: &[u8]) -> Result<Link<'_>> {
    let mut fields = Fields::of("link", value);
    Ok(Link {
        key,
        visibility: fields.u8()?,
        time: fields.u64()?,
        version: fields.u32()?,
        data: fields.rest,
    })
}

/// Decodes an index entry and returns its link.
pub fn read_index<'a>(key: &[u8], value: &'a [u8]) -> Result<Link<'a>> {
    let mut fields = Fields::of("index key", key);
    let (id1, link_type) = (fields.u64()?, fields.u64()?);
    let (visibility, time) = (fields.u8()?, !fields.u64()?);
    let id2 = fields.u64()?;
    let key = fields.end(LinkKey {
        id1,
        link_type,
        id2,
    })?;
    let mut fields = Fields::of("index", value);
    Ok(Link {
        key,
        visibility,
        time,
        version: fields.u32()?,
        data: fields.rest,
    })
}

/// Decodes a count's key and returns id and link type.
pub fn read_count_key(key: &[u8]) -> Result<(u64, u64)> {
    let mut fields = Fields::of("count key", key);
    let found = (fields.u64()?, fields.u64()?);
    fields.end(found)
}

/// Decodes a count's value.
pub fn read_count(id: u64, link_type: u64, value: &[u8]) -> Result<Count> {
    let mut fields = Fields::of("count", value);
    let (count, time, version) = (fields.u64()?, fields.u64()?, fields.u64()?);
    fields.end(Count {
        id,
        link_type,
        count,
        time,
        version,
    })
}

/// Reader of the fixed-width fields of a row, from its start.
struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(what: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { what, rest: bytes }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((field, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.wrong("ends early"));
        };
        self.rest = rest;
        Ok(*field)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// Returns `result` if no bytes are left.
    fn end<T>(self, result: T) -> Result<T> {
        if self.rest.is_empty() {
            Ok(result)
        } else {
            Err(self.wrong("is too long"))
        }
    }

    #[cold]
    fn wrong(&self, how: &str) -> EngineError {
        EngineError::Wrong(format!(
            "a {} {how}: {} bytes are left",
            self.what,
            self.rest.len()
        ))
    }
}
