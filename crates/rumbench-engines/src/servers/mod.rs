//! Databases that run as servers: found, initialized, started privately, stopped, and driven with
//! SQL.
//!
//! Reading order: `packages` (locates the binaries), `run_folder`, `program` and `process` (a
//! private child process that leaves no files), `endpoint` and `external` (running servers),
//! `own_lines` (a user's additions to a configuration), `session` (a connection with prepared
//! statements), `server` (a running server as the stores see it), `sql`, `query_sql`,
//! `table_statements`, `tables` and `table_queries` (table workloads), `link_sql`, `link_list`,
//! `links` and `link_operations` (LinkBench), `check` (compares indexes with rows), `schema`
//! (creates the tables), `engine` (the part that all servers share as engines), then the servers
//! themselves: `postgresql`, `mariadb`, each with its `replication`, and `network` (what both need
//! for it). A server listens on a Unix socket only, in a folder that no other user can enter; one
//! in replication also on the loopback address, for a user with a password. System services are
//! never touched.

mod check;
mod counters;
mod endpoint;
mod engine;
mod external;
mod link_list;
mod link_operations;
mod link_sql;
mod links;
mod log;
#[cfg(feature = "mariadb")]
pub(crate) mod mariadb;
mod network;
mod own_lines;
mod packages;
mod places;
#[cfg(feature = "postgresql")]
pub(crate) mod postgresql;
mod process;
mod program;
mod query_sql;
mod run_folder;
mod schema;
mod server;
mod session;
mod sql;
mod table_queries;
mod table_statements;
mod tables;

pub(crate) use run_folder::{name_data, remove_left_overs};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use rumbench_core::engine::{Durability, OpenConfig, Schema};

    /// Small trial in a folder.
    pub(super) fn config(dir: &Path, durability: Durability) -> OpenConfig {
        OpenConfig {
            dir: dir.to_path_buf(),
            schema: Schema::LinkBench,
            variant: None,
            cache_bytes: 64 << 20,
            durability,
            clients: 2,
            settings: BTreeMap::new(),
        }
    }
}
