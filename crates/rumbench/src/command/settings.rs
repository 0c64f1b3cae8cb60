//! `--set [ENGINE.]KEY=VALUE` and `--engine NAME[:VARIANT]`: sorts settings into those of the runner, of the workload and of
//! each engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rumbench_core::engine::{Durability, OpenConfig, Schema};
use rumbench_core::names::unknown;

use crate::catalog::{self, usage};
use crate::run::pacing::{Arrivals, Rate};
use crate::run::plan::EngineChoice;

/// Settings after sorting.
#[derive(Debug)]
pub struct Sorted {
    /// For the workload.
    pub workload: BTreeMap<String, String>,
    /// Every engine's own cache.
    pub cache_bytes: u64,
    /// Rate of paced phases.
    pub rate: Option<Rate>,
    /// Clients that connect.
    pub clients: usize,
}

/// Default of `cache_bytes`.
const CACHE_BYTES: u64 = 1 << 30;

/// Finds the engines. Settings with an engine's name before a dot go to that engine, in all its variants.
///
/// # Errors
/// Usage errors: unknown workload, unknown engine or one that this build lacks, malformed setting, setting of an engine that does not take part.
pub fn sort(
    workload: &str,
    engines: &[String],
    sets: &[String],
) -> Result<(Vec<EngineChoice>, Sorted)> {
    let mut choices = engines
        .iter()
        .map(|name| choose(name))
        .collect::<Result<Vec<_>>>()?;
    let mut common = BTreeMap::new();
    for set in sets {
        let Some((key, value)) = set.split_once('=') else {
            return Err(usage(format!(
                "--set {set}: must be KEY=VALUE or ENGINE.KEY=VALUE"
            )));
        };
        let Some((engine, key)) = key.split_once('.') else {
            common.insert(key.to_string(), value.to_string());
            continue;
        };
        let names: Vec<String> = choices.iter().map(|choice| choice.engine.clone()).collect();
        if !names.iter().any(|name| name == engine) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(usage(format!(
                "--set {set}: {}",
                unknown("engine of this suite", engine, &names)
            )));
        }
        for choice in choices.iter_mut().filter(|choice| choice.engine == engine) {
            choice.settings.insert(key.to_string(), value.to_string());
        }
    }
    catalog::expand(workload, &mut common)?;
    Ok((choices, sort_common(common)?))
}

/// `--options-file NAME[:VARIANT]=FILE`: gives each file to the engine that is named just so.
///
/// # Errors
/// Usage errors: malformed, an engine that does not take part or has a file already, no such file.
pub fn give_files(choices: &mut [EngineChoice], files: &[String]) -> Result<()> {
    for given in files {
        let Some((engine, file)) = given.split_once('=') else {
            return Err(usage(format!(
                "--options-file {given}: must be ENGINE=FILE"
            )));
        };
        let names: Vec<String> = choices.iter().map(EngineChoice::name).collect();
        let Some(choice) = choices.iter_mut().find(|choice| choice.name() == engine) else {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(usage(format!(
                "--options-file {given}: {}",
                unknown("engine of this suite", engine, &names)
            )));
        };
        if !Path::new(file).is_file() {
            return Err(usage(format!("--options-file {given}: no such file")));
        }
        // The trial's process has another working directory.
        let path = std::path::absolute(file)?.display().to_string();
        if choice
            .settings
            .insert(OPTIONS_FILE.to_string(), path)
            .is_some()
        {
            return Err(usage(format!(
                "--options-file {given}: {engine} has a file already"
            )));
        }
    }
    Ok(())
}

/// The setting of an engine that names its options file.
const OPTIONS_FILE: &str = "options_file";

/// Refuses what an engine would refuse when it is opened: an unknown setting of its own, or a value out of range.
///
/// # Errors
/// Usage errors.
pub fn check(choices: &[EngineChoice], sorted: &Sorted, durability: Durability) -> Result<()> {
    for choice in choices {
        let found =
            rumbench_engines::find(&choice.engine).map_err(|error| usage(error.to_string()))?;
        let config = OpenConfig {
            dir: PathBuf::new(),
            // Which tables they are changes no setting.
            schema: Schema::LinkBench,
            variant: choice.variant.clone(),
            cache_bytes: sorted.cache_bytes,
            durability,
            clients: sorted.clients,
            settings: choice.settings.clone(),
        };
        let checked = found.entry.check(&config);
        checked.map_err(|error| usage(error.to_string()))?;
    }
    Ok(())
}

