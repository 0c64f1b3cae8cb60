//! Child process of a trial: opens the engine, runs the steps, closes it. Some workloads close and
//! reopen it between steps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rumbench_core::engine::{Durability, Engine, EngineError, External, OpenConfig, Schema};
use rumbench_core::trial::Workload;

use super::phase::PhaseContext;
use super::placement::Cores;
use super::protocol::{Emitter, Event, TrialSpec};
use super::steps::Steps;
use crate::catalog;
use crate::measure::counters::Counters;
use crate::measure::device::Device;
use crate::measure::server::ServerProcesses;
use crate::run::client::error_chain;

/// Main function of the child: reads the specification from stdin and reports on stdout.
///
/// # Errors
/// When the specification cannot be read; a failed trial is reported as an event instead.
pub fn child_main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the trial's specification")?;
    let spec: TrialSpec =
        serde_json::from_str(&line).context("stdin does not hold a trial's specification")?;
    let interrupted = Arc::new(AtomicBool::new(false));
    watch_stdin(Arc::clone(&interrupted));
    let emitter = Emitter::new(Box::new(std::io::stdout()));
    let error = run(&spec, &emitter, &interrupted).err();
    emitter.emit(&Event::Finished {
        // Engines include causes in their messages: each cause is reported once.
        error: error.map(|error| error_chain(error.as_ref())),
    });
    Ok(())
}

/// Watches stdin: a line `stop` ends the phase; the end of stdin means that the laboratory has
/// ended, so the trial exits.
pub fn watch_stdin(interrupted: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "stop" {
                interrupted.store(true, Ordering::Relaxed);
            }
        }
        std::process::exit(1);
    });
}

/// Opens the engine of a specification.
///
/// # Errors
/// When it does not exist in this build or cannot be opened.
pub fn open_engine(spec: &TrialSpec, schema: Schema) -> Result<Box<dyn Engine>> {
    open_with(spec, schema, spec.durability)
}

fn open_with(spec: &TrialSpec, schema: Schema, durability: Durability) -> Result<Box<dyn Engine>> {
    let found = rumbench_engines::find(&spec.engine)?;
    let config = OpenConfig {
        dir: spec.directory.clone(),
        schema,
        variant: spec.variant.clone(),
        cache_bytes: spec.cache_bytes,
        durability,
        clients: spec.clients,
        settings: spec.engine_settings.clone(),
    };
    found
        .entry
        .open(&config)
        .with_context(|| format!("cannot open {}", spec.engine))
}

/// Runs one trial to its end or to an interruption.
///
/// # Errors
/// When the engine cannot be opened, a phase cannot begin, or the engine cannot settle.
pub fn run(spec: &TrialSpec, emitter: &Emitter, interrupted: &AtomicBool) -> Result<()> {
    let mut settings = spec.settings.clone();
    if spec.turnover.is_some() {
        catalog::endless(&spec.workload, &mut settings)?;
    }
    let workload = catalog::workload(&spec.workload, &settings, spec.seed)?;
    // Before anything restricts the cores of this process.
    let cores = spec.placement.cores()?;
    // Before the engine's threads and processes start, because they inherit the counters; pool
    // threads outlive a database.
    let counters = spec.profile.then(Counters::open).unwrap_or_default();
    let context = TrialContext {
        spec,
        emitter,
        interrupted,
        cores,
        counters: RefCell::new(counters),
    };
    let mut left = Some(Steps::new(workload, spec.turnover.as_ref())?);
    while let Some(steps) = left {
        left = run_while_open(steps, &context)?;
    }
    Ok(())
}

/// State that is kept when the database is reopened.
struct TrialContext<'a> {
    spec: &'a TrialSpec,
    emitter: &'a Emitter,
    interrupted: &'a AtomicBool,
    cores: Option<Cores>,
    counters: RefCell<Counters>,
}

/// Opens the engine, runs steps until it has to be reopened, and closes it. Returns the remaining
/// steps, if any.
fn run_while_open<'a>(
    mut steps: Steps<'a>,
    context: &TrialContext<'_>,
) -> Result<Option<Steps<'a>>> {
    let TrialContext { spec, emitter, .. } = *context;
    let workload = steps.workload.as_ref();
    let cores = context.cores.as_ref();
    if let Some(cores) = cores {
        cores.for_engine()?;
    }
    let durability = workload.durability().unwrap_or(spec.durability);
    let engine = open_with(spec, workload.schema(), durability)?;
    if let Some(cores) = cores {
        cores.for_clients()?;
    }
    announce(spec, workload, engine.as_ref(), cores, emitter);
    let external = engine.external();
    let device = match &external {
        Some(external) => external.data.as_deref().and_then(Device::of),
        None => Device::of(&spec.directory),
    };
    let server = engine.server_process().map(ServerProcesses::of);
    let server = server.or_else(|| external.as_ref().map(|_| ServerProcesses::unseen()));
    mark_external(external.as_ref(), emitter);
    let context = PhaseContext {
        engine: engine.as_ref(),
        directory: &spec.directory,
        device: device.as_ref(),
        server: server.as_ref(),
        rate: spec.rate,
        seed: spec.seed,
        stuck_after: spec.stuck_after_s.map(Duration::from_secs),
        interrupted: context.interrupted,
        emitter,
        counters: spec.profile.then_some(&context.counters),
    };
    let goes_on = match steps.run(&context) {
        Ok(goes_on) => goes_on,
        Err(error) => {
            mark_if_wrong(error, emitter)?;
            false
        }
    };
    // At the end of the trial the workload is dropped before the engine, because it may hold stores
    // of the engine.
    let left = goes_on.then_some(steps);
    engine.close().context("cannot close the engine")?;
    Ok(left)
}

/// Marks the trial if its server is external: sizes come from the server, and other measurements
/// are missing or include other users.
fn mark_external(external: Option<&External>, emitter: &Emitter) {
    let Some(external) = external else { return };
    let own = "its cache and log are its own, not cache_bytes; sizes are those that it tells";
    let mark = match &external.unseen {
        Some(why) => {
            format!("external ({own}; CPU, memory and I/O of the server are missing: {why})")
        }
        None => format!("external ({own}; its CPU, memory and I/O include other users')"),
    };
    emitter.emit(&Event::Mark { mark });
}

/// Turns a wrong answer in any step into a mark of its own; other errors stay errors.
fn mark_if_wrong(error: anyhow::Error, emitter: &Emitter) -> Result<()> {
    match error.downcast_ref::<EngineError>() {
        Some(EngineError::Wrong(message)) => {
            emitter.emit(&Event::Mark {
                mark: format!("wrong-answer ({message})"),
            });
            Ok(())
        }
        _ => Err(error),
    }
}

fn announce(
    spec: &TrialSpec,
    workload: &dyn Workload,
    engine: &dyn Engine,
    cores: Option<&Cores>,
    emitter: &Emitter,
) {
    let (rows, bytes) = workload.load_estimate();
    let mut settings: BTreeMap<String, String> = workload.settings().into_iter().collect();
    if let Some(turnover) = &spec.turnover {
        let steps = format!(
            "{} until {} times the data",
            turnover.phase, turnover.multiple
        );
        settings.insert("steps".to_string(), steps);
    }
    if let Some(cores) = cores {
        settings.insert("placement".to_string(), cores.words());
    }
    emitter.emit(&Event::Opened {
        facts: engine.facts(),
        workload: settings,
        workload_version: workload.identity().1,
        load_bytes: bytes,
        load_rows: rows,
        phases: workload.phase_names(),
    });
}
