//! Tests of applying edits: the resulting groups and keyspaces, and the contradictions that are
//! refused.

use super::*;

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn table(id: u64, first: &str, last: &str) -> TableRecord {
    TableRecord {
        id: TableId(id),
        uid: id,
        file_bytes: 0,
        entries: 0,
        tombstones: 0,
        raw_bytes: 0,
        first_key: first.into(),
        last_key: last.into(),
        min_seqno: 1,
        max_seqno: 2,
        global_seqno: None,
    }
}

fn add_upper(low: &str, table: TableRecord, run: u64) -> GroupEdit {
    GroupEdit::AddUpper {
        keyspace: KEYSPACE,
        low: low.into(),
        table,
        run,
    }
}

fn add_last(low: &str, table: TableRecord) -> GroupEdit {
    GroupEdit::AddLast {
        keyspace: KEYSPACE,
        low: low.into(),
        table,
    }
}

fn remove_last(low: &str, table: u64) -> GroupEdit {
    GroupEdit::RemoveLast {
        keyspace: KEYSPACE,
        low: low.into(),
        table: TableId(table),
    }
}

fn remove_upper(low: &str, table: u64) -> GroupEdit {
    GroupEdit::RemoveUpper {
        keyspace: KEYSPACE,
        low: low.into(),
        table: TableId(table),
    }
}

fn split(low: &str, at: &str) -> GroupEdit {
    GroupEdit::Split {
        keyspace: KEYSPACE,
        low: low.into(),
        at: at.into(),
    }
}

fn join(low: &str) -> GroupEdit {
    GroupEdit::Join {
        keyspace: KEYSPACE,
        low: low.into(),
    }
}

fn groups(groups: Vec<GroupEdit>) -> VersionEdit {
    VersionEdit {
        groups,
        ..VersionEdit::default()
    }
}

fn create(id: u32, name: &str) -> VersionEdit {
    VersionEdit {
        next_table: Some(TableId(100)),
        next_keyspace: Some(KeyspaceId(id + 1)),
        created: vec![KeyspaceRecord {
            id: KeyspaceId(id),
            name: name.to_owned(),
            options: vec![7],
            created_seqno: 3,
        }],
        ..VersionEdit::default()
    }
}

fn one_keyspace() -> ManifestState {
    let mut state = ManifestState::default();
    state.apply(&create(1, "links")).unwrap();
    state
}

/// Returns the tables of each group, upper ones first: `low: 5 4 | 2 3`.
fn picture(state: &ManifestState) -> Vec<String> {
    let groups = &state.keyspaces[&KEYSPACE].groups;
    let ids = |tables: &mut dyn Iterator<Item = &TableRecord>| {
        let ids: Vec<String> = tables.map(|table| table.id.0.to_string()).collect();
        ids.join(" ")
    };
    groups
        .iter()
        .map(|(low, group)| {
            let upper = ids(&mut group.upper.iter().map(|(_, table)| table));
            let last = ids(&mut group.last.iter());
            format!("{}: {upper} | {last}", low.escape_ascii())
        })
        .collect()
}

#[test]
fn groups_list_upper_tables_newest_first_and_the_last_level_in_key_order() {
    let mut state = one_keyspace();
    let edit = groups(vec![
        add_upper("", table(1, "k", "p"), 10),
        add_upper("", table(2, "a", "z"), 12),
        add_upper("", table(3, "a", "j"), 10),
        add_last("", table(5, "m", "z")),
        add_last("", table(4, "a", "l")),
    ]);
    state.apply(&edit).unwrap();
    assert_eq!(picture(&state), [": 2 3 1 | 4 5"]);
    let edit = groups(vec![
        remove_upper("", 3),
        remove_upper("", 2),
        remove_last("", 4),
    ]);
    state.apply(&edit).unwrap();
    assert_eq!(picture(&state), [": 1 | 5"]);
    let listed: Vec<u64> = state.table_ids().map(|id| id.0).collect();
    assert_eq!(listed, [1, 5]);
}

#[test]
fn a_split_starts_empty_and_a_join_unites() {
    let mut state = one_keyspace();
    let (upper, right) = (table(1, "a", "z"), table(3, "m", "z"));
    let before = groups(vec![
        add_upper("", upper.clone(), 9),
        add_last("", table(2, "a", "l")),
        add_last("", right.clone()),
    ]);
    state.apply(&before).unwrap();
    let edit = groups(vec![
        split("", "m"),
        add_upper("m", upper, 9),
        add_upper("m", table(4, "n", "o"), 11),
        remove_last("", 3),
        add_last("m", right),
    ]);
    state.apply(&edit).unwrap();
    assert_eq!(picture(&state), [": 1 | 2", "m: 4 1 | 3"]);
    state.apply(&groups(vec![join("m")])).unwrap();
    assert_eq!(picture(&state), [": 4 1 | 2 3"]);
    // The shared table is listed once now: one removal forgets it.
    state.apply(&groups(vec![remove_upper("", 1)])).unwrap();
    assert!(!state.lists_table(TableId(1)));
}

