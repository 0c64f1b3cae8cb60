//! `--profile`: functions and flame graphs of each phase. If the kernel gives this user no samples,
//! the result must say so, and the trial goes on.

use std::path::Path;

use crate::{SMALL_GRAPH, result, rumbench, text};

fn run(out: &Path, engine: &str, settings: &[&str]) -> serde_json::Value {
    let mut arguments = vec!["run", "linkbench", "--engine", engine, "--profile"];
    arguments.extend(["--out", out.to_str().unwrap()]);
    for set in settings {
        arguments.extend(["--set", set]);
    }
    let output = rumbench(out.parent().unwrap(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    result(out)["trials"][0].clone()
}

#[test]
fn each_phase_has_its_functions_and_a_flame_graph() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let settings = ["nodes=4000", "numbers=2011", "operations=4000"];
    let trial = run(&out, "alluvium", &settings);
    let words = trial["configuration"]["profile"].as_str().unwrap();
    let explained = rumbench(dir.path(), &["explain", out.to_str().unwrap()]);
    let explained = text(&explained.stdout);
    if words.starts_with("none (the kernel") {
        assert!(words.contains("perf_event_paranoid"), "{words}");
        assert!(
            explained.contains("No functions were sampled"),
            "{explained}"
        );
        return;
    }
    assert!(words.starts_with("stacks"), "{words}");
    let load = &trial["phases"][0];
    assert_eq!(load["name"], "load");
    let profile = &load["profile"];
    assert!(profile["samples"].as_u64().unwrap() > 50, "{profile}");
    let functions = profile["functions"].as_array().unwrap();
    let shares = functions.iter().map(|f| f["own_share"].as_f64().unwrap());
    assert!(shares.sum::<f64>() > 0.2, "{profile}");
    let graph = out.join(profile["graph"].as_str().unwrap());
    let svg = std::fs::read_to_string(&graph).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("alluvium::"));
    // Stacks are complete: from the thread, through the laboratory, into the engine.
    let folded = std::fs::read_to_string(graph.with_extension("folded")).unwrap();
    let whole = |line: &&str| line.contains("rumbench::run::") && line.contains("alluvium::");
    assert!(folded.lines().any(|line| whole(&line)), "{folded}");
    assert!(explained.contains("most CPU time in"), "{explained}");
    let printed = rumbench(dir.path(), &["report", out.to_str().unwrap()]);
    let printed = text(&printed.stdout);
    assert!(printed.contains("load: where CPU time went"), "{printed}");
}

#[test]
fn without_the_option_nothing_is_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut arguments = vec!["run", "linkbench", "--engine", "null"];
    arguments.extend(["--out", out.to_str().unwrap()]);
    arguments.extend(SMALL_GRAPH);
    arguments.extend(["--set", "operations=100"]);
    assert_eq!(rumbench(dir.path(), &arguments).status.code(), Some(0));
    let trial = &result(&out)["trials"][0];
    assert!(trial["configuration"].get("profile").is_none());
    assert!(trial["phases"][0].get("counts_per_op").is_none());
    assert!(!out.join("profile").exists());
}
