//! Tracking of the versions of updated columns: the newest issued version, and the oldest that a
//! read may find.
//!
//! If no other write of a value is pending when its version is issued, that version becomes the
//! oldest readable one once it is acknowledged: all earlier writes were acknowledged before it
//! began. A reader checks the version it found against the oldest at the beginning of the read and
//! the newest at its end. In a table with very many updated values only one row in
//! [`Versions::every`] is tracked. In the other rows a read can check only that a value was written
//! for it. A failed write leaves its value open forever.

use std::sync::atomic::{AtomicU64, Ordering};

use super::definition::{Action, Definition, Written};
use crate::random::Random;

/// Most values tracked in one table: 32 MiB.
const CELLS_MAX: u64 = 1 << 22;

const VERSION_BITS: u32 = 27;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;
/// Number of pending writes that marks a value as no longer tracked.
const LOST: u64 = (1 << (64 - 2 * VERSION_BITS)) - 1;

/// Newest version, oldest version that may be read, and number of pending writes, in one word.
#[derive(Debug, Clone, Copy)]
struct Cell {
    newest: u64,
    oldest: u64,
    under_way: u64,
}

impl Cell {
    fn of(word: u64) -> Cell {
        Cell {
            newest: word & VERSION_MAX,
            oldest: word >> VERSION_BITS & VERSION_MAX,
            under_way: word >> (2 * VERSION_BITS),
        }
    }

    fn word(self) -> u64 {
        self.newest | self.oldest << VERSION_BITS | self.under_way << (2 * VERSION_BITS)
    }

    fn lost(self) -> bool {
        self.under_way == LOST
    }
}

/// Versions of the updated columns of one table.
#[derive(Debug)]
pub struct Versions {
    /// Index of each column among the updated ones; `None` if it is never updated.
    places: Vec<Option<usize>>,
    updated: u64,
    /// Rows from this number are not tracked.
    rows: u64,
    /// One row in this many is tracked.
    every: u64,
    cells: Vec<AtomicU64>,
}

/// A version issued for one write.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    /// The version.
    pub version: u32,
    cell: Option<usize>,
    /// True if no other write of the value was pending.
    alone: bool,
}

impl Versions {
    /// Creates the versions of a table. All values have version 0.
    pub fn new(definition: &Definition, table: usize) -> Versions {
        let of = &definition.tables[table];
        let columns = of.columns.len();
        let mut updated = vec![false; columns];
        for operation in definition.operations().filter(|one| one.table == table) {
            match &operation.action {
                Action::Update(Written::Row) | Action::ReadModifyWrite(Written::Row) => {
                    updated.fill(true);
                }
                Action::Update(Written::One(of)) | Action::ReadModifyWrite(Written::One(of)) => {
                    of.iter().for_each(|column| updated[*column] = true);
                }
                _ => {}
            }
        }
        let mut count = 0;
        let places = updated.iter().map(|updated| {
            updated.then(|| {
                count += 1;
                count - 1
            })
        });
        let places: Vec<Option<usize>> = places.collect();
        let count = count as u64;
        let every = of.rows.saturating_mul(count).div_ceil(CELLS_MAX).max(1);
        let cells = of.rows.div_ceil(every) * count;
        Versions {
            places,
            updated: count,
            rows: of.rows,
            every,
            cells: std::iter::repeat_with(AtomicU64::default)
                .take(cells as usize)
                .collect(),
        }
    }

    #[inline]
    fn cell(&self, row: u64, column: usize) -> Option<usize> {
        let place = self.places[column]?;
        let followed = row < self.rows && row.is_multiple_of(self.every);
        followed.then(|| (row / self.every * self.updated) as usize + place)
    }

    fn load(&self, cell: usize) -> Cell {
        Cell::of(self.cells[cell].load(Ordering::Acquire))
    }

