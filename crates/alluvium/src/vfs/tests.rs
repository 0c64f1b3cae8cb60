//! One suite for all file systems, then tests of crashes in [`MemVfs`] and of faults in
//! [`FaultVfs`].

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::*;

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the call should fail"),
        Err(error) => error.kind(),
    }
}

fn read(file: &dyn VfsFile, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    file.read_at(&mut buf, offset).unwrap();
    buf
}

/// Tests all behavior of a file system that the engine relies on.
fn basic_suite(vfs: &dyn Vfs, root: &Path) {
    let dir = root.join("db");
    vfs.create_dir_all(&dir).unwrap();
    vfs.create_dir_all(&dir).unwrap();
    let (a, b, c) = (dir.join("a"), dir.join("b"), dir.join("c"));

    let file = vfs.create(&a).unwrap();
    assert_eq!(kind(vfs.create(&a)), ErrorKind::AlreadyExists);
    assert!(file.is_empty().unwrap());
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(read(&*file, 0, 8), b"\0\0\0hello");
    assert_eq!(kind(file.read_at(&mut [0; 9], 0)), ErrorKind::UnexpectedEof);
    file.allocate(10_000).unwrap();
    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert_eq!(read(&*file, 9_990, 10), [0; 10]);
    file.truncate(5).unwrap();
    file.truncate(9).unwrap();
    assert_eq!(read(&*file, 0, 9), b"\0\0\0he\0\0\0\0");
    file.start_writeback(0, 9);
    file.sync().unwrap();
    file.drop_cached(0, 9);
    assert_eq!(read(&*file, 3, 2), b"he");
    assert_eq!(file.path(), a);

    vfs.hard_link(&a, &b).unwrap();
    assert_eq!(kind(vfs.hard_link(&a, &b)), ErrorKind::AlreadyExists);
    vfs.rename(&a, &c).unwrap();
    assert!(!vfs.exists(&a).unwrap());
    assert!(vfs.exists(&c).unwrap());
    assert_eq!(kind(vfs.open(&a)), ErrorKind::NotFound);
    vfs.open(&c).unwrap().write_at(b"J", 0).unwrap();
    let linked = vfs.open_read(&b).unwrap();
    assert_eq!(read(&*linked, 0, 1), b"J");
    assert!(linked.write_at(b"x", 0).is_err());
    vfs.create(&a).unwrap().write_at(b"new", 0).unwrap();
    vfs.rename(&a, &b).unwrap();
    assert_eq!(read(&*vfs.open_read(&b).unwrap(), 0, 3), b"new");
    assert_eq!(read(&*linked, 0, 1), b"J");

    vfs.sync_dir(&dir).unwrap();
    let names: BTreeSet<String> = vfs.list(&dir).unwrap().into_iter().collect();
    assert_eq!(names, BTreeSet::from(["b".to_owned(), "c".to_owned()]));
    vfs.remove(&b).unwrap();
    assert_eq!(kind(vfs.remove(&b)), ErrorKind::NotFound);
    assert!(vfs.free_bytes(&dir).unwrap() > 0);

    let lock = vfs.lock(&dir.join("LOCK")).unwrap();
    assert!(lock.is_ok());
    assert!(vfs.lock(&dir.join("LOCK")).unwrap().is_err());
    drop(lock);
    let lock = dir.join("LOCK");
    assert!(vfs.lock(&lock).unwrap().is_ok());
    let shared = [(); 2].map(|()| vfs.lock_shared(&lock).unwrap().expect("a second reader"));
    assert!(vfs.lock(&lock).unwrap().is_err());
    let [first, second] = shared;
    drop(first);
    assert!(vfs.lock(&lock).unwrap().is_err());
    drop(second);
    let exclusive = vfs.lock(&lock).unwrap();
    assert!(vfs.lock_shared(&lock).unwrap().is_err());
    drop(exclusive);
    assert_eq!(
        kind(vfs.lock_shared(&dir.join("missing"))),
        ErrorKind::NotFound
    );
    directories_and_copies(vfs, root);
}

fn directories_and_copies(vfs: &dyn Vfs, root: &Path) {
    let (old, new) = (root.join("old"), root.join("new"));
    vfs.create_dir_all(&old).unwrap();
    let file = vfs.create(&old.join("a")).unwrap();
    let content: Vec<u8> = (0..COPY_BYTES + 5).map(|n| (n % 251) as u8).collect();
    file.write_at(&content, 0).unwrap();
    let copied = vfs.copy(&old.join("a"), &old.join("b")).unwrap();
    assert_eq!(copied, content.len() as u64);
    let copy = vfs.open_read(&old.join("b")).unwrap();
    assert_eq!(read(&*copy, 0, content.len()), content);
    file.write_at(b"other", 0).unwrap();
    assert_eq!(read(&*copy, 0, content.len()), content);
    let again = vfs.copy(&old.join("a"), &old.join("b"));
    assert_eq!(kind(again), ErrorKind::AlreadyExists);

    assert_eq!(kind(vfs.remove_dir(&old)), ErrorKind::DirectoryNotEmpty);
    vfs.rename_dir(&old, &new).unwrap();
    assert!(!vfs.exists(&old).unwrap() && vfs.exists(&new.join("a")).unwrap());
    vfs.create_dir_all(&old).unwrap();
    assert_eq!(kind(vfs.rename_dir(&new, &old)), ErrorKind::AlreadyExists);
    vfs.remove_dir(&old).unwrap();
    assert_eq!(kind(vfs.remove_dir(&old)), ErrorKind::NotFound);
    assert_eq!(kind(vfs.rename_dir(&old, &new)), ErrorKind::NotFound);
}

