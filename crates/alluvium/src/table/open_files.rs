//! Open files of tables and values: limited in number, closed if others need their descriptors, and
//! reopened on demand.
//!
//! A process may have few descriptors (1,024 on many systems) and a database very many tables.
//! [`OpenFiles`] counts the descriptors of one database and closes files without recent reads by
//! the CLOCK algorithm, as the block cache does with blocks. The parts of a table in memory
//! (fences, filters, properties) stay: only reads of its file need the descriptor.
//!
//! A read of an open file takes no lock: it loads a pointer, which keeps the file open until the
//! read has ended. A read of a closed file opens it by its name. The name exists as long as any
//! reader does, because the last user of a table hands its file to the code that removes the name
//! (`owned_file`). Names are never reused, and every block is checked against the uid of its table
//! in any case.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::error::lacks_descriptors;
use crate::sync::plain::Mutex;
use crate::vfs::{Vfs, VfsFile};

/// Descriptors closed at a time if the system has no more.
const CLOSED_AT_ONCE: usize = 16;

/// Attempts to close files for one that is to be opened.
const ATTEMPTS: usize = 4;

/// Smallest limit on open files, even if the system allows fewer.
const LIMIT_MIN: usize = 16;

/// Descriptors of a database's tables and value files. Shared by `Arc`.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    vfs: Arc<dyn Vfs>,
    limit: usize,
    /// Number of open files. Relaxed: it orders nothing, and may be off by the number of threads
    /// that are opening files.
    open: AtomicUsize,
    /// Guards the CLOCK order. Every open file has one entry; entries of dropped files are removed
    /// later. A leaf in the lock order; files are opened and closed without it.
    ring: Mutex<VecDeque<Weak<KeptFile>>>,
    /// Number of times that files were closed for lack of a descriptor. Changed only under
    /// `closing`.
    rounds: AtomicU64,
    /// Held while files are closed for lack of a descriptor, until they are closed: a second thread
    /// without a descriptor waits for those that the first one frees. Before `ring` in the lock
    /// order.
    closing: Mutex<()>,
}

/// Returns half of the descriptors that the process may have. The rest is for the log, files being
/// written, and the rest of the program.
pub(crate) fn default_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let descriptors = limit.current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX)
}

impl OpenFiles {
    /// Creates a pool of at most `limit` open files, or [`LIMIT_MIN`] if that is larger.
    pub fn new(vfs: Arc<dyn Vfs>, limit: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            vfs,
            limit: limit.max(LIMIT_MIN),
            open: AtomicUsize::new(0),
            ring: Mutex::new(VecDeque::new()),
            rounds: AtomicU64::new(0),
            closing: Mutex::new(()),
        })
    }

    /// Returns the number of open files.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the same file, read only, as one that the pool may close and reopen. Closes others
    /// above the limit.
    pub fn keep(self: &Arc<OpenFiles>, file: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        let kept = Arc::new_cyclic(|this| KeptFile {
            this: Weak::clone(this),
            path: file.path().to_path_buf(),
            files: Arc::clone(self),
            slot: ArcSwapOption::from_pointee(file),
            was_read: AtomicBool::new(false),
            random: AtomicBool::new(false),
        });
        self.opened(&kept);
        kept
    }

    /// Runs `open`, which needs a descriptor. If there is none, closes pooled files and tries
    /// again.
    pub fn with_descriptor<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        // Limited, because other threads may take the descriptors that a round has freed.
        for _ in 0..ATTEMPTS {
            let rounds = self.rounds.load(Ordering::Acquire);
            match open() {
                Err(error) if lacks_descriptors(&error) && self.close_since(rounds) => {}
                result => return result,
            }
        }
        open()
    }

    /// Closes a few files to free descriptors. Returns false if none was open.
    pub fn close_some(&self) -> bool {
        let rounds = self.rounds.load(Ordering::Acquire);
        self.close_since(rounds)
    }

    /// Closes a few files, unless the number of rounds has changed since `seen`: then another
    /// thread has closed some. Returns false if none was open.
    fn close_since(&self, seen: u64) -> bool {
        let _closing = self.closing.lock();
        if self.rounds.load(Ordering::Acquire) != seen {
            return true;
        }
        let most = self.open_count().saturating_sub(CLOSED_AT_ONCE);
        let any = self.close_down_to(most, None);
        self.rounds.fetch_add(1, Ordering::Release);
        any
    }

    /// Closes all files when the database is closed. Only a call in progress may reopen one.
    pub fn close_all(&self) {
        self.close_down_to(0, None);
    }

    /// Records that a file is open, and closes others.
    fn opened(&self, file: &Arc<KeptFile>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        {
            let mut ring = self.ring.lock();
            ring.push_back(Arc::downgrade(file));
            // Two checks for each added entry keep entries of dropped files few.
            for _ in 0..2 {
                if let Some(entry) = ring.pop_front()
                    && entry.strong_count() > 0
                {
                    ring.push_back(entry);
                }
            }
        }
        self.close_down_to(self.limit, Some(file));
    }

    /// Closes files until no more than `most` are open, but not `spared`. Returns false if it
    /// closed none.
    fn close_down_to(&self, most: usize, spared: Option<&Arc<KeptFile>>) -> bool {
        let mut closed = Vec::new();
        {
            let mut ring = self.ring.lock();
            // The first pass clears the marks of all files.
            for _ in 0..2 * ring.len() {
                if self.open_count() <= most {
                    break;
                }
                let Some(entry) = ring.pop_front() else {
                    break;
                };
                let Some(file) = entry.upgrade() else {
                    continue;
                };
                let is_spared = spared.is_some_and(|spared| Arc::ptr_eq(spared, &file));
                if is_spared || file.was_read.swap(false, Ordering::Relaxed) {
                    ring.push_back(entry);
                } else if let Some(descriptor) = file.slot.swap(None) {
                    self.open.fetch_sub(1, Ordering::Relaxed);
                    closed.push((file, Some(descriptor)));
                } else {
                    closed.push((file, None));
                }
            }
        }
        // The descriptors are closed here, without the mutex, or by the last reader.
        closed.iter().any(|(_, descriptor)| descriptor.is_some())
    }
}

