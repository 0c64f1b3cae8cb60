//! Processes that use an open database: they fork, start programs, change the working directory,
//! move and remove directories.
//!
//! The tests use real files, because the kernel decides most of the result.

mod calls;
mod directories;
mod fork;
mod locks;

use std::path::Path;

use alluvium::{Database, Keyspace, KeyspaceOptions};

use crate::fixture::tiny;

fn open(dir: &Path) -> (Database, Keyspace) {
    let db = Database::open(dir, tiny()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    (db, k)
}
