//! `--set [ENGINE.]KEY=VALUE` and `--engine NAME[:VARIANT]`: sorts settings into those of the
//! runner, of the workload and of each engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rumbench_core::engine::{Durability, OpenConfig, Schema};
use rumbench_core::kv_sequence;
use rumbench_core::names::unknown;
use rumbench_core::units;

use crate::catalog::{self, usage};
use crate::run::pacing::{Arrivals, Rate};
use crate::run::plan::EngineChoice;
use crate::store::result::{Host, engine_name};

/// Settings after sorting.
#[derive(Debug)]
pub struct Sorted {
    /// Settings of the workload.
    pub workload: BTreeMap<String, String>,
    /// Cache of each engine, in bytes.
    pub cache_bytes: u64,
    /// Rate of paced phases; `None` for a closed loop.
    pub rate: Option<Rate>,
    /// Number of clients that connect.
    pub clients: usize,
}

/// Default of `cache_bytes`.
const CACHE_BYTES: u64 = 1 << 30;

/// Finds the engines and sorts the settings. Settings with an engine's name before a dot go to that
/// engine, in all its variants.
///
/// # Errors
/// Usage errors: an unknown workload, an engine unknown or not in this build, a malformed setting,
/// a setting of an engine that does not take part.
pub fn sort(
    workload: &str,
    engines: &[String],
    hosts: &[Host],
    sets: &[String],
) -> Result<(Vec<EngineChoice>, Sorted)> {
    let mut choices = engines
        .iter()
        .map(|name| choose(name, hosts))
        .collect::<Result<Vec<_>>>()?;
    for (i, choice) in choices.iter().enumerate() {
        if choices[..i]
            .iter()
            .any(|other| other.name() == choice.name())
        {
            return Err(usage(format!("--engine {} is given twice", choice.name())));
        }
    }
    let uses = |host: &Host| {
        let mut own = choices.iter().filter_map(|choice| choice.host.as_ref());
        own.any(|own| own.name == host.name)
    };
    if let Some(host) = hosts.iter().find(|host| !uses(host)) {
        let name = &host.name;
        return Err(usage(format!(
            "--host {name}={}: no engine runs in it; --engine ENGINE@{name} does",
            host.path
        )));
    }
    let mut common = BTreeMap::new();
    for set in sets {
        let Some((key, value)) = set.split_once('=') else {
            return Err(usage(format!(
                "--set {set}: must be KEY=VALUE or ENGINE.KEY=VALUE"
            )));
        };
        let value = units::plain(key, value);
        let Some((engine, key)) = key.split_once('.') else {
            common.insert(key.to_string(), value);
            continue;
        };
        let names: Vec<String> = choices.iter().flat_map(named).collect();
        if !names.iter().any(|name| name == engine) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(usage(format!(
                "--set {set}: {}",
                unknown("engine of this suite", engine, &names)
            )));
        }
        let meant = |choice: &&mut EngineChoice| named(choice).contains(&engine.to_string());
        for choice in choices.iter_mut().filter(meant) {
            choice.settings.insert(key.to_string(), value.clone());
        }
    }
    catalog::expand(workload, &mut common)?;
    if let Some(style) = common.remove(catalog::COMPACTION) {
        give_compaction(&mut choices, &style)?;
    }
    Ok((choices, sort_common(common)?))
}

/// Sets `compaction` for every engine that has a choice; a value set for one engine alone stays.
fn give_compaction(choices: &mut [EngineChoice], style: &str) -> Result<()> {
    let refused = |why: &str| usage(format!("compaction={style}: {why}"));
    let with_choice = |choice: &&mut EngineChoice| {
        let mut entries = rumbench_engines::engines().iter();
        entries.any(|entry| entry.name == choice.engine && entry.has_compaction_styles)
    };
    let mut given = false;
    for choice in choices.iter_mut().filter(with_choice) {
        if choice.variant.is_some() {
            return Err(refused(&format!(
                "{} names a configuration already; give the plain engine, or set {}.compaction",
                choice.name(),
                choice.engine
            )));
        }
        let own = choice.settings.entry(catalog::COMPACTION.to_string());
        own.or_insert_with(|| style.to_string());
        given = true;
    }
    if given {
        Ok(())
    } else {
        Err(refused(
            "no engine of this suite has a choice of compaction styles",
        ))
    }
}

