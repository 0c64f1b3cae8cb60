//! Throughput of 1 to 64 clients, with synced and with buffered commits: it should rise to a peak
//! and stay there.
//!
//! ```text
//! cargo run --release -p alluvium --example clients -- DIR
//! ```
//!
//! A transaction resembles LinkBench's: it reads two rows, updates one under its lock, and writes
//! another. Each round measures every number of clients once, and every other round goes in falling
//! order. Each measurement runs after a warm-up, on a settled database that does not grow. The
//! output is the median of the rounds and the result of each round. The last line of each
//! durability is the largest drop below the peak.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::{
    Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options, WriteBatch,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: clients [--durability sync|buffered] [--clients N,N,...] [--rounds N] [--seconds N] [--warm-up-ms N] [--keys N] [--memory-mib N] DIR";
const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const VALUE: [u8; 120] = [7; 120];
/// Link rows for each key: writes cycle through them, so that the database stops growing.
const LINKS: u64 = 4;
const DURABILITIES: [(&str, Durability); 2] = [
    ("sync", Durability::Sync),
    ("buffered", Durability::Buffered),
];

struct Arguments {
    durabilities: Vec<(&'static str, Durability)>,
    clients: Vec<usize>,
    rounds: usize,
    measured: Duration,
    warm_up: Duration,
    keys: u64,
    memory_mib: usize,
    dir: PathBuf,
}

/// State shared by all clients of one database.
struct Ground {
    db: Database,
    nodes: Keyspace,
    links: Keyspace,
    keys: u64,
    /// Number of the next link row to write.
    next_link: AtomicU64,
}

fn main() -> Result<(), Failure> {
    let arguments = parse(std::env::args().skip(1))?;
    println!("durability,clients,transactions_per_s,rounds");
    for &(name, durability) in &arguments.durabilities {
        let ground = prepare(&arguments, name, durability)?;
        let mut rates = vec![Vec::new(); arguments.clients.len()];
        for round in 0..arguments.rounds {
            let mut order: Vec<usize> = (0..rates.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                rates[at].push(measure(&ground, arguments.clients[at], &arguments)?);
            }
        }
        report(name, &arguments.clients, &mut rates);
        ground.db.close()?;
    }
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut found = Arguments {
        durabilities: DURABILITIES.to_vec(),
        clients: CLIENTS.to_vec(),
        rounds: 4,
        measured: Duration::from_secs(3),
        warm_up: Duration::from_millis(1000),
        keys: 500_000,
        memory_mib: 256,
        dir: PathBuf::new(),
    };
    while let Some(word) = words.next() {
        if word == "--durability" {
            let name = words.next().ok_or(USAGE)?;
            found.durabilities.retain(|(known, _)| *known == name);
            continue;
        }
        if word == "--clients" {
            let numbers = words.next().ok_or(USAGE)?;
            let numbers = numbers.split(',').map(str::parse);
            found.clients = numbers.collect::<Result<_, _>>()?;
            continue;
        }
        let mut number = || -> Result<u64, Failure> { Ok(words.next().ok_or(USAGE)?.parse()?) };
        match &word[..] {
            "--rounds" => found.rounds = number()?.max(1) as usize,
            "--seconds" => found.measured = Duration::from_secs(number()?),
            "--warm-up-ms" => found.warm_up = Duration::from_millis(number()?),
            "--keys" => found.keys = number()?.max(2),
            "--memory-mib" => found.memory_mib = number()? as usize,
            option if option.starts_with("--") => return Err(USAGE.into()),
            dir => found.dir = dir.into(),
        }
    }
    if found.dir.as_os_str().is_empty() || found.durabilities.is_empty() {
        Err(USAGE.into())
    } else {
        Ok(found)
    }
}

/// Returns a loaded and settled database.
fn prepare(arguments: &Arguments, name: &str, durability: Durability) -> Result<Ground, Failure> {
    let options = Options {
        memory_bytes: arguments.memory_mib << 20,
        durability,
        ..Options::default()
    };
    std::fs::create_dir_all(&arguments.dir)?;
    let db = Database::open(arguments.dir.join(name), options)?;
    let nodes = db.keyspace("nodes", KeyspaceOptions::default())?;
    let links = db.keyspace("links", KeyspaceOptions::default())?;
    let mut at = 0;
    while at < arguments.keys {
        let mut batch = WriteBatch::new();
        let end = arguments.keys.min(at + 500);
        (at..end).try_for_each(|n| batch.put(&nodes, &key(n), &VALUE))?;
        db.write(&batch)?;
        at = end;
    }
    db.settle()?;
    Ok(Ground {
        db,
        nodes,
        links,
        keys: arguments.keys,
        next_link: AtomicU64::new(0),
    })
}

/// Returns the transactions per second of this many clients together.
fn measure(ground: &Ground, clients: usize, arguments: &Arguments) -> Result<f64, Failure> {
    ground.db.settle()?;
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (counting, stop) = (&counting, &stop);
        let threads: Vec<_> = (0..clients)
            .map(|n| scope.spawn(move || client(ground, n as u64, counting, stop)))
            .collect();
        std::thread::sleep(arguments.warm_up);
        counting.store(true, Ordering::Relaxed);
        let began = Instant::now();
        std::thread::sleep(arguments.measured);
        stop.store(true, Ordering::Relaxed);
        let took = began.elapsed();
        let mut done = 0;
        for thread in threads {
            done += thread.join().map_err(|_| "a client panicked")??;
        }
        Ok(done as f64 / took.as_secs_f64())
    })
}

