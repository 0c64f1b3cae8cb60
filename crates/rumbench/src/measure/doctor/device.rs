//! Test of a device with scratch files in the data folder: measures the time to sync one written
//! page, and the number of random page reads per second.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::measure::statistics::median;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Number of timed syncs.
const SYNCS: usize = 50;
/// Size in bytes of the file for random reads.
const FILE_BYTES: u64 = 64 << 20;
/// Duration of the random reads.
const READING: Duration = Duration::from_millis(500);

/// Path of a file that is removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the median time to sync one written page in microseconds: fsync, fdatasync.
pub(super) fn syncs(dir: &Path) -> Result<(Option<f64>, Option<f64>)> {
    let path = Scratch(dir.join("rumbench-doctor-sync"));
    let mut file = File::create(&path.0)
        .with_context(|| format!("cannot write into {}; choose another --dir", dir.display()))?;
    let page = [1u8; PAGE];
    let mut timed = |sync: fn(&File) -> std::io::Result<()>| -> std::io::Result<Option<f64>> {
        let mut times = Vec::new();
        for _ in 0..SYNCS {
            file.write_all(&page)?;
            let start = Instant::now();
            sync(&file)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(&times))
    };
    Ok((timed(File::sync_all)?, timed(File::sync_data)?))
}

/// Returns the number of random page reads per second by one thread, without the page cache.
pub(super) fn random_reads(dir: &Path) -> Result<f64> {
    let path = Scratch(dir.join("rumbench-doctor-read"));
    let mut file = File::create(&path.0)?;
    // Incompressible bytes, because a device may not store zeros.
    let mut chunk = vec![0u8; 1 << 20];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..FILE_BYTES >> 20 {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    drop(file);
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(&path.0)
        .context("the file system has no direct reads")?;
    // Direct reads need an aligned buffer: two pages always contain an aligned page.
    let mut buffer = vec![0u8; 2 * PAGE];
    let shift = buffer.as_ptr().align_offset(PAGE);
    let page = &mut buffer[shift..shift + PAGE];
    let (start, mut reads) = (Instant::now(), 0u32);
    while start.elapsed() < READING {
        let place = next(&mut state) % (FILE_BYTES / PAGE as u64);
        file.read_exact_at(page, place * PAGE as u64)
            .context("cannot read past the page cache")?;
        reads += 1;
    }
    Ok(f64::from(reads) / start.elapsed().as_secs_f64())
}

/// Returns the next number of xorshift64.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
