//! Flush: turns sealed memtables into tables, with one multi-way merge for all generations that
//! wait and one manifest edit for all keyspaces.
//!
//! Merging several sealed memtables at once makes large flush units. The tables below are compacted
//! less often, while each active memtable stays small and fast. Upper tables are cut at the borders
//! of the keyspace's groups; appends go straight into the last level (`straight`).
//!
//! Order: tables written and synced, directory synced, log synced through the newest flushed commit
//! and the prepares written after it, edit synced, new state published, old log segments deleted.

use crate::sync::at_once;
use crate::sync::collections::HashMap;
use crate::sync::time::Instant;
use std::cell::Cell;
use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::commit::SealedGeneration;
use crate::compaction::fold::{FoldCounts, FoldRules};
use crate::compaction::merge::{Stream, merge};
use crate::compaction::output::{Carried, Cuts, NewTable, Output, discard};
use crate::compaction::retire::Retire;
use crate::compaction::separate::ValueInputs;
use crate::compaction::table_options::table_options;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::memory::{Charge, Use};
use crate::range_deletes::{Fragmenter, RangeDeletes};
use crate::read_points::DropPoints;
use crate::table::ValueFiles;
use crate::wal::LateSync;

mod env;
mod install;
pub(crate) mod queue;
mod straight;

pub(crate) use env::FlushEnv;
use install::FlushedTree;
use straight::Gap;

type TreeOutput<'a> = Output<&'a Core, &'a Tree>;

/// Runs the flush thread until the database closes or is poisoned.
pub(crate) fn run(env: &FlushEnv) {
    while let Some(generations) = env.queue.next() {
        // Sealed memtables took memory from the cache, and there may be no reader that trims it.
        env.core.memory.cache.trim();
        let memtable_bytes = bytes_of(&generations);
        env.core
            .events
            .tell(|| Event::FlushBegin { memtable_bytes });
        let began = Instant::now();
        let Some(memtable_bytes) = flush_all(env, generations, began) else {
            return;
        };
        env.core.events.tell(|| Event::FlushEnd {
            memtable_bytes,
            took: began.elapsed(),
        });
        env.core.update_admission();
        env.jobs.wake();
    }
}

fn bytes_of(generations: &[SealedGeneration]) -> u64 {
    generations.iter().map(|g| g.bytes as u64).sum()
}

/// Flushes these generations: as one unit, or one by one if there is too little room for all of
/// them. The log leaves room for one (`commit/room.rs`). If others have taken it, newer generations
/// join: their deletes may hide rows that find no room.
///
/// Returns the bytes of the flushed memtables; `None` if the flush thread must end, because the
/// database closes or is poisoned.
fn flush_all(env: &FlushEnv, mut left: Vec<SealedGeneration>, began: Instant) -> Option<u64> {
    let mut memtable_bytes = bytes_of(&left);
    let mut unit = left.len();
    // Ends with the flush, with the database, or with its poisoning.
    while !left.is_empty() {
        unit = unit.min(left.len());
        match flush(env, &left[..unit]) {
            Ok(()) => {
                let flushed: Vec<_> = left.drain(..unit).collect();
                if left.is_empty() {
                    // Before any caller learns that the flush is done.
                    let took = began.elapsed().as_micros() as u64;
                    env.core.metrics.flush_us.note_log2(took);
                    env.core.metrics.flush_bytes.note_log2(memtable_bytes);
                }
                // Each flushed generation releases segments of the log. Callers that wait for the
                // flush see the space.
                env.ballast.found_space();
                env.queue.done(&flushed);
            }
            // Nothing was installed; the memtables are still there.
            Err(error) if error.may_be_retried() => {
                let spent = env.ballast.note_failure(&error);
                if spent || unit > 1 {
                    unit = 1;
                    continue;
                }
                // The cause may end: room on the device, a free descriptor.
                env.queue.failed(error);
                if !env.queue.pause_before_retry() {
                    return None;
                }
                let new = env.queue.take_new();
                if !new.is_empty() {
                    memtable_bytes += bytes_of(&new);
                    left.extend(new);
                    unit = left.len();
                }
            }
            Err(error) => {
                env.core.poison.set(error);
                return None;
            }
        }
    }
    Some(memtable_bytes)
}

/// Flushes generations (oldest first) as one unit.
fn flush(env: &FlushEnv, generations: &[SealedGeneration]) -> Result<()> {
    let mut flushed = Vec::new();
    let written = write_all(env, generations, &mut flushed);
    if let Err(error) = written {
        for flush in &flushed {
            flush.discard(&env.core);
        }
        return Err(error);
    }
    if let Some(last) = generations.last() {
        // Before the tables are named: their rows must not survive a power loss that takes earlier
        // commits.
        let syncer = last.log.as_ref().and_then(|log| log.syncer.as_ref());
        syncer.map_or(Ok(()), LateSync::sync)?;
        env.install(flushed, last)?;
    }
    env.core.metrics.flushes.add(1);
    Ok(())
}

