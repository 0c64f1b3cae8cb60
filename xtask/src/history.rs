//! The engine's own history: instructions, CPU, written bytes and sizes of a fixed set of
//! operations, for chosen commits.
//!
//! `docs/results/history.json` has what was measured; `cargo xtask history COMMIT...` builds the
//! driver of the present commit (`crates/alluvium/examples/history.rs`) with the engine of each
//! commit, measures all of them and writes the file, the page and its chart again. Instructions are
//! counted by Valgrind: they hardly depend on the machine, so that commits that were measured at
//! other times compare. CPU compares only within one run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cached;
use crate::finding::Finding;

const DATA: &str = "docs/results/history.json";
const PAGE: &str = "docs/results/history.md";
const CHART: &str = "docs/results/history.svg";
const DRIVER: &str = "crates/alluvium/examples/history.rs";

/// Scene, operations of a measured run, and of the two counted runs whose difference is taken.
const SCENES: [(&str, u64, [u64; 2]); 5] = [
    ("get", 1_500_000, [20_000, 60_000]),
    ("scan", 300_000, [4_000, 12_000]),
    ("put", 600_000, [20_000, 60_000]),
    ("linkbench", 500_000, [10_000, 60_000]),
    ("l.i1", 150_000, [5_000, 15_000]),
];
/// Measured runs of each scene, and counted pairs of runs; medians count.
const ROUNDS: usize = 3;
/// Change from one commit to the next that is marked, as a part.
const MARKED: f64 = 0.05;

/// The C library clears and copies large memory by one instruction that Valgrind counts once for
/// each byte: 8,192 for a table of LZ4, which takes as long as some hundred. These settings make it
/// use vectors, as for small memory.
const C_LIBRARY: &str =
    "glibc.cpu.x86_rep_stosb_threshold=1073741824:glibc.cpu.x86_rep_movsb_threshold=1073741824";

/// Measured commits, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    commits: Vec<Commit>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    hash: String,
    /// Seconds since 1970 of the commit.
    time: u64,
    subject: String,
    /// Number of the run that measured it.
    run: u32,
    /// Hash of the driver, and the compiler: other ones do not compare.
    built: String,
    scenes: BTreeMap<String, Measured>,
}

/// Measurements of one scene, for each operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    instructions: Option<f64>,
    /// Difference of the largest and the smallest count, as a part of the median. Background work
    /// at other moments changes counts.
    #[serde(default)]
    spread: f64,
    cpu_us: f64,
    kb_written: f64,
    /// Directory at the end.
    mib: f64,
}

/// Measures these commits and adds them to the history.
///
/// # Errors
/// If a commit is not known or cannot be built, or a run fails.
pub fn measure(root: &Path, commits: &[&str]) -> Result<Vec<Finding>> {
    let mut history = read(root)?;
    let run = history.commits.iter().map(|c| c.run).max().unwrap_or(0) + 1;
    let folder = cached::folder()?.join("history");
    let mut built = Vec::new();
    for name in commits {
        let mut commit = commit_of(root, name)?;
        commit.run = run;
        commit.built = driver_and_compiler(root)?;
        let binary = build(root, &folder, &commit)?;
        built.push((commit, binary));
    }
    let counts = is_there("valgrind");
    if !counts {
        eprintln!("valgrind is missing: instructions are not counted");
    }
    for (scene, operations, counted) in SCENES {
        let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); built.len()];
        for _ in 0..ROUNDS {
            for ((_, binary), rounds) in built.iter().zip(&mut rounds) {
                rounds.push(run_once(binary, &folder, scene, operations)?);
            }
        }
        for ((commit, binary), rounds) in built.iter_mut().zip(rounds) {
            let mut measured = medians(&rounds);
            if counts {
                let (median, spread) = counts_of(binary, &folder, scene, counted)?;
                (measured.instructions, measured.spread) = (Some(median), spread);
            }
            println!("{} {scene}: {measured:?}", &commit.hash[..8]);
            commit.scenes.insert(scene.to_string(), measured);
        }
    }
    for (commit, _) in built {
        history.commits.retain(|own| own.hash != commit.hash);
        history.commits.push(commit);
    }
    history.commits.sort_by_key(|commit| commit.time);
    let text = serde_json::to_string_pretty(&history)? + "\n";
    fs::write(root.join(DATA), text).with_context(|| DATA.to_string())?;
    write_page(root, &history)?;
    Ok(Vec::new())
}

