//! Values of rows: each follows from the seed and its table, row, column and version, so that a
//! read can verify it.
//!
//! ```text
//! key     of row number n: 2 n if keys are ordered, otherwise n spread over 63 bits by a bijection
//! number  one of `distinct`, by the hash of seed, table, row, column and version
//! bytes   version 4, check 4, random bytes, constant bytes; lengths by the same hash
//! ```
//!
//! Missing keys are odd if keys are ordered; otherwise they belong to numbers that no row gets. The
//! random bytes of a value are a slice of a pool. Its offset depends on the hash, so a changed
//! version or check means a changed slice.

use super::definition::{Content, Definition, KeyOrder};
use crate::random::{Random, mix};
use crate::tables::{ColumnType, RowBatch, Value};

/// Number of pool offsets at which a value's random bytes can start.
const POOL_BYTES: usize = 1 << 20;
/// Keys of the random generators.
const POOL_KEY: u64 = 0x706f_6f6c;
const TABLE_KEY: u64 = 0x7461_626c;
/// Bytes of version and check.
const HEAD_BYTES: usize = 8;
/// Byte of the part that is not random.
const CONSTANT: u8 = b'a';
/// Mask of keys: they have 63 bits, the range that engines with SQL keep.
const KEY_MASK: u64 = (1 << 63) - 1;
/// Bit set in the numbers of missing rows; real rows have lower numbers.
const MISSING: u64 = 1 << 62;
/// Odd multiplier of the bijection (Knuth's for 64 bits) and its inverse modulo 2^63.
const SPREAD: u64 = 6_364_136_223_846_793_005 & KEY_MASK;
const GATHER: u64 = inverse(SPREAD);

/// Returns the inverse of an odd number modulo 2^63, by Newton's iteration: each round doubles the
/// number of correct bits.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    while round < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found & KEY_MASK
}

/// Bijection on 63 bits that maps neighbors far apart.
#[inline]
fn spread(number: u64) -> u64 {
    let mut x = number & KEY_MASK;
    for _ in 0..2 {
        x ^= x >> 32;
        x = x.wrapping_mul(SPREAD) & KEY_MASK;
    }
    x ^ x >> 32
}

/// Inverse of [`spread`].
#[inline]
fn gather(key: u64) -> u64 {
    let mut x = key;
    for _ in 0..2 {
        // Shifting by half of the bits or more is its own inverse.
        x ^= x >> 32;
        x = x.wrapping_mul(GATHER) & KEY_MASK;
    }
    x ^ x >> 32
}

/// Generator and verifier of rows.
#[derive(Debug)]
pub struct Rows {
    tables: Vec<TableRows>,
    pool: Vec<u8>,
}

#[derive(Debug)]
struct TableRows {
    seed: u64,
    order: KeyOrder,
    columns: Vec<Content>,
}

/// Result of checking a value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It was written for this row and column in this version.
    Version(u32),
    /// A number; its version is unknown.
    Number,
    /// It was never written there.
    Foreign,
}

impl Rows {
    /// Creates the generator and fills the pool.
    pub fn new(definition: &Definition, seed: u64) -> Rows {
        let contents = |columns: &[super::definition::ColumnDef]| {
            let contents = columns.iter().map(|column| column.content);
            contents.collect::<Vec<_>>()
        };
        let tables = definition.tables.iter().enumerate();
        let tables: Vec<TableRows> = tables
            .map(|(place, table)| TableRows {
                seed: mix(mix(seed, TABLE_KEY), place as u64),
                order: table.order,
                columns: contents(&table.columns),
            })
            .collect();
        let longest = tables.iter().flat_map(|table| &table.columns);
        let longest = longest.map(|content| match content {
            Content::Bytes { max, .. } => *max as usize,
            Content::Number { .. } => 0,
        });
        let bytes = POOL_BYTES + longest.max().unwrap_or(0);
        let mut random = Random::keyed(seed, &[POOL_KEY]);
        let mut pool = Vec::with_capacity(bytes + 8);
        while pool.len() < bytes {
            pool.extend_from_slice(&random.bits().to_le_bytes());
        }
        Rows { tables, pool }
    }

    /// Returns the number of columns of a table without the key.
    pub fn columns(&self, table: usize) -> usize {
        self.tables[table].columns.len()
    }

