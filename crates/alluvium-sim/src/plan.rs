//! Plan of a seed: the options of a database, and its incarnations with their operations, faults
//! and ends.
//!
//! Every operation and every fault has a number. A plan that keeps only some numbers is a smaller
//! plan of the same seed. Failures are shrunk in this way, and a command line names a small plan by
//! its numbers.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;

use alluvium::simulation::Policy;
use alluvium::{Durability, Isolation};

/// Keyspaces that live as long as the database. The second stores large values in separate files,
/// rows of the third expire, those of the fourth may be filtered.
pub const LASTING: [&str; 4] = ["a", "b", "e", "f"];
/// Place of the third.
pub const EXPIRING: Where = Where(2);
/// Place of the fourth.
pub const FILTERED: Where = Where(3);
/// Keyspaces that clients create and drop.
pub const PASSING: [&str; 2] = ["t", "u"];

/// Plan of a seed (see the module).
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed from which it is made.
    pub seed: u64,
    /// Selects one of the schedules of a seed.
    pub schedule: u64,
    /// Policy of thread switches.
    pub policy: Policy,
    /// Options of the database.
    pub database: DatabasePlan,
    /// If true, syncs do nothing: used only by tests of the simulator itself, never by a seed.
    pub lying_disk: bool,
    /// Incarnations in order.
    pub incarnations: Vec<Incarnation>,
}

/// Options of the database.
#[derive(Debug, Clone)]
pub struct DatabasePlan {
    /// Default durability of commits.
    pub durability: Durability,
    /// Size of a memtable; small, so that there are flushes and compactions.
    pub memtable_bytes: usize,
    /// Target size of last-level tables.
    pub table_bytes: u64,
    /// Number of compaction threads.
    pub compaction_threads: usize,
    /// True if it compacts when idle.
    pub tidies: bool,
    /// True if it keeps its whole log for streams of changes.
    pub keeps_changes: bool,
    /// Listener of its events.
    pub listening: Listening,
}

/// Behavior of the listener of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// No listener.
    Nobody,
    /// Records events only.
    Quietly,
    /// Panics now and then.
    Panics,
    /// Calls the database.
    Calls,
}

/// Life of the database from one opening to the next.
#[derive(Debug, Clone)]
pub struct Incarnation {
    /// Operations of each client, in order. The clients run concurrently.
    pub clients: Vec<Vec<Numbered<Op>>>,
    /// Faults of the disk.
    pub faults: Vec<Numbered<Fault>>,
    /// Crash at the n-th call of the disk; without one the database is closed.
    pub crash: Option<Numbered<Crash>>,
    /// Crash during the recovery after this incarnation.
    pub crash_again: Option<Numbered<Crash>>,
    /// Test of a copy of the files that it leaves.
    pub post_mortem: Option<Numbered<PostMortem>>,
}

/// Part of a plan that can be left out.
#[derive(Debug, Clone)]
pub struct Numbered<T> {
    /// Number, unique in the plan.
    pub number: usize,
    /// Operation, fault, crash or post-mortem.
    pub item: T,
}

/// Data that survives a stop of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Any subset of the unsynced data, and all synced data.
    Some,
    /// Only synced data.
    Synced,
    /// Everything: only the process died.
    All,
}

/// Time and kind of a crash.
#[derive(Debug, Clone, Copy)]
pub struct Crash {
    /// Call of the disk, counted in this incarnation.
    pub at: u64,
    /// Data that survives.
    pub kept: Kept,
}

/// Test of a copy of the files that an incarnation has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostMortem {
    /// Repairs the copy.
    Repair,
    /// Flips one bit of one file permanently, then opens the database and repairs it. The number
    /// determines the bit.
    Rot(u64),
}