    /// Returns the memory of the versions in bytes.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&self.cells[..]) as u64
    }

    /// Returns the sampling interval: one row in this many is tracked.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Issues the version of a write that is about to begin. A value that is not tracked gets a
    /// random version.
    pub fn issue(&self, row: u64, column: usize, random: &mut Random) -> Ticket {
        let drawn = random.bits() as u32;
        let open = Ticket {
            version: drawn,
            cell: None,
            alone: false,
        };
        let Some(place) = self.cell(row, column) else {
            return open;
        };
        let begun = |word| {
            let mut cell = Cell::of(word);
            if cell.lost() {
                return None;
            }
            cell.newest = (cell.newest + 1).min(VERSION_MAX);
            cell.under_way += 1;
            if cell.newest == VERSION_MAX {
                cell.under_way = LOST;
            }
            Some(cell.word())
        };
        // Acquire and release: the bounds that a reader compares with are never older than a value
        // it may have read.
        let before = self.cells[place].fetch_update(Ordering::AcqRel, Ordering::Acquire, begun);
        match before.map(Cell::of) {
            Ok(before) if before.newest + 1 < VERSION_MAX => Ticket {
                version: (before.newest + 1) as u32,
                cell: Some(place),
                alone: before.under_way == 0,
            },
            _ => open,
        }
    }

    /// Ends a write: it was acknowledged (`written`), or it never began.
    pub fn end(&self, ticket: Ticket, written: bool) {
        let Some(place) = ticket.cell else {
            return;
        };
        let ended = |word| {
            let mut cell = Cell::of(word);
            if cell.lost() {
                return None;
            }
            cell.under_way -= 1;
            if written && ticket.alone {
                cell.oldest = cell.oldest.max(u64::from(ticket.version));
            }
            Some(cell.word())
        };
        // A lost value stays lost.
        let _ = self.cells[place].fetch_update(Ordering::AcqRel, Ordering::Acquire, ended);
    }

    /// Returns the oldest version that a read starting now may find.
    #[inline]
    pub fn oldest(&self, row: u64, column: usize) -> u32 {
        match self.cell(row, column).map(|cell| self.load(cell)) {
            Some(cell) if !cell.lost() => cell.oldest as u32,
            _ => 0,
        }
    }

    /// Returns the newest version that a read ending now may have found.
    #[inline]
    pub fn newest(&self, row: u64, column: usize) -> u32 {
        if self.places[column].is_none() {
            return 0;
        }
        match self.cell(row, column).map(|cell| self.load(cell)) {
            Some(cell) if !cell.lost() => cell.newest as u32,
            _ => u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(rows: u64) -> Versions {
        let text = format!(
            r#"
            [[table]]
            name = "t"
            rows = {rows}
            [[table.column]]
            name = "f"
            type = "bytes"
            bytes = 8
            repeat = 3
            [[phase]]
            kind = "load"
            [[phase]]
            kind = "run"
            seconds = 1
            operation = [{{ do = "update", percent = 100, columns = ["f0", "f2"] }}]
            "#
        );
        Versions::new(&super::super::read::definition("t.toml", &text).unwrap(), 0)
    }

    #[test]
    fn a_write_that_was_alone_hides_all_before_it() {
        let (versions, mut random) = (versions(10), Random::new(1));
        let first = versions.issue(3, 2, &mut random);
        assert_eq!((versions.oldest(3, 2), versions.newest(3, 2)), (0, 1));
        let second = versions.issue(3, 2, &mut random);
        versions.end(second, true);
        assert_eq!((versions.oldest(3, 2), versions.newest(3, 2)), (0, 2));
        versions.end(first, true);
        assert_eq!(versions.oldest(3, 2), 1, "either of the two may be last");
        let third = versions.issue(3, 2, &mut random);
        versions.end(third, true);
        assert_eq!((versions.oldest(3, 2), versions.newest(3, 2)), (3, 3));
        assert_eq!((versions.oldest(3, 0), versions.newest(3, 0)), (0, 0));
    }

    #[test]
    fn a_write_that_never_began_hides_nothing_and_a_failed_one_leaves_the_value_open() {
        let (versions, mut random) = (versions(10), Random::new(1));
        let never = versions.issue(0, 0, &mut random);
        versions.end(never, false);
        assert_eq!(versions.oldest(0, 0), 0);
        versions.issue(0, 0, &mut random);
        for _ in 0..3 {
            let ticket = versions.issue(0, 0, &mut random);
            versions.end(ticket, true);
        }
        assert_eq!((versions.oldest(0, 0), versions.newest(0, 0)), (0, 5));
    }

    #[test]
    fn columns_never_updated_have_version_0_and_untracked_rows_any() {
        let (versions, mut random) = (versions(10_000_000), Random::new(1));
        assert_eq!(versions.every(), 5);
        assert_eq!(versions.newest(7, 1), 0);
        assert_eq!(
            (versions.oldest(7, 0), versions.newest(7, 0)),
            (0, u32::MAX)
        );
        let ticket = versions.issue(7, 0, &mut random);
        versions.end(ticket, true);
        assert_eq!(versions.issue(15, 0, &mut random).version, 1);
        assert_eq!(versions.newest(20_000_000, 0), u32::MAX);
    }
}
