//! Text and Markdown report of a suite.
//!
//! Order of a report: the setup, one set of tables for each durability promise, and the marks that
//! qualify its numbers. Engines with different promises share a table only on request, and then
//! each row names its promise.

use super::options::ReportOptions;
use super::selection::{Group, groups};
use super::table::Table;
use super::{
    decision, find_rate, insert_benchmark, kv_sequence, large_values, latency, linkbench, marks,
    oltp_range, profile, spread, sweep, theory, throughput,
};
use crate::store::result::{Host, SuiteResult};

/// Renders the whole report as text.
pub fn render(suite: &SuiteResult, options: &ReportOptions) -> String {
    let mut out = heading(suite);
    let found = groups(suite, options.mix_durability);
    for (title, tables) in sweep_tables(suite, options) {
        out += &format!("\n{title}\n");
        for table in tables {
            out += "\n";
            out += &table.render(options.format);
        }
    }
    let leads = suite.sweep.is_some() || suite.rate_search.is_some();
    if leads && !options.all_tables {
        out += "\nAll tables of each point or step: `rumbench report DIR --all-tables`, and report.html.\n";
    } else {
        for group in &found {
            out += &format!("\n{}\n", group.heading());
            for table in group_tables(suite, group, options) {
                out += "\n";
                out += &table.render(options.format);
            }
        }
    }
    let promises = sweep::whole(suite, options.mix_durability).len();
    if promises > 1 {
        out += "\nEngines whose durability differs stand in tables of their own; `--mix-durability` puts them together.\n";
    }
    out += &marks::render(suite);
    out
}

/// Returns the tables over all points and steps of a sweep or a search, for each promise.
fn sweep_tables(suite: &SuiteResult, options: &ReportOptions) -> Vec<(String, Vec<Table>)> {
    let wholes = sweep::whole(suite, options.mix_durability);
    if let Some(search) = &suite.rate_search {
        let tables = |whole: &sweep::Whole<'_>| {
            let mut tables = find_rate::tables(suite, search, whole);
            tables.extend(decision::of_points(suite, whole, options.endurance_tb));
            tables
        };
        let named = wholes
            .iter()
            .map(|whole| (whole.title.clone(), tables(whole)));
        return named.collect();
    }
    let Some(found) = &suite.sweep else {
        return Vec::new();
    };
    let tables = |whole: &sweep::Whole<'_>| {
        if sweep::has_points(suite) {
            let mut tables = sweep::tables::of_points(suite, found, whole);
            tables.extend(decision::of_points(suite, whole, options.endurance_tb));
            tables
        } else {
            let groups = whole.points.iter();
            let aged = |group: &Group<'_>| {
                let mut tables = sweep::tables::of_aging(found, group);
                tables.extend(throughput::settles(group));
                tables.extend(decision::table(suite, group, options.endurance_tb));
                tables
            };
            groups.flat_map(aged).collect()
        }
    };
    let named = wholes
        .iter()
        .map(|whole| (whole.title.clone(), tables(whole)));
    named.collect()
}

fn heading(suite: &SuiteResult) -> String {
    let mut out = format!(
        "{} (workload version {}), started {}\n{}\n",
        suite.workload,
        suite
            .workload_version
            .map_or("unknown".to_string(), |v| v.to_string()),
        suite.started_at,
        suite.command,
    );
    if suite.environment.is_empty() {
        return out + "On a machine that is not known: imported.\n";
    }
    let fact = |name: &str| suite.environment.get(name).cloned().unwrap_or_default();
    out += &format!(
        "{} CPUs ({}), kernel {}, {} on {}\n",
        fact("cpus"),
        fact("cpu"),
        fact("kernel"),
        fact("file_system"),
        fact("device"),
    );
    for (name, host) in hosts(suite) {
        let build = [&host.rumbench_version, &host.commit];
        let [version, commit] = build;
        out += &format!(
            "{name} ran in {}: rumbench {version}, commit {commit}\n",
            host.path
        );
    }
    if suite.interrupted {
        out += "The suite was interrupted: only what was measured until then is shown.\n";
    }
    out
}

/// Returns the engines that another build of the laboratory ran, each with that build, in order.
pub fn hosts(suite: &SuiteResult) -> Vec<(String, &Host)> {
    let mut found: Vec<(String, &Host)> = Vec::new();
    for trial in &suite.trials {
        let known = |(name, _): &(String, &Host)| *name == trial.name();
        if let Some(host) = trial.host.as_ref().filter(|_| !found.iter().any(known)) {
            found.push((trial.name(), host));
        }
    }
    found
}

fn group_tables(suite: &SuiteResult, group: &Group<'_>, options: &ReportOptions) -> Vec<Table> {
    let mut tables = summary_tables(suite, group, options);
    for phase in group.phases() {
        tables.extend(phase_tables(suite, group, &phase, options));
    }
    tables.extend(throughput::settles(group));
    tables.extend(theory::table(suite, group));
    tables
}

