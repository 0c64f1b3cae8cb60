//! Random operations on a database, chosen by weights, on few and clustered keys.
//!
//! An [`Op`] is plain data, so that one history can drive the model, the engine and other
//! databases, and can be printed. Keys are few, of all lengths, share prefixes and are prefixes of
//! each other, because such keys expose errors in ordering, range bounds and filters. Values are
//! all different, so a wrong version is never mistaken for the right one.

mod display;

use std::collections::BTreeSet;
use std::ops::{Bound, Range};

use crate::model::{Commit, Direction, Model, Write};
use crate::random::Rng;

/// One operation on a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes of one commit, each with its keyspace. May be empty.
    Commit(Vec<(String, Write)>),
    /// Rows written as one commit that bypasses the log: puts in key order in each keyspace, no key
    /// twice.
    Ingest(Vec<(String, Write)>),
    /// Reads one key, now or through an open snapshot.
    Get {
        /// Keyspace to read.
        keyspace: String,
        /// Key to read.
        key: Vec<u8>,
        /// Index into the open snapshots, oldest first.
        snapshot: Option<usize>,
    },
    /// Reads the rows of a range, now or through an open snapshot.
    Scan {
        /// Keyspace to read.
        keyspace: String,
        /// Bounds, which may enclose nothing.
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        /// Order of the rows.
        direction: Direction,
        /// Maximum number of rows to read.
        limit: usize,
        /// Index into the open snapshots, oldest first.
        snapshot: Option<usize>,
    },
    /// Opens a snapshot, which becomes the newest of the open ones.
    Snapshot,
    /// Closes the open snapshot with this index; later ones move up.
    DropSnapshot(usize),
    /// Flushes the memtables to tables.
    Flush,
    /// Compacts one keyspace.
    Compact(String),
    /// Opens a cursor, which becomes the newest of the open ones. It starts before any row.
    OpenCursor {
        /// Keyspace to read. It may be dropped while the cursor is open.
        keyspace: String,
        /// Index into the open snapshots, oldest first. The cursor may outlive it.
        snapshot: Option<usize>,
    },
    /// Moves the open cursor with this index.
    MoveCursor(usize, Move),
    /// Closes the open cursor with this index; later ones move up.
    CloseCursor(usize),
    /// Closes all snapshots, cursors and the database, and opens it again.
    Reopen,
    /// Ends without closing, loses the commits that the durability in use allows to lose, and opens
    /// again. Snapshots and cursors are gone.
    Crash,
    /// Creates a keyspace that does not exist.
    CreateKeyspace(String),
    /// Drops a keyspace that exists.
    DropKeyspace(String),
}

/// Move of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// To the first row at or after a key.
    Seek(Vec<u8>),
    /// To the last row before a key.
    SeekBefore(Vec<u8>),
    /// To the next row, if it is on one.
    Next,
    /// To the previous row, if it is on one.
    Prev,
}

impl Op {
    /// Applies a commit to the model, and returns its number; `None` for other operations. A crash
    /// loses nothing here: [`Model::find_prefix`] finds the commit to pass to [`Model::rewind`].
    pub fn apply(&self, model: &mut Model) -> Option<Commit> {
        match self {
            Op::Commit(writes) | Op::Ingest(writes) => {
                let writes = writes.iter().map(|(name, write)| (name.as_str(), write));
                Some(model.commit(writes))
            }
            Op::CreateKeyspace(name) => Some(model.create_keyspace(name)),
            Op::DropKeyspace(name) => Some(model.drop_keyspace(name)),
            _ => None,
        }
    }
}

