//! Check of the manifest's groups for faults that no table file shows alone: order, overlap, key
//! range, sequence numbers. Pure.

use std::path::Path;

use crate::base::{KeyspaceId, SeqNo};
use crate::error::Error;
use crate::version::state::KeyspaceState;
use crate::version::{GroupState, ManifestState, TableRecord};

/// Checks all groups of all keyspaces.
pub(super) fn check(dir: &Path, state: &ManifestState, report: &mut dyn FnMut(Error)) {
    for (&id, keyspace) in &state.keyspaces {
        let lows: Vec<&Vec<u8>> = keyspace.groups.iter().map(|(low, _)| low).collect();
        for (at, (low, group)) in keyspace.groups.iter().enumerate() {
            let high = lows.get(at + 1).map(|low| low.as_slice());
            let found = check_group(keyspace, low, high, group, state.last_seqno);
            for found in found {
                let expected = "disjoint, ordered tables inside the group";
                let found = format!("{found} in {}", named(id, low));
                let path = dir.join("CURRENT");
                report(Error::corruption(&path, 0, "group", expected, found));
            }
        }
    }
}

fn named(id: KeyspaceId, low: &[u8]) -> String {
    format!(
        "the group of {id} that starts at \"{}\"",
        low.escape_ascii()
    )
}

fn check_group(
    keyspace: &KeyspaceState,
    low: &[u8],
    high: Option<&[u8]>,
    group: &GroupState,
    last_seqno: SeqNo,
) -> Vec<String> {
    let mut found = Vec::new();
    for table in &group.last {
        let inside = table.first_key.as_slice() >= low
            && high.is_none_or(|high| table.last_key.as_slice() < high);
        if !inside {
            found.push(format!("{} leaves its range", table.id));
        }
    }
    for pair in group.last.windows(2) {
        if pair[0].last_key >= pair[1].first_key {
            found.push(format!("{} and {} overlap", pair[0].id, pair[1].id));
        }
    }
    for pair in group.upper.windows(2) {
        let ((run, newer), (older_run, older)) = (&pair[0], &pair[1]);
        // `<` rather than `<=`: the tables of one ingest have the same seqno, and no key in common.
        if run <= older_run || seqnos(newer).0 < seqnos(older).1 {
            found.push(format!("{} is not newer than {}", newer.id, older.id));
        }
    }
    let upper = group.upper.iter().map(|(_, table)| table);
    // Flushed rows have seqnos up to the flushed one. Ingested rows were never in memory and may be
    // above it.
    let limit = last_seqno.max(keyspace.flushed_seqno);
    let above = |table: &&TableRecord| seqnos(table).1 > limit;
    for table in upper.chain(&group.last).filter(above) {
        found.push(format!("{} has commits above {limit}", table.id));
    }
    found
}

/// Returns the smallest and the largest seqno of a table, as readers see them.
fn seqnos(table: &TableRecord) -> (SeqNo, SeqNo) {
    let floor = table.global_seqno.unwrap_or(0);
    (table.min_seqno.max(floor), table.max_seqno.max(floor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TableId;

    fn table(id: u64, first: &str, last: &str, seqnos: (SeqNo, SeqNo)) -> TableRecord {
        TableRecord {
            id: TableId(id),
            uid: id,
            file_bytes: 100,
            entries: 2,
            tombstones: 0,
            raw_bytes: 10,
            first_key: first.into(),
            last_key: last.into(),
            min_seqno: seqnos.0,
            max_seqno: seqnos.1,
            global_seqno: None,
        }
    }

    fn found(group: &GroupState, limit: SeqNo) -> Vec<String> {
        let keyspace = KeyspaceState {
            name: "k".into(),
            options: Vec::new(),
            created_seqno: 1,
            flushed_seqno: limit,
            groups: Default::default(),
        };
        check_group(&keyspace, b"c", Some(b"m"), group, limit)
    }

    #[test]
    fn tables_out_of_place_or_order_are_found_one_by_one() {
        let good = GroupState {
            upper: vec![
                (5, table(4, "a", "z", (30, 40))),
                (3, table(3, "a", "z", (20, 29))),
            ],
            last: vec![table(1, "c", "e", (0, 9)), table(2, "f", "l", (0, 19))],
        };
        assert!(found(&good, 40).is_empty());
        assert_eq!(found(&good, 39), ["000004.sst has commits above 39"]);
        let mut bad = good.clone();
        bad.upper.swap(0, 1);
        bad.last[0].first_key = b"b".to_vec();
        bad.last[1].first_key = b"e".to_vec();
        bad.last[1].last_key = b"m".to_vec();
        let expected = [
            "000001.sst leaves its range",
            "000002.sst leaves its range",
            "000001.sst and 000002.sst overlap",
            "000003.sst is not newer than 000004.sst",
        ];
        assert_eq!(found(&bad, 40), expected);
    }
}
