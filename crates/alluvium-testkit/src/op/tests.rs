//! Tests of the generator: every operation is possible, every kind occurs, equal seeds agree.

use super::*;
use crate::random::Seeded;

/// Generates a history with all kinds of operations, and applies it to a model.
fn history(rng: &mut Rng, length: usize) -> (Vec<Op>, Model) {
    let weights = Weights {
        delete_range: 3,
        crash: 1,
        create_keyspace: 5,
        drop_keyspace: 1,
        ..Weights::default()
    };
    let mut generator = Generator::new(weights, KeyShape::default(), rng);
    let (mut ops, mut model) = (Vec::new(), Model::new());
    for _ in 0..length {
        let op = generator.next(rng, &model);
        // Panics on an insert of an existing key and on wrong names of keyspaces.
        op.apply(&mut model);
        ops.push(op);
    }
    (ops, model)
}

#[test]
fn every_operation_is_possible_when_it_comes() {
    Seeded::run("every_operation_is_possible_when_it_comes", 20, |rng| {
        let (ops, _) = history(rng, 500);
        let (mut open, mut cursors) = (0, 0);
        for op in ops {
            match op {
                Op::Snapshot => open += 1,
                Op::DropSnapshot(index) => {
                    assert!(index < open);
                    open -= 1;
                }
                Op::OpenCursor { snapshot, .. } => {
                    assert!(snapshot.is_none_or(|index| index < open));
                    cursors += 1;
                }
                Op::MoveCursor(index, _) => assert!(index < cursors),
                Op::CloseCursor(index) => {
                    assert!(index < cursors);
                    cursors -= 1;
                }
                Op::Reopen | Op::Crash => (open, cursors) = (0, 0),
                Op::Get { snapshot, .. } | Op::Scan { snapshot, .. } => {
                    assert!(snapshot.is_none_or(|index| index < open));
                }
                _ => {}
            }
            assert!(open <= SNAPSHOTS_MAX && cursors <= CURSORS_MAX);
        }
    });
}

#[test]
fn every_kind_of_operation_comes() {
    let (ops, _) = history(&mut Rng::new(1), 5000);
    let kinds: BTreeSet<String> = ops
        .iter()
        .map(|op| {
            op.to_string()
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect();
    let expected =
        "close commit compact crash create cursor drop flush get ingest move reopen scan snapshot";
    assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn equal_seeds_give_equal_histories() {
    let shown = |seed| {
        let (ops, _) = history(&mut Rng::new(seed), 300);
        ops.iter().map(Op::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(5), shown(5));
    assert_ne!(shown(5), shown(6));
}

#[test]
fn keys_are_clustered_and_values_differ() {
    let (_, model) = history(&mut Rng::new(2), 5000);
    let state = model.state();
    let keys: BTreeSet<&Vec<u8>> = state.values().flat_map(|rows| rows.keys()).collect();
    let nested = keys.iter().zip(keys.iter().skip(1));
    let nested = nested.filter(|(key, next)| next.starts_with(key)).count();
    assert!(nested > 0 && keys.iter().all(|key| key.len() <= 40));
    let values: Vec<&Vec<u8>> = state.values().flat_map(|rows| rows.values()).collect();
    let distinct: BTreeSet<&Vec<u8>> = values.iter().copied().collect();
    assert_eq!(values.len(), distinct.len());
}

#[test]
fn operations_are_shown_on_one_line() {
    let put = Write::Put(b"k\0".to_vec(), b"v7.xx".to_vec());
    let commit = Op::Commit(vec![("a".to_string(), put)]);
    assert_eq!(commit.to_string(), "commit [a put \"k\\x00\" v7 (5 bytes)]");
    let scan = Op::Scan {
        keyspace: "a".to_string(),
        range: (Bound::Included(b"b".to_vec()), Bound::Unbounded),
        direction: Direction::Forward,
        limit: 2,
        snapshot: Some(0),
    };
    assert_eq!(
        scan.to_string(),
        "scan a =\"b\".. Forward limit=2 snapshot=0"
    );
}
