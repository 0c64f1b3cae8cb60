//! How groups come and go: a group whose last level grew is split at table borders, small neighbours without upper
//! tables are joined. Pure edits over records.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::KeyspaceId;
use crate::version::{GroupEdit, GroupState, TableRecord};

/// About this many groups per keyspace once it is large: fewer make merges long, more make flushed tables small.
const GROUPS_AIM: u64 = 32;

/// Lists a flushed table as newest upper table of every group that it reaches into. All of it lies `below` a key.
pub(crate) fn upper_edits(
    keyspace: KeyspaceId,
    groups: &BTreeMap<Vec<u8>, GroupState>,
    run: u64,
    table: &TableRecord,
    below: Option<&[u8]>,
) -> Vec<GroupEdit> {
    let first = groups
        .range::<[u8], _>((Bound::Unbounded, Bound::Included(&table.first_key[..])))
        .next_back()
        .map(|(low, _)| low);
    let later = groups
        .range::<[u8], _>((
            Bound::Excluded(&table.first_key[..]),
            Bound::Included(&table.last_key[..]),
        ))
        .map(|(low, _)| low)
        .filter(|low| below.is_none_or(|below| low.as_slice() < below));
    let add = |low: &Vec<u8>| GroupEdit::AddUpper {
        keyspace,
        low: low.clone(),
        table: table.clone(),
        run,
    };
    first.into_iter().chain(later).map(add).collect()
}

/// Puts a merge's outputs into the group at `low` and, where they are too much for one group, into new groups to
/// its right. `newer` upper tables of the group (newest first) go with every part that they reach into. `total` is
/// the size of the keyspace's last level before the merge.
pub(crate) fn plan_split(
    keyspace: KeyspaceId,
    low: &[u8],
    outputs: &[TableRecord],
    newer: &[(u64, TableRecord)],
    total: u64,
    partition_bytes: u64,
) -> Vec<GroupEdit> {
    let aim = partition_bytes.max(total / GROUPS_AIM);
    let bytes: u64 = outputs.iter().map(|r| r.file_bytes).sum();
    // Split only what is clearly too large, and then into parts of about the aim: no flapping.
    let parts = if bytes > 2 * aim {
        bytes.div_ceil(aim)
    } else {
        1
    };
    let part_bytes = bytes.div_ceil(parts).max(1);
    let mut edits = Vec::new();
    let mut lows = vec![low.to_vec()];
    let mut filled = 0;
    for record in outputs {
        if filled >= part_bytes {
            let at = record.first_key.clone();
            edits.push(GroupEdit::Split {
                keyspace,
                low: lows[lows.len() - 1].clone(),
                at: at.clone(),
            });
            lows.push(at);
            filled = 0;
        }
        filled += record.file_bytes;
        let low = lows[lows.len() - 1].clone();
        edits.push(GroupEdit::AddLast {
            keyspace,
            low,
            table: record.clone(),
        });
    }
    for (i, part) in lows.iter().enumerate() {
        let high = lows.get(i + 1);
        for (run, table) in newer {
            let reaches =
                (i == 0 || table.last_key >= *part) && high.is_none_or(|h| table.first_key < *h);
            let (keyspace, low) = (keyspace, part.clone());
            match (i == 0, reaches) {
                (true, false) => edits.push(GroupEdit::RemoveUpper {
                    keyspace,
                    low,
                    table: table.id,
                }),
                (false, true) => {
                    edits.push(GroupEdit::AddUpper {
                        keyspace,
                        low,
                        table: table.clone(),
                        run: *run,
                    });
                }
                _ => {}
            }
        }
    }
    edits
}

