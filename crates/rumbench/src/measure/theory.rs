//! Theoretical bounds on the cost of reads, writes and space, by the layout of an engine's data.
//! Pure arithmetic, before compression.
//!
//! The numbers come from published comparisons of B-tree and LSM, except those of Alluvium, which
//! come from its design (`docs/guide/background.md`). They are bounds for rows that change at
//! random. Two cases stay below them: a load in key order, and rows that change again before they
//! are written back. `docs/guide/explain.md` lists them with their sources.

/// Used share of a leaf page after random changes: between a half and two thirds; the better end.
const LEAF_FILL: f64 = 2.0 / 3.0;
/// Bytes of an entry of a branch page: the head of a key and a pointer.
const BRANCH_ENTRY_BYTES: f64 = 32.0;
/// Ratio of the size of a level to that of the level above it.
const FANOUT: f64 = 10.0;
/// Bytes rewritten for each byte that moves down a level; 10 in the naive theory.
const LEVEL_WRITES: f64 = 7.0;
/// Number of runs of one size that a tiered compaction merges.
const TIER_RUNS: f64 = 4.0;
/// Number of runs that Alluvium merges in its upper tables.
const ALLUVIUM_RUNS: f64 = 6.0;
/// False-positive rate of a filter with 10 bits for each key.
const FALSE_POSITIVES: f64 = 0.01;

/// Layout of an engine's data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    /// Pages that are changed in place, with a write-ahead log.
    BTree {
        /// Bytes of a leaf page.
        page_bytes: f64,
    },
    /// Pages that are never changed: a commit writes the path from the leaf up to the root.
    CopyOnWrite {
        /// Bytes of every page.
        page_bytes: f64,
    },
    /// Levels, each a sorted run, ten times the size of the level above.
    Leveled {
        /// Bytes of the first level below the flushed tables.
        level1_bytes: f64,
    },
    /// Runs of equal size that are merged into one of the next size.
    Tiered {
        /// Bytes of a flushed table.
        flush_bytes: f64,
    },
    /// Tiered tables above one last level.
    LazyLeveled {
        /// Size of the upper tables as a share of the last level.
        upper_fraction: f64,
        /// Bytes of a flush.
        flush_bytes: f64,
    },
}

/// Data that the layout holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Data {
    /// Bytes of keys and values of all rows.
    pub bytes: f64,
    /// Bytes of key and value of one row.
    pub row_bytes: f64,
    /// Bytes of the data that memory can hold, the page cache included.
    pub memory_bytes: f64,
}

/// Theoretical upper bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Device reads for one single-row read.
    pub read: f64,
    /// Bytes written for each byte of a changed row.
    pub write: f64,
    /// Bytes stored for each byte of rows.
    pub space: f64,
}

impl Layout {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Layout::BTree { .. } => "B-tree",
            Layout::CopyOnWrite { .. } => "copy-on-write B-tree",
            Layout::Leveled { .. } => "leveled LSM",
            Layout::Tiered { .. } => "tiered LSM",
            Layout::LazyLeveled { .. } => "lazy-leveled LSM",
        }
    }

    /// Returns the maximum cost of holding this data; `None` if its size is unknown.
    pub fn bounds(self, data: &Data) -> Option<Bounds> {
        if data.bytes <= 0.0 || data.row_bytes <= 0.0 {
            return None;
        }
        let space = self.space();
        // Probability that a randomly chosen row is not in memory.
        let missing = (1.0 - data.memory_bytes / (data.bytes * space)).clamp(0.0, 1.0);
        Some(Bounds {
            read: missing * self.row_reads(data),
            write: self.write(data),
            space,
        })
    }

    fn space(self) -> f64 {
        match self {
            Layout::BTree { .. } | Layout::CopyOnWrite { .. } => 1.0 / LEAF_FILL,
            Layout::Leveled { .. } => 1.0 + 1.0 / FANOUT,
            // The largest run and its replacement.
            Layout::Tiered { .. } => 2.0,
            Layout::LazyLeveled { upper_fraction, .. } => 1.0 + upper_fraction,
        }
    }

    /// Returns the reads for a row when memory holds no leaf or data block: one, plus the false
    /// positives of the filters.
    fn row_reads(self, data: &Data) -> f64 {
        match self {
            Layout::BTree { .. } | Layout::CopyOnWrite { .. } => 1.0,
            Layout::Leveled { level1_bytes } => {
                1.0 + levels(data.bytes, level1_bytes) * FALSE_POSITIVES
            }
            Layout::Tiered { flush_bytes } => {
                let sizes = merges(data.bytes, flush_bytes, TIER_RUNS);
                1.0 + sizes * TIER_RUNS * FALSE_POSITIVES
            }
            Layout::LazyLeveled {
                upper_fraction,
                flush_bytes,
            } => {
                let sizes = merges(data.bytes * upper_fraction, flush_bytes, ALLUVIUM_RUNS);
                1.0 + sizes.max(1.0) * ALLUVIUM_RUNS * FALSE_POSITIVES
            }
        }
    }

    fn write(self, data: &Data) -> f64 {
        match self {
            // The row in the log, and the page that it makes dirty.
            Layout::BTree { page_bytes } => (page_bytes + data.row_bytes) / data.row_bytes,
            Layout::CopyOnWrite { page_bytes } => {
                let leaves = (data.bytes / LEAF_FILL / page_bytes).max(1.0);
                let depth = 1.0 + leaves.log(page_bytes / BRANCH_ENTRY_BYTES).ceil();
                depth * page_bytes / data.row_bytes
            }
            // Log, flush, compaction into level 1, and down.
            Layout::Leveled { level1_bytes } => {
                3.0 + LEVEL_WRITES * (levels(data.bytes, level1_bytes) - 1.0)
            }
            Layout::Tiered { flush_bytes } => {
                2.0 + merges(data.bytes, flush_bytes, TIER_RUNS).ceil()
            }
            // Log, flush, tiers, and the last level. Its group is half full of upper data on
            // average at a compaction.
            Layout::LazyLeveled {
                upper_fraction,
                flush_bytes,
            } => {
                let tiers = merges(data.bytes * upper_fraction, flush_bytes, ALLUVIUM_RUNS);
                2.0 + tiers + 0.5 / upper_fraction
            }
        }
    }
}

