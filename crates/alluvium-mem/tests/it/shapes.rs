//! Insertion orders, sizes and chains with their own code paths in the tree.

use std::sync::Arc;

use alluvium_mem::{KEY_BYTES_MAX, Memtable, MemtableOptions};

use crate::model::{Model, Random, hash};

fn keys_inserted_in_order(order: impl Iterator<Item = u64>, key: impl Fn(u64) -> Vec<u8>) -> Model {
    let mut model = Model::new();
    for number in order {
        model.insert(&key(number), &number.to_le_bytes());
    }
    model.check_all(u64::MAX);
    model.check_all(model.seqno / 2);
    model
}

const KEYS: u64 = if cfg!(miri) { 120 } else { 20_000 };

#[test]
fn ascending_inserts_are_complete_and_fill_their_leaves() {
    let model = keys_inserted_in_order(0..KEYS, |number| number.to_be_bytes().to_vec());
    let ascending_bytes = model.memtable.bytes();
    let descending = keys_inserted_in_order((0..KEYS).rev(), |n| n.to_be_bytes().to_vec());
    assert!(ascending_bytes <= descending.memtable.bytes());
}

#[test]
fn descending_inserts_are_complete() {
    keys_inserted_in_order((0..KEYS).rev(), |number| number.to_be_bytes().to_vec());
}

#[test]
fn keys_that_differ_only_after_a_long_prefix_are_distinct() {
    let mut random = Random(7);
    let order: Vec<u64> = (0..KEYS).map(|_| random.below(KEYS)).collect();
    keys_inserted_in_order(order.into_iter(), |number| {
        [b"a prefix longer than any head ", &number.to_be_bytes()[..]].concat()
    });
}

#[test]
fn keys_that_differ_only_in_length_are_told_apart() {
    let order = (0..if cfg!(miri) { 40 } else { 300 }).rev();
    keys_inserted_in_order(order, |number| vec![0; number as usize]);
}

#[test]
fn an_empty_memtable_finds_nothing() {
    let memtable = Arc::new(Memtable::new(&MemtableOptions::default()));
    assert!(memtable.is_empty());
    assert_eq!(memtable.seqno_range(), None);
    assert_eq!(memtable.get(b"", u64::MAX), None);
    assert!(!memtable.may_contain(hash(b"")));
    let mut cursor = memtable.cursor(u64::MAX);
    assert!(!cursor.seek_first() && !cursor.seek_last());
    assert!(!cursor.seek(b"a") && !cursor.seek_before(b"a"));
    assert!(!cursor.next() && !cursor.prev() && !cursor.valid());
}

#[test]
fn the_prefix_filter_is_kept_only_when_asked_for() {
    let without = Memtable::new(&MemtableOptions::default());
    assert!(without.may_contain_prefix(1));
    let options = MemtableOptions {
        prefix_bytes: Some(4),
        ..MemtableOptions::default()
    };
    let with = Memtable::new(&options);
    assert!(!with.may_contain_prefix(1));
    with.writer().insert(b"abcdef", 5, Some(1), 1, 2, b"", 0);
    assert!(with.may_contain_prefix(1) && with.may_contain(5));
}

#[test]
fn large_keys_and_values_come_back_whole() {
    let mut model = Model::new();
    let megabytes = if cfg!(miri) { 1 } else { 9 };
    for size in [0, 1, 70_000, megabytes << 20] {
        let key = vec![size as u8; size.min(KEY_BYTES_MAX)];
        model.insert(&key, &vec![7; size]);
    }
    model.check_all(u64::MAX);
    assert!(model.memtable.bytes() > megabytes << 20);
}

fn chain_length(model: &Model, key: &[u8]) -> usize {
    let mut cursor = model.memtable.cursor(u64::MAX);
    assert!(cursor.seek(key));
    assert_eq!(cursor.key(), key);
    cursor.versions().count()
}

const VERSIONS: u64 = if cfg!(miri) { 300 } else { 10_000 };

#[test]
fn a_hot_key_below_the_horizon_keeps_two_versions() {
    let mut model = Model::new();
    for _ in 0..VERSIONS {
        model.insert(b"hot", b"value");
        assert!(chain_length(&model, b"hot") <= 2);
        model.horizon = model.seqno;
    }
    model.check_get(b"hot", model.seqno);
}

