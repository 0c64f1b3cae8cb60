//! Network between primary and replica: a relay on the loopback address that delays each byte by
//! half of a round trip in either direction, and can be cut.
//!
//! Bytes are stamped when they arrive and sent when their time has come, so that a delay is no
//! limit of the bandwidth. Order within a direction is kept, as TCP keeps it. A relay that is cut
//! drops all bytes under way and all later ones, and closes nothing: a host that has lost power
//! says nothing either. TCP's window, its losses and its slow start are not there.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that are stamped together.
const PIECE_BYTES: usize = 64 << 10;
/// Time before the end of a delay in which the relay no longer sleeps: a sleep may end this late.
const SPIN: Duration = Duration::from_micros(100);

/// Limit for the last bytes of an ended target, besides their delay.
const DELIVERED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes under way, with the time at which they arrive.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// Running relay. Dropping it closes all connections.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    /// Delay of one direction.
    delay: Duration,
    /// Set once; guards nothing. Sequentially consistent: a piece is dropped or was sent before.
    is_cut: AtomicBool,
    is_closed: AtomicBool,
    /// Threads of connections that have not ended.
    open: AtomicUsize,
    /// Sockets of all connections, to close them.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts a relay to a port of the loopback address.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(target: u16, round_trip: Duration) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target,
            delay: round_trip / 2,
            is_cut: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            sockets: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, &accepting));
        Ok(Relay {
            port,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Returns the port at which the relay listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until an ended target's last bytes have arrived, and their receiver has read them and
    /// closed the connection.
    ///
    /// # Errors
    /// If this takes longer than ten seconds and a round trip.
    pub fn wait_until_delivered(&self) -> io::Result<()> {
        let start = Instant::now();
        while self.shared.open.load(Ordering::SeqCst) > 0 {
            if start.elapsed() > DELIVERED_WITHIN + 2 * self.shared.delay {
                return Err(io::Error::other("the last bytes did not arrive"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Drops all bytes under way and all later ones.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Wakes the acceptor. If it does not answer, its thread ends with the process.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
        let sockets = self.shared.sockets.lock();
        for socket in sockets.expect("no holder panics").drain(..) {
            // Closed by its peer before.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if shared.is_cut.load(Ordering::SeqCst) {
            // A host without power does not answer.
            shared
                .sockets
                .lock()
                .expect("no holder panics")
                .push(client);
            continue;
        }
        // A connection that cannot be relayed is closed, and its client tries again.
        let _ = relay(client, shared);
    }
}

/// Starts the threads of one connection.
fn relay(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target))?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        let mut sockets = shared.sockets.lock().expect("no holder panics");
        sockets.push(socket.try_clone()?);
    }
    let (to_server, to_client) = (server.try_clone()?, client.try_clone()?);
    for (from, to) in [(client, to_server), (server, to_client)] {
        direction(from, to, shared);
    }
    Ok(())
}

/// Starts the threads of one direction.
fn direction(from: TcpStream, to: TcpStream, shared: &Arc<Shared>) {
    let (pieces, due) = mpsc::channel();
    let (delay, shared) = (shared.delay, Arc::clone(shared));
    shared.open.fetch_add(2, Ordering::SeqCst);
    let reading = Arc::clone(&shared);
    thread::spawn(move || {
        read(from, &pieces, delay);
        reading.open.fetch_sub(1, Ordering::SeqCst);
    });
    thread::spawn(move || {
        write(to, &due, &shared);
        shared.open.fetch_sub(1, Ordering::SeqCst);
    });
}

/// Stamps the bytes of a socket until its end.
fn read(mut from: TcpStream, pieces: &Sender<Piece>, delay: Duration) {
    let mut room = vec![0; PIECE_BYTES];
    loop {
        // A broken connection ends as a closed one.
        let length = from.read(&mut room).unwrap_or(0);
        let piece = Piece {
            due: Instant::now() + delay,
            bytes: room[..length].to_vec(),
        };
        // Without a receiver, only the end counts.
        let _ = pieces.send(piece);
        if length == 0 {
            return;
        }
    }
}

/// Sends pieces when they are due; an empty one closes the connection.
fn write(mut to: TcpStream, due: &Receiver<Piece>, shared: &Shared) {
    for piece in due {
        wait_until(piece.due);
        if shared.is_cut.load(Ordering::SeqCst) {
            continue;
        }
        if piece.bytes.is_empty() {
            // Closed by its peer before.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if to.write_all(&piece.bytes).is_err() {
            return;
        }
    }
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > SPIN {
        thread::sleep(left - SPIN);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Round trips through a relay of the same kind, measured while a trial runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    pub p50: Duration,
    pub p99: Duration,
}

impl RoundTrips {
    /// Returns true if they are near enough to the wanted time: the median within 5 % or 0.1 ms,
    /// and the 99th percentile within one and a half times or 0.5 ms.
    pub fn hold(&self, wanted: Duration) -> bool {
        let slack = (wanted / 20).max(Duration::from_micros(100));
        let late = (wanted * 3 / 2).max(wanted + Duration::from_micros(500));
        self.p50 + slack >= wanted && self.p50 <= wanted + slack && self.p99 <= late
    }
}

/// Measures round trips in the background.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Vec<Duration>>>>,
}

impl Probe {
    /// Interval between two round trips.
    const EVERY: Duration = Duration::from_millis(10);

    /// Starts a relay with this round trip to an echo, and measures it.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(round_trip: Duration) -> io::Result<Probe> {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Relay::start(echo.local_addr()?.port(), round_trip)?;
        thread::spawn(move || -> io::Result<()> {
            let (mut socket, _) = echo.accept()?;
            socket.set_nodelay(true)?;
            let mut byte = [0];
            while socket.read(&mut byte)? == 1 {
                socket.write_all(&byte)?;
            }
            Ok(())
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port()))?;
            socket.set_nodelay(true)?;
            let mut times = Vec::new();
            loop {
                let start = Instant::now();
                socket.write_all(&[1])?;
                socket.read_exact(&mut [0])?;
                times.push(start.elapsed());
                // Relaxed: only ends the loop.
                if stopped.load(Ordering::Relaxed) {
                    return Ok(times);
                }
                thread::sleep(Probe::EVERY);
            }
        });
        Ok(Probe {
            stop,
            thread: Some(thread),
        })
    }

    fn stop(&self) {
        // Relaxed: see `start`.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the measurement; there is at least one round trip.
    ///
    /// # Errors
    /// If the relay broke.
    pub fn finish(mut self) -> io::Result<RoundTrips> {
        self.stop();
        let thread = self.thread.take().expect("taken once");
        let panicked = |_| io::Error::other("the probe panicked");
        let mut times = thread.join().map_err(panicked)??;
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        Ok(RoundTrips {
            p50: at(50),
            p99: at(99),
        })
    }
}

