//! Writers and readers of a round. Each has a thread and a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Result, anyhow};
use rumbench_core::engine::EngineError;
use rumbench_engines::replication::{Client, Node, TABLE};

/// Commits of one writer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    pub acknowledged: u64,
    pub tried: u64,
}

/// First error of a client.
#[derive(Debug)]
pub struct Failure {
    pub at: Instant,
    pub error: EngineError,
}

impl Failure {
    fn now(error: EngineError) -> Failure {
        Failure {
            at: Instant::now(),
            error,
        }
    }
}

/// Inserts the numbers 1, 2, 3 and so on until one is not acknowledged.
fn write(client: &mut dyn Client, writer: usize, shared: &Shared) -> (Written, Option<Failure>) {
    let mut written = Written::default();
    // Relaxed: only ends the loop.
    while !shared.stop.load(Ordering::Relaxed) {
        written.tried += 1;
        if let Err(error) = client.execute(&insert(writer, written.tried)) {
            return (written, Some(Failure::now(error)));
        }
        written.acknowledged = written.tried;
        // Relaxed: a count of its own.
        shared.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    (written, None)
}

/// Returns the statement of one commit.
pub fn insert(writer: usize, number: u64) -> String {
    format!("INSERT INTO {TABLE} VALUES ({writer}, {number})")
}

/// Change of what a reader sees: a greater number.
#[derive(Debug, Clone, Copy)]
struct Change {
    number: u64,
    /// Begin of the last read that gave less.
    last_less: Instant,
    /// End of the first read that gave this number.
    first_seen: Instant,
}

/// Rows of one writer, as a reader sees them.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    changes: Vec<Change>,
    number: u64,
    last_read: Option<Instant>,
}

impl Sight {
    /// Returns the greatest number seen.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn note(&mut self, number: u64, start: Instant, end: Instant) {
        if number > self.number {
            let last_less = self.last_read.unwrap_or(start);
            self.changes.push(Change {
                number,
                last_less,
                first_seen: end,
            });
            self.number = number;
        }
        self.last_read = Some(start);
    }

    /// Returns the begin of the last read that did not give this number.
    fn last_less(&self, number: u64) -> Option<Instant> {
        let change = self.changes.iter().find(|change| change.number >= number);
        change.map_or(self.last_read, |change| Some(change.last_less))
    }

    /// Counts the numbers that this reader, of a replica, has provably seen before they were
    /// visible on the primary: a read there that began later gave less.
    pub fn seen_before(&self, primary: &Sight) -> u64 {
        let before = |change: &&Change| {
            let last_less = primary.last_less(change.number);
            last_less.is_some_and(|begin| begin > change.first_seen)
        };
        self.changes.iter().filter(before).count() as u64
    }
}

/// Reads the greatest number of each writer, one after the other, until the server is gone.
fn read(
    client: &mut dyn Client,
    writers: usize,
    stop: &AtomicBool,
) -> (Vec<Sight>, Option<Failure>) {
    let mut sights = vec![Sight::default(); writers];
    loop {
        for (writer, sight) in sights.iter_mut().enumerate() {
            // Relaxed: only ends the loop.
            if stop.load(Ordering::Relaxed) {
                return (sights, None);
            }
            let start = Instant::now();
            let query = format!("SELECT MAX(number) FROM {TABLE} WHERE writer = {writer}");
            let rows = match client.execute(&query) {
                Ok(rows) => rows,
                Err(error) => return (sights, Some(Failure::now(error))),
            };
            let value = rows.first().and_then(|row| row[0].parse().ok());
            sight.note(value.unwrap_or(0), start, Instant::now());
        }
    }
}

/// Signals between the clients and the round.
#[derive(Default)]
struct Shared {
    /// Set once; guards nothing.
    stop: AtomicBool,
    /// Commits of all writers.
    acknowledged: AtomicU64,
}

/// Running clients.
pub struct Clients {
    shared: Arc<Shared>,
    writers: Vec<Handle<Written>>,
    primary: Handle<Vec<Sight>>,
    replica: Handle<Vec<Sight>>,
}

