//! Command line: the commands, their arguments and exit codes.
//!
//! Answers go to stdout, advice to stderr, neither in color. Commands that only read open the
//! database read-only or read its files under the shared lock, and write nothing.

mod backup;
mod change;
mod changes;
mod dump;
mod form;
mod inspect;
mod read;
mod repair;
mod set_time;
mod stats;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use form::Form;

use crate::database::{Exit, advice, exit_of};
use crate::output::{Output, ReaderGone, advise};

const AFTER_HELP: &str = "\
First steps:
  alluvium inspect DIR             keyspaces, levels, files
  alluvium scan DIR users          the rows of a keyspace
  alluvium verify DIR              reads and checks every file

Exit codes:
  0 done    1 something is wrong with the data    2 wrong usage
  3 cannot open (in use, missing, newer format)    4 get: no such row";

#[derive(Parser)]
#[command(
    name = "alluvium",
    version,
    about = "Looks into an Alluvium database, checks it, copies it and repairs it.",
    color = clap::ColorChoice::Never,
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show keyspaces with their options and levels, files, log and format versions
    Inspect(inspect::InspectArgs),
    /// Print the value of a key
    Get(read::GetArgs),
    /// Print the rows of a keyspace, or of a range of it
    Scan(read::ScanArgs),
    /// Print what a file says: every row of a table, record of the log, edit of the manifest
    #[command(subcommand)]
    Dump(dump::DumpCommand),
    /// Print commits in order, as far back as the log is kept
    Changes(changes::ChangesArgs),
    /// Read and check every file
    Verify(verify::VerifyArgs),
    /// Show sizes and amplification of each keyspace
    Stats(stats::StatsArgs),
    /// Estimate rows and bytes of a range without reading it
    Estimate(stats::EstimateArgs),
    /// Merge everything into the last level (writes)
    Compact(change::CompactArgs),
    /// Make a second database of links (flushes first)
    Checkpoint(change::CheckpointArgs),
    /// Numbered, incremental backups in a directory of their own
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Save what can be read of a damaged database as a new one
    Repair(repair::RepairArgs),
    /// Set back the stored time of a database that has recorded a wrong clock (writes)
    SetTime(set_time::SetTimeArgs),
    /// Load rows from stdin, KEY<TAB>VALUE on each line (writes)
    Load(change::LoadArgs),
}

/// Parses the command line, runs the command and reports errors.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers on stdout; everything else is bad usage on stderr.
            let _ = error.print();
            return code(if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            });
        }
    };
    let mut output = Output::new(cli.form.json);
    let done = dispatch(cli.command, cli.form, &mut output).and_then(|exit| {
        output.flush()?;
        Ok(exit)
    });
    match done {
        Ok(exit) => code(exit),
        Err(error) if error.is::<ReaderGone>() => code(Exit::Done),
        Err(error) => {
            let exit = exit_of(&error);
            output.failure(&crate::text::with_causes(&error), exit as u8);
            if let Some(advice) = advice(&error) {
                advise(&format!("alluvium: {advice}"));
            }
            code(exit)
        }
    }
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

fn dispatch(command: Command, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    match command {
        Command::Inspect(arguments) => inspect::run(&arguments, form, output),
        Command::Get(arguments) => read::get(&arguments, form, output),
        Command::Scan(arguments) => read::scan(&arguments, form, output),
        Command::Dump(command) => dump::run(&command, form, output),
        Command::Changes(arguments) => changes::run(&arguments, form, output),
        Command::Verify(arguments) => verify::run(&arguments, form, output),
        Command::Stats(arguments) => stats::stats(&arguments, output),
        Command::Estimate(arguments) => stats::estimate(&arguments, form, output),
        Command::Compact(arguments) => change::compact(&arguments, output),
        Command::Checkpoint(arguments) => change::checkpoint(&arguments, output),
        Command::Backup(command) => backup::run(&command, output),
        Command::Repair(arguments) => repair::run(&arguments, form, output),
        Command::SetTime(arguments) => set_time::run(&arguments, output),
        Command::Load(arguments) => change::load(&arguments, form, output),
    }
}
