//! `rumbench report DIR`: the tables of a stored result again.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::Exit;
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

/// Prints the tables.
///
/// # Errors
/// When there is no readable result.
pub fn run(arguments: &ReportArgs) -> Result<Exit> {
    let result = file::load(&arguments.dir)?;
    arguments.print.print(&result)?;
    Ok(Exit::Done)
}
