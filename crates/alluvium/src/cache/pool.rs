//! Frames of the cache: which are free, which slot each other one belongs to, and which are evicted
//! next.
//!
//! Each class of frame sizes has slabs of its own, and a hand that goes around them (CLOCK): a
//! frame that was not held since the hand's last visit is evicted. A class that needs a frame takes
//! a free one, else a new slab if the capacity allows, else it turns its hand. If the oldest slab
//! of another class was visited far earlier than its own, it takes that memory instead, so all
//! hands go around in about the same time and no class keeps cold blocks.
//!
//! Slots are the truth about what a frame holds; the list of users is a hint for the hand. So a
//! frame may leave or enter a slot at any time without this structure.

mod slabs;

use super::classes::{class_of, frame_bytes_of};
use alluvium_mem::epoch::{Eviction, Limbo, Readers, Slots};
use alluvium_mem::frames::{AnyFrame, FrameAddress, Place, Slab, Space};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Owner and slot of a frame.
type User = (u32, u32);

/// User of a frame in a list of free frames.
const FREE: User = (u32::MAX, u32::MAX);
/// User of a frame that was in such a list when its slab began to leave. If the class takes the
/// slab back, the hand finds the frame.
const LOST: User = (u32::MAX, 0);

/// Frames that a class without a slab takes from larger ones before it gets one of its own, and
/// how many classes larger they may be: a quarter of the size.
const BORROWED_MAX: u32 = 16;
const BORROWED_CLASSES: usize = 4;

/// Most frames that are evicted together. A check that no reader looks at them visits a cache line
/// for each thread that reads, so one check serves many frames.
const BATCH_MAX: u32 = 32;
/// Divisor of a class's frames for those that are evicted together at most.
const BATCH_DIVISOR: u32 = 64;
/// Steps of the hand for each wanted frame, after which it evicts used frames too.
const STEPS_PER_FRAME: u32 = 32;
/// Divisor of the capacity for the limbo above which no frame is evicted. Only a reader that lost
/// its processor in the middle of a read makes the limbo that large.
const CLOGGED_DIVISOR: u64 = 16;

/// Rounds of a claim: to evict, to take what became free, and once more if readers still looked at
/// all that was evicted.
const ROUNDS_MAX: usize = 3;

/// Leaving slabs that are looked at with each claim that finds no free frame.
const LEAVING_CHECKED: usize = 4;

/// Slots whose frames the cache may evict.
pub trait FrameOwner: Send + Sync {
    /// Moves a frame from a slot to the limbo; see [`Slots::evict`].
    fn evict(&self, slot: u32, frame: FrameAddress, used_too: bool, limbo: &mut Limbo) -> Eviction;
}

impl<S: Send + Sync> FrameOwner for Slots<S> {
    fn evict(&self, slot: u32, frame: FrameAddress, used_too: bool, limbo: &mut Limbo) -> Eviction {
        let slot = slot as usize;
        // The frame may have been claimed for a dropped owner whose number this one has now.
        if slot >= self.len() {
            return Eviction::Other;
        }
        self.evict(slot, frame, used_too, limbo)
    }
}

/// Result of a visit of the hand.
#[derive(PartialEq, Eq)]
enum Visit {
    /// The frame is free, or will be as soon as its readers have left.
    Freed,
    /// It was used since the last visit.
    Used,
    /// It was free already, or is being filled, or a cursor or value keeps it.
    Passed,
}

/// Free frame, claimed by the caller.
pub(super) enum Free {
    /// It may have another reference, of a cursor or a value that kept it.
    Evicted(AnyFrame),
    Idle(Space),
}

/// See the module. Guarded by the cache's mutex.
pub(super) struct Pool {
    /// By number; `None` for the free numbers.
    slabs: Vec<Option<SlabState>>,
    free_slabs: Vec<u32>,
    classes: Vec<Class>,
    /// By number; `None` for the free numbers.
    owners: Vec<Option<Arc<dyn FrameOwner>>>,
    free_owners: Vec<u32>,
    limbo: Limbo,
    limbo_bytes: u64,
    /// Slabs that are to be returned: their frames are evicted, but some may have users.
    leaving: Vec<u32>,
    leaving_bytes: u64,
    /// Next one of them to look at.
    next_leaving: usize,
    /// Slabs whose memory the caller of [`Pool::returned`] frees.
    returned: Vec<Slab>,
    bytes: u64,
    /// Number of claims so far.
    clock: u64,
}

