//! stub
pub mod edit;
pub(crate) mod group;
pub mod manifest;
pub mod state;

pub use edit::{EditError, GroupEdit, KeyspaceRecord, TableRecord, VersionEdit};
pub use manifest::{Manifest, random_uid};
pub use state::{GroupState, Inconsistency, KeyspaceState, ManifestState};
pub const CURRENT: &str = "CURRENT";
