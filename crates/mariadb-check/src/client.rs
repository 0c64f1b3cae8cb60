//! Client of a MariaDB server at a Unix socket, for statements as text.
//!
//! A library is not used, for the same reason as in `rumbench-engines`: the protocol that a program
//! with one kind of statement needs is short. The server knows the user by the socket, so there are
//! no passwords. An answer keeps the difference between NULL and an empty text, the code of an
//! error and the number of warnings, because two storage engines are compared by them.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Long passwords (old servers), a database at connect, protocol 4.1, transactions, its
/// authentication, named authentication.
const CAPABILITIES: u32 = 1 | 8 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// Maximum bytes of one packet. No statement here is as long.
const PACKET_MAX: usize = 0xff_ffff;
/// Character set `utf8mb4` with collation `utf8mb4_general_ci`.
const UTF8MB4: u8 = 45;
const COM_QUERY: u8 = 3;
/// A statement without an answer for so long counts as hanging.
pub const ANSWER_SECONDS: u64 = 120;

/// Value of an answer; `None` is NULL.
pub type Value = Option<Vec<u8>>;

/// Answer to a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Rows of a query.
    Rows(Vec<Vec<Value>>),
    /// Success of a statement without rows.
    Done(Done),
    /// Error of the server.
    Refused(Refused),
}

/// Success of a statement without rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Number of changed rows.
    pub affected: u64,
    /// First number that the statement took from an AUTO_INCREMENT column, or 0.
    pub last_id: u64,
    /// Number of warnings.
    pub warnings: u16,
}

/// Error of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Number of the error.
    pub code: u16,
    /// Text of the error.
    pub message: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Rows(rows) => {
                write!(f, "{} rows", rows.len())?;
                rows.iter().try_for_each(|row| {
                    let values: Vec<String> = row.iter().map(shown).collect();
                    write!(f, "\n  {}", values.join(" | "))
                })
            }
            Answer::Done(done) => write!(
                f,
                "affected {}, last id {}, {} warnings",
                done.affected, done.last_id, done.warnings
            ),
            Answer::Refused(refused) => write!(f, "error {} {}", refused.code, refused.message),
        }
    }
}

