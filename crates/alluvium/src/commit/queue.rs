//! The commit queue: who leads a group, who waits, and how results come back.
//!
//! At most one thread leads at any time. Leadership passes by hand: a leader that finds requests queued when it
//! finishes wakes the first of them as the next leader, so no request waits for a thread that is not running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::base::SeqNo;
use crate::db::options::Durability;
use crate::error::Result;

/// A group stops growing at this many payload bytes, so that one commit's wait is bounded.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// One commit on its way through the queue.
pub(crate) struct Request {
    pub payload: Vec<u8>,
    /// The payload as the log stores it, where that is shorter.
    pub packed: Option<Vec<u8>>,
    pub durability: Durability,
    /// Guards this request's fate alone; taken after `Committer::queue` or by itself, nothing is locked under it.
    fate: Mutex<Fate>,
    changed: Condvar,
    /// Set when `fate` is no longer "queued". A hint for the spinning waiter, who then takes the mutex.
    settled: AtomicBool,
}

/// How often a waiter looks before it sleeps, with a pause of the processor between two looks: some microseconds,
/// which is about as long as a group takes without a sync. Waking a thread costs several times that.
const LOOKS_BEFORE_SLEEP: u32 = 200;

enum Fate {
    Queued,
    Lead,
    Done(Result<SeqNo>),
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
    leading: bool,
}

impl Committer {
    /// Runs one commit through the queue. `process` performs a group, in order, and returns a result for each.
    pub fn commit(
        &self,
        payload: Vec<u8>,
        packed: Option<Vec<u8>>,
        durability: Durability,
        process: impl FnOnce(&[Arc<Request>]) -> Vec<Result<SeqNo>>,
    ) -> Result<SeqNo> {
        let fate = Mutex::new(Fate::Queued);
        let request = Arc::new(Request {
            payload,
            packed,
            durability,
            fate,
            changed: Condvar::new(),
            settled: AtomicBool::new(false),
        });
        let lead = {
            let mut queue = self.queue.lock();
            queue.pending.push(Arc::clone(&request));
            !std::mem::replace(&mut queue.leading, true)
        };
        if !lead && let Some(result) = request.wait() {
            return result;
        }
        let group = self.queue.lock().take_group();
        let results = process(&group);
        debug_assert_eq!(results.len(), group.len());
        self.hand_over();
        let mut own = None;
        for (member, result) in group.iter().zip(results) {
            if Arc::ptr_eq(member, &request) {
                own = Some(result);
            } else {
                member.set(Fate::Done(result));
            }
        }
        own.expect("a leader is the first of its own group")
    }

    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        match queue.pending.first() {
            Some(next) => next.set(Fate::Lead),
            None => queue.leading = false,
        }
    }
}

impl Queue {
    fn take_group(&mut self) -> Vec<Arc<Request>> {
        let mut bytes = 0;
        let fits = |request: &&Arc<Request>| {
            let first = bytes == 0;
            bytes += request.payload.len().max(1);
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
    fn set(&self, fate: Fate) {
        let mut own = self.fate.lock();
        *own = fate;
        self.settled.store(true, Ordering::Relaxed);
        drop(own);
        self.changed.notify_one();
    }

    /// Waits until done, with the result, or until made leader, with `None`.
    fn wait(&self) -> Option<Result<SeqNo>> {
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if self.settled.load(Ordering::Relaxed) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut fate = self.fate.lock();
        loop {
            match std::mem::replace(&mut *fate, Fate::Queued) {
                Fate::Queued => self.changed.wait(&mut fate),
                Fate::Lead => return None,
                Fate::Done(result) => return Some(result),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

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
                        let result = committer.commit(
                            number.to_le_bytes().to_vec(),
                            None,
                            Durability::Buffered,
                            |group| {
                                groups.fetch_add(1, Ordering::Relaxed);
                                let read = |r: &Arc<Request>| {
                                    u64::from_le_bytes(r.payload[..].try_into().unwrap())
                                };
                                group.iter().map(|r| Ok(read(r))).collect()
                            },
                        );
                        assert_eq!(result.unwrap(), number);
                    }
                });
            }
        });
        assert!(groups.into_inner() <= 8000);
        assert!(!committer.queue.lock().leading, "the lead was given back");
    }
}
