//! Column types of the generated tables, and literals of them.
//!
//! The literals of a type are few, so that keys collide and comparisons find rows. Among them are
//! its limits, and for tests of errors also values that it cannot hold.

use alluvium_testkit::Rng;

/// Collation of a text column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collation {
    pub charset: &'static str,
    pub name: &'static str,
    pub group: &'static str,
}

const fn collation(charset: &'static str, name: &'static str, group: &'static str) -> Collation {
    Collation {
        charset,
        name,
        group,
    }
}

/// Collations of text columns: PAD SPACE and NO PAD, with weights and binary, simple and UCA.
pub const COLLATIONS: [Collation; 14] = [
    collation("utf8mb4", "utf8mb4_general_ci", "pad"),
    collation("utf8mb4", "utf8mb4_unicode_ci", "uca pad"),
    collation("utf8mb4", "utf8mb4_uca1400_ai_ci", "uca pad"),
    collation("utf8mb4", "utf8mb4_uca1400_nopad_as_cs", "uca nopad"),
    collation("utf8mb4", "utf8mb4_unicode_nopad_ci", "uca nopad"),
    collation("utf8mb4", "utf8mb4_czech_ci", "uca pad"),
    collation("utf8mb4", "utf8mb4_bin", "binary pad"),
    collation("utf8mb4", "utf8mb4_nopad_bin", "binary nopad"),
    collation("latin1", "latin1_swedish_ci", "pad"),
    collation("latin1", "latin1_bin", "binary pad"),
    collation("latin1", "latin1_german2_ci", "pad"),
    collation("latin1", "latin1_swedish_nopad_ci", "nopad"),
    collation("utf8mb3", "utf8mb3_general_ci", "pad"),
    collation("ucs2", "ucs2_general_ci", "pad"),
];

/// Type of a column. Numbers are lengths, digits or sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int { bytes: u8, unsigned: bool },
    Decimal { digits: u8, scale: u8 },
    Float,
    Double,
    Bit(u8),
    Date,
    Time(u8),
    DateTime(u8),
    Timestamp(u8),
    Year,
    Char(u8),
    VarChar(u8),
    Binary(u8),
    VarBinary(u8),
    Text(u8),
    Blob(u8),
    Enum,
    Set,
    Json,
    Uuid,
    Inet6,
}

/// Group of types; values of one group can be compared and copied without loss of meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Number,
    Moment,
    Time,
    Text,
    Bytes,
    Other,
}

const INTS: [&str; 5] = ["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"];
const INT_BYTES: [u8; 5] = [1, 2, 3, 4, 8];
const SIZES: [&str; 4] = ["TINY", "", "MEDIUM", "LONG"];
const WORDS: [&str; 26] = [
    "a", "A", "b", "ab", "Ab", "a ", "a  ", "", " ", "ä", "ae", "ß", "ss", "é", "ch", "c", "h",
    "CH", "zz", "abcdef", "abcdeg", "a\\0b", "a\\tb", "ab c", "Ž", "z",
];
const FAR_WORDS: [&str; 6] = ["€", "😀", "日本", "а", "a\u{301}", "ﬁ"];
const BYTES: [&str; 12] = [
    "''",
    "x'00'",
    "x'0000'",
    "x'ff'",
    "x'00ff'",
    "x'ff00'",
    "'a'",
    "'ab'",
    "'a '",
    "'A'",
    "x'6100'",
    "'abcdefgh'",
];
const DAYS: [&str; 8] = [
    "0000-00-00",
    "1000-01-01",
    "1970-01-02",
    "2024-02-29",
    "2024-03-01",
    "2024-12-31",
    "2037-01-01",
    "9999-12-31",
];
const HOURS: [&str; 7] = [
    "00:00:00",
    "00:00:01",
    "12:34:56",
    "12:34:56.5",
    "12:34:56.789012",
    "23:59:59",
    "23:59:59.999999",
];
const SPANS: [&str; 5] = [
    "-838:59:59",
    "838:59:59.999999",
    "-00:00:01.5",
    "-12:00:00",
    "100:00:00",
];
const UUIDS: [&str; 5] = [
    "00000000-0000-0000-0000-000000000000",
    "123e4567-e89b-12d3-a456-426655440000",
    "123e4567-e89b-12d3-a456-426655440001",
    "6ccd780c-baba-1026-9564-5b8c656024db",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
];
const ADDRESSES: [&str; 6] = [
    "::",
    "::1",
    "::ffff:1.2.3.4",
    "fe80::1",
    "2001:db8::ff00:42:8329",
    "ff02::1",
];
const DOCUMENTS: [&str; 6] = [
    "{\"a\": 1}",
    "{\"a\":1}",
    "[1, 2]",
    "null",
    "\"a\"",
    "{\"b\": [true, 1.5]}",
];

