//! Causes of the result in words: short sentences on the first screen, and further down all
//! sentences with links to their figures.

use super::markup::{element, escape, heading};
use super::page::View;
use super::plot::swatch;
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
pub fn first_screen(view: &View<'_>, findings: &[Finding]) -> String {
    let Some(phase) = view.main_phase() else {
        return String::new();
    };
    let own = of_view(view, findings);
    let mut lines = String::new();
    for engine in view.group.engines_of(&phase) {
        let here = |found: &&&Finding| {
            found.phase.as_ref() == Some(&phase) && found.engine.as_ref() == Some(&engine)
        };
        let here = own.iter().filter(here);
        let briefs: Vec<&str> = here.filter_map(|found| found.brief.as_deref()).collect();
        if briefs.is_empty() {
            continue;
        }
        lines += &format!(
            "<li data-k=\"{}\">{}<b>{}</b> {}.</li>\n",
            view.style(&engine),
            swatch(view.style(&engine)),
            escape(&view.group.label(&engine)),
            escape(&briefs.join("; "))
        );
    }
    let mut out = String::new();
    if !lines.is_empty() {
        let why = view.anchor("why");
        out += &format!(
            "<p class=\"note\">What decided {} (<a href=\"#{why}\">all phases, with the figures</a>):</p>\n<ul class=\"verdict why\">\n{lines}</ul>\n",
            escape(&phase)
        );
    }
    let warnings = of_suite(findings).len();
    if warnings > 0 {
        let what = if warnings == 1 {
            "thing speaks"
        } else {
            "things speak"
        };
        out += &format!(
            "<p class=\"note\"><a href=\"#{WARNINGS}\">{warnings} {what} against the experiment itself</a>.</p>\n"
        );
    }
    out
}

/// Renders all findings about a group, phase by phase.
pub fn section(view: &View<'_>, findings: &[Finding]) -> String {
    let findings = of_view(view, findings);
    let mut out = format!(
        "<section>{}",
        heading(2, &view.anchor("why"), "What decided it")
    );
    if findings.is_empty() {
        return out + "<p>No phase has ended that tells enough.</p>\n</section>\n";
    }
    let mut phase: Option<&String> = None;
    for finding in findings {
        if finding.phase.as_ref() != phase {
            if phase.is_some() {
                out += "</ul>\n";
            }
            phase = finding.phase.as_ref();
            out += &element("h3", "", phase.map_or("", String::as_str));
            out += "\n<ul>\n";
        }
        out += &item(finding, &|figure| place(view, finding, figure));
    }
    out + "</ul>\n</section>\n"
}

/// Renders the warnings about the experiment. `tables` is the anchor of the first tables, if there
/// are any.
pub fn warnings(findings: &[Finding], tables: Option<&str>) -> String {
    let findings = of_suite(findings);
    let mut out = format!("<section>{}", heading(2, WARNINGS, "About the experiment"));
    if findings.is_empty() {
        return out + "<p>Nothing speaks against it.</p>\n</section>\n";
    }
    out += "<ul>\n";
    for finding in findings {
        out += &item(finding, &|figure| place_of_suite(figure, tables));
    }
    out + "</ul>\n</section>\n"
}

fn item(finding: &Finding, place: &dyn Fn(&Figure) -> String) -> String {
    let engine = finding.engine.as_ref();
    let engine = engine.map_or(String::new(), |engine| {
        format!("{} ", element("b", "", engine))
    });
    let metrics = finding.metrics();
    let figure = |metric: &&str| {
        let figure = finding
            .figures
            .iter()
            .find(|figure| figure.metric == **metric);
        let to = figure.map_or(String::new(), place);
        format!("<a href=\"#{to}\">{}</a>", escape(metric))
    };
    let links: Vec<String> = metrics.iter().map(figure).collect();
    let class = match finding.kind {
        Kind::Bound => "why-bound",
        Kind::Cost => "why-cost",
        Kind::Stall => "why-stall",
        Kind::Theory => "why-theory",
        Kind::Function => "why-function",
        Kind::Warning => "why-warning",
    };
    format!(
        "<li class=\"{class}\">{engine}{} <span class=\"note\">[{}]</span></li>\n",
        escape(&finding.text),
        links.join(", ")
    )
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
