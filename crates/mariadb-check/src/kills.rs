//! Subcommand `kills`: a server that is killed under writers again and again.
//!
//! Each transaction writes to an InnoDB table and to an Alluvium table, and the server writes it to
//! the binary log. After each restart the three must have the same transactions, among them every
//! one with an acknowledged commit. All three sync at each commit. In some rounds the server is
//! also killed during its recovery.
//!
//! InnoDB 10.11.18 sometimes cannot finish its own recovery: it fails in `flst_add_first` when the
//! server commits its prepared transactions, also without the plugin. A new server then continues,
//! and the report counts it.
//!
//! The binary log is read through SHOW BINLOG EVENTS: the server puts the text of each statement
//! before its rows, and a transaction counts if its commit follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use alluvium_testkit::Rng;
use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::{Answer, Client, Value};
use crate::report::{Exit, seed_or_new};
use crate::server::{Place, Server};

const OPTIONS: [&str; 8] = [
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-format=ROW",
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
    "--alluvium-flush-log-at-trx-commit=1",
    // Makes the failure of InnoDB rarer.
    "--innodb-max-dirty-pages-pct=0",
    "--innodb-max-dirty-pages-pct-lwm=0",
];
/// Text of the server's log after the failure of InnoDB.
const INNODB_FAILURE: &str = "Failing assertion: flst_add_first";
/// More failures of InnoDB in so many rounds are an error of the run.
const ROUNDS_FOR_INNODB_FAILURE: u64 = 5;
/// Files of the binary log that stay. Older ones were read.
const LOGS_KEPT: usize = 2;
/// One round in so many also kills the server during its recovery.
const KILL_RECOVERY_ONE_IN: usize = 4;
const BATCH_MAX: usize = 4;

