//! Tests of the files that an idle log keeps.

use super::*;
use crate::sync::time::Instant;
use std::time::Duration;

const WHOLE: u64 = 64 * SHORT_SEGMENT_BYTES;

/// Returns a file system and a log in it, with two prepared files after its first segment.
fn log_with_two_prepared() -> (MemVfs, WalWriter) {
    let vfs = mem();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut wal = WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, WHOLE).unwrap();
    wal.set_ample_space(true);
    for seqno in 1..3 {
        commit(&mut wal, &record(seqno, 10));
        wal.rotate().unwrap();
    }
    for _ in 0..2 {
        let prepared = wal.plan_next().unwrap().create().unwrap();
        assert!(wal.offer(prepared).is_none());
    }
    (vfs, wal)
}

fn length(vfs: &MemVfs, id: SegmentId) -> u64 {
    let file = vfs.open_read(&segment_path(dir(), id)).unwrap();
    file.len().unwrap()
}

#[test]
fn an_idle_log_begins_one_small_segment_and_keeps_no_file() {
    let (vfs, mut wal) = log_with_two_prepared();
    assert!(!wal.is_larger_than_idle(), "nothing is written to it");
    commit(&mut wal, &record(3, 10));
    assert!(wal.is_larger_than_idle());
    assert_eq!(vfs.list(dir()).unwrap().len(), 5);
    let small = wal.rotate_to_idle().unwrap();
    assert_eq!(vfs.list(dir()).unwrap().len(), 4);
    assert_eq!(length(&vfs, small), WHOLE / 8);
    assert!(!wal.is_larger_than_idle());
    assert!(!wal.wants_plan(false), "nothing is written to it");
    commit(&mut wal, &record(4, WHOLE as usize / 16));
    assert!(wal.wants_plan(false), "half of it is filled");
    let whole = wal.rotate().unwrap();
    assert_eq!(length(&vfs, whole), WHOLE);
    commit(&mut wal, &record(5, 10));
    let (found, _) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found.len(), 5);
}

#[test]
fn a_log_without_writes_for_a_second_keeps_only_the_file_that_it_needs_soon() {
    let begun = Instant::now();
    let after = |ms| begun + Duration::from_millis(ms);
    let (_vfs, mut wal) = log_with_two_prepared();
    assert!(wal.surplus_at(after(0), false).is_empty());
    commit(&mut wal, &record(3, 10));
    assert!(wal.surplus_at(after(1_100), false).is_empty(), "it moved");
    assert_eq!(wal.surplus_at(after(2_200), true).len(), 1);
    assert_eq!(wal.surplus_at(after(2_300), false).len(), 1);

    let (_vfs, mut wal) = log_with_two_prepared();
    commit(&mut wal, &record(3, WHOLE as usize / 2));
    assert!(wal.surplus_at(after(0), false).is_empty());
    assert_eq!(wal.surplus_at(after(1_100), false).len(), 1);
    assert!(
        wal.surplus_at(after(9_000), false).is_empty(),
        "half of the segment is filled"
    );
}