/// Returns a value for people: text where it is printable, else its bytes.
pub fn shown(value: &Value) -> String {
    let Some(bytes) = value else {
        return "NULL".to_string();
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("'{text}'"),
        _ => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

/// Connection to a server.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// Bytes of the packet that was read last.
    packet: Vec<u8>,
}

impl Client {
    /// Connects as `user`, without a current database.
    ///
    /// # Errors
    /// If no server answers at the socket or it refuses the user.
    pub fn connect(socket: &Path, user: &str) -> Result<Client> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("no server answers at {}", socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECONDS)))?;
        let mut client = Client {
            stream: BufReader::new(stream),
            packet: Vec::new(),
        };
        client.enter(user).context("cannot log in")?;
        Ok(client)
    }

    fn enter(&mut self, user: &str) -> Result<()> {
        self.read()?;
        if let Some(refused) = self.refused() {
            bail!("{} [{}]", refused.message, refused.code);
        }
        let mut reply = CAPABILITIES.to_le_bytes().to_vec();
        reply.extend_from_slice(&(1_u32 << 30).to_le_bytes());
        reply.push(UTF8MB4);
        reply.extend_from_slice(&[0; 23]);
        reply.extend_from_slice(user.as_bytes());
        // An end of the name, a proof of no bytes, and a database without a name.
        reply.extend_from_slice(&[0, 0, 0]);
        reply.extend_from_slice(b"mysql_native_password\0");
        self.send(1, &reply)?;
        self.read()?;
        if self.packet.first() == Some(&0xfe) {
            // The server asks for another proof. At its own socket none is needed.
            self.send(3, &[])?;
            self.read()?;
        }
        match self.refused() {
            Some(refused) => bail!("{} [{}]", refused.message, refused.code),
            None => Ok(()),
        }
    }

    /// Sends a statement and reads the whole answer.
    ///
    /// # Errors
    /// If the connection is lost, as after a crash of the server, or no answer comes.
    pub fn query(&mut self, sql: &str) -> io::Result<Answer> {
        let mut message = Vec::with_capacity(sql.len() + 1);
        message.push(COM_QUERY);
        message.extend_from_slice(sql.as_bytes());
        self.send(0, &message)?;
        self.read()?;
        if let Some(refused) = self.refused() {
            return Ok(Answer::Refused(refused));
        }
        let mut fields = Fields(&self.packet);
        if self.packet.first() == Some(&0) {
            fields.take(1)?;
            let (affected, last_id) = (fields.length()?, fields.length()?);
            fields.take(2)?;
            let warnings = fields.number()?;
            return Ok(Answer::Done(Done {
                affected,
                last_id,
                warnings,
            }));
        }
        let columns = fields.length()? as usize;
        // The definitions of the columns, and a packet that ends them.
        for _ in 0..=columns {
            self.read()?;
        }
        self.rows(columns)
    }

    fn rows(&mut self, columns: usize) -> io::Result<Answer> {
        let mut rows = Vec::new();
        // Terminates with the packet that ends every answer, or with the connection.
        loop {
            self.read()?;
            if let Some(refused) = self.refused() {
                return Ok(Answer::Refused(refused));
            }
            if self.packet.first() == Some(&0xfe) && self.packet.len() < 9 {
                return Ok(Answer::Rows(rows));
            }
            let mut fields = Fields(&self.packet);
            let row = (0..columns).map(|_| fields.value());
            rows.push(row.collect::<io::Result<Vec<Value>>>()?);
        }
    }

    /// Runs a statement that must succeed, and returns its rows.
    ///
    /// # Errors
    /// If the server refuses it or the connection is lost.
    pub fn must(&mut self, sql: &str) -> Result<Vec<Vec<Value>>> {
        match self.query(sql).with_context(|| format!("at {sql}"))? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(_) => Ok(Vec::new()),
            Answer::Refused(refused) => {
                bail!("{} [{}] at {sql}", refused.message, refused.code)
            }
        }
    }

    fn send(&mut self, number: u8, message: &[u8]) -> io::Result<()> {
        assert!(message.len() < PACKET_MAX, "a statement is one packet");
        let mut packet = (message.len() as u32).to_le_bytes().to_vec();
        packet[3] = number;
        packet.extend_from_slice(message);
        self.stream.get_mut().write_all(&packet)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if length == PACKET_MAX {
            return Err(io::Error::other("a row of 16 MiB or more"));
        }
        self.packet.resize(length, 0);
        self.stream.read_exact(&mut self.packet)
    }

    /// Returns the error of the last packet, if it is one.
    fn refused(&self) -> Option<Refused> {
        let packet = &self.packet;
        if packet.first() != Some(&0xff) || packet.len() < 3 {
            return None;
        }
        let text = String::from_utf8_lossy(&packet[3..]);
        // `#` and the five characters of the SQL state.
        let message = match text.strip_prefix('#') {
            Some(rest) => rest.get(5..).unwrap_or_default(),
            None => &text,
        };
        Some(Refused {
            code: u16::from_le_bytes([packet[1], packet[2]]),
            message: message.to_string(),
        })
    }
}

/// Fields of a packet that are not yet read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let short = || io::Error::new(io::ErrorKind::InvalidData, "a packet is too short");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a number; its first byte tells its size.
    fn length(&mut self) -> io::Result<u64> {
        let bytes = match self.take(1)?[0] {
            0xfc => self.take(2)?,
            0xfd => self.take(3)?,
            0xfe => self.take(8)?,
            small => return Ok(u64::from(small)),
        };
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |sum, b| sum << 8 | u64::from(*b)))
    }

    fn value(&mut self) -> io::Result<Value> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        let length = self.length()? as usize;
        Ok(Some(self.take(length)?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_lengths_are_read_and_cut_ones_are_errors() {
        let long = [&[0xfc, 0x2c, 1][..], &[b'x'; 300]].concat();
        let packet = [&[0xfb, 0, 2, b'a', b'b'][..], &long].concat();
        let mut fields = Fields(&packet);
        assert_eq!(fields.value().unwrap(), None);
        assert_eq!(fields.value().unwrap(), Some(Vec::new()));
        assert_eq!(fields.value().unwrap(), Some(b"ab".to_vec()));
        assert_eq!(fields.value().unwrap(), Some(vec![b'x'; 300]));
        assert!(fields.value().is_err());
        assert!(Fields(&long[..long.len() - 1]).value().is_err());
    }

    #[test]
    fn a_value_is_shown_as_text_only_if_it_is_printable() {
        assert_eq!(shown(&None), "NULL");
        assert_eq!(shown(&Some("ä".into())), "'ä'");
        assert_eq!(shown(&Some(vec![0, 0xff])), "x'00ff'");
    }
}
