//! Losses of a power loss: a pure function of the journal and a seed.

use std::collections::HashMap;

use rumbench_core::undo::Record;

use crate::durability::script::mix;

/// Bytes that a disk writes completely or not at all.
pub const SECTOR: u64 = 512;

/// Losses of each file and of the changes of names. Records are identified by their numbers.
#[derive(Debug)]
pub struct Fate {
    seed: u64,
    records: u64,
    files: HashMap<u32, FileFate>,
    /// Changes of names from this record onward are lost.
    pub names_from: u64,
}

#[derive(Debug, Clone)]
struct FileFate {
    /// Writes below this record are not lost.
    synced: u64,
    kind: Kind,
    /// Durable writes by sector: writes of the sector below the given record are not lost.
    through: HashMap<u64, u64>,
    /// Size changes below this record are durable, because of a later durable write.
    size_through: u64,
    /// True if the file was truncated since its last sync. Data written after a truncation is
    /// elsewhere on the disk, and is present only if the truncation is. So sectors are lost
    /// together with the size, not independently.
    cut_off: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The disk has written everything.
    Kept,
    /// The disk has written nothing since the last sync.
    Lost,
    /// Each sector is lost or kept independently.
    Mixed,
}

impl Fate {
    /// Draws a fate. One in three loses everything that may be lost.
    pub fn new(records: &[Record], seed: u64) -> Fate {
        let count = records.len() as u64;
        let everything = mix(seed, 0).is_multiple_of(3);
        let names = durable_names(records);
        let mut fate = Fate {
            seed,
            records: count,
            files: HashMap::new(),
            names_from: if everything {
                names
            } else {
                names + mix(seed, 1) % (count - names + 1)
            },
        };
        for record in records {
            if let Record::File { file, .. } = record {
                let kind = match mix(seed ^ 0xF11E, u64::from(*file)) % 4 {
                    _ if everything => Kind::Lost,
                    0 => Kind::Kept,
                    1 => Kind::Lost,
                    _ => Kind::Mixed,
                };
                let own = FileFate {
                    synced: 0,
                    kind,
                    through: HashMap::new(),
                    size_through: 0,
                    cut_off: false,
                };
                fate.files.insert(*file, own);
            }
        }
        fate.learn_syncs(records);
        fate.learn_cuts(records);
        fate
    }

    fn learn_cuts(&mut self, records: &[Record]) {
        for (number, record) in (0..).zip(records) {
            if let Record::Resized {
                file,
                old_size,
                new_size,
                ..
            } = record
                && new_size < old_size
                && let Some(own) = self.files.get_mut(file)
            {
                own.cut_off |= number >= own.synced;
            }
        }
    }

    fn learn_syncs(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Synced { file, data, .. } => {
                    if let Some(own) = self.files.get_mut(file) {
                        own.synced = own.synced.max(*data);
                    }
                }
                Record::AllSynced { all } => {
                    for own in self.files.values_mut() {
                        own.synced = own.synced.max(*all);
                    }
                }
                Record::WrittenThrough { record } => self.learn_through(records, *record),
                _ => {}
            }
        }
    }

    fn learn_through(&mut self, records: &[Record], number: u64) {
        let Some(Record::Written {
            file, offset, len, ..
        }) = records.get(number as usize)
        else {
            return;
        };
        if let Some(own) = self.files.get_mut(file) {
            for sector in sectors(*offset, *len) {
                own.through.insert(sector, number + 1);
            }
            own.size_through = number + 1;
        }
    }

    /// Returns the record from which writes of this sector are lost.
    pub fn sector_from(&self, file: u32, sector: u64) -> u64 {
        let Some(own) = self.files.get(&file) else {
            return u64::MAX;
        };
        if own.cut_off {
            return self.size_from(file);
        }
        let through = own.through.get(&sector).copied().unwrap_or(0);
        self.drawn(own, (u64::from(file) << 40) ^ sector)
            .max(through)
    }

    /// Returns the record from which changes of the file's size are lost.
    pub fn size_from(&self, file: u32) -> u64 {
        match self.files.get(&file) {
            Some(own) => self
                .drawn(own, u64::MAX ^ u64::from(file))
                .max(own.size_through),
            None => u64::MAX,
        }
    }

    fn drawn(&self, own: &FileFate, place: u64) -> u64 {
        let random = mix(self.seed ^ 0x5EC7, place);
        match (own.kind, random % 4) {
            (Kind::Kept, _) | (Kind::Mixed, 0 | 1) => u64::MAX,
            (Kind::Lost, _) | (Kind::Mixed, 2) => own.synced,
            (Kind::Mixed, _) => own.synced + (random >> 8) % (self.records - own.synced + 1),
        }
    }
}

