//! Compaction of one group: freezes its inputs, writes the outputs, installs them by
//! compare-and-swap.

use crate::sync::time::Instant;
use std::ops::Range;
use std::sync::Arc;

use crate::base::TableId;
use crate::compaction::env::CompactionEnv;
use crate::compaction::fold::{FoldCounts, FoldRules};
use crate::compaction::garbage::{value_usage, victims};
use crate::compaction::install::{Compacted, Inputs};
use crate::compaction::merge::{Stream, merge};
use crate::compaction::mode::Mode;
use crate::compaction::output::{Cuts, NewTable, Output, discard};
use crate::compaction::pick::Work;
use crate::compaction::separate::ValueInputs;
use crate::compaction::steps::Steps;
use crate::compaction::table_options::table_options;
use crate::db::core::Core;
use crate::db::memory::Memory;
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

impl Job {
    /// Runs the compaction to its end, in steps. On `NoSpace` nothing has changed and the job may
    /// be picked again. The same holds if it returned without a result because a writer committed.
    ///
    /// Calls `between_steps` from time to time, without any lock; an error of it ends the
    /// compaction.
    pub fn run(&self, env: &CompactionEnv, between_steps: &dyn Fn() -> Result<()>) -> Result<()> {
        let steps = Steps::new(env, self.mode, between_steps);
        let began = Instant::now();
        let version = Arc::clone(&self.tree.load().version);
        let Some(index) = version.find_low(&self.low) else {
            return Ok(());
        };
        if !self.is_current(&version.groups()[index]) {
            // Another job was quicker; due work is picked anew.
            return Ok(());
        }
        self.tell_begin(&env.core, &version.groups()[index]);
        let result = match self.run_in(env, &version, index, &steps) {
            Err(_) if steps.given_up() => Ok(0),
            result => result,
        };
        let took = began.elapsed();
        if let Ok(bytes @ 1..) = result {
            env.core
                .metrics
                .compaction_us
                .note_log2(took.as_micros() as u64);
            env.core.metrics.compaction_bytes.note_log2(bytes);
            if self.mode == Mode::ReadTriggered {
                env.core.metrics.read_triggered_bytes.add(bytes);
            }
        }
        env.core.events.tell(|| Event::CompactionEnd {
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

    fn tell_begin(&self, core: &Core, group: &Group) {
        core.events.tell(|| Event::CompactionBegin {
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
        env: &CompactionEnv,
        version: &Version,
        index: usize,
        steps: &Steps<'_>,
    ) -> Result<u64> {
        let began = Instant::now();
        let group = Arc::clone(&version.groups()[index]);
        let (inputs, merged) = match self.work {
            Work::LastLevel => self.compact_last_level(env, version, index, steps)?,
            Work::Tier { from, to } => self.compact_tier(env, version, index, from..to, steps)?,
        };
        env.core.sync_directory()?;
        // Compactions within the budget have other causes and merge few upper bytes with many:
        // their rate says nothing about how fast the backlog drains.
        let consumed: u64 = match self.work {
            Work::LastLevel if env.core.backlog.is_over_budget(&env.core.plan()) => {
                group.upper_bytes()
            }
            _ => 0,
        };
        let bytes = merged.bytes();
        env.install(&self.tree, &inputs, merged)?;
        env.core.metrics.compactions.add(1);
        env.core.backlog.note_drained(consumed, began.elapsed());
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
        env: &CompactionEnv,
        version: &Version,
        index: usize,
        steps: &Steps<'_>,
    ) -> Result<(Inputs, Compacted)> {
        let group = &version.groups()[index];
        let points = env.core.read_points.horizon_points();
        let memory = &env.core.memory;
        let mut inputs = Sources::upper(version, index, &group.upper, &points, memory)?;
        let last: Vec<_> = group
            .last
            .iter()
            .filter(|t| !inputs.hides(t, &points))
            .collect();
        last.iter().for_each(|table| inputs.add(table));
        let last = Stream::tables(last.iter().map(|t| t.scan_all(None, None)).collect())?;
        inputs.streams.extend(last);
        if !inputs.values.files.is_empty() {
            let trees = env.core.trees();
            let versions = trees.iter().map(|tree| Arc::clone(&tree.load().version));
            let versions: Vec<_> = versions.collect();
            inputs.values.victims = victims(&value_usage(&versions));
        }
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: env.core.options.table_bytes,
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
        env: &CompactionEnv,
        version: &Version,
        index: usize,
        range: Range<usize>,
        steps: &Steps<'_>,
    ) -> Result<(Inputs, Compacted)> {
        let group = &version.groups()[index];
        let points = env.core.read_points.horizon_points();
        let (upper, memory) = (&group.upper[range.clone()], &env.core.memory);
        let inputs = Sources::upper(version, index, upper, &points, memory)?;
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: u64::MAX,
        };
        let mut tables = self.write(steps, inputs, false, cuts, &points)?;
        let table = tables.pop();
        discard(&env.core, &tables);
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
        let core = steps.core();
        let Sources {
            mut streams,
            ranges,
            values,
            raw_bytes,
        } = inputs;
        let retire = self.tree.retire(&core.clock, &values.files);
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
        let mut output = Output::new(core, &*self.tree, options, cuts, carried, values);
        output.expect_bytes(raw_bytes);
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
        core.metrics.folded(&counts);
        output.finish()
    }
}

/// Inputs of a compaction: entries, newest source first, and the range deletes of all sources that
/// read points tell apart.
struct Sources {
    streams: Vec<Stream>,
    ranges: Arc<RangeDeletes>,
    values: ValueInputs,
    /// Bytes of keys and values in all input tables.
    raw_bytes: u64,
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
            raw_bytes: 0,
        };
        let from = (!low.is_empty()).then_some(low);
        for Upper { table, .. } in upper {
            if !inputs.hides(table, points) {
                inputs.add(table);
                let scan = table.scan_all(from, high);
                inputs.streams.extend(Stream::tables(vec![scan])?);
            }
        }
        Ok(inputs)
    }

    /// Adds the size of an input table and the value files that it points into.
    fn add(&mut self, table: &Table) {
        self.raw_bytes += table.raw_bytes();
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