#[test]
fn keyspaces_are_created_renamed_and_dropped_with_their_tables() {
    let mut state = one_keyspace();
    state.apply(&create(2, "nodes")).unwrap();
    let table = groups(vec![add_last("", table(1, "a", "b"))]);
    state.apply(&table).unwrap();
    let swap = VersionEdit {
        renamed: vec![
            (KeyspaceId(1), "nodes".to_owned()),
            (KeyspaceId(2), "links".to_owned()),
        ],
        options_changed: vec![(KeyspaceId(2), vec![8])],
        flushed_seqno: vec![(KeyspaceId(2), 40)],
        ..VersionEdit::default()
    };
    state.apply(&swap).unwrap();
    let links = &state.keyspaces[&KeyspaceId(2)];
    assert_eq!(links.name, "links");
    assert_eq!((&links.options[..], links.flushed_seqno), (&[8][..], 40));
    // A new keyspace may take the name in the edit that drops its previous holder.
    let mut replace = create(3, "nodes");
    replace.dropped = vec![(KeyspaceId(1), 50)];
    state.apply(&replace).unwrap();
    assert_eq!(state.keyspaces.len(), 2);
    assert_eq!(state.table_ids().count(), 0);
}

#[test]
fn numbers_only_rise() {
    let mut state = one_keyspace();
    let numbers = |n| VersionEdit {
        next_table: Some(TableId(n)),
        next_segment: Some(SegmentId(n)),
        last_seqno: Some(n),
        oldest_segment: Some(SegmentId(n)),
        ..VersionEdit::default()
    };
    state.apply(&numbers(200)).unwrap();
    let high = state.clone();
    state.apply(&numbers(150)).unwrap();
    assert_eq!(state, high);
}

#[test]
fn one_edit_rebuilds_the_whole_state() {
    let mut state = one_keyspace();
    let edit = groups(vec![
        split("", "m"),
        split("m", "t"),
        add_upper("", table(1, "a", "z"), 9),
        add_upper("m", table(1, "a", "z"), 9),
        add_last("t", table(2, "t", "u")),
    ]);
    state.apply(&edit).unwrap();
    state.apply(&create(5, "counts")).unwrap();
    let mut again = ManifestState::default();
    again.apply(&state.to_edit()).unwrap();
    assert_eq!(again, state);
}

#[test]
fn contradictions_are_refused() {
    let mut other_file = table(1, "a", "b");
    other_file.uid = 99;
    let flushed = |seqno| VersionEdit {
        flushed_seqno: vec![(KEYSPACE, seqno)],
        ..VersionEdit::default()
    };
    let drop_unknown = VersionEdit {
        dropped: vec![(KeyspaceId(7), 1)],
        ..VersionEdit::default()
    };
    let mut above_next = create(9, "late");
    above_next.next_keyspace = None;
    let refused = [
        ("absent table", groups(vec![remove_upper("", 50)])),
        ("absent last table", groups(vec![remove_last("", 50)])),
        (
            "listed twice",
            groups(vec![add_upper("", table(1, "a", "b"), 8)]),
        ),
        (
            "two files, one id",
            groups(vec![split("", "m"), add_last("m", other_file)]),
        ),
        (
            "id not handed out",
            groups(vec![add_last("", table(100, "x", "y"))]),
        ),
        ("overlap", groups(vec![add_last("", table(3, "e", "k"))])),
        ("touching", groups(vec![add_last("", table(3, "f", "k"))])),
        (
            "outside the group",
            groups(vec![split("", "m"), add_last("m", table(3, "k", "n"))]),
        ),
        ("cut by a border", groups(vec![split("", "d")])),
        ("border twice", groups(vec![split("", "m"), split("", "m")])),
        ("border at the start", groups(vec![split("", "")])),
        (
            "border beyond the group",
            groups(vec![split("", "m"), split("", "n")]),
        ),
        ("first group joined", groups(vec![join("")])),
        (
            "unknown group",
            groups(vec![add_last("q", table(3, "r", "s"))]),
        ),
        ("name taken", create(2, "links")),
        ("keyspace id used", create(1, "other")),
        ("keyspace id not handed out", above_next),
        ("unknown keyspace", drop_unknown),
        ("flushed falls", flushed(10)),
    ];
    let mut state = one_keyspace();
    let edit = groups(vec![
        add_upper("", table(1, "a", "b"), 9),
        add_last("", table(2, "c", "f")),
    ]);
    state.apply(&edit).unwrap();
    state.apply(&flushed(20)).unwrap();
    for (what, edit) in refused {
        assert!(state.clone().apply(&edit).is_err(), "{what}");
    }
    // A dropped keyspace's id stays used.
    let dropped = VersionEdit {
        dropped: vec![(KEYSPACE, 30)],
        ..VersionEdit::default()
    };
    state.apply(&dropped).unwrap();
    assert!(state.apply(&create(1, "again")).is_err());
}

