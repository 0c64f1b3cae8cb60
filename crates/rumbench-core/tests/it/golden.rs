//! Golden data: files computed by independent implementations of the same formulas.

use rumbench_core::linkbench::degree::{DegreeTable, Numbers, Split};
use rumbench_core::linkbench::distribution::Zipf;
use rumbench_core::linkbench::java_random::JavaRandom;
use rumbench_core::linkbench::shuffle::{CORRELATED, Shuffler};
use rumbench_core::linkbench::{Config, graph::Graph};

/// Parses a file into column names and rows.
fn table(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let mut rows = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect());
    let header = rows.next().expect("a header");
    (header, rows.collect())
}

#[test]
fn java_generator_draws_the_golden_values() {
    let (_, rows) = table(include_str!("../golden/golden_java_random.tsv"));
    assert_eq!(rows.len(), 7);
    for row in rows {
        let fresh = || JavaRandom::new(row[0].parse().unwrap());
        let mut drawn = vec![row[0].to_owned(), fresh().next_i32().to_string()];
        drawn.extend([2, 100, 1024, 97, 9765].map(|bound| fresh().below(bound).to_string()));
        drawn.push(fresh().next_i64().to_string());
        assert_eq!(drawn, row[..8]);
        assert_eq!(fresh().next_f64(), row[8].parse::<f64>().unwrap());
        let gaussian: f64 = row[9].parse().unwrap();
        assert!((fresh().next_gaussian() - gaussian).abs() < 1e-12);
    }
}

#[test]
fn shuffler_permutes_as_golden() {
    let (header, rows) = table(include_str!("../golden/golden_shuffle.tsv"));
    assert_eq!(rows.len(), 21);
    for row in rows {
        let shuffler = Shuffler::new(row[0].parse().unwrap(), row[1].parse().unwrap());
        for (name, value) in header.iter().zip(&row).skip(2) {
            let digits = name.find(|c: char| c.is_ascii_digit()).unwrap();
            let (kind, place) = (&name[..digits], name[digits..].parse::<u64>().unwrap());
            let found = match kind {
                "rot" => shuffler.rotations()[place as usize],
                "perm" => shuffler.permute(place),
                _ => shuffler.inverse(place),
            };
            assert_eq!(found.to_string(), *value, "{name} of {:?}", &row[..2]);
        }
    }
}

#[test]
fn shuffler_inverts_itself() {
    for count in [1, 5, 1023, 1024, 2047, 2048, 10_007] {
        let shuffler = Shuffler::new(CORRELATED, count);
        for index in 0..count {
            assert_eq!(shuffler.inverse(shuffler.permute(index)), index);
        }
    }
}

#[test]
fn zipf_constants_and_quantiles_are_golden() {
    let (header, rows) = table(include_str!("../golden/golden_zipf.tsv"));
    assert_eq!(rows.len(), 28);
    for row in rows {
        let zipf = Zipf::new(row[0].parse().unwrap(), row[1].parse().unwrap());
        // The last digits depend on the mathematical library and the order of the sum.
        let close = |found: f64, golden: &str| {
            let golden: f64 = golden.parse().unwrap();
            assert!((found / golden - 1.0).abs() < 1e-11, "{found} {golden}");
        };
        close(zipf.zeta(), row[2]);
        close(zipf.eta(), row[3]);
        for (name, value) in header.iter().zip(&row).skip(4) {
            let rank = zipf.quantile(name[1..].parse().unwrap());
            assert_eq!(rank.to_string(), *value, "{name} of {:?}", &row[..2]);
        }
    }
}

fn numbers(name: &str) -> Numbers {
    match name {
        "2017" => Numbers::Y2017,
        _ => Numbers::Y2011,
    }
}

