//! Protocol of MySQL and MariaDB, as needed for prepared statements. Values and rows in binary form
//! are in `binary`, statements that are better sent as text in `text`.
//!
//! Rows found by an update count as changed, even if the new values equal the old ones. The start
//! of a connection is in `login`.

use std::collections::BTreeMap;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Value};

use super::binary::{self, lengthy};
use super::login::{self, Asked};
use super::text::{self, Text};
use crate::servers::endpoint::{Endpoint, Password};
use crate::servers::packages::MARIADB;
use crate::servers::session::{
    Fields, ServerError, Session, Statement, Visit, Wire, cannot_hold, cannot_prepare, unexpected,
};

/// Database of all tables.
pub(super) const DATABASE: &str = "rumbench";

/// Client capabilities: long passwords (old servers), found rows, a database at connect, protocol
/// 4.1, transactions, its authentication, several statements and answers, named authentication,
/// answers that end with an OK packet.
const CAPABILITIES: u32 =
    1 | 2 | 4 | 8 | 0x200 | 0x2000 | 0x8000 | 0x10000 | 0x20000 | 0x40000 | 0x8_0000 | 0x100_0000;
/// Maximum bytes of one packet; longer messages are split.
const PACKET_MAX: usize = 0xff_ffff;
const MORE_RESULTS: u16 = 8;
const ACCESS_DENIED: u16 = 1045;

const COM_QUERY: u8 = 3;
const COM_PREPARE: u8 = 0x16;
const COM_EXECUTE: u8 = 0x17;

/// Starts the bulk load of a connection. The first two settings cannot change during one.
pub(super) const BEGIN_BULK_LOAD: &str = "SET SESSION rocksdb_bulk_load_allow_unsorted = 1, \
     rocksdb_bulk_load_allow_sk = 1, unique_checks = 0, rocksdb_bulk_load = 1";
/// Makes the rows of a connection's bulk load visible.
const END_BULK_LOAD: &str = "SET SESSION rocksdb_bulk_load = 0";

/// Start of an answer.
enum Answer {
    /// Rows with this many columns follow.
    Rows(usize),
    /// No rows: the number of rows changed, and a flag for another answer that follows.
    Done(u64, bool),
}

/// Form in which a statement is sent.
enum Form {
    /// Prepared: id and number of parameters.
    Prepared(u32, usize),
    Text(Text),
}

/// Connection to a MariaDB server.
pub(in crate::servers) struct MariaSession {
    wire: Wire,
    /// The message, after room for the header of its first packet.
    out: Vec<u8>,
    statements: Vec<Form>,
    /// Index of the started statement.
    started: usize,
    /// Offset in `out` of the type of the next parameter; for a text statement, the number of
    /// values written.
    next: usize,
    /// Types of the columns of an answer.
    columns: Vec<u8>,
    duplicate: bool,
    /// True during a bulk load, which ends with the connection.
    in_bulk_load: bool,
}

impl Drop for MariaSession {
    fn drop(&mut self) {
        if self.in_bulk_load {
            // The server would end the load by itself, but after this call. If it fails, the rows
            // stay invisible, and the workload's own count finds that.
            let _ = self.query(END_BULK_LOAD);
        }
    }
}

impl MariaSession {
    pub(super) fn connect(endpoint: &Endpoint) -> Result<MariaSession> {
        let mut session = MariaSession {
            wire: Wire::connect(MARIADB, endpoint)?,
            out: Vec::new(),
            statements: Vec::new(),
            started: 0,
            next: 0,
            columns: Vec::new(),
            duplicate: false,
            in_bulk_load: false,
        };
        let scramble = login::scramble_of_greeting(session.answer()?)?;
        let password = endpoint.password.as_ref();
        let proof = login::proof(password, &scramble);
        session.begin();
        session.out.extend_from_slice(&CAPABILITIES.to_le_bytes());
        session.out.extend_from_slice(&(1_u32 << 30).to_le_bytes());
        // The character set `binary`, then reserved bytes.
        session.out.push(63);
        session.out.extend_from_slice(&[0; 23]);
        session.out.extend_from_slice(endpoint.user.as_bytes());
        session.out.extend_from_slice(&[0, proof.len() as u8]);
        session.out.extend_from_slice(&proof);
        session.out.extend_from_slice(endpoint.database.as_bytes());
        session.out.push(0);
        session.out.extend_from_slice(login::NATIVE.as_bytes());
        session.out.push(0);
        session.send(1)?;
        session.enter(password)?;
        session.wire.entered()?;
        Ok(session)
    }

