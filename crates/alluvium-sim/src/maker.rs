//! Makes the plan of a seed.
//!
//! Numbers come from the seed alone, in a fixed order. A change or addition to that order gives
//! every seed another plan.

use alluvium::simulation::Policy;
use alluvium::{Durability, Isolation};
use alluvium_testkit::Rng;

use crate::plan::{
    Change, CopyUse, Crash, DatabasePlan, EXPIRING, Ending, Fault, FaultKind, Incarnation, Kept,
    Key, LASTING, Listening, Move, Numbered, Op, PASSING, Plan, PostMortem, Read, Step, Where,
};
use crate::time::{DAY_MS, YEAR_MS};

/// Generator of the plan of one seed.
struct Maker {
    rng: Rng,
    next: usize,
    has_log: bool,
    /// Number of keys: few, so that clients conflict.
    keys: usize,
}

impl Plan {
    /// Makes the whole plan of a seed; a long one has more of everything.
    pub fn new(seed: u64, long: bool) -> Plan {
        Maker::new(seed).plan(seed, long)
    }
}

impl Maker {
    fn new(seed: u64) -> Maker {
        Maker {
            rng: Rng::new(seed),
            next: 0,
            has_log: true,
            keys: 0,
        }
    }

    /// Makes the plan of the seed that this was created with.
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
            stall_of_65536: *self.rng.pick(&[0, 10, 100, 500, 2_000]),
        };
        let database = DatabasePlan {
            durability,
            memtable_bytes: *self.rng.pick(&[600, 3_000, 20_000]),
            table_bytes: *self.rng.pick(&[4_096, 1 << 20]),
            compaction_threads: 1 + self.rng.below(2),
            tidies: self.rng.percent(50),
            keeps_changes: self.rng.percent(60),
            listening: {
                let all = [
                    Listening::Nobody,
                    Listening::Quietly,
                    Listening::Panics,
                    Listening::Calls,
                ];
                all[self.rng.weighted(&[4, 3, 1, 1])]
            },
        };
        let incarnations = 1 + self.rng.below(if long { 6 } else { 3 });
        let incarnations = (0..incarnations).map(|_| self.incarnation(long)).collect();
        Plan {
            seed,
            schedule: 0,
            policy,
            database,
            lying_disk: false,
            incarnations,
        }
    }

    fn number<T>(&mut self, item: T) -> Numbered<T> {
        self.next += 1;
        Numbered {
            number: self.next - 1,
            item,
        }
    }

    fn incarnation(&mut self, long: bool) -> Incarnation {
        let clients = 2 + self.rng.below(3);
        let most = if long { 120 } else { 30 };
        let clients = (0..clients).map(|_| {
            let ops = 4 + self.rng.below(most);
            (0..ops).flat_map(|_| self.ops()).collect()
        });
        let clients = clients.collect();
        let faulty = self.rng.percent(45);
        let faults = if faulty { 1 + self.rng.below(2) } else { 0 };
        let faults = (0..faults).map(|_| self.fault()).collect();
        let crash = self.rng.percent(65).then(|| self.crash(600));
        let crash_again = self.rng.percent(35).then(|| self.crash(40));
        let post_mortem = self.rng.percent(20).then(|| self.post_mortem());
        Incarnation {
            clients,
            faults,
            crash,
            crash_again,
            post_mortem,
        }
    }

    fn post_mortem(&mut self) -> Numbered<PostMortem> {
        let post_mortem = if self.rng.percent(40) {
            PostMortem::Repair
        } else {
            PostMortem::Rot(self.rng.next_u64())
        };
        self.number(post_mortem)
    }

    fn fault(&mut self) -> Numbered<Fault> {
        let kinds = [
            FaultKind::Error,
            FaultKind::ShortWrite,
            FaultKind::SyncError,
            FaultKind::Full(1 + self.rng.below(40) as u64),
            FaultKind::FlippedBit,
            FaultKind::NoDescriptors(1 + self.rng.below(40) as u64),
        ];
        let kind = kinds[self.rng.weighted(&[2, 1, 1, 4, 3, 3])];
        let at = 20 + self.rng.below(400) as u64;
        self.number(Fault { at, kind })
    }

    fn crash(&mut self, most: usize) -> Numbered<Crash> {
        let kept = [Kept::Some, Kept::Synced, Kept::All][self.rng.weighted(&[5, 2, 2])];
        let at = 1 + self.rng.below(most) as u64;
        self.number(Crash { at, kept })
    }

    /// Returns one operation, with the operations that make it an effective test.
    fn ops(&mut self) -> Vec<Numbered<Op>> {
        let op = self.op();
        let then = match &op {
            // Durable changes shown by a stream must survive this.
            Op::Follow(_) if self.rng.percent(10) => Some(Op::PowerLoss(Kept::Synced)),
            // The snapshot holds the time, rows expire, and a compaction processes them.
            Op::TakeSnapshot if self.rng.percent(50) => {
                let later = Op::SetClock(*self.rng.pick(&[5, 40, 500, 10_000]));
                let merge = Op::CompactRange(EXPIRING);
                let read = self.read_in(EXPIRING);
                let ops = [op, later, merge, Op::ReadSnapshot(read)];
                return ops.map(|op| self.number(op)).into();
            }
            // Rows are written, flushed and compacted during the glitch, and read after it.
            Op::DisturbClock(_) => {
                let key = self.key();
                let put = self.expiring_put(&key);
                let merge = Op::CompactRange(EXPIRING);
                let over = Op::PassTime(4_000);
                let read = Op::Read(Read::Get(EXPIRING, key));
                let ops = [put, op, merge, over, read];
                return ops.map(|op| self.number(op)).into();
            }
            _ => None,
        };
        let ops = std::iter::once(op).chain(then);
        ops.map(|op| self.number(op)).collect()
    }

    fn op(&mut self) -> Op {
        let weights = [
            22, 26, 14, 4, 8, 2, 4, 2, 1, 3, 3, 2, 3, 2, 2, 2, 1, 1, 6, 1, 1, 2, 2, 2, 1, 1, 1, 1,
            2,
        ];
        match self.rng.weighted(&weights) {
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
            13 => self.bulk_load(),
            14 => {
                let uses = [
                    CopyUse::Read,
                    CopyUse::Write,
                    CopyUse::Repair,
                    CopyUse::Remove,
                ];
                Op::Checkpoint(*self.rng.pick(&uses))
            }
            15 => Op::Backup,
            16 => Op::Restore(self.rng.next_u64()),
            17 => Op::DeleteBackup(self.rng.next_u64()),
            18 => Op::Follow(1 + self.rng.below(40)),
            19 => Op::Unfollow,
            20 => Op::Verify,
            21 => Op::SetClock(*self.rng.pick(&[1, 40, 500, 10_000, -1, -30, -400, -20_000])),
            22 => Op::SetFilter(self.rng.percent(75)),
            23 => Op::SetOptions(self.place(), self.rng.next_u64() >> 32),
            24 => Op::SetMemory((8 + 8 * self.rng.below(3)) << 20),
            25 => Op::SetClock(self.jump()),
            26 => Op::DisturbClock(self.jump()),
            27 => Op::MoveDirectory,
            // Often long enough for a confirmation.
            _ => Op::PassTime(
                *self
                    .rng
                    .pick(&[1_000, 60_000, 601_000, 601_000, 700_000, 90_000_000]),
            ),
        }
    }

    /// Returns a shift of more than a day.
    fn jump(&mut self) -> i64 {
        let by = [3 * DAY_MS, 80 * YEAR_MS, -3 * DAY_MS, -20 * YEAR_MS];
        *self.rng.pick(&by)
    }

    /// Returns a commit of one row that may expire.
    fn expiring_put(&mut self, key: &Key) -> Op {
        Op::Batch {
            changes: vec![Change::Put(EXPIRING, key.clone())],
            durability: None,
            untracked: false,
        }
    }

    fn place(&mut self) -> Where {
        Where(self.rng.weighted(&[6, 3, 3, 2, 1, 1]))
    }

    fn passing(&mut self) -> Where {
        Where(LASTING.len() + self.rng.below(PASSING.len()))
    }

    /// Returns a key, skewed towards the first ones.
    fn key(&mut self) -> Key {
        let within = if self.rng.percent(50) {
            self.keys.min(3)
        } else {
            self.keys
        };
        Key(format!("k{:02}", self.rng.below(within)).into_bytes())
    }

    fn range(&mut self) -> (Key, Key) {
        let (one, two) = (self.key(), self.key());
        let mut end = one.clone().max(two.clone());
        end.0.push(b'~');
        (one.min(two), end)
    }

    /// Returns range deletes with the same first key, with puts between them.
    fn nested_ranges(&mut self) -> Vec<Change> {
        let (place, start) = (self.place(), self.key());
        let mut changes = Vec::new();
        for _ in 0..2 + self.rng.below(30) {
            let mut end = self.key().max(start.clone());
            end.0.push(b'~');
            changes.push(Change::DeleteRange(place, start.clone(), end));
            if self.rng.percent(20) {
                changes.push(Change::Put(place, self.key()));
            }
        }
        changes
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
        self.read_in(place)
    }

    fn read_in(&mut self, place: Where) -> Read {
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
        let changes = if self.rng.percent(5) {
            self.nested_ranges()
        } else {
            let count = 1 + self.rng.below(4);
            (0..count).map(|_| self.change()).collect()
        };
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
            Ending::PrepareOrdered(Durability::Sync),
            Ending::PrepareOrdered(Durability::Buffered),
            Ending::PrepareRollback,
            Ending::Prepare,
        ];
        let weights = if may_prepare {
            [10, 1, 2, 2, 1, 1, 1]
        } else {
            [10, 1, 0, 0, 0, 0, 0]
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

    fn bulk_load(&mut self) -> Op {
        let large = self.rng.percent(40);
        let count = if large {
            8 + self.rng.below(8)
        } else {
            1 + self.rng.below(12)
        };
        Op::BulkLoad {
            place: self.place(),
            keys: (0..count).map(|_| self.key()).collect(),
            large,
            unique: self.rng.percent(20),
        }
    }
}