impl Collation {
    /// Returns a random collation for a type.
    pub fn random(kind: Kind, rng: &mut Rng) -> Collation {
        // The server's scans cut the spaces of a CHAR, and its indexes keep them. With NO PAD the
        // two differ, so answers depend on the plan.
        let pads = |collation: &&Collation| !collation.group.contains("nopad");
        match kind {
            Kind::Char(_) => {
                let fitting: Vec<&Collation> = COLLATIONS.iter().filter(pads).collect();
                **rng.pick(&fitting)
            }
            _ => *rng.pick(&COLLATIONS),
        }
    }
}

impl Kind {
    /// Returns a random type.
    pub fn random(rng: &mut Rng) -> Kind {
        let part = |rng: &mut Rng| rng.below(7) as u8;
        let short = |rng: &mut Rng| *rng.pick(&[1, 2, 5, 10, 30]);
        match rng.weighted(&[
            20, 5, 3, 3, 4, 4, 4, 5, 5, 3, 7, 12, 4, 6, 6, 6, 4, 4, 3, 4, 4,
        ]) {
            0 => Kind::Int {
                bytes: *rng.pick(&INT_BYTES),
                unsigned: rng.percent(50),
            },
            1 => *rng.pick(&[
                Kind::Decimal {
                    digits: 5,
                    scale: 2,
                },
                Kind::Decimal {
                    digits: 10,
                    scale: 0,
                },
                Kind::Decimal {
                    digits: 30,
                    scale: 15,
                },
                Kind::Decimal {
                    digits: 4,
                    scale: 4,
                },
            ]),
            2 => Kind::Float,
            3 => Kind::Double,
            4 => Kind::Bit(*rng.pick(&[1, 7, 8, 9, 64])),
            5 => Kind::Date,
            6 => Kind::Time(part(rng)),
            7 => Kind::DateTime(part(rng)),
            8 => Kind::Timestamp(part(rng)),
            9 => Kind::Year,
            10 => Kind::Char(short(rng)),
            11 => Kind::VarChar(*rng.pick(&[1, 3, 10, 30, 100])),
            12 => Kind::Binary(short(rng)),
            13 => Kind::VarBinary(*rng.pick(&[1, 3, 10, 30, 100])),
            14 => Kind::Text(rng.below(4) as u8),
            15 => Kind::Blob(rng.below(4) as u8),
            16 => Kind::Enum,
            17 => Kind::Set,
            18 => Kind::Json,
            19 => Kind::Uuid,
            _ => Kind::Inet6,
        }
    }

    /// Returns the type in SQL, without collation.
    pub fn sql(self) -> String {
        match self {
            Kind::Int { unsigned, .. } => {
                let sign = if unsigned { " UNSIGNED" } else { "" };
                format!("{}{sign}", self.name())
            }
            Kind::Decimal { digits, scale } => format!("DECIMAL({digits},{scale})"),
            Kind::Bit(n)
            | Kind::Time(n)
            | Kind::DateTime(n)
            | Kind::Timestamp(n)
            | Kind::Char(n)
            | Kind::VarChar(n)
            | Kind::Binary(n)
            | Kind::VarBinary(n) => format!("{}({n})", self.name()),
            Kind::Enum => "ENUM('a','B','ab','y','zz')".to_string(),
            Kind::Set => "SET('a','b','c','d','e','f','g','h','i')".to_string(),
            _ => self.name(),
        }
    }

    /// Returns the name of the type for the report, without lengths.
    pub fn name(self) -> String {
        match self {
            Kind::Int { bytes, .. } => {
                let at = INT_BYTES.iter().position(|size| *size == bytes);
                INTS[at.expect("a size of an integer")].to_string()
            }
            Kind::Text(size) => format!("{}TEXT", SIZES[usize::from(size)]),
            Kind::Blob(size) => format!("{}BLOB", SIZES[usize::from(size)]),
            other => {
                let text = format!("{other:?}").to_uppercase();
                let end = text.find(['(', ' ']).unwrap_or(text.len());
                text[..end].to_string()
            }
        }
    }

    /// Returns true if the type has a collation of its own.
    pub fn is_text(self) -> bool {
        matches!(self, Kind::Char(_) | Kind::VarChar(_) | Kind::Text(_))
    }

    /// Returns true if an index can only have a prefix of such a column.
    pub fn needs_prefix(self) -> bool {
        matches!(self, Kind::Text(_) | Kind::Blob(_) | Kind::Json)
    }

