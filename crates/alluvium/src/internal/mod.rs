//! Parts of the engine for the command line `alluvium`, the simulator and examples, hidden from the
//! documentation: they may change in any version.

pub mod dump;

pub use crate::cache::Cache;
pub use crate::sync::{THREAD_SHARDS, thread_shard};
pub use crate::table::{
    Codec, FilterOptions, Table, TableBuilder, TableOptions, ValueFile, ValuesPart,
};
pub use crate::version::manifest;
pub use crate::version::{
    GroupEdit, GroupState, Manifest, ManifestState, TableRecord, VersionEdit, check_no_remains,
    random_uid,
};
pub use crate::wal::{RecordKind, WalWriter, parse_segment_name, replay};
