//! Compaction of one group: freezes its inputs, writes the outputs, installs them by
//! compare-and-swap.

use crate::sync::time::Instant;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{KeyspaceId, TableId};
use crate::compaction::debt::is_over_budget;
use crate::compaction::fold::{FoldCounts, FoldRules};
use crate::compaction::merge::{Stream, merge};
use crate::compaction::output::{Cuts, NewTable, Output, discard, table_options};
use crate::compaction::pick::Work;
use crate::compaction::separate::ValueInputs;
use crate::compaction::steps::{Mode, Steps};
use crate::compaction::survey::{value_usage, victims};
use crate::db::memory::Memory;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::keyspace::tree::Tree;
use crate::memory::Use;
use crate::range_deletes::{Fragmenter, RangeDeletes};
use crate::read_points::DropPoints;
use crate::table::{SCAN_BYTES, Table};
use crate::version::group::{Group, Upper, Version};

/// A picked compaction. While it exists, its group is busy and no other job may touch it.
pub(crate) struct Job {
    pub tree: Arc<Tree>,
    /// Low key of the group.
    pub low: Vec<u8>,
    pub work: Work,
    /// Upper tables of the group when it was picked, newest first.
    pub picked: Vec<TableId>,
    /// Kind of compaction: decides when it yields to other work.
    pub mode: Mode,
}

/// Tables that a compaction replaces, as they were when it began. Newer upper tables stay as they
/// are.
pub(crate) struct Inputs {
    pub keyspace: KeyspaceId,
    pub low: Vec<u8>,
    /// Exclusive end of the group when the compaction began: an ingest may have split the group
    /// since.
    pub high: Option<Vec<u8>>,
    pub upper: Vec<TableId>,
    pub last: Vec<TableId>,
}

/// Output of a compaction, which replaces its inputs.
pub(crate) enum Compacted {
    /// New last level of the group, in key order.
    LastLevel(Vec<NewTable>),
    /// At most one upper table, which takes the place of the newest input with this run number.
    Upper { run: u64, table: Option<NewTable> },
}

impl Compacted {
    /// Returns the new tables of either kind.
    pub fn tables(&self) -> &[NewTable] {
        match self {
            Compacted::LastLevel(tables) => tables,
            Compacted::Upper { table, .. } => table.as_slice(),
        }
    }

    /// Returns the total size of the new files.
    pub fn bytes(&self) -> u64 {
        self.tables().iter().map(|t| t.record.file_bytes).sum()
    }
}

impl Job {
    /// Runs the compaction to its end, in steps. On `NoSpace` nothing has changed and the job may
    /// be picked again. The same holds if it returned without a result because a writer committed.
    pub fn run(&self, shared: &Shared) -> Result<()> {
        let steps = Steps::new(shared, self.mode);
        let began = Instant::now();
        let version = Arc::clone(&self.tree.load().version);
        let Some(index) = version.find_low(&self.low) else {
            return Ok(());
        };
        if !self.is_current(&version.groups()[index]) {
            // Another job was quicker; due work is picked anew.
            return Ok(());
        }
        self.tell_begin(shared, &version.groups()[index]);
        let result = match self.run_in(shared, &version, index, &steps) {
            Err(_) if steps.given_up() => Ok(0),
            result => result,
        };
        let took = began.elapsed();
        if let Ok(bytes @ 1..) = result {
            shared
                .metrics
                .compaction_us
                .note_log2(took.as_micros() as u64);
            shared.metrics.compaction_bytes.note_log2(bytes);
        }
        shared.events.tell(|| Event::CompactionEnd {
            keyspace: self.tree.name.clone(),
            output_bytes: *result.as_ref().unwrap_or(&0),
            took,
            error: match &result {
                Err(Error::Closed) | Ok(_) => None,
                Err(error) => Some(error.clone()),
            },
        });
        result.map(drop)
    }

