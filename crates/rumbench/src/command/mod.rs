//! The command line: subcommands and exit codes.
//!
//! Results go to stdout, progress and warnings to stderr, neither in color.

mod compare;
mod doctor;
mod durability;
mod explain;
mod failover;
mod find_rate;
mod import;
mod list;
mod plan;
mod process;
mod quick;
mod report;
mod resume;
mod run;
mod settings;
mod shell;
mod suite;
mod sweep;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::process::{Exit, print};
use crate::catalog::Usage;
use crate::run::progress::say;

#[derive(Parser)]
#[command(
    name = "rumbench",
    version,
    about = "A benchmark laboratory for databases of small data: performance, quality of service and efficiency together.",
    color = clap::ColorChoice::Never,
    after_help = "First steps:\n  rumbench doctor                whether this machine is fit for it\n  rumbench quick                 compare the embedded engines of this build, about two minutes\n  rumbench suite list            several workloads at a time, up to a night long\n  rumbench list engines          what can be measured\n  rumbench explain DIR           what decided a result, in words\n  rumbench explain ops_per_s     what a number means"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Examine this machine: properties that decide or spoil a measurement, and advice
    Doctor(doctor::DoctorArgs),
    /// Run a workload on one or more engines and print tables
    Run(run::RunArgs),
    /// Show what `run` with these flags would do: trials in order, settings with their sources,
    /// space and time
    Plan(run::RunArgs),
    /// Run a small LinkBench on every embedded engine of this build, about two minutes
    Quick(quick::QuickArgs),
    /// Run several workloads one after another, from a file or a suite of this build
    Suite(suite::SuiteArgs),
    /// Find the highest rate that keeps response times under a limit, and response times at 70 % of
    /// it
    FindRate(find_rate::FindRateArgs),
    /// Import results of db_bench, sysbench or the Insert Benchmark as trials to compare with ours
    Import(import::ImportArgs),
    /// Continue a killed or interrupted suite: completed trials are kept, the interrupted one is
    /// repeated
    Resume(resume::ResumeArgs),
    /// Print the tables of a stored result again and write DIR/report.html
    Report(report::ReportArgs),
    /// Compare two results, number by number; exit code 3 if a --fail-if holds
    Compare(compare::CompareArgs),
    /// List engines, workloads, phases, metrics or stored results
    List(list::ListArgs),
    /// List stored results, newest first
    Results(list::ResultsArgs),
    /// Explain in words the causes of a result; or a metric or a phase; or print the file of a
    /// preset
    Explain(explain::ExplainArgs),
    /// Kill a writing process again and again and check that its commits survive
    Durability(durability::DurabilityArgs),
    /// Cut off the primary of two servers again and again, promote the replica, and look for every
    /// commit that was acknowledged or seen
    Failover(failover::FailoverArgs),
    /// Print completions for a shell: source <(rumbench completions bash)
    Completions(shell::CompletionsArgs),
    /// Write man pages into a folder, or print the first one
    Man(shell::ManArgs),
    /// Process of one trial
    #[command(hide = true)]
    TrialChild,
    /// Check that this build can run a trial for another one
    #[command(hide = true)]
    TrialCheck,
    /// Process that durability tests kill
    #[command(hide = true)]
    DurabilityChild,
}

/// Parses the command line, runs the command, and prints an error if it fails.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers on stdout; everything else is bad usage on stderr.
            return code(if error.use_stderr() {
                let _ = error.print();
                Exit::Usage
            } else {
                concluded(print(&error.to_string()).map(|()| Exit::Done))
            });
        }
    };
    code(concluded(dispatch(cli.command)))
}

/// Returns the exit code of a command, and prints its error.
fn concluded(result: anyhow::Result<Exit>) -> Exit {
    result.unwrap_or_else(|error| {
        say(&format!("rumbench: {error:#}"));
        if error.is::<Usage>() {
            Exit::Usage
        } else {
            Exit::Failed
        }
    })
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

fn dispatch(command: Option<Command>) -> anyhow::Result<Exit> {
    match command {
        None => {
            print(&Cli::command().render_long_help().to_string())?;
            Ok(Exit::Done)
        }
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Run(arguments)) => run::run(&arguments),
        Some(Command::Plan(arguments)) => plan::run(&arguments),
        Some(Command::Quick(arguments)) => quick::run(&arguments),
        Some(Command::Suite(arguments)) => suite::run(&arguments),
        Some(Command::FindRate(arguments)) => find_rate::run(&arguments),
        Some(Command::Import(arguments)) => import::run(&arguments),
        Some(Command::Resume(arguments)) => resume::run(&arguments),
        Some(Command::Report(arguments)) => report::run(&arguments),
        Some(Command::Compare(arguments)) => compare::run(&arguments),
        Some(Command::List(arguments)) => list::list(&arguments),
        Some(Command::Results(arguments)) => list::results(&arguments),
        Some(Command::Explain(arguments)) => explain::run(&arguments),
        Some(Command::Durability(arguments)) => durability::run(&arguments),
        Some(Command::Failover(arguments)) => failover::run(&arguments),
        Some(Command::Completions(arguments)) => shell::completions(&arguments, Cli::command()),
        Some(Command::Man(arguments)) => shell::man(&arguments, Cli::command()),
        Some(Command::TrialChild) => crate::run::trial::child_main().map(|()| Exit::Done),
        Some(Command::TrialCheck) => {
            print(&format!("{}\n", crate::run::host::answer()?))?;
            Ok(Exit::Done)
        }
        Some(Command::DurabilityChild) => {
            crate::durability::child::child_main().map(|()| Exit::Done)
        }
    }
}
