//! How a cursor gets over many deleted rows: by the tree's dead intervals where there are any, and otherwise step by
//! step, leaving an interval behind for the next one. See `keyspace/dead.rs` for why that is right.

use crate::error::Result;
use crate::iter::merge::MergeCursor;
use crate::iter::source::Source;
use crate::keyspace::dead::{Announced, DeadSpace};

/// Deleted rows in a row before the tree is asked for an interval: a lock costs more than stepping over one or two.
const ASK_AFTER: u32 = 2;
/// Deleted rows in a row, beyond those of an interval, before a walk is announced.
const ANNOUNCE_AFTER: u32 = ASK_AFTER + 8;

/// Deleted rows since the last live one, or since the last seek.
#[derive(Default)]
pub(super) struct Walk {
    dead_rows: u32,
    /// The first of them, or where the interval begins that was passed over. Forward this is the low end of the walk,
    /// backward the exclusive high end.
    from: Vec<u8>,
    announced: Option<Announced>,
}

impl Walk {
    /// Begins anew; what was announced has no result.
    pub fn stop(&mut self, dead: &DeadSpace) {
        self.dead_rows = 0;
        if let Some(announced) = self.announced.take() {
            dead.abandon(announced);
        }
    }
}

impl MergeCursor {
    /// Takes notice that source `at` stands on a row that is deleted for everybody who reads as of this cursor. True:
    /// the sources were moved past an interval.
    pub(super) fn pass_dead(&mut self, at: usize) -> Result<bool> {
        // Rows that expire are gone for some readers and not for others.
        if self.now_ms.is_some() {
            return Ok(false);
        }
        self.walk.dead_rows = self.walk.dead_rows.saturating_add(1);
        match self.walk.dead_rows {
            1 => {
                let key = self.sources[at].source.key();
                self.walk.from.clear();
                self.walk.from.extend_from_slice(key);
                if self.reverse {
                    // Exclusive: the smallest key behind it.
                    self.walk.from.push(0);
                }
            }
            ASK_AFTER if self.tree.dead.in_use() => return self.jump(at),
            ANNOUNCE_AFTER if !self.has_writes() => self.announce(),
            _ => {}
        }
        Ok(false)
    }

    fn has_writes(&self) -> bool {
        let first = self.sources.first().map(|input| &input.source);
        matches!(first, Some(Source::Writes(_)))
    }

    fn announce(&mut self) {
        let bounds = &self.bounds;
        let (start, end) = match self.reverse {
            false => (&self.walk.from, bounds.end.as_deref()),
            true => (&bounds.start, Some(&self.walk.from[..])),
        };
        self.walk.announced = self.tree.dead.announce(start, end, self.read_point);
    }

    /// The walk has come to a live row, or (`None`) to the end of what the cursor may see.
    pub(super) fn end_walk(&mut self, live: Option<usize>) {
        self.walk.dead_rows = 0;
        let Some(announced) = self.walk.announced.take() else {
            return;
        };
        let live = live.map(|at| self.sources[at].source.key());
        match self.reverse {
            false => {
                let end = live.or(self.bounds.end.as_deref());
                self.tree.dead.commit(announced, &self.walk.from, end);
            }
            true => {
                let start = match live {
                    Some(key) => [key, &[0]].concat(),
                    None => self.bounds.start.clone(),
                };
                let end = Some(&self.walk.from[..]);
                self.tree.dead.commit(announced, &start, end);
            }
        }
    }

    /// Moves the committed sources past the interval around the key of source `at`, if there is one.
    fn jump(&mut self, at: usize) -> Result<bool> {
        let key = self.sources[at].source.key();
        let Some((start, end)) = self.tree.dead.find(key, self.read_point) else {
            return Ok(false);
        };
        if self.reverse {
            if let Some(end) = end.filter(|end| *end > self.walk.from) {
                self.walk.from = end;
            }
            self.jump_reverse(&start)?;
        } else {
            if start < self.walk.from {
                self.walk.from = start;
            }
            self.jump_forward(end.as_deref())?;
        }
        Ok(true)
    }

    fn jump_forward(&mut self, end: Option<&[u8]>) -> Result<()> {
        let version = &self.state.version;
        let group = match end {
            Some(end) => version.find(end),
            None => version.groups().len() - 1,
        };
        self.open_group(group);
        for input in &mut self.sources {
            match end {
                _ if matches!(input.source, Source::Writes(_)) => {}
                Some(end) => {
                    input.past_end = false;
                    input.source.seek(end)?;
                }
                None => input.past_end = true,
            }
        }
        Ok(())
    }

    fn jump_reverse(&mut self, start: &[u8]) -> Result<()> {
        let groups = self.state.version.groups();
        let group = groups.partition_point(|g| g.low.as_slice() < start);
        self.open_group(group.saturating_sub(1));
        for input in &mut self.sources {
            match start {
                _ if matches!(input.source, Source::Writes(_)) => {}
                [] => input.past_end = true,
                start => {
                    input.past_end = false;
                    input.source.seek_before(Some(start))?;
                }
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
