//! Runs very many seeds unattended in several processes, each on its own core, and collects the
//! failures in one file.
//!
//! Only one thread of a simulation runs at a time, so a process cannot use more than one core. On a
//! single core a thread switch takes a third of the time it takes across cores. A process runs a
//! *leg* of some hundred seeds and ends. State left by a failed run thus disappears with the
//! process, and a process that dies or hangs loses only the rest of its leg. On its output it
//! reports, a line each, the seed that it begins, failed seeds with their messages, and finally all
//! counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use alluvium_sim::plan::Plan;
use alluvium_sim::run::run;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::Args;

/// Seeds of a leg, for small plans and for long ones.
const LEG: (u64, u64) = (1_000, 40);
/// Time after which a seed counts as hung; the slowest takes some seconds.
const HANGS_AFTER: Duration = Duration::from_secs(300);
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Message from a process.
enum Word {
    Begins(u64),
    Failed(u64, String),
    Count(String, u64),
    Ended,
}

/// Process of the fleet.
struct Ship {
    core: u64,
    child: Child,
    /// Seed that it is running.
    at: Option<u64>,
    heard: Instant,
    /// Remaining seeds of its leg.
    leg: std::ops::Range<u64>,
}

/// Runs one leg in this process.
pub fn serve(args: &Args, core: u64) -> bool {
    pin(core);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in args.first()..args.first() + args.count() {
        println!("begins {seed}");
        let outcome = run(&Plan::new(seed, args.long));
        if let Some(failure) = &outcome.failure {
            println!("failed {seed} {}", failure.replace('\n', " | "));
        }
        for (what, times) in &outcome.counts {
            *counts.entry(what).or_default() += times;
        }
        *counts.entry("steps").or_default() += outcome.report.steps;
        *counts.entry("seeds").or_default() += 1;
    }
    for (what, times) in counts {
        println!("count {times} {what}");
    }
    true
}

/// Pins the process to the n-th core that it may use. Without pinning it is slower but just as
/// correct.
fn pin(core: u64) {
    let Ok(mine) = sched_getaffinity(None) else {
        return;
    };
    let mine: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| mine.is_set(*cpu))
        .collect();
    if let Some(cpu) = mine.get(core as usize % mine.len().max(1)) {
        let mut only = CpuSet::new();
        only.set(*cpu);
        let _ = sched_setaffinity(None, &only);
    }
}

/// Combined results of all processes.
struct Fleet<'a> {
    args: &'a Args,
    began: Instant,
    first: u64,
    /// Start of the next leg, relative to the first seed.
    next: u64,
    wanted: u64,
    said: Sender<(u64, Word)>,
    begun: u64,
    counts: BTreeMap<String, u64>,
    failed: Vec<u64>,
    file: Option<File>,
}

/// Runs the processes. Returns whether all seeds passed.
pub fn lead(args: &Args, jobs: u64) -> bool {
    let (said, heard) = channel();
    let file = args.failures.as_ref().map(File::create).transpose();
    let file = match file {
        Ok(file) => file,
        Err(error) => {
            eprintln!("cannot create the file of failures: {error}");
            return false;
        }
    };
    let mut fleet = Fleet {
        args,
        began: Instant::now(),
        first: args.first(),
        next: 0,
        wanted: args.count(),
        said,
        begun: 0,
        counts: BTreeMap::new(),
        failed: Vec::new(),
        file,
    };
    println!("seeds from {} on, {jobs} processes", fleet.first);
    fleet.run(jobs.max(1), &heard);
    fleet.summary();
    fleet.failed.is_empty()
}

