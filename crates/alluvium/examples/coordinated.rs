//! Two-phase commits under a coordinator with a log of its own, as a server with a binary log makes
//! them: how long each step takes.
//!
//! ```text
//! cargo run --release -p alluvium --example coordinated -- DIR
//! ```
//!
//! A client writes three rows and prepares them. The first client that comes to the coordinator
//! writes and syncs the coordinator's log for all that wait there, and decides for each of them, in
//! order. The columns are the transactions per second of all clients, the syncs of the engine's log
//! for each transaction, and the median and the 99th percentile of the steps in microseconds: the
//! prepare, the wait for the coordinator without the decision, and the decision.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alluvium::{
    Database, Durability, Isolation, Keyspace, KeyspaceOptions, Options, PreparedTransaction,
    TransactionOptions,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: coordinated [--clients N,N,...] [--rounds N] [--seconds N] DIR";
const CLIENTS: [usize; 4] = [1, 4, 16, 64];
/// Bytes of a transaction in the coordinator's log.
const EVENT: [u8; 500] = [7; 500];

struct Arguments {
    clients: Vec<usize>,
    rounds: usize,
    measured: Duration,
    dir: PathBuf,
}

/// Durations of the steps of one transaction.
#[derive(Clone, Copy)]
struct Steps {
    prepare: Duration,
    coordinate: Duration,
    decide: Duration,
}

/// Transaction after its decision, and the time that the decision took.
type Decided = alluvium::Result<(PreparedTransaction, Duration)>;

/// Transaction that waits for its decision, and where to send it then.
struct Waiting {
    prepared: PreparedTransaction,
    decided: Sender<Decided>,
}

/// Log of the coordinator.
struct Coordinator {
    /// Guards the transactions that wait for the next leader.
    waiting: Mutex<Vec<Waiting>>,
    /// Guards the file. Held by the leader of a group until its decisions are made.
    log: Mutex<File>,
}

fn main() -> Result<(), Failure> {
    let arguments = parse(std::env::args().skip(1))?;
    std::fs::create_dir_all(&arguments.dir)?;
    println!(
        "clients,round,transactions_per_s,syncs,prepare_p50,prepare_p99,coordinate_p50,coordinate_p99,decide_p50,decide_p99"
    );
    for round in 0..arguments.rounds {
        for &clients in &arguments.clients {
            let name = format!("{clients}-{round}");
            measure(
                &arguments.dir.join(&name),
                clients,
                round,
                arguments.measured,
            )?;
        }
    }
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut found = Arguments {
        clients: CLIENTS.to_vec(),
        rounds: 3,
        measured: Duration::from_secs(4),
        dir: PathBuf::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        match &word[..] {
            "--clients" => {
                let numbers = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, _>>();
                found.clients = numbers?;
            }
            "--rounds" => found.rounds = value()?.parse()?,
            "--seconds" => found.measured = Duration::from_secs(value()?.parse()?),
            option if option.starts_with("--") => return Err(USAGE.into()),
            dir => found.dir = dir.into(),
        }
    }
    if found.dir.as_os_str().is_empty() {
        return Err(USAGE.into());
    }
    Ok(found)
}

/// Measures on a new database in the folder, removes it, and prints a line.
fn measure(dir: &Path, clients: usize, round: usize, measured: Duration) -> Result<(), Failure> {
    let db = Database::open(dir, Options::default())?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let coordinator = Coordinator {
        waiting: Mutex::default(),
        log: Mutex::new(File::create(dir.with_extension("log"))?),
    };
    let syncs = || -> alluvium::Result<u64> { Ok(db.stats()?.sync_us.total()) };
    let before = syncs()?;
    let began = Instant::now();
    let steps = std::thread::scope(|scope| {
        let (db, rows, coordinator) = (&db, &rows, &coordinator);
        let threads: Vec<_> = (0..clients)
            .map(|n| scope.spawn(move || client(db, rows, coordinator, n, began + measured)))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a client panicked")??);
        }
        Ok::<Vec<Steps>, Failure>(all)
    })?;
    let (took, syncs) = (began.elapsed(), syncs()? - before);
    db.close()?;
    drop((rows, db));
    std::fs::remove_dir_all(dir)?;
    std::fs::remove_file(dir.with_extension("log"))?;
    print(clients, round, took, syncs, &steps);
    Ok(())
}

fn client(
    db: &Database,
    rows: &Keyspace,
    coordinator: &Coordinator,
    number: usize,
    end: Instant,
) -> Result<Vec<Steps>, Failure> {
    let mut all = Vec::new();
    while Instant::now() < end {
        let n = all.len();
        let txn = db.begin_with(TransactionOptions {
            isolation: Isolation::ReadCommitted,
            durability: Some(Durability::Buffered),
            ..TransactionOptions::default()
        })?;
        for row in 0..3 {
            let key = format!("{row}-{number:02}-{:06}", n % 100_000);
            txn.put(rows, key.as_bytes(), &[1; 100])?;
        }
        let began = Instant::now();
        let prepared = txn.prepare(format!("{number}-{n}").as_bytes())?;
        let prepare = began.elapsed();
        let decide = coordinator.commit(prepared)?;
        all.push(Steps {
            prepare,
            coordinate: began.elapsed().saturating_sub(prepare + decide),
            decide,
        });
    }
    Ok(all)
}

impl Coordinator {
    /// Writes a prepared transaction into the log, with all others that wait, and commits it.
    /// Returns the time that its decision took.
    fn commit(&self, prepared: PreparedTransaction) -> Result<Duration, Failure> {
        let (decided, answer) = channel();
        let leads = {
            let mut waiting = lock(&self.waiting);
            waiting.push(Waiting { prepared, decided });
            waiting.len() == 1
        };
        if leads {
            let mut log = lock(&self.log);
            let group = std::mem::take(&mut *lock(&self.waiting));
            log.write_all(&EVENT.repeat(group.len()))?;
            log.sync_data()?;
            for Waiting {
                mut prepared,
                decided,
            } in group
            {
                let began = Instant::now();
                let result = prepared.commit_ordered();
                decided.send(result.map(|()| (prepared, began.elapsed())))?;
            }
        }
        let (prepared, took) = answer.recv()??;
        prepared.commit()?;
        Ok(took)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print(clients: usize, round: usize, took: Duration, syncs: u64, steps: &[Steps]) {
    let percentiles = |step: fn(&Steps) -> Duration| {
        let mut all: Vec<Duration> = steps.iter().map(step).collect();
        all.sort_unstable();
        let at = |part: f64| {
            let place = ((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1));
            all.get(place).map_or(0, Duration::as_micros)
        };
        format!("{},{}", at(0.5), at(0.99))
    };
    println!(
        "{clients},{round},{:.0},{:.3},{},{},{}",
        steps.len() as f64 / took.as_secs_f64(),
        syncs as f64 / steps.len().max(1) as f64,
        percentiles(|steps| steps.prepare),
        percentiles(|steps| steps.coordinate),
        percentiles(|steps| steps.decide),
    );
}
