//! Recording client: runs the steps of a transaction on a real database and records the history.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::{
    CursorOptions, Database, Error, Keyspace, KeyspaceOptions, Result, Transaction,
    TransactionOptions, WriteBatch,
};
use alluvium_testkit::anomalies::{self, Action, History, Outcome};

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Get(u32),
    GetForUpdate(u32),
    Put(u32),
    Delete(u32),
    /// Reads a range with a cursor, forward or backward, and stops after so many rows.
    Scan(RangeInclusive<u32>, Direction, usize),
    ReadList(u32),
    /// Reads a list, with a lock if the level needs one, and writes it with one more element.
    Append(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Commit,
    Rollback,
    PrepareCommit,
    PrepareRollback,
}

/// A database and the recorded transactions of its clients.
pub struct World {
    pub db: Database,
    registers: Keyspace,
    lists: Keyspace,
    /// One row for each writing transaction, so that the log shows the order of commits.
    marks: Keyspace,
    next: AtomicU64,
    done: Mutex<Vec<Done>>,
}

/// A transaction that has ended.
struct Done {
    mark: u64,
    noted: anomalies::Transaction,
}

/// A transaction in progress.
pub struct Client<'a> {
    world: &'a World,
    number: usize,
    txn: Transaction,
    /// True if reads for an append must lock, because nothing else prevents concurrent appends.
    append_locks: bool,
    /// Number added to the keys of registers and lists.
    base: u32,
    mark: u64,
    began: u64,
    actions: Vec<Action>,
}

fn list(bytes: Option<&[u8]>) -> Vec<u64> {
    let chunks = bytes.unwrap_or_default().chunks_exact(8);
    chunks.map(number).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

fn key(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("4 bytes"))
}

/// Returns true if an error asks the caller to run the transaction again.
pub fn refused(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. }
    )
}

impl World {
    pub fn new(db: Database) -> World {
        let keyspace = |name| db.keyspace(name, KeyspaceOptions::default());
        let [registers, lists, marks] =
            ["registers", "lists", "marks"].map(|name| keyspace(name).expect("keyspace"));
        World {
            db,
            registers,
            lists,
            marks,
            next: AtomicU64::new(1),
            done: Mutex::default(),
        }
    }

    /// Returns a unique number for a value, a mark or a time.
    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub fn begin(&self, number: usize, base: u32, options: &TransactionOptions) -> Client<'_> {
        let (mark, began) = (self.next(), self.next());
        let append_locks = options.isolation == alluvium::Isolation::ReadCommitted;
        Client {
            world: self,
            number,
            txn: self.db.begin_with(options.clone()).expect("begin"),
            append_locks,
            base,
            mark,
            began,
            actions: Vec::new(),
        }
    }

    /// Writes some registers without reading them and without a transaction.
    pub fn write_batch(&self, number: usize, keys: &[u32]) {
        let (mark, began) = (self.next(), self.next());
        let mut batch = WriteBatch::new();
        batch
            .put(&self.marks, &mark.to_be_bytes(), b"")
            .expect("put");
        let mut actions = Vec::new();
        for &key in keys {
            let value = self.next();
            let put = batch.put(&self.registers, &key.to_be_bytes(), &value.to_le_bytes());
            put.expect("put");
            actions.push(Action::Write { key, value });
        }
        let outcome = outcome_of(&self.db.write(&batch));
        self.note(number, mark, began, actions, outcome);
    }

    fn note(&self, client: usize, mark: u64, began: u64, actions: Vec<Action>, outcome: Outcome) {
        let noted = anomalies::Transaction {
            time: Some((began, self.next())),
            ..anomalies::Transaction::new(client, actions, outcome)
        };
        self.done.lock().expect("done").push(Done { mark, noted });
    }

    /// Returns the history of all transactions that have ended since the last call, and the order
    /// of their writes. `order` has the marks of the commits in commit order.
    pub fn take_history(&self, order: &[u64]) -> History {
        let done = std::mem::take(&mut *self.done.lock().expect("done"));
        let mut history = History::new();
        let mut orders = std::collections::BTreeMap::<u32, Vec<u64>>::new();
        for mark in order {
            let Some(found) = done.iter().find(|done| done.mark == *mark) else {
                continue;
            };
            let mut last = std::collections::BTreeMap::new();
            for action in &found.noted.actions {
                if let Action::Write { key, value } | Action::Delete { key, value } = action {
                    last.insert(*key, *value);
                }
            }
            for (key, value) in last {
                orders.entry(key).or_default().push(value);
            }
        }
        for (key, values) in orders {
            history.order(key, values);
        }
        for done in done {
            history.push(done.noted);
        }
        history
    }

    /// Returns the mark of a key, or `None` if the key is not in the keyspace of marks.
    pub fn mark_of(&self, keyspace: alluvium::KeyspaceId, key: &[u8]) -> Option<u64> {
        let bytes = key
            .try_into()
            .ok()
            .filter(|_| keyspace == self.marks.id())?;
        Some(u64::from_be_bytes(bytes))
    }
}