#[test]
fn links_of_sample_ids_are_golden() {
    let (_, rows) = table(include_str!("../golden/golden_nlinks.tsv"));
    assert!(rows.len() > 400);
    for row in rows {
        let table = DegreeTable::of(numbers(row[0]));
        let (nodes, id1): (u64, u64) = (row[1].parse().unwrap(), row[2].parse().unwrap());
        let rank = Shuffler::new(CORRELATED, nodes).inverse(id1 - 1);
        let raw = table.raw(rank, nodes);
        let links = |split: Split, index| split.links(raw, 2, index);
        let found = [
            rank,
            raw,
            links(Split::ClassicAsWritten, 0),
            links(Split::ClassicAsWritten, 1),
            links(Split::Revised, 0),
            links(Split::Revised, 1),
        ];
        assert_eq!(
            found.map(|value| value.to_string()),
            row[3..],
            "{:?}",
            &row[..3]
        );
    }
}

/// Adds one id to the totals of a graph: links, count rows, longest list, its id, lists of type 0
/// with at least 10 and with at least 1000 links, checksum.
fn add_id(totals: &mut [u64; 7], id1: u64, links: [u64; 2]) {
    totals[0] += links[0] + links[1];
    totals[1] += u64::from(links[0] > 0) + u64::from(links[1] > 0);
    let longest = links[0].max(links[1]);
    if longest > totals[2] {
        (totals[2], totals[3]) = (longest, id1);
    }
    totals[4] += u64::from(links[0] >= 10);
    totals[5] += u64::from(links[0] >= 1000);
    totals[6] = totals[6].wrapping_add(id1.wrapping_mul(3 * links[0] + 5 * links[1]));
}

/// Checks all graphs with this number of nodes: id by id, and by the census used for plans and
/// estimates.
fn check_totals(nodes: u64) {
    let (_, rows) = table(include_str!("../golden/golden_graph_totals.tsv"));
    let shuffler = Shuffler::new(CORRELATED, nodes);
    for measurement in ["2017", "2011"] {
        let table = DegreeTable::of(numbers(measurement));
        let mut found = [[0; 7]; 2];
        for id1 in 1..=nodes {
            let raw = table.raw(shuffler.inverse(id1 - 1), nodes);
            for (totals, split) in found
                .iter_mut()
                .zip([Split::Revised, Split::ClassicAsWritten])
            {
                add_id(
                    totals,
                    id1,
                    [split.links(raw, 2, 0), split.links(raw, 2, 1)],
                );
            }
        }
        for (totals, rules) in found.iter().zip(["revised", "classic"]) {
            let wanted = [measurement, rules, &nodes.to_string()];
            let golden = rows
                .iter()
                .find(|row| row[..3] == wanted)
                .expect("a golden graph");
            assert_eq!(
                totals.map(|value| value.to_string()),
                golden[3..],
                "{wanted:?}"
            );
            let pairs = [
                ("numbers", measurement),
                ("rules", rules),
                ("nodes", wanted[2]),
            ];
            let census = Graph::new(&Config::from_pairs(pairs).unwrap(), 0).totals();
            assert_eq!(
                (census.links, census.counts),
                (totals[0], totals[1]),
                "{wanted:?}"
            );
        }
    }
}

#[test]
fn graph_totals_up_to_a_million_nodes_are_golden() {
    for nodes in [2_000, 10_000, 100_000, 1_000_000] {
        check_totals(nodes);
    }
}

#[test]
fn graph_totals_of_ten_million_nodes_are_golden() {
    check_totals(10_000_000);
}

#[test]
fn census_totals_of_a_billion_nodes_have_the_published_means() {
    let mean = |pairs: &[(&str, &str)]| {
        let billion = [("nodes", "1000000000")];
        let config = Config::from_pairs(billion.iter().chain(pairs).copied()).unwrap();
        Graph::new(&config, 0).totals().links as f64 / 1e9
    };
    assert!((mean(&[]) - 4.590).abs() < 1e-3);
    assert!((mean(&[("rules", "classic")]) - 4.090).abs() < 1e-3);
    assert!((mean(&[("numbers", "2011")]) - 5.244).abs() < 1e-3);
    // The repaired split keeps the mean of the table.
    let repaired = mean(&[("rules", "classic"), ("mode", "fixed")]);
    assert!((repaired - 3.857).abs() < 5e-3, "{repaired}");
}
