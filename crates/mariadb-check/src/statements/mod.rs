//! Subcommand `statements`: random statements, each on InnoDB and on Alluvium, with equal answers.
//!
//! Reading order: [`types`] and [`schema`] (tables), [`statement`], [`generate`] with [`writes`]
//! and [`reads`] (statements), [`pair`] (both engines, and comparison of answers), [`plans`] (known
//! differences of InnoDB from itself), [`shrink`] (a short list that shows a difference),
//! [`coverage`]. A run has rounds. Each begins with new
//! databases and has a seed of its own: the seed of the run plus the number of the round.

mod coverage;
mod generate;
mod pair;
mod plans;
mod reads;
mod schema;
mod shrink;
mod statement;
mod types;
mod writes;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::client::Answer;
use crate::report::{Exit, seed_or_new};
use crate::server::{Place, Server};
use coverage::Coverage;
use generate::Generator;
use pair::{Difference, Pair, Step};
use schema::Avoided;
use statement::Statement;

/// Statements between two comparisons of whole tables.
const WHOLE_EVERY: u64 = 100;

#[derive(Args, Debug)]
pub struct StatementsArgs {
    #[command(flatten)]
    place: Place,
    /// Statements in all; the full run has a million
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    statements: u64,
    /// Statements of a round, which begins with new tables
    #[arg(long, value_name = "N", default_value_t = 400)]
    round: u64,
    /// Seed of the first round; a new one if not given
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// End after so many rounds with a difference
    #[arg(long, value_name = "N", default_value_t = 1)]
    differences: usize,
    /// Seconds for shortening the list of a difference
    #[arg(long, value_name = "N", default_value_t = 60)]
    shrink_seconds: u64,
    /// Differences to pass over: rows, affected, last-id, warnings, success, code
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Make no indexes with prefixes. The floor of the coverage then does not hold
    #[arg(long)]
    no_prefixes: bool,
    /// Make no AUTO_INCREMENT columns. The floor of the coverage then does not hold
    #[arg(long)]
    no_numbers: bool,
    /// Print every statement before it runs
    #[arg(long)]
    verbose: bool,
}

impl StatementsArgs {
    fn avoided(&self) -> Avoided {
        Avoided {
            prefixes: self.no_prefixes,
            numbers: self.no_numbers,
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// If the server does not start or cannot be used.
pub fn run(args: &StatementsArgs) -> Result<Exit> {
    let mut server = Server::start(&args.place, &[])?;
    let first = seed_or_new(args.seed);
    let began = Instant::now();
    let mut coverage = Coverage::default();
    let (mut rounds, mut found) = (0, 0);
    println!("seed {first}");
    while coverage.statements < args.statements && found < args.differences.max(1) {
        let seed = first.wrapping_add(rounds);
        rounds += 1;
        let mut round = Round::new(seed, args, &mut coverage);
        let pair = Pair::fresh(&mut server, &args.ignore)?;
        if let Some(difference) = round.run(pair)? {
            found += 1;
            tell(seed, &round.steps, &difference, &mut server, args)?;
        }
        if rounds.is_multiple_of(100) {
            eprintln!("{rounds} rounds, {} statements", coverage.statements);
        }
    }
    for line in coverage.lines() {
        println!("{line}");
    }
    let gaps = if found == 0 {
        coverage.gaps()
    } else {
        Vec::new()
    };
    for gap in &gaps {
        println!("below the floor of the coverage: {gap}");
    }
    let (seconds, count) = (began.elapsed().as_secs_f64(), coverage.statements);
    println!(
        "seed {first}: {count} statements in {rounds} rounds, {seconds:.0} s, {found} rounds with a difference"
    );
    let is_good = found == 0 && gaps.is_empty();
    server.stop(!is_good)?;
    Ok(if is_good { Exit::Done } else { Exit::Different })
}

/// Round in progress.
struct Round<'a> {
    generator: Generator,
    args: &'a StatementsArgs,
    coverage: &'a mut Coverage,
    steps: Vec<Step>,
}

impl<'a> Round<'a> {
    fn new(seed: u64, args: &'a StatementsArgs, coverage: &'a mut Coverage) -> Round<'a> {
        Round {
            generator: Generator::new(seed, args.avoided()),
            args,
            coverage,
            steps: Vec::new(),
        }
    }

    fn run(&mut self, mut pair: Pair) -> Result<Option<Difference>> {
        let difference = self.statements(&mut pair)?;
        for sql in &pair.self_differences {
            self.coverage.count("InnoDB differs from itself");
            println!("InnoDB differs by an index from itself without one: {sql}");
        }
        Ok(difference)
    }

    fn statements(&mut self, pair: &mut Pair) -> Result<Option<Difference>> {
        for number in 1..=self.args.round {
            let statement = self.generator.next();
            if let Some(difference) = self.one(pair, statement)? {
                return Ok(Some(difference));
            }
            let is_last = number == self.args.round;
            if number.is_multiple_of(WHOLE_EVERY) || is_last {
                for statement in self.generator.whole() {
                    if let Some(difference) = self.one(pair, statement)? {
                        return Ok(Some(difference));
                    }
                }
            }
        }
        Ok(None)
    }

    fn one(&mut self, pair: &mut Pair, statement: Statement) -> Result<Option<Difference>> {
        if self.args.verbose {
            eprintln!("{}", statement.sql);
        }
        let step = Step {
            sql: statement.sql,
            compare: statement.compare,
        };
        self.steps.push(step.clone());
        let answer = match pair.run(&step) {
            Ok(answer) => answer,
            Err(difference) => return Ok(Some(*difference)),
        };
        self.coverage.statements += 1;
        count(self.coverage, &answer);
        if !matches!(answer, Answer::Refused(_)) {
            statement
                .marks
                .iter()
                .for_each(|mark| self.coverage.count(mark));
            if let Some(change) = statement.change {
                self.generator.apply(change);
            }
        }
        Ok(None)
    }
}

/// Counts an answer that both engines gave.
fn count(coverage: &mut Coverage, answer: &Answer) {
    match answer {
        Answer::Rows(rows) => {
            if !rows.is_empty() {
                coverage.count("answer: rows");
            }
            if rows.iter().flatten().any(Option::is_none) {
                coverage.count("answer: NULL");
            }
        }
        Answer::Done(done) => {
            if done.affected > 0 {
                coverage.count("answer: changed rows");
            }
            if done.last_id > 0 {
                coverage.count("answer: AUTO_INCREMENT");
            }
            if done.warnings > 0 {
                coverage.count("answer: warnings");
            }
        }
        Answer::Refused(refused) => coverage.count(&format!("error: {}", refused.code)),
    }
}

/// Prints a difference and a short list of statements that shows it.
fn tell(
    seed: u64,
    steps: &[Step],
    difference: &Difference,
    server: &mut Server,
    args: &StatementsArgs,
) -> Result<()> {
    println!(
        "\nDIFFERENCE ({}), seed {seed}, statement {}",
        difference.kind,
        steps.len()
    );
    println!("{difference}");
    let limit = Duration::from_secs(args.shrink_seconds);
    let (short, difference) = shrink::shrink(steps, difference, server, &args.ignore, limit)?;
    println!("shortened to {} statements:", short.len());
    for step in &short {
        println!("{};", step.sql);
    }
    println!("{difference}");
    let prefixes = if args.no_prefixes {
        " --no-prefixes"
    } else {
        ""
    };
    let numbers = if args.no_numbers { " --no-numbers" } else { "" };
    println!(
        "to repeat: mariadb-check statements --seed {seed} --statements {0} --round {0}{prefixes}{numbers}\n",
        args.round
    );
    Ok(())
}
