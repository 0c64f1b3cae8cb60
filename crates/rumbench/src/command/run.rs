//! `rumbench run`: turns flags into a suite, and its result into tables and an exit code.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use rumbench_core::engine::Durability;
use rumbench_core::names::unknown;
use rumbench_core::units;
use time::OffsetDateTime;

use super::process::{Exit, command_line, print};
use super::settings;
use super::sweep::{self, Asked};
use crate::catalog::{self, usage};
use crate::report::table::Format;
use crate::report::{ReportOptions, csv, find_rate, html, marks, render};
use crate::run::host;
use crate::run::interrupt::Interrupts;
use crate::run::placement::Placement;
use crate::run::plan::{EngineChoice, Point, STUCK_AFTER_S, Suite};
use crate::run::progress::say;
use crate::run::protocol::TrialSpec;
use crate::run::storage::Storage;
use crate::run::suite;
use crate::store::result::SuiteResult;
use crate::store::{file, history};

/// Durability classes on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum DurabilityArg {
    /// Each commit handed to the kernel, synced about once a second
    Buffered,
    /// Each commit synced
    Sync,
    /// No promise
    None,
}

impl From<DurabilityArg> for Durability {
    fn from(argument: DurabilityArg) -> Durability {
        match argument {
            DurabilityArg::Buffered => Durability::Buffered,
            DurabilityArg::Sync => Durability::Sync,
            DurabilityArg::None => Durability::None,
        }
    }
}

/// Output options, shared by all commands that print tables.
#[derive(Debug, Clone, Default, Args)]
pub struct PrintArgs {
    /// Print the result as JSON instead of tables
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Print every number of every phase as a line of CSV instead of tables
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub csv: bool,
    /// Base of the ratios [default: the first engine]
    #[arg(long, value_name = "NAME[:VARIANT]")]
    pub base: Option<String>,
    /// Put engines with different durability into one table; each row names its own
    #[arg(long)]
    pub mix_durability: bool,
    /// Print all tables of each point or step of a sweep, not only the tables over all of them
    #[arg(long)]
    pub all_tables: bool,
    /// Terabytes that the device is rated for, from which the report computes its lifetime in years
    /// [default: 600]
    #[arg(long, value_name = "TB", value_parser = endurance)]
    pub endurance: Option<f64>,
}

/// Parses a positive number of terabytes.
fn endurance(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok();
    parsed
        .filter(|tb| (1e-3..=1e9).contains(tb))
        .ok_or_else(|| "must be a number of terabytes from 0.001".to_string())
}

impl PrintArgs {
    /// Returns the report options that these flags select.
    pub fn options(&self) -> ReportOptions {
        ReportOptions {
            base: self.base.clone(),
            format: if self.markdown {
                Format::Markdown
            } else {
                Format::Text
            },
            mix_durability: self.mix_durability,
            all_tables: self.all_tables,
            endurance_tb: self.endurance,
        }
    }

    /// Prints a result on stdout, and writes `report.html` into its folder.
    ///
    /// # Errors
    /// A usage error if the base engine is not in the result. If stdout or the page cannot be
    /// written, the other one is. A folder that the user may not write to is a warning.
    pub fn show(&self, dir: Option<&Path>, result: &SuiteResult) -> Result<()> {
        if let Some(base) = &self.base {
            let names: Vec<String> = result.trials.iter().map(|trial| trial.name()).collect();
            check_base(base, &names)?;
        }
        let printed = self.print(result);
        let written = dir.map_or(Ok(()), |dir| self.write_page(dir, result));
        printed.and(written)
    }

