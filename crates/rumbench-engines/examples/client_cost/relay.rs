//! Relay between clients and a server. It records the messages that each client sends over one
//! connection.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Size of the read buffer.
const PIECE_BYTES: usize = 1 << 20;

/// Function that returns whether bytes end with a complete message; `first` is set until a
/// connection has sent one.
pub type IsWhole = fn(&[u8], first: bool) -> bool;

/// Running relay. It listens at the path of the server's socket, which is renamed in the meantime.
pub struct Relay {
    socket: PathBuf,
    moved: PathBuf,
    thread: JoinHandle<Recordings>,
}

/// Messages of each connection, each prefixed with its length as a little-endian `u32`.
type Recordings = std::io::Result<Vec<Vec<u8>>>;

impl Relay {
    /// Replaces `socket` and relays the given number of connections.
    pub fn install(socket: &Path, is_whole: IsWhole, connections: usize) -> std::io::Result<Relay> {
        let moved = socket.with_file_name("moved");
        std::fs::rename(socket, &moved)?;
        let listener = UnixListener::bind(socket)?;
        let server = moved.clone();
        let thread = thread::spawn(move || {
            let mut threads = Vec::new();
            for _ in 0..connections {
                let (client, _) = listener.accept()?;
                let server = UnixStream::connect(&server)?;
                threads.push(thread::spawn(move || record(client, server, is_whole)));
            }
            threads.into_iter().map(joined).collect()
        });
        Ok(Relay {
            socket: socket.to_path_buf(),
            moved,
            thread,
        })
    }

    /// Moves the server's socket back, waits until all connections have ended, and returns their
    /// recordings.
    pub fn finish(self) -> Recordings {
        std::fs::rename(&self.moved, &self.socket)?;
        joined(self.thread)
    }
}

fn joined<T>(thread: JoinHandle<std::io::Result<T>>) -> std::io::Result<T> {
    let panicked = |_| std::io::Error::other("the relay panicked");
    thread.join().map_err(panicked)?
}

fn record(
    mut client: UnixStream,
    mut server: UnixStream,
    is_whole: IsWhole,
) -> std::io::Result<Vec<u8>> {
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    let answers = thread::spawn(move || std::io::copy(&mut answers, &mut back));
    let (mut recording, mut message) = (Vec::new(), Vec::new());
    let mut piece = vec![0; PIECE_BYTES];
    // Ends with the connection.
    loop {
        let length = client.read(&mut piece)?;
        if length == 0 {
            break;
        }
        server.write_all(&piece[..length])?;
        message.extend_from_slice(&piece[..length]);
        if is_whole(&message, recording.is_empty()) {
            recording.extend_from_slice(&(message.len() as u32).to_le_bytes());
            recording.append(&mut message);
        }
    }
    server.shutdown(std::net::Shutdown::Both)?;
    let _ = answers.join();
    Ok(recording)
}

/// Checks a MariaDB message: its header has four bytes, and the first three are the length.
pub fn is_whole_of_mariadb(bytes: &[u8], _first: bool) -> bool {
    let length = |header: &[u8]| u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    bytes.len() >= 4 && bytes.len() == 4 + length(bytes)
}

/// Checks PostgreSQL messages: first a startup message without a type byte, later a query or a
/// sequence that ends with a sync.
pub fn is_whole_of_postgresql(bytes: &[u8], first: bool) -> bool {
    let length = |at: usize| {
        let field = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(field) as usize)
    };
    if first {
        return length(0) == Some(bytes.len());
    }
    let (mut at, mut last) = (0, 0);
    // Each iteration skips one message.
    while let Some(bytes_of_message) = length(at + 1) {
        last = bytes[at];
        at += 1 + bytes_of_message;
    }
    at == bytes.len() && matches!(last, b'S' | b'Q')
}