    /// Resets the count of extra seeks after the compaction was not possible: scans have to cause
    /// as many again before it is retried.
    pub fn charge_scans_again(&self) {
        let version = Arc::clone(&self.tree.load().version);
        if let Some(index) = version.find_low(&self.low) {
            version.groups()[index].scan_cost.reset();
        }
    }

    fn tell_begin(&self, shared: &Shared, group: &Group) {
        shared.events.tell(|| Event::CompactionBegin {
            keyspace: self.tree.name.clone(),
            last_level: self.work == Work::LastLevel,
            input_bytes: match self.work {
                Work::LastLevel => group.upper_bytes() + group.last_bytes(),
                Work::Tier { from, to } => group.upper[from..to].iter().map(Upper::bytes).sum(),
            },
        });
    }

    /// Returns the bytes of the new tables; 0 if nothing was done.
    fn run_in(
        &self,
        shared: &Shared,
        version: &Version,
        index: usize,
        steps: &Steps<'_>,
    ) -> Result<u64> {
        let began = Instant::now();
        let group = Arc::clone(&version.groups()[index]);
        let (inputs, merged) = match self.work {
            Work::LastLevel => self.compact_last_level(shared, version, index, steps)?,
            Work::Tier { from, to } => {
                self.compact_tier(shared, version, index, from..to, steps)?
            }
        };
        shared.sync_directory()?;
        // Compactions within the budget have other causes and merge few upper bytes with many:
        // their rate says nothing about how fast the backlog drains.
        let consumed: u64 = match self.work {
            Work::LastLevel if is_over_budget(shared) => group.upper_bytes(),
            _ => 0,
        };
        let bytes = merged.bytes();
        shared.install_compaction(&self.tree, &inputs, merged)?;
        shared.metrics.compactions.add(1);
        shared.jobs.note_drained(consumed, began.elapsed());
        Ok(bytes)
    }

    /// Returns true if the group still holds exactly the upper tables that it had when it was
    /// picked. Only then do the indices of a tier compaction mean the same tables.
    fn is_current(&self, group: &Group) -> bool {
        let now = group.upper.iter().map(|u| u.table.id());
        now.eq(self.picked.iter().copied())
    }

