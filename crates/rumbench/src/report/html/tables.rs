//! Tables of the text report as HTML: the same rows and numbers, and headers with links to the
//! definition of their metric.

use maud::{Markup, Render, html};

use crate::measure::metrics::{self, METRICS};
use crate::report::table::{Table, Tint};

/// Headers without their unit, and the metric of each.
const HEADERS: &[(&str, &str)] = &[
    ("CPU total", "cpu_us_per_op.total"),
    ("client", "cpu_us_per_op.client"),
    ("engine foreground", "cpu_us_per_op.engine_foreground"),
    ("engine background", "cpu_us_per_op.engine_background"),
    ("server", "cpu_us_per_op.server"),
    ("machine", "cpu_us_per_op.machine"),
    ("stalls", "stall_seconds"),
    ("longest stall", "longest_stall_ms"),
    ("errors", "errors"),
    ("retries", "retries"),
    ("ips", "rows_per_s"),
    ("qps", "ops_per_s"),
    ("rpi", "reads_per_op"),
    ("rpq", "reads_per_op"),
    ("rkbpi", "kb_read_per_op"),
    ("rkbpq", "kb_read_per_op"),
    ("wkbpi", "kb_written_per_op"),
    ("wkbpq", "kb_written_per_op"),
    ("wkbpi settled", "kb_written_per_op_settled"),
    ("wkbpq settled", "kb_written_per_op_settled"),
    ("cspi", "context_switches_per_op"),
    ("cspq", "context_switches_per_op"),
    ("cpupi", "cpu_us_per_op.machine"),
    ("cpupq", "cpu_us_per_op.machine"),
    ("csecpi", "cpu_us_per_op.client"),
    ("csecpq", "cpu_us_per_op.client"),
    ("dsecpi", "cpu_us_per_op.engine_foreground"),
    ("dsecpq", "cpu_us_per_op.engine_foreground"),
    ("dbgb1", "size_bytes.data"),
    ("dbgb2", "size_bytes.directory"),
    ("rss", "rss_bytes.peak"),
    ("ops_sec", "ops_per_s"),
    ("rows_sec", "rows_per_s"),
    ("mb_sec", "rows_per_s"),
    ("usec_op", "latency_us"),
    ("pmax", "latency_us"),
    ("cpu", "cpu_us_per_op.total"),
    ("background cpu", "cpu_us_per_op.engine_background"),
    ("wkb_op", "kb_written_per_op"),
    ("w_amp", "amplification.write"),
    ("w_amp settled", "amplification.write_settled"),
    ("lsm_sz", "size_bytes.data"),
    ("writer", "background.ops_per_s"),
    ("writer asked", "background.rate"),
    ("writer p99", "background.latency_us"),
    ("writer pmax", "background.latency_us"),
    ("writer cpu", "background.cpu_us_per_op"),
    ("mean", "latency_us"),
    ("p50", "latency_us"),
    ("p95", "latency_us"),
    ("p99", "latency_us"),
    ("p99.9", "latency_us"),
    ("p99.99", "latency_us"),
    ("max", "latency_us"),
    ("data", "size_bytes.data"),
    ("directory", "size_bytes.directory"),
    ("peak", "size_bytes.peak"),
    ("read amplification", "amplification.read"),
    ("write amplification", "amplification.write"),
    ("write amplification settled", "amplification.write_settled"),
    ("space amplification", "amplification.space"),
    ("device reads", "reads_per_op"),
    ("written", "kb_written_per_op"),
    ("written settled", "kb_written_per_op_settled"),
    ("anonymous", "rss_bytes.anonymous"),
    ("device life", "device_years"),
    ("device writes", "device_writes"),
    ("databases per TB", "databases_per_tb"),
    ("cores per 10,000 op/s", "cores_per_10000"),
];

