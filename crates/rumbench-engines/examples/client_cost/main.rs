//! What the laboratory's client costs on each server, beside a bare client in C that sends the same messages.
//!
//! `cargo run --release -p rumbench-engines --features mariadb,postgresql --example client_cost [-- shared|split [REQUESTS [SERVER]]]`
//!
//! One client runs steps of LinkBench requests. The messages of one step are written down by a relay, and a loop in C
//! (`bare_client.c`) sends them and reads the answers. Both take turns on the same server in the same placement: `shared` has
//! client and server on one core, `split` on two. Ours is choosing and generating a request, writing the message, reading and
//! decoding the answer, and two looks at the clock; theirs is only sending and receiving.

mod relay;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

/// CPU of one client for a step, in microseconds a request.
#[derive(Debug, Clone, Copy)]
struct Cost {
    user: f64,
    system: f64,
}

impl Cost {
    fn total(self) -> f64 {
        self.user + self.system
    }
}

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
    let bare = scratch.path().join("bare_client");
    let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("examples are run by cargo")?;
    let source = Path::new(&package).join("examples/client_cost/bare_client.c");
    let built = Command::new("cc")
        .arg("-O2")
        .arg("-o")
        .args([&bare, &source])
        .status()?;
    if !built.success() {
        return Err("cc cannot build bare_client.c".into());
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "LinkBench, 1 client, {requests} requests a step, {ROUNDS} rounds, placement {placement}; CPU of the client in us/request"
    )?;
    writeln!(
        out,
        "{:<18} {:>10} {:>10} {:>10} {:>10} {:>10} {:>18}",
        "server", "user", "total", "C user", "C total", "total/C", "messages/request"
    )?;
    for name in ["mariadb-innodb", "mariadb-rocksdb", "postgresql"] {
        let entry = rumbench_engines::find(name)?.entry;
        if entry.is_available() && only.as_deref().is_none_or(|only| only == name) {
            let line = server(name, &asked, scratch.path(), &bare)?;
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Measures one server; its line of the table.
fn server(name: &str, asked: &Asked, scratch: &Path, bare: &Path) -> Outcome<String> {
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
    let (mut ours, mut theirs, mut messages) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..ROUNDS {
        ours.push(measured(next(&mut linkbench, &*engine)?, asked.requests)?);
        let output = Command::new(bare)
            .arg(protocol)
            .args([&socket, &file])
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [sent, user, system] = numbers[..] else {
            return Err(format!("bare_client printed {text}").into());
        };
        messages = sent / asked.requests as f64;
        let each = |us: f64| us / asked.requests as f64;
        theirs.push(Cost {
            user: each(user),
            system: each(system),
        });
    }
    drop(linkbench);
    engine.close()?;
    let ratios = ours
        .iter()
        .zip(&theirs)
        .map(|(ours, theirs)| ours.total() / theirs.total());
    Ok(format!(
        "{name:<18} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {messages:>18.2}",
        median(ours.iter().map(|cost| cost.user)),
        median(ours.iter().map(|cost| cost.total())),
        median(theirs.iter().map(|cost| cost.user)),
        median(theirs.iter().map(|cost| cost.total())),
        median(ratios),
    ))
}

/// A private server on its core, which its processes inherit.
fn start(name: &str, dir: &Path, asked: &Asked) -> Outcome<Box<dyn Engine>> {
    place(usize::from(asked.split))?;
    let config = OpenConfig {
        dir: dir.to_path_buf(),
        schema: Schema::LinkBench,
        variant: None,
        cache_bytes: 256 << 20,
        durability: Durability::Buffered,
        clients: 1,
        settings: BTreeMap::new(),
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
