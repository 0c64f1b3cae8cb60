//! Prints the bytes per row in a table, and the time to write, scan and search tables.
//!
//! ```text
//! cargo run --release -p alluvium --example block_sizes [rows]
//! ```
//!
//! The rows have the shapes of LinkBench's tables. Columns: bytes of a row before and in the file
//! (without filters), then nanoseconds per row to build, to scan once (read, checksum, decompress,
//! transpose, step) and to find with `get`. `get` is measured with every block decoded in the
//! cache, then with a cache of zero bytes, so that each `get` decodes a block.
#![allow(clippy::print_stdout, reason = "the output is what the example is for")]

use alluvium::base::checksum::key_hash;
use alluvium::base::{KeyspaceId, TableId, ValueKind};
use alluvium::internal::{Cache, Codec, FilterOptions, Table, TableBuilder, TableOptions};
use alluvium::vfs::{MemVfs, Vfs, VfsFile};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;

const UID: u64 = 1;

/// xorshift64*: the same rows in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns text that repeats short motifs, as LinkBench's payload generator does.
    fn text(&mut self, length: usize) -> Vec<u8> {
        let motif: Vec<u8> = (0..6).map(|_| b'a' + self.below(26) as u8).collect();
        let letter = |i: usize| match self.below(4) {
            0 => b'a' + self.below(26) as u8,
            _ => motif[i % motif.len()],
        };
        (0..length).map(letter).collect()
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the links of several lists: id1, type, time and id2 of each.
fn links(random: &mut Random, rows: u64) -> Vec<(u64, u64, u64, u64)> {
    let ids = rows / 4;
    let mut links = Vec::new();
    for id1 in 1..=ids {
        let length = random.below(4) * random.below(5);
        let kind = 123_456_789 + random.below(2);
        for _ in 0..length {
            let time = 1_400_000_000_000 + random.below(100_000_000_000);
            links.push((id1, kind, time, 1 + random.below(ids)));
        }
    }
    links
}

/// Returns the secondary index: (id1, type, visibility, inverted time, id2) -> about 20 bytes of
/// version and text.
fn index_rows(rows: u64) -> Rows {
    let mut random = Random(1);
    let mut out = Rows::new();
    for (id1, kind, time, id2) in links(&mut random, rows) {
        let key = [
            &id1.to_be_bytes()[..],
            &kind.to_be_bytes(),
            &[1],
            &(!time).to_be_bytes(),
            &id2.to_be_bytes(),
        ];
        let length = 12 + random.below(9) as usize;
        let version = 1 + random.below(3) as u32;
        let value = [&version.to_be_bytes()[..], &random.text(length)].concat();
        out.push((key.concat(), value));
    }
    out
}

/// Returns the primary key: (id1, type, id2) -> visibility, time, version and text.
fn link_rows(rows: u64) -> Rows {
    let mut random = Random(2);
    let mut out = Rows::new();
    for (id1, kind, time, id2) in links(&mut random, rows) {
        let key = [id1.to_be_bytes(), kind.to_be_bytes(), id2.to_be_bytes()].concat();
        let length = 4 + random.below(9) as usize;
        let value = [
            &[1][..],
            &time.to_be_bytes(),
            &[0, 0, 0, 1 + random.below(3) as u8],
            &random.text(length),
        ];
        out.push((key, value.concat()));
    }
    out
}

/// Returns the counts: (id, type) -> count, time and version.
fn count_rows(rows: u64) -> Rows {
    let mut random = Random(3);
    let mut out = Rows::new();
    for id in 1..=rows {
        let key = [id.to_be_bytes(), (123_456_789u64).to_be_bytes()].concat();
        let time = 1_400_000_000_000 + random.below(100_000_000_000);
        let value = [random.below(50), time, 1 + random.below(20)];
        out.push((key, value.map(u64::to_be_bytes).concat()));
    }
    out
}

fn build(rows: &Rows, codec: Codec) -> alluvium::Result<(Arc<dyn VfsFile>, u64)> {
    let options = TableOptions {
        codec,
        filter: FilterOptions {
            whole_key_bits: 0,
            prefix: None,
        },
        ..TableOptions::default()
    };
    let file = MemVfs::new()
        .create(Path::new("memory.sst"))
        .expect("a file in memory");
    let shared: Arc<dyn VfsFile> = file.clone();
    let mut builder = TableBuilder::new(shared, UID, KeyspaceId(1), &options);
    for (key, value) in rows {
        builder.add(key, 0, ValueKind::Put, value)?;
    }
    let summary = builder.finish()?;
    Ok((file, summary.file_bytes))
}

/// Returns this thread's CPU nanoseconds for each of `n` pieces of `work`. Other load on the
/// machine affects CPU time less than wall time.
fn ns_each(n: usize, work: impl FnOnce() -> alluvium::Result<()>) -> alluvium::Result<f64> {
    let cpu_ns = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let start = cpu_ns();
    work()?;
    Ok((cpu_ns() - start) / n as f64)
}

fn gets(table: &Table, rows: &Rows, n: usize) -> alluvium::Result<()> {
    let mut random = Random(4);
    for _ in 0..n {
        let (key, value) = &rows[random.below(rows.len() as u64) as usize];
        let found = table.get(key, key_hash(key), 0)?;
        assert!(found.is_some_and(|found| *found.value == **value));
    }
    Ok(())
}

fn measure(name: &str, mut rows: Rows) -> alluvium::Result<()> {
    rows.sort();
    rows.dedup_by(|a, b| a.0 == b.0);
    let n = rows.len();
    let raw: usize = rows.iter().map(|(k, v)| k.len() + v.len()).sum();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let mut built = None;
        let build_ns = ns_each(n, || {
            built = Some(build(&rows, codec)?);
            Ok(())
        })?;
        let Some((file, bytes)) = built else {
            continue;
        };
        let open = |capacity| {
            let cache = Cache::of_bytes(capacity);
            Table::open(file.clone(), TableId(1), UID, cache)
        };
        let (warm, cold) = (open(1 << 34)?, open(0)?);
        let scan_ns = ns_each(n, || {
            let mut scan = warm.scan_all(None, None);
            while scan.next()? {}
            Ok(())
        })?;
        gets(&warm, &rows, n * 2)?;
        let warm_ns = ns_each(n, || gets(&warm, &rows, n))?;
        let cold_ns = ns_each(n / 10, || gets(&cold, &rows, n / 10))?;
        let (raw, stored) = (raw as f64 / n as f64, bytes as f64 / n as f64);
        println!(
            "{name:12} {codec:5} {raw:7.1} {stored:7.1} {build_ns:8.0} {scan_ns:8.0} {warm_ns:8.0} {cold_ns:8.0}",
            codec = format!("{codec:?}"),
        );
    }
    Ok(())
}

fn main() -> alluvium::Result<()> {
    let argument = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let rows: u64 = argument.unwrap_or(1_000_000);
    println!(
        "{:12} {:5} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8}",
        "rows", "codec", "raw B", "file B", "build ns", "scan ns", "get ns", "cold ns"
    );
    measure("id1_type", index_rows(rows))?;
    measure("link", link_rows(rows))?;
    measure("count", count_rows(rows))
}
