//! `--sweep`: the values of a setting, and the points that they give a suite.
//!
//! `KEY=V1,V2,...` takes values as they are. For whole numbers `A..B` means all from A to B, both
//! included, `A..B+S` every S-th and `A..B*F` means A, A F, A F F and so on. `turnover=M` is no
//! setting: one database for each trial ages in equal steps.

use anyhow::Result;
use rumbench_core::engine::Durability;
use rumbench_core::trial::Workload;
use rumbench_core::units;

use super::settings::{self, Sorted};
use crate::catalog::{self, usage};
use crate::run::plan::{Point, Turnover, Varied};
use crate::store::result::Host;
use crate::store::sweep::TURNOVER;

/// Maximum number of values of a sweep.
const VALUES_MAX: usize = 100;

/// Kind of sweep that `--sweep` requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Trials at each of these values.
    Values(Varied),
    /// Equal steps until KB written is this multiple of the data.
    Turnover(f64),
}

/// Parses `KEY=VALUES`.
///
/// # Errors
/// Usage errors: malformed, fewer than two or too many values, a value given twice.
pub fn parse(text: &str) -> Result<Asked> {
    let refused = |why: &str| usage(format!("--sweep {text}: {why}"));
    let (key, values) = text.split_once('=').ok_or_else(|| {
        refused("must be KEY=V1,V2,... or KEY=A..B (all), A..B+S (every S-th), A..B*F (times F)")
    })?;
    if key == TURNOVER {
        let multiple = values.parse().ok();
        return multiple
            .filter(|multiple| (0.01..=1000.0).contains(multiple))
            .map(Asked::Turnover)
            .ok_or_else(|| {
                refused("must be a number from 0.01 to 1000: how often the database is rewritten")
            });
    }
    let mut found: Vec<String> = Vec::new();
    for part in values.split(',').map(str::trim) {
        let Some(more) = expand(part) else {
            return Err(refused(&format!(
                "{part} is no range: A..B, A..B+S or A..B*F of whole numbers with A up to B, S from 1 and F from 2"
            )));
        };
        for value in more {
            let value = match key {
                MEMORY => units::bytes(&value).map_or(value, |bytes| bytes.to_string()),
                _ => units::plain(key, &value),
            };
            if found.contains(&value) {
                return Err(refused(&format!("{value} occurs twice")));
            }
            found.push(value);
        }
        if found.len() > VALUES_MAX {
            return Err(refused(&format!("more than {VALUES_MAX} values")));
        }
    }
    if key.is_empty() || found.iter().any(String::is_empty) {
        return Err(refused("the setting or a value is empty"));
    }
    if found.len() < 2 {
        return Err(refused("one value is no sweep; --set sets it"));
    }
    Ok(Asked::Values(Varied {
        key: key.to_string(),
        values: found,
    }))
}

/// Expands one part of the list, to at most one value more than allowed; `None` for an invalid
/// range. Other text stays as it is.
fn expand(part: &str) -> Option<Vec<String>> {
    // Only a part that begins with a number is a range: a path may contain two dots too.
    let range = part
        .split_once("..")
        .map(|(from, rest)| (from.parse(), rest));
    let Some((Ok(from), rest)) = range else {
        return Some(vec![part.to_string()]);
    };
    let (to, step) = match rest.split_once(['+', '*']) {
        Some((to, step)) => (to, step.parse::<u64>().ok()?),
        None => (rest, 1),
    };
    let (from, to): (u64, u64) = (from, to.parse().ok()?);
    let times = rest.contains('*');
    if from > to || step < 1 + u64::from(times) || (times && from == 0) {
        return None;
    }
    let next = |value: &u64| {
        if times {
            value.checked_mul(step)
        } else {
            value.checked_add(step)
        }
    };
    let values = std::iter::successors(Some(from), next).take_while(|value| *value <= to);
    Some(
        values
            .take(VALUES_MAX + 1)
            .map(|value| value.to_string())
            .collect(),
    )
}

