//! Conformance cases for every [`LinkStore`], used by the tests of engines. A failing case panics
//! with a description of the error.

use std::sync::Arc;

use super::store::{
    Count, EqualTimes, Link, LinkConnection, LinkKey, LinkStore, ListQuery, ListResult, Node,
    TableTotals, WriteOutcome,
};
use crate::error::{EngineError, Result};
use crate::random::Random;

const TYPE: u64 = 123_456_789;
const NODE_TYPE: u32 = 2048;
/// Attempts of one transaction under contention.
const ATTEMPTS: u32 = 100_000;
const THREADS: u64 = 4;
const OPERATIONS: u64 = 500;

/// A case. The store it gets is empty.
type Case = fn(&Arc<dyn LinkStore>);

/// Runs all cases; `open` returns a new, empty store each time.
pub fn link_store(open: impl Fn() -> Arc<dyn LinkStore>) {
    run(
        &open,
        &[
            adds_rewrite_visible_links_and_revive_hidden_ones,
            updates_insert_rewrite_and_revive,
            deletes_hide_visible_links_only,
            expunged_links_are_gone,
            lists_are_newest_first_within_window_offset_and_limit,
            a_rewritten_link_moves_in_its_list,
            multigets_find_hidden_links_and_not_missing_ones,
            nodes_get_the_next_id_and_are_found_by_type,
            payloads_are_any_bytes,
            counts_hold_under_concurrency,
        ],
    );
    load(&open);
}

/// Runs the cases that together use every table and both ways to fill them. It is for another form
/// of a store that passes all of [`link_store`], if opening one takes seconds.
pub fn link_store_in_short(open: impl Fn() -> Arc<dyn LinkStore>) {
    run(&open, &[counts_hold_under_concurrency]);
    load(&open);
}

fn run(open: &impl Fn() -> Arc<dyn LinkStore>, cases: &[Case]) {
    for case in cases {
        let store = open();
        if store.separate_index() {
            store.build_index().expect("an index of no links");
        }
        case(&store);
        check(&store);
    }
}

fn load(open: &impl Fn() -> Arc<dyn LinkStore>) {
    let store = open();
    a_load_equals_single_adds(&store);
    check(&store);
}

fn connect(store: &Arc<dyn LinkStore>) -> Box<dyn LinkConnection> {
    store.connect().expect("a connection")
}

fn check(store: &Arc<dyn LinkStore>) -> TableTotals {
    connect(store).check().expect("tables that agree")
}

/// Runs a call again until it does not conflict.
fn done<T>(mut call: impl FnMut() -> Result<T>) -> T {
    for _ in 0..ATTEMPTS {
        match call() {
            Ok(result) => return result,
            Err(EngineError::Retry(_)) => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("still conflicting after {ATTEMPTS} attempts");
}

fn key(id1: u64, id2: u64) -> LinkKey {
    LinkKey {
        id1,
        link_type: TYPE,
        id2,
    }
}

fn link(key: LinkKey, time: u64, data: &[u8]) -> Link<'_> {
    Link {
        key,
        visibility: 1,
        time,
        version: 0,
        data,
    }
}

fn node(id: u64, version: u64, data: &[u8]) -> Node<'_> {
    Node {
        id,
        node_type: NODE_TYPE,
        version,
        time: 77,
        data,
    }
}

fn expect_link(
    connection: &mut dyn LinkConnection,
    key: LinkKey,
    visibility: u8,
    time: u64,
    data: &[u8],
) {
    let found = connection.read_link(key).expect("a read");
    assert_eq!(
        found,
        Some((visibility, time, 0, data.to_vec())),
        "link {key:?}"
    );
}

/// Checks count, time and version of the count row, and the answer of a count request.
fn expect_count(connection: &mut dyn LinkConnection, id: u64, count: u64, time: u64, version: u64) {
    let expected = Count {
        id,
        link_type: TYPE,
        count,
        time,
        version,
    };
    assert_eq!(
        connection.read_count(id, TYPE).expect("a read"),
        Some(expected)
    );
    assert_eq!(connection.count_links(id, TYPE).expect("a count"), count);
}

