//! Slots for shared [frames](crate::frames) that readers follow without a lock and without a count
//! of references, while any thread may evict them: epoch-based reclamation.
//!
//! A reader of a slot enters an epoch. The frame that it [holds](Held) stays valid until it leaves,
//! also if another thread evicts it from the slot meanwhile: an evicted frame waits in a [`Limbo`]
//! until every reader of that time has left. So a reader must leave soon: it does no I/O and waits
//! for nothing while it holds a frame.
//!
//! # Protocol
//!
//! ```text
//! reader:  e := epoch                      evictor:  slot: frame -> empty
//!          word: FREE -> e                           fence
//!          fence                                     tag := epoch
//!          load the slot, use the frame
//!          word := FREE                      later:  epoch := epoch + 1
//!                                                    fence
//!                                                    oldest := least word in use
//!                                                    return frames with tag < oldest
//! ```
//!
//! **Claim.** No reader uses a returned frame. **Proof.** The fences are sequentially consistent.
//! Let a reader load the frame from its slot. Then its fence precedes the evictor's first one, or
//! else it would have found the slot empty. The evictor's first fence precedes the second one, so
//! the load of the reader's word returns e or a later value of it. A later value follows the store
//! of FREE, with release: the reader has left, and all its uses happened before the load, with
//! acquire; a claim of the word by another reader is a read-modify-write and continues that release
//! sequence. If it returns e, then e <= tag: had the reader loaded a greater epoch, it would have
//! synchronized with the thread that raised it, after the evictor loaded the tag, so the evictor's
//! first fence would precede the reader's, and the reader would have found the slot empty. So
//! `oldest` is at most the tag, and the frame is not returned. The number of words in use is raised
//! before a word above it is claimed and loaded after the fence, so the same holds for it, and for
//! the count of readers that found no word.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use crate::frames::{AnyFrame, Frame, FrameAddress, Header, Place};
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
    /// Frames of dropped limbos that readers may still use, with their tags. Guards the list, for a
    /// push or a removal; a leaf in the lock order. What is left is freed with this structure,
    /// which all readers borrow.
    orphans: Mutex<Vec<(u64, AnyFrame)>>,
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

    /// Begins a new epoch. Returns the oldest epoch that a reader entered in: frames taken in an
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

    fn orphans(&self) -> MutexGuard<'_, Vec<(u64, AnyFrame)>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the frames of dropped limbos that no reader uses.
    fn ripe_orphans(&self, oldest: u64) -> Vec<AnyFrame> {
        let mut orphans = self.orphans();
        let ripe = orphans.extract_if(.., |(tag, _)| *tag < oldest);
        ripe.map(|(_, frame)| frame).collect()
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
        // Release: all uses of frames come before the reader has left.
        match self.word {
            Some(word) => word.0.store(FREE, Ordering::Release),
            None => {
                self.readers.without_word.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Largest count of uses. The alignment of frames leaves these bits of a slot's pointer free.
pub const USES_MAX: usize = 0b11;

/// Places for shared frames, each empty or full. A full one counts how often its frame was held
/// since an eviction last tried it, up to [`USES_MAX`].
pub struct Slots<S> {
    readers: Arc<Readers>,
    /// From [`AnyFrame::into_raw`] with the count of uses in its lowest bits, or null. A slot owns
    /// one reference. Stored with release, so that a reader's load, with acquire, makes the content
    /// visible; changes of the count are read-modify-writes and continue that release sequence.
    pointers: Box<[AtomicPtr<Header>]>,
    _owns: PhantomData<Frame<S>>,
}

/// Result of [`Slots::evict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// The slot was emptied, and its frame is in the limbo.
    Evicted,
    /// The frame was used, and stays for now. Its count of uses is lower than before.
    Used,
    /// The slot is empty or holds another frame.
    Other,
}

fn untagged(pointer: *mut Header) -> *mut Header {
    pointer.map_addr(|address| address & !USES_MAX)
}

fn uses(pointer: *mut Header) -> usize {
    pointer.addr() & USES_MAX
}

impl<S> Slots<S> {
    /// Creates empty slots.
    pub fn new(readers: &Arc<Readers>, count: usize) -> Slots<S> {
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

    /// Returns the frame in a slot, if it is full, and counts a use.
    #[inline]
    pub fn hold(&self, slot: usize) -> Option<Held<'_, S>> {
        if !self.is_full(slot) {
            return None;
        }
        let inside = self.readers.enter();
        let pointer = self.pointers[slot].load(Ordering::Acquire);
        let frame = NonNull::new(untagged(pointer))?;
        if uses(pointer) < USES_MAX {
            let more = pointer.map_addr(|address| address + 1);
            // A lost count is harmless. Relaxed: it is a hint.
            let (done, lost) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.pointers[slot].compare_exchange(pointer, more, done, lost);
        }
        // SAFETY: the slot owned a reference when it was loaded. If another thread has taken that
        // since, it is in a limbo until this reader leaves: see the protocol. The result is not
        // dropped as a reference. Slots that are borrowed are not dropped.
        let frame = ManuallyDrop::new(unsafe { Frame::from_raw(frame) });
        Some(Held {
            frame,
            _inside: inside,
            _borrows: PhantomData,
        })
    }

    /// Returns true if a slot is full.
    pub fn is_full(&self, slot: usize) -> bool {
        !self.pointers[slot].load(Ordering::Relaxed).is_null()
    }

    /// Fills an empty slot. Returns the frame if the slot is full.
    pub fn fill(&self, slot: usize, frame: Frame<S>) -> Result<(), Frame<S>> {
        let pointer = frame.into_any().into_raw();
        let empty = ptr::null_mut();
        let (filled, refused) = (Ordering::Release, Ordering::Relaxed);
        match self.pointers[slot].compare_exchange(empty, pointer.as_ptr(), filled, refused) {
            Ok(_) => Ok(()),
            // SAFETY: from `into_raw` above, and not stored anywhere.
            Err(_) => Err(unsafe { Frame::from_raw(pointer) }),
        }
    }

    /// Moves the frame at an address from a slot to the limbo. A frame with uses only loses one,
    /// unless `used_too` is set.
    ///
    /// # Panics
    ///
    /// Panics if the limbo is for other readers.
    pub fn evict(
        &self,
        slot: usize,
        frame: FrameAddress,
        used_too: bool,
        limbo: &mut Limbo,
    ) -> Eviction {
        assert!(
            Arc::ptr_eq(&self.readers, &limbo.readers),
            "other readers may use the frame"
        );
        let word = &self.pointers[slot];
        let mut pointer = word.load(Ordering::Relaxed);
        // Ends: readers change the pointer only up to the largest count.
        let evicted = loop {
            if untagged(pointer).cast_const() != frame.header {
                return Eviction::Other;
            }
            let is_kept = uses(pointer) > 0 && !used_too;
            let next = if is_kept {
                pointer.map_addr(|address| address - 1)
            } else {
                ptr::null_mut()
            };
            let (done, changed) = (Ordering::AcqRel, Ordering::Relaxed);
            match word.compare_exchange(pointer, next, done, changed) {
                Ok(_) if is_kept => return Eviction::Used,
                Ok(_) => break untagged(pointer),
                Err(found) => pointer = found,
            }
        };
        fence(Ordering::SeqCst);
        let tag = self.readers.epoch.0.load(Ordering::Relaxed);
        let evicted = NonNull::new(evicted).expect("the address of a frame");
        limbo.waiting.push_back(Waiting {
            tag,
            place: frame.place(),
            // SAFETY: from `into_raw` in `fill`; the slot's reference is now this one.
            frame: unsafe { AnyFrame::from_raw(evicted) },
        });
        Eviction::Evicted
    }

    /// Empties all slots for their only user. Returns the frames.
    pub fn remove_all(&mut self) -> impl Iterator<Item = AnyFrame> {
        self.pointers.iter_mut().filter_map(|slot| {
            let pointer = slot.swap(ptr::null_mut(), Ordering::Acquire);
            let frame = NonNull::new(untagged(pointer))?;
            // SAFETY: the slot's reference. Held frames borrow the slots, so there are none.
            Some(unsafe { AnyFrame::from_raw(frame) })
        })
    }
}

impl<S> Drop for Slots<S> {
    fn drop(&mut self) {
        self.remove_all().for_each(drop);
    }
}

/// Frame that a reader holds; see the module for how long.
pub struct Held<'a, S> {
    frame: ManuallyDrop<Frame<S>>,
    _inside: Inside<'a>,
    _borrows: PhantomData<&'a S>,
}

impl<S> Deref for Held<'_, S> {
    type Target = Frame<S>;

    fn deref(&self) -> &Frame<S> {
        &self.frame
    }
}

