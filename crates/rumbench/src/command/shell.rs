//! `rumbench completions` and `rumbench man`: shell completions and man pages from the definitions
//! of `--help`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use super::process::{Exit, print};
use crate::run::progress::say;

/// Flags of `rumbench completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Flags of `rumbench man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder that receives the pages, such as ~/.local/share/man/man1; without it the first page
    /// is printed
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the completion script of a shell for the whole command line.
///
/// # Errors
/// None.
pub fn completions(arguments: &CompletionsArgs, mut command: Command) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "rumbench", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// Writes a page for rumbench and a page for each command.
///
/// # Errors
/// Fails if the folder cannot be written.
pub fn man(arguments: &ManArgs, command: Command) -> Result<Exit> {
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        print(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write pages into {}", dir.display()))?;
    say(&format!("pages are in {}", dir.display()));
    Ok(Exit::Done)
}
