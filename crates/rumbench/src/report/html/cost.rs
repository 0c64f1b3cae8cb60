//! Costs of a phase: bars for CPU and written bytes of each operation, tables of sizes and
//! amplification, and a triangle of read, write and space cost.

use super::bars::{Bar, BarTable, engine_class};
use super::markup::escape;
use super::page::View;
use super::tables;
use super::verdict::written;
use crate::report::table::Table;
use crate::report::throughput::{item, per_item};
use crate::store::result::{CpuPerOp, PhaseResult};
use crate::text::{gib, number};

/// Part of the CPU time: its CSS class, its name and its getter.
type Part = (&'static str, &'static str, fn(&CpuPerOp) -> Option<f64>);

const PARTS: [Part; 4] = [
    ("p0", "client", |cpu| cpu.client),
    ("p1", "engine foreground", |cpu| Some(cpu.engine_foreground)),
    ("p2", "engine background", |cpu| Some(cpu.engine_background)),
    ("p3", "server", |cpu| cpu.server),
];

/// Renders CPU and written KiB per operation, next to each other.
pub fn bars(view: &View<'_>, phase: &str) -> String {
    let tables = [cpu(view, phase), io(view, phase)];
    let tables: String = tables.iter().flatten().map(BarTable::html).collect();
    if tables.is_empty() {
        tables
    } else {
        format!("<div class=\"cards\">{tables}</div>\n")
    }
}

fn cpu(view: &View<'_>, phase: &str) -> Option<BarTable> {
    let of = |engine: &str, value: &dyn Fn(&CpuPerOp) -> Option<f64>| {
        view.group.median(engine, phase, |p| {
            per_item(p, p.cpu_us_per_op.as_ref().and_then(value))
        })
    };
    let engines = view.group.engines_of(phase);
    let total = |engine: &str| of(engine, &|cpu| Some(cpu.total));
    let whole = engines
        .iter()
        .filter_map(|engine| total(engine))
        .fold(0.0, f64::max);
    let mut table = BarTable::new(
        format!("CPU for each {} (us)", item(phase)),
        vec!["total".to_string()],
    );
    for (class, name, value) in PARTS {
        if engines
            .iter()
            .any(|engine| of(engine, &value).is_some_and(|us| us > 0.0))
        {
            table.key.push((class.to_string(), name.to_string()));
        }
    }
    for engine in &engines {
        let parts =
            PARTS.map(|(class, _, value)| (class.to_string(), of(engine, &value).unwrap_or(0.0)));
        table.rows.push((
            view.group.label(engine),
            Bar::stacked(&parts, whole),
            vec![number(total(engine))],
        ));
    }
    (whole > 0.0).then_some(table)
}

fn io(view: &View<'_>, phase: &str) -> Option<BarTable> {
    let of = |engine: &str, value: fn(&PhaseResult) -> Option<f64>| {
        view.group.median(engine, phase, |p| per_item(p, value(p)))
    };
    let engines = view.group.engines_of(phase);
    let whole = engines
        .iter()
        .filter_map(|engine| of(engine, written))
        .fold(0.0, f64::max);
    let headers = ["within", "with settle"].map(str::to_string);
    let mut table = BarTable::new(
        format!("Written for each {} (KiB)", item(phase)),
        headers.into(),
    );
    table.key = [
        ("p1", "within the phase"),
        ("p2", "working off its backlog"),
    ]
    .map(|(c, n)| (c.to_string(), n.to_string()))
    .into();
    for engine in &engines {
        let (within, all) = (
            of(engine, |p| p.kb_written_per_op),
            of(engine, |p| p.kb_written_per_op_settled),
        );
        let debt = within.zip(all).map_or(0.0, |(within, all)| all - within);
        let parts = [
            ("p1".to_string(), within.unwrap_or(0.0)),
            ("p2".to_string(), debt),
        ];
        table.rows.push((
            view.group.label(engine),
            Bar::stacked(&parts, whole),
            vec![number(within), number(all)],
        ));
    }
    (whole > 0.0).then_some(table)
}

