//! Statements that are sent as text, with their values, and the rows of their answers.
//!
//! MariaDB (10.11) forgets that an index covers a prepared statement after an UPDATE or a DELETE
//! has used the table. It then looks up each entry's row until a statement is parsed. A statement
//! sent as text is parsed each time, as the reference clients send all of theirs; see decision
//! 0033. Statements that a reference client does not prepare are also sent as text.

use std::io::Write;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Value, schema::COLUMNS_MAX};

use super::binary::lengthy;
use crate::servers::session::{Fields, Visit};

/// Statement text, split at its parameters.
#[derive(Debug)]
pub(super) struct Text {
    parts: Vec<Box<str>>,
}

impl Text {
    /// Splits a statement with a `?` for each value and none in its names.
    pub(super) fn new(statement: &str) -> Text {
        Text {
            parts: statement.split('?').map(Box::from).collect(),
        }
    }

    pub(super) fn start(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.parts[0].as_bytes());
    }

    /// Appends the value at `place`, counted from 0, and the text that follows it; returns false if
    /// there is no such place.
    #[must_use]
    pub(super) fn push(&self, place: usize, value: Value<'_>, out: &mut Vec<u8>) -> bool {
        let Some(next) = self.parts.get(place + 1) else {
            return false;
        };
        // Writing to a `Vec` does not fail.
        let _ = match value {
            Value::Unsigned(number) => write!(out, "{number}"),
            Value::Signed(number) => write!(out, "{number}"),
            Value::Bytes(bytes) if is_plain(bytes) => {
                out.push(b'\'');
                out.extend_from_slice(bytes);
                out.push(b'\'');
                Ok(())
            }
            Value::Bytes(bytes) => {
                out.extend_from_slice(b"X'");
                bytes.iter().for_each(|byte| {
                    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                    out.push(DIGITS[usize::from(byte >> 4)]);
                    out.push(DIGITS[usize::from(byte & 15)]);
                });
                out.push(b'\'');
                Ok(())
            }
        };
        out.extend_from_slice(next.as_bytes());
        true
    }
}

/// Returns true if the bytes need no escapes between quotes, however the server interprets a
/// backslash.
fn is_plain(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\');
    bytes.iter().all(plain)
}

/// Decodes a row of an answer in text form and passes it to `visit`.
#[inline]
pub(super) fn read_row(
    mut fields: Fields<'_>,
    columns: &[ColumnType],
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut values = [Value::Unsigned(0); COLUMNS_MAX * 2];
    for (out, wanted) in values.iter_mut().zip(columns) {
        if fields.0.first() == Some(&0xfb) {
            return Err(EngineError::Wrong("mariadb answered NULL".to_string()));
        }
        let length = lengthy(&mut fields)? as usize;
        let field = fields.bytes(length)?;
        *out = match wanted {
            ColumnType::Bytes => Value::Bytes(field),
            ColumnType::I64 => Value::Signed(number(field)?),
            ColumnType::U64 => Value::Unsigned(number(field)?),
            ColumnType::U32 => Value::Unsigned(u64::from(number::<u32>(field)?)),
        };
    }
    visit(&values[..columns.len()]);
    Ok(())
}

#[inline]
fn number<N: std::str::FromStr>(field: &[u8]) -> Result<N> {
    let text = std::str::from_utf8(field).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let found = String::from_utf8_lossy(field);
        EngineError::Wrong(format!("mariadb answered {found:?} for a number"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_server_could_take_for_something_else_are_sent_as_digits() {
        let text = Text::new("INSERT INTO t VALUES (?)");
        let sent = |bytes: &[u8]| {
            let mut out = Vec::new();
            text.start(&mut out);
            assert!(text.push(0, Value::Bytes(bytes), &mut out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(sent(b"12-? ~"), "INSERT INTO t VALUES ('12-? ~')");
        assert_eq!(sent(b""), "INSERT INTO t VALUES ('')");
        for bytes in [&b"it's"[..], b"a\\", b"\0", b"\n", b"\x7f", b"\xc3\xa4"] {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(sent(bytes), format!("INSERT INTO t VALUES (X'{digits}')"));
        }
    }

    #[test]
    fn values_go_where_the_statement_wants_them() {
        let text = Text::new("SELECT a FROM t WHERE a = ? AND b < ? LIMIT ?");
        let mut out = Vec::new();
        text.start(&mut out);
        assert!(text.push(0, Value::Bytes(b"'\0\xff"), &mut out));
        assert!(text.push(1, Value::Signed(-7), &mut out));
        assert!(text.push(2, Value::Unsigned(u64::MAX), &mut out));
        assert!(!text.push(3, Value::Unsigned(1), &mut out), "one too many");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "SELECT a FROM t WHERE a = X'2700FF' AND b < -7 LIMIT 18446744073709551615"
        );
    }

    #[test]
    fn rows_are_read_and_damaged_ones_are_errors() {
        let row = b"\x02-1\x0218\x02ab";
        let columns = [ColumnType::I64, ColumnType::U32, ColumnType::Bytes];
        let mut seen = 0;
        let mut visit = |values: &[Value<'_>]| {
            let expected = [Value::Signed(-1), Value::Unsigned(18), Value::Bytes(b"ab")];
            assert_eq!(values, expected);
            seen += 1;
        };
        read_row(Fields(row), &columns, &mut visit).unwrap();
        for end in 0..row.len() {
            assert!(read_row(Fields(&row[..end]), &columns, &mut visit).is_err());
        }
        for bad in [
            &b"\xfb"[..],
            b"\0",
            b"\x01x",
            b"\x02-1",
            b"\x14184467440737095516160",
        ] {
            assert!(read_row(Fields(bad), &[ColumnType::U64], &mut visit).is_err());
        }
        assert_eq!(seen, 1);
    }
}
