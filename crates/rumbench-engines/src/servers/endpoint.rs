//! Address and credentials of a server.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rumbench_core::engine::{EngineError, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Server address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// Unix socket.
    Socket(PathBuf),
    /// `host:port`.
    Network(String),
}

impl FromStr for Address {
    type Err = String;

    /// Parses an absolute path as a socket; anything else must be `host:port`.
    fn from_str(text: &str) -> Result<Address, String> {
        if text.starts_with('/') {
            return Ok(Address::Socket(PathBuf::from(text)));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Address::Network(text.to_string()))
            }
            _ => Err("neither the path of a socket, from the root on, nor `host:port`".to_string()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Socket(path) => write!(out, "{}", path.display()),
            Address::Network(text) => out.write_str(text),
        }
    }
}

/// Password of a database user. Never shown.
#[derive(Clone)]
pub(super) struct Password(String);

impl Password {
    /// Takes a password of a server that was started here.
    pub(super) fn own(text: &str) -> Password {
        Password(text.to_string())
    }

    /// Reads the password from the first line of `file`.
    pub(super) fn read(engine: &str, file: &str) -> Result<Password> {
        let wrong = |why: String| {
            EngineError::Unsupported(format!(
                "{engine}.password_file={file}: {why}; its first line is to be the password"
            ))
        };
        // Must be absolute, because a suite can be resumed from any folder.
        if !file.starts_with('/') {
            return Err(wrong("a path from the root on is needed".to_string()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Password(line.to_string())),
            _ => Err(wrong("nothing is in it".to_string())),
        }
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Password(..)")
    }
}

/// Connection parameters of a server.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) address: Address,
    pub(super) user: String,
    pub(super) password: Option<Password>,
    pub(super) database: String,
    /// Log of a server that was started here.
    pub(super) log: Option<PathBuf>,
}

impl Endpoint {
    /// Returns the same endpoint with another database.
    pub(super) fn with_database(&self, database: &str) -> Endpoint {
        Endpoint {
            database: database.to_string(),
            ..self.clone()
        }
    }
}

/// Byte stream to a server.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn connect(server: &str, address: &Address) -> Result<Stream> {
        let stream = match address {
            Address::Socket(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Network(text) => TcpStream::connect(text).and_then(|stream| {
                // A statement is one message: waiting for more would only delay it.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }),
        };
        stream.map_err(|error| {
            EngineError::failed(format!("{server}: cannot connect to {address}"), error)
        })
    }

    /// Limits the time a write waits for the server. A suspended process keeps its connections
    /// open.
    pub(super) fn limit(&self, wait: Duration) -> std::io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_write_timeout(Some(wait)),
            Stream::Tcp(stream) => stream.set_write_timeout(Some(wait)),
        }
    }

    /// Reads available bytes; waits up to `wait` for data or end of stream.
    ///
    /// `poll` followed by a read is cheaper than a blocking read, despite the extra call. Of the
    /// 10.6 us in which a client sends a LinkBench request and reads its answers it saves 1.4 us
    /// (kernel 6.18, a Unix socket, one core for both sides).
    pub(super) fn receive(&mut self, room: &mut [u8], wait: Duration) -> std::io::Result<usize> {
        let stream = match &*self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        };
        let wait = Timespec::try_from(wait).map_err(|_| ErrorKind::InvalidInput)?;
        let mut waiting = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
        if poll(&mut waiting, Some(&wait))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        match self {
            Stream::Unix(stream) => stream.read(room),
            Stream::Tcp(stream) => stream.read(room),
        }
    }

    /// Returns the id of the process that listens at the other end, if the kernel reports it. The
    /// kernel does so for Unix sockets, unless the process is in another container.
    pub(super) fn listener(&self) -> Option<u32> {
        let Stream::Unix(stream) = self else {
            return None;
        };
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_has_a_port() {
        let socket = Address::Socket(PathBuf::from("/run/mysqld/mysqld.sock"));
        assert_eq!("/run/mysqld/mysqld.sock".parse(), Ok(socket));
        let network = Address::Network("db.example:3306".to_string());
        assert_eq!("db.example:3306".parse(), Ok(network));
        assert!("[::1]:5432".parse::<Address>().is_ok());
        for wrong in [
            "",
            "localhost",
            "localhost:",
            ":3306",
            "host:port",
            "a:70000",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_the_first_line_of_a_file_and_shown_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let name = file.to_str().unwrap();
        let refused = |content: Option<&str>| {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let error = Password::read("postgresql", name).unwrap_err().to_string();
            assert!(error.contains("postgresql.password_file=") && error.contains("first line"));
        };
        refused(None);
        let relative = Password::read("postgresql", "password");
        assert!(relative.unwrap_err().to_string().contains("from the root"));
        refused(Some(""));
        refused(Some("\nlater"));
        std::fs::write(&file, "two words \r\nlater").unwrap();
        let password = Password::read("postgresql", name).unwrap();
        assert_eq!(password.reveal(), "two words ");
        assert_eq!(format!("{password:?}"), "Password(..)");
    }

    #[test]
    fn the_listener_at_a_socket_of_this_machine_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stream = Stream::connect("a server", &Address::Socket(path)).unwrap();
        assert_eq!(stream.listener(), Some(std::process::id()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Network(listener.local_addr().unwrap().to_string());
        let stream = Stream::connect("a server", &address).unwrap();
        assert_eq!(stream.listener(), None);
    }
}