fn choose(name: &str) -> Result<EngineChoice> {
    let found = rumbench_engines::find(name).map_err(|error| usage(error.to_string()))?;
    if !found.entry.is_available() {
        return Err(usage(format!(
            "this build has no {}: {}",
            found.entry.name, found.entry.how_to_get
        )));
    }
    Ok(EngineChoice {
        engine: found.entry.name.to_string(),
        variant: found.variant.map(|variant| variant.name.to_string()),
        settings: BTreeMap::new(),
    })
}

fn sort_common(mut common: BTreeMap<String, String>) -> Result<Sorted> {
    let cache_bytes = take(&mut common, "cache_bytes", CACHE_BYTES, "a number of bytes")?;
    let per_second = take(
        &mut common,
        "rate",
        0.0,
        "a number of operations per second",
    )?;
    if !(0.0..1e9).contains(&per_second) {
        return Err(usage(format!(
            "rate={per_second}: must be from 0 (closed loop) to below 1e9"
        )));
    }
    let arrivals = match common.remove("arrivals") {
        Some(text) => text.parse().map_err(|error| usage(format!("{error}")))?,
        None => Arrivals::Even,
    };
    let clients: usize = match common.get("clients") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|clients| (1..=4096).contains(clients))
            .ok_or_else(|| usage(format!("clients={text}: must be a number from 1 to 4096")))?,
        None => 1,
    };
    Ok(Sorted {
        workload: common,
        cache_bytes,
        rate: (per_second > 0.0).then_some(Rate {
            per_second,
            arrivals,
        }),
        clients,
    })
}

fn take<T: std::str::FromStr>(
    settings: &mut BTreeMap<String, String>,
    key: &str,
    default: T,
    kind: &str,
) -> Result<T> {
    match settings.remove(key) {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| usage(format!("{key}={text}: must be {kind}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    #[test]
    fn settings_go_to_runner_workload_and_the_named_engine() {
        let sets = words(&[
            "nodes=7",
            "null.stall_ms=3",
            "cache_bytes=64",
            "rate=500",
            "arrivals=poisson",
        ]);
        let (choices, sorted) = sort("linkbench", &words(&["null"]), &sets).unwrap();
        assert_eq!(choices[0].settings["stall_ms"], "3");
        assert_eq!(sorted.workload.len(), 1);
        assert_eq!(sorted.cache_bytes, 64);
        assert_eq!(sorted.rate.unwrap().arrivals, Arrivals::Poisson);
    }

    #[test]
    fn an_options_file_goes_to_the_engine_that_is_named_just_so() {
        let engines = words(&["null"]);
        let give = |given: &[&str]| {
            let (mut choices, _) = sort("linkbench", &engines, &[]).unwrap();
            give_files(&mut choices, &words(given)).map(|()| choices)
        };
        let choices = give(&["null=Cargo.toml"]).unwrap();
        assert!(Path::new(&choices[0].settings["options_file"]).is_absolute());
        let refuse = |given: &[&str]| give(given).unwrap_err().to_string();
        assert!(refuse(&["null"]).contains("ENGINE=FILE"));
        assert!(refuse(&["nul=Cargo.toml"]).contains("did you mean `null`?"));
        assert!(refuse(&["null=no-such-file"]).contains("no such file"));
        assert!(refuse(&["null=Cargo.toml", "null=build.rs"]).contains("already"));
    }

    #[test]
    fn malformed_settings_are_refused_with_what_is_allowed() {
        let refuse = |set: &str| {
            sort("linkbench", &words(&["null"]), &words(&[set]))
                .unwrap_err()
                .to_string()
        };
        assert!(refuse("nodes").contains("KEY=VALUE"));
        assert!(refuse("sqlite.x=1").contains("no engine of this suite"));
        assert!(refuse("rate=-1").contains("closed loop"));
        assert!(refuse("clients=0").contains("from 1 to 4096"));
        assert!(refuse("arrivals=odd").contains("even, poisson or burst"));
    }
}