    fn write_page(&self, dir: &Path, result: &SuiteResult) -> Result<()> {
        let is_refused = |error: &anyhow::Error| {
            let kind = error
                .downcast_ref::<std::io::Error>()
                .map(|error| error.kind());
            matches!(
                kind,
                Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
            )
        };
        match html::write(dir, result, &self.options()) {
            Ok(path) => say(&format!("report: {}", path.display())),
            Err(error) if is_refused(&error) => say(&format!("warning: {error:#}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn print(&self, result: &SuiteResult) -> Result<()> {
        if self.json {
            print(&serde_json::to_string_pretty(result)?)?;
            print("\n")?;
        } else if self.csv {
            print(&csv::render(result)?)?;
        } else {
            print(&render(result, &self.options()))?;
        }
        Ok(())
    }
}

/// Checks that the base is one of the engines.
///
/// # Errors
/// A usage error with the nearest name.
pub fn check_base(base: &str, engines: &[String]) -> Result<()> {
    if engines.iter().any(|name| name == base) {
        return Ok(());
    }
    let known: Vec<&str> = engines.iter().map(String::as_str).collect();
    Err(usage(format!(
        "--base: {}",
        unknown("engine of this suite", base, &known)
    )))
}

/// Memory of a trial in addition to the engine's cache: memtables, buffers, the client's rows and
/// histograms.
const MEMORY_BESIDE_CACHE: u64 = 64 << 20;

/// Flags of `rumbench run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Workload, see `rumbench list workloads`, or the file of a custom one
    workload: String,
    /// Engine, see `rumbench list engines`; repeat it to compare
    #[arg(long = "engine", value_name = "NAME[:VARIANT][@HOST]", required = true)]
    engines: Vec<String>,
    /// Setting of the workload or of one engine
    #[arg(long = "set", value_name = "[ENGINE.]KEY=VALUE")]
    sets: Vec<String>,
    /// Run everything at several values of one setting (KEY=A..B, A..B+S and A..B*F are ranges).
    /// With turnover=M, age each database in equal steps until M times its size was written
    #[arg(long, value_name = "[ENGINE.]KEY=V1,V2,...")]
    sweep: Option<String>,
    /// Repetitions, interleaved among the engines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Seed of the first repetition
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Failures that an acknowledged commit survives
    #[arg(long, value_enum, default_value = "buffered")]
    durability: DurabilityArg,
    /// Limit the memory of a whole trial, page cache included and the laboratory's own memory
    /// excluded, with a control group of the kernel
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<u64>,
    /// Cores for client and engine threads
    #[arg(long, value_enum, default_value = "free")]
    placement: Placement,
    /// Emulate a slower device with kernel limits on the operations of a trial
    #[arg(long, value_enum)]
    storage: Option<Storage>,
    /// First phase that --storage limits, such as request: phases before it use the device without
    /// limits
    #[arg(long, value_name = "PHASE", requires = "storage")]
    storage_from: Option<String>,
    /// Run the trials of --engine ENGINE@NAME with another build of rumbench; without NAME, all
    /// trials of engines without @NAME
    #[arg(long = "host", value_name = "[NAME=]BINARY")]
    hosts: Vec<String>,
    /// Sample the functions that use CPU time, with a flame graph for each phase in DIR/profile,
    /// and read the processor's counters
    #[arg(long)]
    profile: bool,
    /// End a trial if no request completes for this long: its engine or server is stuck
    #[arg(long, value_name = "TIME", default_value_t = STUCK_AFTER_S, value_parser = units::whole_seconds)]
    stuck_after: u64,
    /// An options file of the engine that replaces its configuration here: RocksDB, MariaDB,
    /// PostgreSQL
    #[arg(long = "options-file", value_name = "ENGINE=FILE")]
    options_files: Vec<String>,
    /// Result folder [default: rumbench-out/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the data directories of the trials in DIR/data
    #[arg(long)]
    keep_data: bool,
    /// Do not add the result to the results store
    #[arg(long)]
    no_store: bool,
    /// Output options.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// Runs a suite.
///
/// # Errors
/// Usage errors, and every failure that prevents a result.
pub fn run(arguments: &RunArgs) -> Result<Exit> {
    run_suite(&suite(arguments)?, &arguments.print)
}

/// Builds the suite from the flags and checks it, see [`check`].
///
/// # Errors
/// Usage errors.
pub fn suite(arguments: &RunArgs) -> Result<Suite> {
    let (workload, definition) = named(&arguments.workload)?;
    let mut sets = arguments.sets.clone();
    sets.extend(definition.map(|text| format!("{}={text}", catalog::DEFINITION)));
    let hosts = settings::hosts(&arguments.hosts)?;
    let common = sweep::Common {
        hosts: &hosts,
        workload: &workload,
        engines: &arguments.engines,
        sets: &sets,
        files: &arguments.options_files,
        durability: arguments.durability.into(),
        memory: arguments.memory,
    };
    let (points, varied, turnover) =
        match arguments.sweep.as_deref().map(sweep::parse).transpose()? {
            Some(Asked::Turnover(multiple)) => {
                let (points, turnover) = sweep::aging(common, multiple)?;
                (points, None, Some(turnover))
            }
            Some(Asked::Values(varied)) => {
                (sweep::points(common, Some(&varied))?, Some(varied), None)
            }
            None => (sweep::points(common, None)?, None, None),
        };
    let mut suite = Suite {
        workload,
        points,
        varied,
        turnover,
        search: None,
        base: arguments.print.base.clone(),
        repeat: arguments.repeat,
        seed: arguments.seed,
        durability: arguments.durability.into(),
        storage: arguments.storage,
        storage_from: arguments.storage_from.clone(),
        placement: arguments.placement,
        profile: arguments.profile,
        stuck_after_s: arguments.stuck_after,
        out: arguments.out.clone().unwrap_or_else(default_out),
        keep_data: arguments.keep_data,
        mix_durability: arguments.print.mix_durability,
        no_store: arguments.no_store,
        command: command_line(),
    };
    check(&mut suite)?;
    Ok(suite)
}

/// Checks a suite before its first trial: the other builds, the base, placement, servers and
/// memory. The settings of the workload are checked by [`check_settings`].
///
/// # Errors
/// Usage errors.
pub fn check(suite: &mut Suite) -> Result<()> {
    ask_hosts(suite)?;
    if let Some(base) = &suite.base {
        let names: Vec<String> = suite.engines().iter().map(EngineChoice::name).collect();
        check_base(base, &names)?;
    }
    check_placement(suite)?;
    check_external(suite)?;
    suite.points.iter().try_for_each(check_memory)
}

/// Returns the name of a workload; for a custom one, the name of its file and the file's text.
///
/// # Errors
/// A usage error if the file cannot be read or is invalid.
pub fn named(workload: &str) -> Result<(String, Option<String>)> {
    let path = Path::new(workload);
    let is_file = path.extension().is_some_and(|of| of == "toml") || path.components().count() > 1;
    if !is_file {
        return Ok((workload.to_string(), None));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| usage(format!("cannot read the workload {workload}: {error}")))?;
    catalog::check_definition(workload, &text)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok((name.to_string_lossy().into_owned(), Some(text)))
}

/// Asks each other build if it can run its trials at every point, before anything runs.
///
/// # Errors
/// As [`host::ask`].
pub fn ask_hosts(suite: &mut Suite) -> Result<()> {
    for point in &mut suite.points {
        let at = point.clone();
        for choice in &mut point.engines {
            let engine = choice.clone();
            let Some(host) = &mut choice.host else {
                continue;
            };
            let spec = TrialSpec {
                engine: engine.engine,
                variant: engine.variant,
                workload: suite.workload.clone(),
                settings: at.settings.clone(),
                engine_settings: engine.settings,
                seed: suite.seed,
                durability: suite.durability,
                clients: at.clients,
                cache_bytes: at.cache_bytes,
                rate: at.rate,
                turnover: suite.turnover.clone(),
                placement: suite.placement,
                profile: suite.profile,
                stuck_after_s: Some(suite.stuck_after_s),
                directory: PathBuf::new(),
            };
            host::ask(host, &spec)?;
        }
    }
    Ok(())
}

/// Checks that the workload accepts its settings at every point.
///
/// # Errors
/// Usage errors.
pub fn check_settings(suite: &Suite) -> Result<()> {
    let mut points = suite.points.iter();
    points.try_for_each(|point| {
        catalog::workload(&suite.workload, &point.settings, suite.seed).map(drop)
    })
}

/// Runs a suite, stores the result and prints it. Shared with `quick`.
///
/// # Errors
/// As [`run`].
pub fn run_suite(suite: &Suite, print: &PrintArgs) -> Result<Exit> {
    // Checked before anything is created.
    check_settings(suite)?;
    let interrupts = Interrupts::watch()?;
    let result = suite::run(suite, &interrupts)?;
    conclude(suite, &result, print, suite.no_store)
}

/// Stores and prints a result, and writes its page. Shared with `resume`.
///
/// # Errors
/// A usage error if the base engine is not in the result.
pub fn conclude(
    suite: &Suite,
    result: &SuiteResult,
    print: &PrintArgs,
    no_store: bool,
) -> Result<Exit> {
    if !no_store {
        store(suite, result);
    }
    let shown = print.show(Some(&suite.out), result);
    if result.interrupted {
        say(&format!(
            "interrupted; rumbench resume {} continues it",
            suite.out.display()
        ));
    }
    say(&format!(
        "results: {}",
        file::result_path(&suite.out).display()
    ));
    let exit = if result.interrupted {
        Exit::Interrupted
    } else if result.trials.iter().any(marks::failed) {
        Exit::Failed
    } else if find_rate::none_holds(result) {
        Exit::Threshold
    } else {
        Exit::Done
    };
    // A failed trial, a missed limit or an interruption decides the exit code, also if the output
    // could not be written.
    match shown {
        Err(error) if exit != Exit::Done => say(&format!("rumbench: {error:#}")),
        shown => shown?,
    }
    Ok(exit)
}

/// Adds the result to the store. A failure is only a warning: the result itself is already saved.
fn store(suite: &Suite, result: &SuiteResult) {
    let stored = match history::default_path() {
        Some(path) => history::add(&path, &suite.out, result),
        None => Ok(()),
    };
    if let Err(error) = stored {
        say(&format!(
            "warning: not added to the results store: {error:#}"
        ));
    }
}

/// Returns `rumbench-out/` plus the current UTC date and time.
pub fn default_out() -> PathBuf {
    let now = OffsetDateTime::now_utc();
    let name = format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    );
    PathBuf::from("rumbench-out").join(name)
}

/// Rejects `--placement` with servers and builds that this build does not start itself.
fn check_placement(suite: &Suite) -> Result<()> {
    if suite.placement.cores()?.is_none() {
        return Ok(());
    }
    let foreign =
        |choice: &&EngineChoice| choice.host.is_some() || choice.settings.contains_key("address");
    let mut engines = suite.points.iter().flat_map(|point| &point.engines);
    match engines.find(foreign) {
        Some(choice) => Err(usage(format!(
            "--placement is neither for a server that runs already nor for another build, as {} is; leave one of them out",
            choice.name()
        ))),
        None => Ok(()),
    }
}

/// Rejects limits on a trial with an external server, which runs outside the trial.
fn check_external(suite: &Suite) -> Result<()> {
    let mut engines = suite.points.iter().flat_map(|point| &point.engines);
    let external = |choice: &&EngineChoice| choice.settings.contains_key("address");
    let bounds_memory = suite.points.iter().any(|point| point.memory.is_some());
    let bound = match (bounds_memory, suite.storage) {
        (true, _) => Some("--memory"),
        (false, storage) => storage.map(|_| "--storage"),
    };
    match (bound, engines.find(external)) {
        (Some(bound), Some(choice)) => Err(usage(format!(
            "{bound} cannot bound {}, which is a server that runs already; leave one of them out",
            choice.name()
        ))),
        _ => Ok(()),
    }
}

/// Rejects a cache that does not fit into the memory limit; it would end every trial midway.
fn check_memory(point: &Point) -> Result<()> {
    let (cache, needed) = (point.cache_bytes, MEMORY_BESIDE_CACHE);
    let Some(memory) = point
        .memory
        .filter(|memory| *memory < cache.saturating_add(needed))
    else {
        return Ok(());
    };
    let instead = if memory > needed {
        format!(
            "--set cache_bytes={} would do, or a larger --memory",
            memory - needed
        )
    } else {
        "a larger --memory is needed".to_string()
    };
    Err(usage(format!(
        "--memory {memory} is too little for cache_bytes={cache} and {} MiB for everything else; {instead}",
        needed >> 20
    )))
}
