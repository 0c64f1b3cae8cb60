//! What the laboratory's client costs on each server, beside bare clients in C that send the same statements.
//!
//! `cargo run --release -p rumbench-engines --features mariadb,postgresql --example client_cost [-- shared|split [CLIENTS [REQUESTS [SERVER]]]]`
//!
//! Clients run steps of LinkBench requests. A relay writes down the messages of one step, those of each client by themselves,
//! and as many loops in C of two kinds run them again: `library_client.c` through the server's own C library, as a program that
//! does nothing else would, and `bare_client.c` as bytes that are sent and answers that are received, which is the least that any
//! client could do. They take turns on the same server in the same placement: `shared` has client and server on one core, `split`
//! on two. Ours is choosing and generating a request, writing the message, reading and decoding the answer, and two looks at the
//! clock.

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

/// Comparisons of both clients on each server; their medians are shown.
const ROUNDS: usize = 7;

struct Asked {
    split: bool,
    clients: usize,
    /// Of a step, over all clients.
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
    for name in ["mariadb-innodb", "mariadb-rocksdb", "postgresql"] {
        let entry = rumbench_engines::find(name)?.entry;
        if entry.is_available() && only.as_deref().is_none_or(|only| only == name) {
            let line = server(name, &asked, scratch.path(), &loops)?;
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Measures one server; its line of the table.
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
    // Fills caches, the server's of statements too.
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

/// A recording that runs again deletes and counts what another link was counted for: a count may then be too low for its links.
fn is_of_replay(error: &EngineError) -> bool {
    matches!(error, EngineError::Wrong(_))
}

/// The median of the ratios of the same rounds.
fn ratio(ours: &[Cost], theirs: &[Cost]) -> f64 {
    let pairs = ours.iter().zip(theirs);
    median(pairs.map(|(ours, theirs)| ours.total() / theirs.total()))
}

/// A private server on its core, which its processes inherit.
fn start(name: &str, dir: &Path, asked: &Asked) -> Outcome<Box<dyn Engine>> {
    place(usize::from(asked.split))?;
    let mut settings = BTreeMap::new();
    if name != "postgresql" {
        // The server numbers the statements of a connection from 1, unless it gives it a thread that had another one before.
        // A recording names them by number.
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
        // Lists as of a large graph: its longest would be all that is measured.
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