/// Thread of a client.
type Handle<T> = JoinHandle<(T, Option<Failure>)>;

/// Reports of all clients of a round.
pub struct Told {
    pub written: Vec<Written>,
    /// By writer.
    pub on_primary: Vec<Sight>,
    pub on_replica: Vec<Sight>,
    /// Errors, most of them by the loss of the primary.
    pub failures: Vec<Failure>,
}

impl Clients {
    /// Connects all clients and starts them.
    ///
    /// # Errors
    /// If a server refuses a connection.
    pub fn start(
        writers: usize,
        primary: &dyn Node,
        replica: &dyn Node,
    ) -> Result<Clients, EngineError> {
        let connections: Vec<_> = (0..writers)
            .map(|_| primary.connect())
            .collect::<Result<_, _>>()?;
        let (mut here, mut there) = (primary.connect()?, replica.connect()?);
        let shared = Arc::new(Shared::default());
        let start_writer = |(writer, mut client): (usize, Box<dyn Client>)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(client.as_mut(), writer, &shared))
        };
        Ok(Clients {
            writers: connections
                .into_iter()
                .enumerate()
                .map(start_writer)
                .collect(),
            primary: {
                let shared = Arc::clone(&shared);
                thread::spawn(move || read(here.as_mut(), writers, &shared.stop))
            },
            replica: {
                let shared = Arc::clone(&shared);
                thread::spawn(move || read(there.as_mut(), writers, &shared.stop))
            },
            shared,
        })
    }

    /// Returns the number of commits that are acknowledged by now.
    pub fn acknowledged(&self) -> u64 {
        // Relaxed: see `write`.
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Asks the clients to end. Those of a server that is gone end by themselves.
    pub fn stop(&self) {
        // Relaxed: see `write`.
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the clients.
    ///
    /// # Errors
    /// If a client panicked.
    pub fn finish(self) -> Result<Told> {
        self.stop();
        let mut failures = Vec::new();
        let written = self.writers.into_iter();
        let written = written
            .map(|writer| joined(writer, &mut failures))
            .collect::<Result<_>>()?;
        Ok(Told {
            written,
            on_primary: joined(self.primary, &mut failures)?,
            on_replica: joined(self.replica, &mut failures)?,
            failures,
        })
    }
}

fn joined<T>(client: Handle<T>, failures: &mut Vec<Failure>) -> Result<T> {
    let panicked = |_| anyhow!("a client panicked");
    let (told, failure) = client.join().map_err(panicked)?;
    failures.extend(failure);
    Ok(told)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Notes reads, each a number, a begin and an end in milliseconds.
    fn sight(base: Instant, reads: &[(u64, u64, u64)]) -> Sight {
        let at = |ms| base + Duration::from_millis(ms);
        let mut sight = Sight::default();
        for &(number, start, end) in reads {
            sight.note(number, at(start), at(end));
        }
        sight
    }

    #[test]
    fn only_a_later_read_of_less_proves_that_the_replica_was_first() {
        let base = Instant::now();
        let replica = sight(base, &[(0, 0, 1), (3, 10, 12)]);
        let primary = |reads: &[(u64, u64, u64)]| replica.seen_before(&sight(base, reads));
        assert_eq!(primary(&[(2, 13, 14), (3, 15, 16)]), 1);
        // A read that began before the replica's had ended proves nothing.
        assert_eq!(primary(&[(2, 11, 14), (3, 15, 16)]), 0);
        assert_eq!(primary(&[(3, 5, 6)]), 0);
        // The primary was lost before it showed the commit.
        assert_eq!(primary(&[(2, 13, 14)]), 1);
        assert_eq!(primary(&[]), 0);
    }

    #[test]
    fn the_greatest_number_stays() {
        let base = Instant::now();
        assert_eq!(sight(base, &[(1, 0, 1), (4, 2, 3), (4, 4, 5)]).number(), 4);
    }
}
