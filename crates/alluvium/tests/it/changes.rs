//! Change streams: their contents, the oldest change they reach, and an error instead of a silent
//! gap.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{
    Change, ChangeKind, Changes, ChangesOptions, Database, Durability, Error, Expiry, Isolation,
    Keyspace, KeyspaceOptions, Operation, Options, WriteBatch,
};

use crate::driver::chain;
use crate::fixture::{assert_error, database, dir, open, tiny};
use crate::hooks::{Call, HookVfs};
use crate::script::path_of;

/// Returns all changes that a stream has now, one line each.
fn shown(changes: &mut Changes) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(change) = changes.next().unwrap_or_else(|e| panic!("{}", chain(&e))) {
        lines.push(line(&change));
    }
    lines
}

fn line(change: &Change) -> String {
    let text = String::from_utf8_lossy;
    match &change.kind {
        ChangeKind::Commit { operations, xid } => {
            let operations = operations.iter().map(|operation| match operation {
                Operation::Put {
                    keyspace,
                    key,
                    value,
                    until_ms,
                } => {
                    let until = until_ms.map_or(String::new(), |ms| format!(" until {ms}"));
                    let value = match value.len() {
                        0..20 => text(value).into_owned(),
                        long => format!("{long} bytes"),
                    };
                    format!("{}[{}]={value}{until}", keyspace.name, text(key))
                }
                Operation::Delete { keyspace, key } => {
                    format!("{}[{}]-", keyspace.name, text(key))
                }
                Operation::DeleteRange {
                    keyspace,
                    start,
                    end,
                } => format!("{}[{}..{}]-", keyspace.name, text(start), text(end)),
                other => format!("{other:?}"),
            });
            let xid = xid.as_ref().map(|xid| format!("{}: ", text(xid)));
            xid.unwrap_or_default() + &operations.collect::<Vec<_>>().join(" ")
        }
        ChangeKind::Ingest { keyspaces } => {
            let parts = keyspaces
                .iter()
                .map(|(k, rows)| format!(" {rows} rows into {}", k.name));
            format!("ingest{}", parts.collect::<String>())
        }
        ChangeKind::KeyspaceCreated { keyspace, .. } => format!("create {}", keyspace.name),
        ChangeKind::KeyspaceDropped { keyspace } => format!("drop {}", keyspace.name),
        ChangeKind::OptionsChanged { keyspace, .. } => format!("options of {}", keyspace.name),
        other => format!("{other:?}"),
    }
}

fn keyspace(db: &Database, name: &str) -> Keyspace {
    db.keyspace(name, KeyspaceOptions::default())
        .expect("keyspace")
}

/// Writes a row and flushes: one log segment, 1 MiB as allocated.
fn flushed(db: &Database, k: &Keyspace, n: u32) {
    k.put(format!("{n}").as_bytes(), b"v").expect("put");
    db.flush().expect("flush");
}

fn keeping(change_log_bytes: u64) -> Options {
    Options {
        change_log_bytes,
        ..tiny()
    }
}

fn from_newest(db: &Database) -> Changes {
    db.changes(db.visible_seqno() + 1).expect("a stream")
}

