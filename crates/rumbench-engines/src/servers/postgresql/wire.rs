//! PostgreSQL's protocol, version 3, as needed for statements with parameters: values and rows in
//! binary form.
//!
//! A statement is bound, executed, and synced with one message sent and one answer received.
//! Outside BEGIN and COMMIT this is a transaction of its own. Parameters have the types that the
//! server has inferred. The start of a connection is in `login`.

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Value, schema::COLUMNS_MAX};

use super::login::{self, server_error};
use crate::servers::endpoint::Endpoint;
use crate::servers::packages::POSTGRESQL;
use crate::servers::session::{
    Fields, ServerError, Session, Statement, Visit, Wire, cannot_hold, cannot_prepare, unexpected,
};

/// Superuser that the data folder is initialized with.
pub(super) const USER: &str = "rumbench";

/// Ids of types in the catalog, which never change.
mod types {
    pub(super) const BYTEA: u32 = 17;
    pub(super) const INT8: u32 = 20;
    pub(super) const INT2: u32 = 21;
    pub(super) const INT4: u32 = 23;
    pub(super) const TEXT: u32 = 25;
    pub(super) const OID: u32 = 26;
}

/// Connection to a PostgreSQL server.
pub(in crate::servers) struct PostgresSession {
    wire: Wire,
    out: Vec<u8>,
    statements: Vec<Prepared>,
    /// Index of the started statement, and the place of the next parameter.
    started: (usize, usize),
    /// Offset in `out` of the length of the Bind message.
    binds_at: usize,
    duplicate: bool,
}

/// Prepared statement.
struct Prepared {
    /// Types of its parameters.
    parameters: Vec<u32>,
    /// Its text, if the server parses it on each run.
    text: Option<Box<str>>,
}

impl PostgresSession {
    pub(super) fn connect(endpoint: &Endpoint) -> Result<PostgresSession> {
        let mut session = PostgresSession {
            wire: Wire::connect(POSTGRESQL, endpoint)?,
            out: Vec::new(),
            statements: Vec::new(),
            started: (0, 0),
            binds_at: 0,
            duplicate: false,
        };
        let (user, database) = (&endpoint.user, &endpoint.database);
        let parameters = format!("user\0{user}\0database\0{database}\0\0");
        let mut startup = Vec::new();
        startup.extend_from_slice(&(parameters.len() as u32 + 8).to_be_bytes());
        startup.extend_from_slice(&(3_u32 << 16).to_be_bytes());
        startup.extend_from_slice(parameters.as_bytes());
        session.wire.send(&startup)?;
        login::authenticate(&mut session.wire, endpoint)?;
        session.answer(&mut |_, _| Ok(()))?;
        session.wire.entered()?;
        Ok(session)
    }

    /// See [`Wire::listener`].
    pub(super) fn listener(&self) -> Option<u32> {
        self.wire.listener()
    }

    /// Begins a message; [`PostgresSession::close_message`] writes its length.
    fn open_message(&mut self, kind: u8) -> usize {
        self.out.push(kind);
        self.out.extend_from_slice(&[0; 4]);
        self.out.len() - 4
    }

    fn close_message(&mut self, at: usize) {
        let length = (self.out.len() - at) as u32;
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    /// Appends the message that parses a text and infers the types of its parameters.
    fn parse_message(&mut self, name: &str, text: &str) {
        let parse = self.open_message(b'P');
        self.text(name);
        self.text(text);
        self.out.extend_from_slice(&[0; 2]);
        self.close_message(parse);
    }

    /// Appends the name of a prepared statement, without its terminator.
    fn name_of(&mut self, statement: usize) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = statement;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.out.push(b's');
        self.out.extend_from_slice(&digits[at..]);
    }

    fn sync_and_send(&mut self) -> Result<()> {
        let sync = self.open_message(b'S');
        self.close_message(sync);
        self.wire.send(&self.out)
    }

