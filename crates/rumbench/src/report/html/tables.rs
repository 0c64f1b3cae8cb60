//! Tables of the text report as HTML: the same rows and numbers, and headers with links to the
//! definition of their metric.

use super::markup::escape;
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
pub fn defined(text: &str, metric: Option<&str>) -> String {
    match metric {
        Some(metric) => format!("<a href=\"#{}\">{}</a>", anchor(metric), escape(text)),
        None => escape(text),
    }
}

/// Renders a table of the text report.
pub fn html(table: &Table) -> String {
    let mut out = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table class=\"sortable\"><caption>{0}</caption>\n<thead><tr>",
        escape(&table.title)
    );
    for (i, header) in table.headers.iter().enumerate() {
        let class = if i < table.text_columns {
            " class=\"t\""
        } else {
            ""
        };
        out += &format!(
            "<th scope=\"col\"{class}>{}",
            defined(header, metric_of(header))
        );
    }
    out += "</thead><tbody>\n";
    for (number, row) in table.rows.iter().enumerate() {
        out += "<tr>";
        for (i, cell) in row.iter().enumerate() {
            let metric = metrics::find(cell).map(|metric| metric.name);
            let text = defined(cell, metric.filter(|_| i < table.text_columns));
            out += &match i {
                0 => format!("<th scope=\"row\">{text}"),
                i if i < table.text_columns => format!("<td class=\"t\">{text}"),
                _ => format!("<td{}>{text}", background(table.tints.get(&(number, i)))),
            };
        }
        out.push('\n');
    }
    out += "</tbody></table></div>\n";
    for note in &table.notes {
        out += &format!("<p class=\"note\">{}</p>\n", escape(note));
    }
    out
}

/// Returns the attributes of a tinted cell; the colors are in the style sheet.
fn background(tint: Option<&Tint>) -> String {
    let class = match tint {
        None => return String::new(),
        Some(Tint::Share(twentieths)) => {
            return format!(" class=\"share\" style=\"--n:{twentieths}\"");
        }
        Some(Tint::Good) => "good",
        Some(Tint::Bad) => "bad",
        Some(Tint::Missed) => "missed",
        Some(Tint::Above) => "above",
        Some(Tint::Below) => "below",
    };
    format!(" class=\"{class}\"")
}

/// Renders the definitions of all metrics, from the same table as `rumbench explain`.
pub fn definitions() -> String {
    let mut out = String::from("<dl class=\"metrics\">\n");
    for metric in METRICS {
        let unit = if metric.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", metric.unit)
        };
        out += &format!(
            "<dt id=\"{}\">{}{}\n",
            anchor(metric.name),
            escape(metric.name),
            escape(&unit)
        );
        out += &format!(
            "<dd>{} <span class=\"note\">{}</span>\n",
            escape(metric.definition),
            escape(metric.formula)
        );
    }
    out + "</dl>\n"
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
        crate::report::assert_snapshot("table.html", &html(&table));
    }
}