fn list(connection: &mut dyn LinkConnection, id1: u64) -> ListResult {
    let all = ListQuery {
        id1,
        link_type: TYPE,
        time_min: 0,
        time_max: i64::MAX as u64,
        offset: 0,
        limit: 10_000,
    };
    connection.list_links(&all).expect("a list")
}

fn adds_rewrite_visible_links_and_revive_hidden_ones(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    assert_eq!(
        c.count_links(1, TYPE).expect("a count"),
        0,
        "no row counts as 0"
    );
    assert_eq!(
        done(|| c.add_link(&link(key(1, 2), 10, b"one"))),
        WriteOutcome::Inserted
    );
    expect_link(c, key(1, 2), 1, 10, b"one");
    expect_count(c, 1, 1, 10, 0);
    assert_eq!(
        done(|| c.add_link(&link(key(1, 2), 20, b"two"))),
        WriteOutcome::Changed
    );
    expect_link(c, key(1, 2), 1, 20, b"two");
    expect_count(c, 1, 1, 10, 0);
    assert_eq!(
        done(|| c.delete_link(key(1, 2), 30, false)),
        WriteOutcome::Changed
    );
    assert_eq!(
        done(|| c.add_link(&link(key(1, 2), 40, b"four"))),
        WriteOutcome::Revived
    );
    expect_link(c, key(1, 2), 1, 40, b"four");
    expect_count(c, 1, 1, 40, 2);
    assert_eq!(
        list(c, 1),
        ListResult {
            rows: 1,
            last: Some((40, 2))
        }
    );
}

fn updates_insert_rewrite_and_revive(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    assert_eq!(
        done(|| c.update_link(&link(key(1, 2), 10, b"one"))),
        WriteOutcome::Inserted
    );
    expect_count(c, 1, 1, 10, 0);
    assert_eq!(
        done(|| c.update_link(&link(key(1, 2), 20, b"two"))),
        WriteOutcome::Changed
    );
    expect_link(c, key(1, 2), 1, 20, b"two");
    done(|| c.delete_link(key(1, 2), 30, false));
    assert_eq!(
        done(|| c.update_link(&link(key(1, 2), 40, b"four"))),
        WriteOutcome::Revived
    );
    expect_count(c, 1, 1, 40, 2);
}

fn deletes_hide_visible_links_only(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    assert_eq!(
        done(|| c.delete_link(key(1, 2), 5, false)),
        WriteOutcome::Nothing,
        "missing"
    );
    assert_eq!(
        c.read_count(1, TYPE).expect("a read"),
        None,
        "a delete of nothing writes no count"
    );
    done(|| c.add_link(&link(key(1, 2), 10, b"kept")));
    assert_eq!(
        done(|| c.delete_link(key(1, 2), 20, false)),
        WriteOutcome::Changed
    );
    expect_link(c, key(1, 2), 0, 10, b"kept");
    expect_count(c, 1, 0, 20, 1);
    assert_eq!(list(c, 1), ListResult::default());
    assert_eq!(
        done(|| c.delete_link(key(1, 2), 30, false)),
        WriteOutcome::Nothing,
        "hidden"
    );
    expect_count(c, 1, 0, 20, 1);
}

fn expunged_links_are_gone(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    for id2 in [2, 3] {
        done(|| c.add_link(&link(key(1, id2), 10, b"x")));
    }
    assert_eq!(
        done(|| c.delete_link(key(1, 2), 20, true)),
        WriteOutcome::Changed
    );
    expect_count(c, 1, 1, 20, 2);
    done(|| c.delete_link(key(1, 3), 30, false));
    done(|| c.delete_link(key(1, 3), 40, true));
    expect_count(c, 1, 0, 30, 3);
    assert_eq!(c.multiget_links(1, TYPE, &[2, 3]).expect("a multi-get"), 0);
    assert_eq!(check(store).links, 0);
}

