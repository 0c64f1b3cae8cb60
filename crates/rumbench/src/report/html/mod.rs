//! `DIR/report.html`: one file for people, made from `result.json` alone, with charts and
//! everything in the text report.
//!
//! The page has no external links, is readable without scripts and stays below [`LIMIT_BYTES`]:
//! charts get coarser, never wrong, until it does.
//!
//! - [`page`] holds the state that the parts share; [`verdict`] renders the first screen.
//! - [`over_time`], [`percentiles`], [`timeline`] and [`heat`] are charts on top of [`plot`],
//!   [`scale`] and [`series`].
//! - [`mod@sweep`] shows all points of a sweep together, [`find_rate`] the highest sustainable
//!   rate.
//! - [`cost`] draws bars with [`bars`]; [`mod@explain`] writes the sentences.
//! - [`tables`] renders the tables of the text report, and [`facts`] the setup.
//! - [`index`] is the page of a suite of several runs.

mod bars;
mod cost;
mod explain;
mod facts;
mod find_rate;
mod heat;
pub mod index;
pub mod markup;
mod over_time;
mod page;
mod percentiles;
mod plot;
mod scale;
mod series;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::markup::{details, element, escape, heading};
use self::page::{DETAILS, Detail, View};
use super::explain::{self as words, Finding};
use super::selection::{Group, durability, groups};
use super::sweep::has_points;
use super::tables::{phase_tables, summary_tables};
use super::{ReportOptions, theory, throughput};
use rumbench_core::custom::KINDS;

use crate::catalog::WORKLOADS;
use crate::store::result::{SuiteResult, base_name};

/// Size limit of the page in bytes.
pub const LIMIT_BYTES: usize = 1_000_000;

/// Number of different colors; further engines repeat them with other dashes.
const COLORS: usize = 8;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Writes the page into a result folder.
///
/// # Errors
/// When the file cannot be written.
pub fn write(dir: &Path, suite: &SuiteResult, options: &ReportOptions) -> Result<PathBuf> {
    let path = dir.join("report.html");
    std::fs::write(&path, render(suite, options))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Renders the page with the finest detail that stays below [`LIMIT_BYTES`].
pub fn render(suite: &SuiteResult, options: &ReportOptions) -> String {
    let findings = words::explain(suite, options);
    let of = |detail| render_with(suite, options, &findings, detail);
    let coarsest = DETAILS.last().copied();
    let leads = suite.sweep.is_some() || suite.rate_search.is_some();
    if leads && of(coarsest).len() >= LIMIT_BYTES {
        return of(None);
    }
    let mut page = String::new();
    for detail in DETAILS {
        page = of(Some(detail));
        if page.len() < LIMIT_BYTES {
            break;
        }
    }
    page
}

/// Renders the page. Without a detail it has only the summary of a sweep or a search.
fn render_with(
    suite: &SuiteResult,
    options: &ReportOptions,
    findings: &[Finding],
    detail: Option<Detail>,
) -> String {
    let mut engines: Vec<String> = Vec::new();
    for trial in &suite.trials {
        if !engines.contains(&trial.name()) {
            engines.push(trial.name());
        }
    }
    let title = format!("{}: {}", suite.workload, engines.join(", "));
    let mut out = head(&title, engines.len());
    out += &header(suite, &title);
    let mut found = groups(suite, options.mix_durability);
    if detail.is_none() {
        found.clear();
    }
    let mut views = views(suite, &found, &engines, options);
    for view in &mut views {
        view.detail = detail.unwrap_or(DETAILS[0]);
    }
    let points = has_points(suite);
    let leads = points || detail.is_none();
    let sweep =
        sweep::html(suite, &engines, options, leads) + &find_rate::html(suite, &engines, options);
    let title = match suite.rate_search {
        Some(_) => "Highest rate",
        None => "Sweep",
    };
    out += &navigation(&views, (!sweep.is_empty()).then_some(leads), title);
    out += "<main>\n";
    out += &without_numbers(suite, &engines);
    out += &sweep;
    if detail.is_none() {
        out += "<p class=\"warning\">The parts of each point or step would make this page too large: <code>rumbench report DIR --all-tables</code> prints their tables.</p>\n";
    } else if views.is_empty() {
        out += "<h2 id=\"verdict\">Verdict</h2>\n<p>No trial has numbers yet.</p>\n";
    }
    if points {
        for view in &views {
            let content = first_screen(view, findings) + &numbers(view, findings, options);
            out += &details(&view.group.heading(), &content);
        }
    } else {
        for view in &views {
            out += &first_screen(view, findings);
        }
        for view in &views {
            out += &numbers(view, findings, options);
        }
    }
    let tables = views.first().map(|view| view.anchor("tables"));
    out += &explain::warnings(findings, tables.as_deref());
    out += &section("marks", "Marks", &facts::marks(suite));
    let facts = facts::html(suite, &engines, detail.is_none_or(|detail| detail.all_ends));
    out += &section("facts", "Configuration and environment", &facts);
    out += &section("metrics", "What the numbers mean", &tables::definitions());
    out += "</main>\n";
    let written_by = format!(
        "rumbench {}, schema version {}. result.json next to this page holds every number.",
        suite.rumbench_version, suite.schema_version
    );
    out + &end(&written_by)
}

/// Returns a view for each group of comparable engines, with the finest detail.
fn views<'a>(
    suite: &'a SuiteResult,
    groups: &'a [Group<'a>],
    engines: &'a [String],
    options: &ReportOptions,
) -> Vec<View<'a>> {
    let view = |(number, group): (usize, &'a Group<'a>)| View {
        suite,
        group,
        number,
        base: group.base(options.base.as_deref()),
        styles: engines,
        detail: DETAILS[0],
    };
    groups.iter().enumerate().map(view).collect()
}

