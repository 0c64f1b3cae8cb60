//! Slabs of the cache: which frames are free, which slot each other one belongs to, and which are
//! evicted next.
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

use super::classes::class_of;
use alluvium_mem::epoch::{Eviction, Limbo, Readers};
use alluvium_mem::frames::{AnyFrame, FrameAddress, Place, Slab, Space};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Owner and slot of a frame.
type User = (u32, u32);

/// User of a frame in a list of free frames.
const FREE: User = (u32::MAX, u32::MAX);
/// User of a frame in no list, which the hand finds once nobody keeps it.
const LOST: User = (u32::MAX, 0);

/// Frames that a class without a slab takes from larger ones before it gets one of its own, and
/// how many classes larger they may be: a quarter of the size.
const BORROWED_MAX: u32 = 16;
const BORROWED_CLASSES: usize = 4;

/// Most frames that are evicted together. Together, because the check that no reader looks at them
/// visits a cache line for each thread that reads.
const BATCH_MAX: u32 = 32;
/// Share of a class that is evicted together at most.
const BATCH_SHARE: u32 = 64;
/// Steps of the hand for each wanted frame, after which it evicts used frames too.
const STEPS_PER_FRAME: u32 = 32;
/// Share of the capacity in the limbo above which no frame is evicted. Only a reader that lost its
/// processor in the middle of a read makes the limbo that large.
const CLOGGED_SHARE: u64 = 16;

/// Rounds of a claim: to evict, to take what became free, and once more if others were faster.
const ROUNDS_MAX: usize = 3;

/// Leaving slabs that are looked at with each claim that finds no free frame.
const LEAVING_CHECKED: usize = 4;

/// Slots whose frames the cache may evict.
pub trait FrameOwner: Send + Sync {
    /// Moves a frame from a slot to the limbo; see [`alluvium_mem::epoch::Slots::evict`].
    fn evict(
        &self,
        slot: u32,
        frame: (FrameAddress, Place),
        used_too: bool,
        limbo: &mut Limbo,
    ) -> Eviction;
}

/// Result of a visit of the hand.
#[derive(PartialEq, Eq)]
enum Visit {
    /// The frame is free, or will be as soon as its readers have left.
    Freed,
    /// It was used since the last visit.
    Used,
    /// It was free already, or somebody keeps or fills it.
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
    /// By number; `None` for a number that is free.
    slabs: Vec<Option<SlabState>>,
    classes: Vec<Class>,
    /// By number.
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
    frames: u32,
    bytes: usize,
    /// Claims that were served by larger classes.
    borrowed: u32,
}

