//! `DIR/report.html`: one file for people, made from `result.json` alone, with charts and
//! everything in the text report.
//!
//! The page has no external links, is readable without scripts and stays below [`LIMIT_BYTES`]:
//! charts get coarser, never wrong, until it does.
//!
//! - [`page`] holds the state that the parts share, [`mod@markup`] their common markup; maud's
//!   macro escapes all text. [`verdict`] renders the first screen.
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
use maud::{Markup, PreEscaped, html};

use self::page::{DETAILS, Detail, View};
use super::explain::{self as words, Finding};
use super::selection::{Group, durability, groups};
use super::sweep::has_points;
use super::tables::{phase_tables, summary_tables};
use super::{ReportOptions, theory, throughput};
use rumbench_core::custom::KINDS;

use crate::catalog::WORKLOADS;
use crate::store::result::{SuiteResult, TrialResult, base_name};

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
    let engines = names(&suite.trials);
    let title = format!("{}: {}", suite.workload, engines.join(", "));
    let mut found = groups(suite, options.mix_durability);
    if detail.is_none() {
        found.clear();
    }
    let views = views(
        suite,
        &found,
        &engines,
        options,
        detail.unwrap_or(DETAILS[0]),
    );
    let leads = has_points(suite) || detail.is_none();
    let sweep = html! {
        (sweep::html(suite, &engines, options, leads))
        (find_rate::html(suite, &engines, options))
    };
    let body = html! {
        (header(suite, &title))
        (navigation(&views, (!sweep.0.is_empty()).then_some(leads), suite.rate_search.is_some()))
        main {
            (without_numbers(suite, &engines))
            (sweep)
            @if detail.is_none() {
                p.warning {
                    "The parts of each point or step would make this page too large: "
                    code { "rumbench report DIR --all-tables" } " prints their tables."
                }
            } @else if views.is_empty() {
                h2 #verdict { "Verdict" }
                p { "No trial has numbers yet." }
            }
            (groups_of_engines(suite, &views, findings, options))
            (explain::warnings(findings, views.first()))
            section { h2 #marks { "Marks" } (facts::marks(suite)) }
            section {
                h2 #facts { "Configuration and environment" }
                (facts::html(suite, &engines, detail.is_none_or(Detail::all_ends)))
            }
            section { h2 #metrics { "What the numbers mean" } (tables::definitions()) }
        }
    };
    let written_by = format!(
        "rumbench {}, schema version {}. result.json next to this page holds every number.",
        suite.rumbench_version, suite.schema_version
    );
    whole_page(&title, engines.len(), &body, &written_by)
}

/// Returns the names of all engines, in the order of their trials.
fn names<'a>(trials: impl IntoIterator<Item = &'a TrialResult>) -> Vec<String> {
    let mut names = Vec::new();
    for name in trials.into_iter().map(TrialResult::name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns a view for each group of comparable engines.
fn views<'a>(
    suite: &'a SuiteResult,
    groups: &'a [Group<'a>],
    engines: &'a [String],
    options: &ReportOptions,
    detail: Detail,
) -> Vec<View<'a>> {
    let view = |(number, group): (usize, &'a Group<'a>)| View {
        suite,
        group,
        number,
        base: group.base(options.base.as_deref()),
        styles: engines,
        detail,
    };
    groups.iter().enumerate().map(view).collect()
}

