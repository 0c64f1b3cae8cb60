//! Tests of the scrub, the check of a log that is still being written.

use super::*;

/// Records the reported damage.
#[derive(Default)]
struct Listener(Vec<PathBuf>);

impl ScrubLog for Listener {
    fn oldest_needed(&self) -> SegmentId {
        SegmentId(1)
    }

    fn record(&mut self, _: SeqNo, _: RecordKind, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn report(&mut self, error: Error) {
        match error {
            Error::Corruption { path, .. } => self.0.push(path),
            other => panic!("{other}"),
        }
    }
}

/// Returns the segments that a scrub blames.
fn damaged(vfs: &MemVfs, end: WalPosition) -> Vec<PathBuf> {
    let mut heard = Listener::default();
    scrub(vfs, dir(), UID, end, &mut heard);
    heard.0
}

#[test]
fn a_scrub_skips_a_file_that_never_became_a_segment() {
    let path = |segment| segment_path(dir(), SegmentId(segment));
    let vfs = mem();
    let mut wal = writer(&vfs, 1, None);
    commit(&mut wal, &record(1, 10));
    let (_, end) = start(&vfs, dir(), 1).unwrap();
    let mut wal = writer(&vfs, 5, end.end);
    commit(&mut wal, &record(2, 10));
    vfs.create(&path(2)).unwrap();
    let zeros = vfs.create(&path(3)).unwrap();
    zeros.allocate(SMALL).unwrap();
    assert!(damaged(&vfs, wal.position()).is_empty());
    let newest = vfs.open(&path(5)).unwrap();
    flip(&*newest, 64);
    assert_eq!(damaged(&vfs, wal.position()), [path(5)]);
    // A file that holds a record was a segment, so its damage is reported.
    let older = vfs.open(&path(1)).unwrap();
    flip(&*older, 64);
    assert_eq!(damaged(&vfs, wal.position()), [path(5), path(1)]);
}
