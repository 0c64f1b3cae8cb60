//! Versions: the keyspaces and tables that exist, as edits, the state they add up to, and the
//! manifest that makes them durable.
//!
//! [`VersionEdit`] is one atomic change and its encoding. [`ManifestState`] is the sum of all edits
//! as plain data, and refuses an edit that does not fit. [`Manifest`] is the file: an appended edit
//! is durable on return.
//!
//! The tree of a keyspace is a list of *groups*. A group is a key range, from its low key to the
//! next group's, with its own upper tables, newest run first, and its last-level tables in key
//! order. An upper table may be listed in several groups; each of them sees the part of it in its
//! own range.

mod current;
pub mod edit;
pub(crate) mod group;
mod groups;
pub mod manifest;
mod remains;
pub mod state;
pub(crate) mod sum;

pub use edit::{GroupEdit, KeyspaceRecord, PreparedTables, TableRecord, VersionEdit};
pub use groups::{GroupState, Groups};
pub use manifest::{Manifest, random_uid};
pub use remains::{UNREFERENCED, check_no_remains};
pub use state::ManifestState;
