//! Shared pointers that readers follow without a lock and without a write to shared memory, while
//! any thread may take them away: epoch-based reclamation.
//!
//! A reader of a slot enters an epoch. The value that it [holds](Held) stays valid until it leaves,
//! also if another thread takes it out of the slot meanwhile: a [`Taken`] value waits in a
//! [`Limbo`] until every reader of that time has left. So a reader must leave soon: it does no I/O
//! and waits for nothing while it holds a value.
//!
//! # Protocol
//!
//! ```text
//! reader:  e := epoch                        taker:  slot: value -> empty
//!          word: FREE -> e                           fence
//!          fence                                     tag := epoch
//!          load the slot, use the value
//!          word := FREE                      later:  epoch := epoch + 1
//!                                                    fence
//!                                                    oldest := least word in use
//!                                                    return values with tag < oldest
//! ```
//!
//! **Claim.** No reader uses a returned value. **Proof.** The fences are sequentially consistent.
//! Let a reader load the value from its slot. Then its fence precedes the taker's first one, or
//! else it would have found the slot empty. The taker's first fence precedes the second one, so the
//! load of the reader's word returns e or a later value of it. A later value follows the store of
//! FREE, with release: the reader has left, and all its uses happened before the load, with
//! acquire; a claim of the word by another reader is a read-modify-write and continues that release
//! sequence. If it returns e, then e <= tag: had the reader loaded a greater epoch, it would have
//! synchronized with the thread that raised it, after the taker loaded the tag, so the taker's
//! first fence would precede the reader's, and the reader would have found the slot empty. So
//! `oldest` is at most the tag, and the value is not returned. The number of words in use is raised
//! before a word above it is claimed and loaded after the fence, so the same holds for it, and for
//! the count of readers that found no word.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, fence};

/// Value of a word without a reader. Epochs begin above it.
const FREE: u64 = 0;

/// Number of words. Readers that find none free are counted, and nothing is returned while there
/// are any.
#[cfg(not(loom))]
const WORDS: usize = 128;
#[cfg(loom)]
const WORDS: usize = 2;

/// Readers of any number of [`Slots`]. Shared by `Arc`.
pub struct Readers {
    epoch: Word,
    /// Exclusive upper bound of the indexes of words ever claimed.
    in_use: AtomicUsize,
    /// Number of readers without a word.
    without_word: AtomicU64,
    words: Box<[Word]>,
    /// Values of dropped limbos that readers may still use, with their tags. Guards the list, for a
    /// push or a removal; a leaf in the lock order. What is left is freed with this structure,
    /// which all readers borrow.
    orphans: Mutex<Vec<(u64, Returned)>>,
}

/// Padded to two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
struct Word(AtomicU64);

impl Readers {
    /// Creates a registry without readers. It takes 16 KiB.
    pub fn new() -> Arc<Readers> {
        Arc::new(Readers {
            epoch: Word(AtomicU64::new(FREE + 1)),
            in_use: AtomicUsize::new(0),
            without_word: AtomicU64::new(0),
            words: (0..WORDS).map(|_| Word(AtomicU64::new(FREE))).collect(),
            orphans: Mutex::new(Vec::new()),
        })
    }

