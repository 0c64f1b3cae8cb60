//! Tests of the whole page: size, escaping, well-formedness, no external links.

use html5ever::tendril::TendrilSink;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use super::*;
use crate::report::sample;
use crate::store::result::{Interval, PhaseResult, TrialResult};
use crate::store::sweep::Sweep;

const HOSTILE: &str =
    "</script><img src=x onerror=alert(1)>\"'--></style><svg/onload=a>&\0\u{202e}";

/// Returns a pseudo-random number from 0 to 1, a hash of the seed.
fn noise(seed: u64) -> f64 {
    let mixed = seed
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40) as f64 / f64::from(1 << 24)
}

fn interval(second: u64, seed: u64) -> Interval {
    let noise = |n: u64| {
        noise(
            seed.wrapping_mul(31)
                .wrapping_add(second)
                .wrapping_mul(31)
                .wrapping_add(n),
        )
    };
    let counter = |n: u64| {
        (
            format!("engine_counter_with_a_long_name_{n}"),
            noise(n) * 1e6,
        )
    };
    Interval {
        second,
        ops: (noise(1) * 20_000.0) as u64,
        max_us: 100.0 + noise(2) * 1e6,
        cpu_seconds: Some(noise(3) * 2.0),
        kb_read: Some(noise(4) * 1e5),
        kb_written: Some(noise(5) * 1e5),
        directory_bytes: Some((noise(6) * 1e10) as u64),
        response_counts: (0..20)
            .map(|class| (noise(20 + class) * 1e6 / 3f64.powf((class as f64 - 7.0).abs())) as u64)
            .collect(),
        engine_counters: (30..37).map(counter).collect(),
        ..Interval::default()
    }
}

/// Ten engines with ten phases of an hour each.
fn large(repetitions: u32) -> SuiteResult {
    let mut suite = sample::suite();
    let trial = suite.trials.remove(0);
    suite.trials.clear();
    for n in 0..10 * repetitions {
        let (engine, repetition) = (u64::from(n % 10), n / 10 + 1);
        let phases = (0..10).map(|number| phase(&trial.phases[1], number, engine));
        let settle = trial.phases[2].clone();
        let setting = |key: u64| {
            let value = format!("{} (a reason of about so many words)", engine * key);
            (format!("a_setting_with_a_name_{key}"), value)
        };
        suite.trials.push(TrialResult {
            engine: format!("engine-{engine}"),
            repetition,
            phases: phases.chain([settle]).collect(),
            configuration: (0..40).map(setting).collect(),
            ..trial.clone()
        });
    }
    suite
}

fn phase(like: &PhaseResult, number: u64, engine: u64) -> PhaseResult {
    let latency = like.latency_us["ADD_LINK"];
    let operations = (0..10).map(|operation| (format!("OPERATION_{operation}"), latency));
    PhaseResult {
        name: if number == 0 {
            "request".to_string()
        } else {
            format!("request#{}", number + 1)
        },
        seconds: 3600.0,
        latency_us: operations.collect(),
        engine_counters: (0..20)
            .map(|n| (format!("engine_counter_{n}"), noise(number + n) * 1e9))
            .collect(),
        intervals: (0..3600)
            .map(|second| interval(second, number * 10 + engine))
            .collect(),
        ..like.clone()
    }
}

fn hostile() -> SuiteResult {
    let mut suite = sample::suite();
    suite.command = HOSTILE.to_string();
    suite.workload = HOSTILE.to_string();
    suite
        .environment
        .insert(HOSTILE.to_string(), HOSTILE.to_string());
    suite
        .settings
        .insert(HOSTILE.to_string(), HOSTILE.to_string());
    for trial in &mut suite.trials {
        trial.engine += HOSTILE;
        trial.variant = Some(HOSTILE.to_string());
        trial.engine_version = HOSTILE.to_string();
        trial.marks.push(format!("errors ({HOSTILE})"));
        trial.verified = Some(HOSTILE.to_string());
        trial
            .configuration
            .insert(HOSTILE.to_string(), HOSTILE.to_string());
        trial.durability_facts.as_mut().unwrap().power_cut = HOSTILE.to_string();
        let request = &mut trial.phases[1];
        request.name = HOSTILE.to_string();
        request.io_source = Some(HOSTILE.to_string());
        let latency = request.latency_us["ADD_LINK"];
        request.latency_us.insert(HOSTILE.to_string(), latency);
        request.intervals = (0..5).map(|second| interval(second, 1)).collect();
        request
            .engine_counters
            .insert(HOSTILE.to_string(), f64::NAN);
        for interval in &mut request.intervals {
            interval
                .engine_counters
                .insert(HOSTILE.to_string(), interval.second as f64);
        }
        trial.phases[0].name += HOSTILE;
        trial.phases[2].name += HOSTILE;
    }
    suite
}

/// Parses a page and fails on every error of the parser. Returns the names of all elements with all
/// their attributes.
fn parsed(page: &str) -> Vec<(String, Vec<(String, String)>)> {
    let options = ParseOpts::default();
    let dom = parse_document(RcDom::default(), options).one(page);
    let errors = dom.errors.borrow();
    assert!(errors.is_empty(), "{errors:?}");
    let mut found = Vec::new();
    collect(&dom.document, &mut found);
    found
}

