//! Subcommand `clients`: random transactions of several clients on one Alluvium table, with their
//! history judged by [`alluvium_testkit::anomalies`].
//!
//! Each round has a new table. It holds registers, which are overwritten and removed, and lists,
//! which are appended to. Reads go by the primary key or through a secondary index. A round ends
//! with a read of all rows, so that a lost commit shows.
//!
//! Each register has a trace, a third kind of row. The transaction that writes a register appends
//! the value to its trace while it holds the lock of the register. So the trace has the order of
//! the versions. Without it the judge would have to guess that order from reads, which only works
//! at snapshot isolation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use alluvium_testkit::Rng;
use alluvium_testkit::anomalies::{Action, History, Level, Outcome, Transaction};
use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::{Answer, Client, Refused, Value};
use crate::report::{Exit, seed_or_new};
use crate::server::{Place, Server};

/// Keys of registers are below it, those of lists at or above it.
const FIRST_LIST: u32 = 100;
/// Keys of traces are at or above it.
const FIRST_TRACE: u32 = 200;
const KEYS: u32 = 6;
const ACTIONS_MAX: usize = 6;
/// Share of transactions that must commit. A test of refused transactions tests little.
const COMMITTED_PERCENT: u64 = 20;

/// Lock wait timeout, deadlock or conflict, row changed since it was read.
const RETRY: [u16; 3] = [1205, 1213, 1020];