    /// Returns true if an index can have a prefix of such a column of so many characters.
    pub fn may_have_prefix(self, length: u8) -> bool {
        match self {
            Kind::Char(n) | Kind::VarChar(n) | Kind::Binary(n) | Kind::VarBinary(n) => n > length,
            _ => self.needs_prefix(),
        }
    }

    /// Returns true if equal values have equal bytes. Otherwise the representative of a group is
    /// not defined.
    pub fn is_exact(self) -> bool {
        !self.is_text()
            && !matches!(
                self,
                Kind::Float | Kind::Double | Kind::Json | Kind::Enum | Kind::Set
            )
    }

    /// Returns true if sums of such values do not depend on their order.
    pub fn has_sum(self) -> bool {
        matches!(self, Kind::Int { .. } | Kind::Decimal { .. } | Kind::Year)
    }

    /// Returns the family.
    pub fn family(self) -> Family {
        match self {
            Kind::Int { .. } | Kind::Decimal { .. } | Kind::Float | Kind::Double => Family::Number,
            Kind::Date | Kind::DateTime(_) | Kind::Timestamp(_) => Family::Moment,
            Kind::Time(_) => Family::Time,
            Kind::Char(_) | Kind::VarChar(_) | Kind::Text(_) => Family::Text,
            Kind::Binary(_) | Kind::VarBinary(_) | Kind::Blob(_) => Family::Bytes,
            _ => Family::Other,
        }
    }

    /// Returns a literal that the type can hold (a few texts are too long for short columns).
    pub fn literal(self, rng: &mut Rng) -> String {
        let quoted = |text: &str| format!("'{text}'");
        match self {
            Kind::Int { bytes, unsigned } => int_literal(bytes, unsigned, rng),
            Kind::Decimal { digits, scale } => decimal_literal(digits, scale, rng),
            Kind::Float => float_literal(&["3.4e38", "-3.4e38", "1e-38"], rng),
            Kind::Double => float_literal(&["1.7e308", "-1.7e308", "1e-300"], rng),
            Kind::Bit(n) => {
                let most = u64::MAX >> (64 - n);
                (*rng.pick(&[0, 1, most, most / 2, most.min(5)])).to_string()
            }
            Kind::Date => quoted(rng.pick::<&str>(&DAYS)),
            Kind::Time(_) if rng.percent(30) => quoted(rng.pick::<&str>(&SPANS)),
            Kind::Time(_) => quoted(rng.pick::<&str>(&HOURS)),
            Kind::DateTime(_) => format!("'{} {}'", rng.pick(&DAYS[1..]), rng.pick(&HOURS)),
            Kind::Timestamp(_) => format!("'{} {}'", rng.pick(&DAYS[2..7]), rng.pick(&HOURS)),
            Kind::Year => rng.pick(&["1901", "0", "1970", "2024", "2155"]).to_string(),
            Kind::Char(n) | Kind::VarChar(n) => quoted(&text_within(n, rng)),
            Kind::Text(_) => quoted(&text(rng)),
            Kind::Binary(n) | Kind::VarBinary(n) => bytes_within(n, rng),
            Kind::Blob(_) => rng.pick(&BYTES).to_string(),
            Kind::Enum => quoted(rng.pick::<&str>(&["a", "B", "ab", "y", "zz"])),
            Kind::Set => {
                quoted(rng.pick::<&str>(&["", "a", "a,b", "b,i", "a,b,c,d,e,f,g,h,i", "h"]))
            }
            Kind::Json => quoted(&rng.pick(&DOCUMENTS).replace('"', "\\\"")),
            Kind::Uuid => quoted(rng.pick::<&str>(&UUIDS)),
            Kind::Inet6 => quoted(rng.pick::<&str>(&ADDRESSES)),
        }
    }

    /// Returns a literal for a comparison, exactly a value of the type. The server rounds others to
    /// look them up in an index, but not to compare rows, so their answers depend on the plan.
    pub fn constant(self, rng: &mut Rng) -> String {
        match self {
            Kind::Float => rng
                .pick(&["0e0", "-0e0", "1", "-1.5", "2.25", "100"])
                .to_string(),
            Kind::Time(digits) | Kind::DateTime(digits) | Kind::Timestamp(digits) => {
                cut_fraction(&self.literal(rng), usize::from(digits))
            }
            _ => self.literal(rng),
        }
    }

