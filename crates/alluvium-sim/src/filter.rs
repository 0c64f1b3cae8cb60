//! Decisions of the compaction filter, which removes some rows and replaces the values of others.
//!
//! The filter acts whenever a flush or a compaction processes a row. Once it has been set, a row
//! that it would remove may be present or absent. A row with a value that it would replace has the
//! old value or the new one. Its decision depends on the value alone. It must never be shown a row
//! that was never written.

/// Decision of the filter about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Kept unchanged.
    Kept,
    /// Removed.
    Removed,
    /// Replaced by this value.
    Replaced(Vec<u8>),
}

/// Returns the fate of a row with this value, which contains its commit's tag and the index of the
/// write.
pub fn fate(value: &[u8]) -> Fate {
    let numbers = value.strip_prefix(b"v").unwrap_or_default();
    let mut numbers = numbers.split(|byte| *byte == b'.').map(|digits| {
        let text = std::str::from_utf8(digits).ok()?;
        text.parse::<u64>().ok()
    });
    let (Some(Some(tag)), Some(Some(at))) = (numbers.next(), numbers.next()) else {
        return Fate::Kept;
    };
    match (tag + at) % 5 {
        0 => Fate::Removed,
        1 => Fate::Replaced([b"another ", value].concat()),
        _ => Fate::Kept,
    }
}
