//! LinkBench as a workload of the laboratory: its phases, in order, and its checks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::{REQUEST_OPERATIONS, Requester, RequesterOptions, StreamRest};
use super::config::{Config, Mode, Rules};
use super::graph::Graph;
use super::load::{LOAD_OPERATIONS, LoadQueue, Loader};
use super::sample::check_sample;
use super::store::{LinkStore, TableTotals};
use super::stream::{RequestPlan, RequestStream};
use crate::engine::{Engine, Schema};
use crate::error::EngineError;
use crate::trial::{Done, OpIndex, Phase, PhaseClient, PhaseEnd, Step, Workload};

/// Version of the workload; changes whenever the golden requests or the loaded rows change.
pub const VERSION: u32 = 1;
/// The operation of the `index` phase.
const INDEX_OPERATIONS: &[&str] = &["BUILD_INDEX"];

/// Functions that the runner provides, because a workload has no clock and cannot sleep.
#[derive(Debug, Clone, Copy)]
pub struct Hooks {
    /// Returns milliseconds since the epoch.
    pub now_ms: fn() -> u64,
    /// Called before attempt number 2, 3, ... of a transaction. The reference sleeps 20 ms *
    /// (attempt - 2) there.
    pub backoff: fn(u32),
}

/// The phase to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Load,
    Index,
    Warmup,
    Request(u32),
    End,
}

/// The LinkBench workload of one configuration.
pub struct LinkBench {
    config: Config,
    hooks: Hooks,
    graph: Arc<Graph>,
    rest: Arc<Mutex<StreamRest>>,
    next: Next,
    loaded: bool,
}

impl LinkBench {
    /// Prepares a trial of this configuration. The times of loaded rows end at the time of this
    /// call.
    pub fn new(config: Config, hooks: Hooks) -> LinkBench {
        let graph = Arc::new(Graph::new(&config, (hooks.now_ms)()));
        let plan = Arc::new(RequestPlan::new(&config, Arc::clone(&graph), hooks.now_ms));
        let streams =
            (0..config.clients).map(|client| RequestStream::new(Arc::clone(&plan), client));
        LinkBench {
            rest: Arc::new(Mutex::new(StreamRest::new(streams.collect()))),
            config,
            hooks,
            graph,
            next: Next::Load,
            loaded: false,
        }
    }

    /// Returns the effective configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the loaded graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the next phase; `None` after the last one.
    ///
    /// # Errors
    /// Fails if the clients of the previous phase still hold their streams, or if the store fails.
    pub fn next_phase(&mut self, engine: &dyn Engine) -> Result<Option<Phase>, EngineError> {
        let store = engine.link_store()?;
        // Each round advances to a later phase.
        loop {
            match self.next {
                Next::Load => {
                    self.next = Next::Index;
                    return self.load_phase(&*store).map(Some);
                }
                Next::Index => {
                    self.next = Next::Warmup;
                    if store.separate_index() {
                        return Ok(Some(self.index_phase(store)));
                    }
                }
                Next::Warmup => {
                    if store.keeps_rows() {
                        check_sample(&self.graph, self.config.seed, &mut *store.connect()?)?;
                    }
                    self.loaded = true;
                    self.next = self.step_after(0);
                    if let Some(end) = self.config.warmup.filter(|_| self.config.steps > 0) {
                        return self
                            .request_phase(&*store, "warmup".to_owned(), end, false)
                            .map(Some);
                    }
                }
                Next::Request(step) => {
                    self.next = self.step_after(step);
                    let name = LinkBench::request_name(step);
                    return self
                        .request_phase(&*store, name, self.config.end, true)
                        .map(Some);
                }
                Next::End => return Ok(None),
            }
        }
    }

    fn rest(&self) -> MutexGuard<'_, StreamRest> {
        // `StreamRest` is plain data, and no panic can leave it half changed.
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_phase(&self, store: &dyn LinkStore) -> Result<Phase, EngineError> {
        let queue = Arc::new(LoadQueue::new(&self.config, Arc::clone(&self.graph)));
        let loaders = self.config.loaders.unwrap_or(self.config.clients);
        let clients = (0..loaders).map(|_| {
            let loader = Loader::new(
                Arc::clone(&queue),
                store.connect()?,
                &self.config,
                self.hooks,
            );
            Ok(Box::new(loader) as Box<dyn PhaseClient>)
        });
        Ok(Phase {
            name: "load".to_owned(),
            operations: LOAD_OPERATIONS,
            end: PhaseEnd::Work,
            recorded: true,
            paced: false,
            background: None,
            clients: clients.collect::<Result<_, EngineError>>()?,
        })
    }

