//! Custom workload as a workload of the laboratory: its phases, in order, and its checks.

use std::sync::Arc;

use super::checks::Shared;
use super::client::MixClient;
use super::config::Config;
use super::definition::{PhaseDef, PhaseKind, RunDef};
use super::load::{Builder, INDEX_OPERATIONS, LOAD_OPERATIONS, Loader, indexes};
use super::population::Population;
use super::rows::Rows;
use super::stream::Stream;
use super::versions::Versions;
use crate::engine::{Engine, Schema};
use crate::error::EngineError;
use crate::random::Random;
use crate::tables::{TableId, TableStore, refuse_rows};
use crate::trial::{Pace, Phase, PhaseClient, PhaseEnd, Step, Workload};

/// Version of the workload; changes whenever the golden operations or the loaded rows change.
pub const VERSION: u32 = 2;
/// Key of the random generators of versions.
const TICKET_KEY: u64 = 0x7469_636b;

/// Kinds of phases, each with an explanation.
pub const KINDS: &[(&str, &str)] = &[
    ("load", "writes the rows of all tables"),
    (
        "index",
        "builds the indexes, where a file separates that from the load",
    ),
    (
        "run",
        "a mix of operations; a file may give it another name",
    ),
    (
        "settle",
        "the engine works off its backlog: flush, compaction, checkpoint, sync",
    ),
];

/// A configured custom workload.
pub struct Custom {
    config: Config,
    shared: Arc<Shared>,
    /// Names of the operations of each phase.
    operations: Vec<&'static [&'static str]>,
    /// Index of the next phase.
    next: usize,
}

impl Custom {
    /// Creates a trial of this configuration. `backoff` is called before attempt number 2, 3, ...
    /// of a transaction.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] if the definition has no valid schema.
    pub fn new(config: Config, backoff: fn(u32)) -> Result<Custom, EngineError> {
        let definition = config.effective();
        let tables = 0..definition.tables.len();
        let operations = definition.phases.iter().map(|phase| match &phase.kind {
            PhaseKind::Load { .. } => LOAD_OPERATIONS,
            PhaseKind::Index => INDEX_OPERATIONS,
            PhaseKind::Settle => &[],
            PhaseKind::Run(run) => names(run),
        });
        Ok(Custom {
            operations: operations.collect(),
            shared: Arc::new(Shared {
                schema: definition.schema().map_err(EngineError::Unsupported)?,
                rows: Rows::new(&definition, config.seed),
                populations: tables.clone().map(|_| Population::default()).collect(),
                versions: tables
                    .map(|table| Versions::new(&definition, table))
                    .collect(),
                seed: config.seed,
                definition,
                backoff,
            }),
            config,
            next: 0,
        })
    }

    fn phases(&self) -> &[PhaseDef] {
        &self.shared.definition.phases
    }

    fn load(&self, store: &dyn TableStore, batch: u64, clients: u32) -> Result<Phase, EngineError> {
        let shared = &self.shared;
        let mut connection = store.connect()?;
        for (table, of) in shared.definition.tables.iter().enumerate() {
            refuse_rows(&mut *connection, shared.schema, TableId(table))?;
            shared.populations[table].reserve(of.rows);
        }
        drop(connection);
        if !shared.definition.builds_indexes() {
            for (table, index) in indexes(shared) {
                store.build_index(TableId(table), index)?;
            }
        }
        let client = |client| {
            let place = (u64::from(client), u64::from(clients));
            let loader = Loader::new(Arc::clone(shared), store.connect()?, place, batch);
            Ok(Box::new(loader) as Box<dyn PhaseClient>)
        };
        let clients = (0..clients).map(client);
        Ok(phase(clients.collect::<Result<_, EngineError>>()?))
    }

    fn run(
        &self,
        store: &dyn TableStore,
        place: usize,
        run: &RunDef,
    ) -> Result<Phase, EngineError> {
        let (shared, seed) = (&self.shared, self.config.seed);
        let phase_number = place as u64;
        let client = |client: u32| {
            let number = (u64::from(client), u64::from(run.clients));
            let client = MixClient::new(
                Arc::clone(shared),
                store.connect()?,
                Stream::new((seed, phase_number), run, number, &shared.populations),
                Random::keyed(seed, &[TICKET_KEY, phase_number, number.0]),
                store.keeps_rows(),
            );
            Ok(Box::new(client) as Box<dyn PhaseClient>)
        };
        let clients = (0..run.clients).map(client);
        Ok(Phase {
            end: run.end,
            recorded: run.recorded,
            paced: true,
            ..phase(clients.collect::<Result<_, EngineError>>()?)
        })
    }