fn write_all<'a>(
    env: &'a FlushEnv,
    generations: &[SealedGeneration],
    flushed: &mut Vec<FlushedTree<'a>>,
) -> Result<()> {
    for (tree, memtables) in by_tree(generations) {
        if !tree.is_dropped() {
            let writer = Writer::new(env, &tree, &memtables);
            let suits = |gap: &Gap| writer.leaves_nothing_dead(gap);
            let straight = straight::claim(env, &tree, &memtables, &writer.ranges, suits)?;
            let gaps: Vec<&Gap> = straight.iter().flat_map(|s| &s.gaps).collect();
            let upper = writer.write_upper(&gaps)?;
            let last = writer
                .write_last(&gaps)
                .inspect_err(|_| discard(&env.core, &upper))?;
            flushed.push(FlushedTree {
                tree,
                memtables,
                upper,
                last,
                claims: straight.into_iter().map(|s| s.claim).collect(),
            });
        }
    }
    env.core.sync_directory()
}

/// Returns the memtables of each keyspace, newest first.
fn by_tree(generations: &[SealedGeneration]) -> Vec<(Arc<Tree>, Vec<Arc<TreeMemtable>>)> {
    let mut trees: Vec<(Arc<Tree>, Vec<Arc<TreeMemtable>>)> = Vec::new();
    let mut places = HashMap::default();
    for (tree, memtable) in generations.iter().rev().flat_map(|g| &g.memtables) {
        let place = *places.entry(tree.id).or_insert(trees.len());
        if place == trees.len() {
            trees.push((Arc::clone(tree), Vec::new()));
        }
        trees[place].1.push(Arc::clone(memtable));
    }
    trees
}

/// Returns the range deletes of these memtables that read points tell apart.
fn range_deletes(
    memtables: &[Arc<TreeMemtable>],
    points: &DropPoints,
    charge: &mut Charge,
) -> RangeDeletes {
    let histories: Vec<_> = memtables.iter().filter_map(|m| m.range_deletes()).collect();
    let mut ranges = Fragmenter::default();
    for history in &histories {
        ranges.add_history(history);
    }
    charge.set(ranges.memory_bytes());
    ranges.finish(&points.told_apart())
}

/// Returns which of several errors decides what happens next: one that must not be retried, then a
/// full device, because the ballast file can make room.
fn weight(error: &Error) -> u32 {
    match error {
        error if !error.may_be_retried() => 2,
        Error::NoSpace { .. } => 1,
        _ => 0,
    }
}

/// Writer of the tables of one keyspace.
struct Writer<'a> {
    env: &'a FlushEnv,
    tree: &'a Tree,
    memtables: &'a [Arc<TreeMemtable>],
    points: DropPoints,
    retire: Retire,
    /// Range deletes of all memtables that read points tell apart.
    ranges: Arc<RangeDeletes>,
    /// Charge for `ranges`.
    _charge: Charge,
}

