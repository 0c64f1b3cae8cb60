//! Stands between clients and a server for one connection of each, and writes down what they send, message by message.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Longest piece that is read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Whether bytes end with a whole message.
pub type IsWhole = fn(&[u8], first: bool) -> bool;

/// A relay in the place of a server's socket, which is under another name meanwhile.
pub struct Relay {
    socket: PathBuf,
    moved: PathBuf,
    thread: JoinHandle<Recordings>,
}

/// What each connection sent.
type Recordings = std::io::Result<Vec<Vec<u8>>>;

impl Relay {
    /// Takes the place of `socket` for the next connections, so many of them.
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

    /// A recording of each connection, when all have ended; the socket is back in its place.
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

/// MariaDB's: the length is in the first three bytes of four.
pub fn is_whole_of_mariadb(bytes: &[u8], _first: bool) -> bool {
    let length = |header: &[u8]| u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    bytes.len() >= 4 && bytes.len() == 4 + length(bytes)
}

/// PostgreSQL's: a start without a kind, later queries, or messages up to a sync.
pub fn is_whole_of_postgresql(bytes: &[u8], first: bool) -> bool {
    let length = |at: usize| {
        let field = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(field) as usize)
    };
    if first {
        return length(0) == Some(bytes.len());
    }
    let (mut at, mut last) = (0, 0);
    // Each turn goes on by a message.
    while let Some(bytes_of_message) = length(at + 1) {
        last = bytes[at];
        at += 1 + bytes_of_message;
    }
    at == bytes.len() && matches!(last, b'S' | b'Q')
}
