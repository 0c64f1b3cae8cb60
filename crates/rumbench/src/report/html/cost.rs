//! Costs of a phase: bars for CPU and written bytes of each operation, tables of sizes and
//! amplification, and a triangle of read, write and space cost.

use maud::{Markup, html};

use super::bars::{Bar, BarTable, engine_class};
use super::markup::path;
use super::page::View;
use super::verdict::written;
use crate::report::table::Table;
use crate::report::throughput::{item, per_item};
use crate::store::result::{CpuPerOp, PhaseResult, SizeBytes};
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
pub fn bars(view: &View<'_>, phase: &str) -> Markup {
    let tables = [cpu(view, phase), io(view, phase)];
    html! {
        @if tables.iter().any(Option::is_some) {
            div.cards { @for table in tables.iter().flatten() { (table) } }
        }
    }
}

/// Returns the largest value of any engine, which is the whole width of a bar.
fn largest(engines: &[String], value: impl Fn(&str) -> Option<f64>) -> f64 {
    let values = engines.iter().filter_map(|engine| value(engine));
    values.fold(0.0, f64::max)
}

fn cpu(view: &View<'_>, phase: &str) -> Option<BarTable> {
    let of = |engine: &str, value: &dyn Fn(&CpuPerOp) -> Option<f64>| {
        view.group.median(engine, phase, |p| {
            per_item(p, p.cpu_us_per_op.as_ref().and_then(value))
        })
    };
    let engines = view.group.engines_of(phase);
    let total = |engine: &str| of(engine, &|cpu| Some(cpu.total));
    let whole = largest(&engines, total);
    let mut table = BarTable::new(format!("CPU for each {} (us)", item(phase)), &["total"]);
    let used = PARTS
        .iter()
        .filter(|part| largest(&engines, |engine| of(engine, &part.2)) > 0.0);
    table.key = used.map(|(class, name, _)| (*class, *name)).collect();
    for engine in &engines {
        let parts = PARTS.map(|(class, _, value)| (class, of(engine, &value).unwrap_or(0.0)));
        let bar = Bar::stacked(&parts, whole);
        table
            .rows
            .push((view.group.label(engine), bar, vec![number(total(engine))]));
    }
    (whole > 0.0).then_some(table)
}

fn io(view: &View<'_>, phase: &str) -> Option<BarTable> {
    let of = |engine: &str, value: fn(&PhaseResult) -> Option<f64>| {
        view.group.median(engine, phase, |p| per_item(p, value(p)))
    };
    let engines = view.group.engines_of(phase);
    let whole = largest(&engines, |engine| of(engine, written));
    let caption = format!("Written for each {} (KiB)", item(phase));
    let mut table = BarTable::new(caption, &["within", "with settle"]);
    table.key = vec![
        ("p1", "within the phase"),
        ("p2", "working off its backlog"),
    ];
    for engine in &engines {
        let within = of(engine, |p| p.kb_written_per_op);
        let all = of(engine, |p| p.kb_written_per_op_settled);
        let debt = within.zip(all).map_or(0.0, |(within, all)| all - within);
        let bar = Bar::stacked(&[("p1", within.unwrap_or(0.0)), ("p2", debt)], whole);
        table.rows.push((
            view.group.label(engine),
            bar,
            vec![number(within), number(all)],
        ));
    }
    (whole > 0.0).then_some(table)
}

