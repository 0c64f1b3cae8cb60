//! What the laboratory's client costs on each server, beside bare clients in C that send the same statements.
//!
//! `cargo run --release -p rumbench-engines --features mariadb,postgresql --example client_cost [-- shared|split [REQUESTS [SERVER]]]`
//!
//! One client runs steps of LinkBench requests. The messages of one step are written down by a relay, and two loops in C run
//! them again: `library_client.c` through the server's own C library, as a program that does nothing else would, and
//! `bare_client.c` as bytes that are sent and answers that are received, which is the least that any client could do. They take
//! turns on the same server in the same placement: `shared` has client and server on one core, `split` on two. Ours is choosing
//! and generating a request, writing the message, reading and decoding the answer, and two looks at the clock.

mod loops;
mod relay;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use loops::{Cost, Loops};
use relay::{IsWhole, Relay};
use rumbench_core::engine::{Durability, Engine, OpenConfig, Schema};
use rumbench_core::linkbench::{Config, Hooks, LinkBench};
use rumbench_core::trial::{Phase, PhaseEnd, Step, Workload};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Comparisons of both clients on each server; their medians are shown.
const ROUNDS: usize = 7;
/// Ticks of /proc in a second.
const TICKS: f64 = 100.0;

struct Asked {
    split: bool,
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
    let requests = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let only = arguments.next();
    let asked = Asked { split, requests };
    let scratch = tempfile::tempdir()?;
    let loops = Loops::build(scratch.path())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "LinkBench, 1 client, {requests} requests a step, {ROUNDS} rounds, placement {placement}; CPU of the client in us/request"
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
        perform(next(&mut linkbench, &*engine)?)?;
    }
    // Fills caches, the server's of statements too.
    perform(next(&mut linkbench, &*engine)?)?;
    let relay = Relay::install(&socket, is_whole)?;
    perform(next(&mut linkbench, &*engine)?)?;
    let recording = relay.finish()?;
    let file = scratch.join("recording");
    std::fs::write(&file, recording)?;
    let (mut ours, mut library, mut bytes, mut messages) =
        (Vec::new(), Vec::new(), Vec::new(), 0.0);
    for _ in 0..ROUNDS {
        ours.push(measured(next(&mut linkbench, &*engine)?, asked.requests)?);
        let (sent, cost) = loops::run(loops.library(protocol), &socket, &file, asked.requests)?;
        library.push(cost);
        messages = sent / asked.requests as f64;
        bytes.push(loops::run(loops.bytes(protocol), &socket, &file, asked.requests)?.1);
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
        clients: 1,
        settings,
    };
    Ok(rumbench_engines::find(name)?.entry.open(&config)?)
}

/// Binds this thread, and what it starts from now on, to one core.
fn place(core: usize) -> Outcome {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

fn run_folder(engine: &dyn Engine) -> Outcome<PathBuf> {
    let pid = engine
        .server_process()
        .ok_or("a server without a process")?
        .to_string();
    for entry in std::fs::read_dir(std::env::temp_dir())? {
        let folder = entry?.path();
        let note = std::fs::read_to_string(folder.join("server")).unwrap_or_default();
        if note.split(' ').next() == Some(&pid) {
            return Ok(folder);
        }
    }
    Err("the server's folder is gone".into())
}

fn linkbench(asked: &Asked) -> Outcome<LinkBench> {
    let pairs = [
        ("nodes", "20000".to_string()),
        // Lists as of a large graph: its longest would be all that is measured.
        ("nlinks_max", "2000".to_string()),
        ("steps", (ROUNDS + 2).to_string()),
        ("operations", asked.requests.to_string()),
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

fn next(linkbench: &mut LinkBench, engine: &dyn Engine) -> Outcome<Phase> {
    match linkbench.next_step(engine)? {
        Some(Step::Phase(phase)) => Ok(phase),
        _ => Err("LinkBench has no further phase".into()),
    }
}

/// Has each client of a phase do its part.
fn perform(mut phase: Phase) -> Outcome {
    let most = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        _ => u64::MAX,
    };
    for client in &mut phase.clients {
        let mut done = 0;
        while done < most && client.prepare().is_some() {
            let start = Instant::now();
            client.execute()?;
            black_box(start.elapsed());
            done += 1;
        }
    }
    Ok(())
}

/// As [`perform`]; what this thread used for it.
fn measured(phase: Phase, requests: u64) -> Outcome<Cost> {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
    };
    let (before, ticks) = (cpu(), ticks()?);
    perform(phase)?;
    let (all, after) = (cpu() - before, self::ticks()?);
    let (user, system) = (after.0 - ticks.0, after.1 - ticks.1);
    let share = user / (user + system).max(1.0 / TICKS);
    let each = all / requests as f64;
    Ok(Cost {
        user: each * share,
        system: each * (1.0 - share),
    })
}

/// User and system time of this thread in ticks, which the kernel scales from the exact run time.
fn ticks() -> Outcome<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/thread-self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut field =
        || -> Outcome<f64> { Ok(fields.next().ok_or("a short line in /proc")?.parse()?) };
    Ok((field()?, field()?))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