/// Returns the number of levels below the flushed tables.
fn levels(bytes: f64, level1_bytes: f64) -> f64 {
    1.0 + (bytes / level1_bytes.max(1.0)).max(1.0).log(FANOUT).ceil()
}

/// Returns how often a byte is merged with others of its size until `bytes` are one run.
fn merges(bytes: f64, flush_bytes: f64, runs: f64) -> f64 {
    (bytes / flush_bytes.max(1.0)).max(1.0).log(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn data(bytes: f64, row_bytes: f64) -> Data {
        Data {
            bytes,
            row_bytes,
            memory_bytes: 0.0,
        }
    }

    fn close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 0.005,
            "{found}, expected {expected}"
        );
    }

    #[test]
    fn published_bounds_are_reproduced() {
        // Rows of 128 bytes in pages of 4096: 33. Levels 0 to 4: 24. Space 1.5, 1.1 and 2.
        let tree = Layout::BTree { page_bytes: 4096.0 };
        let bounds = tree.bounds(&data(GB, 128.0)).unwrap();
        close(bounds.write, 33.0);
        close(bounds.space, 1.5);
        close(bounds.read, 1.0);
        let leveled = Layout::Leveled {
            level1_bytes: GB / 1000.0,
        };
        let bounds = leveled.bounds(&data(GB, 128.0)).unwrap();
        close(bounds.write, 24.0);
        close(bounds.space, 1.1);
        let tiered = Layout::Tiered {
            flush_bytes: GB / 64.0,
        };
        let bounds = tiered.bounds(&data(GB, 128.0)).unwrap();
        close(bounds.write, 5.0);
        close(bounds.space, 2.0);
    }

    #[test]
    fn alluviums_bounds_are_its_designs() {
        let layout = Layout::LazyLeveled {
            upper_fraction: 0.25,
            flush_bytes: GB / 144.0,
        };
        let bounds = layout.bounds(&data(GB, 100.0)).unwrap();
        // Log and flush, 36 flush units: two tiers of six, and 1 / 2f.
        close(bounds.write, 2.0 + 2.0 + 2.0);
        close(bounds.space, 1.25);
        close(bounds.read, 1.12);
    }

    #[test]
    fn a_copy_on_write_tree_writes_a_path_for_each_commit() {
        let layout = Layout::CopyOnWrite { page_bytes: 4096.0 };
        // 366 thousand leaves, 128 entries in a branch: three levels above the leaves.
        close(layout.bounds(&data(GB, 128.0)).unwrap().write, 4.0 * 32.0);
    }

    #[test]
    fn cached_rows_need_no_device_reads() {
        let tree = Layout::BTree { page_bytes: 4096.0 };
        let read = |memory_bytes: f64| {
            let data = Data {
                memory_bytes,
                ..data(GB, 128.0)
            };
            tree.bounds(&data).unwrap().read
        };
        close(read(0.75 * GB), 0.5);
        close(read(2.0 * GB), 0.0);
        assert_eq!(tree.bounds(&data(0.0, 1.0)), None);
    }
}
