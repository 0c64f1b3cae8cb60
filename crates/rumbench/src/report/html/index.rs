//! `DIR/index.html` of a suite of several runs: the verdict on each run, and a link to its page.

use maud::{Markup, html};

use super::page::{DETAILS, View};
use super::{names, verdict, views, whole_page};
use crate::report::ReportOptions;
use crate::report::selection::groups;
use crate::store::result::SuiteResult;

/// One run of the suite.
pub struct Entry {
    /// Name of the run's folder.
    pub name: String,
    /// Command line of the run.
    pub command: String,
    /// Result so far. `None` if the run has not begun.
    pub result: Option<SuiteResult>,
    /// Options for the comparison of its engines.
    pub options: ReportOptions,
}

/// Renders the page.
pub fn render(description: &str, entries: &[Entry]) -> String {
    let results = entries.iter().filter_map(|entry| entry.result.as_ref());
    let engines = names(results.flat_map(|result| &result.trials));
    let body = html! {
        header { h1 { (description) } }
        main #verdict {
            @for entry in entries { (section(entry, &engines)) }
        }
    };
    let written_by = format!(
        "rumbench {}. Each folder next to this page holds a run, with all its numbers in result.json.",
        env!("CARGO_PKG_VERSION")
    );
    whole_page(description, engines.len(), &body, &written_by)
}

fn section(entry: &Entry, engines: &[String]) -> Markup {
    let name = &entry.name;
    let Some(result) = &entry.result else {
        return html! { section.first { h2 { (name) } p { "Not begun yet." } } };
    };
    let found = groups(result, entry.options.mix_durability);
    let views: Vec<View<'_>> = views(result, &found, engines, &entry.options, DETAILS[0]);
    html! {
        section.first {
            h2 { a href={ (name) "/report.html" } { (name) } }
            p.command { (entry.command) }
            @if result.interrupted {
                p.warning { "It was interrupted: only what was measured until then is shown." }
            }
            @for view in &views {
                p class="note pre" { (view.group.title) }
                (verdict::sentences(view))
                (verdict::relative_bars(view))
            }
            @if views.is_empty() { p { "No trial has numbers yet." } }
        }
    }
}
