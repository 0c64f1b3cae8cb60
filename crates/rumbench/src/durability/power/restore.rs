//! Undoes lost changes in the files that a killed process left.
//!
//! Data comes first, by inode, because names change; then names, from the newest change to the
//! oldest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rumbench_core::undo::Record;
use serde::Serialize;

use super::fate::{Fate, SECTOR, sectors};

/// Losses of all power losses of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Bytes that the engine wrote, as the library saw them.
    pub bytes_seen: u64,
    /// Bytes that the kernel counted but the library did not see, reports to the laboratory
    /// excluded.
    pub bytes_unseen: u64,
    /// Number of writes that lost at least one sector.
    pub writes: u64,
    /// Number of changes of names undone.
    pub names: u64,
    /// Files changed in ways that the library cannot see.
    pub unseen_files: Vec<String>,
}

impl Lost {
    /// Adds the losses of another power loss.
    pub fn add(&mut self, other: Lost) {
        self.bytes_seen += other.bytes_seen;
        self.bytes_unseen += other.bytes_unseen;
        self.writes += other.writes;
        self.names += other.names;
        self.unseen_files.extend(other.unseen_files);
        self.unseen_files.sort();
        self.unseen_files.dedup();
    }
}

/// Applies `fate` to the files below `directories`.
///
/// # Errors
/// Fails if a file cannot be read, written or renamed.
pub fn restore(records: &[Record], fate: &Fate, directories: &[&Path]) -> Result<Lost> {
    let mut files = Files::find(records, directories)?;
    let mut lost = Lost::default();
    for (number, record) in numbered(records).rev() {
        match record {
            Record::Written { len, .. } => {
                lost.bytes_seen += len;
                lost.writes += u64::from(files.take_back(number, record, fate)?);
            }
            Record::Resized { .. } => drop(files.take_back(number, record, fate)?),
            Record::Unseen { path } => {
                lost.unseen_files
                    .push(String::from_utf8_lossy(path).into_owned());
            }
            _ => {}
        }
    }
    files.set_sizes()?;
    for (number, record) in numbered(records).rev() {
        if record.changes_names() && number >= fate.names_from {
            undo_name(record).with_context(|| format!("cannot undo {record:?}"))?;
            lost.names += 1;
        }
    }
    Ok(lost)
}

fn numbered(records: &[Record]) -> impl DoubleEndedIterator<Item = (u64, &Record)> {
    let records = records.iter().enumerate();
    records.map(|(number, record)| (number as u64, record))
}

/// Files of a journal that still exist under some name.
struct Files {
    paths: HashMap<u32, PathBuf>,
    open: HashMap<u32, Patched>,
}

struct Patched {
    file: File,
    /// Size after the power loss.
    size: u64,
}

impl Files {
    fn find(records: &[Record], directories: &[&Path]) -> Result<Files> {
        let mut inodes = HashMap::new();
        for directory in directories {
            walk(directory, &mut inodes)?;
        }
        let paths = records.iter().filter_map(|record| match record {
            Record::File { file, inode } => Some((*file, inodes.get(inode)?.clone())),
            _ => None,
        });
        Ok(Files {
            paths: paths.collect(),
            open: HashMap::new(),
        })
    }

    fn file(&mut self, file: u32) -> Result<Option<&mut Patched>> {
        let Some(path) = self.paths.get(&file) else {
            return Ok(None);
        };
        match self.open.entry(file) {
            Entry::Occupied(entry) => Ok(Some(entry.into_mut())),
            Entry::Vacant(entry) => {
                let opened = OpenOptions::new().write(true).open(path);
                let opened = opened.with_context(|| format!("cannot open {}", path.display()))?;
                let patched = Patched {
                    size: opened.metadata()?.len(),
                    file: opened,
                };
                Ok(Some(entry.insert(patched)))
            }
        }
    }