/// Checks that page and chart are what [`measure`] writes.
///
/// # Errors
/// If a file cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let history = read(root)?;
    let mut findings = Vec::new();
    for (path, text) in [(PAGE, page(&history)), (CHART, chart(&history))] {
        let there = fs::read_to_string(root.join(path)).with_context(|| path.to_string())?;
        if there != text {
            let message = "differs from history.json: run `cargo xtask history`";
            findings.push(Finding::error(path, 1, message));
        }
    }
    Ok(findings)
}

/// Writes page and chart from the measurements that are there.
///
/// # Errors
/// If a file cannot be read or written.
pub fn update(root: &Path) -> Result<Vec<Finding>> {
    write_page(root, &read(root)?)?;
    Ok(Vec::new())
}

fn write_page(root: &Path, history: &History) -> Result<()> {
    fs::write(root.join(PAGE), page(history)).with_context(|| PAGE.to_string())?;
    fs::write(root.join(CHART), chart(history)).with_context(|| CHART.to_string())
}

fn read(root: &Path) -> Result<History> {
    let path = root.join(DATA);
    if !path.exists() {
        return Ok(History::default());
    }
    let text = fs::read_to_string(path).with_context(|| DATA.to_string())?;
    serde_json::from_str(&text).with_context(|| DATA.to_string())
}

fn commit_of(root: &Path, name: &str) -> Result<Commit> {
    ensure!(!name.starts_with('-'), "{name} is no commit");
    let mut git = Command::new("git");
    git.current_dir(root)
        .args(["log", "-1", "--format=%H%n%ct%n%s", name, "--"]);
    let text = output(&mut git)?;
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default().to_string();
    Ok(Commit {
        hash: line(),
        time: line().parse().context("git has no time of the commit")?,
        subject: line(),
        run: 0,
        built: String::new(),
        scenes: BTreeMap::new(),
    })
}

fn driver_and_compiler(root: &Path) -> Result<String> {
    let driver = fs::read(root.join(DRIVER)).with_context(|| DRIVER.to_string())?;
    let hash = xxhash_rust::xxh3::xxh3_64(&driver) >> 32;
    let compiler = output(Command::new("rustc").current_dir(root).arg("--version"))?;
    let compiler = compiler.split_whitespace().nth(1).unwrap_or_default();
    Ok(format!("{hash:08x}-{compiler}"))
}

/// Builds the driver with the engine of a commit, unless that was done before, and returns its
/// path.
fn build(root: &Path, folder: &Path, commit: &Commit) -> Result<PathBuf> {
    let Commit { hash, built, .. } = commit;
    let binary = folder.join(format!("{hash}-{built}"));
    if binary.exists() {
        return Ok(binary);
    }
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(&tree).args(arguments));
    let from = root.display().to_string();
    git(&["init", "--quiet"])?;
    git(&["fetch", "--quiet", &from, hash])?;
    git(&["checkout", "--quiet", "--force", "--detach", hash])?;
    fs::copy(root.join(DRIVER), tree.join(DRIVER)).with_context(|| DRIVER.to_string())?;
    eprintln!("building {}", &hash[..8]);
    let target = folder.join("target");
    let arguments = [
        "build",
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "alluvium",
    ];
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target)
        // Without it, old commits fail under Valgrind: they read the auxiliary vector themselves.
        .env("RUSTFLAGS", "--cfg rustix_use_libc")
        .args(arguments)
        .args(["--example", "history"]);
    output(&mut cargo)?;
    fs::copy(target.join("release/examples/history"), &binary)
        .with_context(|| format!("cannot copy the driver of {hash}"))?;
    Ok(binary)
}

/// Returns the arguments of a run in an empty database folder.
fn arguments(folder: &Path, scene: &str, operations: u64) -> Result<[String; 3]> {
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data).with_context(|| data.display().to_string())?;
    }
    Ok([
        scene.to_string(),
        operations.to_string(),
        data.display().to_string(),
    ])
}

fn run_once(binary: &Path, folder: &Path, scene: &str, operations: u64) -> Result<Measured> {
    let text = output(Command::new(binary).args(arguments(folder, scene, operations)?))?;
    let numbers = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<f64>, _>>();
    let [cpu_us, kb_written, mib] = numbers?[..] else {
        anyhow::bail!("the driver printed `{text}`");
    };
    Ok(Measured {
        cpu_us,
        kb_written,
        mib,
        ..Measured::default()
    })
}

/// Returns median and spread of the instructions of an operation in several counts.
fn counts_of(binary: &Path, folder: &Path, scene: &str, counted: [u64; 2]) -> Result<(f64, f64)> {
    let counts = (0..ROUNDS).map(|_| instructions(binary, folder, scene, counted));
    let counts = sorted(counts.collect::<Result<Vec<f64>>>()?);
    let median = counts[ROUNDS / 2];
    Ok((median, (counts[ROUNDS - 1] - counts[0]) / median))
}

