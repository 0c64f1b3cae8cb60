//! One lock: its holders, its queue, and the order of grants. Pure state, changed under the shard's
//! mutex.
//!
//! Invariants: holders are one exclusive or any number of shared. A queue is empty unless the lock
//! has a holder, and its front cannot be granted at present. Upgrades come before all other
//! requests.

use std::collections::VecDeque;
use std::sync::Arc;

use super::wait::Waiter;
use super::{Granted, LockMode, TxnId};

/// Lock with at least one holder.
///
/// The first holder is stored in the slot itself and the others in a box: most locks have one
/// holder and no queue, and need no allocation.
pub(super) struct Slot {
    first: Holder,
    crowd: Option<Box<Crowd>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    owner: TxnId,
    /// Acquisitions not released. 0 only in the first holder of a slot that is being removed.
    count: u32,
    mode: LockMode,
}

#[derive(Default)]
struct Crowd {
    /// Holders other than the first; all are shared.
    others: Vec<Holder>,
    queue: VecDeque<Arc<Waiter>>,
}

/// Request that has to wait, and its grant if it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) owner: TxnId,
    pub(super) mode: LockMode,
    pub(super) grant: Granted,
}

impl Slot {
    /// Creates a lock acquired once.
    pub(super) fn new(owner: TxnId, mode: LockMode) -> Slot {
        Slot {
            first: Holder {
                owner,
                count: 1,
                mode,
            },
            crowd: None,
        }
    }

    /// Grants the lock at once, or returns the request to queue.
    pub(super) fn request(&mut self, owner: TxnId, mode: LockMode) -> Result<Granted, Request> {
        let sole = self.holder_count() == 1;
        if let Some(holder) = self.holder_mut(owner) {
            let grant = if holder.mode >= mode {
                Granted::Again
            } else if sole {
                holder.mode = mode;
                Granted::Upgraded
            } else {
                let grant = Granted::Upgraded;
                return Err(Request { owner, mode, grant });
            };
            holder.count = holder.count.checked_add(1).expect("too many acquisitions");
            return Ok(grant);
        }
        let request = Request {
            owner,
            mode,
            grant: Granted::New,
        };
        if self.queue().is_empty() && self.can_grant(&request) {
            self.add_holder(owner, mode);
            return Ok(Granted::New);
        }
        Err(request)
    }

    /// Adds a request to the queue: an upgrade after the other upgrades, any other at the end.
    pub(super) fn enqueue(&mut self, waiter: Arc<Waiter>) {
        let queue = &mut self.crowd_mut().queue;
        if waiter.request.grant == Granted::Upgraded {
            let upgrades = queue.iter().take_while(|other| other.is_upgrade()).count();
            queue.insert(upgrades, waiter);
        } else {
            queue.push_back(waiter);
        }
    }

    /// Removes a request from the queue. Returns false if it is not there, because it was granted.
    pub(super) fn withdraw(&mut self, waiter: &Arc<Waiter>) -> bool {
        let Some(crowd) = &mut self.crowd else {
            return false;
        };
        let place = crowd.queue.iter().position(|w| Arc::ptr_eq(w, waiter));
        if let Some(place) = place {
            crowd.queue.remove(place);
        }
        place.is_some()
    }

    /// Releases one acquisition.
    pub(super) fn release_one(&mut self, owner: TxnId) {
        let holder = self.holder_mut(owner);
        debug_assert!(holder.is_some(), "{owner:?} gives back a lock it never had");
        if let Some(holder) = holder {
            holder.count -= 1;
            if holder.count == 0 {
                self.remove_holder(owner);
            }
        }
    }

    /// Releases one acquisition of `from`, and adds an exclusive one of `to`.
    pub(super) fn hand_over(&mut self, from: TxnId, to: TxnId) {
        self.release_one(from);
        match self.holder_mut(to) {
            Some(holder) => {
                holder.mode = LockMode::Exclusive;
                holder.count = holder.count.checked_add(1).expect("too many acquisitions");
            }
            None => self.add_holder(to, LockMode::Exclusive),
        }
    }

    /// Releases all acquisitions of an owner, if there are any.
    pub(super) fn release_all(&mut self, owner: TxnId) {
        if self.holder_mut(owner).is_some() {
            self.remove_holder(owner);
        }
    }

