//! Deadlock detector: finds the cycle that a new wait would close, before its thread sleeps.
//!
//! The detector contains every wait that has been checked. After a thread has queued its request,
//! it takes the detector's mutex and checks if its wait leads back to itself. It then adds the wait
//! or withdraws the request, and it removes the wait before it continues. The walk takes one shard
//! after another, never two at a time. No thread holding a shard takes the detector, so the walk
//! never waits for a thread that could wait for it.
//!
//! *No deadlock is missed.* Of the waits in a cycle one enters the detector last. By then all of
//! them are queued. Nothing in a real deadlock goes away by itself, so that walk sees the whole
//! cycle.
//!
//! *One victim.* The waits in the detector have no cycle, so a cycle found goes through the
//! requester, and its withdrawal breaks the cycle.
//!
//! *No phantom.* While the walk holds the mutex, no waiter in the detector continues, so none
//! releases a lock: holders read early in the walk are still holders at its end. A wait may end by
//! a timeout or a cancellation during the walk. A request about to be granted can then become a
//! victim.

use std::sync::Arc;

use super::locks::ByNumber;
use super::wait::Waiter;
use super::{LockTable, TxnId};
use crate::sync::Mutex;

/// Waits under way, by owner.
#[derive(Default)]
pub(super) struct Detector {
    waits: Mutex<Waits>,
}

type Waits = ByNumber<Arc<Waiter>>;

/// Result of the check of a new wait.
pub(super) enum Verdict {
    /// The request may sleep. If it was granted during the check, it sees the grant itself.
    Wait,
    /// The request would close this cycle and is removed from its queue.
    Victim(Vec<TxnId>),
}

impl Detector {
    /// Checks a queued request, and adds its wait unless it closes a cycle.
    pub(super) fn enter(&self, table: &LockTable, waiter: &Arc<Waiter>) -> Verdict {
        let mut waits = self.waits.lock();
        if let Some(cycle) = find_cycle(table, &waits, waiter) {
            let withdrawn = table.give_up(waiter, |_| super::LockFailure::Canceled);
            if withdrawn.is_err() {
                return Verdict::Victim(cycle);
            }
        }
        waits.insert(waiter.request.owner.0, Arc::clone(waiter));
        Verdict::Wait
    }

    /// Removes a wait that is over.
    pub(super) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut waits = self.waits.lock();
        let owner = waiter.request.owner.0;
        if waits.get(&owner).is_some_and(|w| Arc::ptr_eq(w, waiter)) {
            waits.remove(&owner);
        }
    }

    /// Returns the number of waits under way.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waits.lock().len()
    }
}

/// Walks from a request to the transactions it waits for, breadth first, so the cycle it finds is a
/// shortest one.
///
/// A waiter leads on to the holders of its lock. It may also wait for requests queued before it,
/// but they wait for the same holders, so a path through them is only longer. Each transaction is
/// visited once.
fn find_cycle(table: &LockTable, waits: &Waits, start: &Arc<Waiter>) -> Option<Vec<TxnId>> {
    let requester = start.request.owner;
    let mut reached_from: ByNumber<TxnId> = ByNumber::default();
    let mut visit = vec![Arc::clone(start)];
    let mut next = 0;
    while let Some(waiter) = visit.get(next).map(Arc::clone) {
        next += 1;
        let owner = waiter.request.owner;
        for holder in blockers(table, &waiter) {
            if holder == requester {
                return Some(path(&reached_from, requester, owner));
            }
            if reached_from.contains_key(&holder.0) {
                continue;
            }
            reached_from.insert(holder.0, owner);
            visit.extend(waits.get(&holder.0).map(Arc::clone));
        }
    }
    None
}

/// Reads from one shard the holders that a waiter waits for: none if it no longer waits.
fn blockers(table: &LockTable, waiter: &Arc<Waiter>) -> Vec<TxnId> {
    let shard = table.shard(waiter.hash).lock();
    match shard.get(waiter.hash) {
        Some(slot) if slot.queue().iter().any(|w| Arc::ptr_eq(w, waiter)) => {
            slot.holders_but(waiter.request.owner)
        }
        _ => Vec::new(),
    }
}

/// Returns the owners from the requester to the last owner, which waits for the requester.
fn path(reached_from: &ByNumber<TxnId>, requester: TxnId, last: TxnId) -> Vec<TxnId> {
    let mut cycle = vec![last];
    let mut at = last;
    // Each step goes back to an owner visited earlier, so this ends at the requester.
    while at != requester {
        let Some(&before) = reached_from.get(&at.0) else {
            break;
        };
        cycle.push(before);
        at = before;
    }
    cycle.reverse();
    cycle
}
