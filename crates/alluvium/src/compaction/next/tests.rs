//! Tests of the next piece of work as text: `next.test` lists states and the expected work.

use alluvium_testkit::script::{self, Command};

use super::*;
use crate::compaction::pick::tests::group;

/// Parses a state: groups as in `pick.test`, and arguments: `wanted=GROUP`, `settling`, `full` (the
/// device), `postponed`, `sealed=BYTES`, `rows` (in memtables), `deletes` (that may
/// help a flush), `free=BYTES`, `share=SHARE`, and `never` (no work that is not due).
fn seen(command: &Command) -> Seen {
    Seen {
        groups: command.input.lines().map(group).collect(),
        wanted: command.value("wanted"),
        settling: command.has("settling"),
        low_on_space: command.has("full"),
        postponed: command.has("postponed"),
        sealed_bytes: command.value("sealed").unwrap_or(0),
        has_rows: command.has("rows"),
        deletes_may_help: command.has("deletes"),
        free_bytes: command.value("free").unwrap_or(1 << 30),
        scan_share: (!command.has("never")).then(|| command.value("share").unwrap_or(1.0)),
    }
}

/// Parses a calm database: `wait=SECONDS` of the idle clock (otherwise a pass is on), `paid=sealed`
/// or `paid=all`, `used`, `others`. Looks are 5 s apart.
fn calm(command: &Command) -> Calm {
    let paid: Option<String> = command.value("paid");
    Calm {
        paid: match paid.as_deref() {
            None => EarlyFlush::Nothing,
            Some("sealed") => EarlyFlush::Sealed,
            Some("all") => EarlyFlush::All,
            Some(other) => panic!("no such flush: {other}"),
        },
        advice: match command.value("wait") {
            Some(seconds) => Advice::Wait(Duration::from_secs(seconds)),
            None => Advice::Work,
        },
        used: command.has("used"),
        others_idle: command.has("others"),
        period: Duration::from_secs(5),
    }
}

fn shown_flush(flush: EarlyFlush) -> &'static str {
    match flush {
        EarlyFlush::Nothing => "",
        EarlyFlush::Sealed => "flush, ",
        EarlyFlush::All => "seal and flush, ",
    }
}

fn shown_work(picked: Picked) -> String {
    let Picked { group, work } = picked;
    match work {
        Work::LastLevel => format!("group {group}: last level"),
        Work::Tier { from, to } => format!("group {group}: tier {from}..{to}"),
    }
}

fn answer(command: &Command) -> String {
    let rules = PickRules {
        upper_fraction: 0.15,
        floor_bytes: 100,
        tables_max: 6,
    };
    let mut seen = seen(command);
    let shown = match command.name.as_str() {
        "next" => match next(&rules, &seen) {
            Next::Compact(mode, picked) => format!("{mode:?}: {}", shown_work(picked)),
            Next::Refuse(group) => format!("refuse group {group}"),
            Next::MakeRoom(flush) => format!("{}look for space, sleep 1s", shown_flush(flush)),
            Next::Sleep(None) => "sleep".to_owned(),
            Next::Sleep(Some(most)) => format!("sleep {most:?}"),
            Next::Quiet => "quiet".to_owned(),
        },
        "quiet" => {
            let compacted: Option<usize> = command.value("compacted");
            let in_pass = |group| compacted == Some(group);
            let (flush, rest) = quiet(&rules, &mut seen, &calm(command), in_pass);
            let rest = match rest {
                Rest::Sleep(most) => format!("sleep {most:?}"),
                Rest::Compact(picked) => shown_work(picked),
                Rest::EndPass => "end the pass".to_owned(),
            };
            format!("{}{rest}", shown_flush(flush))
        }
        other => panic!("no such command: {other}"),
    };
    format!("{shown}\n")
}

#[test]
fn the_next_work_as_text() {
    script::run("src/compaction/next/next.test", answer);
}