/// Frequency of each operation, relative to the sum. An operation that is impossible at the moment
/// (a write without a keyspace, dropping a snapshot when none is open) is replaced by another.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is named as its operation")]
pub struct Weights {
    pub put: usize,
    pub insert: usize,
    pub delete: usize,
    pub delete_range: usize,
    pub batch: usize,
    pub ingest: usize,
    pub get: usize,
    pub scan: usize,
    pub snapshot: usize,
    pub drop_snapshot: usize,
    pub flush: usize,
    pub compact: usize,
    pub open_cursor: usize,
    pub move_cursor: usize,
    pub close_cursor: usize,
    pub reopen: usize,
    pub crash: usize,
    pub create_keyspace: usize,
    pub drop_keyspace: usize,
}

impl Default for Weights {
    /// Returns mostly writes and reads, some flushes and snapshots, no range deletes, crashes or
    /// drops of keyspaces.
    fn default() -> Weights {
        Weights {
            put: 20,
            insert: 10,
            delete: 15,
            delete_range: 0,
            batch: 10,
            ingest: 2,
            get: 15,
            scan: 15,
            snapshot: 2,
            drop_snapshot: 2,
            flush: 3,
            compact: 2,
            open_cursor: 2,
            move_cursor: 20,
            close_cursor: 1,
            reopen: 1,
            crash: 0,
            create_keyspace: 1,
            drop_keyspace: 0,
        }
    }
}

/// Shape of keys and values.
#[derive(Debug, Clone)]
pub struct KeyShape {
    /// Number of different keys.
    pub distinct: usize,
    /// Lengths of keys in bytes.
    pub key_bytes: Range<usize>,
    /// Lengths of most values in bytes. The number that makes a value unique is never cut off.
    pub value_bytes: Range<usize>,
    /// Length of one value in a hundred, for code paths of large values.
    pub large_value_bytes: usize,
    /// Maximum number of keyspaces at a time.
    pub keyspaces: usize,
}

impl Default for KeyShape {
    fn default() -> KeyShape {
        KeyShape {
            distinct: 60,
            key_bytes: 0..41,
            value_bytes: 0..100,
            large_value_bytes: 10_000,
            keyspaces: 3,
        }
    }
}

/// Generator of operations. It tracks the open snapshots and cursors and takes all other state from
/// the model.
pub struct Generator {
    weights: Weights,
    shape: KeyShape,
    keys: Vec<Vec<u8>>,
    snapshots: usize,
    cursors: usize,
    values: u64,
}

/// Maximum number of open snapshots, so that a long history does not accumulate them.
const SNAPSHOTS_MAX: usize = 8;
/// Maximum number of open cursors.
const CURSORS_MAX: usize = 4;
const BATCH_WRITES_MAX: usize = 12;
const INGEST_ROWS_MAX: usize = 60;

impl Generator {
    /// Creates a generator with its own random keys.
    ///
    /// # Panics
    /// If the shape allows no key.
    pub fn new(weights: Weights, shape: KeyShape, rng: &mut Rng) -> Generator {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..shape.distinct.max(1) {
            let key = random_key(&keys, shape.key_bytes.clone(), rng);
            keys.push(key);
        }
        Generator {
            weights,
            shape,
            keys,
            snapshots: 0,
            cursors: 0,
            values: 0,
        }
    }

    /// Returns the number of snapshots open after the operations so far.
    pub fn open_snapshots(&self) -> usize {
        self.snapshots
    }

    /// Returns the next operation on a database in the state of `model`.
    pub fn next(&mut self, rng: &mut Rng, model: &Model) -> Op {
        let existing = model.keyspaces();
        if existing.is_empty() {
            return Op::CreateKeyspace(keyspace_name(0));
        }
        let keyspace = (*rng.pick(&existing)).to_string();
        let op = self.choose(rng, model, keyspace);
        match op {
            Op::Snapshot => self.snapshots += 1,
            Op::DropSnapshot(_) => self.snapshots -= 1,
            Op::OpenCursor { .. } => self.cursors += 1,
            Op::CloseCursor(_) => self.cursors -= 1,
            Op::Reopen | Op::Crash => (self.snapshots, self.cursors) = (0, 0),
            _ => {}
        }
        op
    }

