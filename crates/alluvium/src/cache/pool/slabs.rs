//! Memory of the classes: a class gets slabs while the capacity allows, takes them from classes
//! whose frames are older, and loses them when the capacity falls.
//!
//! A slab leaves its class at once, and its memory returns to the system when nobody looks at its
//! frames or keeps one of them. Until then it is counted, but nothing else is evicted for it.

use super::{FREE, LOST, Pool, SlabState, Visit};
use alluvium_mem::frames::{Place, Slab, slab_bytes};

/// Largest slab: a huge page of the machines that we know.
const SLAB_BYTES_MAX: usize = 2 << 20;
/// Divisor of the capacity for the largest slab of a small cache.
const SLABS_MIN: u64 = 32;
/// Frames of the first slab of a class. Each further slab doubles the class, up to the largest
/// slab, so a class with few blocks takes little memory.
const FIRST_FRAMES: usize = 8;

/// Factor between the ages of the oldest slabs of two classes at which one takes memory of the
/// other. Each exchange evicts a whole slab.
const OLDER: u64 = 2;
/// Slabs with mostly used frames that are passed over before one has to leave.
const PASSED_MAX: usize = 3;

/// Share of the capacity that slabs may take which leave as soon as nobody keeps one of their
/// frames, in addition to the capacity; at least a largest slab.
const LEAVING_SHARE: u64 = 8;

/// Returns the bytes of leaving slabs that are allowed in addition to the capacity.
fn tolerated_bytes(capacity: u64) -> u64 {
    (capacity / LEAVING_SHARE).max(SLAB_BYTES_MAX as u64)
}

impl Pool {
    pub(super) fn staying_bytes(&self) -> u64 {
        self.bytes - self.leaving_bytes
    }

    /// Returns the bytes that new slabs may take.
    fn room(&self, capacity: u64) -> u64 {
        let tolerated = self.leaving_bytes.min(tolerated_bytes(capacity));
        capacity.saturating_sub(self.bytes - tolerated)
    }

    /// Adds a slab to a class, if the capacity allows.
    pub(super) fn grow(&mut self, class: usize, frame_bytes: usize, capacity: u64) -> bool {
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
        let room = self.room(capacity);
        let wanted = self.wanted_frames(class, frame_bytes, capacity);
        let fitting = u64::from(wanted).min(room / frame_bytes as u64) as u32;
        let fitting = (1..=fitting)
            .rev()
            .find(|&frames| slab_bytes(frame_bytes, frames) as u64 <= room);
        let fitting = fitting.unwrap_or(0);
        match fitting >= self.fewest_frames(class, wanted) {
            true => fitting,
            false => 0,
        }
    }

    /// Returns the number of frames that a class's next slab should have.
    fn wanted_frames(&self, class: usize, frame_bytes: usize, capacity: u64) -> u32 {
        let slab_max = ((capacity / SLABS_MIN) as usize).next_power_of_two();
        let wanted = self.classes[class].bytes.max(FIRST_FRAMES * frame_bytes);
        let wanted = wanted.min(slab_max).min(SLAB_BYTES_MAX);
        (wanted / frame_bytes).max(1) as u32
    }

    /// Returns the number of frames below which a class gets no slab. A remainder of the capacity
    /// stays unused, unless it is all that the class gets.
    fn fewest_frames(&self, class: usize, wanted: u32) -> u32 {
        match self.classes[class].slabs.is_empty() {
            true => 1,
            false => wanted.min(FIRST_FRAMES as u32),
        }
    }