#[test]
fn commits_markers_and_their_keyspaces_come_in_order() {
    let (_vfs, db, k) = database(keeping(1 << 30));
    let l = keyspace(&db, "l");
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", b"1").expect("put");
    batch.delete(&l, b"b").expect("delete");
    batch.delete_range(&l, b"c", b"d").expect("range");
    db.write(&batch).expect("write");
    k.insert(b"big", &[7; 5000]).expect("insert");
    let mut ingest = db.ingest().expect("ingest");
    ingest.put(&l, b"x", b"1").expect("row");
    ingest.put(&l, b"y", b"1").expect("row");
    ingest.finish().expect("finish");
    k.set_options(KeyspaceOptions::default()).expect("options");
    l.put(b"last", b"").expect("put");
    db.drop_keyspace(&l).expect("drop");
    let again = keyspace(&db, "l");
    db.flush().expect("flush");
    again.put(b"first", b"").expect("put");
    let expected = [
        "create k",
        "create l",
        "l[c..d]- k[a]=1 l[b]-",
        "k[big]=5000 bytes",
        "ingest 2 rows into l",
        "options of k",
        "l[last]=",
        "drop l",
        "create l",
        "l[first]=",
    ];
    let mut changes = db.changes(1).expect("a stream");
    assert_eq!(shown(&mut changes), expected);
    assert_eq!(changes.next_seqno(), db.visible_seqno() + 1);
    // Streams from each sequence number: a keyspace is named even if it is dropped later.
    for from in 1..=db.visible_seqno() {
        let mut changes = db.changes(from).expect("a stream");
        assert_eq!(shown(&mut changes), expected[from as usize - 1..], "{from}");
    }
    let options = ChangesOptions {
        keyspaces: vec!["l".into()],
        ..ChangesOptions::default()
    };
    let mut changes = db.changes_with(3, options).expect("a stream");
    let of_l = [
        "l[c..d]- l[b]-",
        "ingest 2 rows into l",
        "l[last]=",
        "drop l",
        "create l",
        "l[first]=",
    ];
    assert_eq!(shown(&mut changes), of_l);
}

#[test]
fn a_prepared_transaction_comes_once_where_it_is_committed() {
    let (vfs, db, k) = database(keeping(1 << 30));
    let mut changes = from_newest(&db);
    for (xid, key) in [(b"x1", b"a"), (b"x2", b"b")] {
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        txn.put(&k, key, b"1").expect("put");
        drop(txn.prepare(xid).expect("prepare"));
    }
    assert!(changes.next().expect("next").is_none());
    assert_eq!(changes.next_seqno(), db.visible_seqno() + 1);
    k.put(b"between", b"").expect("put");
    // The flush writes the prepares again, with the sequence number of the previous commit.
    db.flush().expect("flush");
    let take = |db: &Database, xid| db.take_prepared(xid).expect("take");
    take(&db, b"x1").rollback().expect("rollback");
    assert_eq!(shown(&mut changes), ["k[between]="]);
    let from = changes.next_seqno();
    drop(changes);
    db.close().expect("close");
    let db = open(&vfs, keeping(1 << 30));
    take(&db, b"x2").commit().expect("commit");
    let mut changes = db.changes(from).expect("a stream");
    assert_eq!(shown(&mut changes), ["x2: k[b]=1"]);
    let mut all = db.changes(2).expect("a stream");
    assert_eq!(shown(&mut all), ["k[between]=", "x2: k[b]=1"]);
}

#[test]
fn a_number_that_only_a_repeated_prepare_has_is_not_taken_for_its_commit() {
    let (_vfs, db, k) = database(tiny());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, b"a", b"1").expect("put");
    drop(txn.prepare(b"x").expect("prepare"));
    flushed(&db, &k, 1);
    let newest = db.visible_seqno();
    assert_error!(db.changes(newest), Error::ChangesLost { .. });
    k.put(b"next", b"").expect("put");
    let mut changes = db.changes(newest + 1).expect("a stream");
    assert_eq!(shown(&mut changes), ["k[next]="]);
}

#[test]
fn values_come_without_their_time_also_of_a_keyspace_that_is_gone() {
    let vfs = MemVfs::new();
    let db = open(&vfs, keeping(1 << 30));
    let options = KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..KeyspaceOptions::default()
    };
    let t = db.keyspace("t", options).expect("keyspace");
    let never = db.visible_seqno() + 1;
    t.put(b"a", b"1").expect("put");
    t.put_until(b"b", b"2", u64::MAX - 1).expect("put");
    let expected = [
        "t[a]=1".to_owned(),
        format!("t[b]=2 until {}", u64::MAX - 1),
    ];
    let mut changes = db.changes(never).expect("a stream");
    assert_eq!(shown(&mut changes), expected);
    db.drop_keyspace(&t).expect("drop");
    let mut changes = db.changes(never).expect("a stream");
    assert_eq!(shown(&mut changes)[..2], expected);
}