    /// Returns the key of a row.
    #[inline]
    pub fn key(&self, table: usize, number: u64) -> Value<'static> {
        Value::Unsigned(match self.tables[table].order {
            KeyOrder::Ordered => 2 * number,
            KeyOrder::Hashed => spread(number),
        })
    }

    /// Returns a key that no row has; with ordered keys it follows directly after the key of row
    /// `number`.
    #[inline]
    pub fn missing_key(&self, table: usize, number: u64) -> Value<'static> {
        Value::Unsigned(match self.tables[table].order {
            KeyOrder::Ordered => 2 * number + 1,
            KeyOrder::Hashed => spread(number | MISSING),
        })
    }

    /// Returns the row of a key, or a number that no row has if no row can have the key.
    #[inline]
    pub fn number_of(&self, table: usize, key: Value<'_>) -> u64 {
        match (self.tables[table].order, key) {
            (KeyOrder::Ordered, Value::Unsigned(key)) if key % 2 == 0 => key / 2,
            (KeyOrder::Hashed, Value::Unsigned(key)) if key <= KEY_MASK => gather(key),
            _ => u64::MAX,
        }
    }

    /// Returns the hash of one cell.
    #[inline]
    fn hash(&self, table: usize, number: u64, column: usize, version: u32) -> u64 {
        let row = mix(self.tables[table].seed, number);
        mix(row, (column as u64) << 32 | u64::from(version))
    }

    /// Appends the value of one column in a version.
    #[inline]
    pub fn push(
        &self,
        (table, number): (usize, u64),
        column: usize,
        version: u32,
        batch: &mut RowBatch,
    ) {
        let hash = self.hash(table, number, column, version);
        match self.tables[table].columns[column] {
            Content::Number { of, distinct } => batch.push(number_value(of, distinct, hash)),
            content @ Content::Bytes { .. } => batch.push_bytes(|out| {
                let (length, random) = self.bytes(content, hash);
                let end = out.len() + length;
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(&check(hash).to_be_bytes());
                out.extend_from_slice(random);
                out.resize(end, CONSTANT);
            }),
        }
    }

    /// Appends a whole row; `version_of` returns each column's version.
    #[inline]
    pub fn push_row(
        &self,
        (table, number): (usize, u64),
        mut version_of: impl FnMut(usize) -> u32,
        batch: &mut RowBatch,
    ) {
        batch.push(self.key(table, number));
        for column in 0..self.columns(table) {
            self.push((table, number), column, version_of(column), batch);
        }
    }

    /// Returns the length of the value and its random part.
    #[inline]
    fn bytes(&self, content: Content, hash: u64) -> (usize, &[u8]) {
        let Content::Bytes {
            min,
            max,
            random_percent,
        } = content
        else {
            return (0, &[]);
        };
        // 24 bits of the hash are more than a length has.
        let length = min + ((((hash >> 20) & 0xff_ffff) * (max - min + 1)) >> 24);
        let random = (length - HEAD_BYTES as u64) * random_percent / 100;
        let place = (hash % POOL_BYTES as u64) as usize;
        (length as usize, &self.pool[place..place + random as usize])
    }

    /// Returns the number that a column has in a version; `None` for bytes.
    #[inline]
    pub fn number(
        &self,
        (table, number): (usize, u64),
        column: usize,
        version: u32,
    ) -> Option<Value<'static>> {
        match self.tables[table].columns[column] {
            Content::Number { of, distinct } => {
                let hash = self.hash(table, number, column, version);
                Some(number_value(of, distinct, hash))
            }
            Content::Bytes { .. } => None,
        }
    }

    /// Checks a value of a column of this row.
    #[inline]
    pub fn know(&self, (table, number): (usize, u64), column: usize, value: Value<'_>) -> Known {
        let content = self.tables[table].columns[column];
        match (content, value) {
            (Content::Number { of, distinct }, value) => {
                if is_number(of, distinct, value) {
                    Known::Number
                } else {
                    Known::Foreign
                }
            }
            (Content::Bytes { .. }, Value::Bytes(found)) => {
                let Some((head, rest)) = found.split_first_chunk::<4>() else {
                    return Known::Foreign;
                };
                let version = u32::from_be_bytes(*head);
                let hash = self.hash(table, number, column, version);
                let (length, random) = self.bytes(content, hash);
                let Some((head, rest)) = rest.split_first_chunk::<4>() else {
                    return Known::Foreign;
                };
                let good = found.len() == length
                    && *head == check(hash).to_be_bytes()
                    && rest[..random.len()] == *random
                    && rest[random.len()..].iter().all(|byte| *byte == CONSTANT);
                if good {
                    Known::Version(version)
                } else {
                    Known::Foreign
                }
            }
            _ => Known::Foreign,
        }
    }
}

