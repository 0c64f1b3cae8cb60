//! A library that is preloaded into a process under test. It writes a journal of the process's
//! changes below a directory, with the old content, and of its syncs. After the process is killed,
//! the laboratory undoes unsynced changes, as a power loss may.
//!
//! It replaces the C library's functions for writing, syncing and naming files and makes the system
//! calls itself. It does not see other changes: system calls made without the C library,
//! `io_uring`, native asynchronous I/O, the buffers of `FILE`, and stores into writable mappings,
//! of which it at least records the file. All these count as durable at once, so an unseen change
//! makes an engine look safer than it is, never less safe. The laboratory compares the bytes seen
//! with the kernel's count.
//!
//! One lock makes each change and its record one step, so the process writes one thing at a time,
//! and more slowly.
//!
//! Three environment variables turn it on: `RUMBENCH_POWERCUT_ROOT`, the directory, as a path
//! without symbolic links; `RUMBENCH_POWERCUT_JOURNAL`, the journal to write;
//! `RUMBENCH_POWERCUT_KEPT`, a directory of the same file system for files that were removed or
//! replaced.
#![cfg(target_os = "linux")]

mod names;
mod recorder;
mod syncs;
mod system;
mod writes;
