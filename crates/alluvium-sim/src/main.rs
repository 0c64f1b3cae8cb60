//! `alluvium-sim`: runs plans of many seeds, and shrinks and prints the first one that fails. With
//! `--jobs` it runs several processes to the end and collects all failures.
//!
//! Exit codes: 0 all seeds passed, 1 one failed, 2 bad usage.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks")]

mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alluvium_sim::plan::Plan;
use alluvium_sim::run::{Outcome, run};
use alluvium_sim::shrink::{numbers_of, shown, shrink};

const USAGE: &str =
    "usage: alluvium-sim [--seeds N] [--from SEED] [--seconds S] [--long] [--check] [--shrink RUNS]
       alluvium-sim --seed SEED [--long] [--schedule K] [--keep NUMBERS] [--shrink RUNS]
       alluvium-sim --jobs J --failures FILE [--seeds N] [--from SEED] [--seconds S] [--long]

Runs the plans of N seeds from SEED on (a fresh one by default), or as many as S seconds allow.
--long     longer plans
--check    runs each seed twice and compares the traces
--shrink   how many smaller plans are tried after a failure (400; 0: none)
--seed     runs one seed alone and says what it does; --schedule and --keep name a part of it
--jobs     so many processes, each on a core of its own, that go on behind a failure
--failures where the commands go that repeat and shrink what has failed";

/// Arguments of the command line.
#[derive(Default)]
struct Args {
    seeds: Option<u64>,
    from: Option<u64>,
    seconds: Option<u64>,
    seed: Option<u64>,
    schedule: u64,
    keep: Option<BTreeSet<usize>>,
    shrink: Option<usize>,
    long: bool,
    check: bool,
    jobs: Option<u64>,
    failures: Option<PathBuf>,
    /// Core of this process, if it is one of a fleet.
    ship: Option<u64>,
}

impl Args {
    /// Returns the first seed. A fresh one is short enough to type.
    fn first(&self) -> u64 {
        let fresh = || alluvium::simulation::random_u64() >> 32;
        self.from.unwrap_or_else(fresh)
    }

    fn count(&self) -> u64 {
        let unsaid = if self.seconds.is_some() {
            u64::MAX
        } else {
            100
        };
        self.seeds.unwrap_or(unsaid)
    }
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // The engine's own panics are caught and judged; only their message is printed.
    let silent = args.ship.is_some();
    std::panic::set_hook(Box::new(move |panic| {
        if !silent {
            eprintln!("{panic}");
        }
    }));
    let passed = match (args.seed, args.jobs, args.ship) {
        (Some(seed), _, _) => one(seed, &args),
        (None, Some(jobs), _) => fleet::lead(&args, jobs),
        (None, None, Some(core)) => fleet::serve(&args, core),
        (None, None, None) => many(&args),
    };
    ExitCode::from(u8::from(!passed))
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--long" => args.long = true,
            "--check" => args.check = true,
            "--keep" => args.keep = Some(numbers_of(&words.next()?)?),
            "--failures" => args.failures = Some(words.next()?.into()),
            _ => {
                let number: u64 = words.next()?.parse().ok()?;
                match word.as_str() {
                    "--seeds" => args.seeds = Some(number),
                    "--from" => args.from = Some(number),
                    "--seconds" => args.seconds = Some(number),
                    "--seed" => args.seed = Some(number),
                    "--schedule" => args.schedule = number,
                    "--jobs" => args.jobs = Some(number),
                    "--ship" => args.ship = Some(number),
                    "--shrink" => args.shrink = Some(number as usize),
                    _ => return None,
                }
            }
        }
    }
    Some(args)
}

fn one(seed: u64, args: &Args) -> bool {
    let mut plan = Plan::new(seed, args.long);
    plan.schedule = args.schedule;
    if let Some(keep) = &args.keep {
        plan = plan.keep(keep);
    }
    println!("{:#?}", plan.database);
    for (at, incarnation) in plan.incarnations.iter().enumerate() {
        println!("incarnation {at}");
        for (number, client) in incarnation.clients.iter().enumerate() {
            for op in client {
                println!("  client {number}: {}: {:?}", op.number, op.item);
            }
        }
        for fault in &incarnation.faults {
            println!("  fault {}: {:?}", fault.number, fault.item);
        }
        for crash in incarnation.crash.iter().chain(&incarnation.crash_again) {
            println!("  crash {}: {:?}", crash.number, crash.item);
        }
    }
    let outcome = run(&plan);
    println!(
        "{} steps, trace {:016x}",
        outcome.report.steps, outcome.report.trace
    );
    judge(plan, outcome, args, args.shrink.unwrap_or(0))
}

fn many(args: &Args) -> bool {
    let began = Instant::now();
    let (first, seeds) = (args.first(), args.count());
    let most = args.seconds.map_or(Duration::MAX, Duration::from_secs);
    let (mut done, mut steps) = (0, 0);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    while done < seeds && began.elapsed() < most {
        let plan = Plan::new(first.wrapping_add(done), args.long);
        let outcome = run(&plan);
        steps += outcome.report.steps;
        for (what, times) in &outcome.counts {
            *counts.entry(what).or_default() += times;
        }
        done += 1;
        if args.check && outcome.failure.is_none() {
            let again = run(&plan);
            if again.report != outcome.report {
                println!(
                    "seed {}: two runs differ: {:?} and {:?}",
                    plan.seed, outcome.report, again.report
                );
                return false;
            }
        }
        if outcome.failure.is_some() {
            println!("seed {} failed, the {done}th from {first}", plan.seed);
            return judge(plan, outcome, args, args.shrink.unwrap_or(400));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{done} seeds from {first} passed: {steps} steps in {seconds:.1} s");
    for (what, times) in counts {
        println!("{times:9} {what}");
    }
    true
}

fn judge(plan: Plan, outcome: Outcome, args: &Args, shrink_runs: usize) -> bool {
    let Some(failure) = &outcome.failure else {
        println!("passed");
        return true;
    };
    println!("{failure}");
    let whole = Plan::new(plan.seed, args.long);
    let failing = shrink(&plan, outcome.clone(), shrink_runs);
    if failing.runs > 0 {
        let (before, after) = (whole.numbers().len(), failing.plan.numbers().len());
        println!(
            "shrunk from {before} parts to {after} in {} runs:",
            failing.runs
        );
        println!(
            "{}",
            failing.outcome.failure.as_deref().unwrap_or("nothing")
        );
    }
    let long = if args.long { " --long" } else { "" };
    let keep = shown(&failing.plan.numbers());
    println!(
        "again: cargo run -p alluvium-sim --features simulation -- --seed {}{long} --schedule {} --keep {keep}",
        plan.seed, failing.plan.schedule
    );
    false
}
