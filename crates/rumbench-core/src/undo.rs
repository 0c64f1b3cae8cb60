//! Undo journal of a simulated power loss: the changes of a process to its files, with the previous
//! contents.
//!
//! A library preloaded into the process writes the journal. After the process was killed, the
//! laboratory reads it and reverts all changes that no sync had made durable. A record is written
//! after its change has happened, so a change that is not in the journal counts as durable. That is
//! allowed: a power loss may keep any change. A record's number is its position in the journal,
//! from 0.
//!
//! A record is its length without the length field (4 bytes), its kind (1 byte) and its fields,
//! integers little-endian; a path is its length (4 bytes) and its bytes. The journal ends at the
//! first incomplete record.

/// One change, or the fact that changes are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Assigns a file its number for the records that follow.
    File {
        /// Number of the file.
        file: u32,
        /// Device and inode.
        inode: (u64, u64),
    },
    /// Bytes of a file were written.
    Written {
        /// Number of the file.
        file: u32,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The file's size before the write.
        old_size: u64,
        /// Previous bytes without their trailing zeros; also shorter if the file ended within the
        /// range.
        old: Vec<u8>,
    },
    /// A file's size was set.
    Resized {
        /// Number of the file.
        file: u32,
        /// Size before.
        old_size: u64,
        /// Size after.
        new_size: u64,
        /// Bytes that were cut off, without their trailing zeros.
        old: Vec<u8>,
    },
    /// A file was synced.
    Synced {
        /// Number of the file.
        file: u32,
        /// Writes to the file in records below this number are durable.
        data: u64,
        /// All name changes in records below this number are durable.
        names: u64,
    },
    /// One write is durable although its file was not synced, because of the flags that the file
    /// was opened with.
    WrittenThrough {
        /// Number of the write's record.
        record: u64,
    },
    /// A directory was synced: name changes in records below this number are durable.
    NamesSynced {
        /// Record number.
        names: u64,
    },
    /// Everything in records below this number is durable.
    AllSynced {
        /// Record number.
        all: u64,
    },
    /// A file or another name of a file was created.
    Appeared {
        /// Path of the new name.
        path: Vec<u8>,
    },
    /// A name of a file was removed.
    Removed {
        /// Removed path.
        path: Vec<u8>,
        /// Path of the retained file; empty if it is not retained.
        kept: Vec<u8>,
    },
    /// A file or directory was renamed.
    Renamed {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
        /// Path of the retained file that had the new path before; empty if there was none.
        kept: Vec<u8>,
    },
    /// A directory was created.
    DirectoryMade {
        /// Path of the directory.
        path: Vec<u8>,
    },
    /// An empty directory was removed.
    DirectoryRemoved {
        /// Path of the directory.
        path: Vec<u8>,
    },
    /// Changes of this file cannot be recorded.
    Unseen {
        /// Path of the file.
        path: Vec<u8>,
    },
}

impl Record {
    /// Returns true if the record changes the set of file names.
    pub fn changes_names(&self) -> bool {
        matches!(
            self,
            Record::Appeared { .. }
                | Record::Removed { .. }
                | Record::Renamed { .. }
                | Record::DirectoryMade { .. }
                | Record::DirectoryRemoved { .. }
        )
    }

