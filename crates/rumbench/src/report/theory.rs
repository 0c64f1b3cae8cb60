//! Theoretical bounds next to measurements: read, write and space amplification of each engine with
//! a known layout.

use super::explain::finding::{Figure, Finding, Kind, Scene};
use super::selection::Group;
use super::table::Table;
use super::throughput::{counts_rows, per_item};
use crate::measure::statistics::median;
use crate::measure::theory::{Bounds, Data, Layout};
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};
use crate::text::number;

/// Memtable size if an adapter does not state one: the default of RocksDB and similar engines.
const MEMTABLE_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// Size of level 1 in memtables, for the leveled engines here.
const LEVEL1_MEMTABLES: f64 = 4.0;
/// Size of LevelDB's level 1.
const LEVELDB_LEVEL1_BYTES: f64 = 10.0 * 1024.0 * 1024.0;
/// Page size of trees that do not state theirs.
const PAGE_BYTES: f64 = 4096.0;
/// Share above a bound from which a measurement is reported.
const ABOVE: f64 = 0.1;

/// Returns the number at the beginning of a setting; the text after it is ignored.
fn setting(trial: &TrialResult, name: &str) -> Option<f64> {
    let text = trial.configuration.get(name)?;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// Returns the layout of an engine. `None` if it has no known layout, such as `null`.
fn layout(trial: &TrialResult) -> Option<Layout> {
    let first = |names: &[&str]| names.iter().find_map(|name| setting(trial, name));
    let memtable = first(&["write_buffer_size", "memtable_bytes", "write_buffer_bytes"])
        .unwrap_or(MEMTABLE_BYTES);
    let page_bytes = first(&["page_size", "page_bytes", "leaf_page_max"]).unwrap_or(PAGE_BYTES);
    let tiered = trial
        .configuration
        .get("compaction")
        .is_some_and(|style| style == "universal");
    Some(match (trial.engine.as_str(), tiered) {
        ("alluvium", _) => Layout::LazyLeveled {
            upper_fraction: first(&["upper_fraction"]).filter(|f| *f > 0.0)?,
            // A quarter of the memory, between 4 and 512 MiB, is for writes; half of it is one
            // flush.
            flush_bytes: (first(&["memory_bytes"])? / 4.0)
                .clamp(4.0 * 1048576.0, 512.0 * 1048576.0)
                / 2.0,
        },
        ("rocksdb", true) => Layout::Tiered {
            flush_bytes: memtable,
        },
        ("rocksdb" | "fjall", _) => Layout::Leveled {
            level1_bytes: LEVEL1_MEMTABLES * memtable,
        },
        ("leveldb", _) => Layout::Leveled {
            level1_bytes: LEVELDB_LEVEL1_BYTES,
        },
        ("lmdb" | "redb", _) => Layout::CopyOnWrite { page_bytes },
        ("sqlite" | "wiredtiger", _) => Layout::BTree { page_bytes },
        _ => return None,
    })
}

/// Returns the bytes of all rows as clients wrote them, the bytes of a row and the memory, from a
/// trial's measurements.
fn data(suite: &SuiteResult, trial: &TrialResult) -> Option<Data> {
    let settle = trial
        .phases
        .iter()
        .rfind(|phase| phase.base_name() == "settle");
    let raw = settle
        .and_then(|phase| phase.stored_bytes)
        .map(|stored| stored.raw as f64);
    let by_ratio = || {
        let settle = settle?;
        let space = settle.amplification?.space.filter(|space| *space > 0.0)?;
        Some(settle.size_bytes?.data as f64 / space)
    };
    let bytes = raw.or_else(by_ratio)?;
    let loads = trial.phases.iter().filter(|phase| is_load(phase));
    let rows: u64 = loads.map(|phase| phase.rows).sum();
    let machine = || {
        let text = suite.environment.get("memory")?;
        let kib: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024.0)
    };
    let limit = trial
        .memory
        .as_ref()
        .map(|memory| memory.limit_bytes as f64);
    Some(Data {
        bytes,
        row_bytes: bytes / rows.max(1) as f64,
        memory_bytes: limit.or_else(machine)?,
    })
}

