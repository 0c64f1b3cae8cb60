//! Memory of frames: slabs, and the header of each frame.

#[cfg(loom)]
use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::chunk::Chunk;
use crate::pages::HUGE_PAGE_BYTES;
use crate::sync::{AtomicU32, Ordering, Watched};

/// Sizes of frames are multiples of this, so that no two frames share a cache line.
pub const FRAME_ALIGN: usize = 64;

/// Number of the memory of a frame that is in no slab of a pool.
pub(super) const ALONE: u32 = u32::MAX;

/// Memory of a slab. It keeps raw pointers into the chunk; only frames lend references to their
/// content.
pub(super) struct Memory {
    chunk: Chunk,
    pub(super) frame_bytes: usize,
    frames: u32,
    pub(super) number: u32,
}

// SAFETY: the chunk is memory without an affinity to a thread; see the module for its content.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Start of a frame. Zeroed memory is a valid header of a free frame, except under loom, whose
/// atomics are created by [`Memory::new`].
#[repr(C, align(8))]
pub(crate) struct Header {
    /// Number of references; 0 in a free frame.
    pub(super) references: AtomicU32,
    /// Place in the slab. This and the fields below belong to the content.
    pub(super) index: u32,
    pub(super) words: u32,
    pub(super) bytes: u32,
    /// From [`Arc::into_raw`]: keeps the memory while the frame is in use.
    pub(super) memory: *const Memory,
    pub(super) watched: Watched,
}

pub(super) const HEADER_BYTES: usize = size_of::<Header>();

impl Memory {
    pub(super) fn new(number: u32, frame_bytes: usize, frames: u32) -> Arc<Memory> {
        assert!(frame_bytes >= HEADER_BYTES && frame_bytes.is_multiple_of(FRAME_ALIGN));
        assert!(frames > 0);
        let memory = Memory {
            chunk: Chunk::with_huge_pages(slab_bytes(frame_bytes, frames)),
            frame_bytes,
            frames,
            number,
        };
        memory.create_headers();
        Arc::new(memory)
    }

    #[cfg(not(loom))]
    fn create_headers(&self) {}

    #[cfg(loom)]
    fn create_headers(&self) {
        for index in 0..self.frames {
            let header = Header {
                references: AtomicU32::new(0),
                index: 0,
                words: 0,
                bytes: 0,
                memory: ptr::null(),
                watched: Watched::new(),
            };
            // SAFETY: inside of the chunk, aligned, and not shared yet.
            unsafe { self.header(index).write(header) };
        }
    }

    /// Returns the address of a frame.
    pub(super) fn header(&self, index: u32) -> NonNull<Header> {
        assert!(index < self.frames);
        // SAFETY: the chunk has this many frames.
        let start = unsafe { self.chunk.start().add(index as usize * self.frame_bytes) };
        start.cast()
    }

    pub(super) fn references(&self, index: u32) -> &AtomicU32 {
        // SAFETY: headers live as long as the memory, and the count is only accessed as an atomic.
        unsafe { &(*self.header(index).as_ptr()).references }
    }
}

#[cfg(loom)]
impl Drop for Memory {
    fn drop(&mut self) {
        for index in 0..self.frames {
            // SAFETY: created with the memory; no frame is in use.
            unsafe { self.header(index).drop_in_place() };
        }
    }
}

/// Returns the memory of a slab in bytes. One of nearly a huge page gets a whole one.
pub fn slab_bytes(frame_bytes: usize, frames: u32) -> usize {
    let bytes = frame_bytes.checked_mul(frames as usize);
    let bytes = bytes.expect("far smaller than the address space");
    let whole = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if whole - bytes < frame_bytes.min(whole / 8) {
        return whole;
    }
    Chunk::bytes_with_huge_pages(bytes)
}

/// Memory cut into frames of one size. Clones are the same slab.
#[derive(Clone)]
pub struct Slab(pub(super) Arc<Memory>);

/// Address of a frame in a slab. It keeps nothing alive and allows no access.
#[derive(Clone, Copy)]
pub struct FrameAddress {
    pub(crate) header: *const Header,
    place: Place,
}

impl FrameAddress {
    /// Returns the place of the frame.
    pub fn place(self) -> Place {
        self.place
    }
}

impl Slab {
    /// Allocates a slab of `frames` frames of `frame_bytes` each, with the caller's `number`. Takes
    /// no physical memory for frames that were never claimed. Aborts if there is no memory.
    ///
    /// # Panics
    ///
    /// Panics if `frame_bytes` is not a multiple of [`FRAME_ALIGN`], if one of them is 0, or if
    /// `number` is `u32::MAX`.
    pub fn new(number: u32, frame_bytes: usize, frames: u32) -> Slab {
        assert!(number != ALONE);
        Slab(Memory::new(number, frame_bytes, frames))
    }

    /// Returns the size of each frame in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.0.frame_bytes
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u32 {
        self.0.frames
    }

    /// Returns the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.0.chunk.bytes()
    }

    /// Returns the address of a frame.
    pub fn address(&self, index: u32) -> FrameAddress {
        let slab = self.0.number;
        FrameAddress {
            header: self.0.header(index).as_ptr(),
            place: Place { slab, index },
        }
    }

    /// Returns true if the frame has no reference. The answer may be outdated at once.
    pub fn is_free(&self, index: u32) -> bool {
        self.0.references(index).load(Ordering::Relaxed) == 0
    }
}

/// Place of a frame: the number of its slab, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number given to [`Slab::new`].
    pub slab: u32,
    /// Index in the slab.
    pub index: u32,
}