fn outcome_of(result: &Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Committed,
        Err(error) if refused(error) => Outcome::Aborted,
        Err(other) => panic!("{other:?}"),
    }
}

impl Client<'_> {
    /// Runs a step. After an error the transaction can only be rolled back.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Get(key) => self.get(*key, false),
            Step::GetForUpdate(key) => self.get(*key, true),
            Step::Put(key) => {
                let (key, value) = (self.base + key, self.world.next());
                // Large enough that a few of them fill a memtable.
                let bytes = [&value.to_le_bytes()[..], &[7; 100]].concat();
                self.txn
                    .put(&self.world.registers, &key.to_be_bytes(), &bytes)?;
                self.actions.push(Action::Write { key, value });
                Ok(())
            }
            Step::Delete(key) => {
                let (key, value) = (self.base + key, self.world.next());
                self.txn.delete(&self.world.registers, &key.to_be_bytes())?;
                self.actions.push(Action::Delete { key, value });
                Ok(())
            }
            Step::Scan(keys, direction, limit) => self.scan(keys, *direction, *limit),
            Step::ReadList(key) => self.read_list(self.base + key, false).map(drop),
            Step::Append(key) => self.append(self.base + key),
        }
    }

    fn get(&mut self, key: u32, locked: bool) -> Result<()> {
        let key = self.base + key;
        let (registers, bytes) = (&self.world.registers, key.to_be_bytes());
        let value = if locked {
            self.txn.get_for_update(registers, &bytes)?
        } else {
            self.txn.get(registers, &bytes)?
        };
        let found = value.map(|value| number(&value));
        self.actions.push(Action::Read { key, found, locked });
        Ok(())
    }

    fn scan(
        &mut self,
        keys: &RangeInclusive<u32>,
        direction: Direction,
        limit: usize,
    ) -> Result<()> {
        let (start, end) = (self.base + keys.start(), self.base + keys.end());
        let range = CursorOptions::range(&start.to_be_bytes(), &(end + 1).to_be_bytes());
        let mut cursor = self.txn.cursor(&self.world.registers, range)?;
        let mut more = match direction {
            Direction::Forward => cursor.seek_first()?,
            Direction::Backward => cursor.seek_last()?,
        };
        let mut found = Vec::new();
        while more {
            found.push((key(cursor.key()), number(cursor.value())));
            if found.len() == limit {
                break;
            }
            more = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Backward => cursor.prev()?,
            };
        }
        // A scan that stopped at a row proves nothing about later keys.
        let reached = found.last().filter(|_| more).map(|(key, _)| *key);
        let keys = match direction {
            Direction::Forward => start..=reached.unwrap_or(end),
            Direction::Backward => reached.unwrap_or(start)..=end,
        };
        self.actions.push(Action::Scan { keys, found });
        Ok(())
    }

    fn read_list(&mut self, key: u32, locked: bool) -> Result<Vec<u64>> {
        let (lists, bytes) = (&self.world.lists, key.to_be_bytes());
        let value = if locked {
            self.txn.get_for_update(lists, &bytes)?
        } else {
            self.txn.get(lists, &bytes)?
        };
        let found = list(value.as_deref());
        let read = found.clone();
        self.actions.push(Action::ReadList { key, found, locked });
        Ok(read)
    }

    fn append(&mut self, key: u32) -> Result<()> {
        let mut elements = self.read_list(key, self.append_locks)?;
        let element = self.world.next();
        elements.push(element);
        let bytes: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()).collect();
        self.txn
            .put(&self.world.lists, &key.to_be_bytes(), &bytes)?;
        self.actions.push(Action::Append { key, element });
        Ok(())
    }

    /// Ends the transaction. Returns its mark if it wrote anything and was committed.
    pub fn end(self, ending: Ending) -> Option<u64> {
        let Client {
            world,
            number,
            txn,
            mark,
            began,
            actions,
            ..
        } = self;
        let reads = |action: &Action| {
            matches!(
                action,
                Action::Read { .. } | Action::ReadList { .. } | Action::Scan { .. }
            )
        };
        let writes = !actions.iter().all(reads);
        if writes {
            let put = txn.put_untracked(&world.marks, &mark.to_be_bytes(), b"");
            put.expect("put");
        }
        let result = match ending {
            Ending::Commit => txn.commit(),
            Ending::Rollback => {
                txn.rollback();
                Ok(())
            }
            Ending::PrepareCommit => txn.prepare(&mark.to_be_bytes()).and_then(|p| p.commit()),
            Ending::PrepareRollback => txn.prepare(&mark.to_be_bytes()).and_then(|p| p.rollback()),
        };
        let mut outcome = outcome_of(&result);
        if matches!(ending, Ending::Rollback | Ending::PrepareRollback) {
            outcome = Outcome::Aborted;
        }
        world.note(number, mark, began, actions, outcome);
        (writes && outcome == Outcome::Committed).then_some(mark)
    }
}