#[derive(Args, Debug)]
pub struct ClientsArgs {
    #[command(flatten)]
    place: Place,
    /// Transactions in all, for each isolation level
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    transactions: u64,
    /// Transactions of a round, which begins with a new table
    #[arg(long, value_name = "N", default_value_t = 400)]
    round: u64,
    /// Concurrent clients
    #[arg(long, value_name = "N", default_value_t = 4)]
    clients: usize,
    /// Only UPDATE of rows that exist: no INSERT, ON DUPLICATE KEY UPDATE or DELETE
    #[arg(long)]
    updates_only: bool,
    /// Engine of the table
    #[arg(long, value_name = "NAME", default_value = "ALLUVIUM")]
    engine: String,
    /// Seed of the statements; the order of their execution differs from run to run
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Counts of a run.
#[derive(Default)]
struct Counts {
    committed: u64,
    refused: u64,
    allowed: u64,
}

/// Runs the subcommand.
///
/// # Errors
/// If the server does not start or cannot be used.
pub fn run(args: &ClientsArgs) -> Result<Exit> {
    let server = Server::start(&args.place, &[])?;
    let seed = seed_or_new(args.seed);
    let began = Instant::now();
    let mut is_good = true;
    println!("seed {seed}");
    for (isolation, level) in [
        ("READ COMMITTED", Level::ReadCommitted),
        ("REPEATABLE READ", Level::Snapshot),
    ] {
        let mut counts = Counts::default();
        for round in 0..args.transactions.div_ceil(args.round) {
            let history = one_round(
                &server,
                args,
                isolation,
                seed.wrapping_add(round),
                &mut counts,
            )?;
            match history.judge(level) {
                Ok(allowed) => counts.allowed += allowed.len() as u64,
                Err(text) => {
                    is_good = false;
                    println!("\nANOMALY at {isolation}, round {round}:\n{text}");
                    break;
                }
            }
        }
        let Counts {
            committed,
            refused,
            allowed,
        } = counts;
        println!(
            "{isolation}: {committed} committed and {refused} refused transactions, {allowed} allowed anomalies"
        );
        if committed * 100 < (committed + refused) * COMMITTED_PERCENT {
            println!("too few transactions committed");
            is_good = false;
        }
    }
    println!("seed {seed}: {:.0} s", began.elapsed().as_secs_f64());
    server.stop(!is_good)?;
    Ok(if is_good { Exit::Done } else { Exit::Different })
}

fn count(history: &[Transaction], counts: &mut Counts) {
    for transaction in history {
        match transaction.outcome {
            Outcome::Committed => counts.committed += 1,
            _ => counts.refused += 1,
        }
    }
}

/// Creates the table of a round.
fn create(server: &Server, args: &ClientsArgs) -> Result<Client> {
    let mut main = server.connect()?;
    for sql in [
        "CREATE DATABASE IF NOT EXISTS clients".to_string(),
        "USE clients".to_string(),
        "DROP TABLE IF EXISTS rows_of_all".to_string(),
        format!(
            "CREATE TABLE rows_of_all (k INT PRIMARY KEY, v BIGINT, list TEXT NOT NULL, KEY by_v (v, k)) ENGINE={}",
            args.engine
        ),
    ] {
        main.must(&sql)?;
    }
    for key in 0..KEYS {
        let trace = FIRST_TRACE + key;
        main.must(&format!("INSERT INTO rows_of_all VALUES ({trace}, 0, '')"))?;
        if args.updates_only {
            let list = FIRST_LIST + key;
            main.must(&format!(
                "INSERT INTO rows_of_all VALUES ({key}, NULL, ''), ({list}, 0, '')"
            ))?;
        }
    }
    Ok(main)
}

/// Runs the clients on a new table and returns their history.
fn one_round(
    server: &Server,
    args: &ClientsArgs,
    isolation: &str,
    seed: u64,
    counts: &mut Counts,
) -> Result<History> {
    let mut main = create(server, args)?;
    let clock = AtomicU64::new(1);
    let each = args.round.div_ceil(args.clients as u64);
    let mut all = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let clock = &clock;
        let start = |number: usize| {
            let seed = seed.wrapping_mul(1000).wrapping_add(number as u64);
            scope.spawn(move || -> Result<Vec<Transaction>> {
                let mut worker =
                    Worker::connect(server, (isolation, args.updates_only), number, seed, clock)?;
                (0..each).map(|_| worker.transaction()).collect()
            })
        };
        let threads: Vec<_> = (0..args.clients).map(start).collect();
        for thread in threads {
            all.extend(thread.join().expect("a client does not panic")?);
        }
        Ok(())
    })?;
    let mut last = Worker::connect(
        server,
        (isolation, args.updates_only),
        args.clients,
        seed,
        &clock,
    )?;
    all.push(last.read_all()?);
    count(&all, counts);
    let mut history = History::new();
    for key in 0..KEYS {
        let sql = format!(
            "SELECT list FROM rows_of_all WHERE k = {}",
            FIRST_TRACE + key
        );
        let rows = main.must(&sql)?;
        let trace = elements(rows.first().and_then(|row| row[0].clone()))?;
        history.order(
            key,
            trace
                .into_iter()
                .filter(|value| is_version(&all, key, *value))
                .collect(),
        );
    }
    all.into_iter()
        .for_each(|transaction| history.push(transaction));
    Ok(history)
}

/// Returns true if a transaction's last write of the register had this value. A version that its
/// own transaction replaced is none.
fn is_version(all: &[Transaction], register: u32, wanted: u64) -> bool {
    all.iter().any(|transaction| {
        let mut written = transaction
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Write { key, value } | Action::Delete { key, value }
                    if *key == register =>
                {
                    Some(*value)
                }
                _ => None,
            });
        written.next_back() == Some(wanted)
    })
}

/// One client.
struct Worker<'a> {
    client: Client,
    number: usize,
    rng: Rng,
    /// Source of unique values and of times.
    clock: &'a AtomicU64,
    updates_only: bool,
}

/// Answer to the statement of an action.
enum Outcomes {
    Rows(Vec<Vec<Value>>),
    Changed(u64),
    Refused,
}

