//! Bulk loads of rows in any order: sorted in memory, spilled as sorted runs, merged into an
//! [`Ingest`].
//!
//! Two buffers alternate: the caller fills one while a thread sorts the other and writes it to a
//! run. A load that fits into one buffer uses no temporary file and starts no thread.

use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::sync::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
use crate::sync::thread::JoinHandle;

use super::merge_runs::{merge, reduce};
use super::run_file::{FRAME_BYTES, RUN_WRITER_BYTES, RunFile, RunWriter};
use super::{Ingest, Ingested};
use crate::base::ValueKind;
use crate::commit::payload::check_sizes;
use crate::db::Database;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::memory::{Charge, Use};

/// Rule of a [`BulkLoad`] for several rows of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The last row put stays.
    #[default]
    LastWins,
    /// The load fails with [`Error::DuplicateKey`], at a `put` or at the end: for unique indexes.
    Refuse,
}

/// Options of [`Database::bulk_load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkLoadOptions {
    /// Approximate memory of rows in bytes before they are written to temporary files. It is part
    /// of the database's memory budget and limited to half of it. At least 64 KiB.
    pub memory_bytes: usize,
    /// Rule for several rows of one key.
    pub duplicates: Duplicates,
}

impl Default for BulkLoadOptions {
    fn default() -> BulkLoadOptions {
        BulkLoadOptions {
            memory_bytes: 64 << 20,
            duplicates: Duplicates::default(),
        }
    }
}

/// Rows of one or more keyspaces in any order, to be written to tables: see
/// [`Database::bulk_load`].
///
/// Rows are sorted in memory. Rows beyond the memory limit are sorted in temporary files of the
/// database directory, with about as much space as the compressed rows. [`BulkLoad::finish`] merges
/// them into an [`Ingest`]: all rows become visible as one commit, with the guarantees and costs
/// described there. Dropping the load leaves no trace.
///
/// ```
/// use alluvium::{BulkLoadOptions, Database, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let words = db.keyspace("words", KeyspaceOptions::default())?;
/// let mut load = db.bulk_load(BulkLoadOptions::default())?;
/// for word in ["pear", "apple", "plum", "apple"] {
///     load.put(&words, word.as_bytes(), b"fruit")?;
/// }
/// assert_eq!(load.finish()?.rows, 3);
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct BulkLoad {
    db: Database,
    options: BulkLoadOptions,
    /// Keyspaces of the rows; a row refers to its keyspace by the index here.
    keyspaces: Vec<Keyspace>,
    filling: Buffer,
    /// The other buffer, unless the sorting thread has it.
    spare: Option<Buffer>,
    sorter: Option<Owned<Sorter>>,
    failed: Option<Error>,
    /// Memory charge of the buffers, and later of the buffers of the merged runs.
    charge: Charge,
}

/// Smallest memory in bytes for which runs are worth a file.
const MEMORY_BYTES_MIN: usize = 64 << 10;
/// Most runs merged at a time: each has an open file.
const FAN_IN_MAX: usize = 128;
const FAN_IN_MIN: usize = 8;

/// Error of a step of the load. Threads identify a keyspace only by its slot.
pub(super) enum Failure {
    Engine(Error),
    Duplicate { slot: u32, key: Vec<u8> },
}

pub(super) type Step<T> = Result<T, Failure>;

