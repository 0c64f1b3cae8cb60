//! Tests of cursors, scans and lookups against a sorted map, with read points, in both directions.

use super::*;
use crate::table::PrefixFilter;
use crate::table::TableCursor;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Versions of each key, newest first.
type Model = BTreeMap<Vec<u8>, Vec<Entry>>;

/// Generates few distinct keys with runs of versions, so that versions cross block borders.
fn random_model(random: &mut Random) -> Model {
    let mut model = Model::new();
    for _ in 0..1 + random.below(60) {
        let length = random.below(4) as usize;
        let mut key = b"shared-stem-"[..random.below(13) as usize].to_vec();
        key.extend((0..length).map(|_| b'a' + random.below(3) as u8));
        let versions = match random.below(8) {
            0 => 1 + random.below(120),
            _ => 1 + random.below(3),
        };
        let mut seqnos: Vec<SeqNo> = (0..versions).map(|_| random.below(200)).collect();
        seqnos.sort_by(|a, b| b.cmp(a));
        seqnos.dedup();
        let entries = seqnos.into_iter().map(|seqno| {
            let kind = [ValueKind::Put, ValueKind::Delete][random.below(2) as usize];
            let length = random.below(30) as usize;
            entry(&key, seqno, kind, &random.bytes(length))
        });
        let entries = entries.collect();
        model.insert(key.clone(), entries);
    }
    model
}

/// Returns the rows that a cursor at `read_point` shows.
fn visible(model: &Model, read_point: SeqNo) -> BTreeMap<Vec<u8>, Entry> {
    let newest = model.iter().filter_map(|(key, versions)| {
        let entry = versions.iter().find(|e| e.seqno <= read_point)?;
        Some((key.clone(), entry.clone()))
    });
    newest.collect()
}

fn shown(cursor: &TableCursor) -> Option<Entry> {
    let value = cursor.valid().then(|| cursor.pin_value());
    if let Some(value) = &value {
        assert_eq!(**value, *cursor.value());
    }
    value.map(|value| entry(cursor.key(), cursor.seqno(), cursor.kind(), &value))
}

fn random_key(random: &mut Random, model: &Model) -> Vec<u8> {
    let mut key = match random.below(10) {
        0 => Vec::new(),
        1 => vec![0xFF],
        _ => {
            let n = random.below(model.len() as u64) as usize;
            model.keys().nth(n).cloned().unwrap_or_default()
        }
    };
    match random.below(4) {
        0 => key.push(0),
        1 => drop(key.pop()),
        2 => key.extend(random.bytes(2)),
        _ => {}
    }
    key
}

fn random_table(random: &mut Random, model: &Model) -> Arc<Table> {
    let entries: Vec<Entry> = model.values().flatten().cloned().collect();
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::ZstdDictionary];
    let mut options = options(512, codecs[random.below(4) as usize]);
    options.sample_bytes = 4 << 10;
    options.filter.whole_key_bits = random.below(2) as u32 * 10;
    options.filter.prefix = Some(PrefixFilter { bytes: 5, bits: 10 });
    // Some cases run with a cache that holds about two blocks.
    let capacity = [4 << 10, 1 << 20][random.below(2) as usize];
    let cache = Cache::of_bytes(capacity);
    open_with(build(&entries, &options), &cache).expect("a fresh table opens")
}

#[test]
fn cursors_walk_like_a_sorted_map_in_both_directions() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let model = random_model(&mut random);
        let table = random_table(&mut random, &model);
        for read_point in [0, random.below(200), random.below(200), SeqNo::MAX] {
            walk(&mut random, &model, &table, read_point, seed);
        }
    }
}

fn walk(random: &mut Random, model: &Model, table: &Arc<Table>, read_point: SeqNo, seed: u64) {
    let visible = visible(model, read_point);
    let mut cursor = table.cursor(read_point);
    let mut expected: Option<Entry> = None;
    for step in 0..120 {
        let key = random_key(random, model);
        let after = |key: &[u8]| visible.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded));
        let moved = match random.below(12) {
            0 => {
                expected = visible.range(key.clone()..).next().map(|(_, e)| e.clone());
                cursor.seek(&key)
            }
            1 => {
                expected = visible
                    .range(..key.clone())
                    .next_back()
                    .map(|(_, e)| e.clone());
                cursor.seek_before(&key)
            }
            2 => {
                expected = visible.values().next().cloned();
                cursor.seek_first()
            }
            3 => {
                expected = visible.values().next_back().cloned();
                cursor.seek_last()
            }
            4..8 => {
                expected = expected.and_then(|e| after(&e.key).next().map(|(_, e)| e.clone()));
                cursor.next()
            }
            _ => {
                expected = expected
                    .and_then(|e| visible.range(..e.key).next_back().map(|(_, e)| e.clone()));
                cursor.prev()
            }
        };
        let at = format!("seed {seed}, read point {read_point}, step {step}");
        assert_eq!(moved.expect("readable"), expected.is_some(), "{at}");
        assert_eq!(shown(&cursor), expected, "{at}");
    }
}