/// Flags other than the sweep, the same at all points.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// Workload.
    pub workload: &'a str,
    /// `--engine`.
    pub engines: &'a [String],
    /// `--set`.
    pub sets: &'a [String],
    /// `--host`.
    pub hosts: &'a [Host],
    /// `--options-file`.
    pub files: &'a [String],
    /// `--durability`.
    pub durability: Durability,
    /// `--memory`.
    pub memory: Option<u64>,
}

/// Flag that can be swept like a setting.
const MEMORY: &str = "memory";

/// Returns one point without a sweep, else one for each value. Checks everything that can be
/// checked before a trial runs.
///
/// # Errors
/// Usage errors of any setting; a setting both given and swept; a swept setting of one engine if
/// other engines take part.
pub fn points(common: Common<'_>, varied: Option<&Varied>) -> Result<Vec<Point>> {
    let Some(varied) = varied else {
        return Ok(vec![point(common, None)?]);
    };
    if varied.key == MEMORY {
        return limits(common, &varied.values);
    }
    let key = &varied.key;
    let given = |set: &&String| set.split('=').next() == Some(key);
    if let Some(set) = common.sets.iter().find(given) {
        return Err(usage(format!("--sweep {key}: --set {set} gives it too")));
    }
    let engine = key.split_once('.').map(|(engine, _)| engine);
    let other =
        |name: &&String| engine.is_some_and(|engine| name.split([':', '@']).next() != Some(engine));
    if let Some(name) = common.engines.iter().find(other) {
        return Err(usage(format!(
            "--sweep {key}: {name} has no such setting; sweep a setting of one engine without others and `rumbench compare` the results"
        )));
    }
    let labels = varied.values.iter().map(|value| format!("{key}={value}"));
    labels.map(|label| point(common, Some(label))).collect()
}

/// Returns one point for each memory limit, otherwise identical.
fn limits(common: Common<'_>, values: &[String]) -> Result<Vec<Point>> {
    if let Some(memory) = common.memory {
        return Err(usage(format!(
            "--sweep {MEMORY}: --memory {memory} gives it too"
        )));
    }
    let alike = point(common, None)?;
    let limit = |value: &String| {
        let refused = |why| usage(format!("--sweep {MEMORY}: {value} {why}"));
        let memory = units::bytes(value).map_err(refused)?;
        Ok(Point {
            label: Some(format!("{MEMORY}={memory}")),
            memory: Some(memory),
            ..alike.clone()
        })
    };
    values.iter().map(limit).collect()
}

fn point(common: Common<'_>, label: Option<String>) -> Result<Point> {
    let mut sets = common.sets.to_vec();
    sets.extend(label.clone());
    let (mut engines, mut sorted) =
        settings::sort(common.workload, common.engines, common.hosts, &sets)?;
    let checked = catalog::workload(common.workload, &sorted.workload, 1)?;
    check_rate(common.workload, checked.as_ref(), &sorted, &sets)?;
    sorted.clients = checked.connections().unwrap_or(sorted.clients);
    settings::give_files(&mut engines, common.files)?;
    settings::check(&engines, &sorted, common.durability, common.workload)?;
    Ok(Point {
        label,
        settings: sorted.workload,
        engines,
        clients: sorted.clients,
        cache_bytes: sorted.cache_bytes,
        rate: sorted.rate,
        memory: common.memory,
    })
}

/// Rejects a rate that no phase takes; the user would otherwise believe it was measured.
fn check_rate(name: &str, workload: &dyn Workload, sorted: &Sorted, sets: &[String]) -> Result<()> {
    let asks = sorted.rate.is_some() || sets.iter().any(|set| set.starts_with("arrivals="));
    if asks && workload.paced_phases().is_empty() {
        Err(no_paced_phase(name))
    } else {
        Ok(())
    }
}

/// Returns the usage error for a rate if no phase takes one.
pub fn no_paced_phase(workload: &str) -> anyhow::Error {
    usage(format!(
        "{workload} has no phase that takes a rate: its own settings say how fast each is"
    ))
}

