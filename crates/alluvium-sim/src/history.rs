//! The oracle: every commit with its number, the state after each of them, and what must be left after a crash.
//!
//! A client says what a commit will do before it asks for it, under a number of its own, and puts this number as a row
//! into the commit. The engine tells the numbers of commits as it gives them, before the log has them; so the history
//! knows the commits that were under way at a crash too, and no reader ever sees a commit that the history does not know.
//!
//! Rows that expire stand in a state with their time. A reader's time lies between two moments that its client knows, so
//! what it sees is judged at each time between them at which a row goes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use alluvium::simulation::threads::{ThreadId, current};

use crate::filter::{Fate, fate};
use crate::plan::Read;
use crate::reading::{Content, Seen, admits_filtered, expected};

/// The bytes in front of a commit's own number.
const MARK: [u8; 8] = *b"\xA5sim\x5A\xC3\x96\x0F";

/// The id of a keyspace and a key.
pub type Row = (u32, Vec<u8>);

/// A row's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The bytes.
    pub value: Arc<[u8]>,
    /// From when on, in milliseconds, the row is gone; `None`: it stays.
    pub until_ms: Option<u64>,
}

/// All rows of all keyspaces that ever were, expired or not.
pub type State = BTreeMap<Row, Stored>;

/// What a commit does to rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes or removes one row.
    Row(Row, Option<Stored>),
    /// Removes a range.
    Range(u32, Vec<u8>, Vec<u8>),
}

/// What a commit is going to be.
#[derive(Debug, Clone, Default)]
pub struct Intent {
    /// In order.
    pub writes: Vec<Write>,
    /// Whether row locks kept others away from the rows that it writes.
    pub tracked: bool,
}

/// A commit that was given a number.
#[derive(Debug, Clone)]
struct Commit {
    /// `None`: no rows change.
    tag: Option<u64>,
    state: Arc<State>,
}

/// What is known of the commits of one simulated thread at a time.
#[derive(Debug, Default)]
struct Own {
    /// The commit that it makes without rows of its own in the log: an ingest.
    unmarked: Option<u64>,
    /// What it commits, it commits to another database.
    aside: bool,
}

thread_local! {
    /// Of the threads of the run, which are all on one thread of the system.
    static OWN: RefCell<HashMap<ThreadId, Own>> = RefCell::default();
}

/// Does something with what is known of the calling thread.
fn own<T>(body: impl FnOnce(&mut Own) -> T) -> T {
    OWN.with_borrow_mut(|threads| body(threads.entry(current().id()).or_default()))
}

/// Before a run: what a failed one has left belongs to nobody.
pub fn forget_threads() {
    OWN.with_borrow_mut(HashMap::clear);
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    intents: BTreeMap<u64, Intent>,
    commits: BTreeMap<u64, Commit>,
    next_tag: u64,
    /// The newest commit that was acknowledged at any level.
    acknowledged: u64,
    /// The newest commit that survives everything.
    durable: u64,
    /// Ingests whose fate nobody knows yet.
    uncertain: Vec<u64>,
    /// Each time at which some row goes.
    deadlines: BTreeSet<u64>,
    /// The keyspace whose rows a filter may have met, once it was set.
    filtered: Option<u32>,
}

/// The row that marks a commit: key and value. One key for each client, so that it meets nobody.
pub fn mark(client: usize, tag: u64) -> (Vec<u8>, Vec<u8>) {
    let value = [&MARK[..], &tag.to_le_bytes()].concat();
    (format!("~{client}").into_bytes(), value)
}

fn tag_of(ops: &[u8]) -> Option<u64> {
    let at = ops.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    let tag = ops.get(at + MARK.len()..at + MARK.len() + 8)?;
    Some(u64::from_le_bytes(tag.try_into().ok()?))
}

/// Makes the calling thread's next number that of the commit `tag`, whose operations the log does not have.
pub fn set_unmarked(tag: Option<u64>) {
    own(|own| own.unmarked = tag);
}

/// Does something with a copy, whose commits are no part of any history.
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