/// Runs transactions until told to stop. Returns the number committed while `counting` is set.
fn client(
    ground: &Ground,
    n: u64,
    counting: &AtomicBool,
    stop: &AtomicBool,
) -> alluvium::Result<u64> {
    let mut state = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut random = move || {
        // xorshift64*
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    };
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let rows = [random(), random(), random()].map(|n| n % ground.keys);
        match transact(ground, rows) {
            Ok(()) => done += u64::from(counting.load(Ordering::Relaxed)),
            // Another client is updating the row: the transaction is neither done nor counted.
            Err(Error::Deadlock { .. } | Error::LockTimeout { .. } | Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn transact(ground: &Ground, [updated, first, second]: [u64; 3]) -> alluvium::Result<()> {
    let txn = ground.db.begin(Isolation::ReadCommitted)?;
    txn.get(&ground.nodes, &key(first))?;
    txn.get(&ground.nodes, &key(second))?;
    let row = txn.get_for_update(&ground.nodes, &key(updated))?;
    let mut value = row.map_or_else(|| VALUE.to_vec(), |row| row.to_vec());
    value[0] = value[0].wrapping_add(1);
    txn.put(&ground.nodes, &key(updated), &value)?;
    // Relaxed: the numbers only need to differ.
    let link = ground.next_link.fetch_add(1, Ordering::Relaxed) % LINKS;
    let link_key = [key(updated), key(link)].concat();
    txn.put(&ground.links, &link_key, &VALUE[..40])?;
    txn.commit()
}

/// Returns a key; the keys are spread over the whole range.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn report(name: &str, clients: &[usize], rates: &mut [Vec<f64>]) {
    let mut medians = Vec::new();
    for (clients, rates) in clients.iter().zip(rates) {
        let rounds: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        rates.sort_by(f64::total_cmp);
        let (below, above) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        let median = f64::midpoint(below, above);
        println!("{name},{clients},{median:.0},{}", rounds.join(" "));
        medians.push(median);
    }
    let peak = (0..medians.len()).max_by(|&a, &b| medians[a].total_cmp(&medians[b]));
    let peak = peak.unwrap_or(0);
    let lowest = medians[peak..].iter().copied().fold(f64::MAX, f64::min);
    println!(
        "# {name}: peak {:.0}/s at {} clients, largest drop beyond it {:.1} %",
        medians[peak],
        clients[peak],
        100.0 * (1.0 - lowest / medians[peak].max(1.0)),
    );
}
