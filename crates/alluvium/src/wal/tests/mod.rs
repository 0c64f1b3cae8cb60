//! Tests of the whole log: written records come back, damage is distinguished from torn tails,
//! failures lose no acknowledged record.

mod crash;
mod cut;
mod idle;
mod reserve;
mod scrubbing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{FrameHeader, frame_bytes, seal};
use super::segment::{SEGMENT_HEADER_BYTES, segment_path, segment_uid};
use super::*;
use crate::base::SeqNo;
use crate::error::{Error, Result};
use crate::vfs::{MemVfs, RealVfs, SplitMix, Vfs, VfsFile};

const UID: u64 = 0x5EED;
const SMALL: u64 = 4096;

type Record = (SeqNo, Vec<u8>);

fn dir() -> &'static Path {
    Path::new("/db")
}

fn mem() -> MemVfs {
    let vfs = MemVfs::new();
    vfs.create_dir_all(dir()).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    vfs
}

fn start(vfs: &dyn Vfs, dir: &Path, oldest: u64) -> Result<(Vec<Record>, ReplayEnd)> {
    let mut records = Vec::new();
    let end = replay(
        vfs,
        dir,
        UID,
        SegmentId(oldest),
        &mut |_, seqno, kind, payload| {
            assert_eq!(kind, RecordKind::Commit);
            records.push((seqno, payload.to_vec()));
            Ok(())
        },
    )?;
    assert_eq!(end.records, records.len() as u64);
    Ok((records, end))
}

fn writer(vfs: &MemVfs, first: u64, previous: Option<SegmentEnd>) -> WalWriter {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    WalWriter::create(vfs, dir(), UID, SegmentId(first), previous, false, SMALL).unwrap()
}

fn record(seqno: SeqNo, len: usize) -> Record {
    let mut random = SplitMix::new(seqno);
    (seqno, (0..len).map(|_| random.next() as u8).collect())
}

fn append(writer: &mut WalWriter, record: &Record) {
    writer.append(record.0, RecordKind::Commit, &record.1);
}

/// Writes a record and makes it durable, as a `Sync` commit does.
fn commit(writer: &mut WalWriter, record: &Record) {
    append(writer, record);
    let position = writer.write().unwrap();
    writer.syncer().sync().unwrap();
    writer.note_durable(position);
}

fn bytes_of(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open_read(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Returns a file system that holds one segment with these bytes.
fn mem_with(segment: u64, bytes: &[u8]) -> MemVfs {
    let vfs = mem();
    let file = vfs
        .create(&segment_path(dir(), SegmentId(segment)))
        .unwrap();
    file.write_at(bytes, 0).unwrap();
    vfs
}

fn is_corruption<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Corruption { .. }))
}

/// Writes across several segments, stops, goes on, and reads everything back.
fn round_trip(vfs: Arc<dyn Vfs>, dir: &Path) {
    let records: Vec<Record> = (1..200)
        .map(|i| record(i, (i * 7 % 300) as usize))
        .collect();
    let (first, second) = records.split_at(120);
    let mut writer =
        WalWriter::create(Arc::clone(&vfs), dir, UID, SegmentId(1), None, false, SMALL).unwrap();
    for group in first.chunks(7) {
        group.iter().for_each(|record| append(&mut writer, record));
        writer.write().unwrap();
    }
    let (found, end) = start(&*vfs, dir, 1).unwrap();
    assert_eq!(found, first);
    assert_eq!((end.last_seqno, end.torn_tail_bytes), (120, 0));
    assert!(end.segments.len() > 3);
    assert_eq!(end.next_segment.0, end.segments.last().unwrap().0 + 1);

    let previous = end.end;
    let mut writer = WalWriter::create(
        Arc::clone(&vfs),
        dir,
        UID,
        end.next_segment,
        previous,
        false,
        SMALL,
    )
    .unwrap();
    second.iter().for_each(|record| commit(&mut writer, record));
    writer.mark_synced().unwrap();
    let (found, end) = start(&*vfs, dir, 1).unwrap();
    assert_eq!(found, records);
    assert_eq!(end.last_seqno, 199);
}

#[test]
fn records_come_back_in_order_across_segments_and_restarts() {
    round_trip(Arc::new(mem()), dir());
}

#[test]
fn records_come_back_in_order_from_real_files() {
    let temp = tempfile::tempdir().unwrap();
    round_trip(Arc::new(RealVfs::new()), temp.path());
}

