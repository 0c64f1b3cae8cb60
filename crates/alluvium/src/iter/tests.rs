//! Merges over hand-made versions: states that the background jobs reach only in rare
//! interleavings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo, TableId, ValueKind};
use crate::cache::Cache;
use crate::iter::bounds::{Bounds, Direction};
use crate::iter::held_row::HeldRow;
use crate::iter::merge::MergeCursor;
use crate::keyspace::{KeyspaceOptions, Tree};
use crate::table::{Table, TableBuilder, TableOptions};
use crate::version::group::{Group, Upper, Version};
use crate::vfs::{MemVfs, SplitMix, Vfs};

/// Builds a table of puts with these keys; each value is the table's number.
fn table(vfs: &MemVfs, id: u64, seqno: SeqNo, keys: &[&str]) -> Arc<Table> {
    let path = Path::new("tables").join(TableId(id).to_string());
    vfs.create_dir_all(Path::new("tables")).unwrap();
    let file = vfs.create(&path).unwrap();
    let mut builder = TableBuilder::new(file, id, KeyspaceId(1), &TableOptions::default());
    for key in keys {
        let value = id.to_string();
        builder
            .add(key.as_bytes(), seqno, ValueKind::Put, value.as_bytes())
            .unwrap();
    }
    builder.finish().unwrap();
    let cache = Cache::of_bytes(1 << 20);
    Table::open(vfs.open_read(&path).unwrap(), TableId(id), id, cache).unwrap()
}

fn group(low: &str, upper: &[(u64, &Arc<Table>)], last: &[&Arc<Table>]) -> Arc<Group> {
    let upper = upper.iter().map(|(run, table)| Upper {
        run: *run,
        table: Arc::clone(table),
        shared_by: 1,
    });
    Arc::new(Group {
        low: low.as_bytes().to_vec(),
        upper: upper.collect(),
        last: last.iter().map(|t| Arc::clone(t)).collect(),
        scan_cost: Arc::default(),
    })
}

fn tree(groups: Vec<Arc<Group>>) -> Arc<Tree> {
    let options = KeyspaceOptions::default();
    Arc::new(Tree::new(
        KeyspaceId(1),
        "k",
        options,
        Version::new(groups),
        1 << 16,
        Cache::of_bytes(1 << 20).budget(),
    ))
}

/// Returns all rows as `key=value`, read forward, and the same rows read backward.
fn rows(tree: &Arc<Tree>) -> (String, String) {
    rows_within(tree, Bounds::default())
}

fn rows_within(tree: &Arc<Tree>, bounds: Bounds) -> (String, String) {
    let mut merge = MergeCursor::new(Arc::clone(tree), 100, None, bounds, None);
    let mut row = HeldRow::default();
    let mut shown = |merge: &mut MergeCursor| {
        merge.show(&mut row);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        format!("{}={}", text(row.key()), text(row.value()))
    };
    let mut forward = Vec::new();
    let mut found = merge.seek(Direction::Forward, None).unwrap();
    while found {
        forward.push(shown(&mut merge));
        found = merge.step(Direction::Forward).unwrap();
    }
    let mut backward = Vec::new();
    let mut found = merge.seek(Direction::Reverse, None).unwrap();
    while found {
        backward.push(shown(&mut merge));
        found = merge.step(Direction::Reverse).unwrap();
    }
    backward.reverse();
    (forward.join(" "), backward.join(" "))
}

#[test]
fn an_upper_table_shows_nothing_beyond_the_one_group_that_still_lists_it() {
    let vfs = MemVfs::new();
    // Table 9 was written over both groups. The right group has compacted its part, and x was
    // deleted there since.
    let wide = table(&vfs, 9, 9, &["a", "m", "x", "z"]);
    let left = table(&vfs, 1, 1, &["a", "c"]);
    let right = table(&vfs, 2, 2, &["m", "n", "z"]);
    let tree_left = tree(vec![
        group("", &[(9, &wide)], &[&left]),
        group("m", &[], &[&right]),
    ]);
    let expected = "a=9 c=1 m=2 n=2 z=2".to_owned();
    assert_eq!(rows(&tree_left), (expected.clone(), expected));
    // The other way round: the left group has compacted its part.
    let tree_right = tree(vec![
        group("", &[], &[&left]),
        group("m", &[(9, &wide)], &[&right]),
    ]);
    let expected = "a=1 c=1 m=9 n=2 x=9 z=9".to_owned();
    assert_eq!(rows(&tree_right), (expected.clone(), expected));
}

#[test]
fn a_merge_steps_over_groups_that_hold_nothing() {
    let vfs = MemVfs::new();
    let left = table(&vfs, 1, 1, &["a"]);
    let right = table(&vfs, 2, 2, &["z"]);
    let groups = vec![
        group("", &[], &[&left]),
        group("c", &[], &[]),
        group("m", &[], &[&right]),
    ];
    let expected = "a=1 z=2".to_owned();
    assert_eq!(rows(&tree(groups)), (expected.clone(), expected));
}

/// Number of keys in a random version.
const KEYS: usize = 60;

fn key(n: usize) -> String {
    format!("key{n:05}")
}

