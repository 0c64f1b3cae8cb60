//! Tests of the cache over whole tables: same answers, bounded memory, no leaks.

use super::*;
use crate::table::block::DecodedBlock;
use alluvium_mem::frames::Space;
use std::sync::atomic::{AtomicBool, Ordering};

fn rows(n: u32) -> Vec<Entry> {
    let row = |i: u32| entry(&i.to_be_bytes(), 0, ValueKind::Put, &[i as u8; 100]);
    (0..n).map(row).collect()
}

#[test]
fn a_tiny_cache_gives_the_same_answers_and_stays_within_its_capacity() {
    let entries = rows(5000);
    let capacity = 24 << 10;
    let cache = Cache::of_bytes(capacity);
    let table = open_with(build(&entries, &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    assert!(table.blocks() > 20);
    let mut random = Random::new(5);
    for _ in 0..3000 {
        let e = &entries[random.below(5000) as usize];
        assert_eq!(get(&table, &e.key, 0).expect("readable").as_ref(), Some(e));
        assert!(cache.used_bytes() <= capacity);
    }
    assert!(cache.used_bytes() > 0);
    assert!(cache.hits() > 0 && cache.misses() > 20);
}

#[test]
fn a_held_block_keeps_its_rows_after_its_eviction() {
    let entries = rows(1000);
    let cache = Cache::of_bytes(32 << 10);
    let table = open_with(build(&entries, &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    for index in 0..table.blocks() {
        drop(table.hold_block(index).expect("readable"));
        let held = table.hold_cached_block(index).expect("just read");
        cache.budget().set_total(0);
        cache.trim();
        assert!(table.hold_cached_block(index).is_none());
        cache.budget().set_total(32 << 10);
        for e in entries.iter().rev() {
            assert_eq!(get(&table, &e.key, 0).expect("readable").as_ref(), Some(e));
        }
        let again = table.read_block(index, Space::alone).expect("readable");
        let (held, again) = (held.rows(), DecodedBlock(&again));
        assert_eq!(held.len(), again.len());
        assert!((0..held.len()).all(|slot| held.row(slot) == again.row(slot)));
    }
}

#[test]
fn an_evicted_block_is_charged_until_its_readers_have_left() {
    let cache = Cache::of_bytes(1 << 20);
    let table = open_with(build(&rows(100), &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    drop(table.hold_block(0).expect("readable"));
    let held = table.hold_block(0).expect("cached");
    let charged = cache.used_bytes();
    cache.budget().set_total(0);
    cache.trim();
    assert!(charged > 0 && table.hold_cached_block(0).is_none());
    assert_eq!(cache.used_bytes(), charged);
    assert_eq!(held.rows().row(7).value, [7; 100]);
    drop(held);
    cache.trim();
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn a_block_is_read_once_while_it_fits_and_scans_leave_the_cache_alone() {
    let entries = rows(5000);
    let cache = Cache::of_bytes(64 << 20);
    let table = open_with(build(&entries, &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    assert_eq!(scan(&table, None, None).expect("readable"), entries);
    table.verify().expect("right");
    assert_eq!((cache.used_bytes(), cache.misses()), (0, 0));
    for _ in 0..2 {
        for e in &entries {
            get(&table, &e.key, 0).expect("readable");
        }
        assert_eq!(cache.misses(), table.blocks() as u64);
    }
}

#[test]
fn a_dropped_table_gives_its_frames_back() {
    let cache = Cache::of_bytes(64 << 20);
    let bytes = build(&rows(5000), &options(8 << 10, Codec::Lz4));
    let table = open_with(bytes.clone(), &cache).expect("opens");
    let other = open_with(bytes, &cache).expect("opens");
    for e in rows(5000) {
        get(&table, &e.key, 0).expect("readable");
    }
    get(&other, &0u32.to_be_bytes(), 0).expect("readable");
    let both = cache.used_bytes();
    drop(table);
    let again = open_with(build(&rows(5000), &options(8 << 10, Codec::Lz4)), &cache);
    let again = again.expect("opens");
    for e in rows(5000) {
        get(&again, &e.key, 0).expect("readable");
    }
    assert_eq!(cache.used_bytes(), both, "it took their place");
    drop((again, other));
    cache.budget().set_total(0);
    cache.trim();
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn a_pinned_value_outlives_table_and_cache() {
    let cache = Cache::of_bytes(1 << 20);
    let entries = rows(100);
    let table = open_with(build(&entries, &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    let key = &entries[42].key;
    let found = table.get(key, key_hash(key), 0).expect("readable");
    cache.budget().set_total(0);
    drop(table);
    assert_eq!(found.map(|f| f.value.to_vec()), Some(vec![42; 100]));
}

#[test]
fn threads_that_miss_the_same_blocks_agree_and_charge_each_once() {
    let cache = Cache::of_bytes(64 << 20);
    let entries = rows(3000);
    let table = open_with(build(&entries, &options(8 << 10, Codec::Zstd)), &cache).expect("opens");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for e in &entries {
                    assert_eq!(get(&table, &e.key, 0).expect("readable").as_ref(), Some(e));
                }
            });
        }
    });
    let used = cache.used_bytes();
    cache.budget().set_total(0);
    cache.trim();
    assert_eq!(cache.used_bytes(), 0, "of {used}");
}

#[test]
fn an_obsolete_table_is_removed_when_its_last_user_drops_it() {
    static REMOVED: AtomicBool = AtomicBool::new(false);
    let table = open(build(&rows(10), &TableOptions::default())).expect("opens");
    let cursor = table.cursor(0);
    table.mark_obsolete(Box::new(|_, _| REMOVED.store(true, Ordering::Relaxed)));
    drop(table);
    assert!(!REMOVED.load(Ordering::Relaxed));
    drop(cursor);
    assert!(REMOVED.load(Ordering::Relaxed));
}

#[test]
fn the_last_user_of_an_obsolete_table_leaves_its_cached_blocks_to_another_thread() {
    let (send, receive) = std::sync::mpsc::channel();
    let cache = Cache::of_bytes(64 << 20);
    let table = open_with(build(&rows(500), &options(8 << 10, Codec::Lz4)), &cache).expect("opens");
    for e in rows(500) {
        get(&table, &e.key, 0).expect("readable");
    }
    let (free, blocks) = (cache.free_frames(), table.blocks());
    table.mark_obsolete(Box::new(move |_, memory| send.send(memory).expect("sent")));
    drop(table);
    assert_eq!(cache.free_frames(), free, "freed by the reader");
    drop(receive.recv().expect("memory"));
    assert_eq!(cache.free_frames(), free + blocks);
}

#[test]
fn handles_move_between_threads() {
    fn moves<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Table>();
    is_shared::<Cache>();
    is_shared::<crate::table::PinnedValue>();
    moves::<crate::table::TableCursor>();
    moves::<crate::table::TableScan>();
    moves::<TableBuilder>();
}
