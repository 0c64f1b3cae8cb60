//! Oracle: every commit with its number, the state after each commit, and the states allowed after
//! a crash.
//!
//! Before a client makes a commit, it records the commit's writes under a tag, and it adds a row
//! with this tag to the commit. The engine reports commit numbers when it assigns them, before the
//! log has the commits. So the history includes commits that were in progress at a crash, and every
//! commit that a reader can see.
//!
//! States keep each expiring row together with its deadline. A reader's time lies between two
//! moments that its client has recorded. So its result is compared with the state at the first
//! moment and at each deadline between the two.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use alluvium::simulation::threads::{ThreadId, current};

use crate::filter::{Fate, fate};
use crate::plan::Read;
use crate::reading::{Content, Seen, admits_filtered, expected};
use crate::state::{Row, State, Stored, Write, apply};

/// Bytes before the tag in a mark.
const MARK: [u8; 8] = *b"\xA5sim\x5A\xC3\x96\x0F";

/// Planned writes of a commit.
#[derive(Debug, Clone, Default)]
pub struct Intent {
    /// Writes in order.
    pub writes: Vec<Write>,
    /// True if row locks keep other commits away from the rows it writes.
    pub tracked: bool,
    /// Writes that are left out of `writes`: an insert and its delete, which an ingest may tell.
    pub left_out: usize,
}

/// Commit with a number.
#[derive(Debug, Clone)]
struct Commit {
    /// `None`: changes no rows.
    tag: Option<u64>,
    state: Arc<State>,
}

/// State of one simulated thread, about the commit that it is making.
#[derive(Debug, Default)]
struct Own {
    /// Tag of an ingest in progress. Its rows are not in the log.
    unmarked: Option<u64>,
    /// True while the thread commits to another database.
    aside: bool,
}

thread_local! {
    /// State of the threads of the run, which all share one thread of the operating system.
    static OWN: RefCell<HashMap<ThreadId, Own>> = RefCell::default();
}

/// Calls `body` with the state of the calling thread.
fn own<T>(body: impl FnOnce(&mut Own) -> T) -> T {
    OWN.with_borrow_mut(|threads| body(threads.entry(current().id()).or_default()))
}

/// Clears the state of all threads before a run, because a failed run may leave some.
pub fn forget_threads() {
    OWN.with_borrow_mut(HashMap::clear);
}

/// History of all commits (see the module).
#[derive(Debug, Default)]
pub struct History {
    intents: BTreeMap<u64, Intent>,
    commits: BTreeMap<u64, Commit>,
    next_tag: u64,
    /// Newest commit that was acknowledged at any durability.
    acknowledged: u64,
    /// Newest commit that survives every crash.
    durable: u64,
    /// Ingests with an unknown outcome.
    uncertain: Vec<u64>,
    /// Deadlines of all rows.
    deadlines: BTreeSet<u64>,
    /// Keyspace with a compaction filter, once one was set.
    filtered: Option<u32>,
}

/// Returns the key and value of the row that marks a commit. Each client has its own key, so that
/// marks never conflict.
pub fn mark(client: usize, tag: u64) -> (Vec<u8>, Vec<u8>) {
    let value = [&MARK[..], &tag.to_le_bytes()].concat();
    (format!("~{client}").into_bytes(), value)
}

fn tag_of(ops: &[u8]) -> Option<u64> {
    let at = ops.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    let tag = ops.get(at + MARK.len()..at + MARK.len() + 8)?;
    Some(u64::from_le_bytes(tag.try_into().ok()?))
}

/// Announces that the calling thread's next commit is the ingest `tag`. An ingest logs no
/// operations, so the thread identifies its commit.
pub fn set_unmarked(tag: Option<u64>) {
    own(|own| own.unmarked = tag);
}

/// Calls `body`, which works on a copy: its commits are not part of the history.
pub fn aside<T>(body: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            own(|own| own.aside = self.0);
        }
    }
    let _back = Back(own(|own| std::mem::replace(&mut own.aside, true)));
    body()
}

