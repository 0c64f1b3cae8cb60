//! States of the rows of a table: two bits for each row, shared by all clients of a trial.
//!
//! A row is absent until its insert is acknowledged, then present, leaving once a client claims it
//! for a delete, and gone once that delete is acknowledged. So a read must find the rows that were
//! present before and after it, and must not find those that were gone before it. A number is taken
//! when an insert is prepared. If the insert is not performed the number is reused; if a delete is
//! not performed its row stays present.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Rows of one chunk of states.
const CHUNK_ROWS: u64 = 1 << 20;
/// Rows of one word of states.
const WORD_ROWS: u64 = 32;
/// Most chunks; the addresses of all take 1.5 MiB.
const CHUNKS: usize = 1 << 16;
/// Bit 0 of each state: the row's insert was acknowledged, and no delete of it was.
const THERE: u64 = 0x5555_5555_5555_5555;

/// State of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No insert of it was acknowledged.
    Absent,
    /// It exists, and no client deletes it.
    Present,
    /// A client deletes it.
    Leaving,
    /// Its delete was acknowledged.
    Gone,
}

/// States of the rows of one table.
#[derive(Debug)]
pub struct Population {
    /// The next new number.
    next: AtomicU64,
    /// Every row below this number is gone.
    low: AtomicU64,
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
    /// Numbers of inserts that were not performed. Innermost lock: no other lock is taken while it
    /// is held.
    returned: Mutex<Vec<u64>>,
    any_returned: AtomicBool,
    /// Number of statements that failed; the states of their rows are unknown.
    failures: AtomicU64,
}

impl Default for Population {
    fn default() -> Population {
        Population {
            next: AtomicU64::new(0),
            low: AtomicU64::new(0),
            chunks: std::iter::repeat_with(OnceLock::new).take(CHUNKS).collect(),
            returned: Mutex::default(),
            any_returned: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }
}

impl Population {
    /// Returns the memory of the states of so many rows in bytes.
    pub fn memory_bytes(rows: u64) -> u64 {
        rows.div_ceil(WORD_ROWS) * size_of::<u64>() as u64
    }

    /// Returns the word with a row's state, and allocates its chunk on first use.
    ///
    /// # Panics
    /// If `number` is 2^36 or more.
    #[inline]
    fn word(&self, number: u64) -> &AtomicU64 {
        let chunk = self.chunks[(number / CHUNK_ROWS) as usize].get_or_init(|| {
            let words = (CHUNK_ROWS / WORD_ROWS) as usize;
            std::iter::repeat_with(AtomicU64::default)
                .take(words)
                .collect()
        });
        &chunk[(number % CHUNK_ROWS / WORD_ROWS) as usize]
    }

    /// Takes a number for a new row.
    pub fn take(&self) -> u64 {
        // Relaxed: only the number itself matters, and the lock orders the list.
        if self.any_returned.load(Ordering::Relaxed) {
            let mut returned = self.returned();
            let number = returned.pop();
            self.any_returned
                .store(!returned.is_empty(), Ordering::Relaxed);
            if let Some(number) = number {
                return number;
            }
        }
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives back the number of an insert that was not performed, for reuse.
    pub fn give_back(&self, number: u64) {
        self.returned().push(number);
        self.any_returned.store(true, Ordering::Relaxed);
    }

    fn returned(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Skips the numbers below `rows`: the clients of the load divide them among themselves.
    pub fn reserve(&self, rows: u64) {
        self.next.store(rows, Ordering::Relaxed);
    }

    /// Records that the insert of a row was acknowledged.
    #[inline]
    pub fn note_inserted(&self, number: u64) {
        // Release: a client that sees the row as present also finds it in the table.
        self.word(number)
            .fetch_or(1 << shift(number), Ordering::Release);
    }

    /// Claims a row for a delete. Returns false if it is not present, for example because another
    /// client claimed it.
    pub fn claim(&self, number: u64) -> bool {
        let word = self.word(number);
        // Acquire and release: a reader that misses the row must see here that it may be gone.
        let claimed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let present = state(word, number) == State::Present;
            present.then_some(word | 2 << shift(number))
        });
        claimed.is_ok()
    }

    /// Releases a claim: the delete was not performed, so the row stays.
    pub fn unclaim(&self, number: u64) {
        self.word(number)
            .fetch_and(!(2 << shift(number)), Ordering::AcqRel);
    }

    /// Records that a delete was acknowledged.
    pub fn note_deleted(&self, number: u64) {
        self.word(number)
            .fetch_and(!(1 << shift(number)), Ordering::Release);
        let mut low = self.low.load(Ordering::Relaxed);
        // The loop ends at the first row that is not gone.
        while self.state(low) == State::Gone {
            let moved =
                self.low
                    .compare_exchange(low, low + 1, Ordering::Relaxed, Ordering::Relaxed);
            low = moved.map_or_else(|other| other, |_| low + 1);
        }
    }

    /// Records that a statement failed, so that the states of its rows are unknown.
    pub fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the state of every row is known.
    pub fn is_exact(&self) -> bool {
        self.failures.load(Ordering::Relaxed) == 0
    }

