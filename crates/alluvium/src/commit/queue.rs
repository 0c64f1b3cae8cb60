//! Queue of a group commit: chooses the leader of a group, lets the others wait and returns
//! results. The content of a request, and the work of a group, are the caller's.
//!
//! At most one thread leads at any time, and it is running on a core when it becomes leader. A
//! leader that finds queued requests when it finishes offers the lead to the head of the queue. Any
//! thread that arrives before the head of the queue wakes up becomes leader and commits everything
//! queued. With more clients than cores, this saves most thread switches. Invariant: a thread is
//! leading, or the head of the queue holds an offer that it will see.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// A group stops growing at this many bytes, so that one request's wait is bounded.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Request that takes a part of a group's bytes.
pub(crate) trait Weigh {
    /// Returns the bytes that the request adds to its group.
    fn bytes(&self) -> usize;
}

/// Request of one thread, in the queue or in a group.
pub(crate) struct Queued<T, R> {
    request: T,
    /// Guards this request's outcome alone. Taken after `CommitQueue::queue` or alone; nothing is
    /// locked while it is held.
    outcome: Mutex<Outcome<R>>,
    changed: Condvar,
    /// Set while `outcome` is not "queued". A hint for the spinning waiter, which then takes the
    /// mutex.
    settled: AtomicBool,
}

/// Number of times a waiter checks for its result before it yields its core, with a spin-loop pause
/// between two checks. This takes some microseconds, about as long as a group without a sync.
/// Waking a thread takes several times that.
const SPINS: u32 = if SCHEDULED { 1 } else { 200 };

/// Number of times a waiter then yields its core before it sleeps. The leader may be ready to run
/// but have no core, and it must wake each sleeping waiter.
const YIELDS: u32 = if SCHEDULED { 1 } else { 10 };

/// Under loom and the simulator no other thread runs while this one spins, so spinning is useless.
const SCHEDULED: bool = cfg!(any(loom, feature = "simulation"));

enum Outcome<R> {
    Queued,
    /// The request was the head of the queue when a leader finished. Its thread may lead unless
    /// another thread already does.
    Offered,
    Done(R),
}

/// Queue of requests that are processed in groups, see the module.
pub(crate) struct CommitQueue<T, R> {
    /// Pending requests and the leader flag. Held only to push a request or to take a group.
    queue: Mutex<Queue<T, R>>,
}

struct Queue<T, R> {
    pending: Vec<Arc<Queued<T, R>>>,
    /// A thread has taken a group and is processing it.
    leading: bool,
}

impl<T, R> Default for CommitQueue<T, R> {
    fn default() -> CommitQueue<T, R> {
        CommitQueue {
            queue: Mutex::default(),
        }
    }
}

impl<T, R> Default for Queue<T, R> {
    fn default() -> Queue<T, R> {
        Queue {
            pending: Vec::new(),
            leading: false,
        }
    }
}

impl<T: Weigh, R> CommitQueue<T, R> {
    /// Runs one request through the queue. `process` processes a group in order and returns one
    /// result per request.
    pub fn run(
        &self,
        request: &Arc<Queued<T, R>>,
        process: impl Fn(&[Arc<Queued<T, R>>]) -> Vec<R>,
    ) -> R {
        let mut group = self.queue.lock().enter(request);
        // Terminates: each request gets a result, from its own thread or from another leader.
        loop {
            if let Some(group) = &group
                && let Some(own) = self.lead(group, request, &process)
            {
                return own;
            }
            if let Some(result) = request.wait() {
                return result;
            }
            group = self.queue.lock().accept(request);
        }
    }

    /// Processes a group and hands out the results. Returns the leader's own result; `None` if its
    /// request is not in the group because the requests before it filled the group.
    fn lead(
        &self,
        group: &[Arc<Queued<T, R>>],
        leader: &Arc<Queued<T, R>>,
        process: impl Fn(&[Arc<Queued<T, R>>]) -> Vec<R>,
    ) -> Option<R> {
        let results = process(group);
        debug_assert_eq!(results.len(), group.len());
        self.queue.lock().hand_over();
        let mut own = None;
        for (member, result) in group.iter().zip(results) {
            if Arc::ptr_eq(member, leader) {
                own = Some(result);
            } else {
                member.set(Outcome::Done(result));
            }
        }
        own
    }

    /// Returns the number of requests that wait for a leader to take them.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.queue.lock().pending.len()
    }

    /// Returns true if a thread is leading a group and no request is queued.
    #[cfg(test)]
    pub fn leads_alone(&self) -> bool {
        let queue = self.queue.lock();
        queue.leading && queue.pending.is_empty()
    }
}

impl<T: Weigh, R> Queue<T, R> {
    /// Queues a request. Returns the group for its thread to lead if no thread is leading.
    fn enter(&mut self, request: &Arc<Queued<T, R>>) -> Option<Vec<Arc<Queued<T, R>>>> {
        self.pending.push(Arc::clone(request));
        (!self.leading).then(|| self.take_group())
    }

