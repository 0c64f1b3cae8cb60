//! Detects a fork without a system call.
//!
//! A forked child has a copy of every handle of its parent and shares its files, but has none of
//! its threads. [`Process`] is the identity that a handle stores at creation and compares later.
//! [`Owned`] is a value that is dropped only in the process that made it.
//!
//! # Protocol
//!
//! One 8-byte cell per process holds its identity, a random number that is not 0. After a fork the
//! child reads 0 there: the cell lies in a page that Linux wipes in a child (`MADV_WIPEONFORK`,
//! since 4.14). If the kernel refuses that, a fork handler of the C library sets it to 0. The first
//! [`Process::current`] of the child gives it its own identity.
//!
//! Invariant: the cell of a process never changes from one nonzero value to another. So a
//! comparison with the cell is a comparison of processes, and needs no ordering with other memory.
//!
//! A child made by `vfork` or `clone(CLONE_VM)` shares the cell with its parent and counts as the
//! parent. Such a child must not disturb its parent anyway.

use std::hash::{BuildHasher, RandomState};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Address of the cell, once it exists. A pointer and not a lock, because a fork may happen while
/// another thread of the parent creates it.
static CELL: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Cell for systems and kernels that cannot wipe a page, and for miri.
static PLAIN: AtomicU64 = AtomicU64::new(0);

/// Identity of a process. A copy is the same identity, also in a forked child, where it is no
/// longer the current one.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    cell: &'static AtomicU64,
    id: u64,
}

impl Process {
    /// Returns the identity of the calling process.
    pub fn current() -> Process {
        let cell = cell();
        let known = cell.load(Ordering::Relaxed);
        if known != 0 {
            return Process { cell, id: known };
        }
        let new = random_id();
        match cell.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Process { cell, id: new },
            // Another thread was first.
            Err(known) => Process { cell, id: known },
        }
    }

    /// Returns whether the calling process is the one with this identity, and not a fork of it.
    /// Takes one load.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.cell.load(Ordering::Relaxed) == self.id
    }

    /// Returns a random number that no other process has.
    pub fn id(&self) -> u64 {
        self.id
    }
}

fn random_id() -> u64 {
    // The keys of a hasher are random in each process but copied by a fork; the process ID differs.
    RandomState::new().hash_one(std::process::id()).max(1)
}

fn cell() -> &'static AtomicU64 {
    let mut cell = CELL.load(Ordering::Acquire);
    if cell.is_null() {
        let new = wiped_cell().unwrap_or_else(plain_cell);
        // Acquire and release: the page is zeroed before its address is published.
        let first =
            CELL.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        // The page of a thread that loses the race stays mapped and unused; there is at most one
        // race in a process.
        cell = first.map_or_else(|first| first, |_| new);
    }
    // SAFETY: the address is that of `PLAIN`, or of a mapping that is never unmapped. It is large
    // enough, aligned to a page, and holds zeros or values stored atomically.
    unsafe { &*cell }
}

/// Maps a page that the kernel wipes in forked children.
#[cfg(all(target_os = "linux", not(miri)))]
fn wiped_cell() -> Option<*mut AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    const BYTES: usize = size_of::<AtomicU64>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel replaces nothing.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the range is the mapping made above, which nothing refers to yet.
    match unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) } {
        Ok(()) => Some(page.cast()),
        Err(_) => {
            // SAFETY: the mapping made above, which nothing refers to.
            let _ = unsafe { rustix::mm::munmap(page, BYTES) };
            None
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn wiped_cell() -> Option<*mut AtomicU64> {
    None
}

/// Returns the static cell, wiped by a fork handler. If the handler cannot be registered for lack
/// of memory, a child is taken for its parent.
fn plain_cell() -> *mut AtomicU64 {
    #[cfg(all(unix, not(miri)))]
    {
        extern "C" fn wipe() {
            PLAIN.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler takes no lock and allocates nothing, so it may run in a child. It is
        // idempotent, so registering it twice is harmless.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    ptr::from_ref(&PLAIN).cast_mut()
}

/// A value that is dropped only in the process that made it. A forked child leaks it: its memory
/// may be half changed by a thread that the child does not have, its locks may be held forever, and
/// its files are the parent's.
#[derive(Debug)]
pub struct Owned<T> {
    process: Process,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    /// Wraps `value`, owned by the calling process.
    pub fn new(value: T) -> Owned<T> {
        Owned {
            process: Process::current(),
            value: ManuallyDrop::new(value),
        }
    }

    /// Returns whether the calling process is the one that made the value.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.process.is_current()
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Clone> Clone for Owned<T> {
    /// Clones the value; the clone has the owner of the original.
    fn clone(&self) -> Owned<T> {
        Owned {
            process: self.process,
            value: self.value.clone(),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: dropped once, here, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_process_has_one_identity() {
        let one = Process::current();
        let ids: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| Process::current().id()))
                .collect();
            let ids = threads.into_iter().map(|thread| thread.join().unwrap());
            ids.collect()
        });
        assert!(one.is_current() && one.id() != 0);
        assert!(ids.iter().all(|id| *id == one.id()));
    }

    #[test]
    fn the_owner_drops_its_value() {
        let counted = Arc::new(());
        let owned = Owned::new(Arc::clone(&counted));
        let clone = owned.clone();
        assert_eq!(Arc::strong_count(&counted), 3);
        drop((owned, clone));
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    /// Runs `child` in a forked child; it must not panic. Returns its exit code.
    #[cfg(all(unix, not(miri)))]
    fn in_child(child: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child takes no lock that another thread of the test may hold, and exits by
        // `_exit`.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(child()),
                pid => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                    assert!(libc::WIFEXITED(status), "{status}");
                    libc::WEXITSTATUS(status)
                }
            }
        }
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_child_has_another_identity_and_leaks_what_it_inherits() {
        let parent = Process::current();
        let counted = Arc::new(());
        let owned = Owned::new(Arc::clone(&counted));
        let code = in_child(|| {
            let of_copy = parent.is_current();
            let child = Process::current();
            drop(owned.clone());
            let leaked = Arc::strong_count(&counted) == 3;
            let own = Owned::new(Arc::clone(&counted));
            drop(own);
            let dropped = Arc::strong_count(&counted) == 3;
            let in_grandchild = in_child(|| i32::from(child.is_current()));
            let sound = !of_copy
                && !parent.is_current()
                && child.is_current()
                && child.id() != parent.id()
                && in_grandchild == 0;
            i32::from(!(sound && leaked && dropped))
        });
        assert_eq!(code, 0);
        assert!(parent.is_current());
        drop(owned);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_fork_handler_does_where_no_page_is_wiped() {
        // SAFETY: the address of a static.
        let cell = unsafe { &*plain_cell() };
        cell.store(7, Ordering::Relaxed);
        assert_eq!(in_child(|| cell.load(Ordering::Relaxed) as i32), 0);
        assert_eq!(cell.load(Ordering::Relaxed), 7);
        cell.store(0, Ordering::Relaxed);
    }
}