impl Failure {
    pub fn duplicate(slot: u32, key: &[u8]) -> Failure {
        let key = key.to_vec();
        Failure::Duplicate { slot, key }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl BulkLoad {
    pub(crate) fn new(db: Database, options: BulkLoadOptions) -> Result<BulkLoad> {
        if options.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::InvalidArgument(format!(
                "memory_bytes of a bulk load is {}, the least is {MEMORY_BYTES_MIN}",
                options.memory_bytes
            )));
        }
        let half = db.shared().core.plan().memory_bytes / 2;
        let memory_bytes = options.memory_bytes.min(half);
        Ok(BulkLoad {
            charge: Charge::new(&db.shared().core.memory.budget, Use::Jobs),
            db,
            options: BulkLoadOptions {
                memory_bytes,
                ..options
            },
            keyspaces: Vec::new(),
            filling: Buffer::default(),
            spare: Some(Buffer::default()),
            sorter: None,
            failed: None,
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a key or value that is too large; `DuplicateKey` if duplicates are
    /// refused, now or later; `NoSpace` and `Io` from temporary files; `KeyspaceDropped`; `Closed`.
    /// After an error nothing is installed, and later calls return the same error.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_row(keyspace, key, value, None)
    }

    /// Adds a row that expires at `until_ms`: see [`Keyspace::put_until`]. Otherwise works like
    /// [`BulkLoad::put`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.put_row(keyspace, key, value, Some(until_ms))
    }

    fn put_row(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: Option<u64>,
    ) -> Result<()> {
        // A forked child must not wait for the sorter below.
        self.db.shared().core.access.check_open()?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let stored = keyspace
            .stored(ValueKind::Put, value, until_ms)
            .map_err(Failure::from);
        let added = stored.and_then(|stored| self.add(keyspace, key, &stored));
        added.map_err(|failure| {
            let error = self.error(failure);
            self.failed = Some(error.clone());
            self.sorter = None;
            error
        })
    }

    /// Adds a row with its value in stored form.
    fn add(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Step<()> {
        keyspace.check_within(&self.db)?;
        check_sizes(key, value)?;
        let same = |k: &Keyspace| Arc::ptr_eq(k.tree(), keyspace.tree());
        let slot = self.keyspaces.iter().position(same).unwrap_or_else(|| {
            self.keyspaces.push(keyspace.clone());
            self.keyspaces.len() - 1
        });
        let half = self.options.memory_bytes / 2;
        let more = key.len() + value.len() + size_of::<Row>();
        if !self.filling.rows.is_empty() && self.filling.used_bytes() + more > half {
            self.spill()?;
        }
        self.filling.push(slot as u32, key, value, half);
        // After the first spill there are two buffers, and the thread's own memory.
        self.charge.set(match self.sorter {
            Some(_) => self.options.memory_bytes + RUN_WRITER_BYTES,
            None => self.filling.used_bytes(),
        });
        Ok(())
    }

    /// Sorts the rest and installs all rows as one commit: see [`Ingest::finish`].
    ///
    /// # Errors
    ///
    /// The errors of `put`, also for rows of earlier calls; those of [`Ingest::finish`].
    /// `Corruption` if a temporary file does not contain the written bytes. Nothing is visible
    /// after an error.
    pub fn finish(mut self) -> Result<Ingested> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut ingest = self.db.ingest()?;
        let fed = self.feed(&mut ingest);
        fed.map_err(|failure| self.error(failure))?;
        ingest.finish()
    }

    /// Feeds all rows in order into `ingest`, each key once.
    fn feed(&mut self, ingest: &mut Ingest) -> Step<()> {
        let duplicates = self.options.duplicates;
        if self.sorter.is_none() {
            let keyspaces = &self.keyspaces;
            return self.filling.sorted(duplicates, |slot, key, value| {
                Ok(ingest.put_stored(&keyspaces[slot as usize], key, Ok(value.into()))?)
            });
        }
        self.spill()?;
        (self.filling, self.spare) = (Buffer::default(), None);
        let sorter = self.sorter.take();
        let runs = sorter.map_or(Ok(Vec::new()), |mut sorter| sorter.finish())?;
        // Each reader holds a frame, stored and raw, and the allocator's rounding.
        let fan_in = self.options.memory_bytes / (4 * FRAME_BYTES);
        let fan_in = fan_in.clamp(FAN_IN_MIN, FAN_IN_MAX);
        let runs = reduce(self.db.shared(), runs, fan_in, duplicates)?;
        let keyspaces = &self.keyspaces;
        merge(runs, duplicates, |slot, key, value| {
            Ok(ingest.put_stored(&keyspaces[slot as usize], key, Ok(value.into()))?)
        })
    }

    /// Hands the full buffer to the sorting thread, and waits for the other one if it is still
    /// being sorted.
    fn spill(&mut self) -> Step<()> {
        if self.sorter.is_none() {
            self.sorter = Some(Owned::new(Sorter::start(
                self.db.shared(),
                self.options.duplicates,
            )?));
        }
        let sorter = self.sorter.as_ref().ok_or_else(ended)?;
        let next = match self.spare.take() {
            Some(buffer) => buffer,
            None => sorter.empty.recv().map_err(|_| ended())??,
        };
        let full = std::mem::replace(&mut self.filling, next);
        let sent = sorter.full.as_ref().map(|full_to| full_to.send(full));
        sent.and_then(Result::ok).ok_or_else(ended)
    }

    fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Engine(error) => error,
            Failure::Duplicate { slot, key } => Error::DuplicateKey {
                keyspace: self.keyspaces[slot as usize].name().to_owned(),
                key,
            },
        }
    }
}

/// Thread that sorts and writes runs.
struct Sorter {
    /// Full buffers for the thread; `None` ends it.
    full: Option<SyncSender<Buffer>>,
    /// Empty buffers from the thread, or its error.
    empty: Receiver<Step<Buffer>>,
    thread: Option<JoinHandle<Vec<RunFile>>>,
}

