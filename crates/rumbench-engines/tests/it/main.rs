//! Every engine of this build against the suites of behaviour.

mod every_engine;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod setup;
#[cfg(feature = "sqlite")]
mod sqlite;