/// Returns true for phases that insert the rows of the database.
fn is_load(phase: &PhaseResult) -> bool {
    counts_rows(&phase.name) && !matches!(phase.base_name(), "index" | "l.x")
}

/// Returns the bounds of an engine: medians over its repetitions.
fn bounds(suite: &SuiteResult, trials: &[&TrialResult]) -> Option<(Layout, Bounds)> {
    let layout = layout(trials.first()?)?;
    let found: Vec<Bounds> = trials
        .iter()
        .filter_map(|trial| layout.bounds(&data(suite, trial)?))
        .collect();
    let middle = |of: fn(&Bounds) -> f64| median(&found.iter().map(of).collect::<Vec<f64>>());
    let bounds = Bounds {
        read: middle(|bounds| bounds.read)?,
        write: middle(|bounds| bounds.write)?,
        space: middle(|bounds| bounds.space)?,
    };
    Some((layout, bounds))
}

/// Line of the table: a number with its bound.
struct Line {
    engine: String,
    layout: Layout,
    phase: String,
    what: &'static str,
    metric: &'static str,
    bound: f64,
    measured: f64,
}

fn lines(suite: &SuiteResult, group: &Group<'_>) -> Vec<Line> {
    let mut found = Vec::new();
    for engine in group.engines() {
        let trials = group
            .trials
            .iter()
            .copied()
            .filter(|trial| trial.name() == engine);
        let trials: Vec<&TrialResult> = trials.collect();
        let Some((layout, bounds)) = bounds(suite, &trials) else {
            continue;
        };
        let mut phases = group.phases();
        phases.retain(|phase| phase != "warmup");
        phases.extend(group.settles().pop());
        for phase in phases {
            let of =
                |value: &dyn Fn(&PhaseResult) -> Option<f64>| group.median(&engine, &phase, value);
            let mut push = |what, metric, bound: Option<f64>, measured: Option<f64>| {
                if let Some((bound, measured)) = bound.zip(measured) {
                    let (engine, phase) = (engine.clone(), phase.clone());
                    found.push(Line {
                        engine,
                        layout,
                        phase,
                        what,
                        metric,
                        bound,
                        measured,
                    });
                }
            };
            // Phases with writes are left out: writers also read the pages that they change.
            let rows = of(&|p| {
                let reads_only =
                    p.written_bytes.is_none() && !counts_rows(&p.name) && p.operations > 0;
                reads_only.then(|| p.rows as f64 / p.operations as f64)
            });
            let reads = of(&|p| per_item(p, p.amplification?.read));
            push(
                "device reads (1/op)",
                "amplification.read",
                rows.map(|rows| rows * bounds.read),
                reads,
            );
            let written = of(&|p| {
                p.amplification
                    .and_then(|found| found.write_settled.or(found.write))
            });
            push(
                "write amplification (ratio)",
                "amplification.write_settled",
                Some(bounds.write),
                written,
            );
            let space = of(&|p| p.amplification?.space);
            push(
                "space amplification (ratio)",
                "amplification.space",
                Some(bounds.space),
                space,
            );
        }
    }
    found
}

/// Returns the table. `None` if no engine has a known layout and data.
pub fn table(suite: &SuiteResult, group: &Group<'_>) -> Option<Table> {
    let mut table = Table::new(
        "Theory: the upper bound of each layout, and the measurement",
        &["engine", "layout", "phase", "what", "at most", "measured"],
    );
    table.text_columns = 4;
    for line in lines(suite, group) {
        table.rows.push(vec![
            group.label(&line.engine),
            line.layout.name().to_string(),
            line.phase,
            line.what.to_string(),
            number(Some(line.bound)),
            number(Some(line.measured)),
        ]);
    }
    table.notes.push(
        "at most: rows changed at random, before compression; formulas in docs/guide/explain.md"
            .to_string(),
    );
    (!table.rows.is_empty()).then_some(table)
}

