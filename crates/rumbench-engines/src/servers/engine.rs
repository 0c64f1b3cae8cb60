//! Servers as engines: the part that all of them share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rumbench_core::engine::{Counter, Engine, EngineFacts, External, Result};
use rumbench_core::linkbench::LinkStore;
use rumbench_core::tables::{TableSchema, TableStore};

use super::endpoint::Endpoint;
use super::external::Made;
use super::links::ServerLinks;
use super::process::ServerProcess;
use super::server::Server;
use super::session::Session;
use super::tables::ServerTables;
use crate::error::still_open;

/// Private or external server with the tables of one workload.
pub(super) struct Running<S: Session> {
    /// Removes the tables from an external server when dropped. Set before the tables are created,
    /// so that a failure halfway leaves none.
    pub(super) made: Option<Made<S>>,
    /// Server that was started here.
    pub(super) process: Option<ServerProcess>,
    /// Observable facts about an external server.
    pub(super) external: Option<External>,
    pub(super) endpoint: Endpoint,
    /// Names of the trial's tables.
    pub(super) tables: Vec<&'static str>,
    pub(super) facts: EngineFacts,
    /// The laboratory's own connection, for counters.
    pub(super) own: Mutex<S>,
}

/// Parts of an engine in which servers differ.
pub(super) trait Product: Server {
    /// Name in messages.
    const NAME: &str;

    /// Returns the running server.
    fn running(&self) -> &Running<Self::Session>;

    /// Gives up the running server, to be closed.
    fn into_running(self) -> Running<Self::Session>;

    /// Returns the server's counters; none if it is gone, which the clients report.
    fn counters(&self, own: &mut Self::Session) -> Vec<Counter>;

    /// Works off the backlog; see [`Engine::settle`].
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()>;

    /// Returns true if a file of the data directory holds data; see [`Engine::is_data_file`].
    fn is_data_file(file_name: &str) -> bool;

    /// Returns true if a commit is visible before it is as durable as its class promises.
    fn shows_commits_early(&self) -> bool {
        false
    }

    /// Returns the bytes of the trial's tables on an external server, with their indexes.
    fn stored_bytes(&self, own: &mut Self::Session) -> Option<u64>;
}

/// Server as an engine.
pub(super) struct ServerEngine<P> {
    pub(super) server: Arc<P>,
    highest_node: Arc<Mutex<u64>>,
}

impl<P: Product> ServerEngine<P> {
    pub(super) fn new(server: P) -> ServerEngine<P> {
        ServerEngine {
            server: Arc::new(server),
            highest_node: Arc::default(),
        }
    }

    fn own(&self) -> MutexGuard<'_, P::Session> {
        let own = self.server.running().own.lock();
        own.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Product> Engine for ServerEngine<P> {
    fn facts(&self) -> EngineFacts {
        self.server.running().facts.clone()
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(ServerLinks {
            server: Arc::clone(&self.server),
            highest_node: Arc::clone(&self.highest_node),
        }))
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        let server = Arc::clone(&self.server);
        Ok(Arc::new(ServerTables { server, schema }))
    }

    fn counters(&self) -> Vec<Counter> {
        self.server.counters(&mut self.own())
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.server.settle(progress)
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        P::is_data_file(file_name)
    }

    fn shows_commits_early(&self) -> bool {
        self.server.shows_commits_early()
    }

    fn server_process(&self) -> Option<u32> {
        let running = self.server.running();
        match &running.external {
            Some(external) => external.process,
            None => running.process.as_ref().map(ServerProcess::pid),
        }
    }

    fn end_server(&self) -> bool {
        let process = self.server.running().process.as_ref();
        process.map(ServerProcess::kill).is_some()
    }

    fn log_tail(&self) -> Option<String> {
        let process = self.server.running().process.as_ref();
        process.map(ServerProcess::log_tail)
    }

    fn external(&self) -> Option<External> {
        self.server.running().external.clone()
    }

    fn stored_bytes(&self) -> Option<u64> {
        self.server.running().external.as_ref()?;
        self.server.stored_bytes(&mut self.own())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let server = Arc::into_inner(self.server).ok_or_else(|| still_open(P::NAME))?;
        let running = server.into_running();
        if let Some(made) = &running.made {
            made.remove()?;
        }
        drop(running.own);
        running.process.map_or(Ok(()), ServerProcess::stop)
    }
}