    /// Undoes the lost part of one record; returns true if any sector of a write was lost.
    fn take_back(&mut self, number: u64, record: &Record, fate: &Fate) -> Result<bool> {
        match record {
            Record::Written {
                file,
                offset,
                len,
                old_size,
                old,
            } => {
                if offset + len > *old_size && number >= fate.size_from(*file) {
                    self.resize(*file, *old_size)?;
                }
                let lost = sectors(*offset, *len).filter(|s| number >= fate.sector_from(*file, *s));
                let mut any = false;
                for sector in lost {
                    any = true;
                    let start = (sector * SECTOR).max(*offset);
                    let end = ((sector + 1) * SECTOR).min(offset + len);
                    self.put_back(*file, start..end, *offset, old)?;
                }
                Ok(any)
            }
            Record::Resized {
                file,
                old_size,
                new_size,
                old,
            } if number >= fate.size_from(*file) => {
                self.put_back(*file, *new_size..*old_size, *new_size, old)?;
                self.resize(*file, *old_size)?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Restores the bytes of a range; `old` begins at `base`, and bytes after its end are zeros.
    fn put_back(&mut self, file: u32, range: Range<u64>, base: u64, old: &[u8]) -> Result<()> {
        let Some(patched) = self.file(file)? else {
            return Ok(());
        };
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(1 << 20) as usize;
            let known = old.get((at - base) as usize..).unwrap_or_default();
            let known = &known[..known.len().min(len)];
            let mut bytes = known.to_vec();
            bytes.resize(len, 0);
            patched.file.write_all_at(&bytes, at)?;
            at += len as u64;
        }
        Ok(())
    }

    fn resize(&mut self, file: u32, size: u64) -> Result<()> {
        if let Some(patched) = self.file(file)? {
            patched.size = size;
        }
        Ok(())
    }

    fn set_sizes(&self) -> Result<()> {
        for patched in self.open.values() {
            patched.file.set_len(patched.size)?;
        }
        Ok(())
    }
}

fn walk(directory: &Path, inodes: &mut HashMap<(u64, u64), PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            walk(&path, inodes)?;
        } else {
            inodes.insert((metadata.dev(), metadata.ino()), path);
        }
    }
    Ok(())
}

fn undo_name(record: &Record) -> std::io::Result<()> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    match record {
        // The process may have removed the file in a way that the library did not see.
        Record::Appeared { path: new } => match fs::remove_file(path(new)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        },
        Record::Removed { path: old, kept } if !kept.is_empty() => {
            fs::rename(path(kept), path(old))
        }
        Record::Renamed { from, to, kept } => {
            fs::rename(path(to), path(from))?;
            if kept.is_empty() {
                Ok(())
            } else {
                fs::rename(path(kept), path(to))
            }
        }
        Record::DirectoryMade { path: new } => fs::remove_dir_all(path(new)),
        Record::DirectoryRemoved { path: old } => fs::create_dir(path(old)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A synced file of two sectors; then the second sector was written twice, one was added, and
    /// the file was renamed.
    fn history(directory: &Path) -> Vec<Record> {
        let (old, new) = (directory.join("a"), directory.join("b"));
        let content = [[1; 512], [4; 512], [5; 512]].concat();
        fs::write(&new, content).unwrap();
        let metadata = fs::metadata(&new).unwrap();
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let written = |offset, old_size, old: &[u8]| Record::Written {
            file: 0,
            offset,
            len: 512,
            old_size,
            old: old.to_vec(),
        };
        vec![
            Record::File {
                file: 0,
                inode: (metadata.dev(), metadata.ino()),
            },
            Record::Synced {
                file: 0,
                data: 1,
                names: 0,
            },
            written(512, 1024, &[2; 512]),
            written(512, 1024, &[3; 512]),
            written(1024, 1024, &[]),
            Record::Renamed {
                from: bytes(&old),
                to: bytes(&new),
                kept: Vec::new(),
            },
        ]
    }

    #[test]
    fn every_state_since_the_last_sync_comes_up_and_no_other() {
        let (mut states, mut names) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..3000 {
            let folder = tempfile::tempdir().unwrap();
            let records = history(folder.path());
            restore(&records, &Fate::new(&records, seed), &[folder.path()]).unwrap();
            let renamed = folder.path().join("b");
            let is_renamed = renamed.exists();
            let path = if is_renamed {
                renamed
            } else {
                folder.path().join("a")
            };
            let content = fs::read(path).unwrap();
            assert!(content.len().is_multiple_of(512));
            let sectors: Vec<u8> = content.chunks(512).map(|sector| sector[0]).collect();
            assert!(
                content
                    .chunks(512)
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
            states.insert(sectors);
            names.insert(is_renamed);
        }
        let wanted: [&[u8]; 9] = [
            &[1, 2],
            &[1, 2, 0],
            &[1, 2, 5],
            &[1, 3],
            &[1, 3, 0],
            &[1, 3, 5],
            &[1, 4],
            &[1, 4, 0],
            &[1, 4, 5],
        ];
        assert!(states.iter().eq(wanted));
        assert_eq!(names, [false, true].into());
    }

    #[test]
    fn removed_and_replaced_files_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let bytes = |name: &str| at(name).as_os_str().as_bytes().to_vec();
        for name in ["new", "kept0", "kept1"] {
            fs::write(at(name), name).unwrap();
        }
        let records = [
            Record::Renamed {
                from: bytes("temporary"),
                to: bytes("new"),
                kept: bytes("kept0"),
            },
            Record::Removed {
                path: bytes("gone"),
                kept: bytes("kept1"),
            },
        ];
        let everything = (0..).map(|seed| Fate::new(&records, seed));
        let fate = everything
            .into_iter()
            .find(|fate| fate.names_from == 0)
            .unwrap();
        let lost = restore(&records, &fate, &[folder.path()]).unwrap();
        assert_eq!(lost.names, 2);
        for (name, content) in [("temporary", "new"), ("new", "kept0"), ("gone", "kept1")] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), content);
        }
    }
}
