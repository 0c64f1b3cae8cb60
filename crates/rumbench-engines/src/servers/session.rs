//! Server connection for the adapters: prepared statements with values in, rows out, one round trip
//! each.
//!
//! The laboratory implements both protocols itself (`postgresql::wire`, `mariadb::wire`), because a
//! driver would determine the client's cost. A value goes from the workload straight into the
//! message, and a row is visited in the receive buffer.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Value};

use super::endpoint::{Endpoint, Stream};
use super::log::log_tail;

/// Handle of a session's statement, prepared or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statement(pub(super) usize);

/// Callback for each row of an answer.
pub(super) type Visit<'a> = dyn FnMut(&[Value<'_>]) + 'a;

/// Connection to a server. A statement is run by [`Session::start`], a [`Session::push`] for each
/// parameter, and [`Session::finish`].
pub(super) trait Session: Send {
    /// Prepares a statement for the life of the connection.
    fn prepare(&mut self, text: &str) -> Result<Statement>;

    /// Registers a statement that is not prepared: the server parses it on each run.
    fn unprepared(&mut self, text: &str) -> Result<Statement>;

    /// Prepares a statement that reads an index and not the rows. Sends it whole each time to a
    /// server with better plans for statements in text form.
    fn prepare_of_index(&mut self, text: &str) -> Result<Statement> {
        self.prepare(text)
    }

    /// Begins the message that runs a statement. Discards a statement that was begun and not
    /// finished.
    fn start(&mut self, statement: Statement);