/// Joins neighbours that are together no larger than a group should be: a queue leaves an empty group behind wherever
/// it has been. Only groups for which `is_quiet` holds: without upper tables, which would become visible beyond the
/// range in which they are up to date, and without a job.
pub(crate) fn plan_joins(
    keyspace: KeyspaceId,
    groups: &BTreeMap<Vec<u8>, GroupState>,
    is_quiet: impl Fn(&[u8], &GroupState) -> bool,
    partition_bytes: u64,
) -> Vec<GroupEdit> {
    let bytes = |group: &GroupState| group.last.iter().map(|r| r.file_bytes).sum::<u64>();
    let aim = partition_bytes.max(groups.values().map(bytes).sum::<u64>() / GROUPS_AIM);
    let mut edits = Vec::new();
    // What the group to the left holds with all that joined it; `None` where it must stay as it is.
    let mut left: Option<u64> = None;
    for (low, group) in groups {
        let own = bytes(group);
        left = match left {
            _ if !is_quiet(low, group) => None,
            Some(bytes) if bytes + own <= aim => {
                let low = low.clone();
                edits.push(GroupEdit::Join { keyspace, low });
                Some(bytes + own)
            }
            _ => Some(own),
        };
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TableId;

    fn record(id: u64, first: &str, last: &str, file_bytes: u64) -> TableRecord {
        TableRecord {
            id: TableId(id),
            uid: id,
            file_bytes,
            entries: 1,
            tombstones: 0,
            raw_bytes: 1,
            first_key: first.into(),
            last_key: last.into(),
            min_seqno: 1,
            max_seqno: 1,
            global_seqno: None,
        }
    }

    fn shown(edits: &[GroupEdit]) -> String {
        let key = |k: &[u8]| String::from_utf8_lossy(k).into_owned();
        let words: Vec<String> = edits
            .iter()
            .map(|edit| match edit {
                GroupEdit::Split { low, at, .. } => format!("split {}|{}", key(low), key(at)),
                GroupEdit::AddLast { low, table, .. } => format!("{}+last{}", key(low), table.id.0),
                GroupEdit::AddUpper { low, table, .. } => format!("{}+up{}", key(low), table.id.0),
                GroupEdit::RemoveUpper { low, table, .. } => format!("{}-up{}", key(low), table.0),
                GroupEdit::Join { low, .. } => format!("join {}", key(low)),
                other => format!("{other:?}"),
            })
            .collect();
        words.join(" ")
    }

    #[test]
    fn a_small_result_stays_one_group() {
        let outputs = [record(1, "a", "c", 100), record(2, "d", "f", 100)];
        let edits = plan_split(KeyspaceId(1), b"", &outputs, &[], 0, 100);
        assert_eq!(shown(&edits), "+last1 +last2");
    }

    #[test]
    fn a_large_result_becomes_groups_and_newer_tables_go_where_they_reach() {
        let outputs = [
            record(1, "a", "c", 100),
            record(2, "d", "f", 100),
            record(3, "g", "k", 100),
        ];
        let newer = [
            (9, record(8, "e", "z", 10)),
            (7, record(6, "a", "b", 10)),
            (5, record(4, "h", "h", 10)),
        ];
        let edits = plan_split(KeyspaceId(1), b"", &outputs, &newer, 0, 100);
        assert_eq!(
            shown(&edits),
            "+last1 split |d d+last2 split d|g g+last3 -up8 -up4 d+up8 g+up8 g+up4"
        );
    }

    #[test]
    fn small_quiet_neighbours_are_joined_up_to_the_size_of_a_group() {
        let group = |low: &str, bytes: u64| {
            let last = match bytes {
                0 => Vec::new(),
                _ => vec![record(bytes, low, low, bytes)],
            };
            let state = GroupState {
                last,
                ..GroupState::default()
            };
            (low.as_bytes().to_vec(), state)
        };
        let sizes = [
            ("", 0),
            ("b", 0),
            ("d", 60),
            ("f", 50),
            ("h", 10),
            ("j", 0),
            ("l", 0),
        ];
        let groups: BTreeMap<_, _> = sizes.map(|(low, bytes)| group(low, bytes)).into();
        let joins = |loud: &str| {
            let is_quiet = |low: &[u8], _: &GroupState| {
                !loud
                    .as_bytes()
                    .contains(&low.first().copied().unwrap_or(b'a'))
            };
            shown(&plan_joins(KeyspaceId(1), &groups, is_quiet, 100))
        };
        assert_eq!(joins(""), "join b join d join h join j join l");
        assert_eq!(joins("d"), "join b join h join j join l");
        assert_eq!(joins("aj"), "join d join h");
        assert_eq!(joins("abdfhjl"), "");
    }

    #[test]
    fn a_flushed_table_is_listed_by_every_group_it_reaches() {
        let lows = ["", "d", "g"];
        let groups = lows
            .iter()
            .map(|l| (l.as_bytes().to_vec(), GroupState::default()))
            .collect();
        let edits = upper_edits(KeyspaceId(1), &groups, 3, &record(5, "e", "g", 1), None);
        assert_eq!(shown(&edits), "d+up5 g+up5");
        let edits = upper_edits(
            KeyspaceId(1),
            &groups,
            3,
            &record(5, "e", "g", 1),
            Some(b"g"),
        );
        assert_eq!(shown(&edits), "d+up5");
        let edits = upper_edits(KeyspaceId(1), &groups, 3, &record(5, "d", "f", 1), None);
        assert_eq!(shown(&edits), "d+up5");
    }
}