impl Pool {
    pub(super) fn new(readers: &Arc<Readers>) -> Pool {
        Pool {
            slabs: Vec::new(),
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

    /// Returns the bytes of slabs that wait for the last user of a frame.
    pub(super) fn leaving_bytes(&self) -> u64 {
        self.leaving_bytes
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
        match self.free_owners.pop() {
            Some(number) => {
                self.owners[number as usize] = Some(owner);
                number
            }
            None => {
                self.owners.push(Some(owner));
                self.owners.len() as u32 - 1
            }
        }
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
        let (class, frame_bytes) = self.class_for(bytes);
        if frame_bytes as u64 > capacity {
            return None;
        }
        for _ in 0..ROUNDS_MAX {
            if let Some(free) = self.take_free(class, user) {
                return Some(free);
            }
            self.reclaim();
            if !self.classes[class].free.is_empty() || self.grow(class, frame_bytes, capacity) {
                continue;
            }
            let is_clogged = self.limbo_bytes > capacity / CLOGGED_SHARE;
            let evicted = !is_clogged
                && (self.take_memory(class, frame_bytes, capacity) || self.turn_hand(class));
            if !evicted {
                return None;
            }
            self.reclaim();
        }
        self.take_free(class, user)
    }

    /// Returns the class for a claim, and the size of its frames: the smallest that fits, or a
    /// slightly larger one while there are few such claims.
    fn class_for(&mut self, bytes: usize) -> (usize, usize) {
        let (class, frame_bytes) = class_of(bytes);
        let classes_min = class + BORROWED_CLASSES + 1;
        if self.classes.len() < classes_min {
            self.classes.resize_with(classes_min, Class::default);
        }
        let own = &mut self.classes[class];
        if own.slabs.is_empty() && own.borrowed < BORROWED_MAX {
            own.borrowed += 1;
            let larger = class + 1..classes_min;
            if let Some(other) = larger.into_iter().find(|&c| self.classes[c].frames > 0) {
                let front = self.classes[other].slabs.front();
                let frame_bytes = front.map(|&front| self.slab(front).slab.frame_bytes());
                return (other, frame_bytes.expect("a class with frames"));
            }
        }
        (class, frame_bytes)
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

    /// Returns a frame to the free ones, or to its slab if that is leaving.
    pub(super) fn give_back(&mut self, place: Place, frame: AnyFrame) {
        let state = self.slab_mut(place.slab);
        if !state.is_leaving {
            state.users[place.index as usize] = FREE;
            let class = state.class;
            self.classes[class].free.push((place, Some(frame)));
        }
    }

    /// Frees the evicted frames that no reader looks at, and some leaving slabs without users.
    pub(super) fn reclaim(&mut self) {
        let (slabs, classes) = (&mut self.slabs, &mut self.classes);
        let bytes = &mut self.limbo_bytes;
        if !self.limbo.is_empty() {
            self.limbo.reclaim(|place, frame| {
                let state = slabs[place.slab as usize].as_mut().expect("it has a frame");
                *bytes -= state.slab.frame_bytes() as u64;
                if !state.is_leaving {
                    state.users[place.index as usize] = FREE;
                    classes[state.class].free.push((place, Some(frame)));
                }
            });
        }
        self.finish_leaving(LEAVING_CHECKED);
    }

    /// Does the same as [`Pool::reclaim`] for all leaving slabs. Returns true if anything changed.
    pub(super) fn reclaim_all(&mut self) -> bool {
        let before = (self.limbo.len(), self.leaving.len());
        self.reclaim();
        self.finish_leaving(self.leaving.len());
        before != (self.limbo.len(), self.leaving.len())
    }

    /// Evicts a batch of frames of a class. Returns false if all its frames are kept.
    fn turn_hand(&mut self, class: usize) -> bool {
        let frames = self.classes[class].frames;
        let batch = (frames / BATCH_SHARE).clamp(1, BATCH_MAX);
        let (mut wanted, steps_max) = (batch, batch * STEPS_PER_FRAME);
        for step in 0..2 * steps_max {
            let own = &mut self.classes[class];
            let Some(&number) = own.slabs.front() else {
                break;
            };
            let state = self.slabs[number as usize].as_mut().expect("a slab in use");
            if own.hand == state.slab.frames() {
                state.visited = self.clock;
                own.slabs.rotate_left(1);
                own.hand = 0;
                continue;
            }
            let index = own.hand;
            own.hand += 1;
            let place = Place {
                slab: number,
                index,
            };
            if self.visit(place, step >= steps_max) == Visit::Freed {
                wanted -= 1;
                if wanted == 0 {
                    break;
                }
            }
        }
        wanted < batch
    }

    /// Visits a frame: it loses a use, or is evicted if it has none or `used_too` is set.
    fn visit(&mut self, place: Place, used_too: bool) -> Visit {
        let state = self.slabs[place.slab as usize]
            .as_mut()
            .expect("a slab in use");
        let index = place.index as usize;
        let (owner, slot) = state.users[index];
        if (owner, slot) == FREE {
            return Visit::Passed;
        }
        let address = state.slab.address(place.index);
        let evicted = match self.owners.get(owner as usize) {
            Some(Some(owner)) => owner.evict(slot, (address, place), used_too, &mut self.limbo),
            _ => Eviction::Other,
        };
        match evicted {
            Eviction::Evicted => {
                self.limbo_bytes += state.slab.frame_bytes() as u64;
                Visit::Freed
            }
            Eviction::Used => Visit::Used,
            // In no slot: being filled, in the limbo, kept by a cursor or value, or forgotten.
            Eviction::Other if state.slab.is_free(place.index) && !state.is_leaving => {
                state.users[index] = FREE;
                let class = &mut self.classes[state.class];
                class.free.push((place, None));
                Visit::Freed
            }
            Eviction::Other => Visit::Passed,
        }
    }
}
