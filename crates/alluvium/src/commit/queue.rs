//! Commit queue: chooses the leader of a group, lets the others wait and returns results.
//!
//! At most one thread leads at any time, and it is running on a core when it becomes leader. A
//! leader that finds queued requests when it finishes offers the lead to the head of the queue. Any
//! thread that arrives before the head of the queue wakes up becomes leader and commits everything
//! queued. With more clients than cores, this saves most thread switches. Invariant: a thread is
//! leading, or the head of the queue holds an offer that it will see.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

use crate::base::{SeqNo, ValueKind};
use crate::commit::batch::Ops;
use crate::commit::prepared::{Phase, PreparedState};
use crate::commit::validate::Validation;
use crate::db::options::Durability;
use crate::error::Result;
use crate::wal::RecordKind;

/// A group stops growing at this many payload bytes, so that one commit's wait is bounded.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Commit request in the queue.
pub(crate) struct Request {
    /// Encoded operations; empty for a step of a prepared transaction.
    payload: Vec<u8>,
    /// Compressed payload as the log stores it, if it is shorter.
    packed: Option<Vec<u8>>,
    pub durability: Durability,
    /// Reads to validate before the commit; `None` if there are none.
    pub validation: Option<Validation>,
    /// Step of a prepared transaction, if the request is one.
    pub phase: Option<(Phase, Arc<PreparedState>)>,
    /// Guards this request's fate alone. Taken after `Committer::queue` or alone; nothing is locked
    /// while it is held.
    fate: Mutex<Fate>,
    changed: Condvar,
    /// Set while `fate` is not "queued". A hint for the spinning waiter, which then takes the
    /// mutex.
    settled: AtomicBool,
}

/// Number of times a waiter checks for its result before it yields its core, with a spin-loop pause
/// between two checks. This takes some microseconds, about as long as a group without a sync.
/// Waking a thread takes several times that.
const LOOKS: u32 = if SCHEDULED { 1 } else { 200 };

/// Number of times a waiter then yields its core before it sleeps. The leader may be ready to run
/// but have no core, and it must wake each sleeping waiter.
const YIELDS: u32 = if SCHEDULED { 1 } else { 10 };

/// Under loom and the simulator no other thread runs while this one spins, so spinning is useless.
const SCHEDULED: bool = cfg!(any(loom, feature = "simulation"));

enum Fate {
    Queued,
    /// The request was the head of the queue when a leader finished. Its thread may lead unless
    /// another thread already does.
    Offered,
    Done(Result<Done>),
}

/// Outcome of a commit that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Committed with this sequence number.
    At(SeqNo),
    /// Not committed: the thread must check its reads again and may then queue the request again.
    LookAgain,
}

/// Commit queue of the log.
#[derive(Default)]
pub(crate) struct Committer {
    /// Pending requests and the leader flag. Held only to push a request or to take a group.
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<Arc<Request>>,
    /// A thread has taken a group and is processing it.
    leading: bool,
}

impl Committer {
    /// Runs one commit through the queue. `process` commits a group in order and returns one result
    /// per request.
    pub fn commit(
        &self,
        request: &Arc<Request>,
        process: impl Fn(&[Arc<Request>]) -> Vec<Result<Done>>,
    ) -> Result<Done> {
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
        group: &[Arc<Request>],
        leader: &Arc<Request>,
        process: impl Fn(&[Arc<Request>]) -> Vec<Result<Done>>,
    ) -> Option<Result<Done>> {
        let results = process(group);
        debug_assert_eq!(results.len(), group.len());
        self.queue.lock().hand_over();
        let mut own = None;
        for (member, result) in group.iter().zip(results) {
            if Arc::ptr_eq(member, leader) {
                own = Some(result);
            } else {
                member.set(Fate::Done(result));
            }
        }
        own
    }

    /// Returns the number of commits that wait for a leader to take them.
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

impl Queue {
    /// Queues a request. Returns the group for its thread to lead if no thread is leading.
    fn enter(&mut self, request: &Arc<Request>) -> Option<Vec<Arc<Request>>> {
        self.pending.push(Arc::clone(request));
        (!self.leading).then(|| self.take_group())
    }

    /// Accepts an offered lead, unless another thread has become leader and taken this request
    /// already.
    fn accept(&mut self, request: &Arc<Request>) -> Option<Vec<Arc<Request>>> {
        let first = self.pending.first();
        let still = first.is_some_and(|first| Arc::ptr_eq(first, request));
        debug_assert!(!still || !self.leading, "every group takes the first");
        still.then(|| self.take_group())
    }

    fn hand_over(&mut self) {
        self.leading = false;
        if let Some(next) = self.pending.first() {
            next.set(Fate::Offered);
        }
    }

