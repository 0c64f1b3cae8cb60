//! What a process may do around an open database: fork, start programs, change its working directory, move
//! and remove directories.
//!
//! On real files: the kernel decides most of it. Tests that change the whole process run in a process of
//! their own, which is this test program again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::backup::BackupStore;
use alluvium::{
    BulkLoadOptions, ChangesOptions, CursorOptions, Database, Error, Isolation, Keyspace,
    KeyspaceOptions, LockCancel, LockMode, Options, Result, Snapshot, TransactionOptions,
    WriteBatch, WriteOptions,
};

use crate::fixture::assert_error;
use crate::fixture::{all, text, tiny};

fn open(dir: &Path) -> (Database, Keyspace) {
    let db = Database::open(dir, tiny()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    (db, k)
}

/// Forks; `child` runs in the child, which ends with the code that it returns. The parent waits for it.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: what the child calls takes no lock that a thread of the parent may hold, which is what these
    // tests are about, and it leaves by `_exit`.
    unsafe {
        match libc::fork() {
            0 => {
                // Ends a child that hangs.
                libc::alarm(60);
                libc::_exit(child())
            }
            pid => {
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

/// Closes both ends of a pipe.
///
/// # Safety
///
/// The descriptors are open and the caller's.
unsafe fn close(pipe: [i32; 2]) {
    for end in pipe {
        // SAFETY: the contract.
        unsafe { libc::close(end) };
    }
}

/// One handle of each kind, in the middle of its use.
struct Handles {
    db: Database,
    k: Keyspace,
    snapshot: Snapshot,
    transaction: alluvium::Transaction,
    serializable: alluvium::Transaction,
    of_transaction: alluvium::Cursor,
    prepared: alluvium::PreparedTransaction,
    cursor: alluvium::Cursor,
    ingest: alluvium::Ingest,
    load: alluvium::BulkLoad,
    changes: alluvium::Changes,
    batch: WriteBatch,
    cancel: LockCancel,
    store: BackupStore,
    value: alluvium::Value,
}

fn handles(db: &Database, k: &Keyspace, store: &Path) -> Handles {
    k.put(b"held", &[7; 500]).expect("put");
    let prepared = db.begin(Isolation::Snapshot).expect("begin");
    prepared.put(k, b"prepared", b"1").expect("put");
    let cancel = LockCancel::new();
    let options = TransactionOptions {
        cancel: Some(cancel.clone()),
        ..TransactionOptions::default()
    };
    let transaction = db.begin_with(options).expect("begin");
    transaction.put(k, b"in transaction", b"1").expect("put");
    let serializable = db.begin(Isolation::Serializable).expect("begin");
    serializable.put(k, b"serializable", b"1").expect("put");
    let mut of_transaction = serializable
        .cursor(k, CursorOptions::default())
        .expect("cursor");
    assert!(of_transaction.seek_first().expect("seek"));
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    assert!(cursor.seek_first().expect("seek"));
    let loaded = db
        .keyspace("loaded", KeyspaceOptions::default())
        .expect("keyspace");
    let mut ingest = db.ingest().expect("ingest");
    ingest.put(&loaded, b"row", &[1; 9_000]).expect("put");
    let mut load = db
        .bulk_load(BulkLoadOptions {
            memory_bytes: 64 << 10,
            ..BulkLoadOptions::default()
        })
        .expect("bulk load");
    for row in 0..300_u32 {
        let key = row.to_be_bytes();
        load.put(&loaded, &key, &[1; 900]).expect("put");
    }
    let mut batch = WriteBatch::new();
    batch.put(k, b"batch", b"1").expect("put");
    Handles {
        snapshot: db.snapshot().expect("snapshot"),
        prepared: prepared.prepare(b"x").expect("prepare"),
        changes: db.changes(db.visible_seqno() + 1).expect("changes"),
        store: BackupStore::open(store).expect("store"),
        value: k.get(b"held").expect("get").expect("the row"),
        db: db.clone(),
        k: k.clone(),
        transaction,
        serializable,
        of_transaction,
        cursor,
        ingest,
        load,
        batch,
        cancel,
    }
}

/// Calls everything that a child may call, and returns the name of the first call that is not refused.
fn first_call_let_through(handles: Handles, scratch: &Path) -> Option<&'static str> {
    let mut wrong = None;
    let mut check = |name, refused: Option<Error>| {
        if !matches!(refused, Some(Error::Forked)) {
            wrong.get_or_insert(name);
        }
    };
    let Handles {
        db,
        k,
        snapshot,
        transaction,
        serializable,
        mut of_transaction,
        prepared,
        mut cursor,
        mut ingest,
        mut load,
        mut changes,
        mut batch,
        cancel,
        store,
        value,
    } = handles;
    let (db, k) = (&db, &k);
    check("get", k.get(b"held").err());
    check("multi_get", k.multi_get(&[b"held"]).err());
    check("read", k.read(b"held", |_| ()).err());
    check("put", k.put(b"a", b"1").err());
    check("insert", k.insert(b"new", b"1").err());
    check("delete", k.delete(b"a").err());
    check("delete_range", k.delete_range(b"a", b"b").err());
    check("cursor", k.cursor(CursorOptions::default()).err());
    check("compact_range", k.compact_range(b"", None).err());
    check("estimate", k.estimate_range(b"", None).err());
    check("set_options", k.set_options(k.options()).err());
    check("set_filter", k.set_compaction_filter(None).err());
    check("write", db.write(&batch).err());
    let untracked = WriteOptions {
        untracked: true,
        ..WriteOptions::default()
    };
    check("write_with", db.write_with(&batch, &untracked).err());
    check("keyspace", db.keyspace("k", k.options()).err());
    check("existing_keyspace", db.existing_keyspace("k").err());
    check("keyspace_names", db.keyspace_names().err());
    check("drop_keyspace", db.drop_keyspace(k).err());
    check("ingest", db.ingest().err());
    let options = BulkLoadOptions::default();
    check("bulk_load", db.bulk_load(options).err());
    check("snapshot", db.snapshot().err());
    check("begin", db.begin(Isolation::Snapshot).err());
    check("sync", db.sync().err());
    check("flush", db.flush().err());
    check("settle", db.settle().err());
    check("checkpoint", db.checkpoint(scratch.join("copy")).err());
    check("stats", db.stats().err());
    check("amplification", db.amplification().err());
    check("set_memory_bytes", db.set_memory_bytes(64 << 20).err());
    check("verify", db.verify().err());
    check("prepared", db.prepared().err());
    check("take_prepared", db.take_prepared(b"x").err());
    let options = ChangesOptions::default();
    check("changes", db.changes_with(1, options).err());
    check("close", db.close().err());
    check("snapshot get", snapshot.get(k, b"held").err());
    let options = CursorOptions::default;
    check("snapshot cursor", snapshot.cursor(k, options()).err());
    check("batch put", batch.put(k, b"c", b"1").err());
    for transaction in [&transaction, &serializable] {
        check("transaction get", transaction.get(k, b"held").err());
        check("for update", transaction.get_for_update(k, b"held").err());
        let locked = transaction.lock(k, b"held", LockMode::Shared);
        check("lock", locked.err());
        check("transaction put", transaction.put(k, b"d", b"1").err());
        check("untracked", transaction.put_untracked(k, b"d", b"1").err());
        let removed = transaction.delete_range(k, b"a", b"b");
        check("transaction delete_range", removed.err());
        check("transaction cursor", transaction.cursor(k, options()).err());
        let savepoint = transaction.savepoint();
        check("rollback_to", transaction.rollback_to(savepoint).err());
        transaction.release(savepoint);
    }
    check("cursor next", cursor.next().err());
    check("cursor seek", cursor.seek(b"a").err());
    let moved = of_transaction.seek_last();
    check("cursor of a transaction", moved.err());
    check("ingest put", ingest.put(k, b"x", b"1").err());
    check("ingest finish", ingest.finish().err());
    check("load put", load.put(k, b"x", b"1").err());
    check("load finish", load.finish().err());
    check("changes next", changes.next().err());
    let waited = changes.wait(std::time::Duration::MAX);
    check("changes wait", waited.err());
    check("store create", store.create(db).err());
    check("store list", store.list().err());
    check("store verify", store.verify(1).err());
    let restored = store.restore(1, scratch.join("restored"));
    check("store restore", restored.err());
    check("store delete", store.delete(1).err());
    check("commit", transaction.commit().err());
    check("resolve", prepared.commit().err());
    serializable.rollback();
    cancel.cancel();
    // What needs no call of the database is still there.
    if value[..] != [7; 500] {
        wrong.get_or_insert("value");
    }
    let copies = (k.clone(), snapshot.clone(), cancel.clone());
    drop(copies);
    wrong
}

/// The one of the public report: a child that only drops its copies must not write into the parent's log.
#[test]
fn a_child_that_drops_its_copies_leaves_the_log_to_the_parent() {
    let temp = tempfile::tempdir().expect("a directory");
    let db = Database::open(temp.path(), Options::default()).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let write = |value: &[u8]| {
        for i in 0..1_000_u32 {
            k.put(&i.to_be_bytes(), value).expect("put");
        }
    };
    write(b"before");
    // The child has to end after the parent's writes have begun: it drops in both halves of them.
    for value in [b"after 1", b"after 2"] {
        let (db, k) = (db.clone(), k.clone());
        let code = in_child(|| {
            drop((k, db));
            0
        });
        assert_eq!(code, 0);
        write(value);
    }
    db.sync().expect("sync");
    db.close().expect("close");
    drop((k, db));
    let (db, k) = (
        Database::open(temp.path(), Options::default()).expect("open again"),
        "k",
    );
    let k = db.existing_keyspace(k).expect("look").expect("keyspace");
    let rows = all(&k);
    assert_eq!(rows.len(), 1_000);
    assert!(rows.iter().all(|(_, value)| value == b"after 2"));
}

#[test]
fn a_child_is_refused_everything_while_the_parent_writes_and_flushes() {
    let temp = tempfile::tempdir().expect("a directory");
    let (dir, store) = (temp.path().join("db"), temp.path().join("store"));
    let (db, k) = open(&dir);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u32)
            .map(|writer| {
                let (k, done) = (&k, &done);
                scope.spawn(move || {
                    let mut written = 0_u32;
                    while !done.load(Ordering::Relaxed) {
                        let key = [writer.to_be_bytes(), written.to_be_bytes()].concat();
                        k.put(&key, &[1; 100]).expect("put");
                        written += 1;
                    }
                    written
                })
            })
            .collect();
        let flusher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.flush().expect("flush");
            }
        });
        for _ in 0..10 {
            let handles = handles(&db, &k, &store);
            let before = std::fs::read_dir(temp.path()).expect("list").count();
            let mut report = [0; 2];
            // SAFETY: `report` has room for two descriptors.
            assert_eq!(unsafe { libc::pipe(report.as_mut_ptr()) }, 0);
            let code = in_child(|| match first_call_let_through(handles, temp.path()) {
                None => 0,
                Some(name) => {
                    // SAFETY: the bytes are those of the name.
                    unsafe { libc::write(report[1], name.as_ptr().cast(), name.len()) };
                    1
                }
            });
            let mut name = [0_u8; 64];
            if code != 0 {
                // SAFETY: the child has written fewer bytes than that.
                unsafe { libc::read(report[0], name.as_mut_ptr().cast(), name.len()) };
            }
            // SAFETY: both were opened above.
            unsafe { close(report) };
            let name = String::from_utf8_lossy(&name);
            assert_eq!(code, 0, "let through: {name}");
            let after = std::fs::read_dir(temp.path()).expect("list").count();
            assert_eq!(before, after, "the child left something");
            // The parent's copies, which the child has used up in its own memory, go on.
            resolve(&db);
        }
        done.store(true, Ordering::Relaxed);
        flusher.join().expect("the flusher");
        for writer in writers {
            assert!(writer.join().expect("a writer") > 0);
        }
    });
    k.put(b"last", b"1").expect("put");
    let rows = all(&k);
    db.close().expect("close");
    drop((k, db));
    let (db, k) = open(&dir);
    assert_eq!(all(&k), rows);
    assert!(db.verify().expect("verify").is_clean());
}

