//! Short histories; together they cover every writing call. The tests simulate power loss and
//! failed calls at every point of a history, and damage the files that it leaves.

use alluvium::{Durability, KeyspaceOptions, Options};
use alluvium_testkit::model::{Model, Write};
use alluvium_testkit::op::{Generator, KeyShape, Op, Weights};
use alluvium_testkit::random::Rng;

/// Name of a keyspace, and a write to it.
pub type Row = (String, Write);

/// One call of the engine. The name of a keyspace is one letter, which determines its options: see
/// [`keyspace_options`].
#[derive(Debug, Clone)]
pub enum Step {
    Create(&'static str),
    /// Creates several keyspaces in one call.
    CreateAll(&'static [&'static str]),
    Drop(&'static str),
    Batch(Vec<Row>),
    Transaction(Vec<Row>),
    Ingest(Vec<Row>),
    BulkLoad(Vec<Row>),
    Flush,
    Settle,
    CompactRange(&'static str),
    ChangeOptions(&'static str),
    Sync,
    Reopen,
    Prepare(&'static str, Vec<Row>),
    Resolve(&'static str, Decision),
    Checkpoint,
    Backup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Commit,
    Rollback,
}

#[derive(Debug, Clone)]
pub struct History {
    pub name: &'static str,
    pub steps: Vec<Step>,
}

/// Returns options with which a few rows fill a memtable, and every flushed table is due for
/// compaction.
pub fn options(durability: Durability) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(700),
        table_bytes: 4096,
        upper_fraction: 0.02,
        durability,
        idle_after: None,
        ..Options::default()
    }
}

/// Returns the options of a keyspace: `v` separates large values, and `b` has a prefix filter.
pub fn keyspace_options(name: &str) -> KeyspaceOptions {
    let value_separation_bytes = (name == "v").then_some(256);
    KeyspaceOptions {
        value_separation_bytes,
        prefix_filter_bytes: (name == "b").then_some(2),
        block_bytes: 1024,
        ..KeyspaceOptions::default()
    }
}

fn put(keyspace: &str, key: &str, value: usize) -> Row {
    let value = format!("{value}.").repeat(12).into_bytes();
    (keyspace.to_owned(), Write::Put(key.into(), value))
}

fn insert(keyspace: &str, key: &str, value: usize) -> Row {
    let value = format!("{value}.").repeat(12).into_bytes();
    (keyspace.to_owned(), Write::Insert(key.into(), value))
}

/// Returns a put of a value that does not compress.
fn large(keyspace: &str, key: &str, bytes: usize) -> Row {
    let value = Rng::new(bytes as u64).bytes(bytes);
    (keyspace.to_owned(), Write::Put(key.into(), value))
}

fn delete(keyspace: &str, key: &str) -> Row {
    (keyspace.to_owned(), Write::Delete(key.into()))
}

fn delete_range(keyspace: &str, from: &str, to: &str) -> Row {
    let write = Write::DeleteRange(from.into(), to.into());
    (keyspace.to_owned(), write)
}

fn rows(keyspace: &str, count: usize, value: usize) -> Vec<Row> {
    let row = |n| put(keyspace, &format!("row{n:02}"), value + n);
    (0..count).map(row).collect()
}

use Step::*;

fn everyday() -> Vec<Step> {
    vec![
        Create("a"),
        Batch(vec![put("a", "one", 1)]),
        Create("b"),
        Batch(vec![put("a", "two", 2), put("b", "two", 2)]),
        Transaction(vec![insert("a", "three", 3), delete("b", "two")]),
        Flush,
        Batch(vec![delete("a", "one"), put("b", "three", 4)]),
        Sync,
        Batch(vec![put("a", "two", 5)]),
        Settle,
        Transaction(vec![put("a", "one", 6), put("b", "one", 6)]),
        Batch(rows("a", 6, 10)),
        Batch(rows("b", 6, 20)),
        CompactRange("a"),
        Batch(vec![
            delete_range("a", "row01", "row04"),
            put("a", "row02", 30),
        ]),
        Reopen,
        Batch(vec![put("a", "two", 31), delete("b", "row05")]),
        Flush,
        Batch(vec![put("b", "last", 32)]),
    ]
}

fn keyspaces() -> Vec<Step> {
    vec![
        CreateAll(&["a", "c"]),
        Batch(vec![put("a", "kept", 1), put("c", "gone", 1)]),
        Ingest([rows("a", 5, 40), rows("c", 3, 50)].concat()),
        Batch(vec![put("a", "row01", 2), put("c", "more", 2)]),
        Drop("c"),
        Batch(vec![put("a", "kept", 3)]),
        ChangeOptions("a"),
        Create("c"),
        BulkLoad(rows("c", 8, 60)),
        Batch(vec![delete("c", "row03"), delete("a", "row04")]),
        Flush,
        Drop("c"),
        Reopen,
        CreateAll(&["c", "d", "a"]),
        Batch(vec![put("c", "third life", 4), put("d", "one", 1)]),
        Ingest(rows("c", 2, 70)),
        Settle,
        Batch(vec![put("a", "end", 5), put("c", "end", 5)]),
    ]
}

fn large_values() -> Vec<Step> {
    vec![
        Create("v"),
        Batch(vec![large("v", "row00", 700), put("v", "small", 1)]),
        Flush,
        Batch(vec![large("v", "row01", 1_500), large("v", "row02", 600)]),
        Batch(vec![large("v", "row00", 701)]),
        Settle,
        Transaction(vec![delete("v", "row01"), large("v", "row03", 900)]),
        Batch(vec![delete_range("v", "row02", "row03")]),
        Flush,
        Ingest(vec![large("v", "row05", 1_200), put("v", "row06", 2)]),
        CompactRange("v"),
        Reopen,
        Batch(vec![large("v", "row03", 901)]),
        Settle,
        Batch(vec![large("v", "row07", 2_000), delete("v", "row05")]),
    ]
}

fn two_phases() -> Vec<Step> {
    vec![
        Create("a"),
        Create("b"),
        Batch(vec![put("a", "one", 1)]),
        Prepare("first", vec![put("a", "first", 2), put("b", "first", 2)]),
        Batch(vec![put("a", "one", 3), put("b", "one", 3)]),
        Flush,
        Prepare("second", vec![delete("a", "one"), insert("b", "second", 4)]),
        Batch(rows("b", 4, 80)),
        Resolve("first", Decision::Commit),
        Batch(vec![put("b", "two", 5)]),
        Reopen,
        Flush,
        Resolve("second", Decision::Rollback),
        Prepare("first", vec![put("a", "again", 6)]),
        Batch(vec![put("a", "one", 7)]),
        Settle,
        Prepare("third", vec![delete("b", "row01"), put("a", "third", 8)]),
        Reopen,
        Resolve("third", Decision::Commit),
        Batch(vec![put("b", "two", 9)]),
    ]
}

fn copies() -> Vec<Step> {
    vec![
        Create("a"),
        Create("v"),
        Batch(rows("a", 4, 1)),
        Flush,
        Batch(vec![large("v", "large", 600), put("a", "row01", 9)]),
        Checkpoint,
        Batch(vec![put("a", "behind", 10)]),
        Settle,
        Batch(vec![delete("a", "row02"), large("v", "large", 601)]),
        Backup,
        Batch(vec![put("a", "behind", 11)]),
        Reopen,
        Batch(vec![put("a", "end", 12)]),
    ]
}

/// Returns all fixed histories.
pub fn histories() -> Vec<History> {
    let named = |name, steps| History { name, steps };
    vec![
        named("everyday", everyday()),
        named("keyspaces", keyspaces()),
        named("large values", large_values()),
        named("two phases", two_phases()),
        named("copies", copies()),
    ]
}

/// Returns a history of random operations from the [`Generator`] of the model tests.
pub fn random_history(rng: &mut Rng) -> History {
    let weights = Weights {
        delete_range: 4,
        get: 0,
        scan: 0,
        snapshot: 0,
        drop_snapshot: 0,
        flush: 6,
        compact: 4,
        reopen: 3,
        ingest: 4,
        create_keyspace: 3,
        drop_keyspace: 2,
        ..Weights::default()
    };
    let shape = KeyShape {
        distinct: 12,
        large_value_bytes: 1_500,
        ..KeyShape::default()
    };
    let mut generator = Generator::new(weights, shape, rng);
    let (mut model, mut steps) = (Model::new(), Vec::new());
    let count = rng.range(10..30);
    while steps.len() < count {
        let op = generator.next(rng, &model);
        op.apply(&mut model);
        steps.extend(step(op, rng));
    }
    History {
        name: "random",
        steps,
    }
}

/// Maps the name of one of the generator's keyspaces to a name of one letter.
fn letter(name: &str) -> &'static str {
    match name.bytes().last() {
        Some(b'0') => "a",
        Some(b'1') => "b",
        _ => "v",
    }
}

fn step(op: Op, rng: &mut Rng) -> Option<Step> {
    let ours = |rows: Vec<Row>| -> Vec<Row> {
        let row = |(name, write): Row| (letter(&name).to_owned(), write);
        rows.into_iter().map(row).collect()
    };
    Some(match op {
        Op::Commit(rows) if rng.percent(50) => Transaction(ours(rows)),
        Op::Commit(rows) => Batch(ours(rows)),
        Op::Ingest(rows) if rng.percent(30) => BulkLoad(ours(rows)),
        Op::Ingest(rows) => Ingest(ours(rows)),
        Op::Flush => Flush,
        Op::Compact(name) if rng.percent(30) => CompactRange(letter(&name)),
        Op::Compact(_) => Settle,
        Op::Reopen => Reopen,
        Op::CreateKeyspace(name) => Create(letter(&name)),
        Op::DropKeyspace(name) => Drop(letter(&name)),
        _ => return None,
    })
}