#[test]
fn a_group_larger_than_a_segment_gets_a_segment_that_holds_it() {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    let records = [record(1, 10), record(2, 50_000), record(3, 10)];
    records
        .iter()
        .for_each(|record| commit(&mut writer, record));
    let len = |id| bytes_of(&vfs, &segment_path(dir(), SegmentId(id))).len();
    assert_eq!((len(1), len(2)), (4096, 53_248));
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, records);
}

#[test]
fn rotating_separates_older_records_from_newer_ones() {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    assert_eq!(writer.rotate().unwrap(), SegmentId(1));
    append(&mut writer, &record(1, 10));
    writer.write().unwrap();
    append(&mut writer, &record(2, 10));
    assert_eq!(writer.rotate().unwrap(), SegmentId(2));
    writer.write().unwrap();
    // Nothing was synced so far; then both segments are.
    let after = |vfs: &MemVfs| vfs.crash(1, crate::vfs::CrashOptions::LOSE_UNSYNCED);
    assert_eq!(start(&after(&vfs), dir(), 1).unwrap().0, []);
    writer.syncer().sync().unwrap();
    let both = [record(1, 10), record(2, 10)];
    assert_eq!(start(&after(&vfs), dir(), 1).unwrap().0, both);
    writer.note_durable(writer.position());
    writer.mark_synced().unwrap();

    vfs.remove(&segment_path(dir(), SegmentId(1))).unwrap();
    assert_eq!(start(&vfs, dir(), 2).unwrap().0, [record(2, 10)]);
    assert!(is_corruption(&start(&vfs, dir(), 1)));
    assert!(is_corruption(&start(&vfs, dir(), 0)));
}

#[test]
fn a_directory_without_a_log_is_empty_only_while_none_is_needed() {
    let vfs = mem();
    let (records, end) = start(&vfs, dir(), 0).unwrap();
    assert!(records.is_empty());
    assert_eq!((end.end, end.next_segment), (None, SegmentId(1)));
    assert!(is_corruption(&start(&vfs, dir(), 1)));
}

#[test]
fn a_missing_segment_in_the_middle_or_one_without_a_header_is_damage_of_that_segment() {
    for empty in [true, false] {
        let vfs = mem();
        let mut writer = writer(&vfs, 1, None);
        for seqno in 1..=3 {
            if !empty || seqno != 2 {
                commit(&mut writer, &record(seqno, 10));
            }
            writer.rotate().unwrap();
        }
        let second = segment_path(dir(), SegmentId(2));
        let blamed = || match start(&vfs, dir(), 1) {
            Err(Error::Corruption { path, .. }) => path,
            other => panic!("{other:?}"),
        };
        let file = vfs.open(&second).unwrap();
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            flip(&*file, bit);
            assert_eq!(blamed(), second, "bit {bit}");
            flip(&*file, bit);
        }
        vfs.remove(&second).unwrap();
        assert_eq!(blamed(), second);
    }
}

#[test]
fn a_segment_of_another_database_is_refused() {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    commit(&mut writer, &record(1, 10));
    let result = replay(&vfs, dir(), UID + 1, SegmentId(1), &mut |_, _, _, _| Ok(()));
    assert!(is_corruption(&result));
}

/// Returns one segment of synced commits. Each has a durable mark that covers the ones before it.
fn synced_segment(marked: bool) -> (Vec<Record>, Vec<u8>) {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    let records: Vec<Record> = (1..=8).map(|i| record(i, 20 + i as usize)).collect();
    records
        .iter()
        .for_each(|record| commit(&mut writer, record));
    if marked {
        writer.mark_synced().unwrap();
    }
    let bytes = bytes_of(&vfs, &segment_path(dir(), SegmentId(1)));
    (records, bytes)
}

#[test]
fn any_flipped_bit_in_synced_records_is_reported_or_cuts_the_last_one_only() {
    let (records, bytes) = synced_segment(false);
    let used: u64 = records.iter().map(|r| frame_bytes(r.1.len()) as u64).sum();
    let end = SEGMENT_HEADER_BYTES + used;
    let last = end - frame_bytes(records[7].1.len()) as u64;
    // Includes some of the zeros after the last record, which are all alike.
    for bit in 0..(end as usize + 64) * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let result = start(&mem_with(1, &bad), dir(), 1);
        let at = bit as u64 / 8;
        if at < last {
            assert!(is_corruption(&result), "bit {bit}: {result:?}");
        } else {
            let (found, found_end) = result.unwrap();
            let expected = if at < end { &records[..7] } else { &records };
            assert_eq!(found, expected, "bit {bit}");
            assert!(found_end.torn_tail_bytes > 0, "bit {bit}");
        }
    }
}

