//! Splits and joins of groups. A group with a last level that has grown is split at table borders,
//! and small neighbors without upper tables are joined. Pure functions that return manifest edits.

use crate::base::KeyspaceId;
use crate::version::{GroupEdit, GroupState, Groups, TableRecord};

/// Target number of groups in a large keyspace. Fewer groups make compactions long, more make
/// flushed tables small.
const GROUPS_AIM: u64 = 32;

/// Returns edits that list a flushed table as the newest upper table of every group it overlaps.
/// With `below`, the whole table lies below that key.
pub(crate) fn upper_edits(
    keyspace: KeyspaceId,
    groups: &Groups,
    run: u64,
    table: &TableRecord,
    below: Option<&[u8]>,
) -> Vec<GroupEdit> {
    let first = groups.low_of(&table.first_key);
    let later = groups
        .lows_after(&table.first_key)
        .take_while(|low| **low <= table.last_key)
        .filter(|low| below.is_none_or(|below| low.as_slice() < below));
    let add = |low: &Vec<u8>| GroupEdit::AddUpper {
        keyspace,
        low: low.clone(),
        table: table.clone(),
        run,
    };
    first.into_iter().chain(later).map(add).collect()
}

/// Returns edits that put the outputs of a compaction into the group at `low`.
///
/// Outputs that are too large for one group go into new groups to its right. `newer` are the
/// group's remaining upper tables, newest first; each goes into every part that it overlaps.
/// `total` is the size of the keyspace's last level before the compaction.
pub(crate) fn plan_split(
    keyspace: KeyspaceId,
    low: &[u8],
    outputs: &[TableRecord],
    newer: &[(u64, TableRecord)],
    total: u64,
    table_bytes: u64,
) -> Vec<GroupEdit> {
    let aim = table_bytes.max(total / GROUPS_AIM);
    let bytes: u64 = outputs.iter().map(|r| r.file_bytes).sum();
    // Only a group that is clearly too large is split, into parts of about the target size. This
    // avoids alternating splits and joins.
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
    edits.extend(share_uppers(keyspace, &lows, newer));
    edits
}

/// Splits a group into parts starting at `lows` and distributes its upper tables: each goes into
/// every part that it overlaps.
fn share_uppers(
    keyspace: KeyspaceId,
    lows: &[Vec<u8>],
    uppers: &[(u64, TableRecord)],
) -> Vec<GroupEdit> {
    let mut edits = Vec::new();
    for (i, part) in lows.iter().enumerate() {
        for (run, table) in uppers {
            let low = part.clone();
            match (i == 0, reaches(lows, i, table)) {
                (true, false) => edits.push(GroupEdit::RemoveUpper {
                    keyspace,
                    low,
                    table: table.id,
                }),
                (false, true) => edits.push(GroupEdit::AddUpper {
                    keyspace,
                    low,
                    table: table.clone(),
                    run: *run,
                }),
                _ => {}
            }
        }
    }
    edits
}

/// Returns true if a table that overlaps a group also overlaps part `i` of the parts starting at
/// `lows`.
fn reaches(lows: &[Vec<u8>], i: usize, table: &TableRecord) -> bool {
    let above = i == 0 || table.last_key >= lows[i];
    above && lows.get(i + 1).is_none_or(|high| table.first_key < *high)
}

/// A table and its destination: an upper table with this run number, or the last level for `None`.
pub(crate) type Placed = (Option<u64>, TableRecord);

/// Returns true if a table can go straight into the last level.
///
/// The table must lie within one group and overlap no table of that group, neither an upper table
/// (tombstones included) nor one of the last level. Groups for which `is_busy` returns true are
/// left to their compactions.
pub(crate) fn fits_last_level(
    groups: &Groups,
    table: &TableRecord,
    is_busy: impl Fn(&[u8]) -> bool,
) -> bool {
    let Some(low) = groups.low_of(&table.first_key) else {
        return false;
    };
    let inside = groups
        .high_of(low)
        .is_none_or(|high| &table.last_key[..] < high);
    let apart = |t: &TableRecord| t.last_key < table.first_key || table.last_key < t.first_key;
    inside && groups[low].tables().all(apart) && !is_busy(low)
}

