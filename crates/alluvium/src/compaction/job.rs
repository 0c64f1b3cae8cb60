//! One merge of one group: freeze its inputs, write the outputs, install them by compare-and-swap.

use std::sync::Arc;
use std::time::Instant;

use crate::base::{KeyspaceId, TableId};
use crate::compaction::fold::{FoldCounts, FoldRules};
use crate::compaction::merge::{Stream, merge};
use crate::compaction::output::{Cuts, NewTable, Output, discard, table_options};
use crate::compaction::pick::Work;
use crate::db::shared::Shared;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::version::group::{Group, Version};
use crate::wal::hard_io;

/// A picked merge. While it exists, its group is busy and no other job may touch it.
pub(crate) struct Job {
    pub tree: Arc<Tree>,
    /// Low key of the group.
    pub low: Vec<u8>,
    pub work: Work,
}

/// The tables that a merge replaces, as they were when it began. Newer upper tables stay as they are.
pub(crate) struct Inputs {
    pub keyspace: KeyspaceId,
    pub low: Vec<u8>,
    pub upper: Vec<TableId>,
    pub last: Vec<TableId>,
}

/// What a merge produced in place of its inputs.
pub(crate) enum Merged {
    /// The group's new last level, in key order.
    LastLevel(Vec<NewTable>),
    /// At most one upper table, which takes the place of the newest input with this run number.
    Upper { run: u64, table: Option<NewTable> },
}

impl Job {
    /// Runs the merge to its end. On `NoSpace` nothing has changed and the job may be picked again.
    pub fn run(&self, shared: &Shared) -> Result<()> {
        let began = Instant::now();
        let version = Arc::clone(&self.tree.load().version);
        let Some(index) = version.find_low(&self.low) else {
            return Ok(());
        };
        let group = Arc::clone(&version.groups()[index]);
        let (inputs, merged) = match self.work {
            Work::LastLevel => self.merge_last_level(shared, &version, index, &group)?,
            Work::Tier { from, to } => {
                self.merge_tier(shared, &version, index, &group, from, to)?
            }
        };
        shared
            .vfs
            .sync_dir(&shared.dir)
            .map_err(|e| hard_io("sync", &shared.dir, e))?;
        let consumed: u64 = match self.work {
            Work::LastLevel => group.upper_bytes(),
            Work::Tier { .. } => 0,
        };
        shared.install_merge(&self.tree, &inputs, merged)?;
        shared.metrics.compactions.add(1);
        shared.jobs.note_drained(consumed, began.elapsed());
        Ok(())
    }

    fn merge_last_level(
        &self,
        shared: &Shared,
        version: &Version,
        index: usize,
        group: &Group,
    ) -> Result<(Inputs, Merged)> {
        let mut streams = self.upper_streams(version, index, group, 0, group.upper.len())?;
        let last = group.last.iter().map(|t| t.scan_all(None, None)).collect();
        streams.extend(Stream::tables(last)?);
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: shared.options.partition_bytes,
        };
        let tables = self.write(shared, &mut streams, true, cuts)?;
        let inputs = Inputs {
            keyspace: self.tree.id,
            low: self.low.clone(),
            upper: group.upper.iter().map(|u| u.table.id()).collect(),
            last: group.last.iter().map(|t| t.id()).collect(),
        };
        Ok((inputs, Merged::LastLevel(tables)))
    }

    fn merge_tier(
        &self,
        shared: &Shared,
        version: &Version,
        index: usize,
        group: &Group,
        from: usize,
        to: usize,
    ) -> Result<(Inputs, Merged)> {
        let mut streams = self.upper_streams(version, index, group, from, to)?;
        let cuts = Cuts {
            borders: Vec::new(),
            bytes_max: u64::MAX,
        };
        let mut tables = self.write(shared, &mut streams, false, cuts)?;
        let table = tables.pop();
        discard(shared, &tables);
        let upper = group.upper[from..to].iter().map(|u| u.table.id()).collect();
        let inputs = Inputs {
            keyspace: self.tree.id,
            low: self.low.clone(),
            upper,
            last: Vec::new(),
        };
        Ok((
            inputs,
            Merged::Upper {
                run: group.upper[from].run,
                table,
            },
        ))
    }

    /// Upper tables `from..to` of the group, newest first, clipped to the group's range.
    fn upper_streams(
        &self,
        version: &Version,
        index: usize,
        group: &Group,
        from: usize,
        to: usize,
    ) -> Result<Vec<Stream>> {
        let low = (!group.low.is_empty()).then_some(&group.low[..]);
        let high = version.high(index);
        let mut streams = Vec::with_capacity(to - from);
        for upper in &group.upper[from..to] {
            streams.extend(Stream::tables(vec![upper.table.scan_all(low, high)])?);
        }
        Ok(streams)
    }

    fn write(
        &self,
        shared: &Shared,
        streams: &mut [Stream],
        last_level: bool,
        cuts: Cuts,
    ) -> Result<Vec<NewTable>> {
        let points = shared.read_points.horizon_points();
        let rules = FoldRules {
            points: &points,
            bottom: last_level,
        };
        let options = table_options(&self.tree.options, last_level);
        let mut output = Output::new(shared, &self.tree, options, cuts);
        let mut counts = FoldCounts::default();
        merge(streams, &rules, &mut counts, |key, seqno, kind, value| {
            output.add(key, seqno, kind, value)
        })?;
        shared.metrics.folded(&counts);
        output.finish()
    }
}
