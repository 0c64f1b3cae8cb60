//! Tables and their self-checking rows.
//!
//! ```text
//! c    10 groups of 11 digits, joined by `-`: the first is a random number, the draw; the draw,
//!      the table and the id determine the others
//! pad   5 such groups; its draw also determines the k at the row's insert
//! ```
//!
//! If one statement sets the `c` of a list of rows, the draw and the table determine this `c` and
//! the ids of the list.
//!
//! So a row can be checked after any updates. Its `c` must have been written for this id. Its `k`
//! is the inserted value plus the number of its updates. The groups after a draw are copied from a
//! pool of random digits.

use super::columns::K;
use super::config::Config;
use super::tests::{Kind, Step};
use crate::random::{Random, mix};
use crate::tables::{Column, ColumnType, Index, RowBatch, Table, TableSchema, Value};

/// Bytes of a group: its digits and the dash.
const GROUP_BYTES: usize = 12;
const C_GROUPS: usize = 10;
const PAD_GROUPS: usize = 5;
/// Bytes of c.
pub const C_BYTES: usize = C_GROUPS * GROUP_BYTES - 1;
/// Bytes of a row: its key, k, and the two texts.
pub const ROW_BYTES: u64 = 8 + 4 + (C_BYTES + PAD_GROUPS * GROUP_BYTES - 1) as u64;
/// Exclusive upper bound of draws: they have eleven digits.
pub const DRAWS: u64 = 100_000_000_000;
/// Number of groups of digits in the pool of texts: 768 KiB, which fits a processor's second-level
/// cache.
const POOL_GROUPS: usize = 1 << 16;
/// Keys of the random generators and hashes.
const POOL_KEY: u64 = 0x6469_6769;
const ROW_KEY: u64 = 0x6f6c_7470;
const C_KEY: u64 = 0x63;
const PAD_KEY: u64 = 0x7061_6420;
const LIST_KEY: u64 = 0x6c69_7374;

/// Returns the tables `sbtest1`, `sbtest2`, ... of a configuration.
pub fn schema(config: &Config) -> Result<&'static TableSchema, String> {
    let table = |number| Table {
        name: format!("sbtest{number}"),
        columns: vec![
            Column::new("id", ColumnType::U64),
            Column::new("k", ColumnType::U32),
            Column::short("c", C_BYTES),
            Column::short("pad", PAD_GROUPS * GROUP_BYTES - 1),
        ],
        key_columns: 1,
        indexes: vec![Index {
            name: "k".to_owned(),
            columns: vec![K],
        }],
        expect_hits: true,
    };
    TableSchema::new((1..=config.tables).map(table).collect())
}

/// Draws of the two texts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    /// Draw of c.
    pub c: u64,
    /// Draw of pad and of the inserted k.
    pub pad: u64,
}

/// Numbers of a row that passed the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Id of the row.
    pub id: u64,
    /// Current k.
    pub k: u64,
    /// The k at the row's insert.
    pub inserted_k: u64,
}

/// Returns the ids that an update of a list with this draw changes, as an endless sequence: the
/// list is its first ids, as many as the step's range.
pub fn listed(config: &Config, table: usize, draw: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::keyed(config.seed, &[LIST_KEY, table as u64, draw]);
    let rows = config.rows;
    std::iter::repeat_with(move || 1 + random.below(rows))
}

/// Generator and checker of rows.
pub struct Rows {
    config: Config,
    /// Number of ids in the longest list of an update; 0: no step updates lists.
    longest_list: usize,
    pool: Vec<u8>,
}

impl Rows {
    /// Creates the generator and draws the pool of digits.
    pub fn new(config: &Config) -> Rows {
        let mut random = Random::keyed(config.seed, &[POOL_KEY]);
        let mut pool = Vec::with_capacity((POOL_GROUPS + C_GROUPS) * GROUP_BYTES);
        for _ in 0..POOL_GROUPS + C_GROUPS {
            append_digits(random.below(DRAWS), &mut pool);
            pool.push(b'-');
        }
        Rows {
            longest_list: longest_list(config),
            config: config.clone(),
            pool,
        }
    }

    /// Returns the draws of a loaded row.
    pub fn loaded(&self, table: usize, id: u64) -> Draws {
        let mut random = Random::keyed(self.config.seed, &[ROW_KEY, table as u64, id]);
        Draws {
            c: random.below(DRAWS),
            pad: random.below(DRAWS),
        }
    }

    fn hash(&self, what: u64, table: usize, id: u64, draw: u64) -> u64 {
        mix(mix(mix(self.config.seed ^ what, table as u64), id), draw)
    }

    /// Returns the groups after the first, without their last dash.
    fn tail(&self, groups: usize, hash: u64) -> &[u8] {
        let place = ((u128::from(hash) * POOL_GROUPS as u128) >> 64) as usize * GROUP_BYTES;
        &self.pool[place..place + (groups - 1) * GROUP_BYTES - 1]
    }