/// Returns the metric of a header: by its name, or by the unit of a phase's throughput.
fn metric_of(header: &str) -> Option<&'static str> {
    let (name, unit) = header.rsplit_once(" (").unwrap_or((header, ""));
    let known = HEADERS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, metric)| *metric);
    known.or(match unit {
        "op/s)" => Some("ops_per_s"),
        "rows/s)" => Some("rows_per_s"),
        _ => None,
    })
}

/// Returns the anchor of a metric's definition.
fn anchor(metric: &str) -> String {
    format!("m-{metric}")
}

/// Renders text with a link to the definition of its metric, if it has one.
pub fn defined(text: &str, metric: Option<&str>) -> Markup {
    html! {
        @if let Some(metric) = metric { a href={ "#" (anchor(metric)) } { (text) } }
        @else { (text) }
    }
}

/// A large page has 16,000 cells, so end tags that HTML does not need are left out:
/// `td;` writes none.
impl Render for Table {
    fn render(&self) -> Markup {
        html! {
            div.scroll role="region" tabindex="0" aria-label=(self.title) {
                table.sortable {
                    caption { (self.title) }
                    thead {
                        tr;
                        @for (i, header) in self.headers.iter().enumerate() {
                            th scope="col" class=[(i < self.text_columns).then_some("t")];
                            (defined(header, metric_of(header)))
                        }
                    }
                    tbody {
                        @for (number, row) in self.rows.iter().enumerate() {
                            tr;
                            @for (i, text) in row.iter().enumerate() {
                                (self.cell(number, i, text))
                            }
                        }
                    }
                }
            }
            @for note in &self.notes { p.note { (note) } }
        }
    }
}

impl Table {
    fn cell(&self, row: usize, column: usize, text: &str) -> Markup {
        let of_text = column < self.text_columns;
        let metric = metrics::find(text).filter(|_| of_text);
        let tint = self.tints.get(&(row, column)).filter(|_| !of_text);
        let class = match tint {
            None => of_text.then_some("t"),
            Some(Tint::Share(_)) => Some("share"),
            Some(Tint::Good) => Some("good"),
            Some(Tint::Bad) => Some("bad"),
            Some(Tint::Missed) => Some("missed"),
            Some(Tint::Above) => Some("above"),
            Some(Tint::Below) => Some("below"),
        };
        let share = match tint {
            Some(Tint::Share(twentieths)) => Some(format!("--n:{twentieths}")),
            _ => None,
        };
        html! {
            @if column == 0 { th scope="row"; } @else { td class=[class] style=[share]; }
            (defined(text, metric.map(|metric| metric.name)))
        }
    }
}

/// Renders the definitions of all metrics, from the same table as `rumbench explain`.
pub fn definitions() -> Markup {
    html! {
        dl.metrics {
            @for metric in METRICS {
                dt id=(anchor(metric.name));
                (metric.name) @if !metric.unit.is_empty() { " (" (metric.unit) ")" }
                dd;
                (metric.definition) " " span.note { (metric.formula) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_leads_to_a_metric_that_exists() {
        for (header, metric) in HEADERS {
            assert!(
                metrics::find(metric).is_some(),
                "{header}: there is no metric {metric}"
            );
        }
        assert_eq!(metric_of("p99.9 (us)"), Some("latency_us"));
        assert_eq!(metric_of("request#2 (op/s)"), Some("ops_per_s"));
        assert_eq!(metric_of("engine"), None);
    }

    #[test]
    fn a_small_table_is_unchanged() {
        let mut table = Table::new("Spread <1>", &["engine", "metric", "p99 (us)"]);
        table.text_columns = 2;
        table
            .rows
            .push(["a&b", "ops_per_s", "1,234"].map(str::to_string).into());
        table.tint_last(Some(Tint::Share(7)));
        table
            .rows
            .push(["c", "ops_per_s", "5 R"].map(str::to_string).into());
        table.tint_last(Some(Tint::Bad));
        table.notes.push("5 < 6".to_string());
        crate::report::assert_snapshot("table.html", &html! { (table) }.0);
    }
}