/// Returns edits that put tables of an ingest or a flush, sorted by first key, into the groups they
/// overlap.
///
/// A group that becomes too large is split, and its new tables are then compacted in pieces. Tables
/// that overlap each other lie together in one group.
pub(crate) fn plan_ingest(
    keyspace: KeyspaceId,
    groups: &Groups,
    tables: &[Placed],
    table_bytes: u64,
) -> Vec<GroupEdit> {
    let new: u64 = tables.iter().map(|(_, table)| table.file_bytes).sum();
    let total = groups.last_bytes() + new;
    let aim = table_bytes.max(total / GROUPS_AIM);
    let mut edits = Vec::new();
    for (low, group) in groups.iter() {
        let high = groups.high_of(low);
        // Tables are sorted, so those of one group are adjacent.
        let from = tables.partition_point(|(_, t)| t.last_key < *low);
        let to = high.map_or(tables.len(), |high| {
            tables.partition_point(|(_, t)| &t.first_key[..] < high)
        });
        if from < to {
            edits.extend(plan_group(keyspace, low, group, &tables[from..to], aim));
        }
    }
    edits
}

/// Returns the edits of [`plan_ingest`] for one group.
fn plan_group(
    keyspace: KeyspaceId,
    low: &[u8],
    group: &GroupState,
    tables: &[Placed],
    aim: u64,
) -> Vec<GroupEdit> {
    let lows = part_lows(low, group, tables, aim);
    let part = |key: &[u8]| &lows[lows.partition_point(|l| &l[..] <= key).max(1) - 1];
    let mut edits = Vec::new();
    for pair in lows.windows(2) {
        edits.push(GroupEdit::Split {
            keyspace,
            low: pair[0].clone(),
            at: pair[1].clone(),
        });
    }
    for table in &group.last {
        let part = part(&table.first_key);
        if part != low {
            edits.push(GroupEdit::RemoveLast {
                keyspace,
                low: low.to_vec(),
                table: table.id,
            });
            edits.push(GroupEdit::AddLast {
                keyspace,
                low: part.clone(),
                table: table.clone(),
            });
        }
    }
    edits.extend(share_uppers(keyspace, &lows, &group.upper));
    for (run, table) in tables {
        let Some(run) = *run else {
            edits.push(GroupEdit::AddLast {
                keyspace,
                low: part(&table.first_key).clone(),
                table: table.clone(),
            });
            continue;
        };
        let reached = (0..lows.len()).filter(|&i| reaches(&lows, i, table));
        edits.extend(reached.map(|i| GroupEdit::AddUpper {
            keyspace,
            low: lows[i].clone(),
            table: table.clone(),
            run,
        }));
    }
    edits
}

/// Returns the low keys of the parts that a group is split into, starting with its own low key. A
/// part starts only at a key that cuts no table of the last level and no ingested table.
fn part_lows(low: &[u8], group: &GroupState, tables: &[Placed], aim: u64) -> Vec<Vec<u8>> {
    let new = tables.iter().map(|(_, table)| table);
    let mut all: Vec<&TableRecord> = group.last.iter().chain(new).collect();
    all.sort_by(|a, b| a.first_key.cmp(&b.first_key));
    let bytes: u64 = all.iter().map(|r| r.file_bytes).sum();
    let mut lows = vec![low.to_vec()];
    if bytes <= 2 * aim {
        return lows;
    }
    let part_bytes = bytes.div_ceil(bytes.div_ceil(aim));
    let (mut filled, mut end): (u64, &[u8]) = (0, &[]);
    for record in all {
        if filled >= part_bytes && end < &record.first_key[..] {
            lows.push(record.first_key.clone());
            filled = 0;
        }
        filled += record.file_bytes;
        end = end.max(&record.last_key);
    }
    lows
}

