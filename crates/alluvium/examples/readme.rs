//! The program of the README, which `cargo xtask tidy` compares with this file.

use alluvium::{CursorOptions, Database, Isolation, KeyspaceOptions, Options};

fn main() -> alluvium::Result<()> {
    let db = Database::open("my-database", Options::default())?;
    let users = db.keyspace("users", KeyspaceOptions::default())?;

    users.put(b"ann", b"admin")?;
    assert_eq!(users.get(b"ann")?.as_deref(), Some(&b"admin"[..]));

    let transaction = db.begin(Isolation::Snapshot)?;
    transaction.put(&users, b"bob", b"guest")?;
    transaction.delete(&users, b"ann")?;
    transaction.commit()?;

    let mut cursor = users.cursor(CursorOptions::prefix(b"b"))?;
    assert!(cursor.seek_first()?);
    assert_eq!((cursor.key(), cursor.value()), (&b"bob"[..], &b"guest"[..]));
    assert!(!cursor.next()?);
    db.close()
}