#[derive(Args, Debug)]
pub struct KillsArgs {
    #[command(flatten)]
    place: Place,
    /// Kills of the server; the full run has 200
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: u64,
    /// Concurrent writers
    #[arg(long, value_name = "N", default_value_t = 4)]
    clients: u64,
    /// Most milliseconds from the first write to the kill
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    millis: usize,
    /// Seed of statements and times; a kill meets another moment in each run
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Transaction: its writer, and its number among those of the writer in all rounds.
type Id = (u64, u64);

/// Counts of a run.
#[derive(Default)]
struct Counts {
    acknowledged: u64,
    /// Transactions that were found without an acknowledgement.
    unanswered: u64,
    recoveries_killed: u64,
    innodb_failures: u64,
}

/// Expectations after a restart.
#[derive(Default)]
struct Known {
    /// Transactions that earlier rounds have found.
    transactions: BTreeSet<Id>,
    logs: Logs,
}

/// Runs the subcommand.
///
/// # Errors
/// If the server does not start or cannot be used.
pub fn run(args: &KillsArgs) -> Result<Exit> {
    let mut server = Server::start(&args.place, &OPTIONS)?;
    let seed = seed_or_new(args.seed);
    let mut rng = Rng::new(seed);
    let began = Instant::now();
    println!("seed {seed}");
    create(&mut server.connect()?, args.clients)?;
    let mut counts = Counts::default();
    let mut known = Known::default();
    let mut wrong = Vec::new();
    for round in 1..=args.rounds {
        let millis = 20 + rng.below(args.millis.max(1)) as u64;
        let acknowledged = writes_until_kill(&mut server, args, round, &mut rng, millis)?;
        if !restart(&mut server, &mut rng, &mut counts).with_context(|| format!("round {round}"))? {
            known = Known::default();
            create(&mut server.connect()?, args.clients)?;
            continue;
        }
        wrong = compare(
            &mut server.connect()?,
            &mut known,
            &acknowledged,
            &mut counts,
        )?;
        if !wrong.is_empty() {
            println!("\nDIFFERENCE in round {round}:");
            wrong.iter().for_each(|line| println!("{line}"));
            println!("log of the server:\n{}", server.log(60));
            break;
        }
        if round.is_multiple_of(10) {
            eprintln!("{round} rounds, {} transactions", known.transactions.len());
        }
    }
    println!(
        "seed {seed}: {} acknowledged and {} unanswered transactions, {} kills during recovery, {} failures of InnoDB, {:.0} s",
        counts.acknowledged,
        counts.unanswered,
        counts.recoveries_killed,
        counts.innodb_failures,
        began.elapsed().as_secs_f64()
    );
    let is_tested = counts.acknowledged > args.rounds;
    if !is_tested {
        println!("too few transactions were acknowledged");
    }
    let is_good = wrong.is_empty()
        && is_tested
        && counts.innodb_failures <= 1 + args.rounds / ROUNDS_FOR_INNODB_FAILURE;
    server.stop(!is_good)?;
    Ok(if is_good { Exit::Done } else { Exit::Different })
}

/// Starts the server again, sometimes after another kill. Returns false if it is a new server,
/// because InnoDB has failed.
fn restart(server: &mut Server, rng: &mut Rng, counts: &mut Counts) -> Result<bool> {
    if rng.below(KILL_RECOVERY_ONE_IN) == 0 {
        server.start_and_kill(Duration::from_millis(rng.below(800) as u64))?;
        counts.recoveries_killed += 1;
    }
    let Err(error) = server.start_again() else {
        return Ok(true);
    };
    if !server.log(usize::MAX).contains(INNODB_FAILURE) {
        return Err(error);
    }
    counts.innodb_failures += 1;
    server.set_data_aside()?;
    server.start_again()?;
    Ok(false)
}

fn create(client: &mut Client, writers: u64) -> Result<()> {
    client.must("DROP DATABASE IF EXISTS kills")?;
    client.must("CREATE DATABASE kills")?;
    for (table, engine) in [("inno", "InnoDB"), ("alluvium", "ALLUVIUM")] {
        client.must(&format!(
            "CREATE TABLE kills.{table} (writer INT, number INT, text VARCHAR(100), PRIMARY KEY (writer, number), KEY by_text (text)) ENGINE={engine}"
        ))?;
        client.must(&format!(
            "CREATE TABLE kills.{table}_last (writer INT PRIMARY KEY, number INT NOT NULL) ENGINE={engine}"
        ))?;
        for writer in 0..writers {
            client.must(&format!(
                "INSERT INTO kills.{table}_last VALUES ({writer}, 0)"
            ))?;
        }
    }
    Ok(())
}

/// Lets the writers work for a while, kills the server, and returns the acknowledged transactions.
fn writes_until_kill(
    server: &mut Server,
    args: &KillsArgs,
    round: u64,
    rng: &mut Rng,
    millis: u64,
) -> Result<BTreeSet<Id>> {
    let acknowledged = Mutex::new(BTreeSet::new());
    let begun = AtomicU64::new(0);
    let clients = (0..args.clients)
        .map(|_| server.connect())
        .collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        for (writer, client) in (0..).zip(clients) {
            let rng = Rng::new(rng.next_u64());
            let (acknowledged, begun) = (&acknowledged, &begun);
            scope.spawn(move || write(client, writer, round, rng, acknowledged, begun));
        }
        while begun.load(Ordering::Relaxed) == 0 && server.is_alive() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(millis));
        server.kill()
    })?;
    Ok(acknowledged.into_inner().expect("no writer panics"))
}

/// Commits transactions until the server is gone.
fn write(
    mut client: Client,
    writer: u64,
    round: u64,
    mut rng: Rng,
    acknowledged: &Mutex<BTreeSet<Id>>,
    begun: &AtomicU64,
) {
    for count in 0.. {
        let number = round * 100_000 + count;
        begun.fetch_add(1, Ordering::Relaxed);
        match transaction(&mut client, writer, number, &mut rng) {
            Ok(true) => {
                let mut all = acknowledged.lock().expect("no writer panics");
                all.insert((writer, number));
            }
            Ok(false) => {}
            // The server is gone, or the transaction was not possible: then the comparison of the
            // counts tells.
            Err(_) => return,
        }
    }
}