    /// Makes the rest of the connection one bulk load of MyRocks.
    pub(super) fn begin_bulk_load(&mut self) -> Result<()> {
        self.query(BEGIN_BULK_LOAD)?;
        self.in_bulk_load = true;
        Ok(())
    }

    /// Returns the first row of a query's answer by the names of its columns; no names if there is
    /// no row.
    pub(super) fn record(&mut self, text: &str) -> Result<BTreeMap<String, String>> {
        self.send_query(text)?;
        let mut fields = self.answer()?;
        let count = lengthy(&mut fields)?;
        let names: Vec<String> = (0..count)
            .map(|_| column_name(self.packet()?))
            .collect::<Result<_>>()?;
        let mut record = BTreeMap::new();
        loop {
            let mut fields = self.answer()?;
            if fields.0.first() == Some(&0xfe) {
                return Ok(record);
            }
            let row = names.iter().map(|_| text_value(&mut fields));
            let row = row.collect::<Result<Vec<String>>>()?;
            if record.is_empty() {
                record = names.iter().cloned().zip(row).collect();
            }
        }
    }

    fn send_query(&mut self, text: &str) -> Result<()> {
        self.begin();
        self.out.push(COM_QUERY);
        self.out.extend_from_slice(text.as_bytes());
        self.send(0)
    }

    /// See [`Wire::listener`].
    pub(super) fn listener(&self) -> Option<u32> {
        self.wire.listener()
    }

    /// Begins a message.
    fn begin(&mut self) {
        self.out.clear();
        self.out.extend_from_slice(&[0; 4]);
    }

    /// Sends the message; its first packet has this number.
    fn send(&mut self, number: u8) -> Result<()> {
        let length = self.out.len() - 4;
        if length < PACKET_MAX {
            self.out[..3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
            self.out[3] = number;
            return self.wire.send(&self.out);
        }
        // A message of full packets ends with a partial one, possibly empty.
        let mut number = number;
        for part in self.out[4..].chunks(PACKET_MAX).chain([&[][..]]) {
            if part.is_empty() && !length.is_multiple_of(PACKET_MAX) {
                break;
            }
            let mut header = (part.len() as u32).to_le_bytes();
            header[3] = number;
            number = number.wrapping_add(1);
            self.wire.send(&header)?;
            self.wire.send(part)?;
        }
        Ok(())
    }

    /// Reads the next packet.
    #[inline]
    fn packet(&mut self) -> Result<Fields<'_>> {
        let header = self.wire.take(4)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if length == PACKET_MAX {
            return Err(EngineError::Unsupported(
                "mariadb: rows of 16 MiB and more are not read".to_string(),
            ));
        }
        Ok(Fields(self.wire.take(length)?))
    }