/// Returns edits that join neighboring groups up to the target size. A queue, for example, leaves
/// empty groups where its rows have been.
///
/// Joins only groups for which `is_quiet` returns true: those without a job and without upper
/// tables. Upper tables would become visible outside the range in which they are up to date.
pub(crate) fn plan_joins(
    keyspace: KeyspaceId,
    groups: &Groups,
    is_quiet: impl Fn(&[u8], &GroupState) -> bool,
    table_bytes: u64,
) -> Vec<GroupEdit> {
    let bytes = |group: &GroupState| group.last.iter().map(|r| r.file_bytes).sum::<u64>();
    let aim = table_bytes.max(groups.last_bytes() / GROUPS_AIM);
    let mut edits = Vec::new();
    // Bytes of the group to the left, with all groups that joined it; `None` if it must stay as it
    // is.
    let mut left: Option<u64> = None;
    for (low, group) in groups.iter() {
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
                GroupEdit::RemoveLast { low, table, .. } => format!("{}-last{}", key(low), table.0),
                GroupEdit::Join { low, .. } => format!("join {}", key(low)),
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

    /// Builds groups from low keys, with upper and last-level tables.
    fn groups(list: &[(&str, &[TableRecord], &[TableRecord])]) -> Groups {
        let group = |(low, upper, last): &(&str, &[TableRecord], &[TableRecord])| {
            let upper = upper.iter().map(|r| (r.id.0, r.clone())).collect();
            let last = last.to_vec();
            (low.as_bytes().to_vec(), GroupState { upper, last })
        };
        list.iter().map(group).collect()
    }

    #[test]
    fn a_table_goes_into_the_last_level_only_where_nothing_else_shares_its_range() {
        let groups = groups(&[
            ("", &[record(1, "c", "d", 10)], &[record(2, "f", "g", 10)]),
            ("m", &[], &[]),
        ]);
        let fits = |first, last| {
            fits_last_level(&groups, &record(9, first, last, 10), |low| low == b"busy")
        };
        assert!(fits("a", "b") && fits("e", "e") && fits("h", "l") && fits("m", "z"));
        assert!(!fits("a", "c") && !fits("d", "e"), "an upper table");
        assert!(!fits("e", "f") && !fits("a", "z"), "the last level");
        assert!(!fits("l", "m"), "two groups");
        assert!(!fits_last_level(
            &groups,
            &record(9, "n", "o", 10),
            |low| low == b"m"
        ));
    }

    #[test]
    fn an_ingest_that_makes_a_group_too_large_splits_it_where_no_table_is_cut() {
        let groups = groups(&[
            ("", &[record(1, "c", "r", 10)], &[record(2, "f", "k", 10)]),
            ("t", &[], &[]),
        ]);
        let new = |id, first, last| record(id, first, last, 100);
        let placed = [
            (None, new(11, "a", "b")),
            (Some(31), new(12, "d", "g")),
            (Some(32), new(13, "h", "i")),
            (Some(33), new(14, "j", "j")),
            (None, new(15, "s", "s")),
            (Some(34), new(16, "sx", "v")),
        ];
        let plan = |aim| shown(&plan_ingest(KeyspaceId(1), &groups, &placed, aim));
        assert_eq!(plan(1000), "+last11 +up12 +up13 +up14 +last15 +up16 t+up16");
        // Not at h or j: these lie inside table 2 of the last level.
        assert_eq!(
            plan(100),
            "split |d split d|s split s|sx -last2 d+last2 d+up1 \
             +last11 d+up12 d+up13 d+up14 s+last15 sx+up16 t+up16"
        );
    }

    #[test]
    fn small_quiet_neighbors_are_joined_up_to_the_size_of_a_group() {
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
        let groups = sizes
            .map(|(low, bytes)| group(low, bytes))
            .into_iter()
            .collect();
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
