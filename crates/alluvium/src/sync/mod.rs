//! Locks, threads, time and chance: whatever decides in which order things happen comes from here.
//!
//! There are three worlds. Ordinarily all of this is `parking_lot`'s and the standard library's, by other names. With
//! `--cfg loom` the structures whose correctness hangs on the order of their memory accesses are built of loom's parts, so
//! that their models run the very code that ships. With the feature `simulation` a seeded scheduler owns threads, waits
//! and time (see `simulation`), so that one number decides everything that a test run does.
//!
//! loom knows no time: there a wait with a deadline never expires, so a model stands for a timeout by a cancellation,
//! which takes the same way out.

#[cfg(loom)]
mod model;

#[cfg(loom)]
pub use self::model::{Condvar, Mutex, MutexGuard, SwapGuard, SwapOption};
#[cfg(all(feature = "simulation", not(loom)))]
pub use crate::simulation::locks::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use arc_swap::{ArcSwapOption as SwapOption, Guard as SwapGuard};
#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(any(loom, feature = "simulation")))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::atomic;

/// Locks of what no loom model covers: under loom they are `parking_lot`'s too.
pub mod plain {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::locks::{Condvar, Mutex, MutexGuard, RwLock};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
}

/// Threads.
pub mod thread {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::threads::{Builder, JoinHandle, ThreadId, current, yield_now};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::thread::{Builder, JoinHandle, ThreadId, current, yield_now};
}

/// Channels.
pub mod channel {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
}

/// Monotonic time.
pub mod time {
    #[cfg(all(feature = "simulation", not(loom)))]
    pub use crate::simulation::clock::{Instant, boot_ms};
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub use std::time::Instant;

    /// Milliseconds since the machine's start, suspend included, which `Instant` leaves out on Linux. No setting of the
    /// wall clock changes them. As cheap as a look at the wall clock: the kernel answers both without a system call.
    #[cfg(not(all(feature = "simulation", not(loom))))]
    pub fn boot_ms() -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const BOOT: ClockId = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const BOOT: ClockId = ClockId::Monotonic;
        let time = clock_gettime(BOOT);
        // Never negative: it counts from a start.
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000
            + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

/// Maps and sets by hash, whose order of iteration chance decides, or in a simulation the seed.
pub mod collections {
    #[cfg(feature = "simulation")]
    use std::hash::{BuildHasherDefault, DefaultHasher};

    /// A map by hash.
    #[cfg(not(feature = "simulation"))]
    pub type HashMap<K, V> = std::collections::HashMap<K, V>;
    /// A set by hash.
    #[cfg(not(feature = "simulation"))]
    pub type HashSet<T> = std::collections::HashSet<T>;
    /// A map by hash.
    #[cfg(feature = "simulation")]
    pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
    /// A set by hash.
    #[cfg(feature = "simulation")]
    pub type HashSet<T> = std::collections::HashSet<T, BuildHasherDefault<DefaultHasher>>;
}

#[cfg(all(feature = "simulation", not(loom)))]
pub use crate::simulation::{numbered, random_u64, step};

/// Where a simulation may go on with another thread, besides locks, waits and calls of the file system: around what is
/// published by one store. Nothing anywhere else.
#[cfg(not(all(feature = "simulation", not(loom))))]
#[inline(always)]
pub fn step() {}

/// Tells a simulation that a commit of these operations gets this number. Nothing anywhere else.
#[cfg(not(all(feature = "simulation", not(loom))))]
#[inline(always)]
pub fn numbered(_seqno: u64, _ops: &[u8]) {}

/// A number that chance decides, or in a simulation the seed.
#[cfg(not(all(feature = "simulation", not(loom))))]
pub fn random_u64() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library keys its hashers with numbers from the system's random source.
    RandomState::new().hash_one("alluvium")
}