/// Returns the bits of a hash that do not determine the pool offset.
#[inline]
fn check(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Returns one of `distinct` numbers; signed ones are centered on zero.
#[inline]
fn number_value(of: ColumnType, distinct: u64, hash: u64) -> Value<'static> {
    let drawn = ((u128::from(hash) * u128::from(distinct)) >> 64) as u64;
    match of {
        ColumnType::I64 => Value::Signed(drawn as i64 - (distinct / 2) as i64),
        _ => Value::Unsigned(drawn),
    }
}

fn is_number(of: ColumnType, distinct: u64, value: Value<'_>) -> bool {
    match (of, value) {
        (ColumnType::I64, Value::Signed(found)) => {
            let above = i128::from(found) + i128::from(distinct / 2);
            (0..i128::from(distinct)).contains(&above)
        }
        (ColumnType::U32 | ColumnType::U64, Value::Unsigned(found)) => found < distinct,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &str) -> Rows {
        let text = format!(
            r#"
            [[table]]
            name = "t"
            rows = 10
            keys = "{keys}"
            [[table.column]]
            name = "n"
            type = "i64"
            distinct = 5
            [[table.column]]
            name = "c"
            type = "bytes"
            bytes = {{ min = 8, max = 40 }}
            random_percent = 50
            [[phase]]
            kind = "load"
            "#
        );
        Rows::new(&super::super::read::definition("t.toml", &text).unwrap(), 7)
    }

    #[test]
    fn keys_lead_back_to_their_rows_and_missing_ones_to_none() {
        for keys in ["hashed", "ordered"] {
            let rows = rows(keys);
            let mut all = std::collections::BTreeSet::new();
            for number in (0..10_000).chain([1 << 40]) {
                let key = rows.key(0, number);
                assert_eq!(rows.number_of(0, key), number, "{keys}");
                let missing = rows.missing_key(0, number);
                assert!(rows.number_of(0, missing) > 1 << 41, "{keys}");
                assert!(all.insert(key.unsigned()) && all.insert(missing.unsigned()));
                assert!(key.unsigned().unwrap() < 1 << 63);
            }
        }
    }

    #[test]
    fn hashed_keys_of_the_first_rows_are_spread_over_all_keys() {
        let rows = rows("hashed");
        let mut in_part = [0; 16];
        for number in 0..16_000 {
            in_part[(rows.key(0, number).unsigned().unwrap() >> 59) as usize] += 1;
        }
        assert!(
            in_part.iter().all(|count| (800..1200).contains(count)),
            "{in_part:?}"
        );
    }

    #[test]
    fn a_value_is_known_by_its_row_its_column_and_every_bit() {
        let rows = rows("hashed");
        for number in 0..200 {
            let mut batch = RowBatch::new(1);
            rows.push((0, number), 1, 3, &mut batch);
            let Value::Bytes(value) = batch.rows().next().unwrap().value(0) else {
                panic!("no bytes");
            };
            assert!((8..=40).contains(&value.len()));
            assert_eq!(
                rows.know((0, number), 1, Value::Bytes(value)),
                Known::Version(3)
            );
            assert_eq!(
                rows.know((0, number + 1), 1, Value::Bytes(value)),
                Known::Foreign
            );
            assert_eq!(
                rows.know((0, number), 0, Value::Bytes(value)),
                Known::Foreign
            );
            let mut changed = value.to_vec();
            for place in 0..changed.len() {
                changed[place] ^= 0x10;
                assert_eq!(
                    rows.know((0, number), 1, Value::Bytes(&changed)),
                    Known::Foreign
                );
                changed[place] ^= 0x10;
            }
            changed.pop();
            assert_eq!(
                rows.know((0, number), 1, Value::Bytes(&changed)),
                Known::Foreign
            );
        }
    }

    #[test]
    fn numbers_are_of_their_range_and_reach_both_ends() {
        let rows = rows("hashed");
        let drawn = (0..1000).map(|number| match rows.number((0, number), 0, 0) {
            Some(value @ Value::Signed(found)) => {
                assert_eq!(rows.know((0, number), 0, value), Known::Number);
                found
            }
            other => panic!("{other:?}"),
        });
        let drawn: std::collections::BTreeSet<i64> = drawn.collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        assert_eq!(rows.know((0, 1), 0, Value::Signed(3)), Known::Foreign);
        assert_eq!(
            rows.know((0, 1), 0, Value::Signed(i64::MIN)),
            Known::Foreign
        );
    }
}
