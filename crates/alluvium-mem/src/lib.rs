//! In-memory structures of Alluvium that need unsafe code, and the parts that they need.
//!
//! - [`Memtable`]: a sorted in-memory table for one writer and any number of lock-free readers. A
//!   read returns an [`Entry`]; [`Versions`] are all entries of one key, newest first.
//! - [`epoch`]: shared pointers for readers without locks.
//! - [`frames`]: memory in pieces of fixed sizes, shared by reference counts.
//! - [`filter`]: cache-line-blocked Bloom filters, for table files and for memtables.
//! - [`pages`]: memory that returns to the operating system as soon as it is freed.
//! - [`process`]: an identity of the process, by which a fork is detected.
//! - [`write_hint`]: a hint to the file system about the lifetime of a file's data.
//!
//! This is a separate crate so that loom and miri can run on it. The engine forbids unsafe code and
//! builds on this crate. Keys are ordered by `memcmp`; hashes of keys come from the caller; nothing
//! here reads a clock, or reads or writes a file.
//!
//! ```
//! use std::sync::Arc;
//! use alluvium_mem::{Memtable, MemtableOptions};
//!
//! let memtable = Arc::new(Memtable::new(&MemtableOptions::default()));
//! // Key, hash of the key, no prefix, seqno, kind, value, horizon.
//! memtable.writer().insert(b"apple", 17, None, 1, 2, b"red", 0);
//! memtable.writer().insert(b"apple", 17, None, 2, 2, b"green", 0);
//!
//! assert_eq!(memtable.get(b"apple", 1).map(|entry| entry.value), Some(&b"red"[..]));
//! let mut cursor = memtable.cursor(2);
//! assert!(cursor.seek(b"a"));
//! assert_eq!((cursor.key(), cursor.entry().value), (&b"apple"[..], &b"green"[..]));
//! ```

mod arena;
mod chunk;
pub mod epoch;
pub mod filter;
pub mod frames;
mod memtable;
pub mod pages;
pub mod process;
mod sync;
pub mod write_hint;

pub use memtable::{
    Entry, KEY_BYTES_MAX, Memtable, MemtableCursor, MemtableOptions, MemtableWriter,
    VALUE_BYTES_MAX, Versions,
};
