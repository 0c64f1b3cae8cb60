//! Tests of the room that a log keeps for decisions.

use super::*;

const RESERVE: u64 = 1000;

/// Returns a log with a segment of one page that keeps `RESERVE` bytes free.
fn log(capacity: Option<u64>) -> (MemVfs, WalWriter) {
    let vfs = capacity.map_or_else(MemVfs::new, MemVfs::with_capacity);
    vfs.create_dir_all(dir()).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    let mut wal = writer(&vfs, 1, None);
    wal.make_reserve(RESERVE).unwrap();
    (vfs, wal)
}

/// Writes records until the log is in another segment or refuses one. Returns the bytes that the
/// first segment had left.
fn fill(wal: &mut WalWriter) -> (u64, Result<WalPosition>) {
    let first = wal.position();
    let mut at = first;
    loop {
        let next = record(wal.last_written() + 1, 40);
        append(wal, &next);
        match wal.write() {
            Ok(now) if now.segment == first.segment => at = now,
            other => {
                wal.discard();
                return (SMALL - at.offset, other);
            }
        }
    }
}

#[test]
fn a_segment_is_left_while_it_has_room_for_the_reserve() {
    let (_vfs, mut wal) = log(None);
    let (left, next) = fill(&mut wal);
    assert!(next.is_ok());
    assert!(
        (RESERVE..RESERVE + frame_bytes(40) as u64).contains(&left),
        "{left}"
    );
}

#[test]
fn a_new_segment_leaves_the_room_that_its_owner_asks_for() {
    const LEFT: u64 = 3 * SMALL;
    for (space, is_made) in [(SMALL + LEFT, true), (SMALL + LEFT - 1, false)] {
        let (vfs, mut wal) = log(None);
        commit(&mut wal, &record(1, 10));
        wal.leave_free(LEFT);
        let used = (1 << 40) - vfs.free_bytes(dir()).unwrap();
        vfs.set_capacity(used + space);
        let prepared = wal.plan_next().unwrap().create().unwrap();
        assert_eq!(prepared.is_some(), is_made);
        prepared.into_iter().for_each(PreparedSegment::remove);
        vfs.sync_dir(dir()).unwrap();
        let rolled = wal.rotate();
        assert_eq!(rolled.is_ok(), is_made, "{rolled:?}");
        wal.leave_free(0);
        wal.rotate().unwrap();
    }
}

#[test]
fn a_record_that_the_reserve_was_for_needs_no_segment() {
    let (vfs, mut wal) = log(Some(SMALL));
    let (_, refused) = fill(&mut wal);
    assert!(matches!(refused, Err(Error::NoSpace { .. })));
    let before = wal.position();
    wal.reserve(RESERVE - frame_bytes(400) as u64);
    let next = record(wal.last_written() + 1, 400);
    append(&mut wal, &next);
    assert_eq!(wal.write().unwrap().segment, before.segment);
    let (found, _) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found.last().unwrap().1.len(), 400);
    // A higher reserve is refused, like any other record.
    wal.reserve(RESERVE);
    let next = record(wal.last_written() + 1, 0);
    append(&mut wal, &next);
    assert!(matches!(wal.write(), Err(Error::NoSpace { .. })));
}

#[test]
fn a_large_reserve_makes_segments_longer() {
    let (vfs, mut wal) = log(None);
    wal.make_reserve(5 * SMALL).unwrap();
    let id = wal.position().segment;
    let length = vfs.open_read(&segment_path(dir(), id)).unwrap().len();
    assert_eq!(length.unwrap(), 6 * SMALL);
    let (left, _) = fill(&mut wal);
    assert!(left <= SMALL, "a segment of its own size for other records");
}

#[test]
fn a_log_that_finds_no_room_for_the_reserve_uses_what_it_has() {
    let (_vfs, mut wal) = log(Some(SMALL));
    assert!(matches!(
        wal.make_reserve(SMALL),
        Err(Error::NoSpace { .. })
    ));
    let first = wal.position().segment;
    append(&mut wal, &record(1, 40));
    assert_eq!(wal.write().unwrap().segment, first);
    let (left, refused) = fill(&mut wal);
    assert!(matches!(refused, Err(Error::NoSpace { .. })));
    assert!(left < frame_bytes(40) as u64, "{left}");
}
