//! What a seed asks for: the options of a database, and its lives with their operations, faults and ends.
//!
//! Every operation and every fault has a number. A plan of which only some numbers are kept is a smaller plan of the
//! same seed: that is how failures are shrunk, and how a small one is named on a command line.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;

use alluvium::simulation::Policy;
use alluvium::{Durability, Isolation};
use alluvium_testkit::Rng;

/// Keyspaces that live as long as the database. The second stores large values in files of their own.
pub const LASTING: [&str; 2] = ["a", "b"];
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
    pub lives: Vec<Life>,
}

/// How the database is opened.
#[derive(Debug, Clone)]
pub struct DatabasePlan {
    /// The default of commits.
    pub durability: Durability,
    /// Small, so that there are flushes and merges.
    pub memtable_bytes: usize,
    /// Where last-level tables are cut.
    pub partition_bytes: u64,
    /// Threads that merge.
    pub compaction_threads: usize,
    /// Whether it tidies up when nobody writes.
    pub tidies: bool,
}

/// From one opening to the next.
#[derive(Debug, Clone)]
pub struct Life {
    /// A client does its operations one after the other; clients go on beside each other.
    pub clients: Vec<Vec<Numbered<Op>>>,
    /// What the disk does wrong.
    pub faults: Vec<Numbered<Fault>>,
    /// A crash at the so-manieth call of the disk; without one the database is closed.
    pub crash: Option<Numbered<Crash>>,
    /// A crash of the recovery after this life.
    pub crash_again: Option<Numbered<Crash>>,
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
    /// The call of the disk, counted in this life.
    pub at: u64,
    /// What is left.
    pub kept: Kept,
}

/// What a disk does wrong, from some call on.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The first call, counted in this life.
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
    /// The first read of a table or value file from there on has a wrong bit.
    FlippedBit,
}

/// One of the four keyspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Where(pub usize);

/// A key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Vec<u8>);

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
    /// With a prepare that nobody decides on in this life.
    Prepare,
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
    /// Makes a copy, and reads it.
    Checkpoint,
    /// Checks all files.
    Verify,
}

impl Plan {
    /// The whole plan of a seed; a long one has more of everything.
    pub fn new(seed: u64, long: bool) -> Plan {
        let mut maker = Maker {
            rng: Rng::new(seed),
            next: 0,
            has_log: true,
            keys: 0,
        };
        maker.plan(seed, long)
    }

    /// The numbers of all parts.
    pub fn numbers(&self) -> Vec<usize> {
        let mut numbers = Vec::new();
        for life in &self.lives {
            numbers.extend(life.clients.iter().flatten().map(|op| op.number));
            numbers.extend(life.faults.iter().map(|fault| fault.number));
            let crashes = life.crash.iter().chain(&life.crash_again);
            numbers.extend(crashes.map(|crash| crash.number));
        }
        numbers.sort_unstable();
        numbers
    }

    /// The same plan with these parts only.
    pub fn keep(&self, numbers: &BTreeSet<usize>) -> Plan {
        let mut plan = self.clone();
        for life in &mut plan.lives {
            for client in &mut life.clients {
                client.retain(|op| numbers.contains(&op.number));
            }
            life.faults.retain(|f| numbers.contains(&f.number));
            let kept = |crash: &Numbered<Crash>| numbers.contains(&crash.number);
            life.crash = life.crash.take().filter(kept);
            life.crash_again = life.crash_again.take().filter(kept);
        }
        while plan.lives.len() > 1 && plan.lives.last().is_some_and(Life::is_empty) {
            plan.lives.pop();
        }
        plan
    }
}

impl Life {
    fn is_empty(&self) -> bool {
        self.clients.iter().all(Vec::is_empty) && self.crash.is_none() && self.faults.is_empty()
    }
}

/// Makes plans.
struct Maker {
    rng: Rng,
    next: usize,
    has_log: bool,
    /// How many keys there are: few, so that clients meet.
    keys: usize,
}

impl Maker {
    fn plan(&mut self, seed: u64, long: bool) -> Plan {
        let durability = [Durability::Buffered, Durability::Sync, Durability::None];
        let durability = durability[self.rng.weighted(&[5, 3, 1])];
        self.has_log = durability != Durability::None;
        self.keys = *self.rng.pick(&[3, 8, 24, 60]);
        let policy = Policy {
            switch_of_256: *self.rng.pick(&[4, 16, 64, 255]),
            uneven: self.rng.percent(40),
            jump_of_65536: *self.rng.pick(&[0, 2, 50]),
            step_ns_max: *self.rng.pick(&[50, 2_000, 200_000]),
            stall_of_65536: *self.rng.pick(&[0, 10, 100, 500]),
        };
        let database = DatabasePlan {
            durability,
            memtable_bytes: *self.rng.pick(&[600, 3_000, 20_000]),
            partition_bytes: *self.rng.pick(&[4_096, 1 << 20]),
            compaction_threads: 1 + self.rng.below(2),
            tidies: self.rng.percent(50),
        };
        let lives = 1 + self.rng.below(if long { 6 } else { 3 });
        let lives = (0..lives).map(|_| self.life(long)).collect();
        Plan {
            seed,
            schedule: 0,
            policy,
            database,
            lying_disk: false,
            lives,
        }
    }

    fn number<T>(&mut self, item: T) -> Numbered<T> {
        self.next += 1;
        Numbered {
            number: self.next - 1,
            item,
        }
    }