    fn compact_last_level(
        &self,
        shared: &Shared,
        version: &Version,
        index: usize,
        steps: &Steps<'_>,
    ) -> Result<(Inputs, Compacted)> {
        let group = &version.groups()[index];
        let points = shared.read_points.horizon_points();
        let memory = &shared.memory;
        let mut inputs = Sources::upper(version, index, &group.upper, &points, memory)?;
        let last: Vec<_> = group
            .last
            .iter()
            .filter(|t| !inputs.hides(t, &points))
            .collect();
        last.iter().for_each(|table| inputs.add_values(table));
        let last = Stream::tables(last.iter().map(|t| t.scan_all(None, None)).collect())?;
        inputs.streams.extend(last);
        if !inputs.values.files.is_empty() {
            let trees: Vec<_> = shared.catalog.read().values().cloned().collect();
            let versions = trees.iter().map(|tree| Arc::clone(&tree.load().version));
            let versions: Vec<_> = versions.collect();
            inputs.values.victims = victims(&value_usage(&versions));
        }
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: shared.options.table_bytes,
        };
        let tables = self.write(steps, inputs, true, cuts, &points)?;
        let inputs = Inputs {
            keyspace: self.tree.id,
            low: self.low.clone(),
            high: version.high(index).map(<[u8]>::to_vec),
            upper: group.upper.iter().map(|u| u.table.id()).collect(),
            last: group.last.iter().map(|t| t.id()).collect(),
        };
        Ok((inputs, Compacted::LastLevel(tables)))
    }

    fn compact_tier(
        &self,
        shared: &Shared,
        version: &Version,
        index: usize,
        range: Range<usize>,
        steps: &Steps<'_>,
    ) -> Result<(Inputs, Compacted)> {
        let group = &version.groups()[index];
        let points = shared.read_points.horizon_points();
        let (upper, memory) = (&group.upper[range.clone()], &shared.memory);
        let inputs = Sources::upper(version, index, upper, &points, memory)?;
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: u64::MAX,
        };
        let mut tables = self.write(steps, inputs, false, cuts, &points)?;
        let table = tables.pop();
        discard(shared, &tables);
        let run = group.upper[range.start].run;
        let upper = group.upper[range].iter().map(|u| u.table.id()).collect();
        let inputs = Inputs {
            keyspace: self.tree.id,
            low: self.low.clone(),
            high: version.high(index).map(<[u8]>::to_vec),
            upper,
            last: Vec::new(),
        };
        Ok((inputs, Compacted::Upper { run, table }))
    }

    fn write(
        &self,
        steps: &Steps<'_>,
        inputs: Sources,
        last_level: bool,
        cuts: Cuts,
        points: &DropPoints,
    ) -> Result<Vec<NewTable>> {
        let shared = steps.shared();
        let Sources {
            mut streams,
            ranges,
            values,
        } = inputs;
        let retire = self.tree.retire(&shared.clock, &values.files);
        let rules = FoldRules {
            points,
            bottom: last_level,
        };
        let options = table_options(&self.tree.options(), last_level);
        let carried = if last_level {
            Arc::default()
        } else {
            Arc::clone(&ranges)
        };
        let mut output = Output::new(shared, &*self.tree, options, cuts, carried, values);
        output.charge_inputs(streams.len() * SCAN_BYTES + ranges.memory_bytes());
        let mut counts = FoldCounts::default();
        merge(
            &mut streams,
            &ranges,
            &retire,
            &rules,
            &mut counts,
            |_| steps.key(),
            |key, seqno, kind, value| {
                steps.wrote(key.len() + value.len());
                output.add(key, seqno, kind, value)
            },
        )?;
        shared.metrics.folded(&counts);
        output.finish()
    }
}

/// Inputs of a compaction: entries, newest source first, and the range deletes of all sources that
/// read points tell apart.
struct Sources {
    streams: Vec<Stream>,
    ranges: Arc<RangeDeletes>,
    values: ValueInputs,
}

impl Sources {
    /// Opens these upper tables of a group, clipped to its range. Skips tables without an entry
    /// that a reader sees.
    fn upper(
        version: &Version,
        index: usize,
        upper: &[Upper],
        points: &DropPoints,
        memory: &Memory,
    ) -> Result<Sources> {
        let low = &version.groups()[index].low[..];
        let high = version.high(index);
        let mut ranges = Fragmenter::default();
        for own in upper.iter().filter_map(|upper| upper.table.range_deletes()) {
            ranges.add_fragments(own, low, high);
        }
        // Charged while the ranges are cut; the result is charged with the output.
        let _charge = memory.charge(Use::Jobs, ranges.memory_bytes());
        let mut inputs = Sources {
            streams: Vec::with_capacity(upper.len()),
            ranges: Arc::new(ranges.finish(&points.told_apart())),
            values: ValueInputs::default(),
        };
        let from = (!low.is_empty()).then_some(low);
        for Upper { table, .. } in upper {
            if !inputs.hides(table, points) {
                inputs.add_values(table);
                let scan = table.scan_all(from, high);
                inputs.streams.extend(Stream::tables(vec![scan])?);
            }
        }
        Ok(inputs)
    }

    fn add_values(&mut self, table: &Table) {
        let files = table.value_files().iter();
        let files = files.map(|(id, file)| (*id, Arc::clone(file)));
        self.values.files.extend(files);
    }

    /// Returns true if the range deletes hide the whole table from all readers.
    fn hides(&self, table: &Table, points: &DropPoints) -> bool {
        let (first, last) = (table.first_key(), table.last_key());
        let horizon = points.horizon();
        (self.ranges).hide_all(first, last, table.max_seqno(), horizon)
    }
}