    fn enter(&self) -> Inside<'_> {
        let word = self.claim();
        if word.is_none() {
            // Relaxed: the fence orders it, as it does a claimed word.
            self.without_word.fetch_add(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        Inside {
            readers: self,
            word,
            _stays: PhantomData,
        }
    }

    /// Puts the current epoch into a free word, starting from this thread's last one; `None` if all
    /// are in use.
    fn claim(&self) -> Option<&Word> {
        // Acquire: everything taken before this epoch began is out of its slot for this thread.
        let epoch = self.epoch.0.load(Ordering::Acquire);
        let hint = hint::get();
        for index in (hint..WORDS).chain(0..hint) {
            let word = &self.words[index];
            if word.0.load(Ordering::Relaxed) != FREE {
                continue;
            }
            if self.in_use.load(Ordering::Acquire) <= index {
                self.in_use.fetch_max(index + 1, Ordering::Release);
            }
            let (claim, refusal) = (Ordering::Acquire, Ordering::Relaxed);
            let claimed = word.0.compare_exchange(FREE, epoch, claim, refusal);
            if claimed.is_ok() {
                hint::set(index);
                return Some(word);
            }
        }
        None
    }

    /// Begins a new epoch. Returns the oldest epoch that a reader entered in: values taken in an
    /// earlier one have no reader.
    fn oldest_after_raise(&self) -> u64 {
        let next = self.epoch.0.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst);
        if self.without_word.load(Ordering::Acquire) > 0 {
            return FREE;
        }
        let in_use = self.in_use.load(Ordering::Relaxed);
        let words = self.words[..in_use].iter();
        let entered = words.map(|word| word.0.load(Ordering::Acquire));
        entered.filter(|&epoch| epoch != FREE).fold(next, u64::min)
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<(u64, Returned)>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the values of dropped limbos that no reader uses.
    fn ripe_orphans(&self, oldest: u64) -> Vec<Returned> {
        let mut orphans = self.orphans();
        let ripe = orphans.extract_if(.., |(tag, _)| *tag < oldest);
        ripe.map(|(_, value)| value).collect()
    }
}

/// Presence of a reader. It stays on its thread, because it should be short.
struct Inside<'a> {
    readers: &'a Readers,
    word: Option<&'a Word>,
    _stays: PhantomData<*const ()>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: all uses of values come before the reader has left.
        match self.word {
            Some(word) => word.0.store(FREE, Ordering::Release),
            None => {
                self.readers.without_word.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Places for shared values, each empty or full.
pub struct Slots<T> {
    readers: Arc<Readers>,
    /// From [`Arc::into_raw`], or null. A slot owns one reference. Stored with release, so that a
    /// reader's load, with acquire, makes the value visible.
    pointers: Box<[AtomicPtr<T>]>,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Any + Send + Sync> Slots<T> {
    /// Creates empty slots.
    pub fn new(readers: &Arc<Readers>, count: usize) -> Slots<T> {
        let empty = |_| AtomicPtr::new(ptr::null_mut());
        Slots {
            readers: Arc::clone(readers),
            pointers: (0..count).map(empty).collect(),
            _owns: PhantomData,
        }
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.pointers.len()
    }

    /// Returns true if there are no slots.
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    /// Returns the value in a slot, if it is full.
    pub fn hold(&self, slot: usize) -> Option<Held<'_, T>> {
        if !self.is_full(slot) {
            return None;
        }
        let inside = self.readers.enter();
        let pointer = NonNull::new(self.pointers[slot].load(Ordering::Acquire))?;
        Some(Held {
            pointer,
            _inside: inside,
            _borrows: PhantomData,
        })
    }

    /// Returns true if a slot is full.
    pub fn is_full(&self, slot: usize) -> bool {
        !self.pointers[slot].load(Ordering::Relaxed).is_null()
    }

    /// Fills an empty slot. Returns the value if the slot is full.
    pub fn fill(&self, slot: usize, value: Arc<T>) -> Result<(), Arc<T>> {
        let pointer = Arc::into_raw(value).cast_mut();
        let empty = ptr::null_mut();
        let (filled, refused) = (Ordering::Release, Ordering::Relaxed);
        match self.pointers[slot].compare_exchange(empty, pointer, filled, refused) {
            Ok(_) => Ok(()),
            // SAFETY: from `into_raw` above, and not stored anywhere.
            Err(_) => Err(unsafe { Arc::from_raw(pointer) }),
        }
    }

    /// Empties a slot. Returns its value, for a limbo, with a size that `bytes` determines; `None`
    /// if it was empty.
    pub fn take(&self, slot: usize, bytes: impl FnOnce(&T) -> u64) -> Option<Taken> {
        let pointer = self.pointers[slot].swap(ptr::null_mut(), Ordering::AcqRel);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: from `into_raw` in `fill`; the slot's reference is now this one.
        let value = unsafe { Arc::from_raw(pointer) };
        fence(Ordering::SeqCst);
        let tag = self.readers.epoch.0.load(Ordering::Relaxed);
        let bytes = bytes(&value);
        Some(Taken {
            value: Some(value),
            bytes,
            tag,
            readers: Arc::clone(&self.readers),
        })
    }
}

impl<T> Slots<T> {
    /// Empties all slots for their only user. Returns the values.
    pub fn remove_all(&mut self) -> impl Iterator<Item = Arc<T>> {
        self.pointers.iter_mut().filter_map(|slot| {
            let pointer = slot.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: the slot's reference. Held values borrow the slots, so there are none.
            (!pointer.is_null()).then(|| unsafe { Arc::from_raw(pointer) })
        })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        self.remove_all().for_each(drop);
    }
}

/// Value that a reader holds; see the module for how long.
pub struct Held<'a, T> {
    /// From [`Arc::into_raw`]. The slot owned a reference when it was loaded. If another thread has
    /// taken that since, it is in a limbo until the reader leaves: see the protocol. Slots that are
    /// borrowed are not dropped.
    pointer: NonNull<T>,
    _inside: Inside<'a>,
    _borrows: PhantomData<&'a T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: see the field.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Held<'_, T> {
    /// Leaves, and returns a reference that keeps the value.
    pub fn keep(self) -> Arc<T> {
        let pointer = self.pointer.as_ptr();
        // SAFETY: see the field.
        unsafe {
            Arc::increment_strong_count(pointer);
            Arc::from_raw(pointer)
        }
    }
}

/// Value returned by a [`Limbo`].
pub type Returned = Arc<dyn Any + Send + Sync>;

/// Value taken out of a slot. Readers may still use it, so only a [`Limbo`] returns it.
pub struct Taken {
    /// `None` once it is returned.
    value: Option<Returned>,
    bytes: u64,
    /// Epoch after it was taken.
    tag: u64,
    readers: Arc<Readers>,
}

impl Taken {
    /// Returns the size determined by [`Slots::take`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.readers.orphans().push((self.tag, value));
        }
    }
}

/// Values that wait until no reader uses them.
pub struct Limbo {
    readers: Arc<Readers>,
    /// Oldest first.
    waiting: VecDeque<Taken>,
    bytes: u64,
}

impl Limbo {
    /// Creates an empty limbo for values from slots of these readers.
    pub fn new(readers: &Arc<Readers>) -> Limbo {
        Limbo {
            readers: Arc::clone(readers),
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds a value.
    ///
    /// # Panics
    ///
    /// Panics if the value comes from slots of other readers.
    pub fn add(&mut self, taken: Taken) {
        assert!(
            Arc::ptr_eq(&taken.readers, &self.readers),
            "other readers may use the value"
        );
        self.bytes += taken.bytes;
        self.waiting.push_back(taken);
    }

    /// Returns the number of waiting values.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no value waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the bytes of all waiting values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes and returns the values that no reader uses. Begins a new epoch, and looks at a cache
    /// line for each thread that reads at the same time, so call it for several values together.
    pub fn reclaim(&mut self) -> Vec<Returned> {
        let oldest = self.readers.oldest_after_raise();
        let mut returned = Vec::new();
        while let Some(taken) = self.waiting.front_mut()
            && taken.tag < oldest
        {
            self.bytes -= taken.bytes;
            returned.extend(taken.value.take());
            self.waiting.pop_front();
        }
        drop(self.readers.ripe_orphans(oldest));
        returned
    }
}

impl Drop for Limbo {
    fn drop(&mut self) {
        // The drop of each value that still waits moves it to the orphans.
        self.reclaim();
    }
}

/// Start of a thread's search for a free word: the word that it claimed last.
#[cfg(not(loom))]
mod hint {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::WORDS;

    static THREADS: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static HINT: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % WORDS);
    }

    pub(super) fn get() -> usize {
        HINT.get()
    }

    pub(super) fn set(index: usize) {
        HINT.set(index);
    }
}

/// All threads of a model start at the first word.
#[cfg(loom)]
mod hint {
    pub(super) fn get() -> usize {
        0
    }

    pub(super) fn set(_index: usize) {}
}
