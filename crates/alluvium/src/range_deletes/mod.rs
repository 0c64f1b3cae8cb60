//! Range deletes in two forms: as a memtable collects them, and as a table stores them.
//!
//! A range delete with seqno `t` hides every entry of its range with a seqno below `t`; entries of
//! its own commit are not hidden.
//!
//! [`RangeHistory`] takes them in the order of their commits and answers for every read point, even
//! if many of them overlap: memtables and open transactions use it. [`RangeDeletes`] are disjoint
//! fragments, each with the seqnos that cover it: the form of table files and compactions. A
//! [`Fragmenter`] builds fragments from any number of sources, and leaves out the seqnos that no
//! read point distinguishes from a newer one. So `n` range deletes cost `O(n log n)` time and
//! memory in both forms, and each open snapshot adds at most one seqno to a fragment.

mod cover;
mod fragmenter;
mod fragments;
mod history;
mod key_list;

pub use cover::union;
pub use fragmenter::Fragmenter;
pub use fragments::{Fragment, RangeDeletes};
pub use history::RangeHistory;

use crate::base::SeqNo;

/// Keys from `start` (inclusive) to `end` (exclusive).
pub type KeyRange<'a> = (&'a [u8], &'a [u8]);

/// Range of keys that one range delete covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted<'a> {
    /// Inclusive.
    pub start: &'a [u8],
    /// Exclusive.
    pub end: &'a [u8],
    /// Seqno of the range delete.
    pub seqno: SeqNo,
}

#[cfg(all(test, not(loom)))]
mod tests;
