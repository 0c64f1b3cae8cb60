//! Memory of the classes: a class gets slabs while the capacity allows, takes them from classes
//! whose frames are older, and loses them when the capacity falls.
//!
//! A slab leaves its class at once, and its memory returns to the system when no reader looks at
//! its frames and no cursor or value keeps one. Until then it is counted, but nothing else is
//! evicted for it.

use super::{FREE, LOST, Pool, SlabState, Visit, number_of};
use crate::cache::classes::frame_bytes_of;
use alluvium_mem::frames::{Place, Slab, slab_bytes};
use alluvium_mem::pages::HUGE_PAGE_BYTES;

/// Divisor of the capacity for the largest slab, which is at most a huge page.
const SLAB_DIVISOR: u64 = 32;
/// Frames of the first slab of a class. Each further slab doubles the class, up to the largest
/// slab, so a class with few blocks takes little memory.
const FIRST_FRAMES: u32 = 8;

/// Factor of ages: a class takes the oldest slab of another one if that was visited more than this
/// many times as long ago as its own oldest. Each exchange evicts a whole slab.
const OLDER: u64 = 2;
/// Slabs with mostly used frames that are passed over before one has to leave.
const PASSED_MAX: usize = 3;

/// Divisor of the capacity: leaving slabs may exceed the capacity by this part, or by a huge page
/// if that is more.
const LEAVING_DIVISOR: u64 = 8;

/// Returns the bytes of leaving slabs that are allowed in addition to the capacity.
fn tolerated_bytes(capacity: u64) -> u64 {
    (capacity / LEAVING_DIVISOR).max(HUGE_PAGE_BYTES as u64)
}

impl Pool {
    /// Returns the bytes that new slabs may take.
    fn room(&self, capacity: u64) -> u64 {
        let tolerated = self.leaving_bytes.min(tolerated_bytes(capacity));
        capacity.saturating_sub(self.bytes - tolerated)
    }

    /// Adds a slab to a class, if the capacity allows.
    pub(super) fn grow(&mut self, class: usize, capacity: u64) -> bool {
        if self.adopt(class, capacity) {
            return true;
        }
        let frames = self.frames_of_next_slab(class, capacity);
        if frames == 0 {
            return false;
        }
        let visited = self.clock;
        let slab = number_of(&mut self.slabs, &mut self.free_slabs, |number| SlabState {
            slab: Slab::new(number, frame_bytes_of(class), frames),
            class,
            users: vec![FREE; frames as usize].into(),
            visited,
            is_leaving: false,
            emptied: 0,
        });
        self.bytes += self.slab(slab).slab.bytes() as u64;
        let own = &mut self.classes[class];
        own.frames += frames;
        own.slabs.push_back(slab);
        let places = (0..frames).rev().map(|index| Place { slab, index });
        own.free.extend(places.map(|place| (place, None)));
        true
    }

    /// Returns the number of frames of a class's next slab; 0 if it gets none.
    fn frames_of_next_slab(&self, class: usize, capacity: u64) -> u32 {
        let frame_bytes = frame_bytes_of(class);
        let room = self.room(capacity);
        let wanted = self.wanted_frames(class, capacity);
        let fitting = u64::from(wanted).min(room / frame_bytes as u64) as u32;
        let fitting = (1..=fitting)
            .rev()
            .find(|&frames| slab_bytes(frame_bytes, frames) as u64 <= room);
        fitting
            .filter(|&fitting| fitting >= self.fewest_frames(class, wanted))
            .unwrap_or(0)
    }

    /// Returns the number of frames that a class's next slab should have.
    fn wanted_frames(&self, class: usize, capacity: u64) -> u32 {
        let slab_max = ((capacity / SLAB_DIVISOR) as usize).next_power_of_two();
        let most = slab_max.min(HUGE_PAGE_BYTES) / frame_bytes_of(class);
        let wanted = self.classes[class].frames.max(FIRST_FRAMES);
        wanted.min(most as u32).max(1)
    }