struct SlabState {
    slab: Slab,
    class: usize,
    /// User of each frame at its last claim; [`FREE`] in a list of free frames.
    users: Box<[User]>,
    /// Time of the clock when the hand left the slab.
    visited: u64,
    is_leaving: bool,
    /// In a leaving slab: frames below this index are free for good.
    emptied: u32,
}

#[derive(Default)]
struct Class {
    /// In the order of the hand, which is in the first one.
    slabs: VecDeque<u32>,
    /// Next frame that the hand visits.
    hand: u32,
    free: Vec<(Place, Option<AnyFrame>)>,
    /// Frames of all its slabs.
    frames: u32,
    /// Claims that were served by larger classes.
    borrowed: u32,
}

impl Class {
    /// Takes a slab out of the hand's way.
    fn remove(&mut self, slab: u32) {
        if self.slabs.front() == Some(&slab) {
            self.hand = 0;
        }
        self.slabs.retain(|&other| other != slab);
    }
}

impl Pool {
    pub(super) fn new(readers: &Arc<Readers>) -> Pool {
        Pool {
            slabs: Vec::new(),
            free_slabs: Vec::new(),
            classes: Vec::new(),
            owners: Vec::new(),
            free_owners: Vec::new(),
            limbo: Limbo::new(readers),
            limbo_bytes: 0,
            leaving: Vec::new(),
            leaving_bytes: 0,
            next_leaving: 0,
            returned: Vec::new(),
            bytes: 0,
            clock: 0,
        }
    }

    /// Returns the bytes of all slabs.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of slabs without those that wait for the last user of a frame.
    pub(super) fn staying_bytes(&self) -> u64 {
        self.bytes - self.leaving_bytes
    }

    #[cfg(test)]
    pub(super) fn free_frames(&self) -> usize {
        self.classes.iter().map(|class| class.free.len()).sum()
    }

    /// Returns slabs to be dropped without the mutex.
    pub(super) fn returned(&mut self) -> Vec<Slab> {
        mem::take(&mut self.returned)
    }

    pub(super) fn register(&mut self, owner: Arc<dyn FrameOwner>) -> u32 {
        number_of(&mut self.owners, &mut self.free_owners, |_| owner)
    }

    pub(super) fn unregister(&mut self, owner: u32) -> Option<Arc<dyn FrameOwner>> {
        self.free_owners.push(owner);
        self.owners[owner as usize].take()
    }

    /// Takes a free frame of at least `bytes` for a user, and evicts frames for it if necessary.
    pub(super) fn claim(&mut self, user: User, bytes: usize, capacity: u64) -> Option<Free> {
        self.clock += 1;
        if self.staying_bytes() > capacity {
            self.shrink();
        }
        let class = self.class_for(bytes);
        if frame_bytes_of(class) as u64 > capacity {
            return None;
        }
        for _ in 0..ROUNDS_MAX {
            if let Some(free) = self.take_free(class, user) {
                return Some(free);
            }
            self.reclaim();
            if !self.classes[class].free.is_empty() || self.grow(class, capacity) {
                continue;
            }
            if self.limbo_bytes > capacity / CLOGGED_DIVISOR {
                return None;
            }
            if self.take_memory(class, capacity) {
                continue;
            }
            if !self.turn_hand(class) {
                return None;
            }
            self.reclaim();
        }
        self.take_free(class, user)
    }

    /// Returns the class for a claim: the smallest that fits, or a slightly larger one while there
    /// are few such claims.
    fn class_for(&mut self, bytes: usize) -> usize {
        let class = class_of(bytes);
        let classes_min = class + BORROWED_CLASSES + 1;
        if self.classes.len() < classes_min {
            self.classes.resize_with(classes_min, Class::default);
        }
        let own = &mut self.classes[class];
        if own.frames > 0 || own.borrowed == BORROWED_MAX {
            return class;
        }
        own.borrowed += 1;
        let mut larger = class + 1..classes_min;
        let found = larger.find(|&other| self.classes[other].frames > 0);
        found.unwrap_or(class)
    }

    fn slab(&self, number: u32) -> &SlabState {
        self.slabs[number as usize].as_ref().expect("a slab in use")
    }

    fn slab_mut(&mut self, number: u32) -> &mut SlabState {
        self.slabs[number as usize].as_mut().expect("a slab in use")
    }