/// File that is opened when it is read, and closed when others need its descriptor.
#[derive(Debug)]
struct KeptFile {
    this: Weak<KeptFile>,
    path: PathBuf,
    files: Arc<OpenFiles>,
    /// `None` while the file is closed. A reader's guard keeps it open.
    slot: ArcSwapOption<Arc<dyn VfsFile>>,
    /// True if the file was read since the ring last checked. Relaxed: a hint.
    was_read: AtomicBool,
    /// True if a reopen has to repeat the advice of [`VfsFile::expect_random_reads`]. Relaxed: a
    /// hint.
    random: AtomicBool,
}

impl KeptFile {
    /// Runs `work` on the open file.
    fn with<T>(&self, work: impl FnOnce(&dyn VfsFile) -> io::Result<T>) -> io::Result<T> {
        if !self.was_read.load(Ordering::Relaxed) {
            self.was_read.store(true, Ordering::Relaxed);
        }
        let slot = self.slot.load();
        match &*slot {
            Some(file) => work(&***file),
            None => work(&**self.reopen()?),
        }
    }

    #[cold]
    fn reopen(&self) -> io::Result<Arc<Arc<dyn VfsFile>>> {
        let files = &self.files;
        let file = files.with_descriptor(|| files.vfs.open_read(&self.path))?;
        if self.random.load(Ordering::Relaxed) {
            file.expect_random_reads();
        }
        let file = Arc::new(file);
        let closed: Option<Arc<Arc<dyn VfsFile>>> = None;
        let before = self.slot.compare_and_swap(&closed, Some(Arc::clone(&file)));
        if let Some(other) = &*before {
            // Another reader was first.
            return Ok(Arc::clone(other));
        }
        if let Some(this) = self.this.upgrade() {
            files.opened(&this);
        }
        Ok(file)
    }