fn collect(node: &Handle, found: &mut Vec<(String, Vec<(String, String)>)>) {
    if let NodeData::Element { name, attrs, .. } = &node.data {
        let attributes = attrs.borrow();
        let pairs = attributes
            .iter()
            .map(|a| (a.name.local.to_string(), a.value.to_string()));
        found.push((name.local.to_string(), pairs.collect()));
    }
    for child in node.children.borrow().iter() {
        collect(child, found);
    }
}

fn checked(suite: &SuiteResult, options: &ReportOptions) -> String {
    let page = render(suite, options);
    let elements = parsed(&page);
    let mut ids = Vec::new();
    for (name, attributes) in &elements {
        for (attribute, value) in attributes {
            assert!(!attribute.starts_with("on"), "{name} {attribute}={value}");
            assert!(
                attribute != "src" && attribute != "srcset",
                "{name} {attribute}={value}"
            );
            assert!(
                attribute != "href" || value.starts_with('#'),
                "{name} leads to {value}"
            );
            if attribute == "id" {
                assert!(!ids.contains(&value), "id {value} occurs twice");
                ids.push(value);
            }
        }
    }
    for (_, attributes) in &elements {
        for (_, value) in attributes
            .iter()
            .filter(|(attribute, _)| attribute == "href")
        {
            assert!(
                ids.iter().any(|id| **id == value[1..]),
                "nothing has the id of {value}"
            );
        }
    }
    for forbidden in ["img", "iframe", "link", "object", "embed", "form"] {
        assert!(
            !elements.iter().any(|(name, _)| name == forbidden),
            "{forbidden} in the page"
        );
    }
    assert_eq!(
        elements.iter().filter(|(name, _)| name == "script").count(),
        1
    );
    let drawings = elements.iter().filter(|(name, _)| name == "svg");
    for (_, attributes) in drawings {
        let described = attributes.iter().any(|(name, value)| {
            name == "aria-hidden" || name == "aria-label" && !value.is_empty()
        });
        assert!(described, "a drawing without words: {attributes:?}");
    }
    page
}

/// Saves a page for the test in a real browser.
fn keep(name: &str, page: &str) {
    if let Some(folder) = std::env::var_os("RUMBENCH_TEST_PAGES") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(name).with_extension("html"), page).unwrap();
    }
}

#[test]
fn the_page_of_a_suite_of_runs_says_what_decided_each_and_leads_to_its_page() {
    let entry = |name: &str, result| index::Entry {
        name: name.to_string(),
        command: HOSTILE.to_string(),
        result,
        options: ReportOptions {
            mix_durability: true,
            ..ReportOptions::default()
        },
    };
    let mut stopped = sample::kv_sequence();
    stopped.interrupted = true;
    let entries = [
        entry("linkbench", Some(sample::suite())),
        entry("kv-sequence", Some(stopped)),
        entry("hostile", Some(hostile())),
        entry("not-yet", None),
    ];
    let page = index::render(HOSTILE, &entries);
    let elements = parsed(&page);
    let links = elements.iter().flat_map(|(_, attributes)| attributes);
    let links: Vec<&str> = links
        .filter(|(name, value)| name == "href" && !value.starts_with('#'))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(
        links,
        [
            "linkbench/report.html",
            "kv-sequence/report.html",
            "hostile/report.html"
        ]
    );
    assert!(!elements.iter().any(|(name, _)| name == "img"));
    assert!(page.contains("is the base of all ratios") && page.contains("It was interrupted"));
    assert!(page.contains("Not begun yet."));
    keep("index", &index::render("a first look", &entries[..2]));
}

#[test]
fn an_hour_of_ten_phases_on_ten_engines_stays_below_a_megabyte() {
    let page = checked(&large(1), &ReportOptions::default());
    let count = |what: &str| page.matches(what).count();
    assert!(
        page.len() < LIMIT_BYTES,
        "{} bytes; {} stacks, {} cells",
        page.len(),
        count("class=\"stack\""),
        count("<td")
    );
    assert!(page.contains("class=\"h4\"") && page.contains("class=\"b9\""));
    // The page drops the counters of all phases except the last; result.json has them.
    assert!(page.contains("at the end of the last phase") && page.contains("engine_counter_19"));
    keep("large", &page);
}

#[test]
fn hostile_names_settings_and_errors_stay_text() {
    for mix_durability in [false, true] {
        let page = checked(
            &hostile(),
            &ReportOptions {
                mix_durability,
                ..ReportOptions::default()
            },
        );
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains("<img") && !page.contains("<svg/onload"));
        assert!(page.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"));
        keep("hostile", &page);
    }
}

