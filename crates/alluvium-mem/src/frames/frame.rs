//! Frames in use: exclusive while they are filled, then shared.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::process::abort;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::slab::{ALONE, FRAME_ALIGN, HEADER_BYTES, Header, Memory, Place, Slab};
use crate::sync::{AtomicU32, Ordering, fence};

/// References above this number are a leak in a loop. The count must not wrap to 0 in a frame that
/// is in use.
const REFERENCES_MAX: u32 = u32::MAX / 2;

impl Slab {
    /// Claims a free frame; `None` if it has a reference.
    pub fn claim(&self, index: u32) -> Option<Space> {
        let (claim, refusal) = (Ordering::Acquire, Ordering::Relaxed);
        let references = self.0.references(index);
        if references.compare_exchange(0, 1, claim, refusal).is_err() {
            return None;
        }
        let header = self.0.header(index);
        // SAFETY: this thread has the only reference.
        unsafe {
            (*header.as_ptr()).watched.written();
            (*header.as_ptr()).index = index;
            (*header.as_ptr()).memory = Arc::into_raw(Arc::clone(&self.0));
        }
        Some(Space(AnyFrame(header)))
    }
}

/// Reference to a frame whose content has any shape.
pub struct AnyFrame(NonNull<Header>);

// SAFETY: the content is `Send + Sync` (see `Space::fill`), and the count is atomic.
unsafe impl Send for AnyFrame {}
// SAFETY: as above.
unsafe impl Sync for AnyFrame {}

impl AnyFrame {
    fn header(&self) -> *mut Header {
        self.0.as_ptr()
    }

    fn references(&self) -> &AtomicU32 {
        // SAFETY: a reference keeps the header, whose count is only accessed as an atomic.
        unsafe { &(*self.header()).references }
    }

    fn memory(&self) -> &Memory {
        // SAFETY: set by the claim; a reference keeps it.
        unsafe { &*(*self.header()).memory }
    }

    /// Returns the place in a pool's slab; `None` for a frame of [`Space::alone`].
    pub fn place(&self) -> Option<Place> {
        let slab = self.memory().number;
        // SAFETY: set by the claim, not changed while there is a reference.
        let index = unsafe { (*self.header()).index };
        (slab != ALONE).then_some(Place { slab, index })
    }

    /// Returns the frame for new content, if this is the only reference.
    pub fn into_space(self) -> Result<Space, AnyFrame> {
        // Acquire: what other holders read comes before what this one writes.
        if self.references().load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        // SAFETY: this thread has the only reference.
        unsafe { (*self.header()).watched.written() };
        Ok(Space(self))
    }

    /// Returns the address, and does not drop the reference.
    pub(crate) fn into_raw(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    ///
    /// The address has a reference that the result may drop.
    pub(crate) unsafe fn from_raw(header: NonNull<Header>) -> AnyFrame {
        AnyFrame(header)
    }
}

impl Clone for AnyFrame {
    fn clone(&self) -> AnyFrame {
        // Relaxed: there is a reference already, so no thread claims the frame.
        let before = self.references().fetch_add(1, Ordering::Relaxed);
        if before > REFERENCES_MAX {
            abort();
        }
        AnyFrame(self.0)
    }
}

impl Drop for AnyFrame {
    fn drop(&mut self) {
        // SAFETY: set by the claim. Read before the reference is given up: a later claim writes it.
        let memory = unsafe { (*self.header()).memory };
        if self.references().fetch_sub(1, Ordering::Release) == 1 {
            // All other holders have finished before the memory is freed.
            fence(Ordering::Acquire);
            // SAFETY: from `into_raw` of the claim, which ended now.
            drop(unsafe { Arc::from_raw(memory) });
        }
    }
}

/// Frame that one thread may fill.
pub struct Space(AnyFrame);

impl Space {
    /// Allocates a frame that is in no slab of a pool. Aborts if there is no memory.
    pub fn alone(frame_bytes: usize) -> Space {
        let memory = Memory::new(ALONE, frame_bytes.next_multiple_of(FRAME_ALIGN), 1);
        let space = Slab(memory).claim(0);
        space.expect("no other thread knows this frame")
    }

    /// Returns the size of the frame in bytes, for [`frame_bytes`].
    pub fn bytes(&self) -> usize {
        self.0.memory().frame_bytes
    }

    /// Begins content with this shape. Its words and bytes are unspecified until they are written.
    ///
    /// # Panics
    ///
    /// Panics if [`frame_bytes`] of the content is more than the frame has.
    pub fn fill<S: Copy + Send + Sync + 'static>(
        self,
        shape: S,
        words: usize,
        bytes: usize,
    ) -> Filling<S> {
        assert!(frame_bytes::<S>(words, bytes) <= self.bytes());
        let header = self.0.header();
        // SAFETY: the only reference, and the shape fits after the header. Fewer words and bytes
        // than in `u32` are in the frame, or else its size would not fit.
        unsafe {
            (*header).words = u32::try_from(words).expect("frames are smaller");
            (*header).bytes = u32::try_from(bytes).expect("frames are smaller");
            header.byte_add(HEADER_BYTES).cast::<S>().write(shape);
        }
        Filling(Frame {
            any: self.0,
            _shape: PhantomData,
        })
    }
}