    /// Checks after the load that every table has its rows, each as it was written.
    fn check_load(&self, store: &dyn TableStore) -> Result<(), EngineError> {
        let mut connection = store.connect()?;
        let tables = 0..self.shared.definition.tables.len();
        let mut checks = tables.map(|table| self.shared.check_load(&mut *connection, table));
        checks.try_for_each(|checked| checked)
    }
}

/// Returns the names of the operations of a phase. They are leaked because phases keep them and a
/// process creates few workloads.
fn names(run: &RunDef) -> &'static [&'static str] {
    let names = run.operations.iter();
    let names = names.map(|one| &*one.name.clone().leak());
    names.collect::<Vec<&'static str>>().leak()
}

/// Creates a phase that ends with its work; the caller fills in name and operations.
fn phase(clients: Vec<Box<dyn PhaseClient>>) -> Phase {
    Phase {
        name: String::new(),
        operations: &[],
        end: PhaseEnd::Work,
        recorded: true,
        paced: false,
        clients,
        background: None,
    }
}

impl Workload for Custom {
    fn identity(&self) -> (&'static str, u32) {
        ("custom", VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::Tables(self.shared.schema)
    }

    fn connections(&self) -> Option<usize> {
        let clients = self.phases().iter().map(|phase| match &phase.kind {
            PhaseKind::Load { clients, .. } => *clients,
            PhaseKind::Run(run) => run.clients,
            PhaseKind::Index | PhaseKind::Settle => 1,
        });
        clients.max().map(|clients| clients as usize)
    }

    fn pace(&self, phase: &str) -> Option<Pace> {
        let found = self.phases().iter().find(|one| one.name == phase)?;
        match &found.kind {
            PhaseKind::Run(run) => run.pace,
            _ => None,
        }
    }

    fn paced_phases(&self) -> Vec<String> {
        let paced = |phase: &&PhaseDef| matches!(&phase.kind, PhaseKind::Run(run) if run.recorded);
        let all = self.phases().iter().filter(paced);
        all.map(|phase| phase.name.clone()).collect()
    }

    fn phase_names(&self) -> Vec<String> {
        self.phases()
            .iter()
            .map(|phase| phase.name.clone())
            .collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config.settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let tables = self.shared.definition.tables.iter();
        tables.fold((0, 0), |(rows, bytes): (u64, u64), table| {
            let more = table.rows.saturating_mul(table.row_bytes());
            (rows.saturating_add(table.rows), bytes.saturating_add(more))
        })
    }

    fn memory_bytes(&self) -> u64 {
        let versions = self.shared.versions.iter().map(Versions::memory_bytes);
        let tables = self.shared.definition.tables.iter();
        let states = tables.map(|table| Population::memory_bytes(table.rows));
        versions.chain(states).sum()
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        // The load is the first phase.
        if self.next == 1 && store.keeps_rows() {
            self.check_load(&*store)?;
        }
        let place = self.next;
        let Some(PhaseDef { name, kind }) = self.phases().get(place).cloned() else {
            return Ok(None);
        };
        self.next += 1;
        let phase = match &kind {
            PhaseKind::Settle => return Ok(Some(Step::Settle)),
            PhaseKind::Load { batch, clients } => self.load(&*store, *batch, *clients)?,
            PhaseKind::Index => {
                let builder = Builder::new(Arc::clone(&self.shared), store);
                phase(vec![Box::new(builder)])
            }
            PhaseKind::Run(run) => self.run(&*store, place, run)?,
        };
        Ok(Some(Step::Phase(Phase {
            name,
            operations: self.operations[place],
            ..phase
        })))
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        let mut connection = store.connect()?;
        let (mut rows, mut entries_of) = (0, 0);
        let tables = self.shared.definition.tables.len();
        for table in 0..tables {
            rows += self.shared.check_all(&mut *connection, table)?;
            entries_of += connection.check(TableId(table))?;
        }
        let followed = self.shared.versions.iter().map(Versions::every).max();
        let followed = match followed {
            None | Some(0 | 1) => String::new(),
            Some(every) => format!(" (of updated values one row in {every} to its very version)"),
        };
        Ok(format!(
            "{rows} rows in {tables} tables: all that must be there and no other, in order, with values that were written for \
             them and not overwritten{followed}; the entries of {entries_of} indexes are equal to the rows"
        ))
    }
}
