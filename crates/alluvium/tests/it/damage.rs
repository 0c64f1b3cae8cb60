//! Files that are damaged, missing, swapped or newer are reported by name, and never read as data.

use std::sync::Arc;

use alluvium::base::checksum::{checksum, place_seed};
use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{Database, Error};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::chain;
use crate::fixture::{Row, all, assert_error, database, dir, table_files, tiny};
use crate::script::path_of;

/// Returns a closed database with tables and a short log, and its rows.
fn closed() -> (MemVfs, Vec<Row>) {
    let (vfs, db, k) = database(tiny());
    let mut rng = Rng::new(5);
    for n in 0..60 {
        k.put(format!("key{n:03}").as_bytes(), &rng.bytes(50))
            .expect("put");
    }
    db.flush().expect("flush");
    k.put(b"in the log", b"1").expect("put");
    let rows = all(&k);
    db.close().expect("close");
    (vfs, rows)
}

fn names(vfs: &MemVfs, extension: &str) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(extension));
    names.sort();
    names
}

fn read_file(vfs: &MemVfs, name: &str) -> Vec<u8> {
    let file = vfs.open_read(&path_of(name)).expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn write_file(vfs: &MemVfs, name: &str, bytes: &[u8]) {
    let file = vfs.open(&path_of(name)).expect("open");
    file.truncate(bytes.len() as u64).expect("truncate");
    file.write_at(bytes, 0).expect("write");
}

fn reopen(vfs: &MemVfs) -> alluvium::Result<Database> {
    Database::open_on(Arc::new(vfs.clone()), dir(), tiny())
}

/// Writes version 2 into a header and renews its checksum. The checksum covers all bytes before it
/// and is seeded with the file's number.
fn renew_header(vfs: &MemVfs, name: &str, header_bytes: usize) {
    let mut bytes = read_file(vfs, name);
    bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let number = name.split('.').next().and_then(|n| n.parse().ok());
    let at = header_bytes - 8;
    let sum = checksum(&bytes[..at], number.expect("a number"));
    bytes[at..header_bytes].copy_from_slice(&sum.to_le_bytes());
    write_file(vfs, name, &bytes);
}

#[test]
fn files_of_a_newer_format_are_refused_as_such() {
    let newer = |change: &dyn Fn(&MemVfs) -> String| {
        let (vfs, _) = closed();
        let name = change(&vfs);
        match reopen(&vfs) {
            Err(Error::NewerFormat {
                path,
                found,
                supported,
            }) => {
                assert_eq!((path, found, supported), (path_of(&name), 2, 1));
            }
            other => panic!("{name}: {:?}", other.err()),
        }
    };
    newer(&|vfs| {
        let text = String::from_utf8(read_file(vfs, "CURRENT")).expect("text");
        let name = text.split(' ').nth(2).expect("a name").to_owned();
        let line = format!("alluvium 2 {name}");
        let line = format!("{line} {:016x}\n", checksum(line.as_bytes(), 0));
        write_file(vfs, "CURRENT", line.as_bytes());
        "CURRENT".to_owned()
    });
    newer(&|vfs| {
        let name = names(vfs, ".manifest").pop().expect("a manifest");
        renew_header(vfs, &name, 48);
        name
    });
    newer(&|vfs| {
        let name = names(vfs, ".wal").pop().expect("a segment");
        renew_header(vfs, &name, 80);
        name
    });
    newer(&|vfs| {
        let name = table_files(vfs).remove(0);
        let mut bytes = read_file(vfs, &name);
        let (footer, end) = (bytes.len() - 192, bytes.len());
        bytes[end - 16..end - 12].copy_from_slice(&2_u32.to_le_bytes());
        let uid = u64::from_le_bytes(bytes[footer + 8..footer + 16].try_into().expect("8 bytes"));
        let sum = checksum(&bytes[footer + 8..], place_seed(uid, footer as u64));
        bytes[footer..footer + 8].copy_from_slice(&sum.to_le_bytes());
        write_file(vfs, &name, &bytes);
        name
    });
}

#[test]
fn every_damaged_byte_of_a_table_is_reported_or_harmless() {
    Seeded::run("every_damaged_byte", 1, |rng| {
        damage_every_byte(rng.below(STRIDE))
    });
}

/// Bytes from one damaged place to the next: each run of the test damages other places.
const STRIDE: usize = 13;

fn damage_every_byte(from: usize) {
    let (closed, rows) = closed();
    let name = table_files(&closed).remove(0);
    let intact = read_file(&closed, &name);
    let (mut tried, mut reported) = (0, 0);
    for at in (from..intact.len()).step_by(STRIDE) {
        tried += 1;
        let vfs = closed.crash(0, CrashOptions::PROCESS_KILLED);
        let mut bytes = intact.clone();
        bytes[at] ^= 1 << (at % 8);
        write_file(&vfs, &name, &bytes);
        let found = reopen(&vfs).and_then(|db| {
            let k = db.existing_keyspace("k")?.expect("keyspace");
            let mut cursor = k.cursor(alluvium::CursorOptions::default())?;
            let (mut found, mut step) = (Vec::new(), cursor.seek_first()?);
            while step {
                found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                step = cursor.next()?;
            }
            Ok(found)
        });
        match found {
            Ok(found) => assert!(found == rows, "byte {at} changes rows"),
            Err(Error::Corruption { path, .. }) => {
                assert_eq!(path, path_of(&name), "byte {at}");
                reported += 1;
            }
            Err(other) => panic!("byte {at}: {}", chain(&other)),
        }
    }
    // A scan does not read filters, so only a point read can report damage there.
    assert!(reported * 10 > tried * 8, "{reported} of {tried}");
}

#[test]
fn a_missing_or_cut_table_is_corruption_that_names_it() {
    let (vfs, _) = closed();
    let name = table_files(&vfs).remove(0);
    let intact = read_file(&vfs, &name);
    for length in [intact.len() - 1, intact.len() / 2, 0] {
        write_file(&vfs, &name, &intact[..length]);
        match reopen(&vfs) {
            Err(Error::Corruption { path, .. }) => assert_eq!(path, path_of(&name)),
            other => panic!("{length} bytes: {:?}", other.err()),
        }
    }
    vfs.remove(&path_of(&name)).expect("remove");
    match reopen(&vfs) {
        Err(Error::Corruption { path, .. }) => assert_eq!(path, path_of(&name)),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_table_under_another_tables_name_is_corruption() {
    let (vfs, db, k) = database(tiny());
    for value in ["1", "2"] {
        k.put(b"a", value.as_bytes()).expect("put");
        db.flush().expect("flush");
    }
    db.close().expect("close");
    let tables = table_files(&vfs);
    let [one, two] = [0, 1].map(|n| read_file(&vfs, &tables[n]));
    write_file(&vfs, &tables[0], &two);
    write_file(&vfs, &tables[1], &one);
    assert_error!(reopen(&vfs), Error::Corruption { .. });
}