/// Returns the tables over all phases.
pub fn summary_tables(
    suite: &SuiteResult,
    group: &Group<'_>,
    options: &ReportOptions,
) -> Vec<Table> {
    let base = group.base(options.base.as_deref());
    let mut tables = insert_benchmark::summaries(suite, group, &base);
    tables.extend(oltp_range::summaries(suite, group, &base));
    if tables.is_empty() {
        tables = vec![
            throughput::absolute(group),
            throughput::relative(group, &base),
        ];
    }
    tables.extend(large_values::summaries(suite, group));
    tables.extend(spread::table(group, &base));
    tables.extend(decision::table(suite, group, options.endurance_tb));
    tables
}

/// Returns all tables of one phase.
pub fn phase_tables(
    suite: &SuiteResult,
    group: &Group<'_>,
    phase: &str,
    options: &ReportOptions,
) -> Vec<Table> {
    let base = group.base(options.base.as_deref());
    let mut tables = Vec::new();
    tables.extend(linkbench::columns(suite, group, phase));
    tables.extend(kv_sequence::columns(suite, group, phase));
    tables.extend(insert_benchmark::step(suite, group, phase, &base));
    tables.extend(oltp_range::columns(suite, group, phase));
    tables.push(throughput::cpu(group, phase));
    tables.extend(latency::short(group, phase));
    tables.extend(latency::full(group, phase));
    tables.extend(profile::tables(group, phase));
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Format;
    use crate::report::{assert_snapshot, sample};

    #[test]
    fn text_report_of_a_fixed_result_is_unchanged() {
        assert_snapshot(
            "report.txt",
            &render(&sample::suite(), &ReportOptions::default()),
        );
    }

    #[test]
    fn text_report_of_a_fixed_key_value_result_is_unchanged() {
        assert_snapshot(
            "kv_sequence.txt",
            &render(&sample::kv_sequence(), &ReportOptions::default()),
        );
    }

    #[test]
    fn text_report_of_a_fixed_insert_benchmark_is_unchanged() {
        assert_snapshot(
            "insert_benchmark.txt",
            &render(&sample::insert_benchmark(), &ReportOptions::default()),
        );
    }

    #[test]
    fn text_report_of_fixed_large_values_is_unchanged() {
        assert_snapshot(
            "large_values.txt",
            &render(&sample::large_values(), &ReportOptions::default()),
        );
    }

    #[test]
    fn text_report_of_fixed_oltp_ranges_is_unchanged() {
        assert_snapshot(
            "oltp_range.txt",
            &render(&sample::oltp_range(), &ReportOptions::default()),
        );
    }

    #[test]
    fn markdown_report_of_a_fixed_result_is_unchanged() {
        let options = ReportOptions {
            format: Format::Markdown,
            ..ReportOptions::default()
        };
        assert_snapshot("report.md", &render(&sample::suite(), &options));
    }

    #[test]
    fn text_report_of_a_fixed_sweep_is_unchanged() {
        let clients = render(&sample::clients(), &ReportOptions::default());
        assert_snapshot("sweep_clients.txt", &clients);
        let aging = render(&sample::aging(), &ReportOptions::default());
        assert_snapshot("sweep_aging.txt", &aging);
    }

    #[test]
    fn points_of_a_sweep_are_never_repetitions_of_each_other() {
        let suite = sample::clients();
        let options = ReportOptions {
            all_tables: true,
            ..ReportOptions::default()
        };
        let all = render(&suite, &options);
        for point in ["clients=1", "clients=8"] {
            assert!(
                all.contains(&format!("\n{point}: durability buffered")),
                "{all}"
            );
        }
        assert_eq!(all.matches("Absolute: throughput by phase").count(), 4);
        let found = spread::compare(&suite.trials, "alluvium");
        let request = found
            .iter()
            .filter(|c| c.phase == "request" && c.metric == "ops_per_s");
        let points: Vec<Option<&str>> = request.map(|c| c.point.as_deref()).collect();
        assert_eq!(points.len(), 4);
        assert_eq!(points[3], Some("clients=8"));
        assert_eq!(suite.version(), 2);
    }

    #[test]
    fn engines_with_different_durability_share_a_table_only_when_asked() {
        let mut suite = sample::suite();
        let facts = suite.trials[1].durability_facts.as_mut().unwrap();
        facts.power_cut = "may corrupt".to_string();
        let apart = render(&suite, &ReportOptions::default());
        assert_eq!(
            apart.matches("Absolute: throughput by phase").count(),
            2,
            "{apart}"
        );
        let options = ReportOptions {
            mix_durability: true,
            ..ReportOptions::default()
        };
        let mixed = render(&suite, &options);
        assert_eq!(
            mixed.matches("Absolute: throughput by phase").count(),
            1,
            "{mixed}"
        );
        assert!(mixed.contains("may corrupt"), "{mixed}");
    }

    #[test]
    fn wrong_answer_is_never_a_number() {
        let mut suite = sample::suite();
        suite.trials[1].phases[1].ops_per_s = Some(1234.0);
        let shown = render(&suite, &ReportOptions::default());
        assert!(shown.contains("1,234"), "{shown}");
        suite.trials[1].mark("wrong-answer (count 3, links 2)");
        let report = render(&suite, &ReportOptions::default());
        assert!(!report.contains("1,234"), "{report}");
        assert!(
            report.contains("wrong-answer (count 3, links 2)"),
            "{report}"
        );
    }
}
