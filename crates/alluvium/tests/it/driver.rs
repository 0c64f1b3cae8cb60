//! Drives a database and the reference model with the same operations and compares every answer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, MemVfs};
use alluvium::{
    Cursor, CursorOptions, Database, Durability, Ingested, Isolation, Keyspace, KeyspaceOptions,
    Options, Snapshot, Transaction, TransactionOptions, WriteBatch,
};
use alluvium_testkit::model::{Direction, Model, Rows, State, Write};
use alluvium_testkit::op::Op;
use alluvium_testkit::random::Rng;

use crate::held_cursor::HeldCursor;

/// A database in memory and its model.
pub struct Driver {
    pub vfs: Arc<MemVfs>,
    pub db: Database,
    pub model: Model,
    pub options: Options,
    snapshots: Vec<(Snapshot, u64)>,
    cursors: Vec<HeldCursor>,
    /// The newest commit that is certainly durable.
    pub durable: u64,
    /// Commit at which each keyspace was last created: an older snapshot has another keyspace under
    /// that name.
    created: BTreeMap<String, u64>,
    checkpoints: u64,
}

/// Returns options under which a few hundred rows cause flushes, compactions, splits and cache
/// evictions.
pub fn small_options(rng: &mut Rng) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(rng.range(2_000..40_000)),
        table_bytes: 4096 * rng.range(1..4) as u64,
        upper_fraction: *rng.pick(&[0.02, 0.15, 1.0]),
        durability: *rng.pick(&[Durability::Buffered, Durability::Sync]),
        // Now and then the database considers itself idle, at any moment.
        idle_after: *rng.pick(&[None, Some(Duration::from_micros(200))]),
        ..Options::default()
    }
}

fn keyspace_options(name: &str) -> KeyspaceOptions {
    // Different filters, so that the same histories run over all of them.
    match name.len() % 3 + name.bytes().last().map_or(0, usize::from) % 3 {
        0 => KeyspaceOptions {
            whole_key_filter: false,
            value_separation_bytes: Some(256),
            ..KeyspaceOptions::default()
        },
        1 => KeyspaceOptions {
            prefix_filter_bytes: Some(2),
            block_bytes: 1024,
            value_separation_bytes: None,
            ..KeyspaceOptions::default()
        },
        _ => KeyspaceOptions {
            prefix_filter_bytes: Some(1),
            expect_hits: true,
            ..KeyspaceOptions::default()
        },
    }
}

impl Driver {
    pub fn new(options: Options) -> Driver {
        let vfs = Arc::new(MemVfs::new());
        let db = Database::open_on(vfs.clone(), Path::new("db"), options.clone()).expect("open");
        let (model, snapshots, created) = (Model::new(), Vec::new(), BTreeMap::new());
        Driver {
            vfs,
            db,
            model,
            options,
            snapshots,
            cursors: Vec::new(),
            durable: 0,
            created,
            checkpoints: 0,
        }
    }

    pub fn keyspace(&self, name: &str) -> Keyspace {
        self.db
            .keyspace(name, keyspace_options(name))
            .expect("keyspace")
    }

