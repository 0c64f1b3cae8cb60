//! The open files of tables and values: bounded, closed when others need their descriptors, and
//! opened again on demand.
//!
//! A process may have few descriptors (1,024 on many systems) and a database very many tables.
//! [`OpenFiles`] counts the descriptors of one database and closes those that were not read lately,
//! by the CLOCK algorithm, as the block cache does with blocks. What a table keeps in memory
//! (fences, filters, properties) stays: only reads of its file need the descriptor.
//!
//! A read of an open file takes no lock: it loads a pointer, which keeps the file open until the
//! read has ended. A read of a closed one opens it by its name. The name is there as long as anyone
//! may read, since the last user of a table hands its file to whoever removes the name
//! (`owned_file`), and names are never used again; every block is checked against the uid of its
//! table in any case.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::error::lacks_descriptors;
use crate::sync::plain::Mutex;
use crate::vfs::{Vfs, VfsFile};

/// Descriptors that are closed at a time when the system has no more.
const CLOSED_AT_ONCE: usize = 16;

/// Number of times that files are closed for one that is to be opened.
const ATTEMPTS: usize = 4;

/// The least that is kept open, whatever the system says.
const LIMIT_MIN: usize = 16;

/// The descriptors of a database's tables and value files. Shared by `Arc`.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    vfs: Arc<dyn Vfs>,
    limit: usize,
    /// Number of open files. Relaxed: it orders nothing, and may be off by the threads that open
    /// files at the moment.
    open: AtomicUsize,
    /// Guards the CLOCK order. Every open file has one entry; those of files that are gone are
    /// taken out later. A leaf in the lock order; files are opened and closed without it.
    ring: Mutex<VecDeque<Weak<KeptFile>>>,
    /// Number of times that files were closed for want of a descriptor. Changed under `closing`
    /// alone.
    rounds: AtomicU64,
    /// Held while files are closed for want of a descriptor, until they are closed: a second thread
    /// that lacks one waits for those that the first one frees. Before `ring` in the lock order.
    closing: Mutex<()>,
}

/// Half of the descriptors that the process may have: the rest is for the log, files that are being
/// written, and the program around the database.
pub(crate) fn default_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let descriptors = limit.current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX)
}

impl OpenFiles {
    /// Keeps at most `limit` files open, or a few where that is too small.
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

    /// Number of open files.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The same file, read only, as one of those that may be closed and opened again. Closes others
    /// that are above the limit.
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

    /// Runs `open`, which needs a descriptor. Where there is none, closes files that are kept open
    /// and tries again.
    pub fn with_descriptor<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        // Ends: other threads may take what a round has closed, but not for ever.
        for _ in 0..ATTEMPTS {
            let rounds = self.rounds.load(Ordering::Acquire);
            match open() {
                Err(error) if lacks_descriptors(&error) && self.close_since(rounds) => {}
                result => return result,
            }
        }
        open()
    }

    /// Closes a few files, for something else that needs a descriptor. False: none was open.
    pub fn close_some(&self) -> bool {
        let rounds = self.rounds.load(Ordering::Acquire);
        self.close_since(rounds)
    }

    /// Closes a few files, unless another thread has done so since the number of rounds was this
    /// one. False: none was open.
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

    /// Closes all files: the database is closed. Only a call that is on its way may open one again.
    pub fn close_all(&self) {
        self.close_down_to(0, None);
    }

    /// Notes that a file is open, and closes others.
    fn opened(&self, file: &Arc<KeptFile>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        {
            let mut ring = self.ring.lock();
            ring.push_back(Arc::downgrade(file));
            // Two for each one added keep the entries of files that are gone few.
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

    /// Closes files until no more than `most` are open, but not `spared`. False: there was none to
    /// close.
    fn close_down_to(&self, most: usize, spared: Option<&Arc<KeptFile>>) -> bool {
        let mut closed = Vec::new();
        {
            let mut ring = self.ring.lock();
            // The first round takes the marks of all files away.
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
        // Closed here, without the mutex, or by the last reader.
        closed.iter().any(|(_, descriptor)| descriptor.is_some())
    }
}

/// A file that is opened when it is read and closed when others are.
#[derive(Debug)]
struct KeptFile {
    this: Weak<KeptFile>,
    path: PathBuf,
    files: Arc<OpenFiles>,
    /// `None` while the file is closed. A reader's guard keeps it open.
    slot: ArcSwapOption<Arc<dyn VfsFile>>,
    /// True if it was read since the ring asked last. Relaxed: a hint.
    was_read: AtomicBool,
    /// True if the advice of [`VfsFile::expect_random_reads`] is to be given again. Relaxed: a
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
            // Another reader was faster.
            return Ok(Arc::clone(other));
        }
        if let Some(this) = self.this.upgrade() {
            files.opened(&this);
        }
        Ok(file)
    }

    /// Gives advice about a file that is open; one that is closed needs none.
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
        // Worth a descriptor: the read follows.
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

    /// A file that tells when it is being closed, and goes on when it is told. Nothing else is
    /// asked of it.
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
    fn a_thread_that_lacks_a_descriptor_waits_for_those_that_another_one_frees() {
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
            // The only file is in no list any more, and its descriptor is not free yet.
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
        // Its name is gone: closed, it could not be opened again.
        for n in 1..100 {
            assert_eq!(byte(&hot), 0);
            let cold = files.keep(written(&vfs, n));
            assert_eq!(usize::from(byte(&cold)), n);
        }
    }
}