impl<'a> Writer<'a> {
    fn new(env: &'a FlushEnv, tree: &'a Tree, memtables: &'a [Arc<TreeMemtable>]) -> Writer<'a> {
        let points = env.core.read_points.horizon_points();
        let mut charge = Charge::new(&env.core.memory.budget, Use::Jobs);
        let ranges = range_deletes(memtables, &points, &mut charge);
        charge.set(ranges.memory_bytes());
        Writer {
            env,
            tree,
            memtables,
            points,
            retire: tree.retire(&env.core.clock, &ValueFiles::default()),
            ranges: Arc::new(ranges),
            _charge: charge,
        }
    }

    /// Writes upper tables of the rows outside the gaps, at most one for each group.
    fn write_upper(&self, gaps: &[&Gap]) -> Result<Vec<NewTable>> {
        let version = Arc::clone(&self.tree.load().version);
        let groups = version.groups()[1..].iter();
        let cuts = Cuts {
            borders: groups.map(|g| g.low.clone()).collect(),
            bytes_max: u64::MAX,
        };
        let mut output = self.output(cuts, Arc::clone(&self.ranges), false);
        let mut start: &[u8] = &[];
        for gap in gaps {
            self.write_part(start, Some(&gap.start), &mut output, false)?;
            let Some(end) = &gap.end else {
                return output.finish();
            };
            start = end;
        }
        self.write_part(start, None, &mut output, false)?;
        output.finish()
    }

    /// Writes last-level tables of the rows in the gaps. Divides a large flush among threads.
    fn write_last(&self, gaps: &[&Gap]) -> Result<Vec<NewTable>> {
        let options = &self.env.core.options;
        let most = 1 + options.compaction_threads;
        let shares = straight::shares(gaps, self.memtables, options.table_bytes, most);
        let written = at_once("alv-flush", &shares, |gaps| self.write_share(gaps));
        let (tables, failed): (Vec<_>, Vec<_>) = written.into_iter().partition(Result::is_ok);
        let tables: Vec<NewTable> = tables.into_iter().flatten().flatten().collect();
        // After a failure the other threads write on to their ends: that is short, and rare.
        let failed = failed.into_iter().filter_map(Result::err);
        match failed.max_by_key(weight) {
            None => Ok(tables),
            Some(error) => {
                discard(&self.env.core, &tables);
                Err(error)
            }
        }
    }

    /// Writes last-level tables of the rows in these gaps.
    fn write_share(&self, gaps: &[Gap]) -> Result<Vec<NewTable>> {
        let cuts = Cuts {
            borders: gaps.iter().skip(1).map(|g| g.start.clone()).collect(),
            bytes_max: self.env.core.options.table_bytes,
        };
        let mut output = self.output(cuts, Carried::default(), true);
        for gap in gaps {
            self.write_part(&gap.start, gap.end.as_deref(), &mut output, true)?;
        }
        output.finish()
    }

    /// Returns true if each row in the gap leaves one version, and a deleted one nothing. A version
    /// kept only for a reader would stay in the last level until there is a write next to it; in an
    /// upper table the next compaction drops it.
    fn leaves_nothing_dead(&self, gap: &Gap) -> Result<bool> {
        let newest = straight::seqno_range(self.memtables).map_or(0, |(_, newest)| newest);
        if newest <= self.points.horizon() {
            return Ok(true);
        }
        let mut last: Option<Vec<u8>> = None;
        let mut dead = false;
        let (start, end) = (&gap.start, gap.end.as_deref());
        self.merge(
            start,
            end,
            true,
            |_| {},
            |key, _, kind, _| {
                dead |= kind.is_tombstone() || last.as_deref() == Some(key);
                last.get_or_insert_default().clear();
                last.get_or_insert_default().extend_from_slice(key);
                Ok(())
            },
        )?;
        Ok(!dead)
    }

    fn output(&self, cuts: Cuts, carried: Carried, last_level: bool) -> TreeOutput<'a> {
        let options = table_options(&self.tree.options(), last_level);
        let values = ValueInputs::default();
        let core = &*self.env.core;
        let mut output = Output::new(core, self.tree, options, cuts, carried, values);
        let bytes = self.memtables.iter().map(|m| m.bytes() as u64);
        output.expect_bytes(bytes.sum());
        output
    }

    /// Writes the rows of the memtables from `start` to before `end`.
    fn write_part(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        output: &mut TreeOutput<'_>,
        last_level: bool,
    ) -> Result<()> {
        let mut ends = straight::Ends::new(straight::seqno_range(self.memtables));
        let between_writers = Cell::new(false);
        let piece = self.env.core.options.table_bytes / straight::LEAST_PIECE;
        let counts = self.merge(
            start,
            end,
            last_level,
            |newest| between_writers.set(between_writers.get() || ends.is_passed(newest)),
            |key, seqno, kind, value| {
                if between_writers.take() && last_level && output.open_bytes() >= piece {
                    output.cut()?;
                }
                output.add(key, seqno, kind, value)
            },
        )?;
        self.env.core.metrics.folded(&counts);
        Ok(())
    }

    /// Merges the memtables from `start` to before `end`. Passes each entry, as it is to be stored,
    /// to `emit`, and before that the newest sequence number of each key to `at_key`.
    fn merge(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        last_level: bool,
        mut at_key: impl FnMut(SeqNo),
        emit: impl FnMut(&[u8], SeqNo, ValueKind, &[u8]) -> Result<()>,
    ) -> Result<FoldCounts> {
        let rules = FoldRules {
            points: &self.points,
            bottom: last_level,
        };
        let memtables = self.memtables.iter();
        let mut streams: Vec<_> = memtables
            .map(|m| Stream::memtable(m.rows.cursor(SeqNo::MAX), start, end))
            .collect();
        let mut counts = FoldCounts::default();
        let at_key = |newest| {
            at_key(newest);
            Ok(())
        };
        let (ranges, retire) = (&self.ranges, &self.retire);
        merge(
            &mut streams,
            ranges,
            retire,
            &rules,
            &mut counts,
            at_key,
            emit,
        )?;
        Ok(counts)
    }
}
