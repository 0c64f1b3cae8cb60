//! Prints the time of an insert, a get and a short scan, for small and large memtables.
//!
//! ```text
//! cargo run --release -p alluvium-mem --example memtable_cost
//! ```
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use alluvium_mem::{Memtable, MemtableOptions};

const KEY_BYTES: usize = 37;
const VALUE: [u8; 24] = [7; 24];
const SCAN_ROWS: usize = 6;

/// The finalizer of SplitMix64: a bijection of well mixed numbers.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key
}

/// Returns the nanoseconds per call of `work`.
fn time(calls: u64, mut work: impl FnMut(u64)) -> u64 {
    let start = Instant::now();
    (0..calls).for_each(&mut work);
    (start.elapsed().as_nanos() / u128::from(calls)) as u64
}

fn measure(entries: u64) {
    let memtable = Arc::new(Memtable::new(&MemtableOptions {
        expected_bytes: entries as usize * 96,
        ..MemtableOptions::default()
    }));
    let mut writer = memtable.writer();
    let insert = time(entries, |n| {
        writer.insert(&key(n), mix(n), None, n + 1, 2, &VALUE, 0);
    });
    drop(writer);
    // An order different from that of the inserts.
    let other = |n: u64| mix(n ^ 0x5555) % entries;
    let get = time(entries, |n| {
        let found = memtable.get(&key(other(n)), u64::MAX);
        assert!(black_box(found).is_some());
    });
    let filter = time(entries, |n| {
        black_box(memtable.may_contain(mix(n + entries)));
    });
    let mut cursor = memtable.cursor(u64::MAX);
    let scan = time(entries, |n| {
        cursor.seek(&key(other(n)));
        for _ in 0..SCAN_ROWS {
            black_box(cursor.entry().value.first());
            if !cursor.next() {
                break;
            }
        }
    });
    let mut rows = 0;
    let walk_all = time(1, |_| {
        cursor.seek_first();
        while cursor.valid() {
            rows += 1;
            cursor.next();
        }
    }) / rows;
    let megabytes = memtable.bytes() >> 20;
    println!(
        "{entries:>8} {megabytes:>6} {insert:>10} {get:>8} {filter:>12} {scan:>14} {walk_all:>14}"
    );
}

fn main() {
    println!(
        "{:>8} {:>6} {:>10} {:>8} {:>12} {:>14} {:>14}",
        "entries", "MB", "insert ns", "get ns", "no match ns", "6-row scan ns", "next ns/row"
    );
    for entries in [125_000, 500_000] {
        (0..3).for_each(|_| measure(entries));
    }
}
