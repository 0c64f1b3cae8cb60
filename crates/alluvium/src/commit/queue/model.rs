//! Loom models of the commit queue: at most one leader at a time, each thread gets the result of
//! its own commit, and the lead is neither lost nor kept.
//!
//! In the engine the leader works under the log's mutex. Here its work is a few loads and stores
//! that detect a second leader. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p alluvium --lib --release model`.

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;

/// State shared by the leaders, in place of the log.
#[derive(Default)]
struct Log {
    leaders: AtomicUsize,
    /// Clients of the numbered commits, in order.
    order: std::sync::Mutex<Vec<u64>>,
}

type Request = Queued<Vec<u8>, u64>;

fn request(client: u64) -> Arc<Request> {
    Arc::new(Request::new(client.to_le_bytes().to_vec()))
}

fn client_of(request: &Request) -> u64 {
    let bytes = request[..].try_into();
    u64::from_le_bytes(bytes.expect("8 bytes"))
}

/// Processes a group, with no other leader. A request's result is its client, so a mixed-up result
/// is noticed.
fn lead(log: &Log, group: &[Arc<Request>]) -> Vec<u64> {
    assert_eq!(
        log.leaders.fetch_add(1, Ordering::Relaxed),
        0,
        "two leaders"
    );
    let clients: Vec<u64> = group.iter().map(|request| client_of(request)).collect();
    log.order.lock().expect("order").extend(&clients);
    log.leaders.fetch_sub(1, Ordering::Relaxed);
    clients
}

fn commit(queue: &CommitQueue<Vec<u8>, u64>, log: &Log, client: u64) {
    let result = queue.run(&request(client), |group| {
        assert!(!group.is_empty(), "a leader has a non-empty group");
        lead(log, group)
    });
    assert_eq!(result, client);
}

/// Runs `count` clients at once, each with `commits` commits.
fn clients(count: u64, commits: u64, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let queue = Arc::new(CommitQueue::default());
        let log = Arc::new(Log::default());
        let work = |client: u64| {
            let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
            move || (0..commits).for_each(|n| commit(&queue, &log, 10 * client + n))
        };
        let others: Vec<_> = (1..count)
            .map(|client| thread::spawn(work(client)))
            .collect();
        work(0)();
        for other in others {
            other.join().expect("every commit ends");
        }
        let order = log.order.lock().expect("order").clone();
        assert_eq!(
            order.len() as u64,
            count * commits,
            "each commit once: {order:?}"
        );
        for client in 0..count {
            let own = order.iter().filter(|number| **number / 10 == client);
            assert!(own.is_sorted(), "{order:?}");
        }
        let queue = queue.queue.lock();
        assert!(
            !queue.leading && queue.pending.is_empty(),
            "the lead was given back"
        );
    });
}

#[test]
fn model_two_commits_at_once_have_one_leader_and_their_own_results() {
    clients(2, 1, 4);
}

#[test]
fn model_a_commit_that_comes_when_the_lead_is_given_back_is_not_forgotten() {
    clients(2, 2, 5);
}

#[test]
fn model_the_lead_passes_from_hand_to_hand_among_three() {
    clients(3, 1, 4);
}
