//! Whole databases with one forged structure under a valid checksum: a record of the log, an edit
//! of the manifest, a section of a table or value file. Opening, reading, writing and verifying may
//! fail, but must not panic or hang.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_testkit::random::Rng;
use alluvium_testkit::{Seeded, odd_input};

use crate::base::SEQNO_MAX;
use crate::base::checksum::{checksum, place_seed};
use crate::vfs::{CrashOptions, MemVfs, Vfs};
use crate::wal::RecordKind;
use crate::wal::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes, seal};
use crate::{CursorOptions, Database, Error, Expiry, Isolation, KeyspaceOptions, Options, Result};

fn dir() -> &'static Path {
    Path::new("db")
}

fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        idle_after: None,
        ..Options::default()
    }
}

/// Creates a database with every kind of stored data, after a kill of its process.
fn sample() -> Result<MemVfs> {
    let vfs = MemVfs::new();
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options())?;
    let mut large = KeyspaceOptions::default();
    (large.value_separation_bytes, large.expiry) = (Some(300), Expiry::PerRow);
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let large = db.keyspace("large", large)?;
    let gone = db.keyspace("gone", KeyspaceOptions::default())?;
    for round in 0..3u8 {
        for n in 0..60u8 {
            let key = [b'k', n / 9, n];
            rows.put(&key, &[round; 40])?;
            large.put_until(&key, &[n; 350], u64::from(n) << 40)?;
        }
        rows.delete_range(&[b'k', 2], &[b'k', 3, 30])?;
        rows.delete(&[b'k', 0, round])?;
        gone.put(b"row", b"of a keyspace that is dropped")?;
        // The last round stays in the log.
        match round {
            0 => db.settle()?,
            1 => db.flush()?,
            _ => {}
        }
    }
    let mut ingest = db.ingest()?;
    ingest.put(&rows, b"z", b"ingested")?;
    ingest.finish()?;
    db.drop_keyspace(&gone)?;
    for xid in [b"left", b"done"] {
        let txn = db.begin(Isolation::Snapshot)?;
        txn.put(&rows, xid, b"prepared")?;
        let prepared = txn.prepare(xid)?;
        if xid == b"done" {
            prepared.commit()?;
        }
    }
    let batch = &mut crate::WriteBatch::new();
    for n in 0..20u8 {
        batch.put(&rows, &[b'p', n], &[7; 50])?;
    }
    db.write(batch)?;
    // Rows that no flush has written yet.
    rows.delete_range(b"p", &[b'p', 3])?;
    large.put_until(b"k", &[1; 400], 1 << 50)?;
    rows.delete(&[b'p', 7])?;
    rows.put(b"last", b"row")?;
    db.sync()?;
    Ok(vfs.crash(1, CrashOptions::PROCESS_KILLED))
}

fn files(vfs: &MemVfs, ending: &str) -> Vec<PathBuf> {
    let mut names = vfs.list(dir()).expect("the directory is there");
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names.iter().map(|name| dir().join(name)).collect()
}

fn read(vfs: &MemVfs, path: &Path) -> Vec<u8> {
    let file = vfs.open_read(path).expect("it was listed");
    let mut bytes = vec![0; file.len().expect("memory files do not fail") as usize];
    file.read_at(&mut bytes, 0)
        .expect("memory files do not fail");
    bytes
}

/// Returns a copy of the files with one file's content replaced.
fn with(vfs: &MemVfs, path: &Path, bytes: &[u8]) -> MemVfs {
    let copy = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let file = copy.open(path).expect("it is a copy");
    file.truncate(0).expect("memory files do not fail");
    file.write_at(bytes, 0).expect("memory files do not fail");
    copy
}