    fn take_group(&mut self) -> Vec<Arc<Request>> {
        self.leading = true;
        let mut bytes = 0;
        let fits = |request: &&Arc<Request>| {
            let first = bytes == 0;
            bytes += request.record().1.len().max(1);
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

impl Request {
    /// Creates a commit of these operations.
    pub fn new(payload: Vec<u8>, packed: Option<Vec<u8>>, durability: Durability) -> Request {
        Request {
            payload,
            packed,
            durability,
            validation: None,
            phase: None,
            fate: Mutex::new(Fate::Queued),
            changed: Condvar::new(),
            settled: AtomicBool::new(false),
        }
    }

    /// Adds a validation of the commit's reads.
    pub fn validated(self, validation: Validation) -> Request {
        Request {
            validation: Some(validation),
            ..self
        }
    }

    /// Creates a step of a prepared transaction.
    pub fn of_prepared(
        phase: Phase,
        state: &Arc<PreparedState>,
        durability: Durability,
    ) -> Request {
        Request {
            phase: Some((phase, Arc::clone(state))),
            ..Request::new(Vec::new(), None, durability)
        }
    }

    /// Returns true if the request is always admitted: it has nothing to validate and no phase.
    pub fn is_plain(&self) -> bool {
        self.validation.is_none() && self.phase.is_none()
    }

    /// Returns true if the request only deletes or resolves a prepared transaction. A full device
    /// does not refuse such a request.
    pub fn makes_room(&self) -> bool {
        match &self.phase {
            None => Ops::new(&self.payload).all(|op| {
                op.is_ok_and(|op| matches!(op.kind, ValueKind::Delete | ValueKind::RangeDelete))
            }),
            Some((phase, _)) => *phase != Phase::Prepare,
        }
    }

    /// Returns the operations that the request applies.
    pub fn ops(&self) -> &[u8] {
        match &self.phase {
            None => &self.payload,
            Some((Phase::Commit, state)) => state.ops(),
            Some(_) => &[],
        }
    }

    /// Returns the transaction that the request prepares.
    pub fn preparing(&self) -> Option<&PreparedState> {
        match &self.phase {
            Some((Phase::Prepare, state)) => Some(state),
            _ => None,
        }
    }

    /// Returns the request's log record.
    pub fn record(&self) -> (RecordKind, &[u8]) {
        match (&self.phase, &self.packed) {
            (Some((phase, state)), _) => state.record(*phase),
            (None, Some(packed)) => (RecordKind::PackedCommit, packed),
            (None, None) => (RecordKind::Commit, &self.payload),
        }
    }

    fn set(&self, fate: Fate) {
        let mut own = self.fate.lock();
        *own = fate;
        self.settled.store(true, Ordering::Relaxed);
        drop(own);
        self.changed.notify_one();
    }

    /// Waits until the request is done (its result) or is offered the lead (`None`).
    fn wait(&self) -> Option<Result<Done>> {
        let settled = || self.settled.load(Ordering::Relaxed);
        let spun = (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            settled()
        });
        if !spun {
            let _ = (0..YIELDS).any(|_| {
                crate::sync::thread::yield_now();
                settled()
            });
        }
        let mut fate = self.fate.lock();
        while let Fate::Queued = *fate {
            self.changed.wait(&mut fate);
        }
        self.settled.store(false, Ordering::Relaxed);
        match std::mem::replace(&mut *fate, Fate::Queued) {
            Fate::Done(result) => Some(result),
            Fate::Offered | Fate::Queued => None,
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_new_writer_takes_over_an_offered_lead() {
        let request = |bytes| {
            let payload = vec![0; bytes];
            Arc::new(Request::new(payload, None, Durability::Buffered))
        };
        let sizes = [1, 3 << 20, 3 << 20, 1, 1];
        let requests = sizes.map(request);
        let [first, second, third, late, last] = &requests;
        let is = |group: Option<Vec<Arc<Request>>>, members: &[&Arc<Request>]| {
            let group = group.expect("a lead");
            group.len() == members.len()
                && group.iter().zip(members).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let offered = |request: &Arc<Request>| matches!(*request.fate.lock(), Fate::Offered);
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
    fn every_commit_gets_the_result_of_its_own_payload() {
        let committer = Committer::default();
        let groups = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client in 0..4u64 {
                let (committer, groups) = (&committer, &groups);
                scope.spawn(move || {
                    for i in 0..2000u64 {
                        let number = client * 10_000 + i;
                        let payload = number.to_le_bytes().to_vec();
                        let request = Request::new(payload, None, Durability::Buffered);
                        let result = committer.commit(&Arc::new(request), |group| {
                            groups.fetch_add(1, Ordering::Relaxed);
                            let read = |r: &Arc<Request>| {
                                u64::from_le_bytes(r.payload[..].try_into().unwrap())
                            };
                            group.iter().map(|r| Ok(Done::At(read(r)))).collect()
                        });
                        assert_eq!(result.unwrap(), Done::At(number));
                    }
                });
            }
        });
        assert!(groups.into_inner() <= 8000);
        assert!(!committer.queue.lock().leading, "the lead was given back");
    }
}