    fn choose(&mut self, rng: &mut Rng, model: &Model, keyspace: String) -> Op {
        let w = &self.weights;
        let writes = w.put + w.insert + w.delete + w.delete_range;
        let weights = [
            writes,
            w.batch,
            w.get,
            w.scan,
            w.snapshot,
            w.drop_snapshot,
            w.flush,
            w.compact,
            w.reopen,
            w.crash,
            w.create_keyspace,
            w.drop_keyspace,
            w.ingest,
            w.open_cursor,
            w.move_cursor,
            w.close_cursor,
        ];
        match rng.weighted(&weights) {
            0 => Op::Commit(vec![self.write(rng, model, keyspace, &[])]),
            1 => self.batch(rng, model),
            2 => self.get(rng, keyspace),
            3 => self.scan(rng, keyspace),
            4 if self.snapshots < SNAPSHOTS_MAX => Op::Snapshot,
            4 | 5 if self.snapshots > 0 => Op::DropSnapshot(rng.below(self.snapshots)),
            6 => Op::Flush,
            7 => Op::Compact(keyspace),
            8 => Op::Reopen,
            9 => Op::Crash,
            10 => match self.absent_keyspace(rng, model) {
                Some(name) => Op::CreateKeyspace(name),
                None => self.get(rng, keyspace),
            },
            11 => Op::DropKeyspace(keyspace),
            12 => self.ingest(rng, model),
            13 if self.cursors < CURSORS_MAX => Op::OpenCursor {
                keyspace,
                snapshot: self.snapshot(rng),
            },
            14 if self.cursors > 0 => Op::MoveCursor(rng.below(self.cursors), self.step(rng)),
            13 | 15 if self.cursors > 0 => Op::CloseCursor(rng.below(self.cursors)),
            _ => self.scan(rng, keyspace),
        }
    }

    fn absent_keyspace(&self, rng: &mut Rng, model: &Model) -> Option<String> {
        let name = keyspace_name(rng.below(self.shape.keyspaces.max(1)));
        (!model.keyspaces().contains(&name.as_str())).then_some(name)
    }

    fn batch(&mut self, rng: &mut Rng, model: &Model) -> Op {
        let existing = model.keyspaces();
        let mut writes = Vec::new();
        for _ in 0..rng.below(BATCH_WRITES_MAX + 1) {
            let keyspace = (*rng.pick(&existing)).to_string();
            let write = self.write(rng, model, keyspace, &writes);
            writes.push(write);
        }
        Op::Commit(writes)
    }

    /// Ingests adjacent keys of some keyspaces: often a part of the keys, sometimes all.
    fn ingest(&mut self, rng: &mut Rng, model: &Model) -> Op {
        let mut writes = Vec::new();
        for keyspace in model.keyspaces() {
            if rng.percent(40) {
                continue;
            }
            let keys: BTreeSet<Vec<u8>> = self.keys.iter().cloned().collect();
            let from = rng.below(keys.len());
            let count = *rng.pick(&[1, 5, INGEST_ROWS_MAX]);
            let chosen: Vec<_> = keys.into_iter().skip(from).take(count).collect();
            for key in chosen {
                let value = self.value(rng);
                writes.push((keyspace.to_string(), Write::Put(key, value)));
            }
        }
        Op::Ingest(writes)
    }

    /// Returns one write that follows the `earlier` ones of its batch.
    fn write(
        &mut self,
        rng: &mut Rng,
        model: &Model,
        keyspace: String,
        earlier: &[(String, Write)],
    ) -> (String, Write) {
        let w = &self.weights;
        let kinds = [w.put, w.insert, w.delete, w.delete_range];
        let key = self.key(rng);
        // Batches may be requested even if single writes are not.
        let kind = if kinds.iter().sum::<usize>() == 0 {
            0
        } else {
            rng.weighted(&kinds)
        };
        let write = match kind {
            // No insert of a key that the batch has touched, because it may exist.
            1 if model.get(&keyspace, &key, model.last_commit()).is_none()
                && !earlier
                    .iter()
                    .any(|(name, write)| *name == keyspace && touches(write, &key)) =>
            {
                Write::Insert(key, self.value(rng))
            }
            2 => Write::Delete(key),
            3 => {
                let other = self.key(rng);
                Write::DeleteRange(key.clone().min(other.clone()), key.max(other))
            }
            _ => Write::Put(key, self.value(rng)),
        };
        (keyspace, write)
    }