impl<'a> Worker<'a> {
    fn connect(
        server: &Server,
        (isolation, updates_only): (&str, bool),
        number: usize,
        seed: u64,
        clock: &'a AtomicU64,
    ) -> Result<Worker<'a>> {
        let mut client = server.connect()?;
        client.must("USE clients")?;
        client.must(&format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"
        ))?;
        client.must("SET innodb_lock_wait_timeout = 5")?;
        Ok(Worker {
            client,
            number,
            rng: Rng::new(seed),
            clock,
            updates_only,
        })
    }

    fn tick(&self) -> u64 {
        // Times and values are unique numbers of one order.
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn ask(&mut self, sql: &str) -> Result<Outcomes> {
        match self
            .client
            .query(sql)
            .with_context(|| format!("at {sql}"))?
        {
            Answer::Rows(rows) => Ok(Outcomes::Rows(rows)),
            Answer::Done(done) => Ok(Outcomes::Changed(done.affected)),
            Answer::Refused(Refused { code, .. }) if RETRY.contains(&code) => Ok(Outcomes::Refused),
            Answer::Refused(refused) => bail!("{} [{}] at {sql}", refused.message, refused.code),
        }
    }

    /// Runs a random transaction to its end.
    fn transaction(&mut self) -> Result<Transaction> {
        let began = self.tick();
        self.client.must("BEGIN")?;
        let mut actions = Vec::new();
        let mut outcome = Outcome::Committed;
        for _ in 0..self.rng.range(1..ACTIONS_MAX + 1) {
            match self.action()? {
                Some(Some(action)) => actions.push(action),
                Some(None) => {}
                None => {
                    outcome = Outcome::Aborted;
                    break;
                }
            }
        }
        if outcome == Outcome::Aborted || self.rng.percent(10) {
            self.client.must("ROLLBACK")?;
            outcome = Outcome::Aborted;
        } else if matches!(self.ask("COMMIT")?, Outcomes::Refused) {
            outcome = Outcome::Aborted;
        }
        let mut done = Transaction::new(self.number, actions, outcome);
        done.time = Some((began, self.tick()));
        Ok(done)
    }

    /// Runs one statement. Returns `None` if the server has refused it, and no action if it had no
    /// effect.
    fn action(&mut self) -> Result<Option<Option<Action>>> {
        let key = self.rng.below(KEYS as usize) as u32;
        let value = self.tick();
        let update = self.updates_only || self.rng.percent(40);
        match self.rng.weighted(&[20, 20, 6, 20, 20, 14]) {
            0 => self.read(key),
            1 => {
                let sql = match update {
                    true => format!("UPDATE rows_of_all SET v = {value} WHERE k = {key}"),
                    false => format!(
                        "INSERT INTO rows_of_all VALUES ({key}, {value}, '') ON DUPLICATE KEY UPDATE v = {value}"
                    ),
                };
                self.write_register(&sql, Action::Write { key, value })
            }
            2 if !self.updates_only => {
                let sql = format!("DELETE FROM rows_of_all WHERE k = {key}");
                self.write_register(&sql, Action::Delete { key, value })
            }
            3 => self.read_list(FIRST_LIST + key),
            4 => {
                let key = FIRST_LIST + key;
                let change = format!("list = CONCAT(list, ',{value}')");
                let sql = match update {
                    true => format!("UPDATE rows_of_all SET {change} WHERE k = {key}"),
                    false => format!(
                        "INSERT INTO rows_of_all VALUES ({key}, 0, '{value}') ON DUPLICATE KEY UPDATE {change}"
                    ),
                };
                self.write(
                    &sql,
                    Action::Append {
                        key,
                        element: value,
                    },
                )
            }
            _ => self.scan(),
        }
    }

    /// Writes a register and its trace.
    fn write_register(&mut self, sql: &str, action: Action) -> Result<Option<Option<Action>>> {
        let (Action::Write { key, value } | Action::Delete { key, value }) = action else {
            bail!("only registers have traces");
        };
        let written = self.write(sql, action)?;
        if !matches!(written, Some(Some(_))) {
            return Ok(written);
        }
        let trace = FIRST_TRACE + key;
        let sql =
            format!("UPDATE rows_of_all SET list = CONCAT(list, ',{value}') WHERE k = {trace}");
        match self.ask(&sql)? {
            Outcomes::Changed(1) => Ok(written),
            Outcomes::Refused => Ok(None),
            _ => bail!("a trace is lost: {sql}"),
        }
    }

    fn write(&mut self, sql: &str, action: Action) -> Result<Option<Option<Action>>> {
        Ok(match self.ask(sql)? {
            Outcomes::Refused => None,
            Outcomes::Changed(0) => Some(None),
            _ => Some(Some(action)),
        })
    }

    fn rows(&mut self, sql: &str) -> Result<Option<Vec<Vec<Value>>>> {
        match self.ask(sql)? {
            Outcomes::Rows(rows) => Ok(Some(rows)),
            Outcomes::Refused => Ok(None),
            Outcomes::Changed(_) => bail!("no rows for {sql}"),
        }
    }

    fn read(&mut self, key: u32) -> Result<Option<Option<Action>>> {
        let (end, locked) = self.lock();
        let sql = format!("SELECT v FROM rows_of_all WHERE k = {key}{end}");
        let Some(rows) = self.rows(&sql)? else {
            return Ok(None);
        };
        // A register without a value is an absent one, as before its first write.
        let value = rows.first().filter(|row| row[0].is_some());
        let found = value.map(|row| number(&row[0])).transpose()?;
        // A lock on an absent row does not exist without gap locks.
        let locked = locked && found.is_some();
        Ok(Some(Some(Action::Read { key, found, locked })))
    }

    fn read_list(&mut self, key: u32) -> Result<Option<Option<Action>>> {
        let (end, locked) = self.lock();
        let sql = format!("SELECT list FROM rows_of_all WHERE k = {key}{end}");
        let Some(rows) = self.rows(&sql)? else {
            return Ok(None);
        };
        let text = rows
            .first()
            .and_then(|row| row[0].clone())
            .unwrap_or_default();
        let text = String::from_utf8(text)?;
        let found = text
            .split(',')
            .filter(|word| !word.is_empty())
            .map(str::parse);
        let found = found.collect::<Result<Vec<u64>, _>>()?;
        let locked = locked && !found.is_empty();
        Ok(Some(Some(Action::ReadList { key, found, locked })))
    }

    fn scan(&mut self) -> Result<Option<Option<Action>>> {
        let first = self.rng.below(KEYS as usize) as u32;
        let last = first + self.rng.below((KEYS - first) as usize) as u32;
        let hint = self
            .rng
            .pick(&["FORCE INDEX (PRIMARY)", "FORCE INDEX (by_v)"]);
        let sql = format!(
            "SELECT k, v FROM rows_of_all {hint} WHERE k BETWEEN {first} AND {last} AND v > 0"
        );
        let Some(rows) = self.rows(&sql)? else {
            return Ok(None);
        };
        let pair = |row: &Vec<Value>| Ok((number(&row[0])? as u32, number(&row[1])?));
        let mut found = rows.iter().map(pair).collect::<Result<Vec<(u32, u64)>>>()?;
        found.sort_unstable();
        let keys = first..=last;
        Ok(Some(Some(Action::Scan { keys, found })))
    }

    fn lock(&mut self) -> (&'static str, bool) {
        match self.rng.below(5) {
            0 => (" FOR UPDATE", true),
            1 => (" LOCK IN SHARE MODE", true),
            _ => ("", false),
        }
    }

    /// Reads all rows in one transaction.
    fn read_all(&mut self) -> Result<Transaction> {
        let began = self.tick();
        let mut actions = Vec::new();
        self.client.must("BEGIN")?;
        for key in 0..KEYS {
            for action in [self.read(key)?, self.read_list(FIRST_LIST + key)?] {
                actions.push(
                    action
                        .flatten()
                        .context("a read is refused without writers")?,
                );
            }
        }
        self.client.must("COMMIT")?;
        let mut done = Transaction::new(self.number, actions, Outcome::Committed);
        done.time = Some((began, self.tick()));
        Ok(done)
    }
}

/// Returns the elements of a list or trace, which may be absent.
fn elements(list: Value) -> Result<Vec<u64>> {
    let text = String::from_utf8(list.unwrap_or_default())?;
    let words = text.split(',').filter(|word| !word.is_empty());
    Ok(words.map(str::parse).collect::<Result<_, _>>()?)
}

fn number(value: &Value) -> Result<u64> {
    let bytes = value.as_ref().context("NULL for a number")?;
    Ok(std::str::from_utf8(bytes)?.parse()?)
}