    /// Adds the next parameter.
    fn push(&mut self, value: Value<'_>) -> Result<()>;

    /// Runs the statement. Its answer has columns of these types, and `visit` gets each row.
    /// Returns the number of rows changed or returned.
    fn finish(&mut self, columns: &[ColumnType], visit: &mut Visit<'_>) -> Result<u64>;

    /// Runs statements without parameters; returns the rows of the last as text, an empty one for
    /// NULL.
    fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>>;

    /// Returns true if the last error was a duplicate key.
    fn met_duplicate(&self) -> bool;

    /// Runs a statement with these parameters.
    fn run(
        &mut self,
        statement: Statement,
        parameters: &[Value<'_>],
        columns: &[ColumnType],
        visit: &mut Visit<'_>,
    ) -> Result<u64> {
        self.start(statement);
        for value in parameters {
            self.push(*value)?;
        }
        self.finish(columns, visit)
    }

    /// Runs a statement that returns no rows; returns the number of rows changed.
    fn change(&mut self, statement: Statement, parameters: &[Value<'_>]) -> Result<u64> {
        self.run(statement, parameters, &[], &mut |_| ())
    }

    /// Returns the single value of a query without parameters.
    fn ask(&mut self, text: &str) -> Result<String> {
        let rows = self.query(text)?;
        let first = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next());
        first.ok_or_else(|| EngineError::Wrong(format!("no answer to: {text}")))
    }
}

/// Error that a server answers with.
#[derive(Debug)]
pub(super) enum ServerError {
    /// A conflict: nothing has happened.
    Retry(String),
    /// Key that already exists.
    Duplicate(String),
    Other(String),
}

/// Buffered byte stream to and from a server.
pub(super) struct Wire {
    server: &'static str,
    stream: Stream,
    log: Option<PathBuf>,
    received: Vec<u8>,
    /// Received bytes that are not yet read, as a range of `received`.
    unread: std::ops::Range<usize>,
    /// Limit for an answer.
    wait: Duration,
}

/// Adds the text of the statement to an error of its preparation.
#[cold]
pub(super) fn cannot_prepare(text: &str, error: EngineError) -> EngineError {
    match error {
        EngineError::Failed { context, source } => {
            EngineError::failed(format!("{context}: cannot prepare `{text}`"), source)
        }
        other => other,
    }
}

impl Wire {
    /// Initial size of the receive buffer in bytes; longer messages enlarge it.
    const ROOM: usize = 64 << 10;
    /// Limit for an answer during login, when a server has little to do.
    const LOGIN: Duration = Duration::from_secs(60);
    /// Limit for an answer to a statement; the longest ones build an index or vacuum a database.
    const STATEMENT: Duration = Duration::from_secs(2 * 60 * 60);

    pub(super) fn connect(server: &'static str, endpoint: &Endpoint) -> Result<Wire> {
        let mut wire = Wire {
            server,
            stream: Stream::connect(server, &endpoint.address)?,
            log: endpoint.log.clone(),
            received: vec![0; Wire::ROOM],
            unread: 0..0,
            wait: Wire::LOGIN,
        };
        wire.limit(Wire::LOGIN)?;
        Ok(wire)
    }

    /// Ends the login: from now on the limit is that of statements.
    pub(super) fn entered(&mut self) -> Result<()> {
        self.limit(Wire::STATEMENT)
    }

    fn limit(&mut self, wait: Duration) -> Result<()> {
        self.wait = wait;
        let limited = self.stream.limit(wait);
        limited.map_err(|error| self.broken(&error))
    }

    /// See [`Stream::listener`].
    pub(super) fn listener(&self) -> Option<u32> {
        self.stream.listener()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| self.broken(&error))
    }

    /// Converts an error of the server; adds the end of the log unless clients expect the error.
    #[cold]
    pub(super) fn answered(&self, error: ServerError) -> EngineError {
        let message = match error {
            ServerError::Retry(message) => return EngineError::Retry(message),
            ServerError::Duplicate(message) => message,
            ServerError::Other(message) => match &self.log {
                Some(log) => format!("{message}; {}", log_tail(log)),
                None => message,
            },
        };
        EngineError::failed(self.server, message)
    }

    #[cold]
    fn broken(&self, error: &std::io::Error) -> EngineError {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let what = match error.kind() {
            TimedOut | WouldBlock => format!("no answer for {:?}", self.wait),
            _ => format!("the connection broke ({error})"),
        };
        EngineError::failed(
            format!("{}: {what}", self.server),
            match &self.log {
                Some(log) => log_tail(log),
                None => "its log is where the server runs".to_string(),
            },
        )
    }

    /// Returns the next `bytes` unread bytes without consuming them.
    #[inline]
    pub(super) fn peek(&mut self, bytes: usize) -> Result<&[u8]> {
        if self.unread.len() < bytes {
            self.receive(bytes)?;
        }
        Ok(&self.received[self.unread.start..self.unread.start + bytes])
    }

    /// Consumes the next `bytes` bytes.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<&[u8]> {
        self.peek(bytes)?;
        let start = self.unread.start;
        self.unread.start += bytes;
        Ok(&self.received[start..start + bytes])
    }

    fn receive(&mut self, bytes: usize) -> Result<()> {
        self.received.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.received.len() < bytes {
            self.received.resize(bytes.next_power_of_two(), 0);
        }
        // Terminates: each iteration receives something or is an error.
        while self.unread.len() < bytes {
            let room = &mut self.received[self.unread.end..];
            match self.stream.receive(room, self.wait) {
                Ok(0) => return Err(self.broken(&std::io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => self.unread.end += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }
}

/// Consecutive fields of a message.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(count).ok_or_else(ends_early)?;
        self.0 = rest;
        Ok(field)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or_else(ends_early)?;
        self.0 = rest;
        Ok(*field)
    }

    /// Reads text up to a zero byte.
    pub(super) fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.bytes(end.ok_or_else(ends_early)?)?;
        self.array::<1>()?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

#[cold]
fn ends_early() -> EngineError {
    EngineError::Wrong("a message of the server ends early".to_string())
}

#[cold]
pub(super) fn unexpected(server: &str, what: u8) -> EngineError {
    EngineError::Wrong(format!("{server} sent an unexpected message: {what:#04x}"))
}

/// Returns the error for a value that the parameter's type cannot hold.
#[cold]
pub(super) fn cannot_hold(server: &str, value: Value<'_>) -> EngineError {
    EngineError::Unsupported(format!("{server} cannot store {value:?} in this column"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::servers::endpoint::Address;

    /// Returns the endpoint of a server at this socket that asks for no credentials.
    fn endpoint(socket: PathBuf, log: Option<PathBuf>) -> Endpoint {
        Endpoint {
            address: Address::Socket(socket),
            user: String::new(),
            password: None,
            database: String::new(),
            log,
        }
    }

    #[test]
    fn a_server_that_stands_still_is_an_error_and_no_wait_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        // The kernel accepts connections, as it does for a suspended process, and nothing answers.
        let _silent = UnixListener::bind(&socket).unwrap();
        let endpoint = endpoint(socket, None);
        let mut wire = Wire::connect("server", &endpoint).unwrap();
        wire.limit(Duration::from_millis(20)).unwrap();
        let error = wire.take(1).unwrap_err().to_string();
        assert!(error.contains("server: no answer for 20ms"), "{error}");
    }

    #[test]
    fn bytes_arrive_in_order_and_a_closed_connection_names_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, log) = (dir.path().join("socket"), dir.path().join("log"));
        std::fs::write(&log, "out of memory\n").unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let endpoint = endpoint(socket, Some(log));
        let mut wire = Wire::connect("a server", &endpoint).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|byte| byte as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || other.write_all(&sent).unwrap());
        assert_eq!(wire.peek(3).unwrap(), &expected[..3]);
        assert_eq!(wire.take(5).unwrap(), &expected[..5]);
        assert_eq!(wire.take(199_995).unwrap(), &expected[5..]);
        writer.join().unwrap();
        let EngineError::Failed { source, .. } = wire.take(1).unwrap_err() else {
            panic!("another error");
        };
        assert!(source.to_string().contains("out of memory"), "{source}");
    }

    #[test]
    fn an_answered_error_has_the_end_of_the_log_unless_clients_expect_it() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, log) = (dir.path().join("socket"), dir.path().join("log"));
        std::fs::write(&log, "no space left\n").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let endpoint = endpoint(socket, Some(log));
        let wire = Wire::connect("a server", &endpoint).unwrap();
        let full = wire.answered(ServerError::Other("table is full".to_string()));
        let EngineError::Failed { source, .. } = full else {
            panic!("{full}");
        };
        let expected = "table is full; its log ends with: no space left";
        assert_eq!(source.to_string(), expected);
        let duplicate = wire.answered(ServerError::Duplicate("twice".to_string()));
        assert!(
            matches!(duplicate, EngineError::Failed { source, .. } if source.to_string() == "twice")
        );
        let conflict = wire.answered(ServerError::Retry("again".to_string()));
        assert!(matches!(conflict, EngineError::Retry(text) if text == "again"));
    }

    #[test]
    fn fields_that_are_not_there_are_errors() {
        let mut fields = Fields(b"name\0\x01\x02");
        assert_eq!(fields.text().unwrap(), "name");
        assert_eq!(fields.array().unwrap(), [1, 2]);
        assert!(fields.array::<1>().is_err() && fields.text().is_err() && fields.bytes(1).is_err());
    }
}