    /// Returns a literal that the type refuses or changes.
    pub fn bad_literal(self, rng: &mut Rng) -> String {
        let texts = match self {
            Kind::Int { .. } | Kind::Decimal { .. } => {
                &["'abc'", "99999999999999999999", "-1e40"][..]
            }
            Kind::Float => &["'1x'", "1e39"],
            Kind::Double => &["'1x'", "'-'"],
            Kind::Bit(_) => &["x'ffffffffffffffffff'", "-1"],
            Kind::Date | Kind::DateTime(_) | Kind::Timestamp(_) => &[
                "'2024-02-30'",
                "'day'",
                "'2024-13-01'",
                "'1000-00-00 25:00:00'",
            ],
            Kind::Time(_) => &["'900:00:00'", "'12:60:00'", "'x'"],
            Kind::Year => &["1900", "2156", "'x'"],
            Kind::Char(_) | Kind::VarChar(_) | Kind::Binary(_) | Kind::VarBinary(_) => {
                &["REPEAT('ab', 200)", "x'e9'"]
            }
            Kind::Text(0) | Kind::Blob(0) => &["REPEAT('ab', 200)"],
            Kind::Text(_) | Kind::Blob(_) => &["REPEAT('ab', 9000)"],
            Kind::Enum | Kind::Set => &["'none'", "99999"],
            Kind::Json => &["'{'", "''"],
            Kind::Uuid | Kind::Inet6 => &["'x'", "''", "x'00'"],
        };
        rng.pick(texts).to_string()
    }
}

/// Cuts the fraction of a quoted time to so many digits.
fn cut_fraction(literal: &str, digits: usize) -> String {
    let text = literal.trim_matches('\'');
    match text.split_once('.') {
        Some((whole, _)) if digits == 0 => format!("'{whole}'"),
        Some((whole, part)) => format!("'{whole}.{}'", &part[..digits.min(part.len())]),
        None => literal.to_string(),
    }
}

fn int_literal(bytes: u8, unsigned: bool, rng: &mut Rng) -> String {
    let (least, most) = match unsigned {
        true => (0, i128::from(u64::MAX >> (64 - 8 * u32::from(bytes)))),
        false => {
            let half = 1_i128 << (8 * u32::from(bytes) - 1);
            (-half, half - 1)
        }
    };
    let number = match rng.below(20) {
        0 => least,
        1 => most,
        2 => most - 1,
        3 => most / 2 + 1,
        _ => (rng.below(24) as i128 - 4).max(least),
    };
    number.to_string()
}

fn decimal_literal(digits: u8, scale: u8, rng: &mut Rng) -> String {
    let (whole, part) = (usize::from(digits - scale), usize::from(scale));
    let nines = |count: usize| "9".repeat(count);
    let sign = if rng.percent(30) { "-" } else { "" };
    let text = match rng.below(8) {
        0 => format!("{}.{}", nines(whole), nines(part)),
        1 => "0".to_string(),
        2 if part > 0 => format!("0.{}1", "0".repeat(part - 1)),
        _ if whole == 0 => format!("0.{}", rng.below(10)),
        _ if part > 0 => format!("{}.{}", rng.below(10), rng.below(4)),
        _ => rng.below(12).to_string(),
    };
    format!("{sign}{}", text.trim_end_matches('.'))
}

fn float_literal(limits: &[&str], rng: &mut Rng) -> String {
    if rng.percent(10) {
        return rng.pick(limits).to_string();
    }
    let common = [
        "0e0", "-0e0", "1", "-1", "1.5", "-1.5", "0.1", "100", "2.25", "1e10",
    ];
    rng.pick(&common).to_string()
}

fn text(rng: &mut Rng) -> String {
    let word = |rng: &mut Rng| match rng.percent(8) {
        true => *rng.pick(&FAR_WORDS),
        false => *rng.pick(&WORDS),
    };
    let mut text = word(rng).to_string();
    if rng.percent(25) {
        text += word(rng);
    }
    if rng.percent(3) {
        text = text.repeat(20);
    }
    text
}

/// Returns a text that mostly fits into so many characters.
fn text_within(length: u8, rng: &mut Rng) -> String {
    let whole = text(rng);
    let count = whole.chars().filter(|c| *c != '\\').count();
    match count > usize::from(length) && rng.percent(95) {
        true => WORDS[rng.below(3)].to_string(),
        false => whole,
    }
}

fn bytes_within(length: u8, rng: &mut Rng) -> String {
    match rng.percent(95) {
        true if length < 2 => rng
            .pick(&["''", "x'00'", "x'ff'", "'a'", "'A'"])
            .to_string(),
        true if length < 8 => rng.pick(&BYTES[..11]).to_string(),
        _ => rng.pick(&BYTES).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_cut_to_the_digits_of_the_type() {
        assert_eq!(cut_fraction("'12:34:56.789012'", 2), "'12:34:56.78'");
        assert_eq!(cut_fraction("'12:34:56.789012'", 0), "'12:34:56'");
        assert_eq!(cut_fraction("'12:34:56.5'", 6), "'12:34:56.5'");
        assert_eq!(cut_fraction("'12:34:56'", 6), "'12:34:56'");
    }
}