    /// Runs one operation on both and compares. `seed` decides which data survives a crash.
    pub fn run(&mut self, op: &Op, seed: u64) {
        let before = self.model.last_commit();
        op.apply(&mut self.model);
        match op {
            Op::Commit(writes) => self.commit(writes, before, seed),
            Op::Ingest(writes) => {
                ingest(&self.db, writes).expect("ingest");
                // Without rows there is nothing to make durable.
                if !writes.is_empty() {
                    self.durable = self.model.last_commit();
                }
            }
            Op::Get {
                keyspace,
                key,
                snapshot,
            } => self.get(keyspace, key, *snapshot),
            Op::Scan {
                keyspace,
                range,
                direction,
                limit,
                snapshot,
            } => {
                self.scan(keyspace, range, *direction, *limit, *snapshot);
            }
            Op::Snapshot => self
                .snapshots
                .push((self.db.snapshot().expect("snapshot"), before)),
            Op::DropSnapshot(at) => drop(self.snapshots.remove(*at)),
            Op::Flush => {
                self.db.flush().expect("flush");
                self.durable = self.model.last_commit();
                self.check_files();
                if seed.is_multiple_of(3) {
                    self.check_checkpoint();
                }
            }
            Op::Compact(name) if seed.is_multiple_of(2) => {
                let keyspace = self.keyspace(name);
                keyspace.compact_range(&[], None).expect("compact");
                self.check_files();
            }
            Op::Compact(_) => {
                self.change_options(seed);
                self.db.settle().expect("settle");
                self.check_files();
            }
            Op::OpenCursor { keyspace, snapshot } => self.open_cursor(keyspace, *snapshot),
            Op::MoveCursor(at, to) => self.cursors[*at].go(to, &self.model),
            Op::CloseCursor(at) => drop(self.cursors.remove(*at)),
            Op::Reopen => self.reopen(),
            Op::Crash => self.crash(seed),
            Op::CreateKeyspace(name) => {
                self.keyspace(name);
                self.durable = self.model.last_commit();
                self.created.insert(name.clone(), self.durable);
            }
            Op::DropKeyspace(name) => {
                let keyspace = self.keyspace(name);
                self.db.drop_keyspace(&keyspace).expect("drop");
                let of_it = self.cursors.iter_mut().filter(|c| c.keyspace == *name);
                of_it.for_each(|cursor| cursor.is_dropped = true);
                self.durable = self.model.last_commit();
            }
        }
        if self.options.durability == Durability::Sync {
            self.durable = self.model.last_commit();
        }
    }

    /// Gives a keyspace other filters, which must not change any answer.
    fn change_options(&mut self, seed: u64) {
        let names = self.db.keyspace_names().expect("names");
        let mut rng = Rng::new(seed);
        if names.is_empty() || rng.percent(50) {
            return;
        }
        let name = rng.pick(&names).clone();
        let options = KeyspaceOptions {
            prefix_filter_bytes: *rng.pick(&[None, Some(1), Some(2), Some(3)]),
            whole_key_filter: rng.percent(50),
            ..KeyspaceOptions::default()
        };
        let keyspace = self.keyspace(&name);
        keyspace.set_options(options).expect("options");
        self.durable = self.model.last_commit();
    }

    /// Commits in one of the possible ways; `before` is the previous commit.
    fn commit(&mut self, writes: &[(String, Write)], before: u64, seed: u64) {
        match seed % 8 {
            0 => self.commit_in_two_phases(writes, before, seed / 8),
            1 => {
                let txn = self.transaction(writes, Isolation::Serializable, seed & 8 == 0);
                txn.commit().expect("nobody else writes");
            }
            _ => self.commit_batch(writes),
        }
    }

    /// Returns a transaction that has read, and then made these writes.
    fn transaction(
        &self,
        writes: &[(String, Write)],
        isolation: Isolation,
        optimistic: bool,
    ) -> Transaction {
        let options = TransactionOptions {
            isolation,
            optimistic,
            ..TransactionOptions::default()
        };
        let txn = self.db.begin_with(options).expect("begin");
        for (name, write) in writes {
            let keyspace = self.keyspace(name);
            let cursor = txn.cursor(&keyspace, CursorOptions::default());
            collect(cursor.expect("cursor"), Direction::Backward, 3);
            match write {
                Write::Put(key, value) => txn.put(&keyspace, key, value),
                Write::Insert(key, value) => txn.insert(&keyspace, key, value),
                Write::Delete(key) => txn.delete(&keyspace, key),
                Write::DeleteRange(start, end) if start < end => {
                    txn.delete_range(&keyspace, start, end)
                }
                Write::DeleteRange(..) => Ok(()),
            }
            .expect("write");
        }
        txn
    }

    /// Prepares, then flushes, reopens, crashes or makes a copy, and commits.
    fn commit_in_two_phases(&mut self, writes: &[(String, Write)], before: u64, choice: u64) {
        let txn = self.transaction(writes, Isolation::ReadCommitted, false);
        drop(txn.prepare(b"two phases").expect("prepare"));
        // The prepare has synced the log.
        self.durable = before;
        // The generator relies on the open snapshots and cursors.
        let may_end = self.snapshots.is_empty() && self.cursors.is_empty();
        match choice % 4 {
            0 => self.db.flush().expect("flush"),
            1 if may_end => {
                self.db.close().expect("close");
                self.open();
            }
            2 if may_end => {
                let crashed = Arc::new(self.vfs.crash(choice, CrashOptions::POWER_LOSS));
                let old = std::mem::replace(&mut self.vfs, crashed);
                self.open();
                drop(old);
            }
            _ => self.check_prepared_copy(),
        }
        assert_eq!(self.db.prepared().expect("list"), [b"two phases"]);
        let prepared = self.db.take_prepared(b"two phases").expect("take");
        prepared.commit().expect("commit");
    }

