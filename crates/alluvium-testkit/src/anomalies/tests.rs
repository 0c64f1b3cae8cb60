//! Handwritten histories: each anomaly is found, and nothing else.
//!
//! A line of a history is a transaction: `commit`, `abort` or `unknown`, optionally the times of
//! its beginning and end (`@1-5`), and its actions:
//!
//! ```text
//! r1=7 r1=-      read register 1: 7, absent          l1=7,8 l1=-   read list 1
//! w1=7           write it                            a1=7          append to it
//! d1=7           delete it, by this name             R1=7 L1=7     locking reads
//! s1-5=2:7,3:8   scan registers 1 to 5
//! ```
//!
//! `order 1=7,8` gives the order of the values of a register.

use super::*;
use crate::script;

fn list(text: &str) -> Vec<u64> {
    let numbers = text.split(',').filter(|part| !matches!(*part, "-" | ""));
    numbers.map(|n| n.parse().expect("a number")).collect()
}

fn action(word: &str) -> Action {
    let (what, rest) = word.split_at(1);
    let (place, found) = rest.split_once('=').expect("an action has a =");
    if what == "s" {
        let (start, end) = place.split_once('-').expect("a range has a -");
        let pair = |row: &str| {
            let (key, value) = row.split_once(':').expect("a row has a :");
            (key.parse().expect("a key"), value.parse().expect("a value"))
        };
        let rows = found.split(',').filter(|row| *row != "-");
        return Action::Scan {
            keys: start.parse().expect("a key")..=end.parse().expect("a key"),
            found: rows.map(pair).collect(),
        };
    }
    let key = place.parse().expect("a key");
    let found = list(found);
    let (first, locked) = (found.first().copied(), matches!(what, "R" | "L"));
    let value = first.unwrap_or(0);
    match what {
        "r" | "R" => Action::Read {
            key,
            found: first,
            locked,
        },
        "l" | "L" => Action::ReadList { key, found, locked },
        "w" => Action::Write { key, value },
        "d" => Action::Delete { key, value },
        "a" => Action::Append {
            key,
            element: value,
        },
        other => panic!("no action {other}"),
    }
}

fn transaction(client: usize, line: &str) -> Transaction {
    let mut words = line.split_whitespace().peekable();
    let outcome = match words.next() {
        Some("commit") => Outcome::Committed,
        Some("abort") => Outcome::Aborted,
        Some("unknown") => Outcome::Unknown,
        other => panic!("no outcome {other:?}"),
    };
    let time = words.next_if(|word| word.starts_with('@')).map(|word| {
        let (begin, end) = word[1..].split_once('-').expect("two times");
        (begin.parse().expect("a time"), end.parse().expect("a time"))
    });
    let actions = words.map(action).collect();
    Transaction {
        time,
        ..Transaction::new(client, actions, outcome)
    }
}

fn history(input: &str) -> History {
    let mut history = History::new();
    for line in input.lines() {
        match line.strip_prefix("order ") {
            Some(order) => {
                let (key, values) = order.split_once('=').expect("an order has a =");
                history.order(key.parse().expect("a key"), list(values));
            }
            None => {
                let client = history.transactions.len();
                history.push(transaction(client, line));
            }
        }
    }
    history
}

#[test]
fn each_anomaly_is_found_in_a_history_that_has_it_and_in_no_other() {
    let file = "src/anomalies/histories.test";
    script::run(file, |command| {
        let found = history(&command.input).check();
        let tell = |finding: &Finding| {
            if command.has("names") {
                format!("{}\n", finding.anomaly.name())
            } else {
                format!("{finding}\n")
            }
        };
        if found.is_empty() {
            "nothing\n".into()
        } else {
            found.iter().map(tell).collect()
        }
    });
}

#[test]
fn each_level_forbids_what_the_weaker_one_does_and_more() {
    use Anomaly::*;
    let all = [
        Garbage,
        Internal,
        NoOrder,
        G0,
        G1a,
        G1b,
        G1c,
        LostLockedUpdate,
        LostUpdate,
        GSingle,
        GNonadjacent,
        G2Item,
        G2,
    ];
    let allowed = |level: Level| {
        let allowed = all.iter().filter(|anomaly| !level.forbids(**anomaly));
        allowed.copied().collect::<Vec<_>>()
    };
    assert_eq!(
        allowed(Level::ReadCommitted),
        [LostUpdate, GSingle, GNonadjacent, G2Item, G2]
    );
    assert_eq!(allowed(Level::Snapshot), [G2Item, G2]);
    assert_eq!(allowed(Level::Serializable), []);
}

#[test]
fn a_judgment_names_what_the_level_forbids_and_returns_the_rest() {
    let skew = history("commit r1=- r2=- w1=11\ncommit r1=- r2=- w2=12\n");
    let allowed = skew.judge(Level::Snapshot).expect("snapshots allow it");
    assert_eq!(allowed[0].anomaly, Anomaly::G2Item);
    let refused = skew.judge(Level::Serializable).expect_err("a cycle");
    assert!(
        refused.contains("Serializable forbids") && refused.contains("G2-item"),
        "{refused}"
    );
}

#[test]
fn a_long_chain_without_a_cycle_is_legal_and_takes_no_stack() {
    let mut chain = History::new();
    for n in 0..20_000_u64 {
        let read = Action::Read {
            key: 1,
            found: n.checked_sub(1),
            locked: false,
        };
        let write = Action::Write { key: 1, value: n };
        chain.push(Transaction::new(0, vec![read, write], Outcome::Committed));
    }
    assert_eq!(chain.check(), []);
}