/// Uses a database as an application does.
fn live(vfs: &MemVfs, read_only: bool) -> Result<()> {
    let options = Options {
        read_only,
        ..options()
    };
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options)?;
    let names = db.keyspace_names()?;
    for name in &names {
        let Some(keyspace) = db.existing_keyspace(name)? else {
            continue;
        };
        // Damage of one row does not prevent reading the others.
        let _ = read_all(&keyspace);
        let _ = keyspace.get(b"k");
    }
    let _ = db.amplification()?;
    let _ = db.verify()?;
    if !read_only {
        let rows = db.keyspace("rows", KeyspaceOptions::default())?;
        rows.put(b"new", b"row")?;
        assert_eq!(rows.get(b"new")?.as_deref(), Some(&b"row"[..]));
        db.flush()?;
        let _ = db.settle();
        let _ = rows.get(b"new")?;
    }
    db.close()
}

fn read_all(keyspace: &crate::Keyspace) -> Result<()> {
    let mut cursor = keyspace.cursor(CursorOptions::default())?;
    let mut there = cursor.seek_first()?;
    while there {
        let _ = cursor.value().len();
        there = cursor.next()?;
    }
    there = cursor.seek_last()?;
    while there {
        there = cursor.prev()?;
    }
    Ok(())
}

/// Checks that an error describes damage of a file, even if background work met it.
fn try_out(vfs: &MemVfs, rng: &mut Rng) {
    let Err(error) = live(vfs, rng.percent(30)) else {
        return;
    };
    let cause = match &error {
        Error::Poisoned(cause) => cause,
        own => own,
    };
    let is_damage = matches!(cause, Error::Corruption { .. } | Error::NewerFormat { .. });
    assert!(is_damage, "{error:?}");
}

/// Returns a file of frames (log segment, manifest) with changed frames, sealed again.
fn with_frames(
    bytes: &[u8],
    header_bytes: usize,
    change: impl FnOnce(&mut Vec<(FrameHeader, Vec<u8>)>),
) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    // Both headers have the uid and the file's number at the same offsets, and their checksum at
    // the end.
    let uid = checksum(&bytes[32..40], number(24));
    let mut frames = Vec::new();
    let mut offset = header_bytes;
    while let Some((header, _)) = FrameHeader::parse(&bytes[offset..], uid, offset as u64) {
        let payload = &bytes[offset + FRAME_HEADER_BYTES..][..header.payload_bytes as usize];
        frames.push((header, payload.to_vec()));
        offset += frame_bytes(payload.len());
    }
    change(&mut frames);
    let mut out = bytes[..header_bytes].to_vec();
    let mut chain = number(header_bytes - 8);
    for (mut header, payload) in frames {
        let offset = out.len() as u64;
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        frame.extend(&payload);
        frame.resize(frame_bytes(payload.len()), 0);
        header.payload_bytes = payload.len() as u32;
        header.chain = chain;
        header.durable = header.durable.min(offset);
        chain = seal(&mut frame, header, uid, offset);
        out.extend(frame);
    }
    out.resize(bytes.len(), 0);
    out
}

/// Changes one frame.
fn forge_frame(bytes: &[u8], header_bytes: usize, rng: &mut Rng) -> Vec<u8> {
    with_frames(bytes, header_bytes, |frames| {
        if frames.is_empty() {
            return;
        }
        let payloads: Vec<_> = frames.iter().map(|(_, payload)| payload.clone()).collect();
        let (header, payload) = &mut frames[rng.below(payloads.len())];
        match rng.below(10) {
            0 => header.kind = rng.range(1..13) as u8,
            1 => header.seqno = *rng.pick(&[0, 1, header.seqno + 1, SEQNO_MAX]),
            2 => *payload = odd_input(&payloads, rng),
            _ => *payload = odd_input(&[std::mem::take(payload)], rng),
        }
    })
}

