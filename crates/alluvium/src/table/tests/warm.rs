//! Tests of warming: which blocks of new tables are cached in place of old ones.

use super::*;
use crate::table::warm;

fn rows(keys: std::ops::Range<u32>) -> Vec<Entry> {
    let row = |n: u32| {
        entry(
            format!("row-{n:05}").as_bytes(),
            0,
            ValueKind::Put,
            &[7; 100],
        )
    };
    keys.map(row).collect()
}

fn table(keys: std::ops::Range<u32>, block_bytes: usize, cache: &Arc<Cache>) -> Arc<Table> {
    let bytes = build(&rows(keys), &options(block_bytes, Codec::None));
    open_with(bytes, cache).expect("a fresh table opens")
}

fn read(table: &Table, row: u32, times: usize) {
    for _ in 0..times {
        let key = format!("row-{row:05}");
        assert!(get(table, key.as_bytes(), 0).expect("readable").is_some());
    }
}

/// Returns true if a read of the row finds its block in the cache.
fn is_cached(table: &Table, row: u32) -> bool {
    table
        .frames
        .has(table.fences.find(format!("row-{row:05}").as_bytes()))
}

#[test]
fn successors_of_used_blocks_are_cached_and_others_are_not() {
    let cache = Cache::of_bytes(1 << 20);
    let old = [table(0..500, 1024, &cache), table(500..1000, 1024, &cache)];
    // One read installs a block, and each further one uses it.
    read(&old[0], 100, 4);
    read(&old[1], 600, 3);
    read(&old[1], 900, 2);
    let new = [table(0..450, 700, &cache), table(450..1000, 700, &cache)];
    warm(&old, &[&new[0], &new[1]], 1 << 20);
    assert!(is_cached(&new[0], 100) && is_cached(&new[1], 600));
    assert!(!is_cached(&new[1], 900), "used once");
    assert!(!is_cached(&new[0], 0) && !is_cached(&new[1], 700));
}

#[test]
fn the_most_used_blocks_go_first_and_the_limit_holds() {
    let cache = Cache::of_bytes(1 << 20);
    let old = [table(0..1000, 1024, &cache)];
    read(&old[0], 100, 3);
    read(&old[0], 800, 4);
    let new = [table(0..1000, 1024, &cache)];
    warm(&old, &[&new[0]], 1);
    assert!(is_cached(&new[0], 800) && !is_cached(&new[0], 100));
    warm(&old, &[], 1);
}

#[test]
fn an_unreadable_block_is_left_to_its_reader() {
    let cache = Cache::of_bytes(1 << 20);
    let old = [table(0..1000, 1024, &cache)];
    read(&old[0], 0, 4);
    let mut bytes = build(&rows(0..1000), &options(1024, Codec::None));
    bytes[40] ^= 1;
    let new = open_with(bytes, &cache).expect("blocks are read later");
    warm(&old, &[&new], 1 << 20);
    assert!(get(&new, b"row-00000", 0).is_err());
}
