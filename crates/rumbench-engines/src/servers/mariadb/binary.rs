//! Binary values of MariaDB's protocol: parameters of prepared statements, and the rows of their
//! answers.

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Value, schema::COLUMNS_MAX};

use crate::servers::packages::MARIADB;
use crate::servers::session::{Fields, Visit, unexpected};

/// Types of columns and parameters.
mod types {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const BLOB: u8 = 252;
}
/// Flag of an unsigned parameter.
const UNSIGNED: u8 = 0x80;

/// Returns type and flag of a parameter.
#[inline]
pub(super) fn type_of(value: Value<'_>) -> [u8; 2] {
    match value {
        Value::Unsigned(_) => [types::LONGLONG, UNSIGNED],
        Value::Signed(_) => [types::LONGLONG, 0],
        Value::Bytes(_) => [types::BLOB, 0],
    }
}

/// Appends a parameter.
#[inline]
pub(super) fn append(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Unsigned(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Signed(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Bytes(bytes) => {
            append_length(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
    }
}

#[inline]
fn append_length(length: usize, out: &mut Vec<u8>) {
    match length {
        0..=250 => out.push(length as u8),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&(length as u64).to_le_bytes());
        }
    }
}

/// Reads a number of variable length.
#[inline]
pub(super) fn lengthy(fields: &mut Fields<'_>) -> Result<u64> {
    Ok(match fields.array()? {
        [0xfc] => u64::from(u16::from_le_bytes(fields.array()?)),
        [0xfd] => {
            let [a, b, c] = fields.array()?;
            u64::from(u32::from_le_bytes([a, b, c, 0]))
        }
        [0xfe] => u64::from_le_bytes(fields.array()?),
        [number] => u64::from(number),
    })
}

/// Decodes a row of a prepared statement and passes it to `visit`.
#[inline]
pub(super) fn read_row(
    mut fields: Fields<'_>,
    types: &[u8],
    columns: &[ColumnType],
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut values = [Value::Unsigned(0); COLUMNS_MAX * 2];
    // The packet's kind, then two reserved bits and a bit for each column that is NULL.
    fields.array::<1>()?;
    let nulls = fields.bytes((types.len() + 9) / 8)?;
    if nulls.iter().any(|bits| *bits != 0) {
        return Err(EngineError::Wrong("mariadb answered NULL".to_string()));
    }
    for ((out, of), wanted) in values.iter_mut().zip(types).zip(columns) {
        let number = match *of {
            types::TINY => i64::from(i8::from_le_bytes(fields.array()?)),
            types::SHORT => i64::from(i16::from_le_bytes(fields.array()?)),
            types::LONG | types::INT24 => i64::from(i32::from_le_bytes(fields.array()?)),
            types::LONGLONG => i64::from_le_bytes(fields.array()?),
            _ if *wanted == ColumnType::Bytes => {
                let length = lengthy(&mut fields)? as usize;
                let bytes = fields.bytes(length)?;
                *out = Value::Bytes(bytes);
                continue;
            }
            other => return Err(unexpected(MARIADB, other)),
        };
        *out = match wanted {
            ColumnType::I64 => Value::Signed(number),
            ColumnType::U32 => Value::Unsigned(u64::from(number as u32)),
            ColumnType::U64 => Value::Unsigned(number as u64),
            ColumnType::Bytes => {
                return Err(EngineError::Wrong(
                    "mariadb: a number for bytes".to_string(),
                ));
            }
        };
    }
    visit(&values[..columns.len()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_were_written() {
        for length in [0, 250, 251, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000] {
            let mut out = Vec::new();
            append_length(length, &mut out);
            let mut fields = Fields(&out);
            assert_eq!(lengthy(&mut fields).unwrap(), length as u64);
            assert!(fields.0.is_empty());
        }
    }

    #[test]
    fn rows_are_read_and_damaged_ones_are_errors() {
        let row = b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02ab";
        let types = [types::LONG, types::LONGLONG, types::BLOB];
        let columns = [ColumnType::U32, ColumnType::I64, ColumnType::Bytes];
        let mut seen = 0;
        let mut visit = |values: &[Value<'_>]| {
            let expected = [
                Value::Unsigned(u64::from(u32::MAX)),
                Value::Signed(-1),
                Value::Bytes(b"ab"),
            ];
            assert_eq!(values, expected);
            seen += 1;
        };
        read_row(Fields(row), &types, &columns, &mut visit).unwrap();
        for end in 0..row.len() {
            assert!(read_row(Fields(&row[..end]), &types, &columns, &mut visit).is_err());
        }
        assert!(read_row(Fields(b"\0\x04"), &types[..1], &columns[..1], &mut visit).is_err());
        assert_eq!(seen, 1);
    }
}