/// Decides on the prepared transaction that a round has left.
fn resolve(db: &Database) {
    let prepared = db.take_prepared(b"x");
    prepared.expect("prepared").rollback().expect("rollback");
}

#[test]
fn a_child_may_open_another_database_and_the_parents_after_its_close() {
    let temp = tempfile::tempdir().expect("a directory");
    let (mine, childs) = (temp.path().join("a"), temp.path().join("b"));
    let (db, k) = open(&mine);
    k.put(b"a", b"1").expect("put");
    let used = |dir: &Path| -> Result<()> {
        let db = Database::open(dir, tiny())?;
        let k = db.keyspace("k", KeyspaceOptions::default())?;
        k.put(b"child", b"1")?;
        db.flush()?;
        db.close()
    };
    let code = in_child(|| {
        let own = used(&childs).is_ok();
        // The parent has it; its lock is not the child's.
        let held = matches!(used(&mine), Err(Error::Locked { .. }));
        i32::from(!(own && held))
    });
    assert_eq!(code, 0);
    db.close().expect("close");
    assert_eq!(in_child(|| i32::from(used(&mine).is_err())), 0);
    drop((db, k));
    let (_db, k) = open(&mine);
    assert_eq!(text(&k, "child").as_deref(), Some("1"));
    assert_eq!(text(&k, "a").as_deref(), Some("1"));
}