/// Returns the names by which a setting can address an engine: in all builds, or in one.
fn named(choice: &EngineChoice) -> Vec<String> {
    let host = choice.host.iter().filter(|host| !host.name.is_empty());
    let one = host.map(|host| engine_name(&choice.engine, None, Some(host)));
    std::iter::once(choice.engine.clone()).chain(one).collect()
}

/// Parses `--host NAME=BINARY`, or `--host BINARY` for all trials of engines without a host name.
///
/// # Errors
/// Usage errors: an invalid name, or a name given twice.
pub fn hosts(given: &[String]) -> Result<Vec<Host>> {
    let mut found: Vec<Host> = Vec::new();
    for text in given {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (name, path),
            _ => ("", text.as_str()),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.contains('=') && path != text && (name.is_empty() || !name.chars().all(allowed)) {
            return Err(usage(format!(
                "--host {text}: must be BINARY or NAME=BINARY with a NAME of letters, digits, - and _"
            )));
        }
        if found.iter().any(|host| host.name == name) {
            return Err(usage(format!(
                "--host {text}: there is another one of this name"
            )));
        }
        found.push(Host {
            name: name.to_string(),
            path: std::path::absolute(path)?.display().to_string(),
            ..Host::default()
        });
    }
    Ok(found)
}

/// Applies `--options-file NAME[:VARIANT]=FILE`: gives each file to the engine with exactly this
/// name.
///
/// # Errors
/// Usage errors: malformed, an engine that does not take part or already has a file, a missing
/// file.
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

/// Setting of an engine that names its options file.
const OPTIONS_FILE: &str = "options_file";