    /// Reads a packet; an error packet becomes an error.
    #[inline]
    fn answer(&mut self) -> Result<Fields<'_>> {
        self.duplicate = false;
        // Peeks first, because an error must not keep the packet borrowed.
        let header = self.wire.peek(4)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if length > 0 && self.wire.peek(5)?[4] == 0xff {
            let error = server_error(self.packet()?);
            self.duplicate = matches!(error, ServerError::Duplicate(_));
            return Err(self.wire.answered(error));
        }
        self.packet()
    }

    /// Reads the answer to the login. A server may first want to authenticate the user by another
    /// method.
    fn enter(&mut self, password: Option<&Password>) -> Result<()> {
        let proof = match Asked::read(self.answer()?)? {
            Asked::Nothing => return Ok(()),
            Asked::Proof { plugin, scramble } => {
                login::proof_by(&plugin, password, &scramble).map_err(EngineError::Unsupported)?
            }
        };
        self.begin();
        self.out.extend_from_slice(&proof);
        self.send(3)?;
        match Asked::read(self.answer()?)? {
            Asked::Nothing => Ok(()),
            Asked::Proof { .. } => Err(unexpected(MARIADB, 0xfe)),
        }
    }

    /// Reads the start of an answer and the types of its columns.
    fn columns(&mut self) -> Result<Answer> {
        let mut fields = self.answer()?;
        if fields.0.first() == Some(&0) {
            fields.array::<1>()?;
            let (changed, more) = end_of(fields)?;
            return Ok(Answer::Done(changed, more));
        }
        let count = lengthy(&mut fields)? as usize;
        self.columns.clear();
        for _ in 0..count {
            let definition = self.packet()?.0;
            // The fixed fields end with the type, the flags, the decimals, and a filler of two
            // bytes.
            let of = definition.len().checked_sub(6).map(|at| definition[at]);
            let of = of.ok_or_else(|| EngineError::Wrong("mariadb: a short column".to_string()))?;
            self.columns.push(of);
        }
        Ok(Answer::Rows(count))
    }
}

/// Returns the name in the definition of a column, after catalog, schema, and table by both names.
fn column_name(mut definition: Fields<'_>) -> Result<String> {
    for _ in 0..4 {
        let length = lengthy(&mut definition)? as usize;
        definition.bytes(length)?;
    }
    text_value(&mut definition)
}

/// Returns the number of rows changed, and a flag for another answer that follows.
fn end_of(mut fields: Fields<'_>) -> Result<(u64, bool)> {
    let changed = lengthy(&mut fields)?;
    lengthy(&mut fields)?;
    let status = u16::from_le_bytes(fields.array()?);
    Ok((changed, status & MORE_RESULTS != 0))
}

#[cold]
fn server_error(mut fields: Fields<'_>) -> ServerError {
    let code = fields.bytes(1).and_then(|_| fields.array());
    let code = code.map_or(0, u16::from_le_bytes);
    let text = String::from_utf8_lossy(fields.0);
    // `#` and the five characters of the SQL state.
    let text = match text.strip_prefix('#') {
        Some(rest) => rest.get(5..).unwrap_or_default(),
        None => &text,
    };
    let mut message = format!("{text} [{code}]");
    if code == ACCESS_DENIED {
        message += "; a password is read from the first line of the file that the setting `password_file` names";
    }
    match code {
        // Lock wait timeout, deadlock (or a conflict in MyRocks), a row that changed since it was
        // read.
        1205 | 1213 | 1020 => ServerError::Retry(message),
        1062 => ServerError::Duplicate(message),
        _ => ServerError::Other(message),
    }
}

impl Session for MariaSession {
    fn prepare(&mut self, text: &str) -> Result<Statement> {
        self.begin();
        self.out.push(COM_PREPARE);
        self.out.extend_from_slice(text.as_bytes());
        self.send(0)?;
        let mut fields = self.answer().map_err(|error| cannot_prepare(text, error))?;
        fields.array::<1>()?;
        let id = u32::from_le_bytes(fields.array()?);
        let columns = u16::from_le_bytes(fields.array()?) as usize;
        let parameters = u16::from_le_bytes(fields.array()?) as usize;
        for _ in 0..parameters + columns {
            self.packet()?;
        }
        self.statements.push(Form::Prepared(id, parameters));
        Ok(Statement(self.statements.len() - 1))
    }

    fn prepare_of_index(&mut self, text: &str) -> Result<Statement> {
        self.unprepared(text)
    }

    fn unprepared(&mut self, text: &str) -> Result<Statement> {
        self.statements.push(Form::Text(Text::new(text)));
        Ok(Statement(self.statements.len() - 1))
    }

