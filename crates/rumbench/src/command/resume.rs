//! `rumbench resume DIR`: continues a killed or interrupted suite at its first incomplete trial.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::process::Exit;
use super::run::{PrintArgs, ask_hosts, conclude};
use crate::catalog::usage;
use crate::run::interrupt::Interrupts;
use crate::run::plan::{EngineChoice, Suite};
use crate::run::progress::say;
use crate::run::specification::{self, Specification};
use crate::run::suite;
use crate::run::{remainder, schedule};
use crate::store::file;
use crate::store::result::SuiteResult;

/// Flags of `rumbench resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Result folder of the suite
    dir: PathBuf,
    /// Do not add the result to the results store
    #[arg(long)]
    no_store: bool,
    #[command(flatten)]
    print: PrintArgs,
}

/// Continues a suite. If all its trials have ended, only stores and prints the result and writes
/// its page.
///
/// # Errors
/// A usage error if the folder holds no suite, if the suite is still running, or if another build,
/// another machine or other files began it; also every failure that prevents a result.
pub fn run(arguments: &ResumeArgs) -> Result<Exit> {
    resume(&arguments.dir, arguments.no_store, &arguments.print)
}

/// Returns the result of the folder, or `None` if not all its trials have ended.
///
/// # Errors
/// As [`run`] for a folder that holds no suite.
pub fn ended(dir: &Path) -> Result<Option<SuiteResult>> {
    let suite = Specification::load(dir)?.suite;
    let Some(result) = file::load_if_there(dir)? else {
        return Ok(None);
    };
    let kept = remainder::kept(&suite, &result)?;
    let over = !result.interrupted && kept.len() == schedule::expected(&suite, &kept);
    Ok(over.then_some(result))
}

/// Continues the suite in `dir`, as [`run`].
///
/// # Errors
/// As [`run`].
pub fn resume(dir: &Path, no_store: bool, print: &PrintArgs) -> Result<Exit> {
    let specification = Specification::load(dir)?;
    specification.check()?;
    let suite = &specification.suite;
    check_hosts(suite)?;
    let claim = specification::claim(dir)?;
    let result = file::load_if_there(dir)?;
    let kept = result.as_ref().map(|found| remainder::kept(suite, found));
    let kept = kept.transpose()?.unwrap_or_default();
    remainder::remove_leftovers(suite, &kept)?;
    let all = schedule::expected(suite, &kept);
    say(&match all - kept.len() {
        0 => format!("all {all} trials have ended; concluding"),
        left => format!("{} of {all} trials have ended, {left} to run", kept.len()),
    });
    let interrupts = Interrupts::watch()?;
    let result = suite::resume(suite, &interrupts, result, kept)?;
    drop(claim);
    let print = PrintArgs {
        base: print.base.clone().or_else(|| suite.base.clone()),
        mix_durability: print.mix_durability || suite.mix_durability,
        ..print.clone()
    };
    conclude(suite, &result, &print, no_store || suite.no_store)
}

/// Checks that the hosts have not changed since the suite began.
fn check_hosts(suite: &Suite) -> Result<()> {
    let mut now = suite.clone();
    ask_hosts(&mut now)?;
    let hosts = |suite: &Suite| -> Vec<EngineChoice> {
        let choices = suite.engines().iter();
        choices
            .filter(|choice| choice.host.is_some())
            .cloned()
            .collect()
    };
    for (then, now) in hosts(suite).iter().zip(hosts(&now)) {
        if let Some((then, now)) = then
            .host
            .as_ref()
            .zip(now.host)
            .filter(|(then, now)| *then != now)
        {
            return Err(usage(format!(
                "cannot continue {}: the host {} was commit {} ({}), is commit {} ({}): trials before and after would not compare",
                suite.out.display(),
                then.path,
                then.commit,
                then.compiler_flags,
                now.commit,
                now.compiler_flags
            )));
        }
    }
    Ok(())
}
