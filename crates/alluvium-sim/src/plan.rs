//! What a seed asks for: the options of a database, and its incarnations with their operations, faults and ends.
//!
//! Every operation and every fault has a number. A plan of which only some numbers are kept is a smaller plan of the
//! same seed: that is how failures are shrunk, and how a small one is named on a command line.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;

use alluvium::simulation::Policy;
use alluvium::{Durability, Isolation};

use crate::maker::Maker;

/// Keyspaces that live as long as the database. The second stores large values in files of their own, rows of the third
/// expire, those of the fourth may be filtered.
pub const LASTING: [&str; 4] = ["a", "b", "e", "f"];
/// The place of the third.
pub const EXPIRING: Where = Where(2);
/// The place of the fourth.
pub const FILTERED: Where = Where(3);
/// Keyspaces that clients create and drop.
pub const PASSING: [&str; 2] = ["t", "u"];

/// See the module.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed that it is made of.
    pub seed: u64,
    /// Picks among the schedules of one seed.
    pub schedule: u64,
    /// How threads are switched.
    pub policy: Policy,
    /// How the database is opened.
    pub database: DatabasePlan,
    /// Syncs do nothing: no seed asks for that, but tests of the simulator itself do.
    pub lying_disk: bool,
    /// One after the other.
    pub incarnations: Vec<Incarnation>,
}

/// How the database is opened.
#[derive(Debug, Clone)]
pub struct DatabasePlan {
    /// The default of commits.
    pub durability: Durability,
    /// Small, so that there are flushes and merges.
    pub memtable_bytes: usize,
    /// Where last-level tables are cut.
    pub table_bytes: u64,
    /// Threads that merge.
    pub compaction_threads: usize,
    /// Whether it tidies up when nobody writes.
    pub tidies: bool,
    /// Whether it keeps all of its log for streams of changes.
    pub keeps_changes: bool,
    /// Who is told of its events.
    pub listening: Listening,
}

/// A listener of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// There is none.
    Nobody,
    /// It hears.
    Quietly,
    /// It panics now and then.
    Panics,
    /// It calls the database.
    Calls,
}

/// From one opening to the next.
#[derive(Debug, Clone)]
pub struct Incarnation {
    /// A client does its operations one after the other; clients go on beside each other.
    pub clients: Vec<Vec<Numbered<Op>>>,
    /// What the disk does wrong.
    pub faults: Vec<Numbered<Fault>>,
    /// A crash at the so-manieth call of the disk; without one the database is closed.
    pub crash: Option<Numbered<Crash>>,
    /// A crash of the recovery after this incarnation.
    pub crash_again: Option<Numbered<Crash>>,
    /// What is tried with a copy of what it leaves.
    pub post_mortem: Option<Numbered<PostMortem>>,
}

/// A part of a plan that can be left out.
#[derive(Debug, Clone)]
pub struct Numbered<T> {
    /// Its number, unique in the plan.
    pub number: usize,
    /// What it is.
    pub item: T,
}

/// What is left of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Any subset of what was not synced.
    Some,
    /// Only what was synced.
    Synced,
    /// Everything: the process died.
    All,
}

/// Where and how the machine stops.
#[derive(Debug, Clone, Copy)]
pub struct Crash {
    /// The call of the disk, counted in this incarnation.
    pub at: u64,
    /// What is left.
    pub kept: Kept,
}

/// What is tried with a copy of the files that an incarnation has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostMortem {
    /// It is repaired.
    Repair,
    /// One bit of one file flips for good; then it is opened, and then repaired. Where decides this number.
    Rot(u64),
}

/// What a disk does wrong, from some call on.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The first call, counted in this incarnation.
    pub at: u64,
    /// What happens to it.
    pub kind: FaultKind,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The first read, write or other call from there on fails.
    Error,
    /// The first write from there on puts half of its bytes down and fails.
    ShortWrite,
    /// The first sync from there on fails.
    SyncError,
    /// For so many calls there is no space.
    Full(u64),
    /// For so many calls no file can be opened or created.
    NoDescriptors(u64),
    /// The first read of a file with data from there on has a wrong bit.
    FlippedBit,
}

/// One of the six keyspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Where(pub usize);

/// A key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub(crate) Vec<u8>);

impl Deref for Key {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A change of one row or range.
#[derive(Debug, Clone)]
pub enum Change {
    /// Writes a row.
    Put(Where, Key),
    /// Writes a row if it is not there, as one that is known to be absent. In transactions only; elsewhere a put.
    Insert(Where, Key),
    /// Removes a row.
    Delete(Where, Key),
    /// Removes a range.
    DeleteRange(Where, Key, Key),
}

/// A move of a cursor.
#[derive(Debug, Clone)]
pub enum Move {
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// To the first row at or behind the key.
    Seek(Key),
    /// To the last row before the key.
    SeekBefore(Key),
    /// Forward.
    Next,
    /// Backward.
    Prev,
}

/// A read.
#[derive(Debug, Clone)]
pub enum Read {
    /// One row.
    Get(Where, Key),
    /// A cursor's walk.
    Walk(Where, Vec<Move>),
}

/// A step of a transaction.
#[derive(Debug, Clone)]
pub enum Step {
    /// A read.
    Read(Read),
    /// A read that locks.
    GetForUpdate(Where, Key),
    /// A write.
    Change(Change),
    /// A savepoint.
    Savepoint,
    /// Back to the newest savepoint.
    RollbackTo,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a commit.
    Commit,
    /// With nothing.
    Rollback,
    /// With a prepare and a commit.
    PrepareCommit,
    /// With a prepare and a rollback.
    PrepareRollback,
    /// With a prepare that nobody decides on in this incarnation.
    Prepare,
}

/// What is done with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyUse {
    /// It is opened without a right to write, and read.
    Read,
    /// It is opened, written to, and read again.
    Write,
    /// It is repaired, and the new one is read.
    Repair,
    /// It is opened, and its directory is removed meanwhile.
    Remove,
}

