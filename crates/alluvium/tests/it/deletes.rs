//! Every short history of one key, and the entries that remain of deleted rows.

use alluvium::{Database, Keyspace, Options, Snapshot, Stats, WriteBatch};
use alluvium_testkit::random::Rng;

use crate::fixture::{all, database, of, open, text, tiny};

/// One step of a history of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Insert,
    Put,
    Delete,
    /// Delete and put in one commit: the put must still hide the versions below it.
    Replace,
    /// A range delete over this key.
    DeleteRange,
    /// A range delete followed by an insert in one commit; it must not hide the insert.
    ReplaceRange,
}

const STEPS: [Step; 6] = [
    Step::Insert,
    Step::Put,
    Step::Delete,
    Step::Replace,
    Step::DeleteRange,
    Step::ReplaceRange,
];
/// Background work after a step.
const WORK: [&str; 3] = ["none", "flush", "settle"];
const LENGTH: usize = 4;

impl Step {
    fn leaves_a_row(self) -> bool {
        !matches!(self, Step::Delete | Step::DeleteRange)
    }
}

/// Returns all histories of `length` steps that keep the promise of `insert`.
fn histories(length: usize) -> Vec<Vec<Step>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        let longer = |history: &Vec<Step>| {
            let present = history.last().is_some_and(|step| step.leaves_a_row());
            let allowed = STEPS
                .into_iter()
                .filter(move |s| *s != Step::Insert || !present);
            let history = history.clone();
            allowed.map(move |step| [&history[..], &[step]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Adds one step to a commit; the value of step `n` is `n`.
fn add(batch: &mut WriteBatch, k: &Keyspace, key: &str, step: Step, n: usize) {
    let (key, value) = (key.as_bytes(), n.to_string());
    let end = [key, &[0]].concat();
    match step {
        Step::Insert => batch.insert(k, key, value.as_bytes()),
        Step::Put => batch.put(k, key, value.as_bytes()),
        Step::Delete => batch.delete(k, key),
        Step::Replace => batch
            .delete(k, key)
            .and_then(|()| batch.insert(k, key, value.as_bytes())),
        Step::DeleteRange => batch.delete_range(k, key, &end),
        Step::ReplaceRange => batch
            .delete_range(k, key, &end)
            .and_then(|()| batch.insert(k, key, value.as_bytes())),
    }
    .expect("write");
}

fn value_after(history: &[Step]) -> Option<String> {
    let last = history.len().checked_sub(1)?;
    history[last].leaves_a_row().then(|| last.to_string())
}

/// Runs all histories together, each on its own key. Does the work that `plan` names after each
/// step. A snapshot is taken after step `held.0` and dropped after step `held.1`.
fn run(plan: [&str; LENGTH], held: Option<(usize, usize)>) {
    // Either all steps without work between them share one memtable, or each commit has its own
    // memtable and every flushed table is due for compaction.
    for memtable_bytes in [1 << 20, 1] {
        run_with(memtable_bytes, plan, held);
    }
}

fn run_with(memtable_bytes: usize, plan: [&str; LENGTH], held: Option<(usize, usize)>) {
    let options = Options {
        memtable_bytes: Some(memtable_bytes),
        upper_fraction: 0.02,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let histories = histories(LENGTH);
    let key = |n: usize| format!("key{n:04}");
    let mut snapshot: Option<Snapshot> = None;
    for (at, work) in plan.into_iter().enumerate() {
        let mut batch = WriteBatch::new();
        for (n, history) in histories.iter().enumerate() {
            add(&mut batch, &k, &key(n), history[at], at);
        }
        db.write(&batch).expect("write");
        if held.is_some_and(|(from, _)| from == at) {
            snapshot = Some(db.snapshot().expect("snapshot"));
        }
        match work {
            "flush" => db.flush(),
            "settle" => db.settle(),
            _ => Ok(()),
        }
        .expect("background work");
        for (n, history) in histories.iter().enumerate() {
            let expected = value_after(&history[..=at]);
            let found = text(&k, &key(n));
            assert_eq!(found, expected, "{:?} {plan:?} {held:?}", &history[..=at]);
            if let (Some(snapshot), Some((from, _))) = (&snapshot, held) {
                let old = snapshot.get(&k, key(n).as_bytes()).expect("get");
                let old = old.map(|v| String::from_utf8_lossy(&v).into_owned());
                assert_eq!(
                    old,
                    value_after(&history[..=from]),
                    "{history:?} {plan:?} {held:?}"
                );
            }
        }
        if held.is_some_and(|(_, to)| to == at) {
            snapshot = None;
        }
    }
    drop(snapshot);
    db.settle().expect("settle");
    let live = histories
        .iter()
        .filter(|h| value_after(h).is_some())
        .count();
    assert_eq!(all(&k).len(), live, "{plan:?} {held:?}");
}

/// Returns every choice of work after all steps but the last, which is settled.
fn plans() -> impl Iterator<Item = [&'static str; LENGTH]> {
    let count = WORK.len().pow(LENGTH as u32 - 1);
    (0..count).map(|mut n| {
        let mut plan = ["settle"; LENGTH];
        for work in plan.iter_mut().take(LENGTH - 1) {
            *work = WORK[n % WORK.len()];
            n /= WORK.len();
        }
        plan
    })
}

#[test]
fn every_history_of_one_key_reads_right_without_snapshots() {
    plans().for_each(|plan| run(plan, None));
}

#[test]
fn every_history_of_one_key_reads_right_with_a_snapshot_held_to_the_end() {
    // Held from the first step, or from the second one.
    for (n, plan) in plans().enumerate() {
        run(plan, Some((n % 2, LENGTH)));
    }
}

#[test]
fn every_history_of_one_key_reads_right_with_a_snapshot_dropped_on_the_way() {
    // A put kept for the snapshot must not return when the put above it is canceled later.
    for (n, plan) in plans().enumerate() {
        run(plan, Some((0, 2 + n % 2)));
    }
}

fn entries(stats: &Stats) -> u64 {
    of(stats, "k").table_entries
}

fn settled(db: &Database) -> Stats {
    db.settle().expect("settle");
    db.stats().expect("stats")
}

/// Returns options under which every flushed table is due for compaction.
fn eager() -> Options {
    Options {
        memtable_bytes: Some(1),
        upper_fraction: 0.02,
        ..tiny()
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn put_all(db: &Database, k: &Keyspace, count: usize, value: &[u8]) {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|n| batch.put(k, &key(n), value).expect("put"));
    db.write(&batch).expect("write");
}

fn insert_all(db: &Database, k: &Keyspace, count: usize) {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|n| batch.insert(k, &key(n), b"1").expect("insert"));
    db.write(&batch).expect("write");
}

fn delete_all(db: &Database, k: &Keyspace, count: usize) {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|n| batch.delete(k, &key(n)).expect("delete"));
    db.write(&batch).expect("write");
}

#[test]
fn tombstones_and_what_they_hide_are_gone_after_settling() {
    let (_vfs, db, k) = database(eager());
    put_all(&db, &k, 400, &[1; 50]);
    assert_eq!(entries(&settled(&db)), 400);
    delete_all(&db, &k, 400);
    let stats = settled(&db);
    assert_eq!(entries(&stats), 0, "{stats:?}");
    assert_eq!(stats.tombstones_dropped, 400, "{stats:?}");
}

#[test]
fn a_queue_leaves_no_groups_behind() {
    let (vfs, db, k) = database(eager());
    let job = |n: usize| format!("job{n:06}").into_bytes();
    let groups = |db: &Database| of(&db.stats().expect("stats"), "k").groups;
    let (mut most, mut rng) = (0, Rng::new(1));
    for round in 0..30 {
        let jobs = round * 400..(round + 1) * 400;
        let (mut put, mut taken) = (WriteBatch::new(), WriteBatch::new());
        for n in jobs {
            put.insert(&k, &job(n), &rng.bytes(60)).expect("insert");
            taken.delete(&k, &job(n)).expect("delete");
        }
        db.write(&put).expect("write");
        db.settle().expect("settle");
        most = most.max(groups(&db));
        db.write(&taken).expect("write");
        db.settle().expect("settle");
    }
    k.put(&job(0), b"1").expect("put");
    db.settle().expect("settle");
    k.put(&job(1), b"1").expect("put");
    db.settle().expect("settle");
    assert!(most > 1, "jobs fill more than one group");
    assert!(groups(&db) <= 2, "{} groups, once {most}", groups(&db));
    assert_eq!(all(&k).len(), 2);
    db.close().expect("close");
    let db = open(&vfs, eager());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn old_versions_stay_while_a_snapshot_needs_them_and_go_afterwards() {
    let (_vfs, db, k) = database(eager());
    put_all(&db, &k, 400, &[1; 50]);
    db.settle().expect("settle");
    let snapshot = db.snapshot().expect("snapshot");
    put_all(&db, &k, 400, &[2; 50]);
    db.settle().expect("settle");
    delete_all(&db, &k, 200);
    // On top of the snapshot's 400: 200 newer values, and 200 tombstones that hide rows it needs.
    assert_eq!(entries(&settled(&db)), 400 + 200 + 200);
    let old = snapshot.get(&k, &key(0)).expect("get");
    assert_eq!(old.as_deref(), Some(&[1; 50][..]));
    drop(snapshot);
    // The dropped snapshot alone makes no compaction due, so new rows do.
    put_all(&db, &k, 400, &[3; 50]);
    assert_eq!(entries(&settled(&db)), 400);
}

#[test]
fn an_insert_and_its_delete_are_gone_after_settling() {
    let (_vfs, db, k) = database(eager());
    insert_all(&db, &k, 400);
    db.flush().expect("flush");
    delete_all(&db, &k, 400);
    let stats = settled(&db);
    assert_eq!(entries(&stats), 0, "{stats:?}");
    assert!(all(&k).is_empty());
}

#[test]
fn pairs_that_meet_in_one_flush_cancel_unless_a_snapshot_is_between() {
    for between in [false, true] {
        let (_vfs, db, k) = database(eager());
        insert_all(&db, &k, 100);
        let snapshot = between.then(|| db.snapshot().expect("snapshot"));
        delete_all(&db, &k, 100);
        db.flush().expect("flush");
        let stats = db.stats().expect("stats");
        let expected = if between { (0, 200) } else { (100, 0) };
        assert_eq!(
            (stats.pairs_canceled, entries(&stats)),
            expected,
            "{stats:?}"
        );
        drop(snapshot);
    }
}

#[test]
fn a_queue_sheds_its_tombstones_far_below_the_space_budget() {
    let options = Options {
        memory_bytes: 64 << 20,
        memtable_bytes: Some(2 << 20),
        upper_fraction: 1.0,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let key = |n: u32| n.to_be_bytes();
    let mut batch = WriteBatch::new();
    for n in 0..3_000 {
        batch.put(&k, &key(n), &[n as u8; 50]).expect("put");
    }
    db.write(&batch).expect("write");
    db.settle().expect("settle");
    for round in 0..20 {
        let mut batch = WriteBatch::new();
        for n in round * 100..(round + 1) * 100 {
            batch.delete(&k, &key(n)).expect("delete");
            batch.put(&k, &key(3_000 + n), &[7; 50]).expect("put");
        }
        db.write(&batch).expect("write");
        db.settle().expect("settle");
        let stats = db.stats().expect("stats");
        let dead = of(&stats, "k").table_entries - 3_000;
        // There are fewer dead entries (tombstones and the rows they hide) than live ones.
        assert!(dead < 3_000, "round {round}: {dead} dead entries");
    }
    let stats = db.stats().expect("stats");
    assert!(stats.tombstones_dropped >= 1_000, "{stats:?}");
    assert_eq!(all(&k).len(), 3_000);
}
