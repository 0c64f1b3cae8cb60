//! loom models of a table's frames and the cache that evicts them: concurrent misses, hits,
//! evictions and the drop of the table. They check two claims: the cache returns all of its slabs
//! once their frames have no users, and a held block stays what it is while its reader holds it.
//!
//! Frames, pool and accounts are the engine's own code. Run with `RUSTFLAGS="--cfg loom" cargo test
//! -p alluvium --lib --release model`.

use loom::thread;

use super::*;
use crate::table::block::DecodedBlock;
use crate::table::block::one_row_block;

/// Capacity of one slab with one frame.
const ONE: u64 = 512;

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Reads a block as a table does: returns the cached block, or installs one after a miss.
fn read(frames: &Frames, at: usize) -> BlockFrame {
    let found = match frames.hold(at) {
        Some(held) => {
            assert_eq!(DecodedBlock(&held).seqno(0), at as u64);
            held.keep()
        }
        None => {
            let block = one_row_block(at as u64, |bytes| frames.space(at, bytes));
            frames.install(at, block)
        }
    };
    assert_eq!(DecodedBlock(&found).seqno(0), at as u64);
    found
}

/// Checks that nothing is left of a cache once its frames have no users.
fn check_accounts(cache: &Cache, frames: &Frames) {
    cache.budget().set_total(0);
    cache.trim();
    let full = (0..2).filter(|&block| frames.has(block)).count();
    assert_eq!((cache.used_bytes(), full), (0, 0), "a frame was forgotten");
}

#[test]
fn model_two_misses_of_one_block_use_one_frame() {
    bounded(3, || {
        let cache = Cache::of_bytes(10 * ONE);
        let frames = Arc::new(Frames::new(Arc::clone(&cache), 2));
        let other = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || read(&frames, 0))
        };
        let own = read(&frames, 0);
        let theirs = other.join().expect("a block");
        assert!(own.is(&theirs), "both use the frame");
        drop((own, theirs));
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_misses_that_push_each_other_out_leave_the_accounts_right() {
    bounded(2, || {
        let cache = Cache::of_bytes(ONE);
        let frames = Arc::new(Frames::new(Arc::clone(&cache), 2));
        let other = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || {
                read(&frames, 1);
                read(&frames, 0);
            })
        };
        read(&frames, 0);
        other.join().expect("reads");
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_a_trim_concurrent_with_reads_leaves_their_blocks_valid() {
    bounded(2, || {
        let cache = Cache::of_bytes(10 * ONE);
        let frames = Arc::new(Frames::new(Arc::clone(&cache), 2));
        read(&frames, 0);
        let trimmer = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                cache.budget().set_total(0);
                cache.trim();
                cache.budget().set_total(10 * ONE);
            })
        };
        let kept = read(&frames, 0);
        trimmer.join().expect("a trim");
        assert_eq!(DecodedBlock(&kept).seqno(0), 0, "it is still what it was");
        drop(kept);
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_a_table_dropped_during_an_eviction_returns_its_frames_once() {
    bounded(3, || {
        let cache = Cache::of_bytes(10 * ONE);
        let frames = Arc::new(Frames::new(Arc::clone(&cache), 2));
        read(&frames, 0);
        read(&frames, 1);
        let trimmer = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                cache.budget().set_total(ONE);
                cache.trim();
            })
        };
        drop(frames);
        trimmer.join().expect("a trim");
        cache.budget().set_total(0);
        cache.trim();
        assert_eq!(cache.used_bytes(), 0);
    });
}
