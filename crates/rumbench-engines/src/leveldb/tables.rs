//! LevelDB's tables as its text property lists them: their number, and whether a compaction is due.

use std::collections::BTreeMap;

use super::library::Database;

/// Number of tables from which LevelDB compacts level 0.
const L0_TABLES_DUE: usize = 4;
/// Size from which LevelDB compacts level 1. Each further level may be ten times as large.
const L1_BYTES_DUE: u64 = 10 << 20;
/// Never due, because there is no level below it.
const LAST_LEVEL: u32 = 6;

/// Tables by level.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    levels: BTreeMap<u32, Level>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Level {
    /// Numbers of the tables' files.
    tables: Vec<u64>,
    bytes: u64,
}

impl Tables {
    /// Reads the current tables of a database.
    pub(super) fn of(db: &Database) -> Tables {
        Tables::parse(&db.property(c"leveldb.sstables").unwrap_or_default())
    }

    /// Parses `--- level 1 ---` lines, each followed by ` NUMBER:SIZE[...` for each table, and
    /// ignores any other line.
    fn parse(text: &str) -> Tables {
        let mut tables = Tables::default();
        let mut level = 0;
        for line in text.lines() {
            let line = line.trim();
            let header = line
                .strip_prefix("--- level ")
                .and_then(|rest| rest.strip_suffix(" ---"));
            if let Some(number) = header.and_then(|header| header.parse().ok()) {
                level = number;
                continue;
            }
            let Some((number, rest)) = line.split_once(':') else {
                continue;
            };
            let size = rest.split('[').next().unwrap_or("");
            if let (Ok(number), Ok(size)) = (number.parse(), size.parse::<u64>()) {
                let level = tables.levels.entry(level).or_default();
                level.tables.push(number);
                level.bytes += size;
            }
        }
        tables
    }

    pub(super) fn count(&self) -> usize {
        self.levels.values().map(|level| level.tables.len()).sum()
    }

    pub(super) fn l0_count(&self) -> usize {
        self.levels.get(&0).map_or(0, |level| level.tables.len())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.levels.values().map(|level| level.bytes).sum()
    }

    /// Returns `true` if the sizes of the levels require a compaction.
    pub(super) fn are_due(&self) -> bool {
        self.l0_count() >= L0_TABLES_DUE
            || self.levels.iter().any(|(level, content)| {
                (1..LAST_LEVEL).contains(level)
                    && content.bytes >= L1_BYTES_DUE * 10_u64.pow(level - 1)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_counted_by_level() {
        let text = "--- level 0 ---\n 7:100['a' @ 5 : 1 .. 'b:3[' @ 9 : 1]\n 5:50['a' @ 1 : 1 .. 'b' @ 2 : 1]\n\
                    --- level 1 ---\n--- level 2 ---\n 3:1000['a' @ 1 : 1 .. 'b' @ 2 : 1]\n";
        let tables = Tables::parse(text);
        assert_eq!(
            (tables.count(), tables.l0_count(), tables.bytes()),
            (3, 2, 1150)
        );
        assert!(!tables.are_due());
        assert_eq!(Tables::parse(""), Tables::default());
    }

    #[test]
    fn a_compaction_is_due_by_the_number_of_young_tables_or_the_size_of_a_level() {
        let level = |level: u32, sizes: &[u64]| {
            let mut text = format!("--- level {level} ---\n");
            for (number, size) in sizes.iter().enumerate() {
                text += &format!(" {number}:{size}['a' .. 'b']\n");
            }
            Tables::parse(&text)
        };
        assert!(level(0, &[1; 4]).are_due());
        assert!(!level(0, &[1 << 30; 3]).are_due());
        assert!(level(1, &[10 << 20]).are_due());
        assert!(!level(2, &[10 << 20]).are_due());
        assert!(level(2, &[50 << 20, 50 << 20]).are_due());
        assert!(!level(6, &[1 << 50]).are_due());
    }
}