/// Fault of a disk, starting at some call.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// First call, counted in this incarnation.
    pub at: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The first read, write or other call from there fails.
    Error,
    /// The first write from there writes half of its bytes and fails.
    ShortWrite,
    /// The first sync from there fails.
    SyncError,
    /// No space is left for this number of calls.
    Full(u64),
    /// No file can be opened or created for this number of calls.
    NoDescriptors(u64),
    /// The first read of a file with data from there has a wrong bit.
    FlippedBit,
}

/// Index of one of the six keyspaces.
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
    /// Inserts a row that is known to be absent, otherwise puts it. Outside of transactions always
    /// a put.
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
    /// To the first row at or after the key.
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

/// End of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Commit.
    Commit,
    /// Rollback.
    Rollback,
    /// Prepare and commit.
    PrepareCommit,
    /// Prepare with this durability, and commit as a coordinator with a log of its own does.
    PrepareOrdered(Durability),
    /// Prepare and rollback.
    PrepareRollback,
    /// Prepare without a decision in this incarnation.
    Prepare,
}

/// Use of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyUse {
    /// Opens it read-only and reads it.
    Read,
    /// Opens it, writes to it and reads it again.
    Write,
    /// Repairs it and reads the new database.
    Repair,
    /// Opens it and removes its directory meanwhile.
    Remove,
}

/// Operation of a client.
#[derive(Debug, Clone)]
pub enum Op {
    /// A batch of changes.
    Batch {
        /// Changes of the batch.
        changes: Vec<Change>,
        /// Durability of the commit; `None`: the database's.
        durability: Option<Durability>,
        /// Takes no row locks.
        untracked: bool,
    },
    /// A transaction.
    Transaction {
        /// Isolation level.
        isolation: Isolation,
        /// Takes no locks before its commit.
        optimistic: bool,
        /// Steps in order.
        steps: Vec<Step>,
        /// End of the transaction.
        ending: Ending,
    },
    /// A read of the newest state.
    Read(Read),
    /// Takes a snapshot and keeps it.
    TakeSnapshot,
    /// Reads from the kept snapshot.
    ReadSnapshot(Read),
    /// Releases the snapshot.
    DropSnapshot,
    /// Flushes.
    Flush,
    /// Syncs the log.
    Sync,
    /// Waits for background work to end.
    Settle,
    /// Compacts a range.
    CompactRange(Where),
    /// Creates a passing keyspace, or opens it if it exists.
    Create(Where),
    /// Drops a passing keyspace.
    Drop(Where),
    /// Loads sorted rows.
    Ingest(Where, Vec<Key>),
    /// Loads rows in any order.
    BulkLoad {
        /// Keyspace to load into.
        place: Where,
        /// Key of each row, in the order of the calls; a key may be repeated.
        keys: Vec<Key>,
        /// Values so large that not all rows fit into memory.
        large: bool,
        /// True if a repeated key is an error.
        unique: bool,
    },
    /// Makes a checkpoint and uses it.
    Checkpoint(CopyUse),
    /// Makes a backup.
    Backup,
    /// Restores one of the backups, and reads the restored database.
    Restore(u64),
    /// Deletes one of the backups.
    DeleteBackup(u64),
    /// Reads up to this number of changes from the client's stream.
    Follow(usize),
    /// Closes the client's stream: the next one begins at its position.
    Unfollow,
    /// Checks all files.
    Verify,
    /// Moves the directory of the open database away and back.
    MoveDirectory,
    /// Sets the wall clock of the machine forward or back by this number of milliseconds.
    SetClock(i64),
    /// Shifts the wall clock by this number of milliseconds for a moment.
    DisturbClock(i64),
    /// Advances both clocks of the machine by this number of milliseconds, as in suspend.
    PassTime(u64),
    /// Sets or removes the compaction filter.
    SetFilter(bool),
    /// Changes the options of a keyspace; the number determines the new ones.
    SetOptions(Where, u64),
    /// Changes the memory budget.
    SetMemory(usize),
    /// Cuts the power.
    PowerLoss(Kept),
}

impl Plan {
    /// Returns the numbers of all parts.
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

    /// Returns the same plan with these parts only.
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
