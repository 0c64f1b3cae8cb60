//! Bijection between popularity ranks and ids.
//!
//! Ids fall into 1024 residue classes; each class is rotated by a number drawn from the Java
//! generator with a fixed seed. A permutation and its inverse take a few instructions and 8 KiB for
//! any number of ids.

use super::java_random::JavaRandom;

/// Seed for out-degrees and correlated link access.
pub const CORRELATED: i64 = 20_343_988_438_726_021;
/// Seed for uncorrelated link reads and writes.
pub const UNCORRELATED: i64 = 53_238_253_823_453;
/// Seed for node reads, updates and deletes.
pub const NODE: i64 = 4_766_565_305_853_767_165;

const GROUPS: u64 = 1024;

/// A fixed permutation of [0, n).
#[derive(Debug, Clone)]
pub struct Shuffler {
    count: u64,
    groups: u64,
    rotations: Vec<u64>,
}

impl Shuffler {
    /// Creates the permutation of [0, count) for `seed`. Below 2048 it is the identity.
    ///
    /// # Panics
    /// Panics if `count` is 0, or 2^41 or more.
    pub fn new(seed: i64, count: u64) -> Shuffler {
        assert!(count > 0 && count < 1 << 41, "count {count}");
        let groups = GROUPS.min(count);
        let smallest = (count / groups) as u32;
        let mut random = JavaRandom::new(seed);
        Shuffler {
            count,
            groups,
            rotations: (0..groups)
                .map(|_| u64::from(random.below(smallest)))
                .collect(),
        }
    }

    /// Returns the image of `index`.
    #[inline]
    pub fn permute(&self, index: u64) -> u64 {
        let (group, place, size) = self.locate(index);
        // Both terms are below the size, so one subtraction is the remainder.
        let rotated = place + self.rotations[group as usize];
        group
            + self.groups
                * (if rotated >= size {
                    rotated - size
                } else {
                    rotated
                })
    }

    /// Returns the index that [`Shuffler::permute`] maps to `index`.
    #[inline]
    pub fn inverse(&self, index: u64) -> u64 {
        let (group, place, size) = self.locate(index);
        let rotation = self.rotations[group as usize];
        let origin = if place >= rotation {
            place - rotation
        } else {
            place + size - rotation
        };
        group + self.groups * origin
    }

    /// Returns the residue class of `index`, its place within the class, and the size of the class.
    #[inline]
    fn locate(&self, index: u64) -> (u64, u64, u64) {
        debug_assert!(index < self.count);
        let (group, place) = (index % self.groups, index / self.groups);
        let size = self.count / self.groups + u64::from(group < self.count % self.groups);
        (group, place, size)
    }

    /// Returns the rotations of all residue classes.
    pub fn rotations(&self) -> &[u64] {
        &self.rotations
    }
}
