//! `rumbench plan`: shows what `rumbench run` with the same flags would do, without doing it.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::process::{Exit, print};
use super::run::{RunArgs, suite};
use crate::catalog;
use crate::measure::size;
use crate::report::table::{Format, Table};
use crate::run::plan::{Point, Suite};
use crate::run::schedule;
use crate::run::suite::disk_needed;
use crate::store::result::base_name;
use crate::text::count;

/// Phases with a length that follows from their work instead of `seconds`.
const BY_WORK: [&str; 6] = ["load", "index", "settle", "fillseq", "l.i0", "l.x"];

/// Key and value of a setting, and the source of the value.
type Setting = (String, String, &'static str);

/// Prints the plan. The exit code is 1 if the disk is too small, because `run` would refuse.
///
/// # Errors
/// As `rumbench run` before it starts.
pub fn run(arguments: &RunArgs) -> Result<Exit> {
    let suite = suite(arguments)?;
    let needed = disk_needed(&suite)?;
    let free = existing(&suite.out).and_then(|dir| size::free_bytes(dir).ok());
    let settings = settings(&suite.points[0], &suite)?;
    let seconds = timed_seconds(&suite)?;
    let trials = trials(&suite);
    if arguments.print.json {
        let settings: Vec<_> = settings
            .iter()
            .map(|(key, value, from)| json!({"key": key, "value": value, "from": from}))
            .collect();
        let all = json!({"workload": suite.workload, "trials": trials, "settings": settings, "disk_bytes_needed": needed,
            "disk_bytes_free": free, "timed_seconds": seconds});
        print(&format!("{all:#}\n"))?;
    } else {
        print(&text(&suite, &settings, &trials)?)?;
        let mib = |bytes: u64| count(Some(bytes as f64 / f64::from(1 << 20)));
        let free = free.map_or("unknown".to_string(), mib);
        print(&format!(
            "\nspace: {} MiB are needed, {free} MiB are free\n",
            mib(needed)
        ))?;
        print(&match seconds {
            Some(seconds) => format!(
                "time: {seconds:.0} s in phases that end by time; loads, settles and calibration come on top\n"
            ),
            None => "time: phases end by count, so it depends on the engines\n".to_string(),
        })?;
    }
    Ok(if free.is_some_and(|free| free < needed) {
        Exit::Failed
    } else {
        Exit::Done
    })
}

/// Returns the folder itself or its nearest existing ancestor.
fn existing(dir: &Path) -> Option<&Path> {
    let found = dir.ancestors().find(|dir| dir.exists());
    // A relative path without an existing ancestor is in the working directory.
    found.or(Some(Path::new(".")))
}

/// Returns the effective settings of a point: first the runner's, then the workload's in its order,
/// then the engines'.
fn settings(point: &Point, suite: &Suite) -> Result<Vec<Setting>> {
    let varied = suite.varied.as_ref().map(|varied| varied.key.as_str());
    let from = |key: &str, given: bool| match () {
        () if varied == Some(key) => "--sweep",
        () if given => "--set",
        () => "default",
    };
    let mut all = vec![(
        "cache_bytes".to_string(),
        point.cache_bytes.to_string(),
        from("cache_bytes", suite.command.contains("cache_bytes=")),
    )];
    if let Some(rate) = &point.rate {
        all.push((
            "rate".to_string(),
            rate.per_second.to_string(),
            from("rate", true),
        ));
    }
    let workload = catalog::workload(&suite.workload, &point.settings, suite.seed)?;
    for (key, value) in workload.settings() {
        let given = point.settings.contains_key(&key);
        let value = if key == catalog::DEFINITION {
            "the file".to_string()
        } else {
            value
        };
        let from = from(&key, given);
        all.push((key, value, from));
    }
    for choice in &point.engines {
        for (key, value) in &choice.settings {
            let key = format!("{}.{key}", choice.engine);
            let from = from(&key, true);
            all.push((key, value.clone(), from));
        }
    }
    Ok(all)
}

/// Returns the contestants in the order in which they would run.
fn trials(suite: &Suite) -> Vec<String> {
    let all = schedule::order(suite.points.len(), suite.engines().len(), suite.repeat);
    let name = |planned: &schedule::Planned| {
        let point = &suite.points[planned.point];
        let engine = point.engines[planned.engine].name();
        let label = point.label.as_ref().map(|label| format!(" {label}"));
        format!(
            "{engine}{} #{}",
            label.unwrap_or_default(),
            planned.repetition
        )
    };
    all.iter().map(name).collect()
}

/// Returns the total seconds of all phases that end by time; `None` if the workload has no
/// `seconds`.
fn timed_seconds(suite: &Suite) -> Result<Option<f64>> {
    let mut all = 0.0;
    for point in &suite.points {
        let workload = catalog::workload(&suite.workload, &point.settings, suite.seed)?;
        let settings = workload.settings();
        let number = |name: &str| {
            let found = settings.iter().find(|(key, _)| key == name);
            found.and_then(|(_, value)| value.parse::<f64>().ok())
        };
        let Some(seconds) = number("seconds") else {
            return Ok(None);
        };
        let phases = workload.phase_names();
        let timed = phases.iter().filter(|phase| {
            let name = base_name(phase);
            name != "warmup" && !BY_WORK.contains(&name)
        });
        let warmup = number("warmup_seconds").unwrap_or(0.0);
        let trials = point.engines.len() as f64 * f64::from(suite.repeat);
        all += (timed.count() as f64 * seconds + warmup) * trials;
    }
    Ok(Some(all))
}

fn text(suite: &Suite, settings: &[Setting], trials: &[String]) -> Result<String> {
    let workload = catalog::workload(&suite.workload, &suite.points[0].settings, suite.seed)?;
    let mut out = format!(
        "{}: {} trials\nphases of each: {}\norder: {}\n",
        suite.workload,
        trials.len(),
        workload.phase_names().join(", "),
        trials.join(", ")
    );
    let (rows, bytes) = workload.load_estimate();
    out += &format!(
        "load: {} rows, {} MiB\n\n",
        count(Some(rows as f64)),
        count(Some(bytes as f64 / f64::from(1 << 20)))
    );
    let mut table = Table::new("Settings", &["key", "value", "from"]);
    table.text_columns = 3;
    let row = |(key, value, from): &Setting| vec![key.clone(), value.clone(), (*from).to_string()];
    table.rows = settings.iter().map(row).collect();
    if let Some(varied) = &suite.varied {
        table.notes.push(format!(
            "{} takes the values {}",
            varied.key,
            varied.values.join(", ")
        ));
    }
    Ok(out + &table.render(Format::Text))
}
