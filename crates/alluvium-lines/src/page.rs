//! The page of the results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::model::{Accesses, CLIENTS, COUNTED, LEADER, Line};
use crate::scenes::Measured;

/// Moves of lines per operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moves {
    pub reads: f64,
    pub writes: f64,
}

/// Moves per operation below this are shown only in the sum.
const SHOWN: f64 = 0.005;

/// Returns the lines that only the driver of this program accesses.
pub fn of_driver(lines: &[Line]) -> Vec<Line> {
    lines.iter().filter(is_of_driver).cloned().collect()
}

fn is_of_driver(line: &&Line) -> bool {
    line.keys()
        .all(|name| name.starts_with(env!("CARGO_CRATE_NAME")))
}

/// Returns the moves per operation of all lines.
pub fn moves(lines: &[Line]) -> Moves {
    moves_of(lines.iter().flat_map(BTreeMap::values))
}

fn moves_of<'a>(accesses: impl Iterator<Item = &'a Accesses>) -> Moves {
    let operations = (CLIENTS * COUNTED) as f64;
    let mut moves = Moves::default();
    for accesses in accesses {
        moves.reads += accesses.read_moves as f64 / operations;
        moves.writes += accesses.write_moves as f64 / operations;
    }
    moves
}

/// Returns the moves per operation without the work of a leader, whose lines move with the lead:
/// once for a group of commits, if clients commit at the same time.
pub fn by_client(lines: &[Line]) -> Moves {
    let all = lines.iter().flatten();
    let outside = all.filter(|(name, _)| !name.ends_with(LEADER));
    moves_of(outside.map(|(_, accesses)| accesses))
}

/// Lines with the same functions: usually one for each client, or parts of one structure.
#[derive(Default)]
struct Group {
    lines: usize,
    functions: Line,
}

