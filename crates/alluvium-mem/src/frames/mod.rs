//! Frames: pieces of memory for shared, immutable content, with a reference count each.
//!
//! A [`Slab`] is memory cut into frames of one size. A free frame is claimed as a [`Space`], which
//! one thread fills; a [`Filling`] then becomes a shared [`Frame`]. The frame is free again as soon
//! as its last reference is dropped, and its memory returns to no allocator: the next content takes
//! its place. The slab's memory lives until the slab and all its frames are dropped.
//!
//! ```text
//! frame:  header | shape, 40 bytes | words: u64 * n | bytes: u8 * m | unused
//! ```
//!
//! The shape is a small value of the user that says what the words and bytes mean.
//!
//! # Ownership
//!
//! The reference count decides. It is 0 in a free frame. A claim raises it from 0 to 1, so one
//! thread wins, and only the holder of that reference writes to the frame. After [`Filling::share`]
//! no thread writes: all holders read. A drop lowers the count with release and a claim reads it
//! with acquire, so everything that the last holders did happens before the next content is
//! written.

mod frame;
mod slab;

pub use frame::{AnyFrame, Filling, Frame, Space, frame_bytes};
pub(crate) use slab::Header;
pub use slab::{FRAME_ALIGN, FrameAddress, Place, Slab, slab_bytes};

#[cfg(test)]
mod tests;