    fn get(&self, rng: &mut Rng, keyspace: String) -> Op {
        Op::Get {
            keyspace,
            key: self.key(rng),
            snapshot: self.snapshot(rng),
        }
    }

    /// Returns a move, mostly a step, so that cursors are in the middle of a walk during other
    /// operations.
    fn step(&self, rng: &mut Rng) -> Move {
        match rng.below(20) {
            0 => Move::First,
            1 => Move::Last,
            2..5 => Move::Seek(self.key(rng)),
            5..8 => Move::SeekBefore(self.key(rng)),
            8..15 => Move::Next,
            _ => Move::Prev,
        }
    }

    fn scan(&self, rng: &mut Rng, keyspace: String) -> Op {
        let directions = [Direction::Forward, Direction::Backward];
        Op::Scan {
            keyspace,
            range: (self.bound(rng), self.bound(rng)),
            direction: *rng.pick(&directions),
            limit: *rng.pick(&[1, 2, 5, 20, usize::MAX]),
            snapshot: self.snapshot(rng),
        }
    }

    fn bound(&self, rng: &mut Rng) -> Bound<Vec<u8>> {
        match rng.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(self.key(rng)),
            _ => Bound::Included(self.key(rng)),
        }
    }

    /// Returns an open snapshot for one read in three, if there is one.
    fn snapshot(&self, rng: &mut Rng) -> Option<usize> {
        (self.snapshots > 0 && rng.percent(33)).then(|| rng.below(self.snapshots))
    }

    /// Returns a known key, or rarely one that may never have been written.
    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        if rng.percent(5) {
            return random_key(&self.keys, self.shape.key_bytes.clone(), rng);
        }
        rng.pick(&self.keys).clone()
    }

    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.values += 1;
        let bytes = if rng.percent(1) {
            self.shape.large_value_bytes
        } else {
            rng.range(self.shape.value_bytes.clone())
        };
        let mut value = format!("v{}.", self.values).into_bytes();
        // Half compressible, like typical values.
        let padding = bytes.saturating_sub(value.len());
        value.extend(rng.bytes(padding / 2));
        value.resize(value.len() + padding - padding / 2, b'.');
        value
    }
}

fn touches(write: &Write, key: &[u8]) -> bool {
    match write {
        Write::Put(other, _) | Write::Insert(other, _) | Write::Delete(other) => other == key,
        Write::DeleteRange(start, end) => (start.as_slice()..end.as_slice()).contains(&key),
    }
}

fn keyspace_name(number: usize) -> String {
    format!("keyspace-{number}")
}

/// Returns a key that is often a prefix or an extension of an existing one.
fn random_key(keys: &[Vec<u8>], lengths: Range<usize>, rng: &mut Rng) -> Vec<u8> {
    const ALPHABET: [u8; 6] = [0x00, 0x01, b'a', b'b', 0x7F, 0xFF];
    let length = rng.range(lengths);
    let mut key = if keys.is_empty() || rng.percent(30) {
        Vec::new()
    } else {
        rng.pick(keys).clone()
    };
    // Most keys that extend another one share all but their last bytes with it.
    if rng.percent(70) {
        key.truncate(length.saturating_sub(rng.range(1..4)));
    }
    key.truncate(length);
    while key.len() < length {
        key.push(*rng.pick(&ALPHABET));
    }
    key
}

#[cfg(test)]
mod tests;