#[test]
fn after_a_mark_no_flipped_bit_in_any_synced_record_goes_unreported() {
    let (records, bytes) = synced_segment(true);
    let used: usize = records.iter().map(|r| frame_bytes(r.1.len())).sum();
    for bit in 0..(SEGMENT_HEADER_BYTES as usize + used) * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let result = start(&mem_with(1, &bad), dir(), 1);
        assert!(is_corruption(&result), "bit {bit}: {result:?}");
    }
}

#[test]
fn every_truncation_of_a_segment_is_reported() {
    let (_, bytes) = synced_segment(false);
    for len in 0..bytes.len() {
        let result = start(&mem_with(1, &bytes[..len]), dir(), 1);
        assert!(is_corruption(&result), "length {len}: {result:?}");
    }
}

#[test]
fn any_flipped_bit_in_an_older_segment_is_reported_even_if_nothing_in_it_was_marked() {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    let records = [record(1, 30), record(2, 30)];
    records
        .iter()
        .for_each(|record| append(&mut writer, record));
    let position = writer.write().unwrap();
    writer.syncer().sync().unwrap();
    writer.note_durable(position);
    writer.rotate().unwrap();
    let end = SEGMENT_HEADER_BYTES + 2 * frame_bytes(30) as u64;
    let file = vfs.open(&segment_path(dir(), SegmentId(1))).unwrap();
    for bit in 0..end * 8 {
        flip(&*file, bit);
        let result = start(&vfs, dir(), 1);
        assert!(is_corruption(&result), "bit {bit}: {result:?}");
        flip(&*file, bit);
    }
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, records);
}

/// Returns a log of two segments with two records each. The second segment was begun before the
/// first was synced. If `later` is true, both are then synced, and a third record of the second one
/// says so.
fn overlapping(later: bool) -> (MemVfs, [Record; 5]) {
    let vfs = mem();
    let mut writer = writer(&vfs, 1, None);
    let records = [1, 2, 3, 4, 5].map(|seqno| record(seqno, 30));
    for (place, record) in records[..4].iter().enumerate() {
        if place == 2 {
            writer.rotate().unwrap();
        }
        append(&mut writer, record);
        writer.write().unwrap();
    }
    if later {
        let position = writer.position();
        writer.syncer().sync().unwrap();
        writer.note_durable(position);
        append(&mut writer, &records[4]);
        writer.write().unwrap();
    }
    (vfs, records)
}

#[test]
fn a_flipped_bit_in_an_unproven_segment_ends_the_log_there() {
    let (vfs, records) = overlapping(false);
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, records[..4]);
    let file = vfs.open(&segment_path(dir(), SegmentId(1))).unwrap();
    let second = SEGMENT_HEADER_BYTES + frame_bytes(30) as u64;
    for bit in second * 8..(second + frame_bytes(30) as u64) * 8 {
        flip(&*file, bit);
        let (found, end) = start(&vfs, dir(), 1).unwrap();
        assert_eq!(found, records[..1], "bit {bit}");
        assert_eq!(
            (&end.segments[..], &end.cut[..]),
            (&[SegmentId(1)][..], &[SegmentId(2)][..])
        );
        flip(&*file, bit);
    }
}

#[test]
fn a_segment_that_lost_its_length_is_cut_off_unless_something_says_that_it_was_durable() {
    let (vfs, records) = overlapping(false);
    let path = segment_path(dir(), SegmentId(2));
    vfs.open(&path).unwrap().truncate(512).unwrap();
    let (found, end) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, records[..2]);
    assert_eq!(end.cut, [SegmentId(2)]);
    let (vfs, _) = overlapping(true);
    vfs.open(&path).unwrap().truncate(512).unwrap();
    assert!(is_corruption(&start(&vfs, dir(), 1)));
}

#[test]
fn any_flipped_bit_below_a_later_durable_mark_is_damage() {
    let (vfs, records) = overlapping(true);
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, records);
    let end = SEGMENT_HEADER_BYTES + 2 * frame_bytes(30) as u64;
    for segment in [1, 2] {
        let file = vfs.open(&segment_path(dir(), SegmentId(segment))).unwrap();
        for bit in 0..end * 8 {
            flip(&*file, bit);
            let result = start(&vfs, dir(), 1);
            assert!(
                is_corruption(&result),
                "segment {segment} bit {bit}: {result:?}"
            );
            flip(&*file, bit);
        }
    }
}