    /// Checks that a checkpoint has the prepared transaction and can commit it independently.
    fn check_prepared_copy(&mut self) {
        self.checkpoints += 1;
        let name = format!("checkpoint{}", self.checkpoints);
        self.db.checkpoint(&name).expect("checkpoint");
        let copy = Database::open_on(self.vfs.clone(), Path::new(&name), self.options.clone());
        let copy = copy.expect("open");
        let prepared = copy.take_prepared(b"two phases").expect("take");
        prepared.commit().expect("commit");
        assert_eq!(state_of(&copy), self.model.state());
    }

    fn open(&mut self) {
        self.db = Database::open_on(self.vfs.clone(), Path::new("db"), self.options.clone())
            .unwrap_or_else(|e| panic!("reopen: {}", chain(&e)));
    }

    fn commit_batch(&mut self, writes: &[(String, Write)]) {
        let mut batch = WriteBatch::new();
        for (name, write) in writes {
            let keyspace = self.keyspace(name);
            match write {
                Write::Put(key, value) => batch.put(&keyspace, key, value),
                Write::Insert(key, value) => batch.insert(&keyspace, key, value),
                Write::Delete(key) => batch.delete(&keyspace, key),
                Write::DeleteRange(start, end) if start < end => {
                    batch.delete_range(&keyspace, start, end)
                }
                Write::DeleteRange(..) => Ok(()),
            }
            .expect("write");
        }
        self.db.write(&batch).expect("commit");
    }

    /// Returns true if a snapshot was taken before the keyspace with this name was created.
    fn predates(&self, snapshot: Option<usize>, name: &str) -> bool {
        let created = self.created.get(name).copied().unwrap_or(0);
        snapshot.is_some_and(|i| self.snapshots[i].1 < created)
    }

    fn get(&self, name: &str, key: &[u8], snapshot: Option<usize>) {
        if self.predates(snapshot, name) {
            return;
        }
        let keyspace = self.keyspace(name);
        let (found, at) = match snapshot {
            Some(i) => (self.snapshots[i].0.get(&keyspace, key), self.snapshots[i].1),
            None => (keyspace.get(key), self.model.last_commit()),
        };
        let expected = self.model.get(name, key, at);
        assert_eq!(
            found.expect("get").as_deref(),
            expected,
            "get {key:?} of {name} at {at}"
        );
    }