    /// Gives advice about an open file; a closed one needs none.
    fn advise(&self, advice: impl FnOnce(&dyn VfsFile)) {
        if let Some(file) = &*self.slot.load() {
            advice(&***file);
        }
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if self.slot.load().is_some() {
            self.files.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl VfsFile for KeptFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|file| file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.with(|file| file.write_at(buf, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file| file.sync())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.allocate(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|file| file.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.truncate(len))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.advise(|file| file.start_writeback(offset, len));
    }

    fn expect_random_reads(&self) {
        self.random.store(true, Ordering::Relaxed);
        self.advise(|file| file.expect_random_reads());
    }

    fn start_reading(&self, offset: u64, len: u64) {
        // Worth a reopen: the read follows.
        let _ = self.with(|file| {
            file.start_reading(offset, len);
            Ok(())
        });
    }

    fn drop_cached(&self, offset: u64, len: u64) {
        self.advise(|file| file.drop_cached(offset, len));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::vfs::MemVfs;

    fn written(vfs: &Arc<dyn Vfs>, n: usize) -> Arc<dyn VfsFile> {
        let path = PathBuf::from(format!("{n}"));
        let file = vfs.create(&path).expect("create");
        file.write_at(&[n as u8; 4], 0).expect("write");
        vfs.open_read(&path).expect("open")
    }

    fn byte(file: &Arc<dyn VfsFile>) -> u8 {
        let mut byte = [0];
        file.read_at(&mut byte, 3).expect("read");
        byte[0]
    }

    #[test]
    fn files_above_the_limit_are_closed_and_opened_again_when_they_are_read() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let files = OpenFiles::new(Arc::clone(&vfs), LIMIT_MIN);
        let kept: Vec<_> = (0..100).map(|n| files.keep(written(&vfs, n))).collect();
        assert_eq!(files.open_count(), LIMIT_MIN);
        for (n, file) in kept.iter().enumerate() {
            assert_eq!(usize::from(byte(file)), n);
            assert!(files.open_count() <= LIMIT_MIN);
        }
        drop(kept);
        assert_eq!(files.open_count(), 0);
        let again: Vec<_> = (100..200).map(|n| files.keep(written(&vfs, n))).collect();
        assert!(files.ring.lock().len() <= LIMIT_MIN + 1);
        drop(again);
    }

    /// File that signals the start of its close and then waits for the test. It supports nothing
    /// else.
    #[derive(Debug)]
    struct SlowToClose {
        path: PathBuf,
        closing: Arc<Barrier>,
        closed: Arc<AtomicBool>,
    }

    impl Drop for SlowToClose {
        fn drop(&mut self) {
            self.closing.wait();
            self.closing.wait();
            self.closed.store(true, Ordering::SeqCst);
        }
    }

    impl VfsFile for SlowToClose {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!()
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn len(&self) -> io::Result<u64> {
            unreachable!()
        }

        fn truncate(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn path(&self) -> &Path {
            &self.path
        }

        fn start_writeback(&self, _: u64, _: u64) {}

        fn drop_cached(&self, _: u64, _: u64) {}
    }

    #[test]
    fn a_thread_without_a_descriptor_waits_for_the_ones_that_another_thread_frees() {
        const EMFILE: i32 = 24;
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let files = OpenFiles::new(Arc::clone(&vfs), LIMIT_MIN);
        let closed = Arc::new(AtomicBool::new(false));
        let slow = Arc::new(SlowToClose {
            path: PathBuf::from("slow"),
            closing: Arc::new(Barrier::new(2)),
            closed: Arc::clone(&closed),
        });
        let closing = Arc::clone(&slow.closing);
        let kept = files.keep(slow);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(files.close_some()));
            closing.wait();
            // The only file is no longer in the ring, and its descriptor is not free yet.
            let failed_once = AtomicBool::new(false);
            let opened = files.with_descriptor(|| {
                if closed.load(Ordering::SeqCst) {
                    return Ok(());
                }
                assert!(!failed_once.swap(true, Ordering::SeqCst));
                closing.wait();
                Err(io::Error::from_raw_os_error(EMFILE))
            });
            opened.expect("after the other thread");
        });
        drop(kept);
    }

    #[test]
    fn a_file_that_is_read_again_and_again_stays_open() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let files = OpenFiles::new(Arc::clone(&vfs), LIMIT_MIN);
        let hot = files.keep(written(&vfs, 0));
        vfs.remove(hot.path()).expect("remove");
        // The name is removed: once closed, the file could not be reopened.
        for n in 1..100 {
            assert_eq!(byte(&hot), 0);
            let cold = files.keep(written(&vfs, n));
            assert_eq!(usize::from(byte(&cold)), n);
        }
    }
}