/// Rejects settings that an engine of this build would reject at opening: an unknown one of its
/// own, or a value out of range.
///
/// # Errors
/// Usage errors.
pub fn check(
    choices: &[EngineChoice],
    sorted: &Sorted,
    durability: Durability,
    workload: &str,
) -> Result<()> {
    for choice in choices.iter().filter(|choice| choice.host.is_none()) {
        let found =
            rumbench_engines::find(&choice.engine).map_err(|error| usage(error.to_string()))?;
        let config = OpenConfig {
            dir: PathBuf::new(),
            // The choice of schema affects no setting, but not every engine supports keys and
            // values.
            schema: match workload {
                "kv-sequence" => Schema::Tables(kv_sequence::schema()),
                _ => Schema::LinkBench,
            },
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

fn choose(name: &str, hosts: &[Host]) -> Result<EngineChoice> {
    let (engine, wanted) = match name.split_once('@') {
        Some((engine, host)) => (engine, host),
        None => (name, ""),
    };
    let host = hosts.iter().find(|host| host.name == wanted).cloned();
    if host.is_none() && !wanted.is_empty() {
        let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let unknown = unknown("--host of this name", wanted, &known);
        return Err(usage(format!(
            "--engine {name}: {unknown}; --host {wanted}=BINARY names one"
        )));
    }
    if host.is_some() {
        // Another build may have engines and variants unknown here, so that build checks them.
        let (engine, variant) = match engine.split_once(':') {
            Some((engine, variant)) => (engine, Some(variant.to_string())),
            None => (engine, None),
        };
        return Ok(EngineChoice {
            engine: engine.to_string(),
            variant,
            host,
            settings: BTreeMap::new(),
        });
    }
    let found = rumbench_engines::find(engine).map_err(|error| usage(error.to_string()))?;
    if !found.entry.is_available() {
        return Err(usage(format!(
            "this build has no {}: {}",
            found.entry.name, found.entry.how_to_get
        )));
    }
    Ok(EngineChoice {
        engine: found.entry.name.to_string(),
        variant: found.variant.map(|variant| variant.name.to_string()),
        host: None,
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
        let (choices, sorted) = sort("linkbench", &words(&["null"]), &[], &sets).unwrap();
        assert_eq!(choices[0].settings["stall_ms"], "3");
        assert_eq!(sorted.workload.len(), 1);
        assert_eq!(sorted.cache_bytes, 64);
        assert_eq!(sorted.rate.unwrap().arrivals, Arrivals::Poisson);
    }

    #[test]
    fn a_compaction_style_goes_to_every_engine_that_has_a_choice() {
        // Another build is asked about engines that this one may lack.
        let hosts = hosts(&words(&["old=x"])).unwrap();
        let set = |engines: &[&str], sets: &[&str]| {
            sort("kv-sequence", &words(engines), &hosts, &words(sets))
                .map(|(choices, _)| choices)
                .map_err(|error| error.to_string())
        };
        let style = &["compaction=universal"];
        let choices = set(&["null", "rocksdb@old"], style).unwrap();
        assert_eq!(choices[1].settings["compaction"], "universal");
        assert!(choices[0].settings.is_empty());
        let own = &["rocksdb.compaction=leveled", "compaction=universal"];
        let choices = set(&["null", "rocksdb@old"], own).unwrap();
        assert_eq!(choices[1].settings["compaction"], "leveled");
        let refused = set(&["null", "null@old"], style).unwrap_err();
        assert!(
            refused.contains("no engine of this suite has a choice"),
            "{refused}"
        );
        let refused = set(&["rocksdb:zstd@old"], style).unwrap_err();
        assert!(refused.contains("rocksdb.compaction"), "{refused}");
    }

    #[test]
    fn an_options_file_goes_to_the_engine_that_is_named_just_so() {
        let engines = words(&["null"]);
        let give = |given: &[&str]| {
            let (mut choices, _) = sort("linkbench", &engines, &[], &[]).unwrap();
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
    fn builds_are_named_and_their_settings_go_to_one_or_to_all_of_them() {
        let found = hosts(&words(&["old=a/b=c", "./x=y", "new-2=z"])).unwrap();
        assert_eq!(found[0].name, "old");
        assert!(found[0].path.ends_with("a/b=c") && found[1].name.is_empty());
        let refuse = |given: &[&str]| hosts(&words(given)).unwrap_err().to_string();
        assert!(refuse(&["v1.2=x"]).contains("letters, digits"));
        assert!(refuse(&["=x"]).contains("letters, digits"));
        assert!(refuse(&["a=x", "a=y"]).contains("another one"));
        let engines = words(&["null", "null@old", "null:x@new-2"]);
        let sets = words(&["null.a=1", "null@old.a=2"]);
        let (choices, _) = sort("linkbench", &engines, &found, &sets).unwrap();
        let of = |i: usize| (choices[i].name(), choices[i].settings["a"].clone());
        assert_eq!(of(1), ("null@old".to_string(), "2".to_string()));
        assert_eq!(of(2), ("null:x@new-2".to_string(), "1".to_string()));
        let refuse = |engines: &[&str]| {
            let engines = words(engines);
            sort("linkbench", &engines, &found[..1], &[])
                .unwrap_err()
                .to_string()
        };
        assert!(refuse(&["null@odl"]).contains("--host odl=BINARY names one"));
        assert!(refuse(&["null"]).contains("no engine runs in it"));
        assert!(refuse(&["null", "null"]).contains("twice"));
    }

    #[test]
    fn malformed_settings_are_refused_with_what_is_allowed() {
        let refuse = |set: &str| {
            sort("linkbench", &words(&["null"]), &[], &words(&[set]))
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
