//! Locks, threads, time and randomness: all sources of nondeterministic order in the engine.
//!
//! There are three builds. By default all of this is `parking_lot`'s and the standard library's.
//! With `--cfg loom` the structures with correctness arguments about memory order are built of
//! loom's types, so that their models run the shipped code. With the feature `simulation` a seeded
//! scheduler owns threads, waits and time (see `simulation`), so that one number decides everything
//! in a test run.
//!
//! loom has no time: a wait with a deadline never expires there, so a model replaces a timeout by a
//! cancellation, which takes the same exit path.

mod at_once;
#[cfg(loom)]
mod model;
mod shard;

pub(crate) use self::at_once::at_once;
#[cfg(loom)]
pub use self::model::{Condvar, Mutex};
pub use self::shard::{THREAD_SHARDS, thread_shard};
#[cfg(all(feature = "simulation", not(loom)))]
pub use crate::simulation::locks::{Condvar, Mutex};
#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(any(loom, feature = "simulation")))]
pub use parking_lot::{Condvar, Mutex};
#[cfg(not(loom))]
pub use std::sync::atomic;

/// Locks of structures without a loom model: under loom they are `parking_lot`'s too.
pub mod plain {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::locks::{Condvar, Mutex, MutexGuard, RwLock};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
}

/// Threads of the standard library or of the simulation.
pub mod thread {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::threads::{Builder, JoinHandle, ThreadId, current, yield_now};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::thread::{Builder, JoinHandle, ThreadId, current, yield_now};
}

/// Channels of the standard library or of the simulation.
pub mod channel {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
}

/// Monotonic time, real or simulated.
pub mod time {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::clock::{Instant, boot_ms};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::time::Instant;

    /// Returns milliseconds since the machine's start, including suspend, which `Instant` leaves
    /// out on Linux. Independent of settings of the wall clock. As cheap as reading the wall clock:
    /// the kernel answers both without a system call.
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub fn boot_ms() -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const BOOT: ClockId = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const BOOT: ClockId = ClockId::Monotonic;
        let time = clock_gettime(BOOT);
        // Never negative: it counts from the start of the machine.
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000
            + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

/// Hash maps and sets: their iteration order is random, or decided by the seed in a simulation.
pub mod collections {
    #[cfg(feature = "simulation")]
    use std::hash::{BuildHasherDefault, DefaultHasher};

    /// Hash map.
    #[cfg(not(feature = "simulation"))]
    pub type HashMap<K, V> = std::collections::HashMap<K, V>;
    /// Hash set.
    #[cfg(not(feature = "simulation"))]
    pub type HashSet<T> = std::collections::HashSet<T>;
    /// Hash map.
    #[cfg(feature = "simulation")]
    pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
    /// Hash set.
    #[cfg(feature = "simulation")]
    pub type HashSet<T> = std::collections::HashSet<T, BuildHasherDefault<DefaultHasher>>;
}

#[cfg(all(feature = "simulation", not(loom)))]
pub use crate::simulation::{numbered, random_u64, step};

/// Marks a point around a publishing store at which a simulation may switch threads, in addition to
/// locks, waits and file system calls. Does nothing in other builds.
#[cfg(not(all(feature = "simulation", not(loom))))]
#[inline(always)]
pub fn step() {}

/// Reports to a simulation that a commit of these operations gets this number. Does nothing in
/// other builds.
#[cfg(not(all(feature = "simulation", not(loom))))]
#[inline(always)]
pub fn numbered(_seqno: u64, _ops: &[u8]) {}

/// Returns a random number, or in a simulation one decided by the seed.
#[cfg(not(all(feature = "simulation", not(loom))))]
pub fn random_u64() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library keys its hashers with numbers from the system's random source.
    RandomState::new().hash_one("alluvium")
}
