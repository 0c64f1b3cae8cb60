//! Charge of a memory user that follows its bytes in steps.

use std::fmt;
use std::sync::Arc;

use crate::memory::{MemoryBudget, Use};

/// Maximum difference in bytes between a charge and the actual use.
pub const CHARGE_STEP: usize = 64 << 10;

/// Charge of one memory user; released when dropped.
pub struct Charge {
    budget: Arc<MemoryBudget>,
    what: Use,
    bytes: usize,
}

impl Charge {
    /// Creates a charge of zero bytes.
    pub fn new(budget: &Arc<MemoryBudget>, what: Use) -> Charge {
        Charge {
            budget: Arc::clone(budget),
            what,
            bytes: 0,
        }
    }

    /// Creates a charge of constant `bytes`; returns `None` for less than a step.
    pub fn of(budget: &Arc<MemoryBudget>, what: Use, bytes: usize) -> Option<Charge> {
        (bytes >= CHARGE_STEP).then(|| {
            let mut charge = Charge::new(budget, what);
            charge.set(bytes);
            charge
        })
    }

    /// Sets the bytes in use. If they increase, evicts as many bytes from the cache. Touches memory
    /// shared with other threads only if the number has changed by at least a step.
    pub fn set(&mut self, bytes: usize) {
        if bytes.abs_diff(self.bytes) < CHARGE_STEP {
            return;
        }
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.add_and_reclaim(self.what, more),
            None => self.budget.subtract(self.what, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({:?}, {})", self.what, self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.subtract(self.what, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::CACHE_BYTES_MIN;

    #[test]
    fn a_charge_follows_in_steps_and_leaves_the_cache_the_rest() {
        let budget = Arc::new(MemoryBudget::new(64 << 20));
        let mut charge = Charge::new(&budget, Use::Jobs);
        charge.set(CHARGE_STEP - 1);
        assert_eq!(budget.bytes(Use::Jobs), 0, "below a step");
        charge.set(10 << 20);
        assert_eq!(budget.bytes(Use::Jobs), 10 << 20);
        assert_eq!(budget.left_for_cache(), 54 << 20);
        charge.set((10 << 20) - 100);
        assert_eq!(charge.bytes, 10 << 20, "less than a step away");
        charge.set(1 << 20);
        assert_eq!(budget.left_for_cache(), 63 << 20);
        charge.set(100 << 20);
        assert_eq!(budget.left_for_cache(), CACHE_BYTES_MIN as u64);
        drop(charge);
        assert_eq!(budget.bytes(Use::Jobs), 0);
    }
}
