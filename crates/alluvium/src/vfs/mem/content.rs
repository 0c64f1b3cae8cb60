//! Bytes of one in-memory file: the synced state, the current state, and the changes between the
//! two.
//!
//! Content is sparse, so a log segment of 64 MiB uses only the memory of the bytes written to it. A
//! crash decides for every 512-byte sector how many of its unsynced changes reached the device, and
//! separately which unsynced length did.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::random::SplitMix;

const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// Part of the unsynced state that a crash keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the device had written none of it.
    Nothing,
    /// Everything: only the process died.
    Everything,
    /// A subset chosen by the seed.
    Random,
}

/// Sparse bytes with a length.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>,
    len: u64,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for_each_piece(offset, buf.len(), PAGE_BYTES, |page, at, range| {
            let piece = &mut buf[range];
            match self.pages.get(&page) {
                Some(bytes) => piece.copy_from_slice(&bytes[at..at + piece.len()]),
                None => piece.fill(0),
            }
        });
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        for_each_piece(offset, bytes.len(), PAGE_BYTES, |page, at, range| {
            let piece = &bytes[range];
            let stored = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
            stored[at..at + piece.len()].copy_from_slice(piece);
        });
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE_BYTES));
            if let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES)) {
                page[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Calls `visit(unit, offset in the unit, range of the buffer)` for every unit that `len` bytes at
/// `offset` touch.
fn for_each_piece(
    offset: u64,
    len: usize,
    unit_bytes: u64,
    mut visit: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let position = offset + done as u64;
        let at = position % unit_bytes;
        let piece = (len - done).min((unit_bytes - at) as usize);
        visit(position / unit_bytes, at as usize, done..done + piece);
        done += piece;
    }
}

/// One change since the last sync.
#[derive(Debug, Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Resize { len: u64 },
}

/// Space of the whole file system, accounted by file length.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) capacity: AtomicU64,
    pub(super) used: AtomicU64,
}

impl Space {
    pub(super) fn new(capacity: u64) -> Arc<Space> {
        Arc::new(Space {
            capacity: AtomicU64::new(capacity),
            used: AtomicU64::new(0),
        })
    }

    pub(super) fn free(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        self.capacity.load(Ordering::Relaxed).saturating_sub(used)
    }
}

/// File without its names. Its space is freed when the last name, open file and undecided change
/// are gone.
#[derive(Debug)]
pub(super) struct Inode {
    synced: Content,
    current: Content,
    unsynced: Vec<Change>,
    space: Arc<Space>,
}

impl Inode {
    pub(super) fn new(content: Content, space: &Arc<Space>) -> Inode {
        space.used.fetch_add(content.len, Ordering::Relaxed);
        Inode {
            synced: content.clone(),
            current: content,
            unsynced: Vec::new(),
            space: Arc::clone(space),
        }
    }

    pub(super) fn current(&self) -> &Content {
        &self.current
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(io::ErrorKind::InvalidInput)?;
        self.charge(end.max(self.current.len))?;
        self.current.write(bytes, offset);
        self.unsynced.push(Change::Write {
            offset,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    pub(super) fn resize(&mut self, len: u64) -> io::Result<()> {
        if len == self.current.len {
            return Ok(());
        }
        self.charge(len)?;
        self.current.set_len(len);
        self.unsynced.push(Change::Resize { len });
        Ok(())
    }

    fn charge(&mut self, len: u64) -> io::Result<()> {
        let old = self.current.len;
        if len > old {
            if len - old > self.space.free() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.space.used.fetch_add(len - old, Ordering::Relaxed);
        } else {
            self.space.used.fetch_sub(old - len, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write { offset, bytes } => self.synced.write(&bytes, offset),
                Change::Resize { len } => self.synced.set_len(len),
            }
        }
    }

    /// Returns the content of the device after a crash.
    pub(super) fn after_crash(&self, keep: Keep, random: &mut SplitMix) -> Content {
        match keep {
            Keep::Nothing => self.synced.clone(),
            Keep::Everything => self.current.clone(),
            Keep::Random => self.any_subset(random),
        }
    }

    fn any_subset(&self, random: &mut SplitMix) -> Content {
        let (lengths, changes_of_sector) = self.unsynced_effects();
        let len = lengths[random.below(lengths.len() as u64) as usize];
        // Some crashes lose little and some lose nearly everything: each kind finds different bugs.
        let loss_percent = [5, 30, 60, 95][random.below(4) as usize];
        let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
        for (&sector, &changes) in &changes_of_sector {
            let lost = random.chance(loss_percent);
            let count = if lost { random.below(changes) } else { changes };
            kept.insert(sector, count);
        }
        let mut content = self.synced.clone();
        let mut old_len = self.synced.len;
        for change in &self.unsynced {
            change.for_each_sector(&mut old_len, |sector, offset, piece| {
                let left = kept.entry(sector).or_default();
                if *left > 0 {
                    *left -= 1;
                    content.write(piece, offset);
                }
            });
        }
        content.set_len(len);
        content
    }

    /// Returns every length that the file may have after a crash, and the number of unsynced
    /// changes of each sector.
    fn unsynced_effects(&self) -> (Vec<u64>, BTreeMap<u64, u64>) {
        let mut lengths = vec![self.synced.len];
        let mut changes_of_sector = BTreeMap::new();
        let mut len = self.synced.len;
        for change in &self.unsynced {
            change.for_each_sector(&mut len, |sector, _, _| {
                *changes_of_sector.entry(sector).or_default() += 1;
            });
            if lengths.last() != Some(&len) {
                lengths.push(len);
            }
        }
        (lengths, changes_of_sector)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.space
            .used
            .fetch_sub(self.current.len, Ordering::Relaxed);
    }
}

impl Change {
    /// Calls `visit(sector, offset, bytes)` for every sector that the change alters. `len` is the
    /// file's length before the change, and is updated to the length after it. Truncating a file
    /// zeroes the bytes after the cut.
    fn for_each_sector(&self, len: &mut u64, mut visit: impl FnMut(u64, u64, &[u8])) {
        const ZEROS: [u8; SECTOR_BYTES as usize] = [0; SECTOR_BYTES as usize];
        match self {
            Change::Write { offset, bytes } => {
                for_each_piece(*offset, bytes.len(), SECTOR_BYTES, |sector, at, range| {
                    visit(sector, sector * SECTOR_BYTES + at as u64, &bytes[range]);
                });
                *len = (*len).max(offset + bytes.len() as u64);
            }
            Change::Resize { len: new } => {
                let cut = len.saturating_sub(*new) as usize;
                for_each_piece(*new, cut, SECTOR_BYTES, |sector, at, range| {
                    let offset = sector * SECTOR_BYTES + at as u64;
                    visit(sector, offset, &ZEROS[..range.len()]);
                });
                *len = *new;
            }
        }
    }
}