    fn index_phase(&self, store: Arc<dyn LinkStore>) -> Phase {
        let builder = IndexBuilder {
            store,
            rows: self.graph.totals().links,
            done: false,
        };
        Phase {
            name: "index".to_owned(),
            operations: INDEX_OPERATIONS,
            end: PhaseEnd::Work,
            recorded: true,
            paced: false,
            background: None,
            clients: vec![Box::new(builder)],
        }
    }

    fn request_phase(
        &self,
        store: &dyn LinkStore,
        name: String,
        end: PhaseEnd,
        recorded: bool,
    ) -> Result<Phase, EngineError> {
        let options = RequesterOptions {
            judges: store.keeps_rows(),
            updates_are_adds: self.config.rules == Rules::Classic
                && self.config.mode == Mode::Faithful,
        };
        let mut clients: Vec<Box<dyn PhaseClient>> = Vec::new();
        for client in 0..self.config.clients as usize {
            let connection = store.connect()?;
            let stream = self.rest().take(client);
            let stream = stream.ok_or_else(|| {
                EngineError::failed(
                    format!("beginning phase {name}"),
                    "the clients of the phase before must be dropped first",
                )
            })?;
            let rest = Arc::clone(&self.rest);
            clients.push(Box::new(Requester::new(
                client, stream, connection, self.hooks, options, rest,
            )));
        }
        Ok(Phase {
            name,
            operations: REQUEST_OPERATIONS,
            end,
            recorded,
            paced: true,
            background: None,
            clients,
        })
    }

    fn request_name(step: u32) -> String {
        match step {
            1 => "request".to_owned(),
            _ => format!("request#{step}"),
        }
    }

    fn step_after(&self, step: u32) -> Next {
        if step < self.config.steps {
            Next::Request(step + 1)
        } else {
            Next::End
        }
    }

    /// Returns the totals expected from the load and the answers to all writes, and true if the
    /// count rows are exact.
    fn expected(&self) -> (TableTotals, bool) {
        let loaded = self.graph.totals();
        let tally = self.rest().tally;
        let links = loaded.links + tally.links_inserted;
        let expected = TableTotals {
            nodes: loaded.nodes + tally.nodes_added - tally.nodes_deleted,
            links,
            visible_links: links + tally.links_revived - tally.links_hidden,
            counts: loaded.counts,
        };
        // An inserted link may be the first of its list and create a count row.
        (expected, tally.links_inserted == 0)
    }
}

impl Workload for LinkBench {
    fn identity(&self) -> (&'static str, u32) {
        ("linkbench", VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::LinkBench
    }

    /// Leaves out the `index` phase, which follows `load` if the engine builds the index
    /// separately.
    fn paced_phases(&self) -> Vec<String> {
        (1..=self.config.steps)
            .map(LinkBench::request_name)
            .collect()
    }

    fn phase_names(&self) -> Vec<String> {
        let warms_up = self.config.warmup.is_some() && self.config.steps > 0;
        let warmup = warms_up.then(|| "warmup".to_owned());
        let requests = (1..=self.config.steps).map(LinkBench::request_name);
        std::iter::once("load".to_owned())
            .chain(warmup)
            .chain(requests)
            .collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config.settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let totals = self.graph.totals();
        (
            totals.nodes + totals.links + totals.counts,
            self.graph.estimated_bytes(),
        )
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        Ok(self.next_phase(engine)?.map(Step::Phase))
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.link_store()?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        let found = store.connect()?.check()?;
        if !self.loaded {
            return Ok(format!(
                "counts, links and index agree ({} links); the load did not end",
                found.links
            ));
        }
        let (mut expected, exact_counts) = self.expected();
        if !exact_counts && found.counts > expected.counts {
            expected.counts = found.counts;
        }
        if found != expected {
            return Err(EngineError::Wrong(format!(
                "the load and the answers to all writes make {expected:?}, the tables hold {found:?}"
            )));
        }
        let stationary = match self.rest().hidden_links() {
            Some(hidden) if self.config.mode == Mode::Stationary => {
                format!(", {hidden} loaded links hidden")
            }
            _ => String::new(),
        };
        Ok(format!(
            "{} nodes, {} links ({} visible), {} counts: as the load and the answers to all writes make them{stationary}; \
             every count equals its visible links, and every link has its index entry",
            found.nodes, found.links, found.visible_links, found.counts
        ))
    }
}

/// The only client of the `index` phase.
struct IndexBuilder {
    store: Arc<dyn LinkStore>,
    rows: u64,
    done: bool,
}

impl PhaseClient for IndexBuilder {
    fn prepare(&mut self) -> Option<OpIndex> {
        (!std::mem::replace(&mut self.done, true)).then_some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        self.store.build_index()?;
        Ok(Done {
            rows: self.rows,
            ..Done::default()
        })
    }
}
