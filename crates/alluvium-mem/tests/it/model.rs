//! Compares a memtable with a `BTreeMap` that keeps every version, under seeded random operations.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use alluvium_mem::{Memtable, MemtableCursor, MemtableOptions};

/// SplitMix64: small, seeded, good enough to pick operations and to hash keys.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub fn hash(key: &[u8]) -> u64 {
    let mixed = |state: u64, byte: &u8| Random(state ^ u64::from(*byte)).next();
    key.iter().fold(key.len() as u64, mixed)
}

/// Prints the seed of a random test if it fails.
pub struct ShowSeed(pub u64);

impl Drop for ShowSeed {
    #[expect(
        clippy::print_stderr,
        reason = "a failed random test must say how to repeat it"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed of the failure: {}", self.0);
        }
    }
}

/// One version in both the model and the memtable: seqno, kind, value.
type Version = (u64, u8, Vec<u8>);

pub struct Model {
    pub memtable: Arc<Memtable>,
    /// Versions of each key, oldest first.
    rows: BTreeMap<Vec<u8>, Vec<Version>>,
    pub seqno: u64,
    pub horizon: u64,
}

impl Model {
    pub fn new() -> Model {
        let options = MemtableOptions {
            expected_bytes: 1 << 20,
            prefix_bytes: Some(2),
            ..MemtableOptions::default()
        };
        Model {
            memtable: Arc::new(Memtable::new(&options)),
            rows: BTreeMap::new(),
            seqno: 0,
            horizon: 0,
        }
    }

    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.seqno += 1;
        let kind = (self.seqno % 3 + 1) as u8;
        let prefix_hash = key.get(..2).map(hash);
        let mut writer = self.memtable.writer();
        writer.insert(
            key,
            hash(key),
            prefix_hash,
            self.seqno,
            kind,
            value,
            self.horizon,
        );
        let versions = self.rows.entry(key.to_vec()).or_default();
        versions.push((self.seqno, kind, value.to_vec()));
    }

    /// Returns the model's first visible key from a bound, in the given direction.
    fn expected(&self, from: Bound<&[u8]>, forwards: bool, read_point: u64) -> Option<&[u8]> {
        let visible = |(key, versions): (&'_ Vec<u8>, &Vec<Version>)| {
            let seen = versions[0].0 <= read_point;
            seen.then(|| self.rows.get_key_value(key).map(|(key, _)| key.as_slice()))?
        };
        if forwards {
            (self.rows.range::<[u8], _>((from, Bound::Unbounded))).find_map(visible)
        } else {
            let mut range = self.rows.range::<[u8], _>((Bound::Unbounded, from)).rev();
            range.find_map(visible)
        }
    }

    fn version_at(&self, key: &[u8], read_point: u64) -> Option<&Version> {
        let versions = self.rows.get(key)?;
        versions
            .iter()
            .rev()
            .find(|version| version.0 <= read_point)
    }

    pub fn check_get(&self, key: &[u8], read_point: u64) {
        let found = self.memtable.get(key, read_point);
        let found = found.map(|entry| (entry.seqno, entry.kind, entry.value.to_vec()));
        assert_eq!(found.as_ref(), self.version_at(key, read_point), "{key:?}");
        if found.is_some() {
            assert!(self.memtable.may_contain(hash(key)));
            assert!(key.len() < 2 || self.memtable.may_contain_prefix(hash(&key[..2])));
        }
    }

    fn check_place(&self, cursor: &MemtableCursor, expected: Option<&[u8]>, read_point: u64) {
        assert_eq!(cursor.valid().then(|| cursor.key()), expected);
        let Some(key) = expected else { return };
        let entry = cursor.entry();
        let found = (entry.seqno, entry.kind, entry.value.to_vec());
        assert_eq!(Some(&found), self.version_at(key, read_point));

        let versions: Vec<u64> = cursor.versions().map(|entry| entry.seqno).collect();
        let all = self.rows[key].iter().rev().map(|version| version.0);
        let needed = all.clone().take_while(|seqno| *seqno > self.horizon);
        assert!(versions.len() >= needed.count(), "a needed version is gone");
        assert!(
            all.take(versions.len()).eq(versions),
            "versions out of order"
        );
    }

    /// Seeks to a random place and walks a few steps in both directions.
    pub fn check_walk(&self, start: &[u8], random: &mut Random, read_point: u64) {
        let mut cursor = self.memtable.cursor(read_point);
        let mut expected = match random.below(4) {
            0 => {
                cursor.seek(start);
                self.expected(Bound::Included(start), true, read_point)
            }
            1 => {
                cursor.seek_before(start);
                self.expected(Bound::Excluded(start), false, read_point)
            }
            2 => {
                cursor.seek_first();
                self.expected(Bound::Unbounded, true, read_point)
            }
            _ => {
                cursor.seek_last();
                self.expected(Bound::Unbounded, false, read_point)
            }
        };
        for _ in 0..random.below(12) {
            self.check_place(&cursor, expected, read_point);
            let Some(key) = expected else { break };
            let forwards = random.below(3) != 0;
            expected = self.expected(Bound::Excluded(key), forwards, read_point);
            let stepped = if forwards {
                cursor.next()
            } else {
                cursor.prev()
            };
            assert_eq!(stepped, expected.is_some());
        }
        self.check_place(&cursor, expected, read_point);
    }

    /// Walks all keys, in both directions.
    pub fn check_all(&self, read_point: u64) {
        let mut cursor = self.memtable.cursor(read_point);
        let visible = |row: &(&Vec<u8>, &Vec<Version>)| row.1[0].0 <= read_point;
        cursor.seek_first();
        for (key, _) in self.rows.iter().filter(visible) {
            self.check_place(&cursor, Some(key), read_point);
            cursor.next();
        }
        assert!(!cursor.valid());
        cursor.seek_last();
        for (key, _) in self.rows.iter().rev().filter(visible) {
            self.check_place(&cursor, Some(key), read_point);
            cursor.prev();
        }
        assert!(!cursor.valid());
    }
}