/// Returns the number of the first record from which changes of names may be lost.
fn durable_names(records: &[Record]) -> u64 {
    let covered = records.iter().map(|record| match record {
        Record::Synced { names, .. } | Record::NamesSynced { names } => *names,
        Record::AllSynced { all } => *all,
        _ => 0,
    });
    covered.max().unwrap_or(0)
}

/// Returns the sectors that a write touches.
pub fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR..(offset + len).div_ceil(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(offset: u64, len: u64) -> Record {
        Record::Written {
            file: 0,
            offset,
            len,
            old_size: 0,
            old: Vec::new(),
        }
    }

    fn file() -> Record {
        Record::File {
            file: 0,
            inode: (1, 1),
        }
    }

    fn appeared() -> Record {
        Record::Appeared {
            path: b"/a".to_vec(),
        }
    }

    const SEEDS: std::ops::Range<u64> = 0..2000;

    #[test]
    fn nothing_that_was_synced_is_lost_and_everything_else_may_be() {
        let synced = Record::Synced {
            file: 0,
            data: 2,
            names: 0,
        };
        let records = [file(), written(0, 512), written(0, 1024), synced];
        let from: Vec<u64> = SEEDS
            .map(|seed| Fate::new(&records, seed).sector_from(0, 0))
            .collect();
        assert!(from.iter().all(|from| *from >= 2));
        for wanted in [2, 3, u64::MAX] {
            assert!(from.contains(&wanted), "{wanted}");
        }
    }

    #[test]
    fn a_write_that_went_through_stays_and_so_does_the_size_that_it_made() {
        let through = Record::WrittenThrough { record: 2 };
        let records = [
            file(),
            written(0, 512),
            written(512, 512),
            through,
            written(0, 512),
        ];
        for seed in SEEDS {
            let fate = Fate::new(&records, seed);
            assert!(fate.sector_from(0, 1) >= 3 && fate.size_from(0) >= 3);
        }
        let other = SEEDS.map(|seed| Fate::new(&records, seed).sector_from(0, 0));
        assert_eq!(other.min(), Some(0));
    }

    #[test]
    fn of_a_file_that_was_cut_off_everything_goes_from_one_moment_on() {
        let cut = Record::Resized {
            file: 0,
            old_size: 1024,
            new_size: 0,
            old: Vec::new(),
        };
        let records = [file(), written(0, 1024), cut, written(0, 512)];
        for seed in SEEDS {
            let fate = Fate::new(&records, seed);
            let size = fate.size_from(0);
            assert_eq!(
                (fate.sector_from(0, 0), fate.sector_from(0, 1)),
                (size, size)
            );
        }
    }

    #[test]
    fn names_go_from_one_moment_on_which_is_not_before_a_sync_of_them() {
        let synced = Record::NamesSynced { names: 2 };
        let records = [file(), appeared(), synced, appeared(), appeared()];
        let from: Vec<u64> = SEEDS
            .map(|seed| Fate::new(&records, seed).names_from)
            .collect();
        assert_eq!((from.iter().min(), from.iter().max()), (Some(&2), Some(&5)));
    }

    #[test]
    fn sectors_of_a_write_are_those_that_it_touches() {
        assert_eq!(sectors(0, 512), 0..1);
        assert_eq!(sectors(511, 2), 0..2);
        assert_eq!(sectors(1024, 1), 2..3);
    }
}
