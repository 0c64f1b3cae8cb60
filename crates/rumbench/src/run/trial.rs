//! The child process of a trial: open the engine, run the phases, settle, verify, close. Some workloads have it closed and
//! opened again between phases.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rumbench_core::engine::{Durability, Engine, EngineError, External, OpenConfig, Schema};
use rumbench_core::trial::{Phase, PhaseEnd, Step, Workload};

use super::phase::{self, PhaseContext};
use super::placement::Cores;
use super::plan::Turnover;
use super::protocol::{Emitter, Event, TrialSpec};
use super::turnover::{Counter, Next};
use crate::catalog;
use crate::measure::compressed;
use crate::measure::counters::Counters;
use crate::measure::device::Device;
use crate::measure::server::ServerProcesses;
use crate::run::client::error_chain;
use crate::store::result::{PhaseResult, StoredBytes};

/// The child's main function: reads the specification from stdin and reports on stdout.
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
        // Engines print their causes themselves: each is said once.
        error: error.map(|error| error_chain(error.as_ref())),
    });
    Ok(())
}

/// A line `stop` ends the phase; the end of stdin means that the laboratory is gone, and so must be its trials.
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
    // Before anything narrows what this process may use.
    let cores = spec.placement.cores()?;
    // Before the engine's threads and processes, which inherit them; those of a pool outlive a database.
    let counters = spec.profile.then(Counters::open).unwrap_or_default();
    let around = Around {
        spec,
        emitter,
        interrupted,
        cores,
        counters: RefCell::new(counters),
    };
    let mut left = Some(Steps::new(workload, spec.turnover.as_ref())?);
    while let Some(steps) = left {
        left = run_while_open(steps, &around)?;
    }
    Ok(())
}

/// What stays from one opening of the database to the next.
struct Around<'a> {
    spec: &'a TrialSpec,
    emitter: &'a Emitter,
    interrupted: &'a AtomicBool,
    cores: Option<Cores>,
    counters: RefCell<Counters>,
}

/// Opens the engine, runs steps until it has to be opened again, and closes it. The steps that are left, if any.
fn run_while_open<'a>(mut steps: Steps<'a>, around: &Around<'_>) -> Result<Option<Steps<'a>>> {
    let Around { spec, emitter, .. } = *around;
    let workload = steps.workload.as_ref();
    let cores = around.cores.as_ref();
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
        interrupted: around.interrupted,
        emitter,
        counters: spec.profile.then_some(&around.counters),
    };
    let goes_on = match steps.run(&context) {
        Ok(goes_on) => goes_on,
        Err(error) => {
            mark_if_wrong(error, emitter)?;
            false
        }
    };
    // At the end of the trial the workload goes, which may hold stores of the engine.
    let left = goes_on.then_some(steps);
    engine.close().context("cannot close the engine")?;
    Ok(left)
}

/// Says what is not measured of a server that is not the laboratory's own.
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

/// A wrong answer is a mark of its own, whichever step met it; other errors stay errors.
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

/// A trial's steps, which go on where they were when the database is opened again.
struct Steps<'a> {
    workload: Box<dyn Workload>,
    settles: Settles,
    /// Whether the last step was a settle.
    settled: bool,
    turnover: Option<&'a Turnover>,
    /// From the first step on that ages the database.
    counter: Option<Counter<'a>>,
}

