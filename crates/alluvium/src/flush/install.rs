//! Installing a flush: its tables replace its memtables.

use crate::sync::collections::HashSet;
use std::sync::Arc;

use crate::commit::SealedGeneration;
use crate::compaction::Claim;
use crate::compaction::output::{NewTable, discard};
use crate::db::core::Core;
use crate::db::split::{Placed, plan_ingest, plan_joins, upper_edits};
use crate::db::store::Store;
use crate::error::Result;
use crate::flush::env::FlushEnv;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::range_deletes::RangeDeletes;
use crate::version::{GroupEdit, GroupState, VersionEdit};

/// Output of a flush for one keyspace.
pub(crate) struct FlushedTree<'a> {
    pub tree: Arc<Tree>,
    /// Memtables that the tables replace.
    pub memtables: Vec<Arc<TreeMemtable>>,
    /// New upper tables, at most one for each group.
    pub upper: Vec<NewTable>,
    /// New last-level tables, which overlap nothing else: see `flush/straight.rs`.
    pub last: Vec<NewTable>,
    /// Claims of the groups that the last-level tables belong to.
    pub claims: Vec<Claim<'a>>,
}

impl FlushedTree<'_> {
    /// Deletes the files.
    pub fn discard(&self, core: &Core) {
        discard(core, &self.upper);
        discard(core, &self.last);
    }

    /// Returns true if the group at `low` gets last-level tables.
    fn has_claimed(&self, low: &[u8]) -> bool {
        self.claims.iter().any(|claim| claim.low() == low)
    }
}

impl FlushEnv {
    /// Installs the tables of a flush up to generation `last`, and releases its memtables and log
    /// segments.
    pub fn install(&self, flushed: Vec<FlushedTree<'_>>, last: &SealedGeneration) -> Result<()> {
        let last_seqno = last.last_seqno;
        let oldest_needed = last.log.as_ref().map(|log| log.oldest_needed);
        let core = &*self.core;
        let mut store = self.store.lock();
        let run = store.next_run();
        let (live, dropped): (Vec<_>, Vec<_>) = flushed
            .into_iter()
            .partition(|f| store.state().keyspaces.contains_key(&f.tree.id));
        let mut edit = VersionEdit {
            next_table: Some(core.files.peek_next_table()),
            last_seqno: Some(last_seqno),
            oldest_segment: oldest_needed,
            read_clock_ms: Store::read_clock(core),
            ..VersionEdit::default()
        };
        for flush in &live {
            edit.flushed_seqno.push((flush.tree.id, last_seqno));
            edit.groups.extend(flush_edits(self, &store, flush, run));
        }
        dropped.iter().for_each(|flush| flush.discard(core));
        let tables = live.iter().flat_map(|f| [&f.upper[..], &f.last[..]]);
        let named: Vec<&[NewTable]> = tables.collect();
        store.append_naming(core, &edit, &named)?;
        store.note_flushed(last_seqno, &last.prepared);
        for flush in &live {
            let bytes = |tables: &[NewTable]| tables.iter().map(|t| t.record.file_bytes).sum();
            let counters = &flush.tree.counters;
            counters.flushed_bytes.add(bytes(&flush.upper));
            counters.last_bytes.add(bytes(&flush.last));
            store.add_tables(&flush.upper);
            store.add_tables(&flush.last);
            let version = store.next_version(&flush.tree);
            flush.tree.change(|state| {
                state
                    .sealed
                    .retain(|m| !flush.memtables.iter().any(|f| Arc::ptr_eq(f, m)));
                state.version = version;
            });
        }
        store.release_unnamed(core);
        drop(store);
        // Called without the log's mutex, because its holder may wait for this flush. A thread that
        // is about to sleep until something is durable may miss this, and wakes up at the next sync
        // of the log.
        self.progress.note_durable(last_seqno);
        live.iter()
            .for_each(|flush| core.release_cursors(&flush.tree));
        if let Some(oldest_needed) = oldest_needed {
            self.old_segments.trim(core, oldest_needed);
        }
        Ok(())
    }
}

/// Returns the manifest edits of a flushed keyspace. Groups are joined only here: the one flush
/// thread has just written its tables, so no unfinished table was cut at a border that a join
/// removes.
fn flush_edits(env: &FlushEnv, store: &Store, flush: &FlushedTree<'_>, run: u64) -> Vec<GroupEdit> {
    let id = flush.tree.id;
    let groups = &store.state().keyspaces[&id].groups;
    let table_bytes = env.core.options.table_bytes;
    let (beside, others): (Vec<_>, Vec<_>) = (flush.upper.iter()).partition(|t| {
        groups
            .low_of(&t.record.first_key)
            .is_some_and(|low| flush.has_claimed(low))
    });
    let mut edits: Vec<GroupEdit> = (others.into_iter())
        .flat_map(|t| upper_edits(id, groups, run, &t.record, t.below.as_deref()))
        .collect();
    let beside = beside.into_iter().map(|t| (Some(run), t.record.clone()));
    let last = flush.last.iter().map(|t| (None, t.record.clone()));
    let mut placed: Vec<Placed> = beside.chain(last).collect();
    placed.sort_by(|(_, a), (_, b)| a.first_key.cmp(&b.first_key));
    edits.extend(plan_ingest(id, groups, &placed, table_bytes));
    let reached: HashSet<&[u8]> = edits.iter().map(GroupEdit::low).collect();
    let is_quiet = |low: &[u8], group: &GroupState| {
        group.upper.is_empty() && !reached.contains(low) && !env.jobs.is_busy(&flush.tree, low)
    };
    let joins = plan_joins(id, groups, is_quiet, table_bytes);
    edits.extend(joins);
    edits.extend(hidden_last(env, store, flush));
    edits
}

/// Returns edits that remove last-level tables if a flushed range delete hides all their entries
/// from every reader: their space is freed without a compaction. A compaction that reads one of
/// them now fails at its install and is started again.
fn hidden_last(env: &FlushEnv, store: &Store, flush: &FlushedTree<'_>) -> Vec<GroupEdit> {
    let mut ranges = RangeDeletes::default();
    for table in &flush.upper {
        // The tables are parts of one flush, in key order.
        let own = table.table.range_deletes();
        own.iter().for_each(|own| ranges.append(own));
    }
    if ranges.is_empty() {
        return Vec::new();
    }
    let horizon = env.core.read_points.horizon();
    let keyspace = flush.tree.id;
    let mut edits = Vec::new();
    for (low, group) in store.state().keyspaces[&keyspace].groups.iter() {
        let hidden = group.last.iter().filter(|r| {
            let newest = r.global_seqno.unwrap_or(0).max(r.max_seqno);
            ranges.hide_all(&r.first_key, &r.last_key, newest, horizon)
        });
        edits.extend(hidden.map(|record| GroupEdit::RemoveLast {
            keyspace,
            low: low.clone(),
            table: record.id,
        }));
    }
    edits
}