impl History {
    /// Returns a tag for a planned commit.
    pub fn intend(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Records the writes of the commit `tag` before it is made.
    pub fn say(&mut self, tag: u64, intent: Intent) {
        self.intents.insert(tag, intent);
    }

    /// Records that a filter may process the rows of this keyspace from now on.
    pub fn filter(&mut self, keyspace: u32) {
        self.filtered = Some(keyspace);
    }

    /// Returns whether `found` is the content of this state at one of these times.
    pub fn is_of(&self, found: &Content, state: &State, times: &[u64]) -> bool {
        found.is_of(state, times, self.filtered)
    }

    /// Returns whether a read may have this result in a state, at a time.
    pub fn admits(&self, read: &Read, id: u32, state: &State, now_ms: u64, seen: &Seen) -> bool {
        if self.filtered == Some(id) {
            admits_filtered(read, id, state, now_ms, seen)
        } else {
            expected(read, id, state, now_ms) == *seen
        }
    }

    /// Returns whether a row of a state may be absent for a reader, because it expires or a filter
    /// may have removed it.
    pub fn may_be_gone(&self, row: &Row, stored: &Stored) -> bool {
        stored.until_ms.is_some() || self.may_be_filtered(row, stored)
    }

    /// Returns whether a filter may have removed a row of a state.
    pub fn may_be_filtered(&self, row: &Row, stored: &Stored) -> bool {
        self.filtered == Some(row.0) && fate(&stored.value) == Fate::Removed
    }

    /// Records that some row expires at this time.
    pub fn expect_deadline(&mut self, until_ms: u64) {
        self.deadlines.insert(until_ms);
    }

    /// Returns the first moment and all deadlines up to the last one. Any reader between these
    /// moments sees the state at one of the returned times.
    pub fn times(&self, moments: RangeInclusive<u64>) -> Vec<u64> {
        let (first, last) = moments.into_inner();
        let later = self.deadlines.range(first + 1..=last.max(first + 1));
        let later = later.copied().filter(|time| *time <= last);
        std::iter::once(first).chain(later).collect()
    }

    /// Records the number that the engine has given to a commit.
    pub fn numbered(&mut self, seqno: u64, ops: &[u8]) {
        if own(|own| own.aside) {
            return;
        }
        let unmarked = || own(|own| own.unmarked.take());
        let tag = tag_of(ops).or_else(|| unmarked().inspect(|_| self.uncertain.push(seqno)));
        // Numbers that are given again belonged to failed commits.
        self.commits.split_off(&seqno);
        self.push(seqno, tag);
    }

    fn push(&mut self, seqno: u64, tag: Option<u64>) {
        let mut state = self.at(seqno.saturating_sub(1));
        if let Some(intent) = tag.and_then(|tag| self.intents.get(&tag)) {
            apply(Arc::make_mut(&mut state), &intent.writes);
        }
        self.commits.insert(seqno, Commit { tag, state });
    }

    /// Returns the state after this commit.
    pub fn at(&self, seqno: u64) -> Arc<State> {
        let last = self.commits.range(..=seqno).next_back();
        last.map(|(_, commit)| Arc::clone(&commit.state))
            .unwrap_or_default()
    }

    /// Returns the number of a commit, if it has one.
    pub fn seqno_of(&self, tag: u64) -> Option<u64> {
        let found = self.commits.iter().rev().find(|(_, c)| c.tag == Some(tag));
        found.map(|(seqno, _)| *seqno)
    }

    /// Returns the planned writes of a commit.
    pub fn intent(&self, tag: u64) -> Option<&Intent> {
        self.intents.get(&tag)
    }

    /// Returns the newest commit number.
    pub fn last(&self) -> u64 {
        self.commits.keys().next_back().copied().unwrap_or(0)
    }

    /// Records an acknowledged commit; with `durable` it must survive every crash. Returns its
    /// number.
    pub fn acknowledge(&mut self, tag: u64, durable: bool) -> Result<u64, String> {
        let seqno = self
            .seqno_of(tag)
            .ok_or("an acknowledged commit has no number")?;
        self.uncertain.retain(|number| *number != seqno);
        self.acknowledged = self.acknowledged.max(seqno);
        if durable {
            self.durable = self.durable.max(seqno);
        }
        Ok(seqno)
    }

    /// Records that everything up to this commit is durable.
    pub fn make_durable(&mut self, seqno: u64) {
        self.acknowledged = self.acknowledged.max(seqno);
        self.durable = self.durable.max(seqno);
    }

    /// Records that a commit has certainly failed: none of its writes was applied.
    pub fn forget(&mut self, tag: u64) {
        if let Some(seqno) = self.seqno_of(tag) {
            self.uncertain.retain(|number| *number != seqno);
            let later: Vec<_> = self.commits.split_off(&seqno).into_iter().collect();
            for (seqno, commit) in later {
                self.push(seqno, commit.tag.filter(|other| *other != tag));
            }
        }
    }

    /// Returns whether some state up to this commit is uncertain.
    pub fn is_uncertain(&self, seqno: u64) -> bool {
        self.uncertain.iter().any(|number| *number <= seqno)
    }

    /// Returns the commits between two numbers (exclusive) that write this row under row locks.
    pub fn tracked_between(&self, after: u64, before: u64, row: &Row) -> Vec<u64> {
        self.between(after, before, |intent| intent.locks(row))
    }

    /// Returns true if a commit between two numbers (exclusive) may have written this row without
    /// its lock: an untracked one, or one with a range delete.
    pub fn has_unlocked_between(&self, after: u64, before: u64, row: &Row) -> bool {
        let found = self.between(after, before, |intent| {
            intent.touching(row).next().is_some() && !intent.locks(row)
        });
        !found.is_empty()
    }

    fn between(&self, after: u64, before: u64, is_meant: impl Fn(&Intent) -> bool) -> Vec<u64> {
        let between = self.commits.range(after + 1..before.max(after + 1));
        let meant = between.filter(|(_, commit)| {
            let intent = commit.tag.and_then(|tag| self.intents.get(&tag));
            intent.is_some_and(&is_meant)
        });
        meant.map(|(seqno, _)| *seqno).collect()
    }

    /// Returns the smallest commit number that a crash may leave. `killed`: only the process died,
    /// and there is a log.
    pub fn floor(&self, killed: bool) -> u64 {
        if killed {
            self.acknowledged
        } else {
            self.durable
        }
    }

    /// Returns the newest commit number, at least `floor`, with a state that equals `found`.
    pub fn find(&self, floor: u64, found: &Content) -> Option<u64> {
        let times = self.times(found.read_at.clone());
        let same = |state: &State| self.is_of(found, state, &times);
        let later = self.commits.range(floor..).rev();
        let later = later.map(|(seqno, commit)| (*seqno, Arc::clone(&commit.state)));
        let mut all = later.chain([(floor, self.at(floor))]);
        all.find(|(_, state)| same(state)).map(|(seqno, _)| seqno)
    }

    /// Returns whether some commit ever wrote this value to this row.
    pub fn has_ever_written(&self, row: &Row, value: &[u8]) -> bool {
        let wrote = |write: &Write| match write {
            Write::Row(own, Some(stored)) => {
                let replaced = || {
                    self.filtered == Some(row.0)
                        && fate(&stored.value) == Fate::Replaced(value.to_vec())
                };
                own == row && (*stored.value == *value || replaced())
            }
            _ => false,
        };
        let mut intents = self.intents.values();
        intents.any(|intent| intent.writes.iter().any(wrote))
    }

    /// Returns the first commit in `from..=to` that any client made.
    pub fn next_tagged(&self, from: u64, to: u64) -> Option<u64> {
        let mut commits = self.commits.range(from..=to.max(from));
        let found = commits.find(|(seqno, commit)| commit.tag.is_some() && **seqno <= to);
        found.map(|(seqno, _)| *seqno)
    }

    /// Returns the tag of the commit with this number; `None` if it changes no rows.
    pub fn tag_at(&self, seqno: u64) -> Option<u64> {
        self.commits.get(&seqno).and_then(|commit| commit.tag)
    }

    /// Begins a new incarnation at this commit and discards later ones.
    pub fn cut(&mut self, seqno: u64) {
        self.commits.split_off(&(seqno + 1));
        self.acknowledged = self.acknowledged.min(seqno);
        self.uncertain.clear();
    }
}

impl Intent {
    /// Returns the rows that the commit certainly writes.
    pub fn rows(&self) -> Vec<Row> {
        let rows = self.writes.iter().filter_map(|write| match write {
            Write::Row(row, _) if self.has_row(row) => Some(row.clone()),
            _ => None,
        });
        rows.collect()
    }

