//! loom models of a table's frames and the cache that evicts them: concurrent misses, hits,
//! evictions and the drop of the table. They check two claims: the cache charges exactly the bytes
//! of the installed frames, and a loaded block stays valid while its reader holds it.
//!
//! Frames, ring and accounting are the engine's own code. The slot of a block, an `arc_swap` in the
//! engine, is a mutex here: see `sync::model`. Run with `RUSTFLAGS="--cfg loom" cargo test -p
//! alluvium --lib --release model`.

use loom::thread;

use super::*;

fn block() -> Arc<DecodedBlock> {
    Arc::new(DecodedBlock::empty())
}

fn bytes() -> u64 {
    block().resident_bytes() as u64
}

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Reads a block as a table does: returns the cached block, or installs one after a miss.
fn read(frames: &Arc<Frames>, at: usize) -> Arc<DecodedBlock> {
    if let Some(found) = frames.hold(at) {
        return found.keep();
    }
    frames.install(at, block())
}

fn installed(frames: &Frames) -> u64 {
    let all = 0..frames.blocks.len();
    all.filter(|&block| frames.has(block)).count() as u64
}

/// Checks that exactly the installed frames and those in the limbo are charged, and that a trim to
/// 0 bytes evicts all of them.
fn check_accounts(cache: &Cache, frames: &Arc<Frames>) {
    let charged = cache.used_bytes() - cache.limbo_bytes();
    assert_eq!(charged, installed(frames) * bytes());
    cache.budget().set_total(0);
    cache.trim();
    assert_eq!(
        (cache.used_bytes(), installed(frames)),
        (0, 0),
        "a frame was forgotten"
    );
}

#[test]
fn model_of_two_misses_of_one_block_one_is_charged() {
    bounded(3, || {
        let cache = Cache::of_bytes(10 * bytes());
        let frames = Frames::new(Arc::clone(&cache), 1);
        let other = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || read(&frames, 0))
        };
        let own = read(&frames, 0);
        let theirs = other.join().expect("a block");
        assert!(Arc::ptr_eq(&own, &theirs), "both use the frame");
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_misses_that_push_each_other_out_leave_the_accounts_right() {
    bounded(3, || {
        let cache = Cache::of_bytes(bytes());
        let frames = Frames::new(Arc::clone(&cache), 2);
        let other = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || {
                read(&frames, 1);
                read(&frames, 0);
            })
        };
        read(&frames, 0);
        read(&frames, 1);
        other.join().expect("reads");
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_a_trim_concurrent_with_reads_leaves_their_blocks_valid() {
    bounded(3, || {
        let cache = Cache::of_bytes(10 * bytes());
        let frames = Frames::new(Arc::clone(&cache), 1);
        read(&frames, 0);
        let trimmer = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                cache.budget().set_total(0);
                cache.trim();
                cache.budget().set_total(10 * bytes());
            })
        };
        let held = read(&frames, 0);
        trimmer.join().expect("a trim");
        assert_eq!(held.len(), 0, "it is still what it was");
        check_accounts(&cache, &frames);
    });
}

#[test]
fn model_a_table_dropped_during_an_eviction_releases_its_bytes_once() {
    bounded(3, || {
        let cache = Cache::of_bytes(10 * bytes());
        let frames = Frames::new(Arc::clone(&cache), 2);
        read(&frames, 0);
        read(&frames, 1);
        let trimmer = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                cache.budget().set_total(bytes());
                cache.trim();
            })
        };
        drop(frames);
        trimmer.join().expect("a trim");
        assert_eq!(cache.used_bytes(), 0);
    });
}
