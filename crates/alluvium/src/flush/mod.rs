//! From sealed memtables to tables: one multi-way merge for all generations that wait, one manifest edit for all
//! keyspaces.
//!
//! Merging several sealed memtables at once makes large flush units, so that the tables below are merged less
//! often, while each active memtable stays small and quick. Outputs are cut at the borders of the keyspace's
//! groups. Order: tables written and synced, directory synced, edit synced, new state published, old log segments
//! deleted. The log was synced through the newest flushed commit when its segment was left.

use crate::sync::time::Instant;
use std::sync::Arc;

use crate::base::SeqNo;
use crate::commit::SealedGeneration;
use crate::compaction::fold::{FoldCounts, FoldRules};
use crate::compaction::merge::{Stream, merge};
use crate::compaction::output::{Carried, Cuts, NewTable, Output, discard, table_options};
use crate::compaction::separate::ValueInputs;
use crate::compaction::update_admission;
use crate::db::reserve::Taker;
use crate::db::shared::Shared;
use crate::db::store::FlushedTree;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::range_deletes::RangeDeletes;
use crate::table::ValueFiles;
use crate::wal::{LateSync, hard_io};

/// The flusher thread: ends when the database closes or is poisoned.
pub(crate) fn run(shared: &Shared) {
    flush_what_comes(shared);
    // The poison may be a commit's, who wakes nobody: whoever sleeps for a flush must learn that there will be none.
    shared.look_at_flushes();
}

fn flush_what_comes(shared: &Shared) {
    while let Some(generations) = shared.next_flush() {
        // Sealed memtables have taken from the cache, which nobody may be reading.
        shared.cache.trim();
        let memtable_bytes = generations.iter().map(|g| g.bytes as u64).sum();
        shared.events.tell(|| Event::FlushBegin { memtable_bytes });
        let began = Instant::now();
        if !flush_all(shared, &generations, memtable_bytes, began) {
            return;
        }
        shared.events.tell(|| Event::FlushEnd {
            memtable_bytes,
            took: began.elapsed(),
        });
        update_admission(shared);
        shared.jobs.wake();
    }
}

/// Flushes these generations: as one unit, or one by one where there is too little room for all of them. False: the
/// flusher is to end, because the database closes or is poisoned.
fn flush_all(
    shared: &Shared,
    generations: &[SealedGeneration],
    memtable_bytes: u64,
    began: Instant,
) -> bool {
    let mut left = generations;
    let mut unit = left.len();
    // Ends with the flush, with the database, or with its poisoning.
    while !left.is_empty() {
        let (now, later) = left.split_at(unit.min(left.len()));
        match flush(shared, now) {
            Ok(()) => {
                left = later;
                if left.is_empty() {
                    // Before anybody hears that it is done.
                    let took = began.elapsed().as_micros() as u64;
                    shared.metrics.flush_us.note_log2(took);
                    shared.metrics.flush_bytes.note_log2(memtable_bytes);
                }
                shared.flush_done(now);
                // Each one that is flushed lets segments of the log go.
                shared.found_space();
            }
            // Nothing was installed; the memtables are still there.
            Err(error @ Error::NoSpace { .. }) => {
                let spent = shared.spend_reserve(Taker::Background, &error);
                if spent || unit > 1 {
                    unit = 1;
                    continue;
                }
                // Space may come back.
                shared.flush_found_no_space(error);
                if !shared.pause_for_space() {
                    return false;
                }
            }
            Err(error) => {
                shared.poison.set(error);
                return false;
            }
        }
    }
    true
}

/// Flushes generations (oldest first) as one unit.
fn flush(shared: &Shared, generations: &[SealedGeneration]) -> Result<()> {
    let mut flushed = Vec::new();
    let written = write_all(shared, generations, &mut flushed);
    if let Err(error) = written {
        for flush in &flushed {
            discard(shared, &flush.tables);
        }
        return Err(error);
    }
    if let Some(last) = generations.last() {
        // Before the tables are named: what they hold must not survive a power loss that takes commits before it.
        let syncer = last.log.as_ref().and_then(|log| log.syncer.as_ref());
        syncer.map_or(Ok(()), LateSync::sync)?;
        shared.install_flush(flushed, last)?;
    }
    shared.metrics.flushes.add(1);
    Ok(())
}

fn write_all(
    shared: &Shared,
    generations: &[SealedGeneration],
    flushed: &mut Vec<FlushedTree>,
) -> Result<()> {
    for (tree, memtables) in by_tree(generations) {
        if !tree.is_dropped() {
            let tables = write_tables(shared, &tree, &memtables)?;
            flushed.push(FlushedTree {
                tree,
                memtables,
                tables,
            });
        }
    }
    shared
        .vfs
        .sync_dir(&shared.dir)
        .map_err(|e| hard_io("sync", &shared.dir, e))
}

/// The memtables of each keyspace, newest first.
fn by_tree(generations: &[SealedGeneration]) -> Vec<(Arc<Tree>, Vec<Arc<TreeMemtable>>)> {
    let mut trees: Vec<(Arc<Tree>, Vec<Arc<TreeMemtable>>)> = Vec::new();
    for (tree, memtable) in generations.iter().rev().flat_map(|g| &g.memtables) {
        match trees.iter_mut().find(|(t, _)| t.id == tree.id) {
            Some((_, memtables)) => memtables.push(Arc::clone(memtable)),
            None => trees.push((Arc::clone(tree), vec![Arc::clone(memtable)])),
        }
    }
    trees
}

fn write_tables(
    shared: &Shared,
    tree: &Tree,
    memtables: &[Arc<TreeMemtable>],
) -> Result<Vec<NewTable>> {
    let points = shared.read_points.horizon_points();
    let retire = tree.retire(&shared.clock, &ValueFiles::default());
    let rules = FoldRules {
        points: &points,
        bottom: false,
    };
    let mut ranges = RangeDeletes::default();
    for memtable in memtables {
        memtable
            .range_deletes()
            .iter()
            .for_each(|r| ranges.add_all(r));
    }
    let version = Arc::clone(&tree.load().version);
    let borders = version.groups()[1..]
        .iter()
        .map(|g| g.low.clone())
        .collect();
    let cuts = Cuts {
        borders,
        bytes_max: u64::MAX,
    };
    let options = table_options(&tree.options(), false);
    let carried = Carried::new(&ranges, &points);
    let mut output = Output::new(shared, tree, options, cuts, carried, ValueInputs::default());
    let mut streams: Vec<_> = memtables
        .iter()
        .map(|m| Stream::memtable(m.rows.cursor(SeqNo::MAX)))
        .collect();
    let mut counts = FoldCounts::default();
    merge(
        &mut streams,
        &ranges,
        &retire,
        &rules,
        &mut counts,
        || Ok(()),
        |key, seqno, kind, value| output.add(key, seqno, kind, value),
    )?;
    shared.metrics.folded(&counts);
    output.finish()
}
