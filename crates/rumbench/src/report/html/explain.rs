//! Causes of the result in words: short sentences on the first screen, and further down all
//! sentences with links to their figures.

use maud::{Markup, html};

use super::markup::engine_line;
use super::page::View;
use crate::report::explain::{Figure, Finding, Kind};

/// Anchor of the warnings.
pub const WARNINGS: &str = "warnings";

/// Returns the findings about a group.
fn of_view<'f>(view: &View<'_>, findings: &'f [Finding]) -> Vec<&'f Finding> {
    let own = |finding: &&Finding| finding.group == Some(view.number);
    findings.iter().filter(own).collect()
}

/// Returns the findings about the whole suite.
fn of_suite(findings: &[Finding]) -> Vec<&Finding> {
    let about = |finding: &&Finding| finding.group.is_none();
    findings.iter().filter(about).collect()
}

/// Renders one line for each engine about the main phase, and the number of warnings.
pub fn first_screen(view: &View<'_>, findings: &[Finding]) -> Markup {
    let Some(phase) = view.main_phase() else {
        return Markup::default();
    };
    let own = of_view(view, findings);
    let brief = |engine: &String| {
        let here = own.iter().filter(|found| {
            found.phase.as_ref() == Some(&phase) && found.engine.as_ref() == Some(engine)
        });
        here.filter_map(|found| found.brief.as_deref())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let engines = view.group.engines_of(&phase);
    let lines = engines.iter().map(|engine| (engine, brief(engine)));
    let lines: Vec<_> = lines.filter(|(_, brief)| !brief.is_empty()).collect();
    let warnings = of_suite(findings).len();
    html! {
        @if !lines.is_empty() {
            p.note {
                "What decided " (phase) " ("
                a href={ "#" (view.anchor("why")) } { "all phases, with the figures" } "):"
            }
            ul class="verdict why" {
                @for (engine, brief) in lines {
                    (engine_line(view.style(engine), &view.group.label(engine), brief + "."))
                }
            }
        }
        @if warnings > 0 {
            @let speak = if warnings == 1 { "thing speaks" } else { "things speak" };
            p.note {
                a href={ "#" (WARNINGS) } {
                    (warnings) " " (speak) " against the experiment itself"
                }
                "."
            }
        }
    }
}

/// Renders all findings about a group, phase by phase.
pub fn section(view: &View<'_>, findings: &[Finding]) -> Markup {
    let findings = of_view(view, findings);
    html! {
        section {
            h2 id=(view.anchor("why")) { "What decided it" }
            @if findings.is_empty() { p { "No phase has ended that tells enough." } }
            @for of_phase in findings.chunk_by(|a, b| a.phase == b.phase) {
                h3 { (of_phase[0].phase.as_deref().unwrap_or_default()) }
                ul {
                    @for finding in of_phase {
                        (item(finding, |figure| place(view, finding, figure)))
                    }
                }
            }
        }
    }
}

/// Renders the warnings about the experiment. `first` is the first group, if there is one.
pub fn warnings(findings: &[Finding], first: Option<&View<'_>>) -> Markup {
    let findings = of_suite(findings);
    let tables = first.map(|view| view.anchor("tables"));
    html! {
        section {
            h2 id=(WARNINGS) { "About the experiment" }
            @if findings.is_empty() {
                p { "Nothing speaks against it." }
            } @else {
                ul {
                    @for finding in findings {
                        (item(finding, |figure| place_of_suite(figure, tables.as_deref())))
                    }
                }
            }
        }
    }
}

fn item(finding: &Finding, place: impl Fn(&Figure) -> String) -> Markup {
    let anchor = |metric: &str| {
        let mut figures = finding.figures.iter();
        let figure = figures.find(|figure| figure.metric == metric);
        figure.map_or(String::new(), &place)
    };
    let class = match finding.kind {
        Kind::Bound => "why-bound",
        Kind::Cost => "why-cost",
        Kind::Stall => "why-stall",
        Kind::Theory => "why-theory",
        Kind::Function => "why-function",
        Kind::Warning => "why-warning",
    };
    html! {
        li class=(class) {
            @if let Some(engine) = &finding.engine { b { (engine) } " " }
            (finding.text) " "
            span.note {
                "["
                @for (i, metric) in finding.metrics().into_iter().enumerate() {
                    @if i > 0 { ", " }
                    a href={ "#" (anchor(metric)) } { (metric) }
                }
                "]"
            }
        }
    }
}

/// Returns the anchor of a phase's figure.
fn place(view: &View<'_>, finding: &Finding, figure: &Figure) -> String {
    let of_cost = [
        "size_bytes.",
        "amplification.",
        "reads_per_op",
        "kb_read_per_op",
    ];
    if of_cost.iter().any(|start| figure.metric.starts_with(start)) {
        return view.anchor("cost");
    }
    let phases = view.group.phases();
    let number = phases
        .iter()
        .position(|name| Some(name) == finding.phase.as_ref());
    match number {
        Some(number) => view.anchor(&format!("p{number}")),
        None => view.anchor("cost"),
    }
}

/// Returns the anchor of a fact about the suite.
fn place_of_suite(figure: &Figure, tables: Option<&str>) -> String {
    const FACTS: [&str; 7] = [
        "machine",
        "profile",
        "memory.",
        "environment.",
        "cache_state",
        "durability_facts",
        "calibration",
    ];
    let is_fact = FACTS.iter().any(|start| figure.metric.starts_with(start));
    match (figure.metric.as_str(), tables) {
        ("marks" | "interrupted" | "ended_at" | "resumed_at", _) => "marks",
        (_, Some(tables)) if !is_fact => tables,
        _ => "facts",
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use crate::report::sample;
    use crate::report::{ReportOptions, html};

    #[test]
    fn sentences_stand_on_the_first_screen_and_link_to_their_figures() {
        let mut suite = sample::suite();
        for trial in &mut suite.trials {
            let phase = &mut trial.phases[1];
            phase.clients = Some(2);
            let cpu = phase.cpu_us_per_op.as_mut().unwrap();
            cpu.engine_foreground = 1.8e6 / phase.ops_per_s.unwrap();
        }
        let page = html::render(&suite, &ReportOptions::default());
        let bars = page.find("Throughput relative to").unwrap();
        let first = page.find("What decided request").unwrap();
        assert!(first < bars, "it is on the first screen");
        let section = &page[page.find("id=\"g0-why\"").unwrap()..];
        assert!(
            section.contains("<a href=\"#g0-p1\">cpu_us_per_op.engine_foreground</a>"),
            "{section}"
        );
        assert!(
            section.contains("<a href=\"#warnings\">") || page.contains("<a href=\"#warnings\">")
        );
        for (at, _) in page.match_indices("href=\"#") {
            let rest = &page[at + 7..];
            let anchor = &rest[..rest.find('"').unwrap()];
            assert!(
                page.contains(&format!("id=\"{anchor}\"")),
                "#{anchor} leads nowhere"
            );
        }
    }
}
