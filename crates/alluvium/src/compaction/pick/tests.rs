//! Tests of picking as text: `pick.test` lists groups and the expected pick.

use alluvium_testkit::script::{self, Command};

use super::*;

/// Parses a line of input, one group: `upper=BYTES[/TOMBSTONE_BYTES],...` newest first,
/// `last=BYTES`, `entries=N`, `dead=N` (upper tombstones that no reader needs), `last_dead=N`
/// (entries of the last level that no reader needs), `expired=N`, `victims=BYTES`, `seeks=N` (extra
/// seeks of scans), `busy`. Omitted words are 0.
pub fn group(line: &str) -> GroupSize {
    let mut group = GroupSize::default();
    for word in line.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, "0"));
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "upper" => group.upper = value.split(',').map(upper).collect(),
            "last" => group.last_bytes = number(),
            "entries" => group.entries = number(),
            "dead" => group.upper_dead = number(),
            "last_dead" => group.last_dead = number(),
            "expired" => group.expired = number(),
            "victims" => group.victim_bytes = number(),
            "seeks" => group.needless_seeks = number(),
            "busy" => group.busy = true,
            other => panic!("no such word: {other}"),
        }
    }
    group
}

fn upper(text: &str) -> UpperSize {
    let (bytes, tombstone_bytes) = text.split_once('/').unwrap_or((text, "0"));
    let number = |text: &str| text.parse::<u64>().expect("a number");
    UpperSize {
        bytes: number(bytes),
        tombstone_bytes: number(tombstone_bytes),
    }
}

fn answer(command: &Command) -> String {
    let rules = PickRules {
        upper_fraction: command.value("fraction").unwrap_or(0.15),
        floor_bytes: command.value("floor").unwrap_or(100),
        tables_max: command.value("tables").unwrap_or(6),
    };
    let groups: Vec<GroupSize> = command.input.lines().map(group).collect();
    let picked = match command.name.as_str() {
        "pick" => rules.pick(&groups),
        "idle" => rules.pick_idle(&groups),
        "reclaim" => rules.pick_reclaim(&groups),
        "scans" => rules.pick_read_triggered(&groups, command.value("share").unwrap_or(1.0)),
        "urgent" => rules.pick_urgent(&groups),
        other => panic!("no such command: {other}"),
    };
    match picked {
        None => "nothing\n".to_owned(),
        Some(Picked { group, work }) => match work {
            Work::LastLevel => format!("group {group}: last level\n"),
            Work::Tier { from, to } => format!("group {group}: tier {from}..{to}\n"),
        },
    }
}

#[test]
fn picking_as_text() {
    let file = "src/compaction/pick/pick.test";
    script::run(file, answer);
}
