//! Tests of tables with a dictionary.

use super::*;
use crate::Error;
use crate::table::dictionary::Dictionary;
use crate::table::footer::Footer;
use crate::table::{Trained, salvage};
use ValueKind::Put;

/// Returns rows whose values share words and have few of their own bytes. `words` is the seed of
/// the words.
fn rows(count: u32, words: u64) -> Vec<Entry> {
    let mut random = Random::new(words);
    let words: Vec<Vec<u8>> = (0..40).map(|_| letters(&mut random, 9)).collect();
    let mut row = |i: u32| {
        let mut value = Vec::new();
        for _ in 0..10 {
            value.extend_from_slice(&words[random.below(40) as usize]);
            value.extend_from_slice(&random.bytes(2));
        }
        entry(format!("row-{i:06}").as_bytes(), 0, Put, &value)
    };
    (0..count).map(&mut row).collect()
}

fn letters(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| b'a' + random.below(26) as u8).collect()
}

fn dictionary_options() -> TableOptions {
    TableOptions {
        sample_bytes: 32 << 10,
        ..options(1024, Codec::ZstdDictionary)
    }
}

fn footer(bytes: &[u8]) -> Footer {
    Footer::read(&*MemFile::new(bytes.to_vec()), UID).expect("a fresh footer is right")
}

/// Builds a table with an offered dictionary. Returns its bytes and what it offers in turn.
fn build_offered(
    entries: &[Entry],
    offered: Option<Arc<Trained>>,
) -> (Vec<u8>, Option<Arc<Trained>>) {
    let file = MemFile::new(Vec::new());
    let shared: Arc<dyn VfsFile> = file.clone();
    let mut builder = TableBuilder::new(shared, UID, KeyspaceId(1), &dictionary_options());
    builder.offer_dictionary(offered);
    for e in entries {
        let added = builder.add(&e.key, e.seqno, e.kind, &e.value);
        added.expect("entries are in order");
    }
    let offers = builder.dictionary().cloned();
    builder.finish().expect("memory files do not fail");
    let bytes = file.0.lock().clone();
    (bytes, offers)
}

fn is_whole(bytes: Vec<u8>, entries: &[Entry]) {
    let table = open(bytes).expect("a fresh table opens");
    table.verify().expect("a fresh table is right");
    assert_eq!(scan(&table, None, None).expect("readable"), entries);
    for e in entries.iter().step_by(7) {
        let found = get(&table, &e.key, 0).expect("readable");
        assert_eq!(found.as_ref(), Some(e));
    }
}

#[test]
fn a_dictionary_makes_small_blocks_smaller() {
    let entries = rows(2000, 1);
    let plain = build(&entries, &options(1024, Codec::Zstd));
    let with = build(&entries, &dictionary_options());
    assert_eq!(footer(&plain).dictionary.length, 0);
    assert!(footer(&with).dictionary.length > 0);
    let (plain_bytes, with_bytes) = (plain.len(), with.len());
    assert!(
        with_bytes < plain_bytes * 9 / 10,
        "{with_bytes} of {plain_bytes}"
    );
    is_whole(with, &entries);
}

#[test]
fn a_table_that_would_gain_nothing_has_no_dictionary() {
    let mut random = Random::new(3);
    let noise = (0..1000u32).map(|i| entry(&i.to_be_bytes(), 0, Put, &random.bytes(100)));
    let noise: Vec<Entry> = noise.collect();
    let few = rows(100, 1);
    // The sample ends at the large row, before it is complete.
    let mut large = rows(2000, 1);
    large[50].value = vec![7; 100_000];
    for entries in [noise, few, large] {
        let bytes = build(&entries, &dictionary_options());
        assert_eq!(footer(&bytes).dictionary.length, 0);
        is_whole(bytes, &entries);
    }
}

#[test]
fn an_offered_dictionary_is_used_while_it_fits() {
    let entries = rows(2000, 1);
    let (_, first) = build_offered(&entries, None);
    let first = first.expect("trained");
    let (bytes, second) = build_offered(&rows(1500, 1), Some(Arc::clone(&first)));
    assert!(second.is_some_and(|second| Arc::ptr_eq(&first, &second)));
    is_whole(bytes, &rows(1500, 1));
    let (bytes, third) = build_offered(&rows(2000, 2), Some(Arc::clone(&first)));
    assert!(third.is_some_and(|third| !Arc::ptr_eq(&first, &third)));
    is_whole(bytes, &rows(2000, 2));
}

