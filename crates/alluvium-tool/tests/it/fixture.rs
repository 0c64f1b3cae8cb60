//! Sample databases, and functions that run the binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};

use alluvium::{Clock, Database, Expiry, Keyspace, KeyspaceOptions, Options, WriteBatch};

/// Held shared while this process has a sample open, and exclusively while a process starts.
/// Between its fork and its exec a child holds the lock of every open database, even after that
/// database is closed.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a process that inherits no open sample of this process.
pub fn start(command: &mut Command) -> Child {
    let _alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().expect("the binary can be started")
}

/// Runs `alluvium` with empty stdin.
pub fn alluvium(arguments: &[&str]) -> Output {
    with_input(arguments, b"")
}

/// Runs `alluvium` with these bytes on stdin.
pub fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    use std::io::Write;
    let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium"));
    command.args(arguments).env("COLUMNS", "100");
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command);
    // A write error means that the child has ended without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().expect("the binary ends")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the document of a command that ends with this exit code.
pub fn document(arguments: &[&str], exit: i32) -> serde_json::Value {
    let output = alluvium(&[arguments, &["--json"]].concat());
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(exit), "{}", text(&output.stderr));
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("no JSON document ({e}): {stdout}"))
}

/// Returns every file below a directory with its bytes.
pub fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path))
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Returns options under which the same calls make the same database.
pub fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        idle_after: None,
        clock: Clock::custom(|| 1_000_000),
        ..Options::default()
    }
}

/// Makes a database with two keyspaces: `fruit` with tables, a large value, deletes and rows that
/// are only in the log; `odd` with keys that are not text.
pub fn sample(dir: &Path) {
    let _open = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    let db = Database::open(dir, options()).unwrap();
    let options = KeyspaceOptions {
        value_separation_bytes: Some(1024),
        ..KeyspaceOptions::default()
    };
    let fruit = db.keyspace("fruit", options).unwrap();
    let odd = db.keyspace("odd", KeyspaceOptions::default()).unwrap();
    put_all(
        &fruit,
        &[("apple", "red"), ("banana", "yellow"), ("kiwi", "green")],
    );
    fruit.put(b"melon", &noise(2000)).unwrap();
    db.flush().unwrap();
    fruit.compact_range(b"", None).unwrap();
    put_all(&fruit, &[("apple", "green"), ("pear", "green")]);
    fruit.delete(b"kiwi").unwrap();
    fruit.delete_range(b"b", b"c").unwrap();
    // One keyspace at a time, because the flush order of several is not defined.
    db.flush().unwrap();
    odd.put(b"\x00\xff", b"a\\b\n").unwrap();
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&fruit, b"quince", b"yellow").unwrap();
    batch.insert(&odd, b"tab\there", b"").unwrap();
    batch.delete_range(&odd, b"x", b"y").unwrap();
    db.write(&batch).unwrap();
    db.close().unwrap();
}

/// Makes a database with a row that expires and this stored time.
pub fn expiring(dir: &Path, stored_ms: u64) {
    let _open = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    let clock = Clock::custom(move || stored_ms);
    let db = Database::open(dir, Options { clock, ..options() }).unwrap();
    let options = KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..KeyspaceOptions::default()
    };
    let rows = db.keyspace("rows", options).unwrap();
    rows.put(b"row", b"v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
}

/// Returns incompressible bytes, the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 56) as u8
    });
    next.take(length).collect()
}

fn put_all(keyspace: &Keyspace, rows: &[(&str, &str)]) {
    for (key, value) in rows {
        keyspace.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
}

/// Sample database in its own directory.
pub struct Sample {
    _root: tempfile::TempDir,
    pub dir: PathBuf,
}

impl Sample {
    pub fn new() -> Sample {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("db");
        sample(&dir);
        Sample { _root: root, dir }
    }

    pub fn path(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    /// Returns a path next to the database.
    pub fn beside(&self, name: &str) -> String {
        let path = self.dir.parent().unwrap().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Returns the first file with this name ending.
    pub fn file(&self, ending: &str) -> PathBuf {
        let files = contents(&self.dir).into_keys();
        let mut found = files.filter(|path| path.to_str().unwrap().ends_with(ending));
        found.next().expect("there is such a file")
    }

    /// Changes one byte of a file.
    pub fn damage(&self, path: &Path, offset: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[offset] ^= 0x40;
        std::fs::write(path, bytes).unwrap();
    }
}
