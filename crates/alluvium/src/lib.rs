//! Alluvium: an embedded, transactional, write-optimised storage engine.
#![forbid(unsafe_code)]

pub mod base;
pub mod cache;
mod error;
pub mod table;
pub mod vfs;

pub use error::{Error, Result};