#[test]
fn a_hot_key_stays_short_while_the_horizon_lags_behind() {
    let mut model = Model::new();
    for lag in [1, 5, 20] {
        for _ in 0..VERSIONS / 3 {
            model.insert(b"hot", b"value");
            model.horizon = model.horizon.max(model.seqno.saturating_sub(lag));
            let length = chain_length(&model, b"hot");
            assert!(length <= 2 * lag as usize + 12, "lag {lag}: {length}");
            model.check_get(b"hot", model.horizon);
        }
    }
}

#[test]
fn a_held_horizon_keeps_every_version_and_its_release_unlinks_them() {
    let mut model = Model::new();
    (0..VERSIONS).for_each(|_| model.insert(b"hot", b"value"));
    assert_eq!(chain_length(&model, b"hot"), VERSIONS as usize);
    for read_point in 0..VERSIONS.min(50) {
        model.check_get(b"hot", read_point);
    }
    model.horizon = model.seqno;
    model.insert(b"hot", b"value");
    assert_eq!(chain_length(&model, b"hot"), 2);
    model.check_get(b"hot", model.horizon);
}

#[test]
fn a_cursor_goes_on_from_its_key_after_the_leaf_has_changed() {
    let mut model = Model::new();
    for number in (0..KEYS).step_by(2) {
        model.insert(&number.to_be_bytes(), b"even");
    }
    let mut old = model.memtable.cursor(model.seqno);
    let mut new = model.memtable.cursor(u64::MAX);
    assert!(old.seek_first() && new.seek_first());
    let mut back = model.memtable.cursor(model.seqno);
    assert!(back.seek_last());
    for number in (0..KEYS).step_by(2) {
        model.insert(&(number + 1).to_be_bytes(), b"odd");
        assert_eq!(old.key(), number.to_be_bytes());
        assert_eq!(new.key(), number.to_be_bytes());
        assert_eq!(back.key(), (KEYS - 2 - number).to_be_bytes());
        assert!(new.next());
        assert_eq!(new.key(), (number + 1).to_be_bytes());
        let more = number + 2 < KEYS;
        assert_eq!((old.next(), new.next(), back.prev()), (more, more, more));
    }
}

/// Asserts that shares are within `bound` of the truth for keys that are numbers below `KEYS`.
fn check_shares(order: impl Iterator<Item = u64>, bound: f64) {
    let memtable = Memtable::new(&MemtableOptions::default());
    for (seqno, number) in (1..).zip(order) {
        memtable
            .writer()
            .insert(&number.to_be_bytes(), 0, None, seqno, 2, b"", 0);
    }
    assert_eq!(memtable.keys() as u64, KEYS);
    assert_eq!(memtable.share_before(b""), 0.0);
    assert_eq!(memtable.share_before(&[0xFF; 9]), 1.0);
    for number in (0..KEYS).step_by(37) {
        let share = memtable.share_before(&number.to_be_bytes());
        let off = (share - number as f64 / KEYS as f64).abs();
        assert!(off < bound, "{number}: {share}");
    }
}

#[test]
fn shares_of_keys_follow_from_their_places_in_the_tree() {
    let bound = if cfg!(miri) { 0.2 } else { 0.05 };
    check_shares(0..KEYS, bound);
    check_shares((0..KEYS).rev(), bound);
    // Coprime to the number of keys, so each key comes once, in an order without pattern; then
    // again, as newer versions of the same keys.
    let spread = |n: u64| n * 7_919 % KEYS;
    check_shares(
        (0..KEYS).map(spread).chain((0..KEYS / 2).map(spread)),
        bound,
    );
}

#[cfg(not(miri))]
#[test]
fn shares_of_many_keys_are_right_although_their_nodes_are_filled_differently() {
    const MANY: u64 = 300_000;
    let memtable = Memtable::new(&MemtableOptions::default());
    let order = (0..MANY / 2).chain((MANY / 2..MANY).rev());
    for (seqno, number) in (1..).zip(order) {
        let key = number.to_be_bytes();
        memtable.writer().insert(&key, 0, None, seqno, 2, b"", 0);
    }
    for number in (0..MANY).step_by(9_973) {
        let share = memtable.share_before(&number.to_be_bytes());
        let off = (share - number as f64 / MANY as f64).abs();
        assert!(off < 0.05, "{number}: {share}");
    }
}

#[test]
fn an_empty_memtable_has_no_share_before_a_key() {
    let memtable = Memtable::new(&MemtableOptions::default());
    assert_eq!((memtable.keys(), memtable.share_before(b"a")), (0, 0.0));
}
