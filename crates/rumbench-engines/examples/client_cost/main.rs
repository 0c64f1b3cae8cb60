//! CPU time of the laboratory's client on each server, compared with minimal clients in C that send
//! the same statements.
//!
//! ```sh
//! cargo run --release -p rumbench-engines --features mariadb,postgresql --example client_cost \
//!     [-- shared|split [CLIENTS [REQUESTS [SERVER]]]]
//! ```
//!
//! The laboratory's clients run steps of LinkBench requests. A relay records the messages of one
//! step, separately for each client. Two C programs replay each recording:
//!
//! - `library_client.c` uses the server's own C library and does nothing else.
//! - `bare_client.c` only sends the recorded bytes and receives the answers, the least that any
//!   client can do.
//!
//! All three take turns on the same server in the same placement: `shared` has client and server on
//! one core, `split` on two. The laboratory's client also chooses and generates each request,
//! writes the message, decodes the answer, and reads the clock twice.

#[path = "../clients/mod.rs"]
mod clients;
mod loops;
mod relay;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clients::{Cost, Outcome, median, next, perform, place, run_folder};
use loops::Loops;
use relay::{IsWhole, Relay};
use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Schema};
use rumbench_core::linkbench::{Config, Hooks, LinkBench};

/// Rounds on each server; the output shows their medians.
const ROUNDS: usize = 7;

struct Asked {
    split: bool,
    clients: usize,
    /// Requests of a step, over all clients.
    requests: u64,
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let placement = arguments.next().unwrap_or("shared".to_string());
    let split = match placement.as_str() {
        "shared" => false,
        "split" => true,
        other => return Err(format!("shared or split, not {other}").into()),
    };
    let clients = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let requests = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let only = arguments.next();
    let asked = Asked {
        split,
        clients,
        requests,
    };
    let scratch = tempfile::tempdir()?;
    let loops = Loops::build(scratch.path())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "LinkBench, {clients} clients, {requests} requests a step, {ROUNDS} rounds, placement {placement}; CPU of the clients in us/request"
    )?;
    writeln!(
        out,
        "{:<18} {:>8} {:>8} {:>12} {:>13} {:>14} {:>10} {:>11} {:>12} {:>18}",
        "server",
        "user",
        "total",
        "library user",
        "library total",
        "total/library",
        "bytes user",
        "bytes total",
        "total/bytes",
        "messages/request"
    )?;
    for name in [
        "mariadb-alluvium",
        "mariadb-innodb",
        "mariadb-rocksdb",
        "postgresql",
    ] {
        let entry = rumbench_engines::find(name)?.entry;
        if entry.is_available() && only.as_deref().is_none_or(|only| only == name) {
            let line = server(name, &asked, scratch.path(), &loops)?;
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Measures one server and returns its line of the table.
fn server(name: &str, asked: &Asked, scratch: &Path, loops: &Loops) -> Outcome<String> {
    let dir = scratch.join(name);
    std::fs::create_dir(&dir)?;
    let engine = start(name, &dir, asked)?;
    place(0)?;
    let (protocol, socket, is_whole): (&str, &str, IsWhole) = match name {
        "postgresql" => ("postgresql", ".s.PGSQL.5432", relay::is_whole_of_postgresql),
        _ => ("mariadb", "socket", relay::is_whole_of_mariadb),
    };
    let socket = run_folder(&*engine)?.join(socket);
    let mut linkbench = linkbench(asked)?;
    for _ in 0..2 {
        perform(next(&mut linkbench, &*engine)?, is_of_replay)?;
    }
    // Fills caches, including the server's statement cache.
    perform(next(&mut linkbench, &*engine)?, is_of_replay)?;
    let relay = Relay::install(&socket, is_whole, asked.clients)?;
    perform(next(&mut linkbench, &*engine)?, is_of_replay)?;
    let recordings = relay.finish()?;
    let loops = loops.over(socket, scratch, &recordings)?;
    let (mut ours, mut library, mut bytes, mut messages) =
        (Vec::new(), Vec::new(), Vec::new(), 0.0);
    for _ in 0..ROUNDS {
        let (_, cost) = perform(next(&mut linkbench, &*engine)?, is_of_replay)?;
        ours.push(cost.per(asked.requests));
        let (sent, cost) = loops.library(protocol)?;
        library.push(cost.per(asked.requests));
        messages = sent / asked.requests as f64;
        bytes.push(loops.bytes(protocol)?.1.per(asked.requests));
    }
    drop(linkbench);
    engine.close()?;
    Ok(format!(
        "{name:<18} {:>8.2} {:>8.2} {:>12.2} {:>13.2} {:>14.2} {:>10.2} {:>11.2} {:>12.2} {messages:>18.2}",
        median(ours.iter().map(|cost| cost.user)),
        median(ours.iter().map(|cost| cost.total())),
        median(library.iter().map(|cost| cost.user)),
        median(library.iter().map(|cost| cost.total())),
        ratio(&ours, &library),
        median(bytes.iter().map(|cost| cost.user)),
        median(bytes.iter().map(|cost| cost.total())),
        ratio(&ours, &bytes),
    ))
}

/// Returns whether a replay explains this error. A replayed recording deletes links and adjusts
/// counts a second time, so a count may be lower than its number of links.
fn is_of_replay(error: &EngineError) -> bool {
    matches!(error, EngineError::Wrong(_))
}

/// Returns the median of the per-round ratios.
fn ratio(ours: &[Cost], theirs: &[Cost]) -> f64 {
    let pairs = ours.iter().zip(theirs);
    median(pairs.map(|(ours, theirs)| ours.total() / theirs.total()))
}

/// Starts a private server. Its processes inherit its core.
fn start(name: &str, dir: &Path, asked: &Asked) -> Outcome<Box<dyn Engine>> {
    place(usize::from(asked.split))?;
    let mut settings = BTreeMap::new();
    if name != "postgresql" {
        // A recording names prepared statements by number. The server numbers them from 1 in each
        // connection, unless the connection gets a cached thread of an earlier one.
        let file = dir.with_extension("cnf");
        std::fs::write(&file, "[mariadbd]\nthread_cache_size=0\n")?;
        settings.insert("options_file".to_string(), file.display().to_string());
    }
    let config = OpenConfig {
        dir: dir.to_path_buf(),
        schema: Schema::LinkBench,
        variant: None,
        cache_bytes: 256 << 20,
        durability: Durability::Buffered,
        clients: asked.clients,
        settings,
    };
    Ok(rumbench_engines::find(name)?.entry.open(&config)?)
}

fn linkbench(asked: &Asked) -> Outcome<LinkBench> {
    let pairs = [
        ("nodes", "20000".to_string()),
        // Lists as long as in a large graph; without a limit the longest list would dominate.
        ("nlinks_max", "2000".to_string()),
        ("steps", (ROUNDS + 2).to_string()),
        ("operations", asked.requests.to_string()),
        ("clients", asked.clients.to_string()),
    ];
    let hooks = Hooks {
        now_ms: || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_millis() as u64)
        },
        backoff: |_| (),
    };
    Ok(LinkBench::new(Config::from_pairs(pairs)?, hooks))
}