    /// Returns the state of a row.
    #[inline]
    pub fn state(&self, number: u64) -> State {
        if number >= self.next.load(Ordering::Relaxed) {
            return State::Absent;
        }
        state(self.word(number).load(Ordering::Acquire), number)
    }

    /// Returns the lowest row that can exist, and the first number above all rows.
    pub fn bounds(&self) -> (u64, u64) {
        let next = self.next.load(Ordering::Relaxed);
        (self.low.load(Ordering::Relaxed).min(next), next)
    }

    /// Returns the nearest present row: searches upward from `number`, then upward from the lowest
    /// row.
    #[inline]
    pub fn present_from(&self, number: u64) -> Option<u64> {
        if self.state(number) == State::Present {
            return Some(number);
        }
        let (low, next) = self.bounds();
        self.first_present(number, next)
            .or_else(|| self.first_present(low, number.min(next)))
    }

    /// Returns the nearest present row: searches downward from `number`, then upward from the
    /// lowest row.
    pub fn present_down_from(&self, number: u64) -> Option<u64> {
        let (low, next) = self.bounds();
        let below = (low..=number.min(next.saturating_sub(1))).rev();
        // Other clients insert only a few rows at this moment.
        const NEAR: usize = 4096;
        let mut near = below.take(NEAR);
        near.find(|number| self.state(*number) == State::Present)
            .or_else(|| self.present_from(low))
    }

    fn first_present(&self, from: u64, to: u64) -> Option<u64> {
        let mut number = from;
        while number < to {
            let word = self.word(number).load(Ordering::Acquire);
            let present = (word & THERE & !(word >> 1)) >> shift(number);
            if present != 0 {
                let found = number + u64::from(present.trailing_zeros()) / 2;
                return (found < to).then_some(found);
            }
            number = (number / WORD_ROWS + 1) * WORD_ROWS;
        }
        None
    }

    /// Returns the number of present rows.
    pub fn count(&self) -> u64 {
        let (low, next) = self.bounds();
        let words = low / WORD_ROWS..next.div_ceil(WORD_ROWS);
        let present = words.map(|place| {
            let word = self.word(place * WORD_ROWS).load(Ordering::Acquire);
            u64::from((word & THERE & !(word >> 1)).count_ones())
        });
        present.sum()
    }
}

#[inline]
fn shift(number: u64) -> u64 {
    number % WORD_ROWS * 2
}

#[inline]
fn state(word: u64, number: u64) -> State {
    match word >> shift(number) & 3 {
        0 => State::Absent,
        1 => State::Present,
        3 => State::Leaving,
        _ => State::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: u64) -> Population {
        let population = Population::default();
        for _ in 0..rows {
            let number = population.take();
            population.note_inserted(number);
        }
        population
    }

    #[test]
    fn a_row_goes_through_its_states_once() {
        let population = of(100);
        assert_eq!(population.state(7), State::Present);
        assert!(population.claim(7) && !population.claim(7));
        assert_eq!(population.state(7), State::Leaving);
        population.unclaim(7);
        assert_eq!(population.state(7), State::Present);
        assert!(population.claim(7));
        population.note_deleted(7);
        assert_eq!(population.state(7), State::Gone);
        assert!(!population.claim(7));
        assert_eq!(population.state(7), State::Gone);
        let absent = population.take();
        assert!(!population.claim(absent));
        assert_eq!(population.state(absent), State::Absent);
        assert_eq!((population.count(), population.bounds()), (99, (0, 101)));
    }

    #[test]
    fn the_low_bound_skips_deleted_rows() {
        let population = of(10);
        for number in [2, 1, 3, 0, 5] {
            assert!(population.claim(number));
            population.note_deleted(number);
        }
        assert_eq!(population.bounds(), (4, 10));
        for number in [4, 6, 7, 8, 9] {
            assert!(population.claim(number));
            population.note_deleted(number);
        }
        assert_eq!(population.bounds(), (10, 10));
        assert_eq!(population.present_from(3), None);
        assert_eq!(population.present_down_from(9), None);
    }

    #[test]
    fn numbers_of_inserts_that_were_not_performed_are_taken_again() {
        let population = of(5);
        let (a, b) = (population.take(), population.take());
        population.give_back(a);
        assert_eq!((a, b, population.take(), population.take()), (5, 6, 5, 7));
    }

    #[test]
    fn the_nearest_present_row_is_found_over_holes() {
        let population = of(200);
        for number in 50..150 {
            population.claim(number);
        }
        assert_eq!(population.present_from(60), Some(150));
        assert_eq!(population.present_from(149), Some(150));
        assert_eq!(population.present_from(10), Some(10));
        assert_eq!(population.present_down_from(149), Some(49));
        assert_eq!(population.present_down_from(500), Some(199));
        for number in 150..200 {
            population.claim(number);
        }
        assert_eq!(population.present_from(160), Some(0), "from the lowest on");
        assert_eq!(population.count(), 50);
    }
}