/// Ends a probe that is not finished.
impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both ends of a relayed connection.
    fn connected(relay_round_trip: Duration) -> (Relay, TcpStream, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port(), relay_round_trip).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        let (accepted, _) = server.accept().unwrap();
        (relay, client, accepted)
    }

    #[test]
    fn bytes_arrive_in_their_order_and_not_before_their_time() {
        let round_trip = Duration::from_millis(40);
        let (_relay, mut client, mut server) = connected(round_trip);
        let start = Instant::now();
        for byte in 0..100_u8 {
            client.write_all(&[byte]).unwrap();
        }
        let mut found = [0; 100];
        server.read_exact(&mut found).unwrap();
        assert!(start.elapsed() >= round_trip / 2);
        assert!(found.iter().copied().eq(0..100));
    }

    #[test]
    fn a_closed_connection_delivers_what_is_under_way() {
        let (_relay, mut client, mut server) = connected(Duration::from_millis(20));
        client.write_all(b"last words").unwrap();
        drop(client);
        let mut found = String::new();
        server.read_to_string(&mut found).unwrap();
        assert_eq!(found, "last words");
    }

    #[test]
    fn a_cut_drops_what_is_under_way_and_closes_nothing() {
        let (relay, mut client, mut server) = connected(Duration::from_millis(200));
        client.write_all(b"lost").unwrap();
        relay.cut();
        server
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert!(matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ));
        drop(relay);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn round_trips_hold_within_their_limits() {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
        let trips = |p50, p99| RoundTrips {
            p50: ms(p50),
            p99: ms(p99),
        };
        assert!(trips(2.05, 2.9).hold(ms(2.0)));
        assert!(!trips(2.2, 2.9).hold(ms(2.0)));
        assert!(!trips(1.8, 2.0).hold(ms(2.0)));
        assert!(!trips(2.0, 3.5).hold(ms(2.0)));
        assert!(trips(0.05, 0.3).hold(Duration::ZERO));
    }

    #[test]
    fn a_probe_measures_its_relay() {
        let probe = Probe::start(Duration::from_millis(10)).unwrap();
        let found = probe.finish().unwrap();
        assert!(found.p50 >= Duration::from_millis(10) && found.p99 >= found.p50);
    }
}
