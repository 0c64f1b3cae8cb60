//! Skips runs of deleted rows: by the tree's dead intervals if there are any, otherwise step by
//! step, and records an interval for the next cursor. See `keyspace/dead.rs` for the proof.

use crate::error::Result;
use crate::iter::merge::MergeCursor;
use crate::iter::source::Source;
use crate::keyspace::dead::{Announced, DeadSpace, Reach};

/// Number of deleted rows in sequence before the tree is asked for an interval: a lock costs more
/// than one or two steps.
const ASK_AFTER: u32 = 2;
/// Number of deleted rows in sequence, beyond those of an interval, before a walk is announced.
const ANNOUNCE_AFTER: u32 = ASK_AFTER + 8;

/// Walk over deleted rows since the last live one, or since the last seek.
#[derive(Default)]
pub(super) struct Walk {
    dead_rows: u32,
    /// No live row was met since a seek to the start bound of the cursor.
    from_bound: bool,
    /// Start of the walk: there is no live row between it and the current position. Forward it is
    /// the low end of the walk, backward the exclusive high end.
    from: Vec<u8>,
    /// End of the interval that the walk skips.
    to: Vec<u8>,
    announced: Option<Announced>,
    /// Key from which sources were last moved by seeks; empty if there was no such move.
    leapt: Vec<u8>,
}

impl Walk {
    /// Resets the walk and abandons an announced one.
    pub fn stop(&mut self, dead: &DeadSpace) {
        self.dead_rows = 0;
        self.from_bound = false;
        self.leapt.clear();
        if let Some(announced) = self.announced.take() {
            dead.abandon(announced);
        }
    }
}

impl MergeCursor {
    /// Begins a forward seek to `key`. If `key` is in an interval, positions the committed sources
    /// after it and returns true.
    pub(super) fn begin_walk(&mut self, key: &[u8]) -> Result<bool> {
        self.walk.stop(&self.tree.dead);
        self.walk.from_bound = key == &self.bounds.start[..];
        if self.now_ms.is_some() || !self.tree.dead.in_use() {
            return Ok(false);
        }
        let dead = &self.tree.dead;
        let Some(reach) = dead.find_end(key, self.read_point, &mut self.walk.to) else {
            return Ok(false);
        };
        self.walk.dead_rows = ASK_AFTER;
        self.walk.from.clear();
        self.walk.from.extend_from_slice(key);
        if self.has_writes() {
            self.sources[0].past_end = false;
            self.sources[0].source.seek(key)?;
        }
        self.jump_forward(reach)?;
        Ok(true)
    }

    /// Begins a seek to the last row before `key`, as [`MergeCursor::begin_walk`].
    pub(super) fn begin_walk_back(&mut self, key: Option<&[u8]>) -> Result<bool> {
        self.walk.stop(&self.tree.dead);
        if self.now_ms.is_some() || !self.tree.dead.in_use() {
            return Ok(false);
        }
        // Without an end there is no key to record as the start of a walk.
        let Some(from) = key else {
            return Ok(false);
        };
        let dead = &self.tree.dead;
        let Some(reach) = dead.find_start(key, self.read_point, &mut self.walk.to) else {
            return Ok(false);
        };
        self.walk.dead_rows = ASK_AFTER;
        self.walk.from.clear();
        self.walk.from.extend_from_slice(from);
        if self.has_writes() {
            self.sources[0].past_end = false;
            self.sources[0].source.seek_before(key)?;
        }
        self.jump_reverse(reach)?;
        Ok(true)
    }

    /// Counts the row of source `at`, which is deleted for every reader at this read point. Returns
    /// true if the sources were moved past an interval.
    pub(super) fn pass_dead(&mut self, at: usize) -> Result<bool> {
        // Expired rows are absent for some readers and present for others.
        if self.now_ms.is_some() {
            return Ok(false);
        }
        self.walk.dead_rows = self.walk.dead_rows.saturating_add(1);
        match self.walk.dead_rows {
            1 => self.note_start(at),
            ASK_AFTER if self.tree.dead.in_use() => return self.jump(at),
            ANNOUNCE_AFTER if !self.has_writes() => self.announce(),
            _ => {}
        }
        Ok(false)
    }

    fn note_start(&mut self, at: usize) {
        let key = if self.walk.from_bound && !self.reverse {
            &self.bounds.start
        } else {
            self.sources[at].source.key()
        };
        self.walk.from.clear();
        self.walk.from.extend_from_slice(key);
        if self.reverse {
            // Exclusive end: the smallest key after it.
            self.walk.from.push(0);
        }
    }

