//! Engines that rumbench can drive: one module and one cargo feature each.
//!
//! Reading order: [`registry`] (names, variants, how to open one), then the engines. Libraries of
//! ordered maps implement `embedded::Backend` and get every workload from it. SQLite implements
//! each workload's own trait with SQL; `servers` starts database servers and does the same. `null`
//! answers at once, so that the client's own cost can be measured. Each engine is opened in its
//! best reviewed configuration, each tuned value with its reason, and states which commits really
//! survive. The engines share little other code: `settings` reads `--set`, `facts` collects the
//! decisions, `periodic` syncs a log once a second.

mod adapter;
#[cfg(feature = "alluvium")]
pub mod alluvium;
pub mod conformance;
#[cfg(any(
    feature = "alluvium",
    feature = "fjall",
    feature = "leveldb",
    feature = "lmdb",
    feature = "redb",
    feature = "rocksdb",
    feature = "wiredtiger"
))]
pub mod embedded;
#[cfg(any(
    feature = "alluvium",
    feature = "fjall",
    feature = "leveldb",
    feature = "lmdb",
    feature = "mariadb",
    feature = "postgresql",
    feature = "redb",
    feature = "rocksdb",
    feature = "sqlite",
    feature = "wiredtiger"
))]
#[cfg_attr(
    not(all(feature = "fjall", feature = "lmdb", feature = "sqlite")),
    allow(dead_code, reason = "a build with few engines does not use all of it")
)]
mod error;
#[cfg_attr(
    not(all(feature = "fjall", feature = "lmdb", feature = "sqlite")),
    allow(unused, reason = "a build with few engines does not use all of it")
)]
mod facts;
#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "leveldb")]
pub mod leveldb;
#[cfg(feature = "lmdb")]
pub mod lmdb;
pub mod null;
#[cfg(any(
    feature = "alluvium",
    feature = "fjall",
    feature = "leveldb",
    feature = "lmdb",
    feature = "redb",
    feature = "rocksdb",
    feature = "sqlite",
    feature = "wiredtiger"
))]
#[cfg_attr(
    not(feature = "fjall"),
    allow(dead_code, reason = "a build with few engines does not use all of it")
)]
mod periodic;
#[cfg(feature = "redb")]
pub mod redb;
pub mod registry;
pub mod replication;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
#[cfg_attr(
    not(all(feature = "mariadb", feature = "postgresql")),
    allow(dead_code, reason = "a build with one server does not use all of it")
)]
mod servers;
#[cfg_attr(
    not(all(feature = "fjall", feature = "lmdb", feature = "sqlite")),
    allow(unused, reason = "a build with few engines does not use all of it")
)]
mod settings;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "wiredtiger")]
pub mod wiredtiger;

pub use adapter::SERVER_LOG;
pub use registry::{EngineEntry, Found, Variant, end_left_overs, engines, find, remove_left_overs};