impl Stored {
    /// A row that stays.
    pub fn lasting(value: &[u8]) -> Stored {
        let value = Arc::from(value);
        Stored {
            value,
            until_ms: None,
        }
    }

    /// Whether the row is there for a reader of this time.
    pub fn is_there(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| now_ms < until)
    }
}

/// Does what a commit does.
pub fn apply(state: &mut State, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Row(row, Some(value)) => {
                state.insert(row.clone(), value.clone());
            }
            Write::Row(row, None) => {
                state.remove(row);
            }
            Write::Range(keyspace, start, end) => {
                let inside = |(id, key): &Row| id == keyspace && start <= key && key < end;
                state.retain(|row, _| !inside(row));
            }
        }
    }
}

impl History {
    /// A number for a commit to be.
    pub fn intend(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Says what the commit of this number will do.
    pub fn say(&mut self, tag: u64, intent: Intent) {
        self.intents.insert(tag, intent);
    }

    /// From now on a filter may meet the rows of this keyspace.
    pub fn filter(&mut self, keyspace: u32) {
        self.filtered = Some(keyspace);
    }

    /// Whether everything that is found is what this state shows at one of these times.
    pub fn is_of(&self, found: &Content, state: &State, times: &[u64]) -> bool {
        found.is_of(state, times, self.filtered)
    }

    /// Whether a read may show this in a state, at a time.
    pub fn admits(&self, read: &Read, id: u32, state: &State, now_ms: u64, seen: &Seen) -> bool {
        match self.filtered == Some(id) {
            true => admits_filtered(read, id, state, now_ms, seen),
            false => expected(read, id, state, now_ms) == *seen,
        }
    }

    /// Whether a row that a state has may be gone for a reader: it expires, or a filter may have removed it.
    pub fn may_be_gone(&self, row: &Row, stored: &Stored) -> bool {
        stored.until_ms.is_some() || self.may_be_filtered(row, stored)
    }

    /// Whether a filter may have removed a row that a state has.
    pub fn may_be_filtered(&self, row: &Row, stored: &Stored) -> bool {
        self.filtered == Some(row.0) && fate(&stored.value) == Fate::Removed
    }

    /// Some row will go at this time.
    pub fn expect_deadline(&mut self, until_ms: u64) {
        self.deadlines.insert(until_ms);
    }

    /// Times of which one shows each reader of these moments what it must see.
    pub fn times(&self, moments: RangeInclusive<u64>) -> Vec<u64> {
        let (first, last) = moments.into_inner();
        let later = self.deadlines.range(first + 1..=last.max(first + 1));
        let later = later.copied().filter(|time| *time <= last);
        std::iter::once(first).chain(later).collect()
    }

    /// The engine gives a number to a commit.
    pub fn numbered(&mut self, seqno: u64, ops: &[u8]) {
        if own(|own| own.aside) {
            return;
        }
        let unmarked = || own(|own| own.unmarked.take());
        let tag = tag_of(ops).or_else(|| unmarked().inspect(|_| self.uncertain.push(seqno)));
        // Numbers that are given again belong to commits that failed.
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

    /// The state after this commit.
    pub fn at(&self, seqno: u64) -> Arc<State> {
        let last = self.commits.range(..=seqno).next_back();
        last.map(|(_, commit)| Arc::clone(&commit.state))
            .unwrap_or_default()
    }

    /// The number of a commit, if it has one.
    pub fn seqno_of(&self, tag: u64) -> Option<u64> {
        let found = self.commits.iter().rev().find(|(_, c)| c.tag == Some(tag));
        found.map(|(seqno, _)| *seqno)
    }

    /// What a commit was to do.
    pub fn intent(&self, tag: u64) -> Option<&Intent> {
        self.intents.get(&tag)
    }

    /// The newest number.
    pub fn last(&self) -> u64 {
        self.commits.keys().next_back().copied().unwrap_or(0)
    }

    /// A commit was acknowledged; `durable`: for ever. Its number.
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

    /// Everything up to this commit was acknowledged for ever.
    pub fn make_durable(&mut self, seqno: u64) {
        self.acknowledged = self.acknowledged.max(seqno);
        self.durable = self.durable.max(seqno);
    }

    /// A commit has failed for certain: nothing of it was applied.
    pub fn forget(&mut self, tag: u64) {
        if let Some(seqno) = self.seqno_of(tag) {
            self.uncertain.retain(|number| *number != seqno);
            let later: Vec<_> = self.commits.split_off(&seqno).into_iter().collect();
            for (seqno, commit) in later {
                self.push(seqno, commit.tag.filter(|other| *other != tag));
            }
        }
    }

    /// Whether some state up to this commit is not known for certain.
    pub fn is_uncertain(&self, seqno: u64) -> bool {
        self.uncertain.iter().any(|number| *number <= seqno)
    }

    /// Commits after the first number and before the second whose row locks had to keep them from this row.
    pub fn tracked_between(&self, after: u64, before: u64, row: &Row) -> Vec<u64> {
        let between = self.commits.range(after + 1..before.max(after + 1));
        let writes_it = |commit: &Commit| {
            let intent = commit.tag.and_then(|tag| self.intents.get(&tag));
            intent.is_some_and(|intent| intent.tracked && intent.has_row(row))
        };
        between
            .filter(|(_, c)| writes_it(c))
            .map(|(seqno, _)| *seqno)
            .collect()
    }

    /// The least number that a crash may leave; `killed`: only the process died, and there is a log.
    pub fn floor(&self, killed: bool) -> u64 {
        if killed {
            self.acknowledged
        } else {
            self.durable
        }
    }

    /// The newest number from `floor` on whose state shows exactly what was found.
    pub fn find(&self, floor: u64, found: &Content) -> Option<u64> {
        let times = self.times(found.read_at.clone());
        let same = |state: &State| self.is_of(found, state, &times);
        let later = self.commits.range(floor..).rev();
        let later = later.map(|(seqno, commit)| (*seqno, Arc::clone(&commit.state)));
        let mut all = later.chain([(floor, self.at(floor))]);
        all.find(|(_, state)| same(state)).map(|(seqno, _)| seqno)
    }

    /// Whether some commit ever wrote this row so.
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

    /// The first commit of a client's from this number on, up to another one.
    pub fn next_tagged(&self, from: u64, to: u64) -> Option<u64> {
        let mut commits = self.commits.range(from..=to.max(from));
        let found = commits.find(|(seqno, commit)| commit.tag.is_some() && **seqno <= to);
        found.map(|(seqno, _)| *seqno)
    }

    /// Whose commit has this number: nobody's if no rows change.
    pub fn tag_at(&self, seqno: u64) -> Option<u64> {
        self.commits.get(&seqno).and_then(|commit| commit.tag)
    }

    /// A new incarnation begins with this commit: later ones never were.
    pub fn cut(&mut self, seqno: u64) {
        self.commits.split_off(&(seqno + 1));
        self.acknowledged = self.acknowledged.min(seqno);
        self.uncertain.clear();
    }
}

impl Intent {
    /// The rows that the commit surely writes.
    pub fn rows(&self) -> Vec<Row> {
        let rows = self.writes.iter().filter_map(|write| match write {
            Write::Row(row, _) if self.has_row(row) => Some(row.clone()),
            _ => None,
        });
        rows.collect()
    }

    /// Whether the commit surely writes the row itself. A write that a range delete of the same commit takes back is
    /// none, and a batch does not lock its row; nor is an insert that the same commit deletes.
    fn has_row(&self, row: &Row) -> bool {
        let touches = |write: &&Write| match write {
            Write::Row(own, _) => own == row,
            Write::Range(keyspace, start, end) => {
                *keyspace == row.0 && *start <= row.1 && row.1 < *end
            }
        };
        let mut touching = self.writes.iter().rev().filter(touches);
        match touching.next() {
            Some(Write::Row(_, Some(_))) => true,
            Some(Write::Row(_, None)) => touching.next().is_none(),
            Some(Write::Range(..)) | None => false,
        }
    }
}
