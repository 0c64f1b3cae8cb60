//! The in-memory structures of Alluvium that need unsafe code, or that are shared with them.
//!
//! - [`Memtable`]: an in-memory sorted table for one writer and any number of readers that never take a lock.
//! - [`filter`]: cache-line-blocked Bloom filters, for table files and for memtables.
//! - [`pages`]: memory given back to the system where an allocator would keep it.
//! - [`process`]: the identity of a process, which a fork changes.
//! - [`write_hint`]: how long the data of a file will live, a call of the system that needs unsafe code.
//!
//! The crate stands alone so that loom and miri can run on it. The engine forbids unsafe code and builds on this.
//! Keys are ordered by `memcmp`; hashes of keys come from the caller; nothing here reads a clock or
//! does I/O.
//!
//! ```
//! use std::sync::Arc;
//! use alluvium_mem::{Memtable, MemtableOptions};
//!
//! let memtable = Arc::new(Memtable::new(&MemtableOptions::default()));
//! memtable.writer().insert(b"apple", 17, None, 1, 2, b"red", 0);
//! memtable.writer().insert(b"apple", 17, None, 2, 2, b"green", 0);
//!
//! assert_eq!(memtable.get(b"apple", 1).map(|entry| entry.value), Some(&b"red"[..]));
//! let mut cursor = memtable.cursor(2);
//! assert!(cursor.seek(b"a"));
//! assert_eq!((cursor.key(), cursor.entry().value), (&b"apple"[..], &b"green"[..]));
//! ```

mod arena;
pub mod filter;
mod memtable;
pub mod pages;
pub mod process;
mod sync;
pub mod write_hint;

pub use memtable::{
    Entry, KEY_BYTES_MAX, Memtable, MemtableCursor, MemtableOptions, MemtableWriter,
    VALUE_BYTES_MAX, Versions,
};