#[test]
fn a_trial_now_and_then_replaces_a_dictionary_only_by_a_better_one() {
    let mut random = Random::new(3);
    let noise = (0..1000u32).map(|i| entry(&i.to_be_bytes(), 0, Put, &random.bytes(100)));
    let (_, nothing) = build_offered(&noise.collect::<Vec<_>>(), None);
    let entries = rows(400, 1);
    let (_, trained) = build_offered(&entries, None);
    let tables_until_replaced = |offered: Option<Arc<Trained>>| {
        let offered = offered.expect("a result of the training");
        (1..=130).find(|_| {
            let (_, next) = build_offered(&entries, Some(Arc::clone(&offered)));
            next.is_none_or(|next| next.bytes() != offered.bytes())
        })
    };
    assert_eq!(tables_until_replaced(nothing), Some(64));
    assert_eq!(tables_until_replaced(trained), None);
}

#[test]
fn open_tables_share_equal_dictionaries_only() {
    let of = |words| build_offered(&rows(2000, words), None).1.expect("trained");
    let decode = |trained: &Trained| Dictionary::decode(trained.bytes()).expect("a dictionary");
    let (one, other) = (of(4), of(5));
    let (open, again) = (decode(&one), decode(&one));
    assert!(Arc::ptr_eq(&open, &again));
    assert!(!Arc::ptr_eq(&open, &decode(&other)));
    let closed = Arc::downgrade(&open);
    drop((open, again));
    // Waits for tests that are just comparing theirs with it.
    decode(&one);
    assert_eq!(closed.strong_count(), 0, "no file uses it");
}

#[test]
fn a_table_offers_only_what_it_has_chosen() {
    let (_, trained) = build_offered(&rows(2000, 1), None);
    let (bytes, offers) = build_offered(&rows(100, 1), trained);
    assert!(offers.is_none());
    assert_eq!(footer(&bytes).dictionary.length, 0);
    let mut random = Random::new(3);
    let noise = (0..1000u32).map(|i| entry(&i.to_be_bytes(), 0, Put, &random.bytes(100)));
    let (_, nothing) = build_offered(&noise.collect::<Vec<_>>(), None);
    // "No dictionary" is an offer too: it saves a training.
    let (bytes, offers) = build_offered(&rows(2000, 1), nothing.clone());
    assert!(
        offers
            .zip(nothing)
            .is_some_and(|(a, b)| Arc::ptr_eq(&a, &b))
    );
    assert_eq!(footer(&bytes).dictionary.length, 0);
}

#[test]
fn a_flipped_bit_in_any_byte_is_found() {
    let bytes = build(&rows(300, 1), &dictionary_options());
    assert!(footer(&bytes).dictionary.length > 0);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let verified = open(damaged).and_then(|table| table.verify());
        assert!(
            matches!(
                verified,
                Err(Error::Corruption { .. } | Error::NewerFormat { .. })
            ),
            "byte {at}: {verified:?}"
        );
    }
}

/// Returns the rows that a repair reads, and the number of bad blocks.
fn salvaged(bytes: Vec<u8>) -> (Vec<Entry>, usize) {
    let (mut found, mut bad) = (Vec::new(), 0);
    let mut row = |key: &[u8], seqno, kind, value: &[u8]| {
        found.push(entry(key, seqno, kind, value));
        Ok(())
    };
    let read = salvage(&*MemFile::new(bytes), UID, &mut row, &mut |_| bad += 1);
    read.expect("the visitor does not fail");
    (found, bad)
}

#[test]
fn a_repair_needs_one_copy_of_the_dictionary() {
    let entries = rows(400, 1);
    let bytes = build(&entries, &dictionary_options());
    let Footer {
        dictionary,
        dictionary_copy: copy,
        ..
    } = footer(&bytes);
    let damaged = |places: &[u64]| {
        let mut damaged = bytes.clone();
        places.iter().for_each(|&at| damaged[at as usize] ^= 1);
        damaged
    };
    let (first, second) = (dictionary.offset + 30, copy.offset + 30);
    let in_footer = bytes.len() as u64 - 100;
    // Without a footer the damaged copy may have been a block.
    for (places, told) in [
        (&[first][..], 0),
        (&[second], 0),
        (&[in_footer], 0),
        (&[first, in_footer], 1),
    ] {
        let (found, bad) = salvaged(damaged(places));
        assert!(found == entries && bad == told, "{places:?}: {bad}");
    }
    let (found, bad) = salvaged(damaged(&[first, second]));
    assert!(found.is_empty() && bad > 0, "{bad}");
}