fn flip(file: &dyn VfsFile, bit: u64) {
    let mut byte = [0];
    file.read_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_at(&byte, bit / 8).unwrap();
}

#[test]
fn records_after_a_gap_stay_dead_after_the_gap_is_rewritten() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    let records: Vec<Record> = (9..=12).map(|i| record(i, 24)).collect();
    records.iter().for_each(|record| append(&mut wal, record));
    wal.write().unwrap();
    // Power fails: the device kept 9, 11 and 12, and lost 10.
    let path = segment_path(dir(), SegmentId(1));
    let bytes = bytes_of(&vfs, &path);
    let frame = frame_bytes(24);
    let gap = SEGMENT_HEADER_BYTES as usize + frame;
    vfs.open(&path)
        .unwrap()
        .write_at(&vec![0; frame], gap as u64)
        .unwrap();
    let (found, end) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, records[..1]);
    assert_eq!(end.torn_tail_bytes, 3 * frame as u64);

    let again = (10, vec![0xAA; 24]);
    let mut wal = writer(&vfs, end.next_segment.0, end.end);
    commit(&mut wal, &again);
    let expected = [records[0].clone(), again];
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, expected);
    // Even if the device brings the lost bytes back, they are after the end named by the new
    // segment.
    let lost = &bytes[gap..gap + frame];
    vfs.open(&path).unwrap().write_at(lost, gap as u64).unwrap();
    assert_eq!(start(&vfs, dir(), 1).unwrap().0, expected);
}

#[test]
fn a_valid_record_with_another_predecessor_does_not_continue_the_log() {
    let with_first = |first: &[u8]| {
        let vfs = mem();
        let mut wal = writer(&vfs, 1, None);
        commit(&mut wal, &(1, first.to_vec()));
        commit(&mut wal, &(2, b"second".to_vec()));
        bytes_of(&vfs, &segment_path(dir(), SegmentId(1)))
    };
    let second = SEGMENT_HEADER_BYTES as usize + frame_bytes(4);
    let mut mixed = with_first(b"this");
    mixed.truncate(second);
    mixed.extend_from_slice(&with_first(b"that")[second..]);
    // The second record is a valid frame in its place, but names another durable predecessor.
    let (found, _) = start(&mem_with(1, &mixed), dir(), 1).unwrap();
    assert_eq!(found, [(1, b"this".to_vec())]);
}

#[test]
fn a_record_of_a_reserved_or_unknown_kind_is_damage() {
    let vfs = mem();
    commit(&mut writer(&vfs, 1, None), &record(1, 10));
    let bytes = bytes_of(&vfs, &segment_path(dir(), SegmentId(1)));
    let uid = segment_uid(UID, SegmentId(1));
    let frame = SEGMENT_HEADER_BYTES as usize..SEGMENT_HEADER_BYTES as usize + frame_bytes(10);
    for kind in [7, 10] {
        let mut bytes = bytes.clone();
        let header = FrameHeader::parse(&bytes[frame.clone()], uid, SEGMENT_HEADER_BYTES);
        let (header, _) = header.unwrap();
        let other = FrameHeader { kind, ..header };
        seal(&mut bytes[frame.clone()], other, uid, SEGMENT_HEADER_BYTES);
        let error = start(&mem_with(1, &bytes), dir(), 1).unwrap_err();
        assert!(error.to_string().contains("record kind"), "{error}");
    }
}

#[test]
fn an_unfinished_newest_segment_is_passed_over_and_its_number_is_not_used_again() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    commit(&mut wal, &record(1, 10));
    vfs.create(&segment_path(dir(), SegmentId(2))).unwrap();
    let zeros = vfs.create(&segment_path(dir(), SegmentId(3))).unwrap();
    zeros.allocate(SMALL).unwrap();
    let (found, end) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 10)]);
    assert_eq!(end.next_segment, SegmentId(4));
    let mut wal = writer(&vfs, 4, end.end);
    commit(&mut wal, &record(2, 10));
    let (found, end) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 10), record(2, 10)]);
    assert_eq!(end.segments, [SegmentId(1), SegmentId(4)]);
}