#[test]
fn lookups_and_scans_agree_with_a_sorted_map() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let model = random_model(&mut random);
        let table = random_table(&mut random, &model);
        table.verify().expect("a fresh table is right");
        for _ in 0..60 {
            let key = random_key(&mut random, &model);
            let read_point = random.below(210);
            let versions = model.get(&key).map_or(&[][..], |versions| versions);
            let expected = versions.iter().find(|e| e.seqno <= read_point);
            let found = get(&table, &key, read_point).expect("readable");
            assert_eq!(found.as_ref(), expected, "seed {seed}");
            let newest = table.newest_seqno(&key, key_hash(&key)).expect("readable");
            assert_eq!(newest, versions.first().map(|e| e.seqno), "seed {seed}");

            let (from, to) = (key, random_key(&mut random, &model));
            let from = (random.below(4) > 0).then_some(from);
            let to = (random.below(4) > 0).then_some(to);
            let inside = |e: &&Entry| {
                from.as_ref().is_none_or(|from| e.key >= *from)
                    && to.as_ref().is_none_or(|to| e.key < *to)
            };
            let expected: Vec<Entry> = model.values().flatten().filter(inside).cloned().collect();
            let found = scan(&table, from.as_deref(), to.as_deref()).expect("readable");
            assert_eq!(found, expected, "seed {seed}, {from:?} to {to:?}");
        }
    }
}

#[test]
fn filters_admit_every_key_and_prefix_and_refuse_most_others() {
    let keys: Vec<[u8; 8]> = (0..2000u64).map(|i| (i * 2).to_be_bytes()).collect();
    let entries: Vec<Entry> = keys
        .iter()
        .map(|k| entry(k, 0, ValueKind::Put, b""))
        .collect();
    let mut options = options(8 << 10, Codec::Lz4);
    options.filter.prefix = Some(PrefixFilter { bytes: 7, bits: 12 });
    let table = open(build(&entries, &options)).expect("opens");
    for key in &keys {
        assert!(table.may_contain(key_hash(key)));
        assert!(table.may_contain_prefix(7, key_hash(&key[..7])));
    }
    let absent = |i: u64| (i * 2 + 1).to_be_bytes();
    let passed = (0..2000).filter(|&i| table.may_contain(key_hash(&absent(i))));
    assert!(passed.count() < 100);
    let absent = |i: u64| (1_000_000 + i * 256).to_be_bytes();
    let passed = (0..2000).filter(|&i| table.may_contain_prefix(7, key_hash(&absent(i)[..7])));
    assert!(passed.count() < 100);
}

#[test]
fn a_filter_of_another_definition_is_not_used() {
    let entries = [entry(b"abcdef", 0, ValueKind::Put, b"")];
    let mut options = options(8 << 10, Codec::Lz4);
    options.filter.prefix = Some(PrefixFilter { bytes: 4, bits: 12 });
    let table = open(build(&entries, &options)).expect("opens");
    let absent = (0..1000u32).filter(|i| {
        let hash = key_hash(&i.to_be_bytes());
        assert!(table.may_contain_prefix(3, hash), "no filter over 3 bytes");
        !table.may_contain_prefix(4, hash)
    });
    assert!(absent.count() > 900);
    options.filter = FilterOptions {
        whole_key_bits: 0,
        prefix: None,
    };
    let table = open(build(&entries, &options)).expect("opens");
    assert!(table.may_contain(1) && table.may_contain_prefix(4, 1));
}

#[test]
fn keys_shorter_than_the_prefix_are_hashed_whole() {
    let entries = [entry(b"ab", 0, ValueKind::Put, b"")];
    let mut options = options(8 << 10, Codec::Lz4);
    options.filter.prefix = Some(PrefixFilter { bytes: 4, bits: 12 });
    let table = open(build(&entries, &options)).expect("opens");
    assert!(table.may_contain_prefix(4, key_hash(b"ab")));
}