    /// Returns the number of frames below which a class gets no slab. A remainder of the capacity
    /// stays unused, unless it is all that the class gets.
    fn fewest_frames(&self, class: usize, wanted: u32) -> u32 {
        if self.classes[class].frames == 0 {
            1
        } else {
            wanted.min(FIRST_FRAMES)
        }
    }

    /// Takes back a leaving slab of a class, which a user of a frame keeps anyway.
    fn adopt(&mut self, class: usize, capacity: u64) -> bool {
        let staying = self.staying_bytes();
        let found = self.leaving.iter().position(|&number| {
            let found = self.slab(number);
            found.class == class && staying + found.slab.bytes() as u64 <= capacity
        });
        let Some(at) = found else {
            return false;
        };
        let slab = self.leaving.swap_remove(at);
        let clock = self.clock;
        let state = self.slab_mut(slab);
        (state.is_leaving, state.emptied, state.visited) = (false, 0, clock);
        let (frames, bytes) = (state.slab.frames(), state.slab.bytes());
        self.leaving_bytes -= bytes as u64;
        let own = &mut self.classes[class];
        own.frames += frames;
        own.slabs.push_back(slab);
        for index in 0..frames {
            if self.slab(slab).slab.is_free(index) {
                self.list_free(Place { slab, index }, None);
            }
        }
        true
    }

    /// Takes old slabs from other classes until the class gets its next one. Returns false if there
    /// are too few, or if their memory is not returned because cursors or values keep frames.
    pub(super) fn take_memory(&mut self, class: usize, capacity: u64) -> bool {
        let wanted = self.wanted_frames(class, capacity);
        let bytes_of = |frames| slab_bytes(frame_bytes_of(class), frames) as u64;
        let (needed, wanted) = (
            bytes_of(self.fewest_frames(class, wanted)),
            bytes_of(wanted),
        );
        let own = self.oldest(|of, _| of == class).map_or(0, |(_, age)| age);
        let is_old = |age: u64| age > OLDER * own;
        let mut left = self.takeable_bytes(class, is_old, 2 * wanted);
        if self.room(capacity) + left < needed {
            return false;
        }
        let tolerated = tolerated_bytes(capacity);
        while self.room(capacity) < wanted && self.leaving_bytes <= tolerated {
            // Memory in pieces of the wanted size, because a rest seldom makes a good slab.
            let suitable = self.oldest(|of, bytes| of != class && bytes as u64 <= 2 * wanted);
            let suitable = suitable.filter(|&(_, age)| is_old(age));
            let any = || self.oldest(|of, _| of != class);
            let Some((other, _)) = suitable.or_else(any).filter(|&(_, age)| is_old(age)) else {
                break;
            };
            if self.keep_if_used(other) {
                break;
            }
            let bytes = self.slab(other).slab.bytes() as u64;
            self.leave(other);
            if bytes > left {
                break;
            }
            left -= bytes;
        }
        self.reclaim_all();
        self.grow(class, capacity)
    }

    /// Returns the bytes of slabs of other classes that are old enough, or `enough`.
    fn takeable_bytes(&self, class: usize, is_old: impl Fn(u64) -> bool, enough: u64) -> u64 {
        let mut found = 0;
        for (of, other) in self.classes.iter().enumerate() {
            // In the order of the hand, so the first ones are the oldest.
            for &slab in other.slabs.iter().filter(|_| of != class) {
                let state = self.slab(slab);
                if found >= enough || !is_old(self.clock - state.visited) {
                    break;
                }
                found += state.slab.bytes() as u64;
            }
        }
        found.min(enough)
    }

