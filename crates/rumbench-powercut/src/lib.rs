//! Preloaded into a process under test, this library notes in a journal what the process changes below a directory, with
//! what was there before, and what it syncs. After the process was killed, the laboratory takes back what was not synced:
//! that is what a power loss may leave.
//!
//! It stands between the process and the C library's functions for writing, syncing and naming files and makes the system
//! calls itself. What does not come this way it cannot see: system calls made without the C library, `io_uring`, native
//! asynchronous I/O, the buffers of `FILE`, and stores into writable mappings, of which it at least notes the file. All
//! this counts as durable at once, so what is not seen makes an engine look safer than it is, never the other way round.
//! The laboratory compares the bytes seen with those that the kernel counted.
//!
//! One lock makes each change and its record one step, so the process writes one thing at a time, and more slowly.
//!
//! Three variables of the environment turn it on: `RUMBENCH_POWERCUT_ROOT`, the directory, as a path without symbolic
//! links; `RUMBENCH_POWERCUT_JOURNAL`, the journal to write; `RUMBENCH_POWERCUT_KEPT`, a directory of the same file system
//! for files that were removed or replaced.
#![cfg(target_os = "linux")]

mod names;
mod recorder;
mod syncs;
mod system;
mod writes;