/// Runs one transaction; returns true if it has committed.
fn transaction(client: &mut Client, writer: u64, number: u64, rng: &mut Rng) -> Result<bool> {
    client.must("BEGIN")?;
    let texts: Vec<String> = (0..rng.range(1..BATCH_MAX + 1))
        .map(|part| {
            format!(
                "({writer}, {}, 'text {}')",
                number * 10 + part as u64,
                rng.below(50)
            )
        })
        .collect();
    let mut tables = ["inno", "alluvium"];
    rng.shuffle(&mut tables);
    for table in tables {
        client.must(&format!(
            "INSERT INTO kills.{table} VALUES {}",
            texts.join(", ")
        ))?;
        client.must(&format!(
            "UPDATE kills.{table}_last SET number = {number} WHERE writer = {writer}"
        ))?;
        if rng.percent(20) {
            client.must(&format!(
                "DELETE FROM kills.{table} WHERE writer = {writer} AND number = {}",
                number * 10 + 9
            ))?;
        }
    }
    if rng.percent(10) {
        client.must("ROLLBACK")?;
        return Ok(false);
    }
    match client.query("COMMIT")? {
        Answer::Done(_) => Ok(true),
        answer => bail!("COMMIT: {answer}"),
    }
}

/// Compares both engines and the binary log; returns a line for each difference.
fn compare(
    client: &mut Client,
    known: &mut Known,
    acknowledged: &BTreeSet<Id>,
    counts: &mut Counts,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let inno = transactions(client, "inno", "PRIMARY")?;
    for (name, index) in [
        ("Alluvium's rows", "PRIMARY"),
        ("Alluvium's entries", "by_text"),
    ] {
        let found = transactions(client, "alluvium", index)?;
        tell(&mut wrong, ("InnoDB", &inno), (name, &found));
    }
    known.logs.read(client)?;
    tell(
        &mut wrong,
        ("InnoDB", &inno),
        ("the binary log", &known.logs.committed),
    );
    let lost: Vec<&Id> = acknowledged
        .iter()
        .chain(&known.transactions)
        .filter(|id| !inno.contains_key(id))
        .collect();
    if !lost.is_empty() {
        wrong.push(format!(
            "acknowledged transactions that InnoDB lacks: {lost:?}"
        ));
    }
    let same = "SELECT a.writer, a.number, b.number FROM kills.inno_last a JOIN kills.alluvium_last b USING (writer) WHERE a.number <> b.number";
    for row in client.must(same)? {
        wrong.push(format!(
            "inno_last and alluvium_last differ: {}",
            Answer::Rows(vec![row])
        ));
    }
    for row in client.must("XA RECOVER")? {
        wrong.push(format!("still prepared: {}", Answer::Rows(vec![row])));
    }
    counts.acknowledged += acknowledged.len() as u64;
    let new = inno
        .keys()
        .filter(|id| !known.transactions.contains(id) && !acknowledged.contains(id));
    counts.unanswered += new.count() as u64;
    known.transactions.extend(inno.keys());
    Ok(wrong)
}

/// Rows of each transaction, in order.
type Rows = BTreeMap<Id, Vec<String>>;

fn transactions(client: &mut Client, table: &str, index: &str) -> Result<Rows> {
    let mut found = Rows::new();
    let sql = format!(
        "SELECT writer, number, text FROM kills.{table} FORCE INDEX ({index}) WHERE text >= '' ORDER BY writer, number"
    );
    for row in client.must(&sql)? {
        let id = (number(&row[0])?, number(&row[1])? / 10);
        let text = String::from_utf8(row[2].clone().context("a text is NULL")?)?;
        found.entry(id).or_default().push(text);
    }
    Ok(found)
}