    fn start(&mut self, statement: Statement) {
        self.begin();
        self.started = statement.0;
        let (id, parameters) = match &self.statements[statement.0] {
            Form::Prepared(id, parameters) => (*id, *parameters),
            Form::Text(text) => {
                self.out.push(COM_QUERY);
                text.start(&mut self.out);
                self.next = 0;
                return;
            }
        };
        self.out.push(COM_EXECUTE);
        self.out.extend_from_slice(&id.to_le_bytes());
        // No cursor; one iteration.
        self.out.extend_from_slice(&[0, 1, 0, 0, 0]);
        if parameters > 0 {
            // No parameter is NULL; types follow.
            self.out.resize(self.out.len() + parameters.div_ceil(8), 0);
            self.out.push(1);
            self.next = self.out.len();
            self.out.resize(self.out.len() + 2 * parameters, 0);
        }
    }

    #[inline]
    fn push(&mut self, value: Value<'_>) -> Result<()> {
        if let Some(Form::Text(text)) = self.statements.get(self.started) {
            let place = self.next;
            self.next += 1;
            let fits = text.push(place, value, &mut self.out);
            return fits
                .then_some(())
                .ok_or_else(|| cannot_hold(MARIADB, value));
        }
        let Some(place) = self.out.get_mut(self.next..self.next + 2) else {
            return Err(cannot_hold(MARIADB, value));
        };
        place.copy_from_slice(&binary::type_of(value));
        self.next += 2;
        binary::append(value, &mut self.out);
        Ok(())
    }

    #[inline]
    fn finish(&mut self, columns: &[ColumnType], visit: &mut Visit<'_>) -> Result<u64> {
        self.send(0)?;
        let count = match self.columns()? {
            Answer::Done(changed, _) => return Ok(changed),
            Answer::Rows(count) => count,
        };
        let is_text = matches!(self.statements.get(self.started), Some(Form::Text(_)));
        let types = std::mem::take(&mut self.columns);
        let mut outcome = if count == columns.len() {
            Ok(())
        } else {
            Err(EngineError::Wrong(format!(
                "mariadb answered {count} columns instead of {}",
                columns.len()
            )))
        };
        let mut rows = 0;
        // Terminates with the packet that ends every answer, or with the connection.
        loop {
            let fields = self.answer()?;
            if fields.0.first() == Some(&0xfe) {
                break;
            }
            rows += 1;
            if outcome.is_ok() {
                outcome = if is_text {
                    text::read_row(fields, columns, visit)
                } else {
                    binary::read_row(fields, &types, columns, visit)
                };
            }
        }
        self.columns = types;
        outcome.map(|()| rows)
    }

    fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>> {
        self.send_query(text)?;
        let mut rows = Vec::new();
        loop {
            let more = match self.columns()? {
                Answer::Done(_, more) => more,
                Answer::Rows(count) => {
                    rows.clear();
                    loop {
                        let mut fields = self.answer()?;
                        if fields.0.first() == Some(&0xfe) {
                            fields.array::<1>()?;
                            break end_of(fields)?.1;
                        }
                        let row = (0..count).map(|_| text_value(&mut fields));
                        rows.push(row.collect::<Result<Vec<String>>>()?);
                    }
                }
            };
            if !more {
                return Ok(rows);
            }
        }
    }

    fn met_duplicate(&self) -> bool {
        self.duplicate
    }
}

/// Reads a value of an answer in text form.
fn text_value(fields: &mut Fields<'_>) -> Result<String> {
    if fields.0.first() == Some(&0xfb) {
        fields.array::<1>()?;
        return Ok(String::new());
    }
    let length = lengthy(fields)? as usize;
    let text = fields.bytes(length)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_run_again_and_duplicates_are_known() {
        let of = |code: u16| {
            let mut packet = vec![0xff];
            packet.extend_from_slice(&code.to_le_bytes());
            packet.extend_from_slice(b"#40001text");
            server_error(Fields(&packet))
        };
        assert!(matches!(of(1213), ServerError::Retry(text) if text == "text [1213]"));
        assert!(matches!(of(1205), ServerError::Retry(_)));
        assert!(matches!(of(1062), ServerError::Duplicate(_)));
        assert!(matches!(of(1114), ServerError::Other(_)));
    }
}