impl Sorter {
    fn start(shared: &Arc<Shared>, duplicates: Duplicates) -> Step<Sorter> {
        let (full, to_sort) = sync_channel(1);
        let (done, empty) = channel();
        let of_thread = Arc::clone(shared);
        let thread = crate::sync::thread::Builder::new()
            .name("alv-sort".to_owned())
            .spawn(move || sort_runs(&of_thread, duplicates, &to_sort, &done))
            .map_err(|e| Error::io("start a thread for", &shared.core.files.dir, e))?;
        Ok(Sorter {
            full: Some(full),
            empty,
            thread: Some(thread),
        })
    }

    /// Waits for the last run, and returns all of them, oldest first.
    fn finish(&mut self) -> Step<Vec<RunFile>> {
        self.full = None;
        for sorted in self.empty.iter() {
            sorted?;
        }
        let thread = self.thread.take().ok_or_else(ended)?;
        thread.join().map_err(|_| ended())
    }
}

impl Drop for Sorter {
    /// Ends the thread and drops its runs.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            drop(thread.join());
        }
    }
}

fn ended() -> Failure {
    let message = "the sorting thread of a bulk load panicked; see its own message";
    Failure::Engine(Error::Internal(message.into()))
}

/// Sorts buffers and writes them as runs. Ends when there are no more buffers, or after a failure.
fn sort_runs(
    shared: &Arc<Shared>,
    duplicates: Duplicates,
    to_sort: &Receiver<Buffer>,
    done: &Sender<Step<Buffer>>,
) -> Vec<RunFile> {
    let mut runs = Vec::new();
    for mut buffer in to_sort.iter() {
        let written = RunWriter::create(shared)
            .map_err(Failure::from)
            .and_then(|mut writer| {
                buffer.sorted(duplicates, |slot, key, value| {
                    Ok(writer.add(slot, key, value)?)
                })?;
                Ok(writer.finish()?)
            });
        let sorted = written.map(|run| {
            runs.push(run);
            buffer.clear();
            buffer
        });
        let failed = sorted.is_err();
        if done.send(sorted).is_err() || failed {
            break;
        }
    }
    runs
}

/// Rows in their order of arrival.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Row of a buffer; its value follows its key.
struct Row {
    slot: u32,
    key_bytes: u32,
    value_bytes: u32,
    /// First 8 bytes of the key; they decide most comparisons.
    head: u64,
    at: usize,
}

impl Buffer {
    fn used_bytes(&self) -> usize {
        self.bytes.len() + self.rows.capacity() * size_of::<Row>()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    fn push(&mut self, slot: u32, key: &[u8], value: &[u8], capacity: usize) {
        if self.bytes.capacity() == 0 && self.bytes.len() < capacity {
            // Reserve once instead of by doubling: untouched pages take no memory.
            self.bytes.reserve_exact(capacity);
        }
        if self.rows.len() == self.rows.capacity() {
            // Grow by a quarter instead of by doubling: unused room counts as the load's memory.
            self.rows.reserve_exact((self.rows.len() / 4).max(64));
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let mut head = [0; 8];
        let shown = key.len().min(8);
        head[..shown].copy_from_slice(&key[..shown]);
        self.rows.push(Row {
            slot,
            // Already checked: a key has at most 64 KiB, a value at most 1 GiB.
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
            head: u64::from_be_bytes(head),
            at,
        });
    }

    /// Sorts the rows and hands each key's last one to `emit`.
    fn sorted(
        &mut self,
        duplicates: Duplicates,
        mut emit: impl FnMut(u32, &[u8], &[u8]) -> Step<()>,
    ) -> Step<()> {
        let bytes = &self.bytes;
        let key = |row: &Row| &bytes[row.at..row.at + row.key_bytes as usize];
        self.rows.sort_unstable_by(|a, b| {
            let heads = (a.slot, a.head).cmp(&(b.slot, b.head));
            heads.then_with(|| key(a).cmp(key(b))).then(a.at.cmp(&b.at))
        });
        for (i, row) in self.rows.iter().enumerate() {
            let next = self.rows.get(i + 1);
            if next.is_some_and(|next| next.slot == row.slot && key(next) == key(row)) {
                match duplicates {
                    Duplicates::LastWins => continue,
                    Duplicates::Refuse => return Err(Failure::duplicate(row.slot, key(row))),
                }
            }
            let value = row.at + row.key_bytes as usize;
            let value = &bytes[value..value + row.value_bytes as usize];
            emit(row.slot, key(row), value)?;
        }
        Ok(())
    }
}