#[test]
fn old_segments_stay_within_the_limit_and_across_reopening() {
    let (vfs, db, k) = database(keeping(4 << 20));
    for n in 0..3 {
        flushed(&db, &k, n);
    }
    let expected = ["create k", "k[0]=v", "k[1]=v", "k[2]=v"];
    assert_eq!(shown(&mut db.changes(1).expect("a stream")), expected);
    assert_eq!(db.stats().expect("stats").change_log_bytes, 3 << 20);
    db.close().expect("close");
    let db = open(&vfs, keeping(4 << 20));
    assert_eq!(shown(&mut db.changes(1).expect("a stream")), expected);
    assert!(db.verify().expect("verify").is_clean());
    db.checkpoint("copy").expect("checkpoint");
    let copy = Database::open_on(Arc::new(vfs.clone()), "copy", tiny()).expect("open the copy");
    assert_error!(copy.changes(1), Error::ChangesLost { .. });
    copy.close().expect("close");
    let k = keyspace(&db, "k");
    for n in 3..6 {
        flushed(&db, &k, n);
    }
    // Three whole segments and the one that the close has cut; a fourth whole one would exceed the
    // limit.
    let kept = db.stats().expect("stats").change_log_bytes;
    assert!((3 << 20..4 << 20).contains(&kept), "{kept}");
    let Err(Error::ChangesLost { from: 1, oldest }) = db.changes(1) else {
        panic!("the oldest segments are gone");
    };
    let mut changes = db.changes(oldest).expect("a stream");
    assert_eq!(shown(&mut changes), ["k[3]=v", "k[4]=v", "k[5]=v"]);
    db.close().expect("close");
    // Without the option, the next opening removes them.
    let db = open(&vfs, tiny());
    assert_eq!(db.stats().expect("stats").change_log_bytes, 0);
    assert_error!(db.changes(oldest), Error::ChangesLost { .. });
}

#[test]
fn an_open_stream_keeps_unread_segments_up_to_the_memory_budget() {
    let (_vfs, db, k) = database(tiny());
    let mut changes = db.changes(1).expect("a stream");
    for n in 0..4 {
        flushed(&db, &k, n);
    }
    assert_eq!(shown(&mut changes).len(), 5);
    flushed(&db, &k, 4);
    // The segment that the stream is reading, and the next one.
    assert_eq!(db.stats().expect("stats").change_log_bytes, 2 << 20);
    assert_error!(db.changes(1), Error::ChangesLost { .. });
    // 8 MiB of memory are eight segments.
    for n in 5..20 {
        flushed(&db, &k, n);
    }
    // Ends: at the latest with the 16 commits that it has not read.
    let error = loop {
        match changes.next() {
            Ok(change) => assert!(change.is_some(), "it has read over a gap"),
            Err(error) => break error,
        }
    };
    let Error::ChangesLost { from, oldest } = error else {
        panic!("{error}");
    };
    assert!(from < oldest);
    assert_eq!(changes.next_seqno(), from);
    let mut rest = db.changes(oldest).expect("a stream");
    assert_eq!(shown(&mut rest).last().expect("commits"), "k[19]=v");
}