/// Returns the single point of trials that age their databases, and the condition for their end.
///
/// # Errors
/// As [`points`]; also a workload with a last step that cannot be repeated.
pub fn aging(common: Common<'_>, multiple: f64) -> Result<(Vec<Point>, Turnover)> {
    let point = point(common, None)?;
    let mut endless = point.settings.clone();
    let phase = catalog::endless(common.workload, &mut endless)?;
    catalog::workload(common.workload, &endless, 1)?;
    Ok((vec![point], Turnover { multiple, phase }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        match parse(text).unwrap() {
            Asked::Values(varied) => varied.values,
            Asked::Turnover(multiple) => panic!("turnover {multiple}"),
        }
    }

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn ranges_steps_doublings_and_lists_are_spelled_out() {
        assert_eq!(values("clients=1..4"), ["1", "2", "3", "4"]);
        assert_eq!(values("clients=1..16*2"), ["1", "2", "4", "8", "16"]);
        assert_eq!(values("clients=1..10*3,12"), ["1", "3", "9", "12"]);
        assert_eq!(values("x=10..30+10"), ["10", "20", "30"]);
        assert_eq!(values("rocksdb.compression=none,lz4"), ["none", "lz4"]);
        assert_eq!(values("x=../a,../b"), ["../a", "../b"]);
        // As the labels of the points have them.
        assert_eq!(values("memory=128M,1GiB"), ["134217728", "1073741824"]);
        assert_eq!(values("rocksdb.block_bytes=4K,8K"), ["4096", "8192"]);
        assert_eq!(parse("turnover=5").unwrap(), Asked::Turnover(5.0));
    }

    #[test]
    fn invalid_sweeps_are_rejected_with_a_hint() {
        assert!(refusal("clients").contains("A..B*F"));
        assert!(refusal("clients=4").contains("--set sets it"));
        assert!(refusal("clients=4..1").contains("A up to B"));
        assert!(refusal("clients=1..8*1").contains("F from 2"));
        assert!(refusal("clients=0..8*2").contains("no range"));
        assert!(refusal("clients=1..x").contains("no range"));
        assert!(refusal("clients=1,2,1").contains("1 occurs twice"));
        assert!(refusal("clients=1,,2").contains("empty"));
        assert!(refusal("clients=1..101").contains("more than 100"));
        assert!(refusal("clients=0..18446744073709551615").contains("more than 100"));
        assert!(refusal("turnover=much").contains("rewritten"));
    }

    #[test]
    fn every_point_is_checked_before_anything_runs() {
        let engines = ["null".to_string()];
        let common = Common {
            workload: "linkbench",
            engines: &engines,
            hosts: &[],
            sets: &["nodes=100".to_string()],
            files: &[],
            durability: Durability::Buffered,
            memory: None,
        };
        let of = |key: &str, values: &[&str]| Varied {
            key: key.to_string(),
            values: values.iter().map(|value| value.to_string()).collect(),
        };
        let found = points(common, Some(&of("clients", &["1", "8"]))).unwrap();
        assert_eq!((found[0].clients, found[1].clients), (1, 8));
        assert_eq!(found[1].label.as_deref(), Some("clients=8"));
        let refused = |varied: &Varied| points(common, Some(varied)).unwrap_err().to_string();
        assert!(refused(&of("clients", &["1", "0"])).contains("from 1 to 4096"));
        assert!(refused(&of("nodes", &["1", "2"])).contains("gives it too"));
        assert!(
            refused(&of("alluvium.memory_bytes", &["1", "2"])).contains("null has no such setting")
        );
        assert!(refused(&of("null.stall", &["1", "2"])).contains("stall_s"));
        let limits = of("memory", &["268435456", "536870912"]);
        let found = points(common, Some(&limits)).unwrap();
        assert_eq!(found[1].label.as_deref(), Some("memory=536870912"));
        assert_eq!(found[1].memory, Some(536_870_912));
        assert!(refused(&of("memory", &["1", "much"])).contains("much must be a number of bytes"));
        let given = Common {
            memory: Some(1 << 30),
            ..common
        };
        let error = points(given, Some(&limits)).unwrap_err().to_string();
        assert!(error.contains("--memory 1073741824 gives it too"));
    }
}