/// What a client does.
#[derive(Debug, Clone)]
pub enum Op {
    /// A batch of changes.
    Batch {
        /// The changes.
        changes: Vec<Change>,
        /// `None`: the database's.
        durability: Option<Durability>,
        /// Without row locks.
        untracked: bool,
    },
    /// A transaction.
    Transaction {
        /// What it sees.
        isolation: Isolation,
        /// Without locks before its commit.
        optimistic: bool,
        /// What it does.
        steps: Vec<Step>,
        /// How it ends.
        ending: Ending,
    },
    /// A read of the newest state.
    Read(Read),
    /// Takes a snapshot to keep.
    TakeSnapshot,
    /// Reads by the snapshot that is kept.
    ReadSnapshot(Read),
    /// Lets go of it.
    DropSnapshot,
    /// Flushes.
    Flush,
    /// Syncs the log.
    Sync,
    /// Waits for the background.
    Settle,
    /// Merges a range.
    CompactRange(Where),
    /// Creates a passing keyspace, or takes a handle of it.
    Create(Where),
    /// Drops a passing keyspace.
    Drop(Where),
    /// Loads sorted rows.
    Ingest(Where, Vec<Key>),
    /// Loads rows in any order.
    BulkLoad {
        /// Where.
        place: Where,
        /// Each row's key, in the order of the calls; a key may come again.
        keys: Vec<Key>,
        /// Values so large that not all rows fit into memory.
        large: bool,
        /// Whether a key that comes again is an error.
        unique: bool,
    },
    /// Makes a copy, and does something with it.
    Checkpoint(CopyUse),
    /// Makes a backup.
    Backup,
    /// Restores one of the backups, and reads it.
    Restore(u64),
    /// Deletes one of the backups.
    DeleteBackup(u64),
    /// Reads up to so many changes in the client's stream.
    Follow(usize),
    /// Ends the client's stream: the next read begins where it stood.
    Unfollow,
    /// Checks all files.
    Verify,
    /// Moves the directory of the open database away and back.
    MoveDirectory,
    /// Sets the wall clock of the machine, forward or back, by so many milliseconds.
    SetClock(i64),
    /// Makes it show a time so many milliseconds away for a moment.
    DisturbClock(i64),
    /// Lets so many milliseconds pass for both clocks of the machine, as in suspend.
    PassTime(u64),
    /// Sets the compaction filter, or takes it away.
    SetFilter(bool),
    /// Changes the options of a keyspace: which ones decides the number.
    SetOptions(Where, u64),
    /// Changes the memory budget.
    SetMemory(usize),
    /// The power fails.
    PowerLoss(Kept),
}

impl Plan {
    /// The whole plan of a seed; a long one has more of everything.
    pub fn new(seed: u64, long: bool) -> Plan {
        Maker::new(seed).plan(seed, long)
    }

    /// The numbers of all parts.
    pub fn numbers(&self) -> Vec<usize> {
        let mut numbers = Vec::new();
        for incarnation in &self.incarnations {
            numbers.extend(incarnation.clients.iter().flatten().map(|op| op.number));
            numbers.extend(incarnation.faults.iter().map(|fault| fault.number));
            let crashes = incarnation.crash.iter().chain(&incarnation.crash_again);
            numbers.extend(crashes.map(|crash| crash.number));
            numbers.extend(
                incarnation
                    .post_mortem
                    .iter()
                    .map(|post_mortem| post_mortem.number),
            );
        }
        numbers.sort_unstable();
        numbers
    }

    /// The same plan with these parts only.
    pub fn keep(&self, numbers: &BTreeSet<usize>) -> Plan {
        let mut plan = self.clone();
        for incarnation in &mut plan.incarnations {
            for client in &mut incarnation.clients {
                client.retain(|op| numbers.contains(&op.number));
            }
            incarnation.faults.retain(|f| numbers.contains(&f.number));
            let kept = |crash: &Numbered<Crash>| numbers.contains(&crash.number);
            incarnation.crash = incarnation.crash.take().filter(kept);
            incarnation.crash_again = incarnation.crash_again.take().filter(kept);
            let kept = |post_mortem: &Numbered<PostMortem>| numbers.contains(&post_mortem.number);
            incarnation.post_mortem = incarnation.post_mortem.take().filter(kept);
        }
        while plan.incarnations.len() > 1
            && plan.incarnations.last().is_some_and(Incarnation::is_empty)
        {
            plan.incarnations.pop();
        }
        plan
    }
}

impl Incarnation {
    fn is_empty(&self) -> bool {
        let parts = self.clients.iter().map(Vec::len).sum::<usize>() + self.faults.len();
        parts == 0 && self.crash.is_none() && self.post_mortem.is_none()
    }
}
