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

use super::classes::class_of;
use alluvium_mem::epoch::{Eviction, Limbo, Readers};
use alluvium_mem::frames::{AnyFrame, FrameAddress, Place, Slab, Space, slab_bytes};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Owner and slot of a frame.
type User = (u32, u32);

/// User of a frame in a list of free frames.
const FREE: User = (u32::MAX, u32::MAX);

/// Largest slab: a huge page of the machines that we know.
const SLAB_BYTES_MAX: usize = 2 << 20;
/// Divisor of the capacity for the largest slab of a small cache.
const SLABS_MIN: u64 = 32;
/// Frames of the first slab of a class. Each further slab doubles the class, up to the largest
/// slab, so a class with few blocks takes little memory.
const FIRST_FRAMES: usize = 8;

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
/// Frames in the limbo above which no further ones are evicted. Only a reader that lost its
/// processor in the middle of a read makes the limbo that large.
const LIMBO_MAX: usize = 256;

/// Slabs that one claim takes from other classes at most, before it evicts frames of its own class.
const ROUNDS_MAX: usize = 8;

/// Factor between the ages of the oldest slabs of two classes at which one takes memory of the
/// other. Each exchange evicts a whole slab.
const OLDER: u64 = 2;

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
    /// Slabs that are to be returned: their frames are evicted, but some may have users.
    leaving: Vec<u32>,
    leaving_bytes: u64,
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
            leaving: Vec::new(),
            leaving_bytes: 0,
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
        let (class, frame_bytes) = self.class_for(bytes);
        if frame_bytes as u64 > capacity {
            return None;
        }
        for round in 0..=ROUNDS_MAX {
            if let Some(free) = self.take_free(class, user) {
                return Some(free);
            }
            self.reclaim();
            if self.classes[class].free.is_empty() && !self.grow(class, frame_bytes, capacity) {
                if self.limbo.len() > LIMBO_MAX || !self.evict_for(class, round < ROUNDS_MAX) {
                    return None;
                }
                self.reclaim();
            }
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
        if state.is_leaving {
            drop(frame);
            self.finish_leaving();
            return;
        }
        state.users[place.index as usize] = FREE;
        let class = state.class;
        self.classes[class].free.push((place, Some(frame)));
    }

    /// Frees the evicted frames that no reader looks at, and the leaving slabs without users.
    pub(super) fn reclaim(&mut self) {
        let (slabs, classes) = (&mut self.slabs, &mut self.classes);
        if !self.limbo.is_empty() {
            self.limbo.reclaim(|place, frame| {
                let state = slabs[place.slab as usize].as_mut().expect("it has a frame");
                if !state.is_leaving {
                    state.users[place.index as usize] = FREE;
                    classes[state.class].free.push((place, Some(frame)));
                }
            });
        }
        self.finish_leaving();
    }

    /// Adds a slab to a class, if the capacity allows.
    fn grow(&mut self, class: usize, frame_bytes: usize, capacity: u64) -> bool {
        if self.adopt(class, capacity) {
            return true;
        }
        let frames = self.frames_of_next_slab(class, frame_bytes, capacity);
        if frames == 0 {
            return false;
        }
        let free = self.slabs.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        let slab = Slab::new(number as u32, frame_bytes, frames);
        self.bytes += slab.bytes() as u64;
        let own = &mut self.classes[class];
        own.bytes += slab.bytes();
        own.frames += slab.frames();
        own.slabs.push_back(number as u32);
        let slab_number = number as u32;
        let places = (0..slab.frames()).rev().map(|index| Place {
            slab: slab_number,
            index,
        });
        own.free.extend(places.map(|place| (place, None)));
        self.slabs[number] = Some(SlabState {
            class,
            users: vec![FREE; frames as usize].into(),
            visited: self.clock,
            is_leaving: false,
            emptied: 0,
            slab,
        });
        true
    }

    /// Returns the number of frames of a class's next slab; 0 if it gets none.
    fn frames_of_next_slab(&self, class: usize, frame_bytes: usize, capacity: u64) -> u32 {
        let room = capacity.saturating_sub(self.bytes);
        let slab_max = ((capacity / SLABS_MIN) as usize).next_power_of_two();
        let own = &self.classes[class];
        let wanted = own.bytes.max(FIRST_FRAMES * frame_bytes);
        let wanted = wanted.min(slab_max).min(SLAB_BYTES_MAX);
        let wanted = (wanted / frame_bytes).max(1) as u32;
        let fitting = u64::from(wanted).min(room / frame_bytes as u64) as u32;
        let fitting = (1..=fitting)
            .rev()
            .find(|&frames| slab_bytes(frame_bytes, frames) as u64 <= room);
        match fitting.unwrap_or(0) {
            // A remainder too small for a slab stays unused, unless it is all that the class gets.
            few if few < wanted.min(FIRST_FRAMES as u32) && !own.slabs.is_empty() => 0,
            frames => frames,
        }
    }

    /// Takes back a leaving slab of a class, whose frames' users keep it anyway.
    fn adopt(&mut self, class: usize, capacity: u64) -> bool {
        let staying = self.bytes - self.leaving_bytes;
        let found = self.leaving.iter().position(|&number| {
            let found = self.slab(number);
            found.class == class && staying + found.slab.bytes() as u64 <= capacity
        });
        let Some(at) = found else {
            return false;
        };
        let number = self.leaving.swap_remove(at);
        let state = self.slabs[number as usize].as_mut().expect("a slab in use");
        (state.is_leaving, state.emptied, state.visited) = (false, 0, self.clock);
        let own = &mut self.classes[class];
        self.leaving_bytes -= state.slab.bytes() as u64;
        own.bytes += state.slab.bytes();
        own.frames += state.slab.frames();
        own.slabs.push_back(number);
        for index in 0..state.slab.frames() {
            if state.slab.is_free(index) {
                state.users[index as usize] = FREE;
                let slab = number;
                own.free.push((Place { slab, index }, None));
            }
        }
        true
    }

    /// Evicts frames so that a claim of the class succeeds: of the class, or a whole slab of
    /// another one, if it `may_take` that. Returns false if nothing was evicted.
    fn evict_for(&mut self, class: usize, may_take: bool) -> bool {
        let own = self.oldest(|of| of == class).map(|(_, age)| age);
        match (own, self.oldest(|of| of != class)) {
            (None, Some((other, _))) => self.leave(other),
            (Some(own), Some((other, age))) if may_take && age > OLDER * own => self.leave(other),
            (Some(_), _) => return self.turn_hand(class),
            (None, None) => return false,
        }
        true
    }

    /// Returns the slab of some classes that was visited the longest time ago, and how long ago.
    fn oldest(&self, classes: impl Fn(usize) -> bool) -> Option<(u32, u64)> {
        let fronts = self.classes.iter().enumerate();
        let fronts = fronts.filter(|(class, _)| classes(*class));
        let fronts = fronts.filter_map(|(_, class)| class.slabs.front());
        let ages = fronts.map(|&number| (number, self.clock - self.slab(number).visited));
        ages.max_by_key(|&(_, age)| age)
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
            if self.evict(
                Place {
                    slab: number,
                    index,
                },
                step >= steps_max,
            ) {
                wanted -= 1;
                if wanted == 0 {
                    break;
                }
            }
        }
        wanted < batch
    }

    /// Evicts the frame at a place if it is in use. Returns true if it is free, or will be as soon
    /// as its readers have left.
    fn evict(&mut self, place: Place, used_too: bool) -> bool {
        let state = self.slabs[place.slab as usize]
            .as_mut()
            .expect("a slab in use");
        let index = place.index as usize;
        let (owner, slot) = state.users[index];
        if (owner, slot) == FREE {
            return false;
        }
        let address = state.slab.address(place.index);
        let evicted = match self.owners.get(owner as usize) {
            Some(Some(owner)) => owner.evict(slot, (address, place), used_too, &mut self.limbo),
            _ => Eviction::Other,
        };
        match evicted {
            Eviction::Evicted => true,
            Eviction::Used => false,
            // In no slot: being filled, in the limbo, kept by a cursor or value, or forgotten.
            Eviction::Other if state.slab.is_free(place.index) && !state.is_leaving => {
                state.users[index] = FREE;
                let class = &mut self.classes[state.class];
                class.free.push((place, None));
                true
            }
            Eviction::Other => false,
        }
    }

    /// Evicts frames of the slab that was visited the longest time ago, to return its memory.
    /// Returns false if there is none.
    pub(super) fn shrink(&mut self) -> bool {
        let Some((oldest, _)) = self.oldest(|_| true) else {
            return false;
        };
        self.leave(oldest);
        self.reclaim();
        true
    }

    /// Takes a slab from its class and evicts its frames.
    fn leave(&mut self, number: u32) {
        let state = self.slab_mut(number);
        state.is_leaving = true;
        let (class, frames, bytes) = (state.class, state.slab.frames(), state.slab.bytes());
        let own = &mut self.classes[class];
        if own.slabs.front() == Some(&number) {
            own.hand = 0;
        }
        own.slabs.retain(|&other| other != number);
        own.free.retain(|(place, _)| place.slab != number);
        own.frames -= frames;
        own.bytes -= bytes;
        if own.slabs.is_empty() {
            own.borrowed = 0;
        }
        self.leaving.push(number);
        self.leaving_bytes += bytes as u64;
        for index in 0..frames {
            self.evict(
                Place {
                    slab: number,
                    index,
                },
                true,
            );
        }
    }

    /// Frees the leaving slabs without users.
    fn finish_leaving(&mut self) {
        let mut at = 0;
        while let Some(&number) = self.leaving.get(at) {
            if !self.is_empty(number) {
                at += 1;
                continue;
            }
            self.leaving.swap_remove(at);
            let state = self.slabs[number as usize].take().expect("a slab in use");
            self.leaving_bytes -= state.slab.bytes() as u64;
            self.bytes -= state.slab.bytes() as u64;
            self.returned.push(state.slab);
        }
    }

    /// Returns true if a leaving slab has no users any more.
    fn is_empty(&mut self, number: u32) -> bool {
        loop {
            let state = self.slab_mut(number);
            let index = state.emptied;
            if index == state.slab.frames() {
                return true;
            }
            if !state.slab.is_free(index) {
                // It may have come into its slot after the slab began to leave.
                self.evict(
                    Place {
                        slab: number,
                        index,
                    },
                    true,
                );
                return false;
            }
            state.emptied += 1;
        }
    }
}