    /// Grants the requests at the front of the queue that can be granted, and marks their waiters.
    ///
    /// The caller wakes the returned waiters after it has released the shard's mutex.
    pub(super) fn promote(&mut self) -> Vec<Arc<Waiter>> {
        let mut granted = Vec::new();
        while let Some(waiter) = self.queue().front() {
            let request = waiter.request;
            if !self.can_grant(&request) {
                break;
            }
            let waiter = self.crowd_mut().queue.pop_front();
            match self.holder_mut(request.owner) {
                Some(holder) => {
                    holder.mode = holder.mode.max(request.mode);
                    holder.count += 1;
                }
                None => self.add_holder(request.owner, request.mode),
            }
            granted.extend(waiter);
        }
        for waiter in &granted {
            waiter.grant();
        }
        granted
    }

    /// Returns true if the lock has no holder, so that the slot can be removed.
    pub(super) fn is_unused(&self) -> bool {
        self.first.count == 0
    }

    /// Returns all holders.
    pub(super) fn holders(&self) -> Vec<TxnId> {
        self.each_holder().map(|holder| holder.owner).collect()
    }

    /// Returns the holders except one owner, which may be upgrading.
    pub(super) fn holders_but(&self, owner: TxnId) -> Vec<TxnId> {
        let mut holders = self.holders();
        holders.retain(|&holder| holder != owner);
        holders
    }

    /// Returns the owners that a queued request waits for: the holders, then the owners of earlier
    /// requests that exclude it.
    pub(super) fn owners_before(&self, waiter: &Arc<Waiter>) -> Vec<TxnId> {
        let request = waiter.request;
        let mut owners = self.holders_but(request.owner);
        let earlier = self.queue().iter().take_while(|w| !Arc::ptr_eq(w, waiter));
        for other in earlier.map(|w| w.request) {
            let excludes = other.owner != request.owner && !compatible(other.mode, request.mode);
            if excludes && !owners.contains(&other.owner) {
                owners.push(other.owner);
            }
        }
        owners
    }

    /// Returns the waiting requests in the order of their grants.
    pub(super) fn queue(&self) -> &VecDeque<Arc<Waiter>> {
        static EMPTY: VecDeque<Arc<Waiter>> = VecDeque::new();
        self.crowd.as_ref().map_or(&EMPTY, |crowd| &crowd.queue)
    }

    /// Returns true if the holders permit a request. Its own owner never blocks it.
    fn can_grant(&self, request: &Request) -> bool {
        self.each_holder()
            .all(|holder| holder.owner == request.owner || compatible(holder.mode, request.mode))
    }

    fn each_holder(&self) -> impl Iterator<Item = &Holder> {
        let others = self.crowd.as_ref().map_or(&[][..], |crowd| &crowd.others);
        let first = (self.first.count > 0).then_some(&self.first);
        first.into_iter().chain(others)
    }

    fn holder_count(&self) -> usize {
        self.each_holder().count()
    }

    fn holder_mut(&mut self, owner: TxnId) -> Option<&mut Holder> {
        if self.first.owner == owner && self.first.count > 0 {
            return Some(&mut self.first);
        }
        let others = &mut self.crowd.as_mut()?.others;
        others.iter_mut().find(|holder| holder.owner == owner)
    }

    fn add_holder(&mut self, owner: TxnId, mode: LockMode) {
        let holder = Holder {
            owner,
            count: 1,
            mode,
        };
        if self.first.count == 0 {
            self.first = holder;
        } else {
            self.crowd_mut().others.push(holder);
        }
    }

    /// Removes an owner; another holder, if there is one, moves to `first`.
    fn remove_holder(&mut self, owner: TxnId) {
        let others = self.crowd.as_mut().map(|crowd| &mut crowd.others);
        if self.first.owner == owner {
            self.first.count = 0;
            if let Some(next) = others.and_then(Vec::pop) {
                self.first = next;
            }
        } else if let Some(others) = others {
            others.retain(|holder| holder.owner != owner);
        }
    }

    fn crowd_mut(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }
}

/// Returns true if two owners can have these modes at one time.
fn compatible(a: LockMode, b: LockMode) -> bool {
    a == LockMode::Shared && b == LockMode::Shared
}