impl<S> Held<'_, S> {
    /// Leaves, and returns a reference that keeps the frame.
    pub fn keep(self) -> Frame<S> {
        Frame::clone(&self.frame)
    }
}

/// Frames that wait until no reader uses them.
pub struct Limbo {
    readers: Arc<Readers>,
    /// Oldest first.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    /// Epoch after the frame was taken out of its slot.
    tag: u64,
    place: Place,
    frame: AnyFrame,
}

impl Limbo {
    /// Creates an empty limbo for frames from slots of these readers.
    pub fn new(readers: &Arc<Readers>) -> Limbo {
        Limbo {
            readers: Arc::clone(readers),
            waiting: VecDeque::new(),
        }
    }

    /// Returns the number of waiting frames.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the frames that no reader uses. Begins a new epoch, and looks at a cache
    /// line for each thread that reads at the same time, so call it for several frames together.
    pub fn reclaim(&mut self) -> Vec<(Place, AnyFrame)> {
        let oldest = self.readers.oldest_after_raise();
        let mut free = Vec::new();
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.tag < oldest) {
            free.push((waiting.place, waiting.frame));
        }
        drop(self.readers.ripe_orphans(oldest));
        free
    }
}

impl Drop for Limbo {
    fn drop(&mut self) {
        drop(self.reclaim());
        let left = self.waiting.drain(..);
        let left = left.map(|waiting| (waiting.tag, waiting.frame));
        self.readers.orphans().extend(left);
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
