//! Alluvium: an embedded, transactional, write-optimised storage engine.
#![forbid(unsafe_code)]

pub mod base;
mod error;
pub mod version;
pub mod vfs;
pub mod wal;

pub use error::{Error, Result};