    fn append_text(&self, groups: usize, draw: u64, hash: u64, out: &mut Vec<u8>) {
        append_digits(draw, out);
        out.push(b'-');
        out.extend_from_slice(self.tail(groups, hash));
    }

    /// Returns the k of an insert, from 1 to the number of loaded rows.
    fn inserted_k(&self, pad_hash: u64) -> u64 {
        let scattered = mix(pad_hash, ROW_KEY);
        1 + ((u128::from(scattered) * u128::from(self.config.rows)) >> 64) as u64
    }

    /// Appends the c of a draw to `out`.
    pub fn append_c(&self, table: usize, id: u64, draw: u64, out: &mut Vec<u8>) {
        self.append_text(C_GROUPS, draw, self.hash(C_KEY, table, id, draw), out);
    }

    /// Appends the c of a list's draw to `out`.
    pub fn append_c_of_list(&self, table: usize, draw: u64, out: &mut Vec<u8>) {
        self.append_text(C_GROUPS, draw, self.hash(LIST_KEY, table, 0, draw), out);
    }

    /// Returns true if `text` is a c that was written for this id.
    #[inline]
    pub fn is_c_of(&self, table: usize, id: u64, text: &[u8]) -> bool {
        self.find_of_c(table, text, [id]).is_some()
    }

    /// Returns the first of `ids` with `text` as a valid c: written for this id alone, or for a
    /// list that contains it.
    #[inline]
    pub fn find_of_c(
        &self,
        table: usize,
        text: &[u8],
        ids: impl IntoIterator<Item = u64>,
    ) -> Option<u64> {
        let draw = draw_of(text)?;
        let tail = text.get(GROUP_BYTES..)?;
        // The pool has only `POOL_GROUPS` tails, so about one text in as many has the tail of a
        // list by chance. Such a text is still valid for its own id.
        let is_of_list = self.longest_list > 0
            && tail == self.tail(C_GROUPS, self.hash(LIST_KEY, table, 0, draw));
        let list: Vec<u64> = if is_of_list {
            listed(&self.config, table, draw)
                .take(self.longest_list)
                .collect()
        } else {
            Vec::new()
        };
        ids.into_iter().find(|id| {
            tail == self.tail(C_GROUPS, self.hash(C_KEY, table, *id, draw)) || list.contains(id)
        })
    }

    /// Returns the minimum number of distinct c in `rows` rows: one update may give all rows of the
    /// longest list the same c.
    pub fn different_c(&self, rows: u64) -> u64 {
        rows.div_ceil(self.longest_list.max(1) as u64)
    }

    /// Appends a row to a batch.
    pub fn push(&self, table: usize, id: u64, draws: Draws, batch: &mut RowBatch) {
        let pad = self.hash(PAD_KEY, table, id, draws.pad);
        batch.push(Value::Unsigned(id));
        batch.push(Value::Unsigned(self.inserted_k(pad)));
        batch.push_bytes(|out| self.append_c(table, id, draws.c, out));
        batch.push_bytes(|out| self.append_text(PAD_GROUPS, draws.pad, pad, out));
    }