impl Fleet<'_> {
    fn run(&mut self, jobs: u64, heard: &Receiver<(u64, Word)>) {
        let mut ships: BTreeMap<u64, Ship> = BTreeMap::new();
        for core in 0..jobs {
            self.next_leg(core, &mut ships);
        }
        let mut reported = Instant::now();
        while !ships.is_empty() {
            if let Ok((core, word)) = heard.recv_timeout(Duration::from_secs(1)) {
                self.hear(core, word, &mut ships);
            }
            for ship in ships.values_mut() {
                if ship.heard.elapsed() > HANGS_AFTER {
                    // Its output ends, and the reader thread reports that.
                    let _ = ship.child.kill();
                    ship.heard = Instant::now();
                }
            }
            if reported.elapsed() > REPORT_EVERY {
                reported = Instant::now();
                self.report();
            }
        }
    }

    fn hear(&mut self, core: u64, word: Word, ships: &mut BTreeMap<u64, Ship>) {
        let Some(ship) = ships.get_mut(&core) else {
            return;
        };
        ship.heard = Instant::now();
        match word {
            Word::Begins(seed) => {
                self.begun += 1;
                ship.at = Some(seed);
                ship.leg.start = seed + 1;
            }
            Word::Failed(seed, how) => self.fail(seed, &how),
            Word::Count(what, times) => {
                // The counts follow the last seed.
                ship.at = None;
                *self.counts.entry(what).or_default() += times;
            }
            Word::Ended => {
                let ended = ships.remove(&core);
                let Some(mut ship) = ended else { return };
                let _ = ship.child.wait();
                match ship.at {
                    None => self.next_leg(core, ships),
                    Some(seed) => {
                        self.fail(seed, "the process died, or hung and was killed");
                        self.begin(core, ship.leg, ships);
                    }
                }
            }
        }
    }

    fn next_leg(&mut self, core: u64, ships: &mut BTreeMap<u64, Ship>) {
        let over = |most: u64| self.began.elapsed() >= Duration::from_secs(most);
        if self.args.seconds.is_some_and(over) || self.next >= self.wanted {
            return;
        }
        let most = if self.args.long { LEG.1 } else { LEG.0 };
        // Legs are short if the run time is limited.
        let most = if self.args.seconds.is_some() {
            most / 10
        } else {
            most
        };
        let count = most.min(self.wanted - self.next);
        let start = self.first + self.next;
        self.next += count;
        self.begin(core, start..start + count, ships);
    }

    fn begin(&mut self, core: u64, leg: std::ops::Range<u64>, ships: &mut BTreeMap<u64, Ship>) {
        if leg.is_empty() {
            return self.next_leg(core, ships);
        }
        let Ok(own) = std::env::current_exe() else {
            eprintln!("the program does not know its own file");
            return;
        };
        let mut command = Command::new(own);
        command.args(["--ship", &core.to_string()]);
        command.args(["--from", &leg.start.to_string()]);
        command.args(["--seeds", &(leg.end - leg.start).to_string()]);
        if self.args.long {
            command.arg("--long");
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        match child {
            Ok(mut child) => {
                let (said, output) = (self.said.clone(), child.stdout.take());
                std::thread::spawn(move || {
                    for line in output.into_iter().flat_map(|o| BufReader::new(o).lines()) {
                        if let Some(word) = line.ok().as_deref().and_then(word_of) {
                            let _ = said.send((core, word));
                        }
                    }
                    let _ = said.send((core, Word::Ended));
                });
                let ship = Ship {
                    core,
                    child,
                    at: None,
                    heard: Instant::now(),
                    leg,
                };
                ships.insert(ship.core, ship);
            }
            Err(error) => eprintln!("cannot start a process: {error}"),
        }
    }

    fn fail(&mut self, seed: u64, how: &str) {
        self.failed.push(seed);
        let long = if self.args.long { " --long" } else { "" };
        let again = format!(
            "cargo run --profile sim -p alluvium-sim --features simulation -- --seed {seed}{long} --shrink 400"
        );
        println!("seed {seed} failed: {how}");
        if let Some(file) = &mut self.file
            && let Err(error) = writeln!(file, "{again}  # {how}")
        {
            eprintln!("cannot write to the file of failures: {error}");
        }
    }

    fn report(&self) {
        let rate = self.begun as f64 / self.began.elapsed().as_secs_f64();
        let of = match self.wanted {
            u64::MAX => String::new(),
            wanted => format!(" of {wanted}"),
        };
        let wrong = self.failed.len();
        eprintln!(
            "{}{of} seeds, {rate:.0} a second, {wrong} wrong",
            self.begun
        );
    }

    /// Prints all counts, then one line with the figures for a page of results.
    fn summary(&self) {
        let count = |what: &str| self.counts.get(what).copied().unwrap_or(0);
        for (what, times) in &self.counts {
            println!("{times:12} {what}");
        }
        let size = if self.args.long { "long" } else { "small" };
        println!(
            "{} {size} seeds from {}: {} commits, {} crashes, {} of them in a recovery, {} failures injected, {} wrong, {:.0} s",
            self.begun,
            self.first,
            count("commits"),
            count("crashes") + count("crashes of recoveries"),
            count("crashes of recoveries"),
            count("failures injected"),
            self.failed.len(),
            self.began.elapsed().as_secs_f64()
        );
        if let (Some(path), false) = (&self.args.failures, self.failed.is_empty()) {
            println!("how to repeat and shrink them: {}", path.display());
        }
    }
}

fn word_of(line: &str) -> Option<Word> {
    let (kind, rest) = line.split_once(' ')?;
    let two = |rest: &str| {
        let (number, text) = rest.split_once(' ')?;
        Some((number.parse::<u64>().ok()?, text.to_owned()))
    };
    Some(match kind {
        "begins" => Word::Begins(rest.parse().ok()?),
        "failed" => two(rest).map(|(seed, how)| Word::Failed(seed, how))?,
        "count" => two(rest).map(|(times, what)| Word::Count(what, times))?,
        _ => return None,
    })
}
