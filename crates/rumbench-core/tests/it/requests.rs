//! Requests of LinkBench clients, without a store.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use rumbench_core::linkbench::graph::{FIRST_LINK_TYPE, Graph};
use rumbench_core::linkbench::request::{Answer, Operation, Request};
use rumbench_core::linkbench::stream::{RequestPlan, RequestStream};
use rumbench_core::linkbench::{Config, ListResult};
use rumbench_core::random::mix;

/// A clock stopped in November 2023.
pub fn now_ms() -> u64 {
    1_700_000_000_000
}

pub fn streams(pairs: &[(&str, &str)]) -> (Arc<Graph>, Vec<RequestStream>) {
    let config = Config::from_pairs(pairs.iter().copied()).unwrap();
    let graph = Arc::new(Graph::new(&config, now_ms()));
    let plan = Arc::new(RequestPlan::new(&config, Arc::clone(&graph), now_ms));
    let streams = (0..config.clients).map(|client| RequestStream::new(Arc::clone(&plan), client));
    (graph, streams.collect())
}

fn stream(pairs: &[(&str, &str)]) -> (Arc<Graph>, RequestStream) {
    let (graph, mut streams) = streams(pairs);
    (graph, streams.remove(0))
}

/// The golden file holds the first 20 requests as text, then a hash of each hundred. A change of it
/// requires a new version of the workload.
#[test]
fn first_thousand_requests_are_golden() {
    let (_, mut stream) = stream(&[("nodes", "100000"), ("seed", "1")]);
    let mut found = String::new();
    for block in 0..10 {
        let mut hash = 0;
        for place in 0..100 {
            stream.advance();
            let request = stream.request();
            if block == 0 && place < 20 {
                writeln!(found, "{request}").unwrap();
            }
            hash = format!("{request:?}")
                .bytes()
                .fold(hash, |hash, byte| mix(hash, u64::from(byte)));
        }
        writeln!(found, "{}..{} {hash:016x}", block * 100, block * 100 + 99).unwrap();
    }
    let path = Path::new("tests/golden/requests_2017_revised_faithful.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap());
}

#[test]
fn operations_follow_the_mix() {
    let (_, mut stream) = stream(&[("nodes", "10000")]);
    let mut found = [0u32; 10];
    for _ in 0..400_000 {
        found[stream.advance() as usize] += 1;
    }
    let mix = Config::from_pairs::<&str, &str>([]).unwrap().mix;
    for (count, percent) in found.into_iter().zip(mix) {
        let found = f64::from(count) / 4000.0;
        assert!(
            (found - percent).abs() < 0.25,
            "{found} instead of {percent}"
        );
    }
}

#[test]
fn requests_stay_in_the_loaded_range() {
    let (_, mut stream) = stream(&[("nodes", "500"), ("startid1", "1000")]);
    let loaded = 1000..1500;
    for _ in 0..50_000 {
        stream.advance();
        let id = match stream.request() {
            Request::AddLink(link) | Request::UpdateLink(link) => link.key.id1,
            Request::DeleteLink(key, _) => key.id1,
            Request::CountLinks(id1, _) | Request::MultigetLinks(id1, _, _) => id1,
            Request::ListLinks(query) => query.id1,
            Request::UpdateNode(node) => node.id,
            Request::DeleteNode(id) | Request::GetNode(id) => id,
            Request::AddNode(_) => continue,
        };
        assert!(loaded.contains(&id), "{}", stream.request());
    }
}

#[test]
fn the_hottest_id_is_read_as_often_as_the_draw_says() {
    let (_, mut stream) = stream(&[("nodes", "100000")]);
    let mut lists: HashMap<u64, u32> = HashMap::new();
    let mut total = 0;
    for _ in 0..1_000_000 {
        if stream.advance() == Operation::CountLink {
            let Request::CountLinks(id1, _) = stream.request() else {
                unreachable!()
            };
            *lists.entry(id1).or_default() += 1;
            total += 1;
        }
    }
    let hottest = f64::from(*lists.values().max().unwrap()) / f64::from(total);
    // 99.5 % of the reads are uncorrelated, and the hottest id gets 1/zeta of those.
    assert!((hottest / (0.995 / 45.58) - 1.0).abs() < 0.1, "{hottest}");
}

/// Returns the share of an operation's requests with a loaded destination.
fn existing_share(pairs: &[(&str, &str)], operation: Operation) -> f64 {
    let (graph, mut stream) = stream(pairs);
    let (mut existing, mut total) = (0.0, 0.0);
    for _ in 0..200_000 {
        if stream.advance() != operation {
            continue;
        }
        let key = match stream.request() {
            Request::AddLink(link) | Request::UpdateLink(link) => link.key,
            Request::DeleteLink(key, _) => key,
            other => panic!("{other}"),
        };
        total += 1.0;
        existing += f64::from(u8::from(graph.is_loaded(key)));
    }
    existing / total
}

#[test]
fn revised_destinations_exist_as_often_as_intended() {
    let pairs = [("nodes", "100000")];
    for (operation, intended) in [
        (Operation::AddLink, 0.05),
        (Operation::UpdateLink, 0.9),
        (Operation::DeleteLink, 0.9),
    ] {
        let found = existing_share(&pairs, operation);
        assert!((found - intended).abs() < 0.02, "{operation:?}: {found}");
    }
}

#[test]
fn classic_updates_of_short_lists_miss_half_the_time() {
    let classic = [("nodes", "100000"), ("rules", "classic")];
    let found = existing_share(&classic, Operation::UpdateLink);
    assert!((0.3..0.6).contains(&found), "{found}");
}

#[test]
fn faithful_multigets_ask_for_more_ids_than_fixed_ones() {
    // Distinct ids per multi-get, and the share of multi-gets for one id.
    let ids = |mode| {
        let (_, mut stream) = stream(&[("nodes", "1000000"), ("mode", mode)]);
        let (mut ones, mut ids, mut total) = (0.0, 0.0, 0.0);
        for _ in 0..200_000 {
            stream.advance();
            if let Request::MultigetLinks(_, _, id2s) = stream.request() {
                total += 1.0;
                ids += id2s.len() as f64;
                ones += f64::from(u8::from(id2s.len() == 1));
            }
        }
        (ids / total, ones / total)
    };
    let (faithful, fixed) = (ids("faithful"), ids("fixed"));
    assert!(faithful.0 > 1.2 * fixed.0, "{faithful:?} {fixed:?}");
    // Mode fixed draws a single id in 38.2 % of the multi-gets, mode faithful never; repeated ids
    // come on top.
    assert!(faithful.1 < 0.2 && fixed.1 > 0.38, "{faithful:?} {fixed:?}");
}

#[test]
fn no_multigets_distribution_means_one_id() {
    let (_, mut stream) = stream(&[("nodes", "1000"), ("link_multiget_dist", "none")]);
    for _ in 0..10_000 {
        if stream.advance() == Operation::MultigetLink {
            let Request::MultigetLinks(_, _, id2s) = stream.request() else {
                unreachable!()
            };
            assert_eq!(id2s.len(), 1);
        }
    }
}

#[test]
fn clients_with_their_own_destinations_never_share_a_link() {
    let pairs = [("nodes", "1000"), ("clients", "5"), ("id2gen_config", "1")];
    let (_, mut streams) = streams(&pairs);
    for (client, stream) in streams.iter_mut().enumerate() {
        for _ in 0..5_000 {
            stream.advance();
            if let Request::AddLink(link) | Request::UpdateLink(link) = stream.request() {
                assert_eq!(link.key.id2 % 5, client as u64);
            }
        }
    }
}

#[test]
fn a_full_list_is_continued_by_history_queries_until_it_ends() {
    let pairs = [
        ("nodes", "1000"),
        ("getlinklist_history", "50"),
        ("getlinklist_limit", "10"),
    ];
    let (_, mut stream) = stream(&pairs);
    let (mut ordinary, mut continued) = (0, 0);
    for _ in 0..2_000 {
        stream.advance();
        let Request::ListLinks(query) = stream.request() else {
            continue;
        };
        // The first ordinary query reaches its limit, and so do the first six queries that continue
        // it.
        let rows = if query.offset == 0 {
            ordinary += 1;
            if ordinary == 1 { 10 } else { 0 }
        } else {
            assert_eq!((query.offset, query.time_max), (1, 500 - continued));
            continued += 1;
            if continued < 7 { 10 } else { 9 }
        };
        let last = (rows > 0).then_some((500 - continued, 3));
        stream
            .answered(Answer::List(ListResult { rows, last }))
            .unwrap();
    }
    assert_eq!(
        continued, 7,
        "six full answers and the one that ended the list"
    );
}

#[test]
fn random_destinations_of_a_list_differ() {
    let pairs = [
        ("nodes", "100"),
        ("randomid2max", "1000"),
        ("nlinks_max", "1500"),
    ];
    let config = Config::from_pairs(pairs).unwrap();
    let graph = Graph::new(&config, now_ms());
    for id1 in 1..=100 {
        let places = 0..graph.links(id1, 0).min(1000);
        let mut found: Vec<u64> = places
            .map(|place| graph.destination(id1, FIRST_LINK_TYPE, place))
            .collect();
        let count = found.len();
        assert!(found.iter().all(|id2| *id2 < 1000));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), count, "{id1}");
    }
}

/// Prints the client's own cost. Run with optimization: `cargo test --release -- --ignored
/// --nocapture cost`.
#[test]
#[ignore = "prints a measurement"]
#[allow(clippy::print_stdout)]
fn cost_of_a_request() {
    for mode in ["faithful", "fixed", "stationary"] {
        for clients in ["1", "16"] {
            let pairs = [("nodes", "10000000"), ("mode", mode), ("clients", clients)];
            let (_, mut stream) = stream(&pairs);
            let start = std::time::Instant::now();
            for _ in 0..5_000_000 {
                stream.advance();
                std::hint::black_box(stream.request());
            }
            println!(
                "{mode}, {clients} clients: {:?} a request",
                start.elapsed() / 5_000_000
            );
        }
    }
}