/// Renders a page with its style and script around the body.
fn whole_page(title: &str, engines: usize, body: &Markup, written_by: &str) -> String {
    // The policy forbids all fetches, even if escaping fails somewhere.
    const POLICY: &str =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    let page = html! {
        (PreEscaped("<!doctype html>"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(engine_styles(engines))) }
            }
            body {
                a.skip href="#verdict" { "To the verdict" }
                (body)
                footer { (written_by) }
                div #tip role="status" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    markup::visible(&page.into_string())
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

fn header(suite: &SuiteResult, title: &str) -> Markup {
    let fact = |name: &str| {
        let found = suite.environment.get(name);
        found.map_or("unknown", String::as_str)
    };
    let version = suite.workload_version;
    let version = version.map_or("unknown".to_string(), |v| v.to_string());
    html! {
        header {
            h1 { (title) }
            p {
                "Workload version " (version) ", started " (suite.started_at) ". "
                (fact("cpus")) " CPUs (" (fact("cpu")) "), kernel " (fact("kernel")) ", "
                (fact("file_system")) " on " (fact("device")) "."
            }
            p.command { (suite.command) }
            @if suite.interrupted {
                p.warning {
                    "The suite was interrupted: only what was measured until then is shown."
                }
            }
        }
    }
}

/// Renders the links to the parts. `sweep` is `None` without a sweep or a search, else true if that
/// section comes first.
fn navigation(views: &[View<'_>], sweep: Option<bool>, is_search: bool) -> Markup {
    let link = |anchor: &str, text: &str| html! { a href={ "#" (anchor) } { (text) } " " };
    let first = match sweep {
        Some(true) if is_search => "Highest rate",
        Some(true) => "Sweep",
        _ => "Verdict",
    };
    html! {
        nav aria-label="Parts of this page" {
            @if sweep == Some(false) { (link("sweep", "Aging")) }
            (link("verdict", first))
            @for view in views {
                @if let Some(point) = &view.group.point {
                    (link(&view.anchor("verdict"), point))
                } @else {
                    @let suffix = match views.len() {
                        0 | 1 => String::new(),
                        _ => format!(" {}", view.number + 1),
                    };
                    (link(&view.anchor("why"), &format!("Why{suffix}")))
                    (link(&view.anchor("tables"), &format!("Tables{suffix}")))
                    @for (i, phase) in view.group.phases().iter().enumerate() {
                        (link(&view.anchor(&format!("p{i}")), phase))
                    }
                    (link(&view.anchor("cost"), &format!("Cost and space{suffix}")))
                }
            }
            (link(explain::WARNINGS, "Warnings"))
            (link("marks", "Marks"))
            (link("facts", "Configuration"))
            (link("metrics", "Metrics"))
        }
    }
}

/// Renders the engines without a comparable trial, with the reason.
fn without_numbers(suite: &SuiteResult, engines: &[String]) -> Markup {
    html! {
        @for engine in engines {
            @let trials = || suite.trials.iter().filter(|trial| trial.name() == *engine);
            @if trials().all(|t| t.has_mark("wrong-answer") || t.durability_facts.is_none()) {
                @let reason = trials().find_map(|trial| trial.marks.first());
                p.warning {
                    b { (engine) } " has no numbers: "
                    (reason.map_or("it never started", String::as_str))
                }
            }
        }
    }
}

/// Renders the verdicts of all groups and then their numbers; the points of a sweep are folded.
fn groups_of_engines(
    suite: &SuiteResult,
    views: &[View<'_>],
    findings: &[Finding],
    options: &ReportOptions,
) -> Markup {
    if has_points(suite) {
        return html! {
            @for view in views {
                details {
                    summary { (view.group.heading()) }
                    (first_screen(view, findings)) (numbers(view, findings, options))
                }
            }
        };
    }
    html! {
        @for view in views { (first_screen(view, findings)) }
        @for view in views { (numbers(view, findings, options)) }
    }
}

fn first_screen(view: &View<'_>, findings: &[Finding]) -> Markup {
    let id = if view.number == 0 && view.group.point.is_none() {
        "verdict".to_string()
    } else {
        view.anchor("verdict")
    };
    let trials = &view.group.trials;
    let failures = trials
        .iter()
        .filter(|trial| super::marks::failed(trial))
        .count();
    let several = trials.len() < view.suite.trials.len();
    let title = match (&view.group.point, several) {
        (Some(point), _) => format!("Verdict at {point}"),
        (None, true) => format!("Verdict {}", view.number + 1),
        (None, false) => "Verdict".to_string(),
    };
    html! {
        section.first {
            h2 id=(id) { (title) }
            p class="note pre" { (view.group.title) }
            @if failures > 0 {
                p.warning {
                    (failures) " of " (trials.len()) " trials failed: see "
                    a href="#marks" { "marks" } "."
                }
            }
            (verdict::sentences(view))
            (explain::first_screen(view, findings))
            (verdict::relative_bars(view))
        }
    }
}

fn numbers(view: &View<'_>, findings: &[Finding], options: &ReportOptions) -> Markup {
    let first = view.group.trials.first().filter(|_| !view.group.mixed);
    let promise = first.map(|trial| format!(", {}", durability(trial)));
    html! {
        (explain::section(view, findings))
        section {
            h2 id=(view.anchor("tables")) { "Throughput" (promise.unwrap_or_default()) }
            @for table in summary_tables(view.suite, view.group, options) { (table) }
        }
        @for (i, phase) in view.group.phases().iter().enumerate() {
            section {
                h2 id=(view.anchor(&format!("p{i}"))) { (phase) }
                (meaning(&view.suite.workload, phase))
                (cost::bars(view, phase))
                (over_time::charts(view, phase))
                (percentiles::charts(view, phase))
                (timelines(view, phase))
                @for table in phase_tables(view.suite, view.group, phase, options) { (table) }
            }
        }
        section {
            h2 id=(view.anchor("cost")) { "Cost and space" }
            (cost::overview(view))
            @for table in throughput::settles(view.group) { (table) }
            @if let Some(table) = theory::table(view.suite, view.group) { (table) }
        }
    }
}

fn timelines(view: &View<'_>, phase: &str) -> Markup {
    let lines = timeline::all(view, phase);
    html! {
        @if lines.0.contains("class=\"h") { (heat::key()) }
        (lines)
    }
}

/// Renders the description of a phase, from the list that `rumbench list phases` prints.
fn meaning(workload: &str, phase: &str) -> Markup {
    let entry = WORKLOADS.iter().find(|entry| entry.name == workload);
    // All other workloads are files, including the presets.
    let phases = entry.map_or_else(|| KINDS.to_vec(), |entry| (entry.phases)());
    let found = phases.iter().find(|(name, _)| *name == base_name(phase));
    html! {
        @if let Some((_, meaning)) = found { p.note { (meaning) } }
    }
}