    /// Returns the least and the most number of rows that an ingest of the writes may tell.
    pub fn rows_told(&self) -> RangeInclusive<u64> {
        let certain: BTreeSet<_> = self.rows().into_iter().collect();
        let touched = self.writes.iter().filter_map(|write| match write {
            Write::Row(row, _) => Some(row),
            Write::Range(..) => None,
        });
        let touched: BTreeSet<_> = touched.collect();
        certain.len() as u64..=(touched.len() + self.left_out) as u64
    }

    /// Returns the writes that concern a row, the last one first.
    fn touching<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = &'a Write> {
        self.writes.iter().rev().filter(move |write| match write {
            Write::Row(own, _) => own == row,
            Write::Range(keyspace, start, end) => {
                *keyspace == row.0 && *start <= row.1 && row.1 < *end
            }
        })
    }

    /// Returns true if the commit certainly writes the row itself. A write undone by a range delete
    /// of the same commit does not count, since a batch does not lock its row. Nor does an insert
    /// that the same commit deletes.
    fn has_row(&self, row: &Row) -> bool {
        let mut touching = self.touching(row);
        match touching.next() {
            Some(Write::Row(_, Some(_))) => true,
            Some(Write::Row(_, None)) => touching.next().is_none(),
            Some(Write::Range(..)) | None => false,
        }
    }

    /// Returns true if the commit certainly writes the row itself, under its lock.
    fn locks(&self, row: &Row) -> bool {
        self.tracked && self.has_row(row)
    }
}