impl<'a> Steps<'a> {
    fn new(workload: Box<dyn Workload>, turnover: Option<&'a Turnover>) -> Result<Steps<'a>> {
        let ratio = compressed::ratio(&workload.sample(compressed::SAMPLE_BYTES))?;
        Ok(Steps {
            workload,
            settles: Settles { done: 0, ratio },
            settled: false,
            turnover,
            counter: None,
        })
    }

    /// Runs steps up to the next that opens the database again, or to the end of the trial. Whether there is more to do.
    fn run(&mut self, context: &PhaseContext<'_>) -> Result<bool> {
        let (engine, emitter) = (context.engine, context.emitter);
        while let Some(step) = self.workload.next_step(engine)? {
            let step = match step {
                Step::Reopen => return Ok(true),
                Step::Settle => {
                    self.settled = true;
                    if self.settle(context)?.is_none() {
                        return Ok(false);
                    }
                    continue;
                }
                Step::Phase(phase) => phase,
            };
            self.settled = false;
            let ages = self
                .turnover
                .filter(|asked| Counter::counts(asked, &step.name));
            // Before the first step that ages the database its size has to be known.
            if let Some(asked) = ages.filter(|_| self.counter.is_none()) {
                let Some(start) = self.settle(context)? else {
                    return Ok(false);
                };
                self.counter = Some(Counter::new(asked, data_bytes(&start)));
            }
            let Some(result) = self.phase(context, step)? else {
                return Ok(false);
            };
            if let Some(counter) = self.counter.as_mut().filter(|_| ages.is_some())
                && is_old(counter, &result, emitter)
            {
                break;
            }
        }
        if !self.settled {
            self.settle(context)?;
        }
        emitter.emit(&Event::Measured);
        let sentence = self.workload.verify(engine)?;
        emitter.emit(&Event::Verified { sentence });
        Ok(false)
    }

    fn settle(&mut self, context: &PhaseContext<'_>) -> Result<Option<PhaseResult>> {
        self.settles.settle(context, self.workload.as_ref())
    }

    fn phase(&self, context: &PhaseContext<'_>, phase: Phase) -> Result<Option<PhaseResult>> {
        let own = self.workload.pace(&phase.name);
        let paced = PhaseContext {
            rate: context.rate.or(own),
            ..*context
        };
        run_phase(&paced, phase)
    }
}

fn data_bytes(phase: &PhaseResult) -> u64 {
    phase.size_bytes.map_or(0, |size| size.data)
}

/// Whether the steps that age the database end with this one.
fn is_old(counter: &mut Counter<'_>, step: &PhaseResult, emitter: &Emitter) -> bool {
    match counter.add(step) {
        Next::Step => false,
        Next::Enough => true,
        Next::GiveUp(why) => {
            emitter.emit(&Event::Mark {
                mark: format!("turnover-unmet ({why})"),
            });
            true
        }
    }
}

/// Runs one phase. Its result if the trial goes on.
fn run_phase(context: &PhaseContext<'_>, phase: Phase) -> Result<Option<PhaseResult>> {
    let emitter = context.emitter;
    announce_phase(&phase, emitter);
    let must_be_whole = matches!(phase.end, PhaseEnd::Work);
    let outcome = phase::run(context, phase);
    let result = outcome.result;
    // What follows a load with gaps would only blame the engine for the rows that are missing.
    let failed = result.errors > 0 && (must_be_whole || result.operations == 0);
    emitter.emit(&Event::Phase {
        result: Box::new(result.clone()),
    });
    if let Some(wrong) = outcome.wrong {
        emitter.emit(&Event::Mark {
            mark: format!("wrong-answer ({wrong})"),
        });
        return Ok(None);
    }
    if failed {
        bail!(
            "{} operations of phase {} failed, the first with: {}",
            result.errors,
            result.name,
            result.error_samples.first().cloned().unwrap_or_default()
        );
    }
    Ok(Some(result).filter(|result| !interrupted(context, &result.name)))
}

/// The settles of a trial.
struct Settles {
    done: u32,
    /// How the rows of the workload compress, where it offers a sample.
    ratio: Option<f64>,
}

impl Settles {
    /// Settles once more. The result of that phase if the trial goes on.
    fn settle(
        &mut self,
        context: &PhaseContext<'_>,
        workload: &dyn Workload,
    ) -> Result<Option<PhaseResult>> {
        self.done += 1;
        let name = match self.done {
            1 => "settle".to_string(),
            n => format!("settle#{n}"),
        };
        context.emitter.emit(&Event::PhaseStarted {
            name: name.clone(),
            seconds: None,
            operations: None,
        });
        let at_least = workload.settle_at_least();
        let result = phase::settle(context, name, at_least).context("cannot settle")?;
        let result = PhaseResult {
            stored_bytes: self.stored(workload),
            ..result
        };
        context.emitter.emit(&Event::Phase {
            result: Box::new(result.clone()),
        });
        Ok(Some(result).filter(|result| !interrupted(context, &result.name)))
    }

    /// What the rows come to that the database holds, where the workload counts them and a sample says how they compress.
    fn stored(&self, workload: &dyn Workload) -> Option<StoredBytes> {
        let raw = workload.stored_bytes()?;
        Some(StoredBytes {
            raw,
            compressed: (raw as f64 * self.ratio?).round() as u64,
        })
    }
}

/// Whether the user wants the trial to end, which then is marked.
fn interrupted(context: &PhaseContext<'_>, phase: &str) -> bool {
    let interrupted = context.interrupted.load(Ordering::Relaxed);
    if interrupted {
        context.emitter.emit(&Event::Mark {
            mark: format!("interrupted (in {phase})"),
        });
    }
    interrupted
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

fn announce_phase(phase: &Phase, emitter: &Emitter) {
    let led = phase.background.as_ref().and_then(|clients| clients.leads);
    let (seconds, operations) = match phase.end {
        PhaseEnd::Work => (led, None),
        PhaseEnd::Seconds(seconds) => (Some(seconds), None),
        PhaseEnd::Operations(operations) => (None, Some(operations)),
    };
    emitter.emit(&Event::PhaseStarted {
        name: phase.name.clone(),
        seconds,
        operations,
    });
}