    fn life(&mut self, long: bool) -> Life {
        let clients = 2 + self.rng.below(3);
        let most = if long { 120 } else { 30 };
        let clients = (0..clients).map(|_| {
            let ops = 4 + self.rng.below(most);
            (0..ops)
                .map(|_| {
                    let op = self.op();
                    self.number(op)
                })
                .collect()
        });
        let clients = clients.collect();
        let faulty = self.rng.percent(45);
        let faults = if faulty { 1 + self.rng.below(2) } else { 0 };
        let faults = (0..faults).map(|_| self.fault()).collect();
        let crash = self.rng.percent(65).then(|| self.crash(600));
        let crash_again = self.rng.percent(35).then(|| self.crash(40));
        Life {
            clients,
            faults,
            crash,
            crash_again,
        }
    }

    fn fault(&mut self) -> Numbered<Fault> {
        let kinds = [
            FaultKind::Error,
            FaultKind::ShortWrite,
            FaultKind::SyncError,
            FaultKind::Full(1 + self.rng.below(40) as u64),
            FaultKind::FlippedBit,
        ];
        let kind = kinds[self.rng.weighted(&[2, 1, 1, 4, 3])];
        let at = 20 + self.rng.below(400) as u64;
        self.number(Fault { at, kind })
    }

    fn crash(&mut self, most: usize) -> Numbered<Crash> {
        let kept = [Kept::Some, Kept::Synced, Kept::All][self.rng.weighted(&[5, 2, 2])];
        let at = 1 + self.rng.below(most) as u64;
        self.number(Crash { at, kept })
    }

    fn op(&mut self) -> Op {
        match self
            .rng
            .weighted(&[22, 26, 14, 4, 8, 2, 4, 2, 1, 3, 3, 2, 3, 1, 1])
        {
            0 => self.batch(),
            1 => self.transaction(),
            2 => Op::Read(self.read()),
            3 => Op::TakeSnapshot,
            4 => Op::ReadSnapshot(self.read()),
            5 => Op::DropSnapshot,
            6 => Op::Flush,
            7 => Op::Sync,
            8 => Op::Settle,
            9 => Op::CompactRange(self.place()),
            10 => Op::Create(self.passing()),
            11 => Op::Drop(self.passing()),
            12 => self.ingest(),
            13 => Op::Checkpoint,
            _ => Op::Verify,
        }
    }

    fn place(&mut self) -> Where {
        Where(self.rng.weighted(&[6, 3, 1, 1]))
    }

    fn passing(&mut self) -> Where {
        Where(LASTING.len() + self.rng.below(PASSING.len()))
    }

    /// Skewed: the first keys are hot.
    fn key(&mut self) -> Key {
        let within = match self.rng.percent(50) {
            true => self.keys.min(3),
            false => self.keys,
        };
        Key(format!("k{:02}", self.rng.below(within)).into_bytes())
    }

    fn range(&mut self) -> (Key, Key) {
        let (one, two) = (self.key(), self.key());
        let mut end = one.clone().max(two.clone());
        end.0.push(b'~');
        (one.min(two), end)
    }

    fn change(&mut self) -> Change {
        let place = self.place();
        match self.rng.weighted(&[10, 3, 5, 2]) {
            0 => Change::Put(place, self.key()),
            1 => Change::Insert(place, self.key()),
            2 => Change::Delete(place, self.key()),
            _ => {
                let (start, end) = self.range();
                Change::DeleteRange(place, start, end)
            }
        }
    }

    fn read(&mut self) -> Read {
        let place = self.place();
        if self.rng.percent(50) {
            return Read::Get(place, self.key());
        }
        let first = match self.rng.below(4) {
            0 => Move::First,
            1 => Move::Last,
            2 => Move::Seek(self.key()),
            _ => Move::SeekBefore(self.key()),
        };
        let forward = self.rng.percent(50);
        let count = self.rng.below(2 * self.keys.min(12));
        let mut moves = vec![first];
        moves.extend((0..count).map(|_| {
            let turn = self.rng.percent(15);
            if turn != forward {
                Move::Next
            } else {
                Move::Prev
            }
        }));
        Read::Walk(place, moves)
    }

    fn batch(&mut self) -> Op {
        let count = 1 + self.rng.below(4);
        let changes = (0..count).map(|_| self.change()).collect();
        let own = [None, Some(Durability::Sync), Some(Durability::Buffered)];
        let own = own[self.rng.weighted(&[5, 2, 1])];
        Op::Batch {
            changes,
            durability: own.filter(|_| self.has_log),
            untracked: self.rng.percent(15),
        }
    }

    fn transaction(&mut self) -> Op {
        let levels = [
            Isolation::ReadCommitted,
            Isolation::Snapshot,
            Isolation::Serializable,
        ];
        let isolation = levels[self.rng.weighted(&[2, 3, 4])];
        let optimistic = isolation != Isolation::ReadCommitted && self.rng.percent(30);
        let count = 1 + self.rng.below(6);
        let steps = (0..count).map(|_| self.step()).collect();
        let may_prepare = self.has_log && !optimistic && isolation != Isolation::Serializable;
        let endings = [
            Ending::Commit,
            Ending::Rollback,
            Ending::PrepareCommit,
            Ending::PrepareRollback,
            Ending::Prepare,
        ];
        let weights = if may_prepare {
            [10, 1, 3, 1, 1]
        } else {
            [10, 1, 0, 0, 0]
        };
        Op::Transaction {
            isolation,
            optimistic,
            steps,
            ending: endings[self.rng.weighted(&weights)],
        }
    }

    fn step(&mut self) -> Step {
        match self.rng.weighted(&[5, 3, 8, 1, 1]) {
            0 => Step::Read(self.read()),
            1 => Step::GetForUpdate(self.place(), self.key()),
            2 => Step::Change(self.change()),
            3 => Step::Savepoint,
            _ => Step::RollbackTo,
        }
    }

    fn ingest(&mut self) -> Op {
        let count = 1 + self.rng.below(8);
        let mut keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        Op::Ingest(self.place(), keys)
    }
}