/// Largest size of a shape. Shapes of all sizes have this place and nothing else is ever in it,
/// because unused bytes of a shape, such as padding, are not initialized.
const SHAPE_BYTES_MAX: usize = 40;

/// Returns the offset of the words.
const fn words_at<S>() -> usize {
    const {
        assert!(align_of::<S>() <= align_of::<u64>());
        assert!(size_of::<S>() <= SHAPE_BYTES_MAX);
    }
    HEADER_BYTES + SHAPE_BYTES_MAX
}

/// Returns the size of a frame for content of a shape, so many words, and so many bytes.
///
/// # Panics
///
/// Panics if the size exceeds the address space.
pub const fn frame_bytes<S>(words: usize, bytes: usize) -> usize {
    let fixed = words_at::<S>().checked_add(bytes);
    match (words.checked_mul(8), fixed) {
        (Some(words), Some(fixed)) => match words.checked_add(fixed) {
            Some(all) => all,
            None => panic!("larger than the address space"),
        },
        _ => panic!("larger than the address space"),
    }
}

/// Frame whose content one thread writes. It shows no shared reference, because content that is
/// shared does not change.
pub struct Filling<S>(Frame<S>);

impl<S: Copy> Filling<S> {
    /// Returns words and bytes.
    pub fn parts_mut(&mut self) -> (&mut [u64], &mut [u8]) {
        let frame = &self.0;
        // SAFETY: this is the only reference, borrowed exclusively; both parts lie inside of the
        // frame (see `fill`), do not overlap, and were zeroed or written before.
        unsafe {
            let words = slice::from_raw_parts_mut(frame.words_start(), frame.words_len());
            let bytes = slice::from_raw_parts_mut(frame.bytes_start(), frame.bytes_len());
            (words, bytes)
        }
    }

    /// Ends the content.
    pub fn share(self) -> Frame<S> {
        self.0
    }
}

/// Shared reference to a frame with content of a shape.
pub struct Frame<S> {
    any: AnyFrame,
    _shape: PhantomData<S>,
}

impl<S: Copy> Frame<S> {
    fn words_len(&self) -> usize {
        // SAFETY: set by `fill`, not changed while there is a frame.
        unsafe { (*self.any.header()).words as usize }
    }

    fn bytes_len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.any.header()).bytes as usize }
    }

    fn words_start(&self) -> *mut u64 {
        // SAFETY: inside of the frame; see `fill`.
        unsafe { self.any.header().byte_add(words_at::<S>()).cast() }
    }

    fn bytes_start(&self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.words_start().add(self.words_len()).cast() }
    }

    /// Returns the shape.
    #[inline]
    pub fn shape(&self) -> &S {
        self.read();
        // SAFETY: written by `fill`, aligned, not changed while there is a frame.
        unsafe { &*self.any.header().byte_add(HEADER_BYTES).cast() }
    }

    /// Returns the words.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.read();
        // SAFETY: inside of the frame, zeroed or written before, not changed while it is shared.
        unsafe { slice::from_raw_parts(self.words_start(), self.words_len()) }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.read();
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(self.bytes_start(), self.bytes_len()) }
    }

    fn read(&self) {
        // SAFETY: a reference keeps the header.
        unsafe { (*self.any.header()).watched.read() };
    }
}

impl<S> Frame<S> {
    /// Returns the reference without the shape.
    pub fn into_any(self) -> AnyFrame {
        self.any
    }

    /// Returns the place in a pool's slab, as [`AnyFrame::place`].
    pub fn place(&self) -> Option<Place> {
        self.any.place()
    }

    /// Returns true if both are the same frame.
    pub fn is(&self, other: &Frame<S>) -> bool {
        self.any.0 == other.any.0
    }

    /// # Safety
    ///
    /// As [`AnyFrame::from_raw`], and the content has this shape.
    pub(crate) unsafe fn from_raw(header: NonNull<Header>) -> Frame<S> {
        Frame {
            // SAFETY: the contract.
            any: unsafe { AnyFrame::from_raw(header) },
            _shape: PhantomData,
        }
    }
}

impl<S> Clone for Frame<S> {
    fn clone(&self) -> Frame<S> {
        Frame {
            any: self.any.clone(),
            _shape: PhantomData,
        }
    }
}

impl<S: Copy + fmt::Debug> fmt::Debug for Frame<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Frame");
        out.field("shape", self.shape());
        out.field("words", &self.words().len());
        out.field("bytes", &self.bytes().len());
        out.finish()
    }
}