/// Runs the test with this name in a process of its own. True in the process that is to run it.
fn is_alone(test: &str) -> bool {
    const MARK: &str = "ALLUVIUM_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program)
        .args(["--exact", &format!("process::{test}"), "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("run it alone");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{output}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(output.contains("1 passed"), "{output}");
    false
}

fn write_and_flush(db: &Database, k: &Keyspace, value: &[u8]) {
    for key in 0..50_u32 {
        k.put(&key.to_be_bytes(), value).expect("put");
    }
    db.flush().expect("flush");
}

#[test]
fn a_changed_working_directory_leaves_open_databases_their_files() {
    if !is_alone("a_changed_working_directory_leaves_open_databases_their_files") {
        return;
    }
    let temp = tempfile::tempdir().expect("a directory");
    let places = ["one", "two"].map(|name| temp.path().join(name));
    // The same relative name in two directories.
    let opened = places.each_ref().map(|place| {
        std::fs::create_dir(place).expect("create");
        std::env::set_current_dir(place).expect("chdir");
        let (db, k) = open(Path::new("db"));
        let store = BackupStore::open("store").expect("store");
        write_and_flush(&db, &k, place.as_os_str().as_encoded_bytes());
        (db, k, store)
    });
    std::env::set_current_dir(temp.path()).expect("chdir");
    for (place, (db, k, store)) in places.iter().zip(&opened) {
        write_and_flush(db, k, place.as_os_str().as_encoded_bytes());
        // A path that is given now is one of this working directory.
        let name = place.file_name().expect("a name").to_string_lossy();
        db.checkpoint(format!("copy of {name}"))
            .expect("checkpoint");
        let backup = store.create(db).expect("backup");
        assert!(place.join("store").join("000001.backup").exists());
        store
            .restore(backup.id, format!("restored {name}"))
            .expect("restore");
    }
    for (_, _, store) in &opened {
        assert_eq!(store.list().expect("list").backups.len(), 1);
    }
    for (db, ..) in &opened {
        db.close().expect("close");
    }
    drop(opened);
    for place in &places {
        let name = place.file_name().expect("a name").to_string_lossy();
        for dir in [
            place.join("db"),
            temp.path().join(format!("copy of {name}")),
            temp.path().join(format!("restored {name}")),
        ] {
            let (db, k) = open(&dir);
            let rows = all(&k);
            assert_eq!(rows.len(), 50);
            let value = place.as_os_str().as_encoded_bytes();
            assert!(rows.iter().all(|(_, found)| found == value));
            assert!(db.verify().expect("verify").is_clean());
        }
    }
    alluvium::repair("one/db", "repaired").expect("repair");
    assert!(temp.path().join("repaired").exists());
}

#[test]
fn a_moved_database_and_the_one_in_its_old_place_keep_apart() {
    let temp = tempfile::tempdir().expect("a directory");
    let [db, old, new] = ["db", "old", "new"].map(|name| temp.path().join(name));
    let (first, of_first) = open(&db);
    write_and_flush(&first, &of_first, b"first");
    let (second, of_second) = open(&new);
    write_and_flush(&second, &of_second, b"second");
    std::fs::rename(&db, &old).expect("move away");
    std::fs::rename(&new, &db).expect("move into its place");
    for _ in 0..3 {
        write_and_flush(&first, &of_first, b"first");
        write_and_flush(&second, &of_second, b"second");
    }
    first.settle().expect("settle");
    // Their locks have moved with them.
    for dir in [&db, &old] {
        assert_error!(Database::open(dir, tiny()), Error::Locked { .. });
    }
    for (db, k) in [(first, of_first), (second, of_second)] {
        db.close().expect("close");
        drop((db, k));
    }
    for (dir, value) in [(&old, b"first".to_vec()), (&db, b"second".to_vec())] {
        let (db, k) = open(dir);
        let rows = all(&k);
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|(_, found)| *found == value));
        assert!(db.verify().expect("verify").is_clean());
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("list");
    entries.map(|entry| entry.expect("entry").path()).collect()
}

#[test]
fn nothing_is_created_in_a_directory_that_was_removed() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    write_and_flush(&db, &k, b"1");
    k.put(b"in memory", b"1").expect("put");
    std::fs::remove_dir_all(&dir).expect("remove");
    assert_error!(db.flush(), Error::Poisoned(_));
    assert_error!(k.put(b"more", b"1"), Error::Poisoned(_));
    // What was read before is still there to read.
    assert_eq!(text(&k, "in memory").as_deref(), Some("1"));
    let closed = db.close();
    assert!(closed.is_err(), "{closed:?}");
    drop((db, k));
    assert!(names(temp.path()).is_empty());
}