#[test]
fn only_a_sync_of_its_parent_makes_the_new_name_of_a_directory_durable() {
    let vfs = MemVfs::new();
    let (old, new) = (Path::new("/old"), Path::new("/new"));
    vfs.create_dir_all(old).unwrap();
    let make = |name: &str| vfs.create(&old.join(name)).unwrap();
    make("synced");
    vfs.sync_dir(old).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    make("unsynced");
    vfs.rename_dir(old, new).unwrap();
    let lost = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert_eq!(lost.list(old).unwrap(), ["synced"]);
    assert!(!lost.exists(new).unwrap());
    vfs.sync_dir(Path::new("/")).unwrap();
    let moved = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert_eq!(moved.list(new).unwrap(), ["synced"]);
    assert!(!moved.exists(old).unwrap());
    vfs.sync_dir(new).unwrap();
    let all = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert_eq!(all.list(new).unwrap(), ["synced", "unsynced"]);
}

#[test]
fn real_files_behave_as_promised() {
    let dir = tempfile::tempdir().unwrap();
    basic_suite(&RealVfs::new(), dir.path());
}

#[test]
fn files_in_memory_behave_as_promised() {
    basic_suite(&MemVfs::new(), Path::new("/"));
}

#[test]
fn a_fault_layer_without_a_fault_changes_nothing() {
    basic_suite(&FaultVfs::new(Arc::new(MemVfs::new())), Path::new("/"));
}

#[test]
fn files_without_a_directory_cannot_be_made() {
    let vfs = MemVfs::new();
    assert_eq!(kind(vfs.create(Path::new("/no/file"))), ErrorKind::NotFound);
    vfs.create(Path::new("/file")).unwrap();
    assert_eq!(
        kind(vfs.create_dir_all(Path::new("/file/dir"))),
        ErrorKind::NotADirectory
    );
}

#[test]
fn only_a_directory_sync_makes_names_durable() {
    let vfs = MemVfs::new();
    let path = Path::new("/a");
    let file = vfs.create(path).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync().unwrap();
    let lost = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert!(!lost.exists(path).unwrap());
    let kept = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    assert_eq!(read(&*kept.open(path).unwrap(), 0, 1), b"x");

    vfs.sync_dir(Path::new("/")).unwrap();
    vfs.rename(path, Path::new("/b")).unwrap();
    let back = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert_eq!(back.list(Path::new("/")).unwrap(), ["a"]);
    vfs.sync_dir(Path::new("/")).unwrap();
    vfs.remove(Path::new("/b")).unwrap();
    let back = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    assert_eq!(back.list(Path::new("/")).unwrap(), ["b"]);
}

#[test]
fn only_a_file_sync_makes_content_durable() {
    let vfs = MemVfs::new();
    let file = vfs.create(Path::new("/a")).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    file.write_at(&[1; 2000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 3000], 0).unwrap();
    let after = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let after = after.open(Path::new("/a")).unwrap();
    assert_eq!(after.len().unwrap(), 2000);
    assert_eq!(read(&*after, 0, 2000), [1; 2000]);
}

#[test]
fn a_crash_keeps_whole_sectors_in_any_mixture_and_the_seed_decides() {
    let vfs = MemVfs::new();
    let path = Path::new("/a");
    let file = vfs.create(path).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    file.allocate(4096).unwrap();
    file.sync().unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 1024], 256).unwrap();
    let mut states_seen = BTreeSet::new();
    let mut mixtures = BTreeSet::new();
    for seed in 0..300 {
        let content = |vfs: &MemVfs| read(&*vfs.open(path).unwrap(), 0, 4096);
        let bytes = content(&vfs.crash(seed, CrashOptions::POWER_LOSS));
        let again = content(&vfs.crash(seed, CrashOptions::POWER_LOSS));
        assert_eq!(bytes, again, "seed {seed}");
        // The first sector holds the old zeros, the first write, or both writes; never half a
        // write.
        let (head, tail) = bytes[..512].split_at(256);
        assert!(head.iter().all(|&b| b == head[0]), "seed {seed}");
        assert!(tail.iter().all(|&b| b == tail[0]), "seed {seed}");
        states_seen.insert((head[0], tail[0]));
        mixtures.insert(bytes.chunks(512).map(|s| s[300]).collect::<Vec<_>>());
    }
    assert_eq!(states_seen, BTreeSet::from([(0, 0), (1, 1), (1, 2)]));
    assert!(mixtures.len() > 30);
}

