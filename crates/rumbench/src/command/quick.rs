//! `rumbench quick`: a small LinkBench on every embedded engine of this build, sized for about two
//! minutes on two cores.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::process::{Exit, command_line};
use super::run::{PrintArgs, default_out, run_suite};
use crate::catalog::usage;
use crate::run::plan::{EngineChoice, Point, Suite};
use crate::run::progress::say;

/// Candidates in the order of the tables; engines missing from the build are left out.
const ENGINES: &[&str] = &["alluvium", "fjall", "lmdb", "sqlite", "rocksdb"];

/// The out-degrees of 2011 give 1.2 million links, a million of them in the longest list. Those of
/// 2017 would give four times as many and a load of minutes on the slowest engine.
const SETTINGS: &[(&str, &str)] = &[
    ("nodes", "50000"),
    ("numbers", "2011"),
    ("clients", "2"),
    ("warmup_seconds", "3"),
    ("seconds", "15"),
];

const CACHE_BYTES: u64 = 256 << 20;

/// Flags of `rumbench quick`.
#[derive(Debug, Args)]
pub struct QuickArgs {
    /// Result folder [default: rumbench-out/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not add the result to the results store
    #[arg(long)]
    no_store: bool,
    #[command(flatten)]
    print: PrintArgs,
}

/// Runs the quick suite.
///
/// # Errors
/// As `rumbench run`.
pub fn run(arguments: &QuickArgs) -> Result<Exit> {
    let engines: Vec<EngineChoice> = ENGINES
        .iter()
        .filter(|name| rumbench_engines::find(name).is_ok_and(|found| found.entry.is_available()))
        .map(|name| EngineChoice {
            engine: (*name).to_string(),
            variant: None,
            host: None,
            settings: BTreeMap::new(),
        })
        .collect();
    if engines.is_empty() {
        return Err(usage(
            "this build has none of the quick engines; see `rumbench list engines`",
        ));
    }
    let pairs = SETTINGS
        .iter()
        .map(|(key, value)| ((*key).to_string(), (*value).to_string()));
    let settings: BTreeMap<String, String> = pairs.collect();
    let equivalent = equivalent(&engines);
    say(&format!("about two minutes; the same as\n  {equivalent}"));
    let point = Point {
        label: None,
        settings,
        engines,
        clients: 2,
        cache_bytes: CACHE_BYTES,
        rate: None,
        memory: None,
    };
    let suite = Suite {
        base: arguments.print.base.clone(),
        out: arguments.out.clone().unwrap_or_else(default_out),
        mix_durability: true,
        no_store: arguments.no_store,
        command: command_line(),
        ..Suite::plain("linkbench", vec![point])
    };
    // The engines' durability differs in detail; a first overview needs them in one table, with
    // each row naming its own.
    let print = PrintArgs {
        mix_durability: true,
        ..arguments.print.clone()
    };
    let exit = run_suite(&suite, &print)?;
    if rumbench_engines::find("rocksdb").is_ok_and(|found| !found.entry.is_available()) {
        say("also with RocksDB: make bench-rocksdb");
    }
    Ok(exit)
}

fn equivalent(engines: &[EngineChoice]) -> String {
    let mut line = "rumbench run linkbench".to_string();
    for choice in engines {
        line += &format!(" --engine {}", choice.name());
    }
    for (key, value) in SETTINGS {
        line += &format!(" --set {key}={value}");
    }
    line + &format!(" --set cache_bytes={CACHE_BYTES} --mix-durability")
}