#[test]
fn renamed_keyspaces_may_swap_names_and_each_name_has_one_keyspace() {
    let record = |id, name: &str| KeyspaceRecord {
        id: KeyspaceId(id),
        name: name.to_owned(),
        options: Vec::new(),
        created_seqno: 1,
    };
    let renamed = |renamed: &[(u32, &str)]| VersionEdit {
        renamed: (renamed.iter())
            .map(|(id, name)| (KeyspaceId(*id), (*name).to_owned()))
            .collect(),
        ..VersionEdit::default()
    };
    let mut state = ManifestState::default();
    let create = VersionEdit {
        next_keyspace: Some(KeyspaceId(3)),
        created: vec![record(1, "a"), record(2, "b")],
        ..VersionEdit::default()
    };
    state.apply(&create).expect("new names");
    state
        .apply(&renamed(&[(1, "b"), (2, "a")]))
        .expect("a swap");
    state
        .apply(&renamed(&[(1, "a"), (1, "c")]))
        .expect("the last one counts");
    let names = |state: &ManifestState| -> Vec<String> {
        state.keyspaces.values().map(|k| k.name.clone()).collect()
    };
    assert_eq!(names(&state), ["c", "a"]);
    let taken = state.clone().apply(&renamed(&[(1, "a")]));
    assert_eq!(
        taken.expect_err("taken").expected,
        "distinct keyspace names"
    );
    let drop_and_create = VersionEdit {
        next_keyspace: Some(KeyspaceId(4)),
        dropped: vec![(KeyspaceId(2), 2)],
        created: vec![record(3, "a")],
        ..VersionEdit::default()
    };
    state.apply(&drop_and_create).expect("the name is free");
    let twice = VersionEdit {
        next_keyspace: Some(KeyspaceId(6)),
        created: vec![record(4, "d"), record(5, "d")],
        ..VersionEdit::default()
    };
    state.apply(&twice).expect_err("one name twice");
}

fn prepare(xid: &str, tables: Vec<(KeyspaceId, TableRecord)>) -> VersionEdit {
    VersionEdit {
        prepared_tables: vec![PreparedTables {
            xid: xid.into(),
            tables,
        }],
        ..VersionEdit::default()
    }
}

fn resolve(xid: &str, groups: Vec<GroupEdit>) -> VersionEdit {
    VersionEdit {
        resolved: vec![xid.into()],
        groups,
        ..VersionEdit::default()
    }
}

#[test]
fn tables_of_prepared_transactions_are_listed_until_the_decision() {
    let listed = |state: &ManifestState| -> Vec<u64> { state.table_ids().map(|id| id.0).collect() };
    let mut state = one_keyspace();
    let tables = |ids: [u64; 2]| ids.map(|id| (KEYSPACE, table(id, "a", "b"))).to_vec();
    state.apply(&prepare("x", tables([1, 2]))).expect("prepare");
    state.apply(&prepare("y", tables([3, 4]))).expect("prepare");
    let mut copy = ManifestState::default();
    copy.apply(&state.to_edit()).expect("one edit");
    assert_eq!(copy, state);
    state.apply(&resolve("x", Vec::new())).expect("roll back");
    assert_eq!(listed(&state), [3, 4]);
    let moved = add_upper("", table(3, "a", "b"), 1);
    state.apply(&resolve("y", vec![moved])).expect("commit");
    assert_eq!(listed(&state), [3]);
    assert!(state.prepared_tables.is_empty());
}

#[test]
fn contradictory_prepared_transactions_are_refused() {
    let mut state = one_keyspace();
    let one = |id| vec![(KEYSPACE, table(id, "a", "b"))];
    state.apply(&prepare("x", one(1))).expect("prepare");
    let unknown = vec![(KeyspaceId(9), table(2, "a", "b"))];
    let wrong = [
        prepare("x", one(2)),
        prepare("z", unknown),
        prepare("z", one(1_000_000)),
        resolve("z", Vec::new()),
    ];
    for edit in wrong {
        assert!(state.clone().apply(&edit).is_err(), "{edit:?}");
    }
}