#[test]
fn a_stream_at_the_end_sees_each_commit_of_concurrent_writers_once() {
    const WRITERS: u32 = 3;
    const COMMITS: u32 = 300;
    let (_vfs, db, k) = database(keeping(1 << 30));
    let mut changes = from_newest(&db);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, k) = (&db, &k);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    k.put(&writer.to_be_bytes(), &n.to_be_bytes()).expect("put");
                    if n % 100 == 50 {
                        db.flush().expect("flush");
                    }
                }
            });
        }
        let mut next = [0; WRITERS as usize];
        let mut last = 0;
        while next.iter().any(|n| *n < COMMITS) {
            let Some(change) = changes.next().expect("next") else {
                changes.wait(Duration::MAX).expect("wait");
                continue;
            };
            assert!(last == 0 || change.seqno == last + 1);
            last = change.seqno;
            let ChangeKind::Commit { operations, .. } = change.kind else {
                panic!("not a commit");
            };
            for operation in operations {
                let Operation::Put { key, value, .. } = operation else {
                    panic!("not a put");
                };
                let writer = u32::from_be_bytes(key.try_into().expect("a writer"));
                assert_eq!(value, next[writer as usize].to_be_bytes());
                next[writer as usize] += 1;
            }
        }
    });
    assert!(!changes.wait(Duration::ZERO).expect("wait"));
}