    /// Reads messages until the server reports that it is ready. An error of the server takes
    /// precedence over one of `read`. The messages after an error are read too.
    fn answer(&mut self, read: &mut dyn FnMut(u8, Fields<'_>) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        self.duplicate = false;
        // Terminates with `Z`, which follows every sync, or with the connection.
        loop {
            let header = match self.wire.take(5) {
                Ok(header) => header,
                Err(broken) => {
                    // A server that ends a connection sends the reason first.
                    return Err(match outcome {
                        Ok(()) => broken,
                        Err(said) => EngineError::failed(broken.to_string(), said),
                    });
                }
            };
            let kind = header[0];
            let length = Fields(&header[1..]).array().map(u32::from_be_bytes)?;
            let body = Fields(self.wire.take((length as usize).saturating_sub(4))?);
            match kind {
                b'Z' => return outcome,
                b'E' => {
                    let error = server_error(body);
                    self.duplicate = matches!(&error, ServerError::Duplicate(_));
                    outcome = Err(self.wire.answered(error));
                }
                // Notices, and parameters that changed.
                b'N' | b'S' | b'K' | b'A' => {}
                _ if outcome.is_ok() => outcome = read(kind, body),
                _ => {}
            }
        }
    }
}

/// Returns the number at the end of a tag such as `INSERT 0 5`; 0 for `BEGIN`.
fn changed(tag: &str) -> u64 {
    let last = tag.rsplit(' ').next();
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Decodes a value of an answer in binary form.
#[inline]
fn value<'a>(bytes: &'a [u8], of: ColumnType) -> Result<Value<'a>> {
    let wrong = || EngineError::Wrong(format!("postgresql: a number of {} bytes", bytes.len()));
    Ok(match (of, bytes.len()) {
        (ColumnType::Bytes, _) => Value::Bytes(bytes),
        (ColumnType::I64, 8) => {
            Value::Signed(i64::from_be_bytes(bytes.try_into().unwrap_or_default()))
        }
        (ColumnType::U32 | ColumnType::U64, 2 | 4 | 8) => {
            // Of type oid, or never negative.
            let number = bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte));
            Value::Unsigned(number)
        }
        _ => return Err(wrong()),
    })
}

/// Passes a row to `visit`.
#[inline]
fn read_row(mut fields: Fields<'_>, columns: &[ColumnType], visit: &mut Visit<'_>) -> Result<()> {
    let mut values = [Value::Unsigned(0); COLUMNS_MAX * 2];
    let count = u16::from_be_bytes(fields.array()?) as usize;
    if count != columns.len() {
        return Err(EngineError::Wrong(format!(
            "postgresql answered {count} columns instead of {}",
            columns.len()
        )));
    }
    for (out, of) in values.iter_mut().zip(columns) {
        let length = i32::from_be_bytes(fields.array()?);
        let length = usize::try_from(length)
            .map_err(|_| EngineError::Wrong("postgresql answered NULL".to_string()))?;
        *out = value(fields.bytes(length)?, *of)?;
    }
    visit(&values[..count]);
    Ok(())
}

impl Session for PostgresSession {
    fn prepare(&mut self, text: &str) -> Result<Statement> {
        let statement = self.statements.len();
        let name = format!("s{statement}");
        self.out.clear();
        self.parse_message(&name, text);
        let describe = self.open_message(b'D');
        self.out.push(b'S');
        self.text(&name);
        self.close_message(describe);
        self.sync_and_send()?;
        let mut parameters = Vec::new();
        let prepared = self.answer(&mut |kind, mut fields| {
            if kind == b't' {
                for _ in 0..u16::from_be_bytes(fields.array()?) {
                    parameters.push(u32::from_be_bytes(fields.array()?));
                }
            }
            Ok(())
        });
        prepared.map_err(|error| cannot_prepare(text, error))?;
        self.statements.push(Prepared {
            parameters,
            text: None,
        });
        Ok(Statement(statement))
    }

    fn unprepared(&mut self, text: &str) -> Result<Statement> {
        // Prepared only to get the types of its parameters.
        let statement = self.prepare(text)?;
        self.statements[statement.0].text = Some(text.into());
        Ok(statement)
    }

    fn start(&mut self, statement: Statement) {
        self.started = (statement.0, 0);
        self.out.clear();
        let text = self.statements[statement.0].text.take();
        if let Some(text) = &text {
            // The unnamed statement, which the next one replaces.
            self.parse_message("", text);
        }
        self.binds_at = self.open_message(b'B');
        // An unnamed portal, then the name of the statement.
        self.out.push(0);
        if text.is_none() {
            self.name_of(statement.0);
        }
        self.statements[statement.0].text = text;
        // All parameters in binary form; their number.
        self.out.extend_from_slice(&[0, 0, 1, 0, 1]);
        let parameters = self.statements[statement.0].parameters.len() as u16;
        self.out.extend_from_slice(&parameters.to_be_bytes());
    }

    #[inline]
    fn push(&mut self, value: Value<'_>) -> Result<()> {
        let (statement, place) = self.started;
        let types = &self.statements[statement].parameters;
        let of = types.get(place).copied().unwrap_or(0);
        self.started.1 += 1;
        let number = match value {
            Value::Bytes(bytes) => {
                if !matches!(of, types::BYTEA | types::TEXT) {
                    return Err(cannot_hold(POSTGRESQL, value));
                }
                self.out
                    .extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                self.out.extend_from_slice(bytes);
                return Ok(());
            }
            Value::Signed(number) => number,
            Value::Unsigned(number) => {
                i64::try_from(number).map_err(|_| cannot_hold(POSTGRESQL, value))?
            }
        };
        let bytes = number.to_be_bytes();
        let (width, fits) = match of {
            types::INT8 => (8, true),
            types::OID => (4, u32::try_from(number).is_ok()),
            types::INT4 => (4, i32::try_from(number).is_ok()),
            types::INT2 => (2, i16::try_from(number).is_ok()),
            _ => (0, false),
        };
        if !fits {
            return Err(cannot_hold(POSTGRESQL, value));
        }
        self.out.extend_from_slice(&(width as u32).to_be_bytes());
        self.out.extend_from_slice(&bytes[8 - width..]);
        Ok(())
    }

