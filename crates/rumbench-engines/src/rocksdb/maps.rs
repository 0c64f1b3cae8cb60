//! Open database of either form with its column families, and the errors of its calls.

use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::{
    BoundColumnFamily, Cache, DBWithThreadMode, ErrorKind, MultiThreaded, Options, TransactionDB,
};
use rumbench_core::engine::{Durability, EngineError, Result};
use rumbench_core::kv::MapId;

use crate::embedded::map_of;

/// RocksDB with pessimistic transactions, as MyRocks uses it.
pub type Transactional = TransactionDB<MultiThreaded>;
/// RocksDB without transactions.
pub type Plain = DBWithThreadMode<MultiThreaded>;

/// Open RocksDB database in one of its forms, with one column family for each map.
pub struct RocksMaps<D> {
    /// Declared before `db`, because fields are dropped in this order and the handles must be
    /// dropped first.
    pub(super) maps: Vec<MapInfo>,
    pub(super) dir: PathBuf,
    pub(super) durability: Durability,
    pub(super) cache: Cache,
    pub(super) db: Arc<D>,
}

/// Column family of a map.
pub(super) struct MapInfo {
    pub(super) family: Arc<BoundColumnFamily<'static>>,
    /// Prefix length of the map's filter: scans within one such prefix may use it.
    pub(super) filtered_prefix: Option<usize>,
    /// Options for writing tables of this map; `None` if it cannot ingest any.
    pub(super) file_options: Option<Options>,
}

impl<D> RocksMaps<D> {
    #[inline]
    pub(super) fn map(&self, map: MapId) -> Result<&MapInfo> {
        map_of(&self.maps, map)
    }
}

#[cold]
fn rocks_error(context: &'static str, error: rocksdb::Error) -> EngineError {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Expired => {
            EngineError::Retry(error.into_string())
        }
        _ => EngineError::failed(context, error),
    }
}

/// Like [`crate::error::failed`], but maps a conflict to [`EngineError::Retry`].
pub(super) fn conflict_or(context: &'static str) -> impl FnOnce(rocksdb::Error) -> EngineError {
    move |error| rocks_error(context, error)
}