    /// Returns the slab that was visited the longest time ago, and how long ago, of classes and
    /// sizes of slabs that fit.
    fn oldest(&self, fits: impl Fn(usize, usize) -> bool) -> Option<(u32, u64)> {
        let all = self.classes.iter().enumerate();
        let oldest = all.filter_map(|(number, class)| {
            // The frames that the hand has just passed are the newest ones.
            let front = class.slabs.front()?;
            let is_past = class.hand > self.slab(*front).slab.frames() / 2;
            let second = class.slabs.get(1).filter(|_| is_past);
            Some((number, *second.unwrap_or(front)))
        });
        let fitting = oldest.filter(|&(class, slab)| fits(class, self.slab(slab).slab.bytes()));
        let ages = fitting.map(|(_, slab)| (slab, self.clock - self.slab(slab).visited));
        ages.max_by_key(|&(_, age)| age)
    }

    /// Lets the hand pass over a whole slab. Returns true if most of its frames were used since its
    /// last visit: a class that has only hits never turns its hand. Such a slab is then the newest
    /// one.
    fn keep_if_used(&mut self, slab: u32) -> bool {
        let state = self.slab(slab);
        let (class, frames) = (state.class, state.slab.frames());
        let mut used = 0;
        for index in 0..frames {
            used += u32::from(self.visit(slab, index, false) == Visit::Used);
        }
        if used <= frames / 2 {
            return false;
        }
        self.slab_mut(slab).visited = self.clock;
        let own = &mut self.classes[class];
        own.remove(slab);
        own.slabs.push_back(slab);
        true
    }

    /// Evicts the frames of an old slab, to return its memory. Returns false if there is none.
    pub(in crate::cache) fn shrink(&mut self) -> bool {
        for passed in 0..=PASSED_MAX {
            let Some((oldest, _)) = self.oldest(|_, _| true) else {
                return false;
            };
            if passed == PASSED_MAX || !self.keep_if_used(oldest) {
                self.leave(oldest);
                break;
            }
        }
        self.reclaim_all();
        true
    }

    /// Takes a slab from its class and evicts its frames.
    fn leave(&mut self, slab: u32) {
        let state = self.slab_mut(slab);
        state.is_leaving = true;
        let free = state.users.iter_mut().filter(|user| **user == FREE);
        free.for_each(|user| *user = LOST);
        let (class, frames, bytes) = (state.class, state.slab.frames(), state.slab.bytes());
        let own = &mut self.classes[class];
        own.remove(slab);
        own.free.retain(|(place, _)| place.slab != slab);
        own.frames -= frames;
        if own.frames == 0 {
            own.borrowed = 0;
        }
        self.leaving.push(slab);
        self.leaving_bytes += bytes as u64;
        for index in 0..frames {
            self.visit(slab, index, true);
        }
    }

    /// Frees those of some leaving slabs that have no users.
    pub(super) fn finish_leaving(&mut self, checked: usize) {
        for _ in 0..checked.min(self.leaving.len()) {
            // A slab that was freed is replaced by the last one, so the list may have ended.
            let Some(at) = self.next_leaving.checked_rem(self.leaving.len()) else {
                return;
            };
            let slab = self.leaving[at];
            self.next_leaving = at + 1;
            if self.is_empty(slab) {
                self.leaving.swap_remove(at);
                self.next_leaving = at;
                self.free_slabs.push(slab);
                let state = self.slabs[slab as usize].take().expect("a slab in use");
                self.leaving_bytes -= state.slab.bytes() as u64;
                self.bytes -= state.slab.bytes() as u64;
                self.returned.push(state.slab);
            }
        }
    }

    /// Returns true if a leaving slab has no users any more.
    fn is_empty(&mut self, slab: u32) -> bool {
        loop {
            let state = self.slab_mut(slab);
            let index = state.emptied;
            if index == state.slab.frames() {
                return true;
            }
            if !state.slab.is_free(index) {
                // It may have come into its slot after the slab began to leave.
                self.visit(slab, index, true);
                return false;
            }
            state.emptied += 1;
        }
    }
}