#[test]
fn nothing_is_created_in_the_successor_of_a_directory_that_was_removed() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    write_and_flush(&db, &k, b"1");
    k.put(b"in memory", b"1").expect("put");
    std::fs::remove_dir_all(&dir).expect("remove");
    std::fs::create_dir(&dir).expect("create");
    assert_error!(db.flush(), Error::Poisoned(_));
    drop((db, k));
    assert!(names(&dir).is_empty());
}

#[test]
fn a_program_that_was_started_meanwhile_does_not_keep_the_lock() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let store = temp.path().join("store");
    let (db, k) = open(&dir);
    let backups = BackupStore::open(&store).expect("store");
    // As another thread that starts a program: a copy of every descriptor, until the program is executed.
    let mut held = [0; 2];
    // SAFETY: `held` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(held.as_mut_ptr()) }, 0);
    // SAFETY: the child calls only what may be called between a fork and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::close(held[1]);
            libc::read(held[0], [0_u8].as_mut_ptr().cast(), 1);
            libc::_exit(0)
        }
    }
    db.close().expect("close");
    drop((db, k, backups));
    let again = (open(&dir), BackupStore::open(&store).expect("store"));
    drop(again);
    // SAFETY: the descriptors of the pipe, and the child's number.
    unsafe {
        close(held);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn a_replaced_lock_file_lets_no_second_writer_in() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    for replace in [false, true] {
        let _ = std::fs::remove_file(dir.join("LOCK"));
        if replace {
            std::fs::write(dir.join("LOCK"), b"").expect("write");
        }
        assert_error!(Database::open(&dir, tiny()), Error::Locked { .. });
    }
    k.put(b"a", b"1").expect("put");
    db.close().expect("close");
    drop((db, k));
    open(&dir);
}

#[test]
fn a_refused_open_says_who_has_the_directory() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("db");
    let (db, k) = open(&dir);
    let message = |options: Options| {
        let refused = Database::open(&dir, options);
        refused.err().expect("refused").to_string()
    };
    let read_only = || Options {
        read_only: true,
        ..tiny()
    };
    assert!(message(tiny()).contains("in use by this process"));
    assert!(message(read_only()).contains("in use by this process"));
    let code = in_child(|| {
        let refused = Database::open(&dir, tiny()).err();
        let told = refused.is_some_and(|e| e.to_string().contains("in use by another process"));
        i32::from(!told)
    });
    assert_eq!(code, 0);
    drop((db, k));
    let _reader = Database::open(&dir, read_only()).expect("open");
    assert!(message(tiny()).contains("in use by readers"));
}