#[test]
fn every_kind_of_result_gives_a_well_formed_page() {
    let mut suite = sample::suite();
    suite.trials[1].durability_facts.as_mut().unwrap().power_cut = "may corrupt".to_string();
    let apart = checked(&suite, &ReportOptions::default());
    assert_eq!(apart.matches("<ul class=\"verdict\">").count(), 2);
    let options = ReportOptions {
        mix_durability: true,
        base: Some("sqlite".to_string()),
        ..ReportOptions::default()
    };
    assert!(checked(&suite, &options).contains("sqlite [2]</b> is the base"));
    keep(
        "small",
        &checked(&sample::kv_sequence(), &ReportOptions::default()),
    );
    let page = checked(&sample::insert_benchmark(), &ReportOptions::default());
    assert!(page.contains("<td class=\"good\">") && page.contains("class=\"share\" style=\"--n:"));
    keep("insert-benchmark", &page);
    suite.trials[0].mark("wrong-answer (count 3, links 2)");
    suite.interrupted = true;
    let page = checked(&suite, &ReportOptions::default());
    assert!(
        page.contains("The suite was interrupted")
            && page.contains("</b> has no numbers: wrong-answer (count 3, links 2)")
    );
    suite.trials.clear();
    checked(&suite, &ReportOptions::default());
}

#[test]
fn a_sweep_comes_first_as_curves_with_their_fits_and_its_points_are_folded() {
    let page = checked(&sample::clients(), &ReportOptions::default());
    assert!(page.contains("<h2 id=\"verdict\">Sweep over clients"));
    assert!(page.contains(
        "is fastest in request at clients=8 with 5,674 op/s, 2.84 times that of clients=1"
    ));
    assert!(
        page.contains("class=\"u0\"") && page.contains("class=\"u1\""),
        "both fits"
    );
    assert_eq!(page.matches("<details><summary>clients=").count(), 4);
    assert!(page.contains("Verdict at clients=8"));
    keep("sweep", &page);

    let mut named = sample::clients();
    let sweep = named.sweep.as_mut().unwrap();
    sweep.key = "alluvium.cache_block_bytes".to_string();
    sweep.values = ["4096", "16384", "65536", "1048576"]
        .map(str::to_string)
        .into();
    let renamed = sweep.values.clone();
    for trial in &mut named.trials {
        let place = ["1", "2", "4", "8"]
            .iter()
            .position(|n| trial.point == Some(format!("clients={n}")));
        trial.point = Some(format!(
            "alluvium.cache_block_bytes={}",
            renamed[place.unwrap()]
        ));
    }
    crate::report::sweep::conclude(&mut named);
    let page = checked(&named, &ReportOptions::default());
    assert!(
        page.contains("data-names=\"4096|16384|65536|1048576\"") && !page.contains("class=\"u0\"")
    );
    keep("sweep-of-a-setting", &page);
}

#[test]
fn a_search_for_a_rate_comes_first_with_its_limit_as_a_line_and_its_rates_are_folded() {
    let page = checked(&sample::rate_search(), &ReportOptions::default());
    let start = page.find("<h2 id=\"verdict\">Highest rate").unwrap();
    let folded = page.find("<details").unwrap();
    let first = &page[start..folded];
    assert!(first.contains("holds p99=5ms up to 37,500 op/s"), "{first}");
    assert_eq!(
        first.matches("class=\"strong\"").count(),
        1,
        "one limit, one line"
    );
    for title in [
        "p99 of response times",
        "p50 of response times",
        "What request means for a decision",
    ] {
        assert!(first.contains(title), "{title}");
    }
    assert!(page.contains("<summary>rate=26250"), "the points follow");
    keep("search-for-a-rate", &page);
}

#[test]
fn aging_databases_are_drawn_by_turnover_before_their_steps() {
    let page = checked(&sample::aging(), &ReportOptions::default());
    assert!(page.contains("<h2 id=\"sweep\">Aging") && page.contains("<h2 id=\"verdict\">"));
    assert!(page.contains("Throughput (op/s) by turnover"));
    keep("aging", &page);
}

#[test]
fn a_sweep_that_is_too_large_keeps_what_is_said_of_it_as_a_whole() {
    let mut suite = sample::suite();
    let trial = suite.trials.remove(0);
    suite.trials.clear();
    let values: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    for value in &values {
        for engine in 0..5 {
            let mut trial = trial.clone();
            trial.engine = format!("engine-{engine}");
            trial.point = Some(format!("clients={value}"));
            suite.trials.push(trial);
        }
    }
    suite.sweep = Some(Sweep {
        key: "clients".to_string(),
        values,
        ..Sweep::default()
    });
    let page = checked(&suite, &ReportOptions::default());
    assert!(page.len() < LIMIT_BYTES, "{}", page.len());
    assert!(page.contains("would make this page too large") && page.contains("Sweep over clients"));
}

#[test]
fn the_numbers_are_those_of_the_text_report() {
    let page = checked(&sample::suite(), &ReportOptions::default());
    let text = super::super::render(&sample::suite(), &ReportOptions::default());
    for number in ["20,000", "2,000", "1,000"] {
        assert!(
            text.contains(number) && page.contains(&format!("<td>{number}")),
            "{number}"
        );
    }
}
