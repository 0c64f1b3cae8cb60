//! Tests of every engine of this build against the conformance suites.

#[cfg(feature = "alluvium")]
mod alluvium;
mod every_engine;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod external;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod oltp_range;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod servers;
mod setup;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;
