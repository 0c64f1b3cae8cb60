//! Engines that are libraries of ordered maps, linked into this process.
//!
//! A [`Backend`] is the code for one library; [`Embedded`] makes an engine of it, with the stores
//! of all workloads. All of it is compiled for each backend: a call through a `dyn Backend` would
//! add to every measured operation.

use std::sync::Arc;
use std::time::Duration;

use rumbench_core::engine::{Counter, Engine, EngineFacts, OpenConfig, Result};
use rumbench_core::kv::{KvConnection, KvEngine, MapDef, MapId};
use rumbench_core::linkbench::{KvLinkStore, LinkStore};
use rumbench_core::tables::{TableSchema, TableStore, kv_table_store};

use crate::adapter::Adapter;
use crate::error::{no_map, still_open};
use crate::periodic::Periodic;

/// Library of ordered maps with an open database.
pub trait Backend: Sized + Send + Sync + 'static {
    /// Name of the engine in messages.
    const NAME: &str;

    /// Connection of one client. It shares the backend, so that an engine in use cannot be closed.
    type Connection: KvConnection;

    /// Reads variant and settings without opening anything.
    ///
    /// # Errors
    /// [`rumbench_core::engine::EngineError::Unsupported`] for an unknown variant or setting, or
    /// one that this durability class excludes.
    fn check(config: &OpenConfig) -> Result<()>;

    /// Opens or creates the maps of `schema` in `config.dir`.
    ///
    /// # Errors
    /// As for [`Backend::check`], and any error of the library.
    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<Self>>;

    /// Opens a connection for one client thread; see [`KvEngine::connect`].
    fn connect(self: &Arc<Self>) -> Result<Self::Connection>;

    /// Returns names and values of the library's counters; see [`Engine::counters`].
    fn counters(&self) -> Vec<(&'static str, f64)>;

    /// Works off the backlog; see [`Engine::settle`].
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()>;

    /// Returns true if a file of the data directory holds data; see [`Engine::is_data_file`].
    fn is_data_file(file_name: &str) -> bool;

    /// Makes every commit durable and closes the database. Its syncer has ended.
    fn close(self) -> Result<()>;
}

/// Backend with its facts and its thread.
pub struct Opened<B> {
    /// Thread that makes commits durable once a second, if the durability class needs one.
    pub syncer: Option<Periodic>,
    /// Open database.
    pub backend: Arc<B>,
    /// Version, effective configuration and durability facts.
    pub facts: EngineFacts,
}

/// Engine on a backend. Clones share it.
pub struct Embedded<B>(Arc<Opened<B>>);

impl<B> Clone for Embedded<B> {
    fn clone(&self) -> Embedded<B> {
        Embedded(Arc::clone(&self.0))
    }
}

impl<B: Backend> Embedded<B> {
    /// Entry of the engine in the registry.
    pub(crate) const ADAPTER: Adapter = Adapter {
        check: B::check,
        open: |config| {
            Ok(Box::new(Embedded::<B>::open(
                config,
                &config.schema.maps(),
            )?))
        },
    };

    /// Opens or creates the maps of `schema` in `config.dir`.
    ///
    /// # Errors
    /// As for [`Backend::open`].
    pub fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Embedded<B>> {
        Ok(Embedded(Arc::new(B::open(config, schema)?)))
    }
}

impl<B: Backend> KvEngine for Embedded<B> {
    type Connection = B::Connection;

    fn connect(&self) -> Result<B::Connection> {
        self.0.backend.connect()
    }
}

impl<B: Backend> Engine for Embedded<B> {
    fn facts(&self) -> EngineFacts {
        self.0.facts.clone()
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(KvLinkStore::new(Arc::new(self.clone()))?))
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        kv_table_store(self.clone(), schema)
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |(name, value): (&str, f64)| Counter {
            name: name.to_owned(),
            value,
        };
        let counters = self.0.backend.counters().into_iter();
        counters.map(counter).collect()
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.0.backend.settle(progress)
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        B::is_data_file(file_name)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let still_open = || still_open(B::NAME);
        let opened = Arc::into_inner(self.0).ok_or_else(still_open)?;
        let backend = Arc::into_inner(opened.backend).ok_or_else(still_open)?;
        opened.syncer.map_or(Ok(()), Periodic::stop)?;
        backend.close()
    }
}

/// Waits until no work has been found for a second. `poll` returns true if there is work, and
/// describes it. Ends because the backlog is finite and there are no writers.
#[allow(dead_code, reason = "not every library has background work")]
pub(crate) fn wait_until_quiet(
    progress: &mut dyn FnMut(&str),
    mut poll: impl FnMut() -> (bool, String),
) {
    const POLL: Duration = Duration::from_millis(50);
    const POLLS_PER_SECOND: u32 = 20;
    let (mut quiet, mut polls) = (0, 0_u32);
    while quiet < POLLS_PER_SECOND {
        std::thread::sleep(POLL);
        let (is_busy, work) = poll();
        quiet = if is_busy { 0 } else { quiet + 1 };
        polls += 1;
        if polls % POLLS_PER_SECOND == 0 {
            progress(&work);
        }
    }
}

/// Returns the library's handle of a map.
#[allow(dead_code, reason = "not every library has handles")]
#[inline]
pub(crate) fn map_of<M>(maps: &[M], map: MapId) -> Result<&M> {
    maps.get(map.0).ok_or_else(|| no_map(map))
}
