//! Alluvium: an embedded, transactional, write-optimised storage engine.
#![forbid(unsafe_code)]

pub mod admission;
pub mod base;
mod error;
pub mod read_points;
pub mod sync;
pub mod txn;

pub use error::{Error, Result};
