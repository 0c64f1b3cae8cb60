//! Segments after the end of the log, and empty ones at its end, are removed before the log goes
//! on.

use super::*;

#[test]
fn discarded_segments_are_removed_before_the_log_goes_on() {
    let (vfs, records) = overlapping(false);
    let file = vfs.open(&segment_path(dir(), SegmentId(1))).unwrap();
    flip(&*file, SEGMENT_HEADER_BYTES * 8);
    let (_, end) = start(&vfs, dir(), 1).unwrap();
    end.remove_cut(&vfs, dir()).unwrap();
    let mut wal = writer(&vfs, end.next_segment.0, end.end);
    commit(&mut wal, &records[4]);
    let (found, end) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, records[4..]);
    assert_eq!(end.segments, [SegmentId(1), SegmentId(3)]);
}

/// A full device may be opened many times before space is freed.
#[test]
fn segments_of_sessions_that_wrote_nothing_are_cut_off() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    commit(&mut wal, &record(1, 30));
    let end = start(&vfs, dir(), 1).unwrap().1.end;
    // As left by builds that did not cut off empty segments.
    drop(writer(&vfs, 2, end));
    let empty = start(&vfs, dir(), 2).unwrap().1;
    assert_eq!(empty.segments, [SegmentId(2)], "the log begins there");
    drop(writer(&vfs, 3, empty.end));
    for next in 4..10 {
        let (found, left) = start(&vfs, dir(), 1).unwrap();
        assert_eq!(found, [record(1, 30)]);
        assert_eq!((left.end, &*left.segments), (end, &[SegmentId(1)][..]));
        assert_eq!(left.next_segment, SegmentId(next));
        left.remove_cut(&vfs, dir()).unwrap();
        drop(writer(&vfs, next, left.end));
        assert_eq!(vfs.list(dir()).unwrap().len(), 2);
    }
    let left = start(&vfs, dir(), 1).unwrap().1;
    left.remove_cut(&vfs, dir()).unwrap();
    commit(&mut writer(&vfs, 10, left.end), &record(2, 30));
    let records = start(&vfs, dir(), 1).unwrap().0;
    assert_eq!(records, [record(1, 30), record(2, 30)]);
}

/// As cut by a caller that understands the records.
#[test]
fn segments_after_a_given_one_can_be_discarded() {
    let vfs = mem();
    let mut end = None;
    for n in 1..=4 {
        commit(&mut writer(&vfs, n, end), &record(n, 30));
        end = start(&vfs, dir(), 1).unwrap().1.end;
    }
    let mut left = start(&vfs, dir(), 1).unwrap().1;
    left.cut_behind(SegmentId(2));
    assert_eq!(left.segments, [SegmentId(1), SegmentId(2)]);
    assert_eq!(left.cut, [SegmentId(3), SegmentId(4)]);
    assert_eq!(left.next_segment, SegmentId(5));
    left.remove_cut(&vfs, dir()).unwrap();
    commit(&mut writer(&vfs, 5, left.end), &record(5, 30));
    let (found, left) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 30), record(2, 30), record(5, 30)]);
    assert_eq!(left.cut, []);

    let mut all = left.clone();
    all.cut_behind(SegmentId(0));
    assert_eq!(all.segments, [SegmentId(1)], "where the log begins");
}

/// As after a restore on top of an older copy, or a removal that the file system lost.
#[test]
fn a_segment_that_was_cut_off_and_is_there_again_is_passed_over_and_removed() {
    for prepared in [false, true] {
        is_passed_over_and_removed(prepared);
    }
}

/// Tests an empty segment, or one with a prepare that is stored elsewhere too.
fn is_passed_over_and_removed(prepared: bool) {
    let vfs = mem();
    let first = record(1, 30);
    commit(&mut writer(&vfs, 1, None), &first);
    let end = start(&vfs, dir(), 1).unwrap().1.end;
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut wal = WalWriter::create(shared, dir(), UID, SegmentId(2), end, true, SMALL).unwrap();
    if prepared {
        wal.append(1, RecordKind::Prepare, b"known");
        wal.write().unwrap();
    }
    drop(wal);
    let stale = segment_path(dir(), SegmentId(2));
    let bytes = bytes_of(&vfs, &stale);
    let mut left = replay(&vfs, dir(), UID, SegmentId(1), &mut |_, _, _, _| Ok(())).unwrap();
    left.cut_behind(SegmentId(1));
    left.remove_cut(&vfs, dir()).unwrap();
    let second = record(2, 30);
    commit(&mut writer(&vfs, 3, left.end), &second);

    let again = |bytes: &[u8]| {
        let file = vfs.create(&stale).unwrap();
        file.write_at(bytes, 0).unwrap();
    };
    again(&bytes);
    let (found, left) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [first.clone(), second.clone()]);
    assert_eq!(left.segments, [SegmentId(1), SegmentId(3)]);
    assert_eq!(left.cut, [SegmentId(2)]);
    let mut salvaged = Vec::new();
    let damage = salvage(&vfs, dir(), UID, SegmentId(1), &mut |_, seqno, kind, _| {
        if kind == RecordKind::Commit {
            salvaged.push(seqno);
        }
        Ok(())
    });
    assert!(damage.unwrap().is_none());
    assert_eq!(salvaged, [1, 2]);
    left.remove_cut(&vfs, dir()).unwrap();
    assert_eq!(start(&vfs, dir(), 1).unwrap().1.cut, []);

    // A segment with any other record was not cut off.
    let other = mem();
    commit(&mut writer(&other, 2, end), &second);
    again(&bytes_of(&other, &stale));
    assert!(is_corruption(&start(&vfs, dir(), 1)));
}

#[test]
fn a_refused_prepare_leaves_no_mark_on_the_log() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    wal.append(1, RecordKind::Prepare, b"refused");
    wal.discard();
    append(&mut wal, &record(1, 20));
    assert_eq!(wal.write().unwrap().segment, SegmentId(1));
}