    #[inline]
    fn finish(&mut self, columns: &[ColumnType], visit: &mut Visit<'_>) -> Result<u64> {
        // Results in binary form.
        self.out.extend_from_slice(&[0, 1, 0, 1]);
        self.close_message(self.binds_at);
        let execute = self.open_message(b'E');
        self.out.extend_from_slice(&[0; 5]);
        self.close_message(execute);
        self.sync_and_send()?;
        let mut rows = 0;
        self.answer(&mut |kind, mut fields| match kind {
            b'D' => read_row(fields, columns, visit),
            b'C' => {
                rows = changed(&fields.text()?);
                Ok(())
            }
            b'1' | b'2' | b'I' => Ok(()),
            other => Err(unexpected(POSTGRESQL, other)),
        })?;
        Ok(rows)
    }

    fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>> {
        self.out.clear();
        let query = self.open_message(b'Q');
        self.text(text);
        self.close_message(query);
        self.wire.send(&self.out)?;
        let mut rows = Vec::new();
        self.answer(&mut |kind, mut fields| {
            match kind {
                // Rows of the next statement.
                b'T' => rows.clear(),
                b'D' => {
                    let mut row = Vec::new();
                    for _ in 0..u16::from_be_bytes(fields.array()?) {
                        let length = i32::from_be_bytes(fields.array()?);
                        let text = fields.bytes(usize::try_from(length).unwrap_or(0))?;
                        row.push(String::from_utf8_lossy(text).into_owned());
                    }
                    rows.push(row);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn met_duplicate(&self) -> bool {
        self.duplicate
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::servers::endpoint::Address;

    #[test]
    fn conflicts_are_run_again_and_duplicates_are_known() {
        let of =
            |code: &str| server_error(Fields(format!("SERROR\0C{code}\0Mtext\0\0").as_bytes()));
        for code in ["40001", "40P01", "55P03"] {
            assert!(matches!(of(code), ServerError::Retry(_)), "{code}");
        }
        assert!(matches!(of("23505"), ServerError::Duplicate(text) if text == "text [23505]"));
        assert!(matches!(of("42601"), ServerError::Other(_)));
    }

    /// Accepts any user, and ends the connection with an error at the first statement.
    fn end_at_first_statement(listener: &UnixListener) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut message = [0; 1024];
        assert!(stream.read(&mut message).unwrap() > 0);
        stream
            .write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
            .unwrap();
        assert!(stream.read(&mut message).unwrap() > 0);
        let words = b"SFATAL\0C57P01\0Mby an administrator\0\0";
        let length = (words.len() as u32 + 4).to_be_bytes();
        stream
            .write_all(&[b"E", &length[..], words].concat())
            .unwrap();
    }

    #[test]
    fn what_a_server_says_before_it_ends_the_connection_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let endpoint = Endpoint {
            address: Address::Socket(socket),
            user: USER.to_string(),
            password: None,
            database: "rumbench".to_string(),
            log: None,
        };
        for is_prepared in [false, true] {
            let error = std::thread::scope(|scope| {
                scope.spawn(|| end_at_first_statement(&listener));
                let mut session = PostgresSession::connect(&endpoint).unwrap();
                let ended = match is_prepared {
                    true => session.prepare("SELECT 1").map(drop),
                    false => session.query("SELECT 1").map(drop),
                };
                ended.unwrap_err().to_string()
            });
            assert!(error.contains("the connection broke"), "{error}");
            assert!(error.contains("by an administrator [57P01]"), "{error}");
            assert_eq!(is_prepared, error.contains("cannot prepare `SELECT 1`"));
        }
    }

    #[test]
    fn rows_are_read_and_damaged_ones_are_errors() {
        let row = b"\0\x03\0\0\0\x04\xff\xff\xff\xff\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x02ab";
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
        read_row(Fields(row), &columns, &mut visit).unwrap();
        for end in 0..row.len() {
            assert!(read_row(Fields(&row[..end]), &columns, &mut visit).is_err());
        }
        assert!(read_row(Fields(row), &columns[..2], &mut visit).is_err());
        assert!(read_row(Fields(b"\0\x01\xff\xff\xff\xff"), &columns[..1], &mut visit).is_err());
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_tag_ends_with_the_number_of_rows() {
        assert_eq!(
            [changed("INSERT 0 5"), changed("DELETE 3"), changed("BEGIN")],
            [5, 3, 0]
        );
    }
}
