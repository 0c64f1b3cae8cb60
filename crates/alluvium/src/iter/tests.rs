//! Merges over hand-made versions: states that the background jobs reach only in rare interleavings.

use std::path::Path;
use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo, TableId, ValueKind};
use crate::cache::Cache;
use crate::iter::merge::{Bounds, MergeCursor};
use crate::keyspace::{KeyspaceOptions, Tree};
use crate::table::{Table, TableBuilder, TableOptions};
use crate::version::group::{Group, Upper, Version};
use crate::vfs::{MemVfs, Vfs};

/// A table of puts with these keys; each value is the table's number.
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
    let cache = Arc::new(Cache::new(1 << 20));
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
    ))
}

/// All rows as `key=value`, forward, and the same read backward.
fn rows(tree: &Arc<Tree>) -> (String, String) {
    let mut merge = MergeCursor::new(Arc::clone(tree), 100, None, Bounds::default(), None);
    let shown = |merge: &MergeCursor| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        format!("{}={}", text(merge.key()), text(merge.value()))
    };
    let mut forward = Vec::new();
    let mut found = merge.seek(b"").unwrap();
    while found {
        forward.push(shown(&merge));
        found = merge.next().unwrap();
    }
    let mut backward = Vec::new();
    let mut found = merge.seek_before(None).unwrap();
    while found {
        backward.push(shown(&merge));
        found = merge.prev().unwrap();
    }
    backward.reverse();
    (forward.join(" "), backward.join(" "))
}

#[test]
fn an_upper_table_shows_nothing_beyond_the_one_group_that_still_lists_it() {
    let vfs = MemVfs::new();
    // Table 9 was written over both groups. The right one has merged its part, and x was deleted there since.
    let wide = table(&vfs, 9, 9, &["a", "m", "x", "z"]);
    let left = table(&vfs, 1, 1, &["a", "c"]);
    let right = table(&vfs, 2, 2, &["m", "n", "z"]);
    let tree_left = tree(vec![
        group("", &[(9, &wide)], &[&left]),
        group("m", &[], &[&right]),
    ]);
    let expected = "a=9 c=1 m=2 n=2 z=2".to_owned();
    assert_eq!(rows(&tree_left), (expected.clone(), expected));
    // The other way round: the left group has merged its part.
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