#[test]
fn durable_only_holds_back_what_a_power_loss_could_take() {
    let options = Options {
        sync_interval: Duration::from_secs(3600),
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let durable_only = ChangesOptions {
        durable_only: true,
        ..ChangesOptions::default()
    };
    let next = db.visible_seqno() + 1;
    let mut all = db.changes(next).expect("a stream");
    let mut durable = db.changes_with(next, durable_only).expect("a stream");
    k.put(b"a", b"1").expect("put");
    assert_eq!(shown(&mut all), ["k[a]=1"]);
    assert!(shown(&mut durable).is_empty());
    assert!(!durable.wait(Duration::ZERO).expect("wait"));
    std::thread::scope(|scope| {
        scope.spawn(|| db.sync().expect("sync"));
        assert!(durable.wait(Duration::MAX).expect("wait"));
    });
    assert_eq!(shown(&mut durable), ["k[a]=1"]);
    // A flush makes commits durable too, because it leaves the segment.
    k.put(b"b", b"1").expect("put");
    db.flush().expect("flush");
    assert_eq!(shown(&mut durable), ["k[b]=1"]);
}

#[test]
fn damage_is_an_error_with_its_place() {
    let (vfs, db, k) = database(keeping(1 << 30));
    k.put(b"a", b"1").expect("put");
    flushed(&db, &k, 1);
    flushed(&db, &k, 2);
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    let file = vfs.open(&path_of(&names[0])).expect("open");
    let mut header = [0; 200];
    file.read_at(&mut header, 0).expect("read");
    // In the record after the keyspace's.
    let at = 80 + (40 + usize::from(header[80 + 12])).next_multiple_of(8);
    file.write_at(&[header[at + 45] ^ 1], at as u64 + 45)
        .expect("damage");
    let mut changes = db.changes(1).expect("a stream");
    assert_eq!(
        line(&changes.next().expect("next").expect("one")),
        "create k"
    );
    for _ in 0..2 {
        match changes.next() {
            Err(Error::Corruption { path, offset, .. }) => {
                assert_eq!((path, offset), (path_of(&names[0]), at as u64));
            }
            other => panic!("{other:?}"),
        }
    }
    // The damage is before the part of the log that the database needs.
    assert_eq!(shown(&mut db.changes(4).expect("a stream")), ["k[2]=v"]);
    assert!(db.verify().expect("verify").is_clean());
    db.close().expect("close");
    open(&vfs, keeping(1 << 30));
}

#[test]
fn a_segment_whose_beginning_is_damaged_is_not_taken_for_lost_changes() {
    let (vfs, db, k) = database(keeping(1 << 30));
    k.put(b"a", b"1").expect("put");
    flushed(&db, &k, 1);
    flushed(&db, &k, 2);
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    // The oldest segment: its header, and the header of its first record.
    for (at, place) in [(30, 0), (80 + 20, 80)] {
        let file = vfs.open(&path_of(&names[0])).expect("open");
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("read");
        file.write_at(&[byte[0] ^ 4], at).expect("damage");
        match db.changes(1).map(drop) {
            Err(Error::Corruption { path, offset, .. }) => {
                assert_eq!((path, offset), (path_of(&names[0]), place));
            }
            other => panic!("{at}: {other:?}"),
        }
        file.write_at(&byte, at).expect("mend");
    }
    assert_eq!(db.changes(1).expect("a stream").next_seqno(), 1);
}

#[test]
fn a_session_without_a_log_is_a_gap_that_is_told() {
    let (vfs, db, k) = database(keeping(1 << 30));
    k.put(b"a", b"1").expect("put");
    let next = db.visible_seqno() + 1;
    db.close().expect("close");
    let unlogged = Options {
        durability: Durability::None,
        ..keeping(1 << 30)
    };
    let db = open(&vfs, unlogged);
    keyspace(&db, "k").put(b"b", b"1").expect("put");
    assert_error!(db.changes(1), Error::InvalidArgument(_));
    db.close().expect("close");
    let db = open(&vfs, keeping(1 << 30));
    let mut changes = db.changes(next).expect("the log reaches back to it");
    assert_error!(changes.next(), Error::ChangesLost { .. });
    let mut newest = from_newest(&db);
    keyspace(&db, "k").put(b"c", b"1").expect("put");
    assert_error!(changes.next(), Error::ChangesLost { .. });
    assert_eq!(shown(&mut newest), ["k[c]=1"]);
}

#[test]
fn invalid_arguments_are_refused_and_closing_ends_a_wait() {
    let (vfs, db, k) = database(tiny());
    assert_error!(
        db.changes(db.visible_seqno() + 2),
        Error::InvalidArgument(_)
    );
    k.put(b"a", b"1").expect("put");
    let mut changes = from_newest(&db);
    std::thread::scope(|scope| {
        scope.spawn(|| db.close().expect("close"));
        assert_error!(changes.wait(Duration::MAX), Error::Closed);
    });
    assert_error!(changes.next(), Error::Closed);
    assert_error!(db.changes(1), Error::Closed);
    let read_only = Options {
        read_only: true,
        ..tiny()
    };
    let db = open(&vfs, read_only);
    let mut changes = db.changes(1).expect("a stream");
    assert_eq!(shown(&mut changes), ["create k", "k[a]=1"]);
}

#[test]
fn changes_of_keyspaces_that_a_power_loss_undid_are_left_out() {
    for create in [true, false] {
        let vfs = HookVfs::failing(Call::Sync, ".manifest", ErrorKind::Other);
        let db = Database::open_on(Arc::new(vfs.clone()), dir(), keeping(1 << 30)).expect("open");
        let k = keyspace(&db, "k");
        vfs.set(true);
        // The keyspace's marker is in the log and synced.
        let failed = if create {
            db.keyspace("lost", KeyspaceOptions::default()).map(drop)
        } else {
            db.drop_keyspace(&k)
        };
        assert_error!(failed, Error::Poisoned(_));
        let left = vfs.files.crash(1, CrashOptions::LOSE_UNSYNCED);
        let db = open(&left, keeping(1 << 30));
        assert_eq!(db.visible_seqno(), 2);
        let mut changes = db.changes(1).expect("a stream");
        assert_eq!(shown(&mut changes), ["create k"]);
        keyspace(&db, "k").put(b"a", b"1").expect("put");
        // The new keyspace gets the id of the keyspace that was not created.
        keyspace(&db, "next");
        let mut changes = db.changes(1).expect("a stream");
        assert_eq!(shown(&mut changes), ["create k", "k[a]=1", "create next"]);
        // Also after both have been dropped, so that the manifest lists neither.
        for name in ["k", "next"] {
            db.drop_keyspace(&keyspace(&db, name)).expect("drop");
        }
        let all = ["create k", "k[a]=1", "create next", "drop k", "drop next"];
        assert_eq!(shown(&mut db.changes(1).expect("a stream")), all);
    }
}
