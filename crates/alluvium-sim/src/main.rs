//! `alluvium-sim`: runs plans of many seeds, and shrinks and prints the first one that fails. With
//! `--jobs` it runs several processes to the end and collects all failures.
//!
//! Exit codes: 0 all seeds passed, 1 one failed, 2 bad usage.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks")]

mod args;
mod fleet;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::{Args, USAGE, parse};

use alluvium_sim::plan::Plan;
use alluvium_sim::run::{Outcome, run};
use alluvium_sim::shrink::{shown, shrink};

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