/// Changes one section or the footer of a table or value file, with a matching checksum.
fn forge_section(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    const HEADER: usize = 24;
    let mut out = bytes.to_vec();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let footer = bytes.len() - number(bytes.len() - 12) as usize;
    let uid = u64::from_le_bytes(bytes[footer + 8..footer + 16].try_into().expect("8 bytes"));
    let mut parts = Vec::new();
    let mut at = 0;
    while at < footer {
        let end = at + HEADER + number(at + 20) as usize;
        parts.push(at..end);
        at = end;
    }
    parts.push(footer..bytes.len());
    let part = rng.pick(&parts).clone();
    for _ in 0..rng.range(1..4) {
        let place = if rng.percent(30) {
            part.start + rng.range(8..HEADER)
        } else {
            rng.range(part.start + 8..part.end)
        };
        out[place] = if rng.percent(50) {
            out[place] ^ 1 << rng.below(8)
        } else {
            *rng.pick(&[0, 1, 0x7F, 0x80, 0xFF])
        };
    }
    let sum = checksum(
        &out[part.start + 8..part.end],
        place_seed(uid, part.start as u64),
    );
    out[part.start..part.start + 8].copy_from_slice(&sum.to_le_bytes());
    out
}

fn fuzz_files(name: &str, ending: &str, forge: impl Fn(&[u8], &mut Rng) -> Vec<u8>) {
    let vfs = sample().expect("nothing is wrong yet");
    live(&vfs.crash(1, CrashOptions::PROCESS_KILLED), false).expect("nothing is wrong yet");
    let files = files(&vfs, ending);
    assert!(!files.is_empty());
    Seeded::fuzz(name, |rng| {
        let path = rng.pick(&files);
        let forged = forge(&read(&vfs, path), rng);
        try_out(&with(&vfs, path, &forged), rng);
    });
}

#[test]
fn no_keyspace_is_created_after_the_last_id() {
    let vfs = sample().expect("nothing is wrong yet");
    let [path] = &files(&vfs, ".manifest")[..] else {
        panic!("one manifest is in force");
    };
    let forged = with_frames(&read(&vfs, path), 48, |frames| {
        let (header, _) = frames[0].clone();
        // Field of the next keyspace: its tag, its length, 2^32 - 1.
        frames.push((header, vec![3, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]));
    });
    let vfs = with(&vfs, path, &forged);
    let db = Database::open_on(Arc::new(vfs), dir(), options()).expect("open");
    let refused = db.keyspace("new", KeyspaceOptions::default());
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    let rows = db
        .keyspace("rows", KeyspaceOptions::default())
        .expect("it exists");
    rows.put(b"a", b"row").expect("put");
}

/// Records that no writer writes.
#[test]
fn records_with_impossible_numbers_or_rows_are_damage() {
    type Change = fn(&mut (FrameHeader, Vec<u8>));
    let changes: [(&str, Change); 3] = [
        ("number of a commit", |frame| frame.0.seqno = SEQNO_MAX),
        ("number of a commit", |frame| frame.0.seqno = 1),
        ("payload of a commit record", |frame| {
            frame.1 = frame.1.repeat(2);
        }),
    ];
    let vfs = sample().expect("nothing is wrong yet");
    let commit = RecordKind::Commit as u8;
    let is_commit = |frame: &&mut (FrameHeader, Vec<u8>)| frame.0.kind == commit;
    for (expected, change) in changes {
        let mut found = 0;
        // The number of segments depends on the background work.
        for path in files(&vfs, ".wal") {
            let forged = with_frames(&read(&vfs, &path), 80, |frames| {
                if let Some(frame) = frames.iter_mut().rfind(is_commit) {
                    change(frame);
                }
            });
            match live(&with(&vfs, &path, &forged), false) {
                Err(Error::Corruption { what, .. }) if what == expected => found += 1,
                // A segment without a commit, or one no longer needed.
                Ok(()) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(found > 0, "{expected}");
    }
}

#[test]
fn fuzz_records_with_valid_checksums() {
    fuzz_files("logs with a wrong record", ".wal", |bytes, rng| {
        forge_frame(bytes, 80, rng)
    });
}

#[test]
fn fuzz_edits_with_valid_checksums() {
    fuzz_files("manifests with a wrong edit", ".manifest", |bytes, rng| {
        forge_frame(bytes, 48, rng)
    });
}

#[test]
fn fuzz_tables_with_valid_checksums() {
    fuzz_files("tables with a wrong section", ".sst", forge_section);
}

#[test]
fn fuzz_value_files_with_valid_checksums() {
    fuzz_files("value files with a wrong section", ".val", forge_section);
}