/// Returns the instructions of an operation: the difference of two runs, without the preparation.
fn instructions(binary: &Path, folder: &Path, scene: &str, counted: [u64; 2]) -> Result<f64> {
    let mut counts = [0.0; 2];
    for (operations, count) in counted.into_iter().zip(&mut counts) {
        let mut valgrind = Command::new("valgrind");
        valgrind
            .env("GLIBC_TUNABLES", C_LIBRARY)
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(binary)
            .args(arguments(folder, scene, operations)?);
        let ended = valgrind.output().context("cannot run valgrind")?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let line = said
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        let collected = line.filter(|_| ended.status.success());
        let collected = collected.with_context(|| format!("valgrind failed: {said}"))?;
        *count = collected.trim().parse()?;
    }
    Ok((counts[1] - counts[0]) / (counted[1] - counted[0]) as f64)
}

fn medians(rounds: &[Measured]) -> Measured {
    let median = |of: fn(&Measured) -> f64| {
        let values = sorted(rounds.iter().map(of).collect());
        values[values.len() / 2]
    };
    Measured {
        cpu_us: median(|m| m.cpu_us),
        kb_written: median(|m| m.kb_written),
        mib: median(|m| m.mib),
        ..Measured::default()
    }
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn is_there(program: &str) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|version| version.status.success())
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let ended = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{program} failed: {said}");
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Returns the number in a cell, with the change from the commit before if it is marked: more than
/// [`MARKED`], and more than the counts of any one commit differ by (`noise`, a part).
fn cell(now: Option<f64>, before: Option<f64>, digits: usize, noise: f64) -> String {
    let Some(now) = now else {
        return String::new();
    };
    let change = before
        .filter(|before| *before > 0.0)
        .map(|before| now / before - 1.0);
    match change.filter(|change| change.abs() > MARKED.max(noise)) {
        Some(change) => format!("{now:.digits$} (**{:+.0} %**)", change * 100.0),
        None => format!("{now:.digits$}"),
    }
}

fn page(history: &History) -> String {
    let mut page = String::from(
        "# History of the engine\n\n\
         `make history COMMITS=\"..\"` measures commits and writes this page: instructions of an operation counted by Valgrind, CPU and KiB written with the settle, the directory at the end; all with one client, 64 MiB of memory and 50,000 rows before the operations (`crates/alluvium/examples/history.rs`).\n\
         A change of more than 5 % in instructions or bytes from the row above is in bold, unless driver or compiler are other ones.\n\
         The counted puts are few: they have flushes, and next to no compaction.\n\
         Counts are medians of three; where these differ by more than 5 %, for background work at other moments, the table shows the difference, and marks only changes of instructions above the largest one of the scene.\n\
         CPU compares only within one run, and its changes are not marked.\n\n\
         ![Instructions of an operation, by commit](history.svg)\n",
    );
    for (scene, ..) in SCENES {
        let _ = write!(
            page,
            "\n## {scene}\n\n| commit | run | instructions | KiB written | directory, MiB | CPU, us | |\n|---|---|---|---|---|---|---|\n"
        );
        // One commit's counts may be alike by chance.
        let spreads = history
            .commits
            .iter()
            .filter_map(|commit| commit.scenes.get(scene));
        let noise = spreads.map(|own| own.spread).fold(0.0, f64::max);
        let mut last: Option<(&Commit, &Measured)> = None;
        for commit in &history.commits {
            let Some(now) = commit.scenes.get(scene) else {
                continue;
            };
            let same_build = last.filter(|(before, _)| before.built == commit.built);
            let before = same_build.map(|(_, before)| before);
            let of = |value: fn(&Measured) -> f64| (Some(value(now)), before.map(value));
            let [written, mib] = [of(|m| m.kb_written), of(|m| m.mib)];
            let instructions = before.and_then(|before| before.instructions);
            let mut count = cell(now.instructions, instructions, 0, noise);
            if now.spread > MARKED {
                let _ = write!(count, ", counts differ by {:.0} %", now.spread * 100.0);
            }
            let _ = writeln!(
                page,
                "| {} | {} | {count} | {} | {} | {:.2} | {} |",
                &commit.hash[..8],
                commit.run,
                cell(written.0, written.1, 4, 0.0),
                cell(mib.0, mib.1, 1, 0.0),
                now.cpu_us,
                commit.subject.replace('|', "/")
            );
            last = Some((commit, now));
        }
    }
    page
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 60.0;
const COLORS: [&str; 5] = ["#1b6ca8", "#c44536", "#3a7d44", "#8f5aa8", "#b0791f"];

/// Returns the chart: instructions relative to each scene's last commit, on a logarithmic axis.
fn chart(history: &History) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let (low, high) = (0.5_f64, 8.0_f64);
    let y = |ratio: f64| {
        let place = (ratio.clamp(low, high) / low).ln() / (high / low).ln();
        HEIGHT - MARGIN - place * (HEIGHT - 2.0 * MARGIN)
    };
    let last = history.commits.len().saturating_sub(1).max(1) as f64;
    let x = |index: usize| MARGIN + index as f64 / last * (WIDTH - 3.0 * MARGIN);
    for ratio in [0.5, 1.0, 2.0, 4.0, 8.0] {
        let at = y(ratio);
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>",
            WIDTH - 2.0 * MARGIN,
            MARGIN - 8.0,
            at + 4.0
        );
    }
    for (index, commit) in history.commits.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text transform=\"translate({:.1},{:.1}) rotate(-40)\" text-anchor=\"end\" font-size=\"10\">{}</text>",
            x(index),
            HEIGHT - MARGIN + 14.0,
            &commit.hash[..8]
        );
    }
    for ((scene, ..), color) in SCENES.iter().zip(COLORS) {
        line(&mut svg, history, scene, color, x, y);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"30\">instructions of an operation, relative to the last commit</text>\n</svg>"
    );
    svg
}