    /// Takes back a leaving slab of a class, whose frames' users keep it anyway.
    fn adopt(&mut self, class: usize, capacity: u64) -> bool {
        let staying = self.staying_bytes();
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

    /// Takes old slabs from other classes until the class gets its next one. Returns false if there
    /// are too few, or if memory is not returned because somebody keeps it.
    pub(super) fn take_memory(&mut self, class: usize, frame_bytes: usize, capacity: u64) -> bool {
        let wanted = self.wanted_frames(class, frame_bytes, capacity);
        let needed = slab_bytes(frame_bytes, self.fewest_frames(class, wanted)) as u64;
        let wanted = slab_bytes(frame_bytes, wanted) as u64;
        let tolerated = tolerated_bytes(capacity);
        let own = self.oldest(|of, _| of == class).map_or(0, |(_, age)| age);
        let is_old = |age: u64| age > OLDER * own;
        let mut left = self.takeable_bytes(class, is_old).min(2 * wanted);
        if self.room(capacity) + left < needed {
            return false;
        }
        while self.room(capacity) < wanted && self.leaving_bytes <= tolerated {
            // Memory in pieces of the wanted size, because a rest seldom makes a good slab.
            let suitable = self.oldest(|of, bytes| of != class && bytes as u64 <= 2 * wanted);
            let suitable = suitable.filter(|&(_, age)| is_old(age));
            let any = || self.oldest(|of, _| of != class);
            let Some((other, _)) = suitable.or_else(any).filter(|&(_, age)| is_old(age)) else {
                break;
            };
            if self.is_used(other) {
                break;
            }
            let bytes = self.slab(other).slab.bytes() as u64;
            self.leave(other);
            if bytes > left {
                break;
            }
            left -= bytes;
        }
        self.reclaim();
        self.frames_of_next_slab(class, frame_bytes, capacity) > 0
    }

    /// Returns the bytes of slabs of other classes that are old enough.
    fn takeable_bytes(&self, class: usize, is_old: impl Fn(u64) -> bool) -> u64 {
        let others = self.classes.iter().enumerate();
        let others = others.filter(|(of, _)| *of != class);
        let slabs = others.flat_map(|(_, other)| {
            // In the order of the hand, so the first ones are the oldest.
            let slabs = other.slabs.iter().map(|&number| self.slab(number));
            slabs.take_while(|state| is_old(self.clock - state.visited))
        });
        slabs.map(|state| state.slab.bytes() as u64).sum()
    }

    /// Returns the slab that was visited the longest time ago, and how long ago, of classes and
    /// sizes of slabs that fit.
    fn oldest(&self, fits: impl Fn(usize, usize) -> bool) -> Option<(u32, u64)> {
        let all = self.classes.iter().enumerate();
        let oldest = all.filter_map(|(number, class)| {
            // The frames behind the hand are the newest ones.
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
    fn is_used(&mut self, number: u32) -> bool {
        let state = self.slab(number);
        let (class, frames) = (state.class, state.slab.frames());
        let mut used = 0;
        for index in 0..frames {
            let slab = number;
            used += u32::from(self.visit(Place { slab, index }, false) == Visit::Used);
        }
        if used <= frames / 2 {
            return false;
        }
        self.slab_mut(number).visited = self.clock;
        let own = &mut self.classes[class];
        if own.slabs.front() == Some(&number) {
            own.hand = 0;
        }
        own.slabs.retain(|&other| other != number);
        own.slabs.push_back(number);
        true
    }

    /// Evicts the frames of an old slab, to return its memory. Returns false if there is none.
    pub(in crate::cache) fn shrink(&mut self) -> bool {
        for passed in 0..=PASSED_MAX {
            let Some((oldest, _)) = self.oldest(|_, _| true) else {
                return false;
            };
            if passed == PASSED_MAX || !self.is_used(oldest) {
                self.leave(oldest);
                break;
            }
        }
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
        let users = &mut self.slab_mut(number).users;
        let free = users.iter_mut().filter(|user| **user == FREE);
        free.for_each(|user| *user = LOST);
        let own = &mut self.classes[class];
        own.frames -= frames;
        own.bytes -= bytes;
        if own.slabs.is_empty() {
            own.borrowed = 0;
        }
        self.leaving.push(number);
        self.leaving_bytes += bytes as u64;
        for index in 0..frames {
            let slab = number;
            self.visit(Place { slab, index }, true);
        }
    }

    /// Frees those of some leaving slabs that have no users.
    pub(super) fn finish_leaving(&mut self, checked: usize) {
        for _ in 0..checked.min(self.leaving.len()) {
            // A slab that was removed before is replaced by the last one.
            let at = self.next_leaving.checked_rem(self.leaving.len());
            let Some(at) = at else {
                return;
            };
            let number = self.leaving[at];
            self.next_leaving = at + 1;
            if self.is_empty(number) {
                self.leaving.swap_remove(at);
                self.next_leaving = at;
                let state = self.slabs[number as usize].take().expect("a slab in use");
                self.leaving_bytes -= state.slab.bytes() as u64;
                self.bytes -= state.slab.bytes() as u64;
                self.returned.push(state.slab);
            }
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
                let slab = number;
                self.visit(Place { slab, index }, true);
                return false;
            }
            state.emptied += 1;
        }
    }
}