fn lists_are_newest_first_within_window_offset_and_limit(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    // Times 10, 20, 30, 30, 40. Rows of adjacent lists must not appear.
    for (id2, time) in [(9, 10), (4, 20), (8, 30), (5, 30), (6, 40)] {
        done(|| c.add_link(&link(key(2, id2), time, b"payload")));
    }
    done(|| c.add_link(&link(key(2, 7), 35, b"hidden")));
    done(|| c.delete_link(key(2, 7), 36, false));
    for (id1, link_type) in [(1, TYPE), (3, TYPE), (2, TYPE + 1), (2, TYPE - 1)] {
        done(|| {
            c.add_link(&link(
                LinkKey {
                    id1,
                    link_type,
                    id2: 1,
                },
                25,
                b"other",
            ))
        });
    }
    let mut expect = |time_min, time_max, offset, limit, rows, last| {
        let query = ListQuery {
            id1: 2,
            link_type: TYPE,
            time_min,
            time_max,
            offset,
            limit,
        };
        assert_eq!(
            c.list_links(&query).expect("a list"),
            ListResult { rows, last },
            "{query:?}"
        );
    };
    let newest = i64::MAX as u64;
    expect(0, newest, 0, 10_000, 5, Some((10, 9)));
    let (first, second) = match store.equal_times() {
        EqualTimes::Ascending => (5, 8),
        EqualTimes::Descending => (8, 5),
    };
    let order = [(40, 6), (30, first), (30, second), (20, 4), (10, 9)];
    for (place, row) in order.into_iter().enumerate() {
        expect(0, newest, place, 1, 1, Some(row));
        expect(0, newest, 0, place + 1, place as u64 + 1, Some(row));
    }
    expect(20, 30, 0, 10_000, 3, Some((20, 4)));
    expect(21, 29, 0, 10_000, 0, None);
    expect(0, 30, 1, 10_000, 3, Some((10, 9)));
    expect(0, newest, 5, 10_000, 0, None);
}

fn a_rewritten_link_moves_in_its_list(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    for id2 in 1..=3 {
        done(|| c.add_link(&link(key(1, id2), id2 * 10, b"old")));
    }
    done(|| c.update_link(&link(key(1, 1), 99, b"new")));
    assert_eq!(
        list(c, 1),
        ListResult {
            rows: 3,
            last: Some((20, 2))
        }
    );
    // Only the payload changes: the entry keeps its place.
    done(|| c.update_link(&link(key(1, 1), 99, b"newer")));
    assert_eq!(
        list(c, 1),
        ListResult {
            rows: 3,
            last: Some((20, 2))
        }
    );
}

fn multigets_find_hidden_links_and_not_missing_ones(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    for id2 in [10, 20, 30] {
        done(|| c.add_link(&link(key(1, id2), id2, b"x")));
    }
    done(|| c.delete_link(key(1, 20), 50, false));
    assert_eq!(
        c.multiget_links(1, TYPE, &[20, 15, 30])
            .expect("a multi-get"),
        2
    );
    assert_eq!(c.multiget_links(1, TYPE, &[11]).expect("a multi-get"), 0);
    assert_eq!(c.multiget_links(2, TYPE, &[10]).expect("a multi-get"), 0);
    let many: Vec<u64> = (0..127).collect();
    assert_eq!(c.multiget_links(1, TYPE, &many).expect("a multi-get"), 3);
}

fn nodes_get_the_next_id_and_are_found_by_type(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    let nodes: Vec<Node<'_>> = (1..=5).map(|id| node(id, 1, b"loaded")).collect();
    done(|| c.load_nodes(&nodes));
    let other = &mut *connect(store);
    assert_eq!(done(|| other.add_node(&node(0, 1, b"added"))), 6);
    assert_eq!(done(|| c.add_node(&node(0, 1, b"added"))), 7);
    assert!(c.get_node(7, NODE_TYPE).expect("a read"));
    assert!(!c.get_node(7, NODE_TYPE + 1).expect("a read"), "wrong type");
    assert!(!c.get_node(8, NODE_TYPE).expect("a read"), "missing");
    let wrong_type = Node {
        node_type: 1,
        ..node(3, 2, b"no")
    };
    assert!(!done(|| c.update_node(&wrong_type)));
    assert!(!done(|| c.delete_node(3, 1)));
    assert!(done(|| c.update_node(&node(3, 2, b"updated"))));
    let found = c.read_node(3).expect("a read");
    assert_eq!(found, Some((NODE_TYPE, 2, 77, b"updated".to_vec())));
    assert!(done(|| c.delete_node(3, NODE_TYPE)));
    assert!(!done(|| c.delete_node(3, NODE_TYPE)), "missing");
    assert!(!done(|| c.update_node(&node(3, 2, b"gone"))), "missing");
    assert_eq!(c.read_node(3).expect("a read"), None);
    assert_eq!(check(store).nodes, 6);
}

