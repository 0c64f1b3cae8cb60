//! Work on several items at once, by threads that borrow from their caller.

/// Returns what `work` returns for each item, in order. Each item but the first gets a thread; an
/// item whose thread the system refuses is worked on by the caller.
///
/// In a simulation all items are worked on one after the other: its threads cannot borrow.
///
/// # Panics
///
/// If `work` panics for some item, after all threads have ended.
#[cfg(not(all(feature = "simulation", not(loom))))]
pub fn at_once<I: Sync, T: Send>(name: &str, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |item| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            (item, thread.spawn_scoped(scope, move || work(item)).ok())
        };
        let others: Vec<_> = items.iter().skip(1).map(start).collect();
        let first = items.first().map(work);
        let others = others
            .into_iter()
            .map(|(item, thread)| thread.ok_or_else(|| work(item)));
        // The caller works on its own items before it waits for the first thread.
        let others: Vec<_> = others.collect();
        let others = others.into_iter().map(|other| match other {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(done) => done,
        });
        first.into_iter().chain(others).collect()
    })
}

#[cfg(all(feature = "simulation", not(loom)))]
pub fn at_once<I: Sync, T: Send>(_: &str, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    items.iter().map(work).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::at_once;

    #[test]
    fn results_have_the_order_of_their_items() {
        let items: Vec<u32> = (0..5).collect();
        assert_eq!(at_once("square", &items, |n| n * n), [0, 1, 4, 9, 16]);
        assert!(at_once("square", &[], |n: &u32| n * n).is_empty());
    }

    #[cfg(not(feature = "simulation"))]
    #[test]
    fn each_item_has_a_thread() {
        let barrier = std::sync::Barrier::new(3);
        at_once("meet", &[1, 2, 3], |_| {
            barrier.wait();
        });
    }

    #[test]
    #[should_panic = "item 2"]
    fn a_panic_is_passed_on() {
        at_once("panic", &[1, 2, 3], |n| assert!(*n != 2, "item {n}"));
    }
}
