//! Key range and direction of a cursor.
//!
//! Seeks, bounds and dead intervals name edges: places between keys. An edge is written as the key
//! that comes after it, so a scan forward reaches that key first, and a scan in reverse the last
//! key before it. `None` is the end of the keyspace that the scan starts from.

use std::borrow::Cow;

use crate::base::prefix_end;

/// Direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Reverse,
}

impl Direction {
    /// Returns true if a scan meets the key `a` before the key `b`.
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Direction::Forward => a < b,
            Direction::Reverse => a > b,
        }
    }

    /// Returns the edge that a scan crosses to reach `key`.
    pub fn edge_before(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Direction::Forward => Cow::Borrowed(key),
            Direction::Reverse => Cow::Owned([key, &[0]].concat()),
        }
    }

    /// Returns the edge that a scan crosses when it leaves `key`.
    pub fn edge_after(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Direction::Forward => Direction::Reverse.edge_before(key),
            Direction::Reverse => Direction::Forward.edge_before(key),
        }
    }

    /// Returns start and end of the range that a scan passes from the edge `from` to the edge `to`.
    pub fn range<'a>(self, from: &'a [u8], to: Option<&'a [u8]>) -> (&'a [u8], Option<&'a [u8]>) {
        match self {
            Direction::Forward => (from, to),
            Direction::Reverse => (to.unwrap_or_default(), Some(from)),
        }
    }
}

/// Half-open range of keys that a cursor stays in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Inclusive; empty is the start of the keyspace.
    pub start: Vec<u8>,
    /// Exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
}

impl Bounds {
    /// Returns the range of all keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Bounds {
        Bounds {
            start: prefix.to_vec(),
            end: prefix_end(prefix),
        }
    }

    /// Returns the prefix of `bytes` bytes that all keys of the range share, if they do.
    pub fn shared_prefix(&self, bytes: usize) -> Option<&[u8]> {
        let prefix = self.start.get(..bytes)?;
        let end = self.end.as_deref()?;
        let inside = end.starts_with(prefix) || prefix_end(prefix).as_deref() == Some(end);
        inside.then_some(prefix)
    }

    /// Returns the edge at which a scan from the edge `from` enters the range.
    pub fn enter<'a>(&'a self, direction: Direction, from: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match (direction, from, self.end.as_deref()) {
            (Direction::Forward, from, _) => Some(from.unwrap_or_default().max(&self.start)),
            (Direction::Reverse, Some(from), Some(end)) => Some(from.min(end)),
            (Direction::Reverse, from, end) => from.or(end),
        }
    }

    /// Returns the edge at which a scan leaves the range; `None` is the end of the keyspace.
    pub fn exit(&self, direction: Direction) -> Option<&[u8]> {
        match direction {
            Direction::Forward => self.end.as_deref(),
            Direction::Reverse => Some(&self.start[..]).filter(|start| !start.is_empty()),
        }
    }

    /// Returns true if a scan that meets `key` has left the range.
    pub fn is_past(&self, direction: Direction, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => self.end.as_deref().is_some_and(|end| key >= end),
            Direction::Reverse => key < &self.start[..],
        }
    }
}