/// Returns a random key: mostly short keys that collide, some with a long common prefix, some of up
/// to 300 bytes, and the empty one.
fn random_key(random: &mut Random) -> Vec<u8> {
    let alphabet = [2, 4, 256][random.below(3) as usize];
    let length = match random.below(10) {
        0 => random.below(301),
        1..=5 => random.below(12),
        _ => random.below(5),
    };
    let mut key = match random.below(3) {
        0 => b"a common prefix".to_vec(),
        _ => Vec::new(),
    };
    key.extend((0..length).map(|_| random.below(alphabet) as u8));
    key.truncate(300);
    key
}

fn run(seed: u64, batches: u64, batch_max: u64) {
    let _seed = ShowSeed(seed);
    let mut random = Random(seed);
    let mut model = Model::new();
    for _ in 0..batches {
        for _ in 0..random.below(batch_max) + 1 {
            let key = random_key(&mut random);
            let value = vec![model.seqno as u8; random.below(60) as usize];
            model.insert(&key, &value);
        }
        if random.below(3) == 0 {
            model.horizon += random.below(model.seqno - model.horizon + 1);
        }
        for _ in 0..4 {
            let read_point = model.horizon + random.below(model.seqno - model.horizon + 2);
            model.check_get(&random_key(&mut random), read_point);
            model.check_walk(&random_key(&mut random), &mut random, read_point);
        }
    }
    let middle = model.horizon + (model.seqno - model.horizon) / 2;
    for read_point in [model.horizon, middle, u64::MAX] {
        model.check_all(read_point);
    }
    assert_eq!(model.memtable.entries() as u64, model.seqno);
    assert_eq!(model.memtable.seqno_range(), Some((1, model.seqno)));
}

#[test]
fn random_inserts_and_reads_agree_with_the_model() {
    let (seeds, batches) = if cfg!(miri) { (2, 12) } else { (30, 60) };
    for seed in 0..seeds {
        run(seed, batches, 30);
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "the same code as the test above, on more data than miri can take"
)]
fn a_large_random_table_agrees_with_the_model() {
    run(1_000, 300, 500);
}
