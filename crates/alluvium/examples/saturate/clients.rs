//! Writer and reader threads, and the run delay that explains a writer's slow commits.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alluvium::Keyspace;

use crate::arguments::Arguments;
use crate::latency::Latencies;
use crate::process::RunDelay;
use crate::watcher::InFlight;
use crate::{Course, Failure, SLOW};

/// A commit that took longer than [`ASK`].
pub struct SlowCommit {
    pub client: u64,
    /// Start, since the beginning of the run.
    pub at: Duration,
    pub took: Duration,
    /// Time in which the thread was ready to run and had no core.
    pub run_delay: Duration,
}

/// Duration of a commit above which a system call reads the thread's run delay.
const ASK: Duration = Duration::from_millis(20);
/// Commits after which the run delay is read in any case, so that the delay of a slow commit does
/// not include many earlier commits.
const COMMITS_PER_LOOK: u64 = 256;
/// Commits between two additions to the common interval.
const COMMITS_PER_SHARE: u64 = 1024;

/// xorshift64*: cheap, and the same rows in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// Returns a key of 16 bytes; the keys are spread over the whole range.
fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// Fills the first half with noise and leaves the rest the same in all rows, so that a value
/// compresses to about half.
fn fill(value: &mut [u8], random: &mut Random) {
    let half = value.len() / 2;
    for chunk in value[..half].chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
}

/// Puts random rows until told to stop.
pub fn write_rows(
    rows: &Keyspace,
    client: u64,
    arguments: &Arguments,
    course: &Course,
    in_flight: &InFlight,
) -> Result<(Latencies, Vec<SlowCommit>), Failure> {
    let mut random = Random::new(client);
    let mut value = vec![b'v'; arguments.value_bytes];
    let (mut all, mut interval, mut slow) =
        (Latencies::default(), Latencies::default(), Vec::new());
    let mut run_delay = RunDelay::of_this_thread()?;
    let mut commits = 0u64;
    while !course.stop.load(Ordering::Relaxed) {
        let key = key(random.below(arguments.keys));
        fill(&mut value, &mut random);
        if commits.is_multiple_of(COMMITS_PER_LOOK) {
            run_delay.since_last()?;
        }
        let at = Instant::now();
        in_flight.begins(at - course.began);
        rows.put(&key, &value)?;
        let took = at.elapsed();
        in_flight.ended();
        commits += 1;
        all.note(took);
        interval.note(took);
        if took > ASK {
            let run_delay = run_delay.since_last()?;
            let at = at - course.began;
            slow.push(SlowCommit {
                client,
                at,
                took,
                run_delay,
            });
        }
        if commits.is_multiple_of(COMMITS_PER_SHARE) || took > SLOW {
            let mut common = course.interval.lock().map_err(|_| "poisoned")?;
            common.add(&std::mem::take(&mut interval));
        }
    }
    Ok((all, slow))
}

/// Reads random rows until told to stop.
pub fn read_rows(
    rows: &Keyspace,
    reader: u64,
    arguments: &Arguments,
    course: &Course,
) -> alluvium::Result<()> {
    let mut random = Random::new(1 << 32 | reader);
    while !course.stop.load(Ordering::Relaxed) {
        rows.get(&key(random.below(arguments.keys)))?;
        course.reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