    fn take_free(&mut self, class: usize, user: User) -> Option<Free> {
        while let Some((place, frame)) = self.classes[class].free.pop() {
            let state = self.slab_mut(place.slab);
            state.users[place.index as usize] = user;
            match frame {
                Some(frame) => return Some(Free::Evicted(frame)),
                // It is claimed under the mutex, so that no leaving slab counts it as free.
                None => {
                    if let Some(space) = state.slab.claim(place.index) {
                        return Some(Free::Idle(space));
                    }
                }
            }
        }
        None
    }

    /// Lists a frame as free, or drops it if its slab is leaving.
    pub(super) fn list_free(&mut self, place: Place, frame: Option<AnyFrame>) {
        let state = self.slab_mut(place.slab);
        if !state.is_leaving {
            state.users[place.index as usize] = FREE;
            let class = state.class;
            self.classes[class].free.push((place, frame));
        }
    }

    /// Frees the evicted frames that no reader looks at, and some leaving slabs without users.
    fn reclaim(&mut self) {
        self.reclaim_frames();
        self.finish_leaving(LEAVING_CHECKED);
    }

    /// Does the same as [`Pool::reclaim`] for all leaving slabs. Returns true if anything changed.
    pub(super) fn reclaim_all(&mut self) -> bool {
        let before = (self.limbo.len(), self.leaving.len());
        self.reclaim_frames();
        self.finish_leaving(self.leaving.len());
        before != (self.limbo.len(), self.leaving.len())
    }

    fn reclaim_frames(&mut self) {
        if self.limbo.is_empty() {
            return;
        }
        for (place, frame) in self.limbo.reclaim() {
            self.limbo_bytes -= self.slab(place.slab).slab.frame_bytes() as u64;
            self.list_free(place, Some(frame));
        }
    }

    /// Evicts a batch of frames of a class. Returns false if no visited frame could be evicted.
    fn turn_hand(&mut self, class: usize) -> bool {
        let frames = self.classes[class].frames;
        let batch = (frames / BATCH_DIVISOR).clamp(1, BATCH_MAX);
        let (mut wanted, steps_max) = (batch, batch * STEPS_PER_FRAME);
        for step in 0..2 * steps_max {
            let own = &mut self.classes[class];
            let Some(&slab) = own.slabs.front() else {
                break;
            };
            let state = self.slabs[slab as usize].as_mut().expect("a slab in use");
            if own.hand == state.slab.frames() {
                state.visited = self.clock;
                own.slabs.rotate_left(1);
                own.hand = 0;
                continue;
            }
            let index = own.hand;
            own.hand += 1;
            if self.visit(slab, index, step >= steps_max) == Visit::Freed {
                wanted -= 1;
                if wanted == 0 {
                    break;
                }
            }
        }
        wanted < batch
    }

    /// Visits a frame: it loses a use, or is evicted if it has none or `used_too` is set.
    fn visit(&mut self, slab: u32, index: u32, used_too: bool) -> Visit {
        let state = self.slabs[slab as usize].as_mut().expect("a slab in use");
        let (owner, slot) = state.users[index as usize];
        if (owner, slot) == FREE {
            return Visit::Passed;
        }
        let address = state.slab.address(index);
        let evicted = match self.owners.get(owner as usize) {
            Some(Some(owner)) => owner.evict(slot, address, used_too, &mut self.limbo),
            _ => Eviction::Other,
        };
        match evicted {
            Eviction::Evicted => {
                self.limbo_bytes += state.slab.frame_bytes() as u64;
                Visit::Freed
            }
            Eviction::Used => Visit::Used,
            // In no slot: being filled, in the limbo, kept by a cursor or value, or forgotten.
            Eviction::Other if state.slab.is_free(index) && !state.is_leaving => {
                self.list_free(address.place(), None);
                Visit::Freed
            }
            Eviction::Other => Visit::Passed,
        }
    }
}

/// Puts a value into a list with free numbers. Returns its number, which `value` gets too.
fn number_of<T>(
    all: &mut Vec<Option<T>>,
    free: &mut Vec<u32>,
    value: impl FnOnce(u32) -> T,
) -> u32 {
    let number = free.pop().unwrap_or_else(|| {
        all.push(None);
        all.len() as u32 - 1
    });
    all[number as usize] = Some(value(number));
    number
}