/// Renders sizes and amplification of all phases, and one triangle for each engine.
pub fn overview(view: &View<'_>) -> String {
    let mut out = sizes(view);
    out += &tables::html(&amplification(view));
    out + &triangles(view)
}

fn all_phases(view: &View<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in view
        .group
        .trials
        .iter()
        .flat_map(|trial| &trial.phases)
        .map(|phase| &phase.name)
    {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Renders the data and the rest of the directory after the last settle, else after the last phase
/// with sizes.
fn sizes(view: &View<'_>) -> String {
    let has = |name: &String| {
        view.group
            .trials
            .iter()
            .flat_map(|t| &t.phases)
            .any(|p| p.name == *name && p.size_bytes.is_some())
    };
    let last = view
        .group
        .settles()
        .pop()
        .filter(has)
        .or_else(|| all_phases(view).into_iter().rfind(has));
    let Some(last) = last else {
        return String::new();
    };
    let of = |engine: &str, value: fn(&PhaseResult) -> Option<f64>| {
        view.group.median(engine, &last, value)
    };
    let engines = view.group.engines_of(&last);
    let directory = |engine: &str| of(engine, |p| p.size_bytes.map(|s| gib(s.directory)));
    let whole = engines
        .iter()
        .filter_map(|engine| directory(engine))
        .fold(0.0, f64::max);
    let headers = ["data", "directory", "peak"].map(str::to_string);
    let mut table = BarTable::new(format!("Size after {last} (GiB)"), headers.into());
    table.key = [("p1", "data"), ("p2", "logs and the rest")]
        .map(|(c, n)| (c.to_string(), n.to_string()))
        .into();
    for engine in &engines {
        let data = of(engine, |p| p.size_bytes.map(|s| gib(s.data)));
        let rest = directory(engine)
            .zip(data)
            .map_or(0.0, |(all, data)| all - data);
        let peaks = view
            .group
            .trials
            .iter()
            .filter(|trial| trial.name() == *engine)
            .flat_map(|trial| &trial.phases);
        let peak = peaks
            .filter_map(|p| p.size_bytes.map(|s| gib(s.peak)))
            .fold(0.0, f64::max);
        let parts = [
            ("p1".to_string(), data.unwrap_or(0.0)),
            ("p2".to_string(), rest),
        ];
        let numbers = vec![
            number(data),
            number(directory(engine)),
            number(Some(peak).filter(|p| *p > 0.0)),
        ];
        table.rows.push((
            view.group.label(engine),
            Bar::stacked(&parts, whole),
            numbers,
        ));
    }
    format!("<div class=\"cards\">{}</div>\n", table.html())
}

fn amplification(view: &View<'_>) -> Table {
    let mut table = Table::new(
        "Amplification, medians of repetitions",
        &[
            "engine",
            "phase",
            "device reads (1/op)",
            "written (KiB/op)",
            "written settled (KiB/op)",
            "write amplification (ratio)",
            "write amplification settled (ratio)",
            "space amplification (ratio)",
        ],
    );
    table.text_columns = 2;
    for phase in all_phases(view) {
        for engine in view.group.engines_of(&phase) {
            let of = |value: fn(&PhaseResult) -> Option<f64>| {
                number(view.group.median(&engine, &phase, value))
            };
            let row = [
                of(|p| p.reads_per_op),
                of(|p| p.kb_written_per_op),
                of(|p| p.kb_written_per_op_settled),
                of(|p| p.amplification?.write),
                of(|p| p.amplification?.write_settled),
                of(|p| p.amplification?.space),
            ];
            if row.iter().any(|cell| cell != "-") {
                let names = [view.group.label(&engine), phase.clone()];
                table.rows.push(names.into_iter().chain(row).collect());
            }
        }
    }
    table
}

/// Renders read, write and space cost of each engine as shares of the most expensive engine's.
fn triangles(view: &View<'_>) -> String {
    let Some(phase) = view.main_phase() else {
        return String::new();
    };
    let settle = view.group.settles().pop();
    let engines = view.group.engines_of(&phase);
    let last = settle.as_deref().unwrap_or(&phase);
    let reads = |engine: &str| view.group.median(engine, &phase, |p| p.kb_read_per_op);
    let writes = |engine: &str| view.group.median(engine, &phase, written);
    let space = |engine: &str| {
        view.group
            .median(engine, last, |p| p.size_bytes.map(|s| gib(s.data)))
    };
    let costs: Vec<[Option<f64>; 3]> = engines
        .iter()
        .map(|e| [reads(e), writes(e), space(e)])
        .collect();
    let most = [0, 1, 2].map(|i| costs.iter().filter_map(|cost| cost[i]).fold(0.0, f64::max));
    if engines.len() < 2 || costs.iter().flatten().any(Option::is_none) {
        return String::new();
    }
    let mut out = format!(
        "<h3>Read, write and space cost</h3>\n<p class=\"note\">{}</p>\n<div class=\"triangles\">\n",
        escape(&format!(
            "KiB read and KiB written for each operation of {phase}, GiB of data at the end. Each corner is the dearest engine; a smaller triangle is cheaper."
        ))
    );
    for (engine, cost) in engines.iter().zip(&costs) {
        let shares = [0, 1, 2].map(|i| {
            if most[i] > 0.0 {
                cost[i].unwrap_or(0.0) / most[i]
            } else {
                0.0
            }
        });
        out += &triangle(
            &view.group.label(engine),
            view.style(engine),
            shares,
            cost.map(number),
        );
    }
    out + "</div>\n"
}

/// Renders a triangle with its corners at the top (read), right (write) and left (space).
fn triangle(name: &str, style: usize, shares: [f64; 3], values: [String; 3]) -> String {
    const CORNERS: [(f64, f64); 3] = [(0.0, -60.0), (52.0, 30.0), (-52.0, 30.0)];
    let path = |shares: [f64; 3]| {
        let points = CORNERS.iter().zip(shares).map(|((x, y), share)| {
            // A small remainder keeps a cost of 0 visible.
            let share = share.clamp(0.03, 1.0);
            format!("{:.0} {:.0}", 80.0 + x * share, 76.0 + y * share)
        });
        format!("M{}z", points.collect::<Vec<_>>().join("L"))
    };
    let spokes: String = CORNERS
        .iter()
        .map(|(x, y)| format!("M80 76L{:.0} {:.0}", 80.0 + x, 76.0 + y))
        .collect();
    let [read, write, space] = values;
    format!(
        "<figure class=\"triangle\"><figcaption>{0}</figcaption><svg viewBox=\"0 0 160 128\" role=\"img\" aria-label=\"{0}: read {read} KiB/op, write {write} KiB/op, space {space} GiB\">\
         <path class=\"grid\" d=\"{1}{spokes}\"/><path class=\"{2}\" d=\"{3}\"/><path class=\"s{style}\" d=\"{3}\"/>\
         <text x=\"80\" y=\"11\" class=\"mid\">read {read}</text><text x=\"158\" y=\"122\" class=\"end\">write {write}</text><text x=\"2\" y=\"122\">space {space}</text></svg></figure>\n",
        escape(name),
        path([1.0; 3]),
        engine_class(style),
        path(shares)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    #[test]
    fn writes_of_settle_have_their_own_bar_segment() {
        let suite = sample::suite();
        let found = groups(&suite, false);
        let styles = found[0].engines();
        let view = View {
            suite: &suite,
            group: &found[0],
            number: 0,
            base: "alluvium".to_string(),
            styles: &styles,
            detail: crate::report::html::page::DETAILS[0],
        };
        let table = io(&view, "request").unwrap();
        assert_eq!(table.rows[0].2, ["1.50", "2.50"]);
        assert_eq!(
            table.rows[0].1.segments,
            [("p1".to_string(), 0.0, 0.6), ("p2".to_string(), 0.6, 1.0)]
        );
        assert_eq!(triangles(&view).matches("<figure").count(), 2);
    }
}
