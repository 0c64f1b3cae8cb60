//! Order of a write set: entry numbers sorted by keyspace and key.
//!
//! A sorted vector cut into chunks, in effect a B-tree of two levels. A small set is one sorted
//! vector; in a large one an insertion moves at most one chunk. Unlike a `BTreeMap` that owns its
//! keys, it needs no allocation for each key. The first bytes of each key are stored next to its
//! number, so most comparisons do not read the arena.

use std::cmp::Ordering;

use crate::base::KeyspaceId;

/// Number of places in a full chunk: 4 KiB.
const CHUNK_MAX: usize = 256;

/// Entry numbers in key order. No chunk is empty.
#[derive(Debug, Default)]
pub(super) struct Index {
    chunks: Vec<Vec<Place>>,
    /// Emptied chunks, kept for their memory.
    spare: Vec<Vec<Place>>,
}

/// Position of an entry in an [`Index`], or its end. Valid until the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    chunk: usize,
    at: usize,
}

/// Part of a key that is compared first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Probe {
    keyspace: KeyspaceId,
    /// First eight bytes, big-endian, padded with zeros. Two keys have the same order as their
    /// heads, unless the heads are equal.
    head: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    probe: Probe,
    entry: u32,
}

impl Probe {
    pub(super) fn new(keyspace: KeyspaceId, key: &[u8]) -> Probe {
        let mut head = [0; 8];
        let len = key.len().min(head.len());
        head[..len].copy_from_slice(&key[..len]);
        Probe {
            keyspace,
            head: u64::from_be_bytes(head),
        }
    }
}

impl Index {
    /// Returns the memory of the chunks, assuming that all are full.
    pub(super) fn allocated_bytes(&self) -> usize {
        (self.chunks.len() + self.spare.len()) * CHUNK_MAX * size_of::<Place>()
    }

    /// Clears the index and keeps its memory.
    pub(super) fn cleared(mut self) -> Index {
        let chunks = self.chunks.drain(..).map(|mut chunk| {
            chunk.clear();
            chunk
        });
        self.spare.extend(chunks);
        self
    }

    /// Returns the position of a key, or the position to insert it at.
    pub(super) fn find<'a>(
        &self,
        probe: Probe,
        key: &[u8],
        key_of: impl Fn(u32) -> &'a [u8],
    ) -> Result<Position, Position> {
        let compare = |place: &Place| {
            let by_probe = place.probe.cmp(&probe);
            by_probe.then_with(|| key_of(place.entry).cmp(key))
        };
        if let Some(end) = self.behind_all(compare) {
            return Err(end);
        }
        let above = self
            .chunks
            .partition_point(|chunk| compare(&chunk[0]) != Ordering::Greater);
        // The key belongs after a chunk's first key; the lowest key of all belongs to the first
        // chunk.
        let chunk = above.saturating_sub(1);
        let Some(places) = self.chunks.get(chunk) else {
            return Err(Position { chunk, at: 0 });
        };
        match places.binary_search_by(compare) {
            Ok(at) => Ok(Position { chunk, at }),
            Err(at) => Err(Position { chunk, at }),
        }
    }

    /// Returns the position after the last key if the compared key belongs there: bulk loads write
    /// in key order.
    fn behind_all(&self, compare: impl Fn(&Place) -> Ordering) -> Option<Position> {
        let last = self.chunks.last()?;
        let behind = compare(last.last()?) == Ordering::Less;
        behind.then(|| Position {
            chunk: self.chunks.len() - 1,
            at: last.len(),
        })
    }

    /// Inserts an entry at the position returned by [`find`](Self::find).
    pub(super) fn insert(&mut self, position: Position, probe: Probe, entry: u32) {
        let Position { mut chunk, mut at } = position;
        if self.chunks.is_empty() {
            self.chunks.push(self.spare.pop().unwrap_or_default());
        }
        if self.chunks[chunk].len() == CHUNK_MAX {
            // Keys that arrive in order leave full chunks.
            let in_order = at == CHUNK_MAX && chunk + 1 == self.chunks.len();
            let cut = if in_order { CHUNK_MAX } else { CHUNK_MAX / 2 };
            let mut upper = self.spare.pop().unwrap_or_default();
            upper.reserve(CHUNK_MAX);
            upper.extend(self.chunks[chunk].drain(cut..));
            self.chunks.insert(chunk + 1, upper);
            if at > cut || in_order {
                chunk += 1;
                at -= cut;
            }
        }
        self.chunks[chunk].insert(at, Place { probe, entry });
    }

    /// Removes the entry at a position.
    pub(super) fn remove(&mut self, position: Position) {
        self.chunks[position.chunk].remove(position.at);
        if self.chunks[position.chunk].is_empty() {
            self.chunks.remove(position.chunk);
        }
    }

    /// Returns the entry at a position found by [`find`](Self::find).
    pub(super) fn entry(&self, position: Position) -> u32 {
        self.chunks[position.chunk][position.at].entry
    }

    /// Returns the entry at a position, or the first of the next chunk if the position is after its
    /// chunk's last place.
    pub(super) fn get(&self, position: Position) -> Option<u32> {
        let chunk = self.chunks.get(position.chunk)?;
        let next_chunk = || self.chunks.get(position.chunk + 1)?.first();
        let place = chunk.get(position.at).or_else(next_chunk)?;
        Some(place.entry)
    }

    /// Returns the position after the entry that [`get`](Self::get) returns.
    pub(super) fn after(&self, position: Position) -> Position {
        let Position { chunk, at } = position;
        match self.chunks.get(chunk) {
            Some(places) if at >= places.len() => Position {
                chunk: chunk + 1,
                at: 1,
            },
            _ => Position { chunk, at: at + 1 },
        }
    }

    /// Returns the position of the entry before this one, if there is any.
    pub(super) fn before(&self, position: Position) -> Option<Position> {
        if position.at > 0 {
            return Some(Position {
                at: position.at - 1,
                ..position
            });
        }
        let chunk = position.chunk.checked_sub(1)?;
        let at = self.chunks.get(chunk)?.len() - 1;
        Some(Position { chunk, at })
    }

    /// Returns the position after the last entry.
    pub(super) fn end(&self) -> Position {
        Position {
            chunk: self.chunks.len(),
            at: 0,
        }
    }

    /// Returns all entries in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().flatten().map(|place| place.entry)
    }
}
