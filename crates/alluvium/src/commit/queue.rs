//! The commit queue: who leads a group, who waits, and how results come back.
//!
//! At most one thread leads at any time, and it has a core when it begins. A leader that finds requests queued when it
//! finishes offers the lead to the first of them. Who comes before that one has woken takes the lead, and with it what is
//! queued: with more clients than cores, that saves most changes of threads. So somebody leads, or the first in the queue
//! has an offer that it will look at.

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

/// One commit on its way through the queue.
pub(crate) struct Request {
    /// Empty for a step of a prepared transaction.
    payload: Vec<u8>,
    /// The payload as the log stores it, where that is shorter.
    packed: Option<Vec<u8>>,
    pub durability: Durability,
    /// What it rests on, if that must be checked.
    pub validation: Option<Validation>,
    /// The step of a prepared transaction that it is.
    pub phase: Option<(Phase, Arc<PreparedState>)>,
    /// Guards this request's fate alone; taken after `Committer::queue` or by itself, nothing is locked under it.
    fate: Mutex<Fate>,
    changed: Condvar,
    /// Set while `fate` is not "queued". A hint for the spinning waiter, who then takes the mutex.
    settled: AtomicBool,
}

/// How often a waiter looks before it gives its core away, with a pause of the processor between two looks: some microseconds,
/// which is about as long as a group takes without a sync. Waking a thread costs several times that.
const LOOKS: u32 = if SCHEDULED { 1 } else { 200 };

/// How often a waiter then lets another thread have its core before it sleeps: the leader may be among those that are
/// ready and have none, and who sleeps must be woken by it.
const YIELDS: u32 = if SCHEDULED { 1 } else { 10 };

/// Nothing happens beside a thread that only looks.
const SCHEDULED: bool = cfg!(any(loom, feature = "simulation"));

enum Fate {
    Queued,
    /// It was the first in the queue when a leader had finished: whoever waits may lead, if nobody else does by now.
    Offered,
    Done(Result<Done>),
}

/// What became of a commit that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// It has this number.
    At(SeqNo),
    /// Nothing happened: what it rests on must be looked at again, then it may be queued again.
    LookAgain,
}

/// The queue in front of the log.
#[derive(Default)]
pub(crate) struct Committer {
    /// Guards the queue. Held for a push or a take only.
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<Arc<Request>>,
    /// Somebody has taken a group and works on it.
    leading: bool,
}

impl Committer {
    /// Runs one commit through the queue. `process` performs a group, in order, and returns a result for each.
    pub fn commit(
        &self,
        request: &Arc<Request>,
        process: impl Fn(&[Arc<Request>]) -> Vec<Result<Done>>,
    ) -> Result<Done> {
        let mut group = self.queue.lock().enter(request);
        // Ends: with its own result, which its own group brings or another's.
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

    /// Performs a group and hands out the results. Returns that of the leader, who is not in it if those before it
    /// were too much for one group.
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

    /// How many commits wait for a leader to take them.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.queue.lock().pending.len()
    }

    /// Whether somebody leads a group that it has taken, and nobody waits.
    #[cfg(test)]
    pub fn leads_alone(&self) -> bool {
        let queue = self.queue.lock();
        queue.leading && queue.pending.is_empty()
    }
}

impl Queue {
    /// Queues a request. Returns the group that its thread leads, if nobody else leads.
    fn enter(&mut self, request: &Arc<Request>) -> Option<Vec<Arc<Request>>> {
        self.pending.push(Arc::clone(request));
        (!self.leading).then(|| self.take_group())
    }

    /// Takes an offered lead, unless somebody has come before, who has taken this request too.
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
    /// A commit of these operations.
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

    /// The same, resting on what is to be validated.
    pub fn validated(self, validation: Validation) -> Request {
        Request {
            validation: Some(validation),
            ..self
        }
    }

    /// A step of a prepared transaction.
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

    /// Whether nothing can refuse it by itself.
    pub fn is_plain(&self) -> bool {
        self.validation.is_none() && self.phase.is_none()
    }

    /// Whether it only takes away, or ends what has begun: then a full device does not refuse it.
    pub fn makes_room(&self) -> bool {
        match &self.phase {
            None => Ops::new(&self.payload).all(|op| {
                op.is_ok_and(|op| matches!(op.kind, ValueKind::Delete | ValueKind::RangeDelete))
            }),
            Some((phase, _)) => *phase != Phase::Prepare,
        }
    }

    /// The operations that it applies.
    pub fn ops(&self) -> &[u8] {
        match &self.phase {
            None => &self.payload,
            Some((Phase::Commit, state)) => state.ops(),
            Some(_) => &[],
        }
    }

    /// The transaction that it prepares.
    pub fn preparing(&self) -> Option<&PreparedState> {
        match &self.phase {
            Some((Phase::Prepare, state)) => Some(state),
            _ => None,
        }
    }

    /// Its record in the log.
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

    /// Waits until done, with the result, or until offered the lead, with `None`.
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
    fn who_comes_before_the_offered_one_leads_what_is_queued_and_the_offer_is_made_again() {
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