    /// Checks a row and returns its numbers. `None` if a text was not written for its id or if k is
    /// below the inserted k.
    #[inline]
    pub fn look_at(&self, table: usize, row: &[Value<'_>]) -> Option<Found> {
        let [
            Value::Unsigned(id),
            Value::Unsigned(k),
            Value::Bytes(c),
            Value::Bytes(pad),
        ] = *row
        else {
            return None;
        };
        let pad_hash = self.hash(PAD_KEY, table, id, draw_of(pad)?);
        let is_pad = *pad.get(GROUP_BYTES..)? == *self.tail(PAD_GROUPS, pad_hash);
        let inserted_k = self.inserted_k(pad_hash);
        let is_whole = is_pad && self.is_c_of(table, id, c) && k >= inserted_k;
        is_whole.then_some(Found { id, k, inserted_k })
    }
}

fn longest_list(config: &Config) -> usize {
    let lists = config.steps().into_iter().filter_map(|step| match step {
        Step::Test { test, range, .. } if test.kind == Kind::UpdateInList => {
            Some(config.range_of(test, range))
        }
        _ => None,
    });
    lists.max().unwrap_or(0) as usize
}

fn append_digits(draw: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; GROUP_BYTES - 1];
    let mut rest = draw;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

/// Parses the number at the start of a text.
fn draw_of(text: &[u8]) -> Option<u64> {
    let (digits, rest) = text.split_at_checked(GROUP_BYTES - 1)?;
    let mut draw = 0;
    for digit in digits {
        let value = digit.checked_sub(b'0').filter(|value| *value < 10)?;
        draw = draw * 10 + u64::from(value);
    }
    (rest.first() == Some(&b'-')).then_some(draw)
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::oltp_range::columns::COLUMNS;

    fn batch(rows: &Rows, id: u64) -> RowBatch {
        let mut batch = RowBatch::new(COLUMNS);
        rows.push(0, id, rows.loaded(0, id), &mut batch);
        batch
    }

    #[test]
    fn rows_have_the_form_of_the_reference_and_pass_the_check() {
        let rows = Rows::new(&Config::default());
        let mut sum = 0;
        for id in 1..=1000 {
            let batch = batch(&rows, id);
            let row: Vec<Value<'_>> = batch.rows().next().unwrap().values().collect();
            let found = rows.look_at(0, &row).unwrap();
            assert_eq!((found.id, found.k), (id, found.inserted_k));
            assert!((1..=1_000_000).contains(&found.k));
            sum += found.k;
            let (Value::Bytes(c), Value::Bytes(pad)) = (row[2], row[3]) else {
                panic!("not texts");
            };
            assert_eq!((c.len(), pad.len()), (119, 59));
            for text in [c, pad] {
                let groups = text.split(|byte| *byte == b'-');
                assert!(
                    groups
                        .into_iter()
                        .all(|group| group.len() == 11 && group.iter().all(u8::is_ascii_digit))
                );
            }
        }
        assert!((450_000_000..550_000_000).contains(&sum), "{sum}");
    }

    #[test]
    fn a_row_of_another_table_or_id_or_with_a_changed_byte_is_not_one() {
        let rows = Rows::new(&Config::default());
        let batch = batch(&rows, 7);
        let row: Vec<Value<'_>> = batch.rows().next().unwrap().values().collect();
        assert_eq!(rows.look_at(1, &row), None, "another table");
        let other = [Value::Unsigned(8), row[1], row[2], row[3]];
        assert_eq!(rows.look_at(0, &other), None, "another id");
        let less = [row[0], Value::Unsigned(0), row[2], row[3]];
        assert_eq!(rows.look_at(0, &less), None, "a smaller k");
        for column in [2, 3] {
            let Value::Bytes(text) = row[column] else {
                panic!("not a text");
            };
            for place in 0..text.len() {
                let mut text = text.to_vec();
                text[place] ^= 1;
                let mut row = row.clone();
                row[column] = Value::Bytes(&text);
                assert_eq!(rows.look_at(0, &row), None, "{column} {place}");
            }
        }
    }

    #[test]
    fn the_c_of_a_list_is_one_of_its_ids_only() {
        let steps = ("steps", "load,index,update-inlist:3,update-inlist:5");
        let config = Config::from_pairs([steps]).unwrap();
        let of = |config: &Config| {
            let rows = Rows::new(config);
            let mut c = Vec::new();
            rows.append_c_of_list(1, 77, &mut c);
            let ids = listed(config, 1, 77).take(6);
            ids.map(|id| rows.is_c_of(1, id, &c)).collect::<Vec<_>>()
        };
        assert_eq!(of(&config), [true, true, true, true, true, false]);
        let given = [("steps", "load,index,update-inlist"), ("range", "4")];
        let given = Config::from_pairs(given).unwrap();
        assert_eq!(of(&given), [true, true, true, true, false, false]);
        let without = Config::from_pairs([("steps", "load,index,update-one")]).unwrap();
        assert_eq!(of(&without), [false; 6], "no step changes lists");
        let rows = Rows::new(&given);
        assert_eq!((rows.different_c(0), rows.different_c(9)), (0, 3));
        assert_eq!(Rows::new(&without).different_c(9), 9);
    }

    #[test]
    fn a_c_that_looks_like_that_of_a_list_is_still_its_rows_own() {
        let steps = ("steps", "load,index,update-inlist");
        let rows = Rows::new(&Config::from_pairs([steps]).unwrap());
        let (mut own, mut of_list, mut alike) = (Vec::new(), Vec::new(), 0);
        for id in 1..=300_000 {
            let draw = rows.loaded(0, id).c;
            own.clear();
            rows.append_c(0, id, draw, &mut own);
            of_list.clear();
            rows.append_c_of_list(0, draw, &mut of_list);
            alike += u32::from(own == of_list);
            assert!(rows.is_c_of(0, id, &own), "{id}");
        }
        assert!(alike > 0);
    }

    #[test]
    fn another_c_of_the_same_row_is_one_of_it() {
        let rows = Rows::new(&Config::default());
        let batch = batch(&rows, 7);
        let mut row: Vec<Value<'_>> = batch.rows().next().unwrap().values().collect();
        let mut c = Vec::new();
        rows.append_c(0, 7, 5, &mut c);
        assert_ne!(row[2], Value::Bytes(&c));
        row[2] = Value::Bytes(&c);
        row[1] = Value::Unsigned(row[1].unsigned().unwrap() + 3);
        let found = rows.look_at(0, &row).unwrap();
        assert_eq!(found.k - found.inserted_k, 3);
    }
}