fn section(id: &str, title: &str, content: &str) -> String {
    format!("<section>{}{content}</section>\n", heading(2, id, title))
}

/// Renders the footer and the script.
fn end(written_by: &str) -> String {
    element("footer", "", written_by)
        + &format!(
            "\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
}

fn head(title: &str, engines: usize) -> String {
    // The policy forbids all fetches, even if escaping fails somewhere.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         {}\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#verdict\">To the verdict</a>\n",
        element("title", "", title),
        engine_styles(engines)
    )
}

/// Renders the color and dashes of each engine. No two of 40 are the same, and neighbors differ in
/// both.
fn engine_styles(engines: usize) -> String {
    const DASHES: [&str; 5] = ["none", "7 3", "2 3", "9 3 2 3", "14 4"];
    (0..engines.max(1))
        .map(|i| {
            let (color, dashes) = (i % COLORS, DASHES[(i + i / (COLORS * DASHES.len())) % DASHES.len()]);
            format!(
                ".s{i}{{stroke:var(--c{color});stroke-dasharray:{dashes}}}.b{i},.f{i}{{fill:var(--c{color})}}\
                 .off{i} .frame .s{i},.off{i} .b{i},.off{i} .u{i},.off{i} .d{i}{{display:none}}.u{i},.d{i}{{stroke:var(--c{color})}}.off{i} .legend .k{i}{{opacity:.4}}\n"
            )
        })
        .chain(std::iter::once(format!(
            // Bands of many engines overlap: together they stay light.
            ".plot path[class^=b]{{opacity:{:.2}}}\n",
            (0.45 / engines.max(1) as f64).min(0.16)
        )))
        .collect()
}

fn header(suite: &SuiteResult, title: &str) -> String {
    let fact = |name: &str| {
        suite
            .environment
            .get(name)
            .map_or("unknown", String::as_str)
    };
    let mut out = format!("<header>\n{}\n", element("h1", "", title));
    let version = suite
        .workload_version
        .map_or("unknown".to_string(), |v| v.to_string());
    out += &element(
        "p",
        "",
        &format!(
            "Workload version {version}, started {}. {} CPUs ({}), kernel {}, {} on {}.",
            suite.started_at,
            fact("cpus"),
            fact("cpu"),
            fact("kernel"),
            fact("file_system"),
            fact("device")
        ),
    );
    out += &element("p", " class=\"command\"", &suite.command);
    if suite.interrupted {
        out += "<p class=\"warning\">The suite was interrupted: only what was measured until then is shown.</p>";
    }
    out + "\n</header>\n"
}

