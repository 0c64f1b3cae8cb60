//! Sums of estimated rows and bytes.

use std::ops::{AddAssign, Sub};

/// Estimated rows and bytes of some tables or memtables. `rows` is negative where more deletes than
/// rows were counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub rows: f64,
    pub bytes: f64,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

impl Sub for Sum {
    type Output = Sum;

    fn sub(self, other: Sum) -> Sum {
        Sum {
            rows: self.rows - other.rows,
            bytes: self.bytes - other.bytes,
        }
    }
}
