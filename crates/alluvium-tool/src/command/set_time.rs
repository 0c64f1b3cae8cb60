//! `set-time`: sets back the stored time of a database that has recorded a wrong clock.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use alluvium::internal::Manifest;
use alluvium::vfs::RealVfs;
use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::database::{Exit, check_there};
use crate::output::Output;

#[derive(Args)]
pub struct SetTimeArgs {
    /// The database's directory
    dir: PathBuf,
    /// The time, in milliseconds since 1970; otherwise what the clock shows now
    #[arg(long, value_name = "MS")]
    to: Option<u64>,
}

/// Runs `alluvium set-time`.
pub fn run(arguments: &SetTimeArgs, output: &mut Output) -> anyhow::Result<Exit> {
    let dir = &arguments.dir;
    check_there(dir)?;
    let cannot = || format!("cannot set the time of {}", dir.display());
    let to_ms = match arguments.to {
        Some(to_ms) => to_ms,
        None => {
            let (_, state) = Manifest::read(&RealVfs::new(), dir).with_context(cannot)?;
            clock_ms().min(state.read_clock_ms)
        }
    };
    let stored_ms = alluvium::set_stored_time(dir, to_ms).with_context(cannot)?;
    let document = json!({ "stored_ms": stored_ms, "set_to_ms": to_ms });
    let line = if to_ms < stored_ms {
        format!("the stored time was {stored_ms} ms since 1970, now it is {to_ms} ms\n")
    } else {
        format!("the stored time stays at {stored_ms} ms since 1970\n")
    };
    output.answer(&document, line)?;
    Ok(Exit::Done)
}

/// Returns the wall-clock time in milliseconds since 1970; 0 for earlier times.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
