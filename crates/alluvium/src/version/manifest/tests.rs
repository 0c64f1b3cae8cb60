//! Tests of the manifest: edits come back, damage is reported, and crashes or failing calls lose no
//! acknowledged edit.

use super::file::ALLOCATION_UNIT_BYTES;
use super::*;
use crate::base::{KeyspaceId, TableId};
use crate::version::current::{current_line, file_name};
use crate::version::{GroupEdit, KeyspaceRecord, TableRecord};
use crate::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, RealVfs, SplitMix};

const UID: u64 = 0xDA7A;

fn dir() -> &'static Path {
    Path::new("/db")
}

fn mem() -> MemVfs {
    let vfs = MemVfs::new();
    vfs.create_dir_all(dir()).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    vfs
}

fn shared(vfs: &MemVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

fn is_corruption<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Corruption { .. }))
}

fn create_keyspace(state: &ManifestState) -> VersionEdit {
    let id = state.next_keyspace;
    VersionEdit {
        next_keyspace: Some(KeyspaceId(id.0 + 1)),
        created: vec![KeyspaceRecord {
            id,
            name: format!("keyspace {}", id.0),
            options: vec![id.0 as u8; 9],
            created_seqno: state.last_seqno,
        }],
        ..VersionEdit::default()
    }
}

/// Returns an edit that fits the state: mostly flushes, some drops, splits and joins.
fn random_edit(state: &ManifestState, random: &mut SplitMix) -> VersionEdit {
    if state.keyspaces.is_empty() || random.chance(5) {
        return create_keyspace(state);
    }
    let nth = random.below(state.keyspaces.len() as u64) as usize;
    let Some((&keyspace, tree)) = state.keyspaces.iter().nth(nth) else {
        unreachable!("the index is below the count");
    };
    let nth = random.below(tree.groups.iter().len() as u64) as usize;
    let (low, group) = tree.groups.iter().nth(nth).unwrap();
    let low = low.clone();
    let mut edit = VersionEdit::default();
    match random.below(20) {
        0 => edit.dropped.push((keyspace, state.last_seqno)),
        1..=3 => {
            let mut at = low.clone();
            at.push(0);
            // The last level is empty here, so any border between the groups will do.
            if tree.groups.get(&at).is_none() {
                edit.groups.push(GroupEdit::Split { keyspace, low, at });
            }
        }
        4 | 5 if !low.is_empty() => edit.groups.push(GroupEdit::Join { keyspace, low }),
        6..=9 if !group.upper.is_empty() => edit.groups.push(GroupEdit::RemoveUpper {
            keyspace,
            low,
            table: group.upper[0].1.id,
        }),
        _ => {
            let id = state.next_table;
            edit.next_table = Some(TableId(id.0 + 1));
            edit.last_seqno = Some(state.last_seqno + 5);
            edit.flushed_seqno.push((keyspace, state.last_seqno + 5));
            edit.groups.push(GroupEdit::AddUpper {
                keyspace,
                low,
                table: table(id, random),
                run: id.0,
            });
        }
    }
    edit
}

fn table(id: TableId, random: &mut SplitMix) -> TableRecord {
    TableRecord {
        id,
        uid: random.next(),
        file_bytes: random.below(1 << 26),
        entries: random.below(1 << 20),
        tombstones: random.below(1 << 10),
        raw_bytes: random.below(1 << 27),
        first_key: vec![1; random.below(300) as usize],
        last_key: vec![2; 300],
        min_seqno: 1,
        max_seqno: 2,
        global_seqno: None,
    }
}

fn append_random(manifest: &mut Manifest, random: &mut SplitMix) -> Result<()> {
    let edit = random_edit(manifest.state(), random);
    manifest.append(&edit)
}

fn path_of(number: u64) -> PathBuf {
    dir().join(file_name(number))
}