/// A random version in the making, and the rows that a merge of it shows.
struct RandomVersion {
    vfs: MemVfs,
    random: SplitMix,
    tables: u64,
    rows: BTreeMap<usize, String>,
}

impl RandomVersion {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    /// Returns each key of the range with the same probability.
    fn keys(&mut self, range: Range<usize>, one_in: usize) -> Vec<usize> {
        range.filter(|_| self.below(one_in) == 0).collect()
    }

    /// Builds a table of some of these keys, if there are any.
    fn table(&mut self, range: Range<usize>, seqno: SeqNo) -> Option<(Arc<Table>, Vec<usize>)> {
        let one_in = 1 + self.below(6);
        let keys = self.keys(range, one_in);
        let names: Vec<String> = keys.iter().map(|n| key(*n)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.tables += 1;
        (!keys.is_empty()).then(|| (table(&self.vfs, self.tables, seqno, &names), keys))
    }

    /// Shows the rows of the newest table that are in this range.
    fn show(&mut self, keys: &[usize], inside: &Range<usize>) {
        for n in keys.iter().filter(|n| inside.contains(n)) {
            self.rows.insert(*n, self.tables.to_string());
        }
    }

    /// Draws the ranges of up to three groups.
    fn ranges(&mut self) -> Vec<Range<usize>> {
        let mut borders = vec![0, KEYS];
        for _ in 0..self.below(3) {
            borders.push(1 + self.below(KEYS - 1));
        }
        borders.sort_unstable();
        borders.dedup();
        borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// Makes groups with a last level, and upper tables over all keys that some groups list; then
    /// rows in the memtable.
    fn tree(&mut self) -> Arc<Tree> {
        let ranges = self.ranges();
        let mut last = Vec::new();
        for range in &ranges {
            let table = self.table(range.clone(), 1);
            last.extend(table.map(|(table, keys)| {
                self.show(&keys, range);
                (range.start, table)
            }));
        }
        let mut upper = Vec::new();
        for run in 2..2 + self.below(4) as u64 {
            let Some((table, keys)) = self.table(0..KEYS, run) else {
                continue;
            };
            for range in &ranges {
                if self.below(4) > 0 {
                    upper.insert(0, (range.start, (run, Arc::clone(&table))));
                    self.show(&keys, range);
                }
            }
        }
        let groups = ranges.iter().map(|range| {
            let low = if range.start == 0 {
                String::new()
            } else {
                key(range.start)
            };
            let own = upper.iter().filter(|(start, _)| *start == range.start);
            let upper: Vec<_> = own.map(|(_, (run, table))| (*run, table)).collect();
            let own = last.iter().filter(|(start, _)| *start == range.start);
            let last: Vec<_> = own.map(|(_, table)| table).collect();
            group(&low, &upper, &last)
        });
        let tree = tree(groups.collect());
        for n in self.keys(0..KEYS, 8) {
            write(&tree, 50, ValueKind::Put, n..n + 1);
            self.rows.insert(n, "v".to_string());
        }
        tree
    }

    /// Draws bounds, and returns them with the rows inside.
    fn bounds(&mut self) -> (Bounds, String) {
        let (start, end) = (self.below(KEYS), self.below(2 * KEYS));
        let inside = self.rows.iter().filter(|(n, _)| **n >= start);
        let inside = inside.filter(|(n, _)| end >= KEYS || **n < end);
        let rows: Vec<String> = inside
            .map(|(n, value)| format!("{}={value}", key(*n)))
            .collect();
        let bounds = Bounds {
            start: key(start).into_bytes(),
            end: (end < KEYS).then(|| key(end).into_bytes()),
        };
        (bounds, rows.join(" "))
    }
}

#[test]
fn a_merge_shows_the_newest_row_of_each_key_once_in_both_directions() {
    for seed in 0..2_000 {
        let mut version = RandomVersion {
            vfs: MemVfs::new(),
            random: SplitMix::new(seed),
            tables: 0,
            rows: BTreeMap::new(),
        };
        let tree = version.tree();
        let (bounds, expected) = version.bounds();
        let found = rows_within(&tree, bounds);
        assert_eq!(found, (expected.clone(), expected), "seed {seed}");
    }
}

/// Writes rows to the active memtable, as the commit leader does.
fn write(tree: &Tree, seqno: SeqNo, kind: ValueKind, keys: Range<usize>) {
    if tree.load().active.is_none() {
        tree.activate(1);
    }
    let state = tree.load();
    let mut writer = state.active.as_ref().expect("activated").rows.writer();
    for n in keys {
        let key = format!("key{n:05}");
        if kind == ValueKind::Put && tree.dead.putting(seqno) {
            tree.dead.revive(key.as_bytes());
        }
        let hash = crate::base::checksum::key_hash(key.as_bytes());
        writer.insert(key.as_bytes(), hash, None, seqno, kind as u8, b"v", 0);
    }
}

fn cursor(tree: &Arc<Tree>, read_point: SeqNo) -> MergeCursor {
    MergeCursor::new(Arc::clone(tree), read_point, None, Bounds::default(), None)
}

fn shown_key(cursor: &mut MergeCursor) -> String {
    let mut row = HeldRow::default();
    cursor.show(&mut row);
    String::from_utf8(row.key().to_vec()).unwrap()
}

/// If the entries of an index are deleted at the low end of each indexed value, it has a dead
/// interval for each value.
#[test]
fn a_thousand_heads_have_an_interval_each() {
    const HEADS: usize = 1_000;
    let tree = tree(vec![group("", &[], &[])]);
    write(&tree, 1, ValueKind::Put, 0..50 * HEADS);
    let head = |n: usize| format!("key{:05}", 50 * n);
    for n in 0..HEADS {
        write(&tree, 2, ValueKind::Delete, 50 * n..50 * n + 40);
    }
    for n in 0..HEADS {
        assert!(
            cursor(&tree, 2)
                .seek(Direction::Forward, Some(head(n).as_bytes()))
                .unwrap()
        );
    }
    for n in (0..HEADS).rev() {
        let mut end = Vec::new();
        let reach = tree.dead.find_end(head(n).as_bytes(), 2, &mut end);
        assert!(reach.is_some(), "head {n}");
        assert_eq!(end, format!("key{:05}", 50 * n + 40).as_bytes());
    }
}

#[test]
fn a_walk_over_deleted_rows_leaves_an_interval_for_the_next_cursor() {
    let tree = tree(vec![group("", &[], &[])]);
    write(&tree, 1, ValueKind::Put, 0..1_000);
    write(&tree, 2, ValueKind::Delete, 0..400);
    write(&tree, 3, ValueKind::Delete, 600..1_000);
    assert!(cursor(&tree, 3).seek(Direction::Forward, None).unwrap());
    assert!(cursor(&tree, 3).seek(Direction::Reverse, None).unwrap());
    let interval = |key: &str, point| {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        tree.dead.find_end(key.as_bytes(), point, &mut end)?;
        tree.dead
            .find_start(Some(key.as_bytes()), point, &mut start)?;
        let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
        Some((text(start), text(end)))
    };
    // The interval starts at the seek key, even if there never was a row.
    let front = (String::new(), "key00400".to_owned());
    let back = ("key00599\0".to_owned(), "key00999\0".to_owned());
    assert_eq!(interval("key00007", 3), Some(front));
    assert_eq!(interval("key00777", 3), Some(back));
    // An older reader sees rows there.
    assert_eq!(interval("key00007", 2), None);
    let mut old = cursor(&tree, 1);
    assert!(old.seek(Direction::Forward, None).unwrap());
    assert_eq!(shown_key(&mut old), "key00000");
    // Skipping the intervals finds the same rows, and rows deleted since are added to the
    // intervals.
    write(&tree, 4, ValueKind::Delete, 400..450);
    let mut now = cursor(&tree, 4);
    assert!(now.seek(Direction::Forward, None).unwrap());
    assert_eq!(shown_key(&mut now), "key00450");
    assert_eq!(interval("key00007", 4).unwrap().1, "key00450");
    assert!(now.seek(Direction::Reverse, None).unwrap());
    assert_eq!(shown_key(&mut now), "key00599");
}

#[test]
fn a_row_put_into_a_dead_interval_is_found() {
    let tree = tree(vec![group("", &[], &[])]);
    write(&tree, 1, ValueKind::Put, 0..100);
    write(&tree, 2, ValueKind::Delete, 0..90);
    assert!(cursor(&tree, 2).seek(Direction::Forward, None).unwrap());
    write(&tree, 3, ValueKind::Put, 30..31);
    for _ in 0..2 {
        let mut now = cursor(&tree, 3);
        assert!(now.seek(Direction::Forward, None).unwrap());
        assert_eq!(shown_key(&mut now), "key00030");
        assert!(now.step(Direction::Forward).unwrap());
        assert_eq!(shown_key(&mut now), "key00090");
        let mut before = cursor(&tree, 2);
        assert!(before.seek(Direction::Forward, None).unwrap());
        assert_eq!(shown_key(&mut before), "key00090");
    }
}

#[test]
fn an_abandoned_walk_records_no_interval() {
    let tree = tree(vec![group("", &[], &[])]);
    write(&tree, 1, ValueKind::Put, 0..100);
    write(&tree, 2, ValueKind::Delete, 0..90);
    write(&tree, 3, ValueKind::Put, 200..201);
    // The later put might be inside the walk of this older reader.
    assert!(cursor(&tree, 2).seek(Direction::Forward, None).unwrap());
    let find = |key: &[u8], point| tree.dead.find_end(key, point, &mut Vec::new());
    assert_eq!(find(b"key00007", 9), None);
    // A bounded walk records nothing past its bound.
    let bounds = Bounds {
        start: Vec::new(),
        end: Some(b"key00050".to_vec()),
    };
    let mut bounded = MergeCursor::new(Arc::clone(&tree), 3, None, bounds, None);
    assert!(!bounded.seek(Direction::Forward, None).unwrap());
    assert!(find(b"key00049", 3).is_some());
    assert_eq!(find(b"key00050", 3), None);
}