/// Returns the lines that move, joined by the functions that access them, most moves first.
fn groups(lines: &[Line]) -> Vec<Group> {
    let mut groups: BTreeMap<BTreeSet<&String>, Group> = BTreeMap::new();
    let moves_at_all = |line: &&Line| {
        let moves = moves_of(line.values());
        moves.reads + moves.writes > 0.0
    };
    for line in lines.iter().filter(moves_at_all) {
        let group = groups.entry(line.keys().collect()).or_default();
        group.lines += 1;
        for (name, accesses) in line {
            let sum = group.functions.entry(name.clone()).or_default();
            sum.read_moves += accesses.read_moves;
            sum.write_moves += accesses.write_moves;
            sum.writes |= accesses.writes;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    let order = |group: &Group| {
        let moves = moves_of(group.functions.values());
        moves.reads + moves.writes
    };
    groups.sort_by(|a, b| order(b).total_cmp(&order(a)));
    groups
}

/// Returns the whole page. `planted` are the moves of the planted scene.
pub fn page(measured: &[Measured], planted: Moves) -> String {
    let of_engine = |own: &Measured| {
        let lines = own.lines.iter().filter(|line| !is_of_driver(line));
        (own.scene, lines.cloned().collect::<Vec<_>>())
    };
    let measured: Vec<_> = measured.iter().map(of_engine).collect();
    let mut page = String::from(HEAD);
    let _ = writeln!(
        page,
        "{CLIENTS} clients in turns, {COUNTED} operations each, after a warm-up.\n"
    );
    page.push_str("| operation | lines taken by a write | by the client itself | bar | lines fetched by a read |\n|---|---|---|---|---|\n");
    for (scene, lines) in &measured {
        let (all, outside) = (moves(lines), by_client(lines));
        let bar = scene.writes_max.map_or(String::new(), |max| {
            let missed = if outside.writes > max + SHOWN {
                ", missed"
            } else {
                ""
            };
            format!("{max}{missed}")
        });
        let _ = writeln!(
            page,
            "| [{}](#{}) | {:.2} | {:.2} | {bar} | {:.2} |",
            scene.name,
            anchor(scene.name),
            all.writes,
            outside.writes,
            all.reads
        );
    }
    let _ = writeln!(
        page,
        "\nA planted counter, to which each client adds in a cached get, is seen: {:.2} lines taken by a write per operation.",
        planted.writes
    );
    for (scene, lines) in &measured {
        section(&mut page, scene.name, scene.about, lines);
    }
    page
}

fn section(page: &mut String, name: &str, about: &str, lines: &[Line]) {
    let _ = write!(page, "\n## {name}\n\nEach operation is {about}.\n\n");
    let mut any = false;
    for group in groups(lines) {
        let moves = moves_of(group.functions.values());
        if moves.reads + moves.writes < SHOWN {
            continue;
        }
        if !any {
            page.push_str("| lines | taken by a write | fetched by a read | function, moves per operation; W: it writes |\n|---|---|---|---|\n");
            any = true;
        }
        let mut functions: Vec<(&String, &Accesses)> = group.functions.iter().collect();
        functions.sort_by_key(|(_, own)| std::cmp::Reverse(own.read_moves + own.write_moves));
        let functions = functions.iter().map(|(name, own)| {
            let moves = moves_of([*own].into_iter());
            let writes = if own.writes { " W" } else { "" };
            format!("`{name}`{writes} {:.2}", moves.reads + moves.writes)
        });
        let _ = writeln!(
            page,
            "| {} | {:.2} | {:.2} | {} |",
            group.lines,
            moves.writes,
            moves.reads,
            functions.collect::<Vec<_>>().join("<br>")
        );
    }
    if !any {
        page.push_str("No line moves.\n");
    }
}

fn anchor(name: &str) -> String {
    let words = name.chars().filter(|c| *c != ',');
    words.map(|c| if c == ' ' { '-' } else { c }).collect()
}

const HEAD: &str = "\
# Cache lines that change their owner

`make lines` writes this page.
A machine with many cores is limited by cache lines that several cores write: each such access waits for another core, and the waits add up with the number of cores.
The program counts them without such a machine: it is instrumented as for the thread sanitizer, and each access of its code calls a model that knows which client holds each line of 64 bytes.
A write *takes* a line that another client holds; a read *fetches* a line that another client, or a background thread, wrote last.
The clients take turns after each operation, so a line that two of them share moves as often as it can; on a real machine it moves at most as often.
The model counts lines and not waits: an operation runs alone, so no client queues for a lock.
A commit alone is its own group and its client the leader: it writes the log, inserts into the memtables and publishes.
With clients at the same time, one of them does this for all that wait, and these lines move once for the group; so the lines of the leader are counted apart from those of the client itself, which enters the queue, locks its row and packs its record.
A line is the leader's or the client's by the call stack of its first move.
It does not see accesses of C libraries (the allocator, zstd) and of Rust's precompiled library.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(functions: &[(&str, u64, u64, bool)]) -> Line {
        let accesses = |&(name, read_moves, write_moves, writes): &(&str, u64, u64, bool)| {
            let accesses = Accesses {
                read_moves,
                write_moves,
                writes,
            };
            (name.to_string(), accesses)
        };
        functions.iter().map(accesses).collect()
    }

    #[test]
    fn moves_are_per_operation_and_the_leader_is_set_apart() {
        let all = (CLIENTS * COUNTED) as u64;
        let lines = [
            line(&[
                ("alluvium::wal::write (leader)", 0, all / 2, true),
                ("alluvium::wal::push (leader)", 0, all / 2, true),
                ("get", all / 2, 0, false),
            ]),
            line(&[("put", 0, 2 * all, true)]),
        ];
        let expected = Moves {
            reads: 0.5,
            writes: 3.0,
        };
        assert_eq!(moves(&lines), expected);
        assert_eq!(
            by_client(&lines),
            Moves {
                writes: 2.0,
                ..expected
            }
        );
    }

    #[test]
    fn lines_with_the_same_functions_are_one_row_and_still_ones_none() {
        let lines = [
            line(&[("a", 0, 4000, true), ("b", 8000, 0, false)]),
            line(&[("a", 0, 4000, true), ("b", 0, 0, false)]),
            line(&[("a", 0, 0, true)]),
        ];
        let mut page = String::new();
        section(&mut page, "scan", "a scan", &lines);
        assert!(
            page.ends_with("| 2 | 1.00 | 1.00 | `a` W 1.00<br>`b` 1.00 |\n"),
            "{page}"
        );
        let mut page = String::new();
        section(&mut page, "scan", "a scan", &lines[2..]);
        assert!(page.ends_with("No line moves.\n"), "{page}");
    }
}