/// Returns findings for numbers above their theoretical bound.
pub fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let above = |line: &Line| line.measured > line.bound * (1.0 + ABOVE) && line.measured >= 0.01;
    let lines = lines(scene.suite, scene.group).into_iter().filter(above);
    lines
        .map(|line| {
            let text = format!(
                "costs more than theory allows a {}: {}, {} measured, {} at most.",
                line.layout.name(),
                line.what,
                number(Some(line.measured)),
                number(Some(line.bound))
            );
            let figures = vec![Figure::new(line.metric, Some(line.measured))];
            scene.finding(Kind::Theory, &line.engine, &line.phase, text, figures)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    /// 1 GiB in files, 1.1 times the bytes of 80,000 rows; 12.2 KB per row.
    fn suite() -> SuiteResult {
        let mut suite = sample::suite();
        suite
            .environment
            .insert("memory".to_string(), "1000 kB".to_string());
        let settings: [&[(&str, &str)]; 2] = [
            &[
                ("upper_fraction", "0.25"),
                ("memory_bytes", "1073741824 (of all)"),
            ],
            &[("page_size", "4096 (small)")],
        ];
        for (trial, settings) in suite.trials.iter_mut().zip(settings) {
            let pairs = settings
                .iter()
                .map(|(k, v)| ((*k).to_string(), (*v).to_string()));
            trial.configuration = pairs.collect();
        }
        suite
    }

    #[test]
    fn bounds_stand_beside_what_was_measured() {
        let suite = suite();
        let found = groups(&suite, false);
        let rows = table(&suite, &found[0]).unwrap().rows;
        let space = |engine: &str, layout: &str, bound: &str| {
            [
                engine,
                layout,
                "settle",
                "space amplification (ratio)",
                bound,
                "1.10",
            ]
            .map(str::to_string)
        };
        assert!(
            rows.contains(&space("alluvium", "lazy-leveled LSM", "1.25").to_vec()),
            "{rows:?}"
        );
        assert!(
            rows.contains(&space("sqlite", "B-tree", "1.50").to_vec()),
            "{rows:?}"
        );
        let scene = Scene::new(&suite, &found[0], 0, "alluvium".to_string());
        assert!(findings(&scene).is_empty());
    }

    #[test]
    fn the_compaction_style_of_a_result_decides_the_layout() {
        let mut trial = suite().trials.remove(0);
        trial.engine = "rocksdb".to_string();
        let mut name = |style: &str| {
            let style = ("compaction".to_string(), style.to_string());
            trial.configuration.extend([style]);
            layout(&trial).unwrap().name()
        };
        assert_eq!(name("universal"), "tiered LSM");
        assert_eq!(name("leveled, dynamic level bytes"), "leveled LSM");
    }

    #[test]
    fn a_number_above_its_bound_is_reported() {
        let mut suite = suite();
        let settle = &mut suite.trials[0].phases[2];
        // Twice the files for the same rows.
        settle.amplification.as_mut().unwrap().space = Some(2.2);
        settle.size_bytes.as_mut().unwrap().data *= 2;
        let found = groups(&suite, false);
        let scene = Scene::new(&suite, &found[0], 0, "alluvium".to_string());
        let told: Vec<String> = findings(&scene).iter().map(Finding::sentence).collect();
        assert_eq!(
            told,
            [
                "alluvium costs more than theory allows a lazy-leveled LSM: space amplification (ratio), 2.20 measured, 1.25 at most."
            ]
        );
    }

    #[test]
    fn engines_without_a_known_layout_have_no_line() {
        let mut suite = suite();
        suite.trials.truncate(1);
        suite.trials[0].engine = "null".to_string();
        let found = groups(&suite, false);
        assert!(table(&suite, &found[0]).is_none());
    }
}