/// Renders sizes and amplification of all phases, and one triangle for each engine.
pub fn overview(view: &View<'_>) -> Markup {
    html! {
        @if let Some(sizes) = sizes(view) { div.cards { (sizes) } }
        (amplification(view))
        (triangles(view))
    }
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

/// Returns the data and the rest of the directory after the last settle, else after the last phase
/// with sizes.
fn sizes(view: &View<'_>) -> Option<BarTable> {
    let trials = &view.group.trials;
    let has = |name: &String| {
        let mut phases = trials.iter().flat_map(|trial| &trial.phases);
        phases.any(|phase| phase.name == *name && phase.size_bytes.is_some())
    };
    let settle = view.group.settles().pop().filter(has);
    let last = settle.or_else(|| all_phases(view).into_iter().rfind(has))?;
    let of = |engine: &str, value: fn(SizeBytes) -> u64| {
        let gib = |p: &PhaseResult| p.size_bytes.map(|size| gib(value(size)));
        view.group.median(engine, &last, gib)
    };
    let engines = view.group.engines_of(&last);
    let directory = |engine: &str| of(engine, |size| size.directory);
    let whole = largest(&engines, directory);
    let caption = format!("Size after {last} (GiB)");
    let mut table = BarTable::new(caption, &["data", "directory", "peak"]);
    table.key = vec![("p1", "data"), ("p2", "logs and the rest")];
    for engine in &engines {
        let data = of(engine, |size| size.data);
        let rest = directory(engine)
            .zip(data)
            .map_or(0.0, |(all, data)| all - data);
        let own = trials.iter().filter(|trial| trial.name() == *engine);
        let peaks = own
            .flat_map(|trial| &trial.phases)
            .filter_map(|phase| phase.size_bytes);
        let peak = peaks.map(|size| gib(size.peak)).fold(0.0, f64::max);
        let bar = Bar::stacked(&[("p1", data.unwrap_or(0.0)), ("p2", rest)], whole);
        let sizes = [
            data,
            directory(engine),
            Some(peak).filter(|peak| *peak > 0.0),
        ];
        table
            .rows
            .push((view.group.label(engine), bar, sizes.map(number).into()));
    }
    Some(table)
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
fn triangles(view: &View<'_>) -> Markup {
    let Some(phase) = view.main_phase() else {
        return Markup::default();
    };
    let settle = view.group.settles().pop();
    let engines = view.group.engines_of(&phase);
    let last = settle.as_deref().unwrap_or(&phase);
    let cost = |engine: &String| {
        let data = |p: &PhaseResult| p.size_bytes.map(|size| gib(size.data));
        [
            view.group.median(engine, &phase, |p| p.kb_read_per_op),
            view.group.median(engine, &phase, written),
            view.group.median(engine, last, data),
        ]
    };
    let costs: Vec<[Option<f64>; 3]> = engines.iter().map(cost).collect();
    if engines.len() < 2 || costs.iter().flatten().any(Option::is_none) {
        return Markup::default();
    }
    let most = [0, 1, 2].map(|i| costs.iter().filter_map(|cost| cost[i]).fold(0.0, f64::max));
    let share = |cost: &[Option<f64>; 3], i: usize| match most[i] {
        most if most > 0.0 => cost[i].unwrap_or(0.0) / most,
        _ => 0.0,
    };
    html! {
        h3 { "Read, write and space cost" }
        p.note {
            "KiB read and KiB written for each operation of " (phase) ", GiB of data at the end. "
            "Each corner is the dearest engine; a smaller triangle is cheaper."
        }
        div.triangles {
            @for (engine, cost) in engines.iter().zip(&costs) {
                @let shares = [0, 1, 2].map(|i| share(cost, i));
                (triangle(&view.group.label(engine), view.style(engine), shares, cost.map(number)))
            }
        }
    }
}

/// Renders a triangle with its corners at the top (read), right (write) and left (space).
fn triangle(name: &str, style: usize, shares: [f64; 3], values: [String; 3]) -> Markup {
    const CORNERS: [(f64, f64); 3] = [(0.0, -60.0), (52.0, 30.0), (-52.0, 30.0)];
    let outline = |shares: [f64; 3]| {
        let points = CORNERS.iter().zip(shares).map(|((x, y), share)| {
            // A small remainder keeps a cost of 0 visible.
            let share = share.clamp(0.03, 1.0);
            format!("{:.0} {:.0}", 80.0 + x * share, 76.0 + y * share)
        });
        format!("M{}z", points.collect::<Vec<_>>().join("L"))
    };
    let spoke = |(x, y): (f64, f64)| format!("M80 76L{:.0} {:.0}", 80.0 + x, 76.0 + y);
    let [read, write, space] = values;
    let words = format!("{name}: read {read} KiB/op, write {write} KiB/op, space {space} GiB");
    html! {
        figure.triangle {
            figcaption { (name) }
            svg viewBox="0 0 160 128" role="img" aria-label=(words) {
                (path("grid", &(outline([1.0; 3]) + &CORNERS.map(spoke).concat())))
                (path(engine_class(style), &outline(shares)))
                (path(format_args!("s{style}"), &outline(shares)))
                text x="80" y="11" class="mid" { "read " (read) }
                text x="158" y="122" class="end" { "write " (write) }
                text x="2" y="122" { "space " (space) }
            }
        }
    }
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
        assert_eq!(triangles(&view).0.matches("<figure").count(), 2);
    }
}