    pub(super) fn has_writes(&self) -> bool {
        let first = self.sources.first().map(|input| &input.source);
        matches!(first, Some(Source::Writes(_)))
    }

    fn announce(&mut self) {
        let bounds = &self.bounds;
        let (start, end) = if self.reverse {
            (&bounds.start, Some(&self.walk.from[..]))
        } else {
            (&self.walk.from, bounds.end.as_deref())
        };
        self.walk.announced = self.tree.dead.announce(start, end, self.read_point);
    }

    /// Ends the walk at a live row, or (`None`) at the end of the rows that the cursor may see.
    pub(super) fn end_walk(&mut self, live: Option<usize>) {
        self.walk.dead_rows = 0;
        self.walk.from_bound = false;
        let Some(announced) = self.walk.announced.take() else {
            return;
        };
        let live = live.map(|at| self.sources[at].source.key());
        if self.reverse {
            let start = match live {
                Some(key) => [key, &[0]].concat(),
                None => self.bounds.start.clone(),
            };
            let end = Some(&self.walk.from[..]);
            self.tree.dead.commit(announced, &start, end);
        } else {
            let end = live.or(self.bounds.end.as_deref());
            self.tree.dead.commit(announced, &self.walk.from, end);
        }
    }

    /// Records that sources are about to be moved by seeks from the key of source `at`. Each such
    /// key is further in the direction of the cursor, unless a table's rows are out of order. A
    /// seek can move such a table back, and the cursor would pass the same keys forever; then this
    /// returns an error.
    pub(super) fn note_leap(&mut self, at: usize) -> Result<()> {
        let source = &self.sources[at].source;
        let (key, leapt) = (source.key(), &mut self.walk.leapt);
        let is_further = if self.reverse {
            key < &leapt[..]
        } else {
            key > &leapt[..]
        };
        let on = leapt.is_empty() || is_further;
        leapt.clear();
        leapt.extend_from_slice(key);
        if on {
            return Ok(());
        }
        let tables = || self.sources.iter().find_map(|input| input.source.table());
        let table = self.sources[at].source.table().or_else(tables);
        // Memtables are always in order.
        table.map_or(Ok(()), |table| Err(table.out_of_order()))
    }

    /// Moves the committed sources past the interval around the key of source `at`, if there is
    /// one.
    fn jump(&mut self, at: usize) -> Result<bool> {
        self.note_leap(at)?;
        let key = self.sources[at].source.key();
        let (dead, point, to) = (&self.tree.dead, self.read_point, &mut self.walk.to);
        if self.reverse {
            // The key itself is dead: ask for the interval before the smallest key after it.
            let behind = [key, &[0]].concat();
            let Some(reach) = dead.find_start(Some(&behind), point, to) else {
                return Ok(false);
            };
            self.jump_reverse(reach)?;
        } else {
            let Some(reach) = dead.find_end(key, point, to) else {
                return Ok(false);
            };
            self.jump_forward(reach)?;
        }
        Ok(true)
    }

    fn jump_forward(&mut self, reach: Reach) -> Result<()> {
        let group = match reach {
            Reach::To => self.version().find(&self.walk.to),
            Reach::Everything => self.version().groups().len() - 1,
        };
        self.open_group(group);
        for input in &mut self.sources {
            if matches!(input.source, Source::Writes(_)) {
                continue;
            }
            input.past_end = reach == Reach::Everything;
            if !input.past_end {
                input.source.seek(&self.walk.to)?;
            }
        }
        Ok(())
    }

    fn jump_reverse(&mut self, reach: Reach) -> Result<()> {
        let groups = self.version().groups();
        let group = match reach {
            Reach::To => groups.partition_point(|g| g.low < self.walk.to),
            Reach::Everything => 0,
        };
        self.open_group(group.saturating_sub(1));
        for input in &mut self.sources {
            if matches!(input.source, Source::Writes(_)) {
                continue;
            }
            input.past_end = reach == Reach::Everything;
            if !input.past_end {
                input.source.seek_before(Some(&self.walk.to))?;
            }
        }
        Ok(())
    }
}

impl Drop for MergeCursor {
    fn drop(&mut self) {
        self.walk.stop(&self.tree.dead);
    }
}