    /// Accepts an offered lead, unless another thread has become leader and taken this request
    /// already.
    fn accept(&mut self, request: &Arc<Queued<T, R>>) -> Option<Vec<Arc<Queued<T, R>>>> {
        let first = self.pending.first();
        let still = first.is_some_and(|first| Arc::ptr_eq(first, request));
        debug_assert!(!still || !self.leading, "every group takes the first");
        still.then(|| self.take_group())
    }

    fn hand_over(&mut self) {
        self.leading = false;
        if let Some(next) = self.pending.first() {
            next.set(Outcome::Offered);
        }
    }

    fn take_group(&mut self) -> Vec<Arc<Queued<T, R>>> {
        self.leading = true;
        let mut bytes = 0;
        let fits = |request: &&Arc<Queued<T, R>>| {
            let first = bytes == 0;
            bytes += request.bytes().max(1);
            first || bytes <= GROUP_BYTES_MAX
        };
        let count = self.pending.iter().take_while(fits).count();
        if count == self.pending.len() {
            std::mem::take(&mut self.pending)
        } else {
            self.pending.drain(..count).collect()
        }
    }
}

impl<T, R> Queued<T, R> {
    /// Wraps a request for the queue.
    pub fn new(request: T) -> Queued<T, R> {
        Queued {
            request,
            outcome: Mutex::new(Outcome::Queued),
            changed: Condvar::new(),
            settled: AtomicBool::new(false),
        }
    }

    fn set(&self, outcome: Outcome<R>) {
        let mut own = self.outcome.lock();
        *own = outcome;
        self.settled.store(true, Ordering::Relaxed);
        drop(own);
        self.changed.notify_one();
    }

    /// Waits until the request is done (its result) or is offered the lead (`None`).
    fn wait(&self) -> Option<R> {
        let settled = || self.settled.load(Ordering::Relaxed);
        let spun = (0..SPINS).any(|_| {
            std::hint::spin_loop();
            settled()
        });
        if !spun {
            let _ = (0..YIELDS).any(|_| {
                crate::sync::thread::yield_now();
                settled()
            });
        }
        let mut outcome = self.outcome.lock();
        while let Outcome::Queued = *outcome {
            self.changed.wait(&mut outcome);
        }
        self.settled.store(false, Ordering::Relaxed);
        match std::mem::replace(&mut *outcome, Outcome::Queued) {
            Outcome::Done(result) => Some(result),
            Outcome::Offered | Outcome::Queued => None,
        }
    }
}

impl<T, R> Deref for Queued<T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.request
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
impl Weigh for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    type Request = Queued<Vec<u8>, u64>;

    #[test]
    fn a_new_writer_takes_over_an_offered_lead() {
        let request = |bytes| Arc::new(Request::new(vec![0; bytes]));
        let sizes = [1, 3 << 20, 3 << 20, 1, 1];
        let requests = sizes.map(request);
        let [first, second, third, late, last] = &requests;
        let is = |group: Option<Vec<Arc<Request>>>, members: &[&Arc<Request>]| {
            let group = group.expect("a lead");
            group.len() == members.len()
                && group.iter().zip(members).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let offered = |request: &Arc<Request>| matches!(*request.outcome.lock(), Outcome::Offered);
        let mut queue = Queue::default();
        assert!(is(queue.enter(first), &[first]));
        assert!(queue.enter(second).is_none() && queue.enter(third).is_none());
        queue.hand_over();
        assert!(offered(second) && !offered(third));
        assert!(is(queue.enter(late), &[second]), "two were too much");
        assert!(queue.accept(second).is_none(), "it was taken");
        queue.hand_over();
        assert!(offered(third) && !offered(late));
        assert!(queue.accept(late).is_none() && queue.accept(second).is_none());
        assert!(is(queue.accept(third), &[third, late]));
        queue.hand_over();
        assert!(is(queue.enter(last), &[last]));
    }

    #[test]
    fn every_request_gets_its_own_result() {
        let queue = CommitQueue::default();
        let groups = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client in 0..4u64 {
                let (queue, groups) = (&queue, &groups);
                scope.spawn(move || {
                    for i in 0..2000u64 {
                        let number = client * 10_000 + i;
                        let request = Request::new(number.to_le_bytes().to_vec());
                        let result = queue.run(&Arc::new(request), |group| {
                            groups.fetch_add(1, Ordering::Relaxed);
                            let read =
                                |r: &Arc<Request>| u64::from_le_bytes(r[..].try_into().unwrap());
                            group.iter().map(read).collect()
                        });
                        assert_eq!(result, number);
                    }
                });
            }
        });
        assert!(groups.into_inner() <= 8000);
        assert!(!queue.queue.lock().leading, "the lead was given back");
    }
}