#[test]
fn a_newest_segment_without_a_valid_header_is_damage_if_a_record_says_it_was_durable() {
    for synced in [false, true] {
        let vfs = mem();
        let mut wal = writer(&vfs, 1, None);
        commit(&mut wal, &record(1, 10));
        wal.rotate().unwrap();
        if synced {
            commit(&mut wal, &record(2, 10))
        } else {
            append(&mut wal, &record(2, 10))
        }
        append(&mut wal, &record(3, 10));
        wal.write().unwrap();
        let file = vfs.open(&segment_path(dir(), SegmentId(2))).unwrap();
        file.write_at(&[0; SEGMENT_HEADER_BYTES as usize], 0)
            .unwrap();
        let result = start(&vfs, dir(), 1);
        if synced {
            assert!(is_corruption(&result))
        } else {
            assert_eq!(result.unwrap().0, [record(1, 10)])
        }
    }
}

#[test]
fn garbage_never_panics_and_never_becomes_a_record() {
    let (records, good) = synced_segment(true);
    for seed in 0..3_000 {
        let mut random = SplitMix::new(seed);
        let mut bytes = good.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(600) as usize;
            let len = random.below(64) as usize;
            match random.below(3) {
                0 => bytes[at..at + len].fill_with(|| random.next() as u8),
                1 => bytes.copy_within(at..at + len, random.below(600) as usize / 8 * 8),
                _ => bytes.rotate_right(len),
            }
        }
        if let Ok((found, _)) = start(&mem_with(1, &bytes), dir(), 0) {
            assert!(records.starts_with(&found), "seed {seed}");
        }
    }
}

#[test]
fn a_visitors_error_ends_the_replay() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    commit(&mut wal, &record(1, 10));
    let result = replay(&vfs, dir(), UID, SegmentId(1), &mut |_, _, _, _| {
        Err(Error::Closed)
    });
    assert!(matches!(result, Err(Error::Closed)));
}

#[test]
fn a_group_without_room_for_its_segment_can_be_retried_or_dropped() {
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    commit(&mut wal, &record(1, 10));
    vfs.set_capacity(SMALL + 100);
    append(&mut wal, &record(2, 4000));
    assert!(matches!(wal.write(), Err(Error::NoSpace { .. })));
    wal.discard();
    // Records that fit the old segment are still accepted.
    commit(&mut wal, &record(3, 10));
    append(&mut wal, &record(4, 4000));
    assert!(matches!(wal.write(), Err(Error::NoSpace { .. })));
    assert!(matches!(wal.rotate(), Err(Error::NoSpace { .. })));
    vfs.set_capacity(1 << 30);
    wal.write().unwrap();
    let (found, _) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 10), record(3, 10), record(4, 4000)]);
}

#[test]
fn a_device_without_room_for_a_whole_segment_gets_a_short_one() {
    let vfs = mem();
    let whole = 4 * SHORT_SEGMENT_BYTES;
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut wal = WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, whole).unwrap();
    commit(&mut wal, &record(1, 10));
    vfs.set_capacity(whole + 3 * SHORT_SEGMENT_BYTES);
    wal.rotate().unwrap();
    commit(&mut wal, &record(2, 10));
    wal.use_short_segments(true);
    wal.rotate().unwrap();
    commit(&mut wal, &record(3, 10));
    let lengths = [1, 2, 3].map(|id| {
        let file = vfs.open_read(&segment_path(dir(), SegmentId(id))).unwrap();
        file.len().unwrap()
    });
    assert_eq!(lengths, [whole, SHORT_SEGMENT_BYTES, SHORT_SEGMENT_BYTES]);
    let (found, _) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 10), record(2, 10), record(3, 10)]);
}

#[test]
fn a_seal_on_a_full_device_takes_the_smallest_segment_and_a_commit_does_not() {
    let vfs = mem();
    let whole = 4 * SHORT_SEGMENT_BYTES;
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut wal = WalWriter::create(shared, dir(), UID, SegmentId(1), None, false, whole).unwrap();
    commit(&mut wal, &record(1, 10));
    vfs.set_capacity(whole + SHORT_SEGMENT_BYTES / 2);
    append(&mut wal, &record(2, whole as usize));
    assert!(matches!(wal.write(), Err(Error::NoSpace { .. })));
    wal.discard();
    wal.rotate().unwrap();
    commit(&mut wal, &record(2, 10));
    let (found, _) = start(&vfs, dir(), 1).unwrap();
    assert_eq!(found, [record(1, 10), record(2, 10)]);
}

#[test]
fn names_and_paths_agree() {
    let path: PathBuf = segment_path(dir(), SegmentId(17));
    assert_eq!(path, Path::new("/db/000017.wal"));
}