    /// Appends the record to `journal`.
    pub fn encode(&self, journal: &mut Vec<u8>) {
        let start = journal.len();
        journal.extend_from_slice(&[0; 4]);
        let mut out = Writer(journal);
        match self {
            Record::File { file, inode } => {
                out.kind(1).file(*file).number(inode.0).number(inode.1);
            }
            Record::Written {
                file,
                offset,
                len,
                old_size,
                old,
            } => {
                out.kind(2).file(*file).number(*offset).number(*len);
                out.number(*old_size).bytes(old);
            }
            Record::Resized {
                file,
                old_size,
                new_size,
                old,
            } => {
                out.kind(3).file(*file).number(*old_size);
                out.number(*new_size).bytes(old);
            }
            Record::Synced { file, data, names } => {
                out.kind(4).file(*file).number(*data).number(*names);
            }
            Record::WrittenThrough { record } => drop(out.kind(5).number(*record)),
            Record::NamesSynced { names } => drop(out.kind(6).number(*names)),
            Record::AllSynced { all } => drop(out.kind(7).number(*all)),
            Record::Appeared { path } => drop(out.kind(8).bytes(path)),
            Record::Removed { path, kept } => drop(out.kind(9).bytes(path).bytes(kept)),
            Record::Renamed { from, to, kept } => {
                out.kind(10).bytes(from).bytes(to).bytes(kept);
            }
            Record::DirectoryMade { path } => drop(out.kind(11).bytes(path)),
            Record::DirectoryRemoved { path } => drop(out.kind(12).bytes(path)),
            Record::Unseen { path } => drop(out.kind(13).bytes(path)),
        }
        let len = (journal.len() - start - 4) as u32;
        journal[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Returns the first record of `journal` and the rest; `None` if there is no complete record.
    pub fn decode(journal: &[u8]) -> Option<(Record, &[u8])> {
        let (len, rest) = journal.split_first_chunk()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (kind, fields) = body.split_first()?;
        let mut fields = Reader(fields);
        let record = fields.record(*kind)?;
        fields.0.is_empty().then_some((record, rest))
    }

    /// Returns all complete records of `journal`.
    pub fn all(mut journal: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        while let Some((record, rest)) = Record::decode(journal) {
            records.push(record);
            journal = rest;
        }
        records
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.0.push(kind);
        self
    }

    fn file(&mut self, file: u32) -> &mut Self {
        self.0.extend_from_slice(&file.to_le_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.file(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn file(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.file()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn record(&mut self, kind: u8) -> Option<Record> {
        Some(match kind {
            1 => Record::File {
                file: self.file()?,
                inode: (self.number()?, self.number()?),
            },
            2 => Record::Written {
                file: self.file()?,
                offset: self.number()?,
                len: self.number()?,
                old_size: self.number()?,
                old: self.bytes()?,
            },
            3 => Record::Resized {
                file: self.file()?,
                old_size: self.number()?,
                new_size: self.number()?,
                old: self.bytes()?,
            },
            4 => Record::Synced {
                file: self.file()?,
                data: self.number()?,
                names: self.number()?,
            },
            5 => Record::WrittenThrough {
                record: self.number()?,
            },
            6 => Record::NamesSynced {
                names: self.number()?,
            },
            7 => Record::AllSynced {
                all: self.number()?,
            },
            8 => Record::Appeared {
                path: self.bytes()?,
            },
            9 => Record::Removed {
                path: self.bytes()?,
                kept: self.bytes()?,
            },
            10 => Record::Renamed {
                from: self.bytes()?,
                to: self.bytes()?,
                kept: self.bytes()?,
            },
            11 => Record::DirectoryMade {
                path: self.bytes()?,
            },
            12 => Record::DirectoryRemoved {
                path: self.bytes()?,
            },
            13 => Record::Unseen {
                path: self.bytes()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Record> {
        let (path, kept) = (b"/d/a".to_vec(), b"/k/0".to_vec());
        vec![
            Record::File {
                file: 1,
                inode: (2, 3),
            },
            Record::Written {
                file: 1,
                offset: 4,
                len: 5,
                old_size: 6,
                old: vec![7, 8],
            },
            Record::Resized {
                file: 1,
                old_size: 9,
                new_size: 8,
                old: vec![1],
            },
            Record::Synced {
                file: 1,
                data: 2,
                names: 3,
            },
            Record::WrittenThrough { record: 4 },
            Record::NamesSynced { names: 5 },
            Record::AllSynced { all: 6 },
            Record::Appeared { path: path.clone() },
            Record::Removed {
                path: path.clone(),
                kept: kept.clone(),
            },
            Record::Renamed {
                from: path.clone(),
                to: b"/d/b".to_vec(),
                kept,
            },
            Record::DirectoryMade { path: path.clone() },
            Record::DirectoryRemoved { path: path.clone() },
            Record::Unseen { path },
        ]
    }

    #[test]
    fn a_journal_gives_back_its_records() {
        let mut journal = Vec::new();
        for record in one_of_each() {
            record.encode(&mut journal);
        }
        assert_eq!(Record::all(&journal), one_of_each());
    }

    #[test]
    fn a_journal_ends_at_a_record_that_is_not_whole() {
        let mut journal = Vec::new();
        for record in one_of_each() {
            record.encode(&mut journal);
        }
        let mut whole = 0;
        for end in 0..=journal.len() {
            let records = Record::all(&journal[..end]);
            assert!(records.len() == whole || records.len() == whole + 1);
            whole = records.len();
            assert_eq!(records, one_of_each()[..whole]);
        }
        assert_eq!(whole, one_of_each().len());
    }

    #[test]
    fn bytes_after_the_fields_are_no_record() {
        let mut journal = Vec::new();
        Record::AllSynced { all: 1 }.encode(&mut journal);
        journal[0] += 1;
        journal.push(0);
        assert_eq!(Record::all(&journal), []);
    }
}
