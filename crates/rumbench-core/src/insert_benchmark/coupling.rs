//! Keeps the inserts and the deletes of a client in step, as the two bounded queues of the
//! reference do.
//!
//! Neither side is more than a few statements ahead. A waiting side continues when its lead has
//! shrunk to half, so the two do not wake each other for every statement. A client waits while it
//! prepares a statement, so the wait is in no response time of a closed loop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Statements that one side may be ahead of the other.
pub(super) const LEAD: u64 = 8;

#[derive(Debug, Default)]
struct Progress {
    /// Statements done by inserts and by deletes.
    done: [u64; 2],
    /// True for each side that has ended.
    ended: [bool; 2],
}

#[derive(Debug)]
struct Shared {
    /// Innermost lock: no other lock is taken while it is held.
    progress: Mutex<Progress>,
    moved: Condvar,
    /// Statements that each side may be ahead.
    leads: [u64; 2],
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One side. Dropping it ends the wait of the other.
#[derive(Debug)]
pub(super) struct Side {
    shared: Arc<Shared>,
    own: usize,
}

/// Creates the sides of the inserts and of the deletes. Deletes may be ahead by at most
/// `delete_lead`, because the rows that they delete must exist.
pub(super) fn couple(delete_lead: u64) -> (Side, Side) {
    let shared = Arc::new(Shared {
        progress: Mutex::default(),
        moved: Condvar::new(),
        leads: [LEAD, delete_lead.min(LEAD)],
    });
    let side = |own| Side {
        shared: Arc::clone(&shared),
        own,
    };
    (side(0), side(1))
}

impl Side {
    /// Waits until the next statement may run. Returns false if it never may, because the other
    /// side has ended with fewer statements.
    pub(super) fn wait(&self) -> bool {
        let (own, other) = (self.own, 1 - self.own);
        let lead = self.shared.leads[own];
        let ahead = |progress: &Progress| progress.done[own].saturating_sub(progress.done[other]);
        let behind = |progress: &Progress| progress.done[own] < progress.done[other];
        let may = |progress: &Progress, lead| behind(progress) || ahead(progress) < lead;
        let mut progress = self.shared.lock();
        if may(&progress, lead) {
            return true;
        }
        // Terminates: the other side advances or ends. It does not wait itself, because only one
        // side can be ahead.
        while !may(&progress, (lead / 2).max(lead.min(1))) {
            if progress.ended[other] {
                return false;
            }
            let moved = self.shared.moved.wait(progress);
            progress = moved.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Counts a statement that has run.
    pub(super) fn step(&self) {
        self.shared.lock().done[self.own] += 1;
        self.shared.moved.notify_one();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.shared.lock().ended[self.own] = true;
        self.shared.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_side_is_further_ahead_than_its_lead() {
        const STATEMENTS: u64 = 2000;
        for delete_lead in [0, 1, 3, 100] {
            let (inserts, deletes) = couple(delete_lead);
            let run = |side: Side, lead: u64| {
                for _ in 0..STATEMENTS {
                    assert!(side.wait());
                    {
                        let progress = side.shared.lock();
                        let (own, other) = (side.own, 1 - side.own);
                        assert!(progress.done[own] < progress.done[other] + lead.max(1));
                    }
                    side.step();
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| run(inserts, LEAD));
                scope.spawn(|| run(deletes, delete_lead.min(LEAD)));
            });
        }
    }

    #[test]
    fn deletes_without_a_lead_never_come_before_their_inserts() {
        let (inserts, deletes) = couple(0);
        assert!(inserts.wait());
        inserts.step();
        assert!(deletes.wait());
        deletes.step();
        drop(inserts);
        assert!(!deletes.wait());
    }

    #[test]
    fn a_side_that_ends_lets_the_other_end() {
        let (inserts, deletes) = couple(LEAD);
        drop(deletes);
        let mut statements = 0;
        while inserts.wait() {
            inserts.step();
            statements += 1;
        }
        assert_eq!(statements, LEAD);
    }
}
