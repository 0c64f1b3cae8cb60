//! Ordered reads: sources with one visible version of each key, their merge in both directions, the
//! public cursor.
//!
//! Every source (a transaction's writes, a memtable, a table) shows for each key the newest version
//! at or below the read point. Sequence numbers of sources never overlap, so the newest source that
//! shows a key decides.

mod bounds;
mod cursor;
mod dead_walk;
mod held_row;
mod hiding;
mod inputs;
mod merge;
mod run;
mod source;
#[cfg(test)]
mod tests;

pub use cursor::{Cursor, CursorOptions};
