//! List of keys in two allocations: each key costs its bytes and one offset.

/// Keys by position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyList {
    bytes: Vec<u8>,
    /// End of each key in `bytes`; the key begins at the end of the previous one.
    ends: Vec<usize>,
}

impl KeyList {
    /// Returns a copy with two more keys, without unused capacity.
    pub fn with_pair(&self, first: &[u8], second: &[u8]) -> KeyList {
        let mut longer = KeyList {
            bytes: Vec::with_capacity(self.bytes.len() + first.len() + second.len()),
            ends: Vec::with_capacity(self.ends.len() + 2),
        };
        longer.bytes.extend_from_slice(&self.bytes);
        longer.ends.extend_from_slice(&self.ends);
        longer.push(first);
        longer.push(second);
        longer
    }

    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub fn pop(&mut self) {
        self.ends.pop();
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, at: usize) -> &[u8] {
        let start = match at.checked_sub(1) {
            Some(before) => self.ends[before],
            None => 0,
        };
        &self.bytes[start..self.ends[at]]
    }

    pub fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    /// Returns the keys `2 * at` and `2 * at + 1`, the bounds of a range.
    pub fn pair(&self, at: usize) -> (&[u8], &[u8]) {
        (self.get(2 * at), self.get(2 * at + 1))
    }

    /// Returns the number of leading keys for which `is_before` is true; it must be false for all
    /// later keys.
    pub fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.partition_point_by(self.len(), |at| is_before(self.get(at)))
    }

    /// Returns the first number below `len` for which the predicate is false, or `len`. Callers
    /// number keys or ranges.
    pub fn partition_point_by(&self, len: usize, is_before: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the total length of all keys in bytes.
    pub fn key_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}