/// Renders the links to the parts. `sweep` is `None` without a sweep or a search, else true if that
/// section comes first; `title` is its title.
fn navigation(views: &[View<'_>], sweep: Option<bool>, title: &str) -> String {
    let mut out = String::from("<nav aria-label=\"Parts of this page\">");
    let mut link =
        |anchor: &str, text: &str| out += &format!("<a href=\"#{anchor}\">{}</a> ", escape(text));
    match sweep {
        Some(true) => link("verdict", title),
        Some(false) => {
            link("sweep", "Aging");
            link("verdict", "Verdict");
        }
        None => link("verdict", "Verdict"),
    }
    for view in views {
        if let Some(point) = &view.group.point {
            link(&view.anchor("verdict"), point);
            continue;
        }
        let suffix = if views.len() > 1 {
            format!(" {}", view.number + 1)
        } else {
            String::new()
        };
        link(&view.anchor("why"), &format!("Why{suffix}"));
        link(&view.anchor("tables"), &format!("Tables{suffix}"));
        for (i, phase) in view.group.phases().iter().enumerate() {
            link(&view.anchor(&format!("p{i}")), phase);
        }
        link(&view.anchor("cost"), &format!("Cost and space{suffix}"));
    }
    link(explain::WARNINGS, "Warnings");
    link("marks", "Marks");
    link("facts", "Configuration");
    link("metrics", "Metrics");
    out + "</nav>\n"
}

/// Renders the engines without a comparable trial, with the reason.
fn without_numbers(suite: &SuiteResult, engines: &[String]) -> String {
    let mut out = String::new();
    for engine in engines {
        let mut trials = suite.trials.iter().filter(|trial| trial.name() == *engine);
        if trials
            .clone()
            .all(|trial| trial.has_mark("wrong-answer") || trial.durability_facts.is_none())
        {
            let reason = trials
                .find_map(|trial| trial.marks.first())
                .map_or("it never started", String::as_str);
            out += &format!(
                "<p class=\"warning\"><b>{}</b> has no numbers: {}</p>\n",
                escape(engine),
                escape(reason)
            );
        }
    }
    out
}

fn first_screen(view: &View<'_>, findings: &[Finding]) -> String {
    let id = if view.number == 0 && view.group.point.is_none() {
        "verdict".to_string()
    } else {
        view.anchor("verdict")
    };
    let failures = view
        .group
        .trials
        .iter()
        .filter(|trial| super::marks::failed(trial))
        .count();
    let mut out = String::from("<section class=\"first\">");
    let several = view.group.trials.len() < view.suite.trials.len();
    let title = match (&view.group.point, several) {
        (Some(point), _) => format!("Verdict at {point}"),
        (None, true) => format!("Verdict {}", view.number + 1),
        (None, false) => "Verdict".to_string(),
    };
    out += &heading(2, &id, &title);
    out += &element("p", " class=\"note pre\"", &view.group.title);
    if failures > 0 {
        out += &format!(
            "<p class=\"warning\">{failures} of {} trials failed: see <a href=\"#marks\">marks</a>.</p>\n",
            view.group.trials.len()
        );
    }
    out += &verdict::sentences(view);
    out += &explain::first_screen(view, findings);
    out += &verdict::relative_bars(view);
    out + "</section>\n"
}

fn numbers(view: &View<'_>, findings: &[Finding], options: &ReportOptions) -> String {
    let promise = view
        .group
        .trials
        .first()
        .filter(|_| !view.group.mixed)
        .map(|trial| format!(", {}", durability(trial)));
    let mut out = explain::section(view, findings);
    out += &format!(
        "<section>{}",
        heading(
            2,
            &view.anchor("tables"),
            &format!("Throughput{}", promise.unwrap_or_default())
        )
    );
    for table in summary_tables(view.suite, view.group, options) {
        out += &tables::html(&table);
    }
    out += "</section>\n";
    for (i, phase) in view.group.phases().iter().enumerate() {
        out += &format!(
            "<section>{}",
            heading(2, &view.anchor(&format!("p{i}")), phase)
        );
        out += &meaning(&view.suite.workload, phase);
        out += &cost::bars(view, phase);
        out += &over_time::charts(view, phase);
        out += &percentiles::charts(view, phase);
        out += &timelines(view, phase);
        for table in phase_tables(view.suite, view.group, phase, options) {
            out += &tables::html(&table);
        }
        out += "</section>\n";
    }
    out += &format!(
        "<section>{}",
        heading(2, &view.anchor("cost"), "Cost and space")
    );
    out += &cost::overview(view);
    for table in throughput::settles(view.group) {
        out += &tables::html(&table);
    }
    if let Some(table) = theory::table(view.suite, view.group) {
        out += &tables::html(&table);
    }
    out + "</section>\n"
}

fn timelines(view: &View<'_>, phase: &str) -> String {
    let lines = timeline::all(view, phase);
    if lines.contains("class=\"h") {
        format!("{}{lines}", heat::key())
    } else {
        lines
    }
}

/// Renders the description of a phase, from the list that `rumbench list phases` prints.
fn meaning(workload: &str, phase: &str) -> String {
    let entry = WORKLOADS.iter().find(|entry| entry.name == workload);
    // All other workloads are files, including the presets.
    let phases = entry.map_or_else(|| KINDS.to_vec(), |entry| (entry.phases)());
    let found = phases.iter().find(|(name, _)| *name == base_name(phase));
    found.map_or(String::new(), |(_, meaning)| {
        element("p", " class=\"note\"", meaning)
    })
}