fn tell(wrong: &mut Vec<String>, (left_name, left): (&str, &Rows), (name, right): (&str, &Rows)) {
    let differ = |id: &&Id| left.get(*id) != right.get(*id);
    let ids: BTreeSet<&Id> = left.keys().chain(right.keys()).collect();
    for id in ids.into_iter().filter(differ).take(20) {
        let (left, right) = (left.get(id), right.get(id));
        wrong.push(format!(
            "writer and number {id:?}: {left_name} {left:?}, {name} {right:?}"
        ));
    }
}

fn number(value: &Value) -> Result<u64> {
    let bytes = value.as_ref().context("NULL for a number")?;
    Ok(std::str::from_utf8(bytes)?.parse()?)
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned()
}

/// Transactions of the binary log. Each start of the server begins a new file.
#[derive(Default)]
struct Logs {
    read: BTreeSet<String>,
    committed: Rows,
}

impl Logs {
    /// Reads the files that are complete, which is all but the one of the running server, and
    /// removes old ones.
    fn read(&mut self, client: &mut Client) -> Result<()> {
        let rows = client.must("SHOW BINARY LOGS")?;
        let names: Vec<String> = rows.iter().map(|row| text(&row[0])).collect();
        for name in &names {
            if !self.read.contains(name) {
                self.read_file(client, name)?;
            }
        }
        if let Some(last) = names.last() {
            // The writers of the next round go on with this file.
            self.read.remove(last);
        }
        if let Some(at) = names.len().checked_sub(LOGS_KEPT + 1) {
            client.must(&format!("PURGE BINARY LOGS TO '{}'", names[at]))?;
        }
        Ok(())
    }

    fn read_file(&mut self, client: &mut Client, name: &str) -> Result<()> {
        let mut open = Rows::new();
        for row in client.must(&format!("SHOW BINLOG EVENTS IN '{name}'"))? {
            match text(&row[2]).as_str() {
                "Gtid" => open.clear(),
                // Both engines get the same rows in one statement each; one is enough.
                "Annotate_rows" => {
                    let sql = text(&row[5]);
                    if let Some(rows) = sql.strip_prefix("INSERT INTO kills.inno VALUES ") {
                        for (id, text) in parse(rows)? {
                            open.entry(id).or_default().push(text);
                        }
                    }
                }
                "Xid" => self.committed.append(&mut open),
                _ => {}
            }
        }
        self.read.insert(name.to_string());
        Ok(())
    }
}

/// Reads the rows of a writer's INSERT: `(0, 1000010, 'text 7'), ...`.
fn parse(rows: &str) -> Result<Vec<(Id, String)>> {
    let mut parsed = Vec::new();
    for row in rows.trim_matches(['(', ')']).split("), (") {
        let fields: Vec<&str> = row.split(", ").collect();
        let [writer, number, text] = fields[..] else {
            bail!("an unknown row in the binary log: {row}");
        };
        let number: u64 = number.parse()?;
        parsed.push((
            (writer.parse()?, number / 10),
            text.trim_matches('\'').to_string(),
        ));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_binary_log_are_read() {
        let rows = parse("(0, 1000010, 'text 7'), (3, 1000021, 'text 8')").unwrap();
        let expected = [((0, 100_001), "text 7"), ((3, 100_002), "text 8")];
        assert_eq!(rows, expected.map(|(id, text)| (id, text.to_string())));
        assert!(parse("(0, 1)").is_err());
    }

    #[test]
    fn a_transaction_that_one_side_lacks_is_told() {
        let row = |id, text: &str| (id, vec![text.to_string()]);
        let left = Rows::from([row((0, 1), "a"), row((0, 2), "b")]);
        let right = Rows::from([row((0, 1), "a"), row((0, 3), "b")]);
        let mut wrong = Vec::new();
        tell(&mut wrong, ("left", &left), ("right", &right));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }
}