    fn scan(
        &self,
        name: &str,
        range: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
        direction: Direction,
        limit: usize,
        snapshot: Option<usize>,
    ) {
        if self.predates(snapshot, name) {
            return;
        }
        let keyspace = self.keyspace(name);
        let after = |key: &[u8]| [key, &[0]].concat();
        let start = match &range.0 {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => after(key),
        };
        let end = match &range.1 {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.clone()),
        };
        let options = CursorOptions {
            start,
            end,
            ..CursorOptions::default()
        };
        let (cursor, at) = match snapshot {
            Some(i) => (
                self.snapshots[i].0.cursor(&keyspace, options),
                self.snapshots[i].1,
            ),
            None => (keyspace.cursor(options), self.model.last_commit()),
        };
        let found = collect(cursor.expect("cursor"), direction, limit);
        let bounds = (
            range.0.as_ref().map(Vec::as_slice),
            range.1.as_ref().map(Vec::as_slice),
        );
        let expected = self.model.scan(name, bounds, direction, limit, at);
        let found: Vec<_> = found.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        assert_eq!(
            found, expected,
            "scan {range:?} {direction:?} of {name} at {at}"
        );
    }

    fn open_cursor(&mut self, name: &str, snapshot: Option<usize>) {
        let keyspace = self.keyspace(name);
        let at = snapshot.map_or(self.model.last_commit(), |at| self.snapshots[at].1);
        let options = CursorOptions::default();
        let cursor = match snapshot {
            Some(at) => self.snapshots[at].0.cursor(&keyspace, options),
            None => keyspace.cursor(options),
        };
        self.cursors.push(HeldCursor {
            cursor: cursor.expect("cursor"),
            keyspace: name.to_owned(),
            at,
            key: None,
            predates: self.predates(snapshot, name),
            is_dropped: false,
        });
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.close().expect("close");
        self.cursors.drain(..).for_each(HeldCursor::check_closed);
        self.db = Database::open_on(self.vfs.clone(), Path::new("db"), self.options.clone())
            .expect("reopen");
        self.durable = self.model.last_commit();
        self.check_state();
    }

    fn crash(&mut self, seed: u64) {
        self.snapshots.clear();
        self.cursors.clear();
        let crashed = Arc::new(self.vfs.crash(seed, CrashOptions::POWER_LOSS));
        // The old database continues in files that no database reads any more, and ends.
        let old = std::mem::replace(&mut self.vfs, crashed);
        self.db = Database::open_on(self.vfs.clone(), Path::new("db"), self.options.clone())
            .unwrap_or_else(|e| panic!("reopen after a crash (seed {seed}): {}", chain(&e)));
        drop(old);
        // If the commit of a prepared transaction was lost, the transaction is rolled back.
        for xid in self.db.prepared().expect("list") {
            let prepared = self.db.take_prepared(&xid).expect("take");
            prepared.rollback().expect("rollback");
        }
        let kept = self.model.find_prefix(&self.state(), self.durable);
        let kept = kept.unwrap_or_else(|e| panic!("after a crash (seed {seed}): {e}"));
        self.model.rewind(kept);
        self.durable = kept;
    }

    /// Returns everything in the database.
    pub fn state(&self) -> State {
        state_of(&self.db)
    }

    /// Verifies all files, and checks that no insert is on top of a live row.
    fn check_files(&self) {
        let report = self.db.verify().expect("verify");
        assert!(report.is_clean(), "{report:?}");
    }

    /// Checks that a checkpoint has everything, for readers and for writers.
    fn check_checkpoint(&mut self) {
        self.checkpoints += 1;
        let name = format!("checkpoint{}", self.checkpoints);
        self.db.checkpoint(&name).expect("checkpoint");
        for read_only in [true, false] {
            let options = Options {
                read_only,
                ..self.options.clone()
            };
            let copy = Database::open_on(self.vfs.clone(), Path::new(&name), options);
            assert_eq!(state_of(&copy.expect("open")), self.model.state());
        }
    }

    pub fn check_state(&self) {
        assert_eq!(self.state(), self.model.state());
    }
}

/// Ingests puts of existing keyspaces.
pub fn ingest(db: &Database, writes: &[(String, Write)]) -> alluvium::Result<Ingested> {
    let mut ingest = db.ingest()?;
    for (name, write) in writes {
        let Write::Put(key, value) = write else {
            unreachable!("only puts are ingested");
        };
        let keyspace = db.existing_keyspace(name)?.expect("a keyspace to ingest");
        ingest.put(&keyspace, key, value)?;
    }
    ingest.finish()
}

/// Returns everything in a database.
pub fn state_of(db: &Database) -> State {
    let names = db.keyspace_names().expect("names");
    let rows = |name: &String| {
        let keyspace = db.existing_keyspace(name).expect("keyspace");
        let keyspace = keyspace.expect("a listed keyspace");
        let cursor = keyspace.cursor(CursorOptions::default()).expect("cursor");
        Rows::from_iter(collect(cursor, Direction::Forward, usize::MAX))
    };
    let state = names.iter().map(|name| (name.clone(), rows(name)));
    state.collect()
}

/// Returns up to `limit` rows.
pub fn collect(mut cursor: Cursor, direction: Direction, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut found = match direction {
        Direction::Forward => cursor.seek_first(),
        Direction::Backward => cursor.seek_last(),
    };
    while rows.len() < limit && found.expect("scan") {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        found = match direction {
            Direction::Forward => cursor.next(),
            Direction::Backward => cursor.prev(),
        };
    }
    rows
}

/// Returns an error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
