//! `rumbench report DIR`: prints the tables of a stored result again and writes `DIR/report.html`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::process::Exit;
use super::run::PrintArgs;
use crate::store::file;

/// Flags of `rumbench report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Result folder
    dir: PathBuf,
    #[command(flatten)]
    print: PrintArgs,
}

/// Prints the tables and writes the page.
///
/// # Errors
/// Fails if there is no readable result.
pub fn run(arguments: &ReportArgs) -> Result<Exit> {
    let result = file::load(&arguments.dir)?;
    // `dir` may be a result file instead of its folder.
    let folder = if arguments.dir.is_dir() {
        Some(arguments.dir.as_path())
    } else {
        arguments.dir.parent()
    };
    arguments.print.show(folder, &result)?;
    Ok(Exit::Done)
}
