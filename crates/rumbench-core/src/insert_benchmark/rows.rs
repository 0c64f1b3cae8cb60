//! Tables, indexes and rows: each row is a function of the seed, its table and its id.

use crate::random::Random;
use crate::tables::{Column, ColumnType, Index, RowBatch, Table, TableSchema, Value};

use super::config::{Config, IndexSet};

/// Places of the columns.
const ID: usize = 0;
const TIME: usize = 1;
const REGISTER: usize = 2;
const CUSTOMER: usize = 3;
const PRODUCT: usize = 4;
const PRICE: usize = 5;
/// Number of columns of a table.
pub const COLUMNS: usize = 7;

/// Characters of random text; rows take their text from it.
const TEXT_CHARS: usize = 4 << 20;
/// The alphabet of base64.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// 2023-12-08 in seconds since the epoch: the first `dateandtime`. On this day the columns of the
/// code last changed.
const FIRST_SECOND: u64 = 1_701_993_600;
/// Keys of the random generators.
const ROW_KEY: u64 = 0x726f_7773;
const TEXT_KEY: u64 = 0x7465_7874;

impl IndexSet {
    /// Returns the places of the columns of the three indexes `marketsegment`, `registersegment`
    /// and `pdc`.
    fn columns(self) -> [&'static [usize]; 3] {
        let pdc: &[usize] = &[PRICE, TIME, CUSTOMER];
        match self {
            IndexSet::Y2016 => [&[PRICE, CUSTOMER], &[REGISTER, PRICE, CUSTOMER], pdc],
            IndexSet::Post2023 => [&[PRODUCT, CUSTOMER], &[REGISTER, PRICE, CUSTOMER], pdc],
            IndexSet::Code2023 => [
                &[PRODUCT, CUSTOMER, PRICE],
                &[REGISTER, CUSTOMER, PRICE],
                pdc,
            ],
        }
    }
}

/// Returns the tables `pi1`, `pi2`, ... of a configuration.
pub fn schema(config: &Config) -> Result<&'static TableSchema, String> {
    let names = ["marketsegment", "registersegment", "pdc"];
    let indexes: Vec<Index> = names
        .iter()
        .zip(config.index_set().columns())
        .take(config.indexes)
        .map(|(name, columns)| Index {
            name: (*name).to_owned(),
            columns: columns.to_vec(),
        })
        .collect();
    let table = |number| Table {
        name: format!("pi{number}"),
        columns: vec![
            Column::new("transactionid", ColumnType::U64),
            Column::new("dateandtime", ColumnType::U32),
            Column::new("cashregisterid", ColumnType::U32),
            Column::new("customerid", ColumnType::U32),
            Column::new("productid", ColumnType::U32),
            Column::new("price", ColumnType::U32),
            Column::new("data", ColumnType::Bytes),
        ],
        key_columns: 1,
        indexes: indexes.clone(),
        expect_hits: true,
    };
    TableSchema::without_transactions((1..=config.tables()).map(table).collect())
}

/// Generator and checker of rows.
pub struct Rows {
    config: Config,
    text: Vec<u8>,
}

/// The numbers of a row, by the place of their column, and the generator of its text.
struct Numbers {
    columns: [u64; COLUMNS - 1],
    random: Random,
}

impl Rows {
    /// Creates the generator and draws the random text.
    pub fn new(config: &Config) -> Rows {
        let mut random = Random::keyed(config.seed, &[TEXT_KEY]);
        let mut text = Vec::with_capacity(TEXT_CHARS);
        while text.len() < TEXT_CHARS {
            let mut bits = random.bits();
            // Ten characters of six bits from each draw.
            for _ in 0..10.min(TEXT_CHARS - text.len()) {
                text.push(ALPHABET[(bits & 63) as usize]);
                bits >>= 6;
            }
        }
        Rows {
            config: config.clone(),
            text,
        }
    }

    #[inline]
    fn numbers(&self, table: usize, id: u64) -> Numbers {
        let config = &self.config;
        let mut random = Random::keyed(config.seed, &[ROW_KEY ^ table as u64, id]);
        let register = random.below(u64::from(config.cash_registers));
        let product = random.below(u64::from(config.products));
        let customer = random.below(u64::from(config.customers));
        let mut price = random.below(u64::from(config.max_price));
        if config.index_set() == IndexSet::Y2016 {
            // In hundredths: the customer's number plus a price below the limit, divided by a
            // hundred.
            price += customer;
        }
        let time = FIRST_SECOND + id / config.rows_per_second;
        Numbers {
            columns: [
                id,
                // The column overflows in 2106.
                u64::from(time as u32),
                register,
                customer,
                product,
                price,
            ],
            random,
        }
    }

    /// Returns the length of the constant part and the random part of a row's text.
    #[inline]
    fn text(&self, random: &mut Random) -> (usize, &[u8]) {
        let config = &self.config;
        let length = config.data_min + random.below(config.data_max - config.data_min + 1);
        // Three quarters of the characters of base64 are random bytes.
        let chars = (length * 3 * config.data_random_percent / 400) as usize;
        let offset = random.below((self.text.len() - chars + 1) as u64) as usize;
        (length as usize - chars, &self.text[offset..offset + chars])
    }

    /// Appends a row to a batch.
    #[inline]
    pub fn push(&self, table: usize, id: u64, batch: &mut RowBatch) {
        let mut numbers = self.numbers(table, id);
        for number in numbers.columns {
            batch.push(Value::Unsigned(number));
        }
        let (constant, random) = self.text(&mut numbers.random);
        batch.push_bytes(|out| {
            out.resize(out.len() + constant, b'a');
            out.extend_from_slice(random);
        });
    }

    /// Returns true if a whole row is the row of this id.
    pub fn is_row(&self, table: usize, id: u64, row: &[Value<'_>]) -> bool {
        let mut numbers = self.numbers(table, id);
        let (constant, random) = self.text(&mut numbers.random);
        let Some((Value::Bytes(data), found)) = row.split_last() else {
            return false;
        };
        let expected = numbers.columns.map(Value::Unsigned);
        found == expected
            && data.len() == constant + random.len()
            && data[..constant].iter().all(|byte| *byte == b'a')
            && data[constant..] == *random
    }

    /// Returns true if the values are the columns at these places, in this order, of the row of
    /// this id.
    #[inline]
    pub fn has_columns(
        &self,
        table: usize,
        id: u64,
        places: impl Iterator<Item = usize>,
        values: &[Value<'_>],
    ) -> bool {
        let numbers = self.numbers(table, id);
        let mut values = values.iter();
        let mut expected = places.map(|place| Value::Unsigned(numbers.columns[place]));
        expected.all(|expected| values.next() == Some(&expected)) && values.next().is_none()
    }

    /// Draws the start of a range in an index with its first column at this place.
    #[inline]
    pub fn start_of_range(&self, first_column: usize, random: &mut Random) -> u64 {
        let config = &self.config;
        match first_column {
            PRODUCT => random.below(u64::from(config.products)),
            // Registers above the drawn one.
            REGISTER => random.below(u64::from(config.cash_registers)) + 1,
            _ if config.index_set() == IndexSet::Y2016 => {
                // Prices of this set are in hundredths.
                random.below(u64::from(config.max_price)) * 100
            }
            _ => random.below(u64::from(config.max_price)),
        }
    }
}

/// Returns the id of a whole row.
pub fn id_of(row: &[Value<'_>]) -> Option<u64> {
    row.get(ID)?.unsigned()
}
