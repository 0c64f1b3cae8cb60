//! Walk over deleted rows: asks the tree for a dead interval to skip, and records one for the next
//! cursor. See `keyspace/dead.rs` for the proof.

use crate::iter::bounds::Direction;
use crate::iter::inputs::Inputs;
use crate::keyspace::dead::{Announced, DeadSpace, Reach};

/// Number of deleted rows in sequence before the tree is asked for an interval: a lock costs more
/// than one or two steps.
const ASK_AFTER: u32 = 2;
/// Number of deleted rows in sequence, beyond those of an interval, before a walk is announced.
const ANNOUNCE_AFTER: u32 = ASK_AFTER + 8;

/// Walk over deleted rows since the last live one, or since the last seek.
#[derive(Default)]
pub(super) struct DeadWalk {
    dead_rows: u32,
    /// No live row was met since a forward seek to the start bound of the cursor.
    from_bound: bool,
    /// Edge at which the walk starts: there is no live row between it and the current position.
    from: Vec<u8>,
    /// Edge at which the interval that the walk skips ends.
    to: Vec<u8>,
    announced: Option<Announced>,
}

impl DeadWalk {
    /// Resets the walk and abandons an announced one.
    pub fn stop(&mut self, dead: &DeadSpace) {
        self.dead_rows = 0;
        self.from_bound = false;
        if let Some(announced) = self.announced.take() {
            dead.abandon(announced);
        }
    }

    /// Returns the edge at which the found interval ends.
    pub fn to(&self) -> &[u8] {
        &self.to
    }

    /// Begins a walk at the edge of a seek. Returns the reach of the interval around it, if there
    /// is one.
    pub fn begin(&mut self, inputs: &Inputs, edge: &[u8]) -> Option<Reach> {
        let forward = inputs.direction() == Direction::Forward;
        self.from_bound = forward && edge == &inputs.bounds().start[..];
        if inputs.tree().stores_expiry || !inputs.tree().dead.in_use() {
            return None;
        }
        let reach = self.find(inputs, edge)?;
        self.dead_rows = ASK_AFTER;
        self.start_at(edge);
        Some(reach)
    }

    /// Counts the row of source `at`, which is deleted for every reader at this read point. Returns
    /// the reach of the interval around it, if one is asked for and found.
    pub fn pass(&mut self, inputs: &Inputs, at: usize) -> Option<Reach> {
        // Expired rows are absent for some readers and present for others.
        if inputs.tree().stores_expiry {
            return None;
        }
        self.dead_rows = self.dead_rows.saturating_add(1);
        let edge = || inputs.direction().edge_before(inputs.source(at).key());
        match self.dead_rows {
            1 if self.from_bound => self.start_at(&inputs.bounds().start),
            1 => self.start_at(&edge()),
            ASK_AFTER if inputs.tree().dead.in_use() => return self.find(inputs, &edge()),
            ANNOUNCE_AFTER if !inputs.has_writes() => self.announce(inputs),
            _ => {}
        }
        None
    }

    fn start_at(&mut self, edge: &[u8]) {
        self.from.clear();
        self.from.extend_from_slice(edge);
    }

    fn find(&mut self, inputs: &Inputs, edge: &[u8]) -> Option<Reach> {
        let (dead, point) = (&inputs.tree().dead, inputs.read_point());
        match inputs.direction() {
            Direction::Forward => dead.find_end(edge, point, &mut self.to),
            Direction::Reverse => dead.find_start(Some(edge), point, &mut self.to),
        }
    }

    fn announce(&mut self, inputs: &Inputs) {
        let direction = inputs.direction();
        let (start, end) = direction.range(&self.from, inputs.bounds().exit(direction));
        let dead = &inputs.tree().dead;
        self.announced = dead.announce(start, end, inputs.read_point());
    }

    /// Ends the walk at the live row of a source, or (`None`) at the end of the rows that the
    /// cursor may see.
    #[inline]
    pub fn end(&mut self, inputs: &Inputs, live: Option<usize>) {
        self.dead_rows = 0;
        self.from_bound = false;
        if let Some(announced) = self.announced.take() {
            self.record(announced, inputs, live);
        }
    }

    #[cold]
    fn record(&self, announced: Announced, inputs: &Inputs, live: Option<usize>) {
        let direction = inputs.direction();
        let live = live.map(|at| direction.edge_before(inputs.source(at).key()));
        let to = live.as_deref().or(inputs.bounds().exit(direction));
        let (start, end) = direction.range(&self.from, to);
        inputs.tree().dead.commit(announced, start, end);
    }
}