fn line(
    svg: &mut String,
    history: &History,
    scene: &str,
    color: &str,
    x: impl Fn(usize) -> f64,
    y: impl Fn(f64) -> f64,
) {
    let counted = |commit: &Commit| commit.scenes.get(scene).and_then(|m| m.instructions);
    let Some(newest) = history.commits.iter().rev().find_map(counted) else {
        return;
    };
    let points = history.commits.iter().enumerate();
    let points: Vec<(f64, f64)> = points
        .filter_map(|(index, commit)| Some((x(index), y(counted(commit)? / newest))))
        .collect();
    let path: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    // Names at the left, where the lines are apart: all of them end at 1.
    if let Some((x, y)) = points.first() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{color}\">{scene}</text>",
            x + 4.0,
            y - 6.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let commit = |n: u8, instructions: f64, kb_written: f64| Commit {
            hash: format!("{n:040}"),
            time: u64::from(n),
            subject: format!("a | b {n}"),
            run: 1,
            built: "x".to_string(),
            scenes: BTreeMap::from([(
                "get".to_string(),
                Measured {
                    instructions: Some(instructions),
                    spread: if n == 2 { 0.2 } else { 0.01 },
                    cpu_us: 1.5,
                    kb_written,
                    mib: 10.0,
                },
            )]),
        };
        History {
            commits: vec![
                commit(1, 1000.0, 0.5),
                commit(2, 1040.0, 0.4),
                commit(3, 820.0, 0.41),
            ],
        }
    }

    #[test]
    fn steps_of_more_than_five_percent_are_marked() {
        let page = page(&history());
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| 0000"))
            .collect();
        assert_eq!(
            rows,
            [
                "| 00000000 | 1 | 1000 | 0.5000 | 10.0 | 1.50 | a / b 1 |",
                "| 00000000 | 1 | 1040, counts differ by 20 % | 0.4000 (**-20 %**) | 10.0 | 1.50 | a / b 2 |",
                "| 00000000 | 1 | 820 (**-21 %**) | 0.4100 | 10.0 | 1.50 | a / b 3 |",
            ]
        );
    }

    #[test]
    fn the_chart_ends_at_one() {
        let svg = chart(&history());
        let line = svg
            .lines()
            .find(|line| line.starts_with("<polyline"))
            .unwrap();
        let last = line
            .split('"')
            .nth(1)
            .unwrap()
            .split(' ')
            .next_back()
            .unwrap();
        let one = svg.lines().find(|line| line.contains(">1</text>")).unwrap();
        let y = last.split(',').nth(1).unwrap();
        assert!(one.contains(&format!("y1=\"{y}\"")), "{line}\n{one}");
    }

    #[test]
    fn medians_are_of_each_number() {
        let of = |cpu_us, mib| Measured {
            cpu_us,
            mib,
            ..Measured::default()
        };
        let found = medians(&[of(1.0, 9.0), of(5.0, 7.0), of(2.0, 8.0)]);
        assert_eq!((found.cpu_us, found.mib), (2.0, 8.0));
    }
}
