//! `DIR/index.html` of a suite of several runs: the verdict on each run, and a link to its page.

use super::markup::{element, escape};
use super::page::View;
use super::verdict;
use super::{end, head, views};
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
    let mut engines: Vec<String> = Vec::new();
    let results = entries.iter().filter_map(|entry| entry.result.as_ref());
    for trial in results.flat_map(|result| &result.trials) {
        if !engines.contains(&trial.name()) {
            engines.push(trial.name());
        }
    }
    let mut out = head(description, engines.len());
    out += &format!(
        "<header>\n{}\n</header>\n<main id=\"verdict\">\n",
        element("h1", "", description)
    );
    for entry in entries {
        out += &section(entry, &engines);
    }
    out += "</main>\n";
    let text = format!(
        "rumbench {}. Each folder next to this page holds a run, with all its numbers in result.json.",
        env!("CARGO_PKG_VERSION")
    );
    out + &end(&text)
}

fn section(entry: &Entry, engines: &[String]) -> String {
    let name = escape(&entry.name);
    let mut out = String::from("<section class=\"first\">");
    let Some(result) = &entry.result else {
        let text = "Not begun yet.";
        return format!(
            "{out}<h2>{name}</h2>\n{}</section>\n",
            element("p", "", text)
        );
    };
    out += &format!("<h2><a href=\"{name}/report.html\">{name}</a></h2>\n");
    out += &element("p", " class=\"command\"", &entry.command);
    if result.interrupted {
        out += "<p class=\"warning\">It was interrupted: only what was measured until then is shown.</p>\n";
    }
    let found = groups(result, entry.options.mix_durability);
    let views: Vec<View<'_>> = views(result, &found, engines, &entry.options);
    for view in &views {
        out += &element("p", " class=\"note pre\"", &view.group.title);
        out += &verdict::sentences(view);
        out += &verdict::relative_bars(view);
    }
    if views.is_empty() {
        out += "<p>No trial has numbers yet.</p>\n";
    }
    out + "</section>\n"
}