fn payloads_are_any_bytes(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    let bytes: Vec<u8> = (0..=254).map(|byte: u8| byte.wrapping_add(1)).collect();
    for (id2, data) in [(1, &bytes[..]), (2, &[]), (3, &[0, 0, 0])] {
        done(|| c.add_link(&link(key(1, id2), id2, data)));
        expect_link(c, key(1, id2), 1, id2, data);
    }
    let large: Vec<u8> = (0..100_000u32).map(|i| (i * 7 / 3) as u8).collect();
    let id = done(|| c.add_node(&node(0, 1, &large)));
    assert_eq!(
        c.read_node(id).expect("a read"),
        Some((NODE_TYPE, 1, 77, large))
    );
}

fn a_load_equals_single_adds(store: &Arc<dyn LinkStore>) {
    let c = &mut *connect(store);
    let data: Vec<Vec<u8>> = (0..30u64).map(|i| vec![i as u8; i as usize]).collect();
    // The list of id 1 is loaded, the list of id 2 is added.
    let loaded: Vec<Link<'_>> = (0..30)
        .map(|i| link(key(1, i), 1000 - i, &data[i as usize]))
        .collect();
    done(|| c.load_links(&loaded[..20]));
    done(|| c.load_links(&loaded[20..]));
    done(|| {
        c.load_counts(&[Count {
            id: 1,
            link_type: TYPE,
            count: 30,
            time: 1000,
            version: 0,
        }])
    });
    if store.separate_index() {
        store.build_index().expect("an index");
    }
    for row in &loaded {
        let added = Link {
            key: key(2, row.key.id2),
            ..*row
        };
        done(|| c.add_link(&added));
    }
    for row in &loaded {
        expect_link(c, row.key, 1, row.time, row.data);
        expect_link(c, key(2, row.key.id2), 1, row.time, row.data);
    }
    assert_eq!(list(c, 1), list(c, 2));
    assert_eq!(
        c.count_links(1, TYPE).expect("a count"),
        c.count_links(2, TYPE).expect("a count")
    );
    let expected = TableTotals {
        nodes: 0,
        links: 60,
        visible_links: 60,
        counts: 2,
    };
    assert_eq!(check(store), expected);
    // Requests change loaded links like added ones.
    assert_eq!(
        done(|| c.delete_link(key(1, 3), 2000, false)),
        WriteOutcome::Changed
    );
    assert_eq!(
        done(|| c.add_link(&link(key(1, 4), 2001, b"again"))),
        WriteOutcome::Changed
    );
    expect_count(c, 1, 29, 2000, 1);
}

fn counts_hold_under_concurrency(store: &Arc<dyn LinkStore>) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut connection = connect(store);
            scope.spawn(move || mixed_writes(&mut *connection, thread));
        }
    });
    let totals = check(store);
    assert!(totals.links > 0 && totals.links <= 3 * 4, "{totals:?}");
    let c = &mut *connect(store);
    let counted: u64 = (1..=3)
        .map(|id1| c.count_links(id1, TYPE).expect("a count"))
        .sum();
    let listed: u64 = (1..=3).map(|id1| list(c, id1).rows).sum();
    assert_eq!(
        (counted, listed),
        (totals.visible_links, totals.visible_links)
    );
}

/// Adds, updates and deletes twelve links, with reads in between.
fn mixed_writes(c: &mut dyn LinkConnection, thread: u64) {
    let mut random = Random::new(thread);
    for step in 0..OPERATIONS {
        let key = key(1 + random.below(3), random.below(4));
        let data = [thread as u8, step as u8];
        let time = 1 + step * THREADS + thread;
        match random.below(5) {
            0 => _ = done(|| c.add_link(&link(key, time, &data))),
            1 => _ = done(|| c.update_link(&link(key, time, &data))),
            2 | 3 => _ = done(|| c.delete_link(key, time, false)),
            _ => {
                let rows = list(c, key.id1).rows;
                assert!(rows <= 4, "{rows} rows in a list of at most 4");
            }
        }
    }
}