#[test]
fn a_crash_keeps_any_subset_of_names_but_never_half_a_rename() {
    let vfs = MemVfs::new();
    let root = Path::new("/");
    vfs.create(Path::new("/a")).unwrap();
    vfs.sync_dir(root).unwrap();
    vfs.rename(Path::new("/a"), Path::new("/b")).unwrap();
    vfs.create(Path::new("/c")).unwrap();
    vfs.create_dir_all(Path::new("/d")).unwrap();
    vfs.create(Path::new("/d/e")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let after = vfs.crash(seed, CrashOptions::POWER_LOSS);
        let names = after.list(root).unwrap().join("");
        assert!(names.contains('a') != names.contains('b'), "seed {seed}");
        if !names.contains('d') {
            assert!(!after.exists(Path::new("/d/e")).unwrap(), "seed {seed}");
        }
        seen.insert(names);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn a_hard_link_shares_its_content_after_a_crash() {
    let vfs = MemVfs::new();
    vfs.create(Path::new("/a")).unwrap();
    vfs.hard_link(Path::new("/a"), Path::new("/b")).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    let after = vfs.crash(7, CrashOptions::POWER_LOSS);
    let a = after.open(Path::new("/a")).unwrap();
    a.write_at(b"both", 0).unwrap();
    assert_eq!(read(&*after.open(Path::new("/b")).unwrap(), 0, 4), b"both");
}

#[test]
fn a_crash_releases_locks() {
    let vfs = MemVfs::new();
    let _guard = vfs.lock(Path::new("/LOCK")).unwrap();
    let after = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    assert!(after.lock(Path::new("/LOCK")).unwrap().is_ok());
}

#[test]
fn a_full_device_refuses_to_grow_files_until_one_is_removed() {
    let vfs = MemVfs::with_capacity(10_000);
    let a = vfs.create(Path::new("/a")).unwrap();
    a.allocate(8_000).unwrap();
    let b = vfs.create(Path::new("/b")).unwrap();
    assert_eq!(kind(b.allocate(4_000)), ErrorKind::StorageFull);
    assert_eq!(kind(b.write_at(&[0; 4_000], 0)), ErrorKind::StorageFull);
    a.write_at(&[1; 8_000], 0).unwrap();
    drop(a);
    vfs.remove(Path::new("/a")).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    b.allocate(4_000).unwrap();
    assert_eq!(vfs.free_bytes(Path::new("/")).unwrap(), 6_000);
}

#[test]
fn the_chosen_call_fails_once_or_from_then_on() {
    let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
    let file = vfs.create(Path::new("/a")).unwrap();
    let mut fault = Fault {
        calls: vec![IoCall::Sync],
        nth: 2,
        sticky: false,
        effect: FaultEffect::Error,
    };
    vfs.arm(fault.clone());
    let outcomes: Vec<bool> = (0..4).map(|_| file.sync().is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true]);
    assert!(vfs.tripped());
    assert_eq!(vfs.calls(IoCall::Sync), 4);

    fault.sticky = true;
    vfs.arm(fault);
    file.write_at(b"x", 0).unwrap();
    let outcomes: Vec<bool> = (0..4).map(|_| file.sync().is_ok()).collect();
    assert_eq!(outcomes, [true, false, false, false]);
    vfs.disarm();
    file.sync().unwrap();
}

#[test]
fn a_fault_of_one_thread_leaves_the_calls_of_others_alone() {
    let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
    let file = vfs.create(Path::new("/a")).unwrap();
    vfs.arm_for_this_thread(Fault {
        calls: vec![IoCall::Sync],
        nth: 2,
        sticky: false,
        effect: FaultEffect::Error,
    });
    file.sync().unwrap();
    std::thread::scope(|s| s.spawn(|| file.sync()).join().unwrap()).unwrap();
    assert!(!vfs.tripped());
    file.sync().unwrap_err();
    assert!(vfs.tripped());
}

#[test]
fn a_short_write_leaves_half_of_its_bytes_and_a_full_device_says_so() {
    let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
    let file = vfs.create(Path::new("/a")).unwrap();
    let fault = |effect| Fault {
        calls: vec![],
        nth: 1,
        sticky: false,
        effect,
    };
    vfs.arm(fault(FaultEffect::ShortWrite));
    assert!(file.write_at(b"abcd", 0).is_err());
    assert_eq!(file.len().unwrap(), 2);
    vfs.arm(fault(FaultEffect::NoSpace));
    assert_eq!(kind(file.allocate(100)), ErrorKind::StorageFull);
}
