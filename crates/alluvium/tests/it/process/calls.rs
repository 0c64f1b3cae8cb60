//! Every call that a forked child can make.

use std::path::Path;

use alluvium::backup::BackupStore;
use alluvium::{
    BulkLoad, BulkLoadOptions, Changes, ChangesOptions, Cursor, CursorOptions, Database, Error,
    Ingest, Isolation, Keyspace, KeyspaceOptions, LockCancel, LockMode, PreparedTransaction,
    Snapshot, Transaction, TransactionOptions, Value, WriteBatch, WriteOptions,
};

/// One handle of each kind, in the middle of its use.
pub struct Handles {
    db: Database,
    k: Keyspace,
    snapshot: Snapshot,
    transaction: Transaction,
    serializable: Transaction,
    of_transaction: Cursor,
    prepared: PreparedTransaction,
    ordered: PreparedTransaction,
    cursor: Cursor,
    ingest: Ingest,
    load: BulkLoad,
    changes: Changes,
    batch: WriteBatch,
    cancel: LockCancel,
    store: BackupStore,
    value: Value,
}

pub fn handles(db: &Database, k: &Keyspace, store: &Path) -> Handles {
    k.put(b"held", &[7; 500]).expect("put");
    let prepared = db.begin(Isolation::Snapshot).expect("begin");
    prepared.put(k, b"prepared", b"1").expect("put");
    let ordered = db.begin(Isolation::Snapshot).expect("begin");
    ordered.put(k, b"ordered", b"1").expect("put");
    let mut ordered = ordered.prepare(b"y").expect("prepare");
    ordered.commit_ordered().expect("commit");
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
        ordered,
        changes: changes(db),
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

/// Opens a stream of the next changes. Concurrent writers may have moved the log past them.
fn changes(db: &Database) -> Changes {
    loop {
        match db.changes(db.visible_seqno() + 1) {
            Err(Error::ChangesLost { .. }) => {}
            opened => return opened.expect("changes"),
        }
    }
}

/// The first call that was not refused.
#[derive(Default)]
struct Check(Option<&'static str>);

impl Check {
    fn refused(&mut self, name: &'static str, error: Option<Error>) {
        if !matches!(error, Some(Error::Forked)) {
            self.0.get_or_insert(name);
        }
    }
}

/// Makes every call. Returns the name of the first one that is not refused.
pub fn first_call_let_through(handles: Handles, scratch: &Path) -> Option<&'static str> {
    let mut check = Check::default();
    of_keyspace(&mut check, &handles.k);
    of_database(&mut check, &handles.db, &handles.k, &handles.batch, scratch);
    for transaction in [&handles.transaction, &handles.serializable] {
        of_transaction(&mut check, transaction, &handles.k);
    }
    of_the_rest(&mut check, handles, scratch);
    check.0
}

fn of_keyspace(check: &mut Check, k: &Keyspace) {
    check.refused("get", k.get(b"held").err());
    check.refused("multi_get", k.multi_get(&[b"held"]).err());
    check.refused("read", k.read(b"held", |_| ()).err());
    check.refused("put", k.put(b"a", b"1").err());
    check.refused("insert", k.insert(b"new", b"1").err());
    check.refused("delete", k.delete(b"a").err());
    check.refused("delete_range", k.delete_range(b"a", b"b").err());
    check.refused("cursor", k.cursor(CursorOptions::default()).err());
    check.refused("compact_range", k.compact_range(b"", None).err());
    check.refused("estimate", k.estimate_range(b"", None).err());
    check.refused("set_options", k.set_options(k.options()).err());
    check.refused("set_filter", k.set_compaction_filter(None).err());
}

fn of_database(check: &mut Check, db: &Database, k: &Keyspace, batch: &WriteBatch, scratch: &Path) {
    check.refused("write", db.write(batch).err());
    // Large enough to be charged to the memory budget, whose lock a thread of the parent may hold.
    let mut large = WriteBatch::new();
    let filled = large.put(k, b"large", &[1; 1 << 20]);
    check.refused("large write", filled.and_then(|()| db.write(&large)).err());
    let untracked = WriteOptions {
        untracked: true,
        ..WriteOptions::default()
    };
    check.refused("write_with", db.write_with(batch, &untracked).err());
    check.refused("keyspace", db.keyspace("k", k.options()).err());
    check.refused("existing_keyspace", db.existing_keyspace("k").err());
    check.refused("keyspace_names", db.keyspace_names().err());
    check.refused("drop_keyspace", db.drop_keyspace(k).err());
    check.refused("ingest", db.ingest().err());
    let options = BulkLoadOptions::default();
    check.refused("bulk_load", db.bulk_load(options).err());
    check.refused("snapshot", db.snapshot().err());
    check.refused("begin", db.begin(Isolation::Snapshot).err());
    check.refused("sync", db.sync().err());
    check.refused("flush", db.flush().err());
    check.refused("settle", db.settle().err());
    check.refused("checkpoint", db.checkpoint(scratch.join("copy")).err());
    check.refused("stats", db.stats().err());
    check.refused("amplification", db.amplification().err());
    check.refused("set_memory_bytes", db.set_memory_bytes(64 << 20).err());
    check.refused("verify", db.verify().err());
    check.refused("prepared", db.prepared().err());
    check.refused("take_prepared", db.take_prepared(b"x").err());
    let options = ChangesOptions::default();
    check.refused("changes", db.changes_with(1, options).err());
    check.refused("close", db.close().err());
}

fn of_transaction(check: &mut Check, transaction: &Transaction, k: &Keyspace) {
    check.refused("transaction get", transaction.get(k, b"held").err());
    check.refused("for update", transaction.get_for_update(k, b"held").err());
    let locked = transaction.lock(k, b"held", LockMode::Shared);
    check.refused("lock", locked.err());
    check.refused("transaction put", transaction.put(k, b"d", b"1").err());
    check.refused("untracked", transaction.put_untracked(k, b"d", b"1").err());
    let removed = transaction.delete_range(k, b"a", b"b");
    check.refused("transaction delete_range", removed.err());
    check.refused(
        "transaction cursor",
        transaction.cursor(k, CursorOptions::default()).err(),
    );
    let savepoint = transaction.savepoint();
    check.refused("rollback_to", transaction.rollback_to(savepoint).err());
    transaction.release(savepoint);
}

fn of_the_rest(check: &mut Check, handles: Handles, scratch: &Path) {
    let Handles {
        db,
        k,
        snapshot,
        transaction,
        serializable,
        mut of_transaction,
        mut prepared,
        mut ordered,
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
    check.refused("snapshot get", snapshot.get(k, b"held").err());
    check.refused(
        "snapshot cursor",
        snapshot.cursor(k, CursorOptions::default()).err(),
    );
    check.refused("batch put", batch.put(k, b"c", b"1").err());
    check.refused("cursor next", cursor.next().err());
    check.refused("cursor seek", cursor.seek(b"a").err());
    let moved = of_transaction.seek_last();
    check.refused("cursor of a transaction", moved.err());
    check.refused("ingest put", ingest.put(k, b"x", b"1").err());
    check.refused("ingest finish", ingest.finish().err());
    check.refused("load put", load.put(k, b"x", b"1").err());
    check.refused("load finish", load.finish().err());
    check.refused("changes next", changes.next().err());
    let waited = changes.wait(std::time::Duration::MAX);
    check.refused("changes wait", waited.err());
    check.refused("store create", store.create(db).err());
    check.refused("store list", store.list().err());
    check.refused("store verify", store.verify(1).err());
    let restored = store.restore(1, scratch.join("restored"));
    check.refused("store restore", restored.err());
    check.refused("store delete", store.delete(1).err());
    check.refused("commit", transaction.commit().err());
    check.refused("commit in order", prepared.commit_ordered().err());
    check.refused("resolve", prepared.commit().err());
    check.refused("commit in order again", ordered.commit_ordered().err());
    check.refused("finish", ordered.commit().err());
    serializable.rollback();
    cancel.cancel();
    // A value that was read before is still readable without a call of the database.
    if value[..] != [7; 500] {
        check.0.get_or_insert("value");
    }
    let copies = (k.clone(), snapshot.clone(), cancel.clone());
    drop(copies);
}