fn bytes_of(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open_read(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn flip(vfs: &MemVfs, path: &Path, bit: u64) {
    let file = vfs.open(path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_at(&byte, bit / 8).unwrap();
}

fn round_trip(vfs: Arc<dyn Vfs>, dir: &Path) {
    assert!(!Manifest::exists(&*vfs, dir).unwrap());
    let mut random = SplitMix::new(1);
    let mut manifest = Manifest::create(Arc::clone(&vfs), dir, UID).unwrap();
    for _ in 0..3 {
        for _ in 0..40 {
            append_random(&mut manifest, &mut random).unwrap();
        }
        let expected = manifest.state().clone();
        assert_eq!(Manifest::read(&*vfs, dir).unwrap(), (UID, expected.clone()));
        let (reopened, state) = Manifest::open(Arc::clone(&vfs), dir).unwrap();
        assert_eq!(reopened.database_uid(), UID);
        assert_eq!((reopened.state(), &state), (&expected, &expected));
        manifest = reopened;
    }
    assert!(Manifest::exists(&*vfs, dir).unwrap());
    let manifests = vfs.list(dir).unwrap();
    let manifests = manifests.iter().filter(|name| parse_name(name).is_some());
    assert_eq!(manifests.count(), 2);
}

#[test]
fn edits_come_back_after_every_reopening() {
    round_trip(shared(&mem()), dir());
}

#[test]
fn edits_come_back_from_real_files() {
    let temp = tempfile::tempdir().unwrap();
    round_trip(Arc::new(RealVfs::new()), temp.path());
}

#[test]
fn two_databases_do_not_share_a_uid() {
    assert_ne!(random_uid(), random_uid());
}

#[test]
fn a_database_is_not_created_over_another_or_over_its_remains() {
    let vfs = mem();
    Manifest::create(shared(&vfs), dir(), UID).unwrap();
    let again = Manifest::create(shared(&vfs), dir(), UID);
    assert!(matches!(again, Err(Error::InvalidArgument(_))));
    vfs.remove(&dir().join(CURRENT)).unwrap();
    vfs.create(&dir().join("000001.wal")).unwrap();
    let result = Manifest::create(shared(&vfs), dir(), UID);
    assert!(is_corruption(&result));
    vfs.remove(&dir().join("000001.wal")).unwrap();
    Manifest::create(shared(&vfs), dir(), UID).unwrap();
}

#[test]
fn a_manifest_that_has_doubled_is_written_anew() {
    let vfs = mem();
    let mut random = SplitMix::new(2);
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    manifest.append(&create_keyspace(manifest.state())).unwrap();
    let mut numbers = std::collections::BTreeSet::new();
    for _ in 0..6_000 {
        // A table that comes and goes: the log grows, the state does not.
        let id = manifest.state().next_table;
        let keyspace = KeyspaceId(1);
        let low = Vec::new();
        let add = VersionEdit {
            next_table: Some(TableId(id.0 + 1)),
            groups: vec![GroupEdit::AddUpper {
                keyspace,
                low: low.clone(),
                table: table(id, &mut random),
                run: 1,
            }],
            ..VersionEdit::default()
        };
        let remove = VersionEdit {
            groups: vec![GroupEdit::RemoveUpper {
                keyspace,
                low,
                table: id,
            }],
            ..VersionEdit::default()
        };
        manifest.append(&add).unwrap();
        manifest.append(&remove).unwrap();
        numbers.insert(manifest.log.as_mut().unwrap().number);
        assert!(manifest.log.as_mut().unwrap().end <= REWRITE_BYTES_MIN);
    }
    assert!(numbers.len() > 2);
    let (_, state) = Manifest::read(&vfs, dir()).unwrap();
    assert_eq!(&state, manifest.state());
}

#[test]
fn any_flipped_bit_is_reported() {
    let vfs = mem();
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    // Short edits: for each of their bits the whole file is read once.
    for _ in 0..4 {
        manifest.append(&create_keyspace(manifest.state())).unwrap();
    }
    let state = manifest.state().clone();
    let end = manifest.log.as_mut().unwrap().end;
    let mark = end - frame_bytes(0) as u64;
    let path = path_of(manifest.log.as_mut().unwrap().number);
    for bit in 0..(end + 64) * 8 {
        flip(&vfs, &path, bit);
        let result = Manifest::read(&vfs, dir());
        if bit / 8 < mark {
            assert!(is_corruption(&result), "bit {bit}: {result:?}");
        } else {
            // The last mark holds no edit, and there is nothing after it.
            assert_eq!(result.unwrap().1, state, "bit {bit}");
        }
        flip(&vfs, &path, bit);
    }
    let current = dir().join(CURRENT);
    for bit in 0..bytes_of(&vfs, &current).len() as u64 * 8 {
        flip(&vfs, &current, bit);
        assert!(is_corruption(&Manifest::read(&vfs, dir())), "bit {bit}");
        flip(&vfs, &current, bit);
    }
}

#[test]
fn every_truncation_is_reported() {
    let vfs = mem();
    let mut random = SplitMix::new(4);
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    for _ in 0..6 {
        append_random(&mut manifest, &mut random).unwrap();
    }
    for path in [path_of(1), dir().join(CURRENT)] {
        let bytes = bytes_of(&vfs, &path);
        let file = vfs.open(&path).unwrap();
        for len in (0..bytes.len() as u64).rev() {
            file.truncate(len).unwrap();
            assert!(is_corruption(&Manifest::read(&vfs, dir())), "length {len}");
        }
        file.write_at(&bytes, 0).unwrap();
    }
    Manifest::read(&vfs, dir()).unwrap();
}

#[test]
fn a_torn_last_edit_is_dropped_and_does_not_return() {
    let vfs = mem();
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    manifest.append(&create_keyspace(manifest.state())).unwrap();
    let before = manifest.state().clone();
    let start = manifest.log.as_mut().unwrap().end;
    manifest.append(&create_keyspace(manifest.state())).unwrap();
    // Neither its mark nor its own last byte reached the device.
    let mark = manifest.log.as_mut().unwrap().end - frame_bytes(0) as u64;
    let file = vfs.open(&path_of(1)).unwrap();
    let zeros = vec![0; frame_bytes(0) + 16];
    file.write_at(&zeros, mark - 16).unwrap();
    assert!(start < mark - 16);
    let (mut manifest, state) = Manifest::open(shared(&vfs), dir()).unwrap();
    assert_eq!(state, before);
    manifest.append(&create_keyspace(&state)).unwrap();
    assert_eq!(Manifest::read(&vfs, dir()).unwrap().1, *manifest.state());
}

#[test]
fn an_edit_that_does_not_fit_is_not_written_and_stops_the_manifest() {
    let vfs = mem();
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    let before = manifest.state().clone();
    let wrong = VersionEdit {
        dropped: vec![(KeyspaceId(4), 1)],
        ..VersionEdit::default()
    };
    assert!(is_corruption(&manifest.append(&wrong)));
    assert!(is_corruption(&manifest.append(&VersionEdit::default())));
    assert_eq!(Manifest::read(&vfs, dir()).unwrap().1, before);
}

#[test]
fn newer_formats_are_refused_by_name() {
    let vfs = mem();
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    // A field from the future that must be understood.
    manifest
        .log
        .as_mut()
        .unwrap()
        .append(KIND_EDIT, &[90, 0])
        .unwrap();
    let result = Manifest::read(&vfs, dir());
    assert!(
        matches!(result, Err(Error::NewerFormat { .. })),
        "{result:?}"
    );
    let current = vfs.open(&dir().join(CURRENT)).unwrap();
    current.write_at(current_line(2, 1).as_bytes(), 0).unwrap();
    let result = Manifest::read(&vfs, dir());
    assert!(
        matches!(result, Err(Error::NewerFormat { found: 2, .. })),
        "{result:?}"
    );
}

#[test]
fn a_full_device_leaves_the_manifest_as_it_was_and_usable() {
    let vfs = MemVfs::with_capacity(ALLOCATION_UNIT_BYTES + 1_000);
    vfs.create_dir_all(dir()).unwrap();
    let mut random = SplitMix::new(5);
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    let refused = loop {
        let edit = random_edit(manifest.state(), &mut random);
        let before = manifest.state().clone();
        match manifest.append(&edit) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => {
                assert_eq!(*manifest.state(), before);
                break edit;
            }
            Err(error) => panic!("{error}"),
        }
    };
    vfs.set_capacity(1 << 30);
    manifest.append(&refused).unwrap();
    assert_eq!(Manifest::read(&vfs, dir()).unwrap().1, *manifest.state());
}

#[test]
fn after_power_loss_every_acknowledged_edit_is_there() {
    for seed in 0..600 {
        let mut random = SplitMix::new(seed);
        let mut vfs = mem();
        let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
        for _ in 0..=random.below(3) {
            for _ in 0..random.below(12) {
                append_random(&mut manifest, &mut random).unwrap();
            }
            vfs = vfs.crash(random.next(), CrashOptions::POWER_LOSS);
            let expected = manifest.state().clone();
            let (reopened, state) = Manifest::open(shared(&vfs), dir())
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(state, expected, "seed {seed}");
            manifest = reopened;
        }
    }
}

/// Creates, appends and reopens with the `nth` call failing, then crashes. Returns true if the
/// fault tripped.
fn work_with_fault(nth: u64, effect: FaultEffect, seed: u64) -> bool {
    let context = format!("nth {nth} effect {effect:?} seed {seed}");
    let base = mem();
    let faulty = FaultVfs::new(Arc::new(base.clone()));
    faulty.arm(Fault {
        calls: Vec::<IoCall>::new(),
        nth,
        sticky: false,
        effect,
    });
    let mut random = SplitMix::new(seed);
    // State after the last acknowledged edit, and after one more attempted edit.
    let mut acknowledged = None;
    let mut attempted = None;
    let mut work = || -> Result<()> {
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut manifest = Manifest::create(Arc::clone(&vfs), dir(), UID)?;
        for round in 0..2 {
            acknowledged = Some(manifest.state().clone());
            for _ in 0..8 {
                let edit = random_edit(manifest.state(), &mut random);
                let mut after = manifest.state().clone();
                after.apply(&edit).unwrap();
                attempted = Some(after.clone());
                if let Err(first) = manifest.append(&edit) {
                    let later = manifest.append(&VersionEdit::default());
                    match &first {
                        Error::NoSpace { .. } => later?,
                        _ => assert_eq!(later.unwrap_err().to_string(), first.to_string()),
                    }
                    return Err(first);
                }
                acknowledged = Some(after);
            }
            if round == 0 {
                manifest.rewrite()?;
            } else {
                Manifest::open(Arc::clone(&vfs), dir())?;
            }
        }
        Ok(())
    };
    // A failed mark stops the manifest at the next edit; after any other error the work has
    // stopped.
    let _ = work();
    for options in [CrashOptions::PROCESS_KILLED, CrashOptions::POWER_LOSS] {
        let after = base.crash(seed, options);
        match &acknowledged {
            None if !Manifest::exists(&after, dir()).unwrap() => {
                Manifest::create(shared(&after), dir(), UID)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            _ => {
                let (_, state) = Manifest::open(shared(&after), dir())
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                let empty = ManifestState::default();
                let known = acknowledged.as_ref().unwrap_or(&empty);
                let fits = state == *known || Some(&state) == attempted.as_ref();
                assert!(fits, "{context}");
            }
        }
    }
    faulty.tripped()
}

#[test]
fn whichever_call_fails_no_acknowledged_edit_is_lost() {
    for effect in [
        FaultEffect::Error,
        FaultEffect::ShortWrite,
        FaultEffect::NoSpace,
    ] {
        for seed in 0..5 {
            let trips = (1..)
                .take_while(|&nth| work_with_fault(nth, effect, seed))
                .count();
            assert!(trips > 60, "only {trips} calls in the scenario");
        }
    }
}

#[test]
fn garbage_never_panics() {
    let vfs = mem();
    let mut random = SplitMix::new(6);
    let mut manifest = Manifest::create(shared(&vfs), dir(), UID).unwrap();
    let mut states = vec![manifest.state().clone()];
    for _ in 0..6 {
        append_random(&mut manifest, &mut random).unwrap();
        states.push(manifest.state().clone());
    }
    let end = manifest.log.as_mut().unwrap().end;
    let good = bytes_of(&vfs, &path_of(1));
    let file = vfs.open(&path_of(1)).unwrap();
    for seed in 0..2_000 {
        let mut random = SplitMix::new(seed);
        for _ in 0..=random.below(3) {
            let noise: Vec<u8> = (0..random.below(100))
                .map(|_| random.next() as u8)
                .collect();
            file.write_at(&noise, random.below(end)).unwrap();
        }
        if let Ok((_, state)) = Manifest::read(&vfs, dir()) {
            assert!(states.contains(&state), "seed {seed}");
        }
        file.write_at(&good[..2 * end as usize], 0).unwrap();
    }
}
