//! Possible contents of the device when the power fails after a change of a trace.
//!
//! The model is that of `docs/format/files.md`. It is a second implementation, so that a mistake in
//! [`MemVfs`]'s own crash hides nothing: sectors of 512 bytes are atomic, and any subset of
//! unsynced changes survives, names and contents independently.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::vfs::{MemVfs, Vfs};
use alluvium_testkit::random::Rng;

use super::trace::{Event, FileId, NameChange, moved};

const SECTOR_BYTES: u64 = 512;
type Sector = [u8; SECTOR_BYTES as usize];

/// The bytes of a file. Missing sectors are zeros.
#[derive(Debug, Clone, Default)]
pub struct Content {
    sectors: BTreeMap<u64, Arc<Sector>>,
    len: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Resize { len: u64 },
}

#[derive(Debug, Clone, Default)]
struct File {
    synced: Arc<Content>,
    current: Arc<Content>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone, Default)]
struct Names {
    files: BTreeMap<PathBuf, FileId>,
    dirs: BTreeSet<PathBuf>,
}

/// A device after some changes: the durable state and the unsynced changes.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    files: Vec<File>,
    durable: Names,
    unsynced: Vec<NameChange>,
}

/// The surviving part of the last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Whole,
    /// This many of its sectors from the front.
    First(u64),
    /// All of its sectors but this one.
    Without(u64),
}

/// Survival of the unsynced writes before the last one. A file has one of the lengths that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    Kept,
    Lost,
    /// Each sector has one of its states, and the file one of its lengths.
    Random(u64),
}

/// One way to lose power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub last: Last,
    pub earlier: Earlier,
    /// Bit n is set if the n-th unsynced change of names survives. Changes from number 64 on all
    /// survive.
    pub names: u64,
}

impl Cut {
    /// Returns true if the machine has lost nothing that it received before the last call.
    pub fn is_kill(&self) -> bool {
        self.earlier == Earlier::Kept && self.names == u64::MAX
    }
}

/// Files and directories that a restarted machine finds.
#[derive(Debug, Clone)]
pub struct Image {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<Content>>,
}

/// Calls `visit(number of the sector, offset in it, range of the bytes)`.
fn for_each_sector(
    offset: u64,
    len: usize,
    mut visit: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % SECTOR_BYTES) as usize;
        let piece = (len - done).min(SECTOR_BYTES as usize - within);
        visit(at / SECTOR_BYTES, within, done..done + piece);
        done += piece;
    }
}

/// Returns the number of sectors that a write touches.
fn sectors(offset: u64, len: usize) -> u64 {
    let mut count = 0;
    for_each_sector(offset, len, |_, _, _| count += 1);
    count
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.write_sectors(offset, bytes, |_, _| true);
    }

    /// Writes the sectors for which `keep(n-th of the write, number in the file)` returns true.
    fn write_sectors(&mut self, offset: u64, bytes: &[u8], mut keep: impl FnMut(u64, u64) -> bool) {
        let mut nth = 0;
        for_each_sector(offset, bytes.len(), |sector, within, range| {
            if keep(nth, sector) {
                let stored = self
                    .sectors
                    .entry(sector)
                    .or_insert_with(|| Arc::new([0; 512]));
                let end = offset + range.end as u64;
                Arc::make_mut(stored)[within..within + range.len()].copy_from_slice(&bytes[range]);
                self.len = self.len.max(end);
            }
            nth += 1;
        });
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.sectors.split_off(&len.div_ceil(SECTOR_BYTES)));
            if let Some(sector) = self.sectors.get_mut(&(len / SECTOR_BYTES)) {
                Arc::make_mut(sector)[(len % SECTOR_BYTES) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Resize { len } => self.set_len(*len),
        }
    }
}

impl File {
    fn change(&mut self, change: Change) {
        Arc::make_mut(&mut self.current).apply(&change);
        self.unsynced.push(change);
    }

    /// Returns the surviving content before the last write, and its possible lengths.
    fn after(&self, earlier: Earlier) -> (Arc<Content>, Vec<u64>) {
        match earlier {
            _ if self.unsynced.is_empty() => (Arc::clone(&self.current), vec![self.current.len]),
            Earlier::Kept => (Arc::clone(&self.current), vec![self.current.len]),
            Earlier::Lost => (Arc::clone(&self.synced), vec![self.synced.len]),
            Earlier::Random(seed) => self.any_subset(seed),
        }
    }

    fn any_subset(&self, seed: u64) -> (Arc<Content>, Vec<u64>) {
        let mut rng = Rng::new(seed);
        let lost_percent = *rng.pick(&[5, 30, 60, 95]);
        let mut content = (*self.synced).clone();
        let mut lens = vec![content.len];
        // A sector that has missed a change misses the later ones too, so it has one of its states.
        let mut behind = BTreeSet::new();
        for change in &self.unsynced {
            let len = lens[lens.len() - 1];
            match change {
                Change::Write { offset, bytes } => {
                    content.write_sectors(*offset, bytes, |_, sector| {
                        if rng.percent(lost_percent) {
                            behind.insert(sector);
                        }
                        !behind.contains(&sector)
                    });
                    lens.push(len.max(offset + bytes.len() as u64));
                }
                Change::Resize { len } => {
                    content.set_len(*len);
                    lens.push(*len);
                }
            }
        }
        (Arc::new(content), lens)
    }
}

impl Names {
    fn apply(&mut self, change: &NameChange) {
        match change.clone() {
            NameChange::Add { path, file } => drop(self.files.insert(path, file)),
            NameChange::Remove { path } => drop(self.files.remove(&path)),
            NameChange::Rename { from, to, file } => {
                self.files.remove(&from);
                self.files.insert(to, file);
            }
            NameChange::MakeDir { path } => drop(self.dirs.insert(path)),
            NameChange::RemoveDir { path } => drop(self.dirs.remove(&path)),
            NameChange::RenameDir { from, to } => {
                let dirs = std::mem::take(&mut self.dirs);
                self.dirs = dirs.iter().map(|dir| moved(dir, &from, &to)).collect();
                let files = std::mem::take(&mut self.files).into_iter();
                self.files = files
                    .map(|(path, file)| (moved(&path, &from, &to), file))
                    .collect();
            }
        }
    }

    /// Removes the contents of directories that do not exist.
    fn drop_orphans(&mut self) {
        let all = self.dirs.clone();
        let root = Path::new("");
        let reachable = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.all(|dir| dir == root || all.contains(dir))
        };
        self.dirs.retain(|dir| reachable(dir));
        self.files.retain(|path, _| reachable(path));
    }
}

fn dir_of(change: &NameChange) -> &Path {
    let path = match change {
        NameChange::Add { path, .. }
        | NameChange::Remove { path }
        | NameChange::MakeDir { path }
        | NameChange::RemoveDir { path }
        | NameChange::RenameDir { to: path, .. }
        | NameChange::Rename { to: path, .. } => path,
    };
    path.parent().unwrap_or(Path::new(""))
}

impl Disk {
    /// Returns a device that holds an image, all of it durable, and the numbers of its files.
    pub fn of(image: &Image) -> (Disk, BTreeMap<PathBuf, FileId>) {
        let (mut disk, mut names) = (Disk::default(), BTreeMap::new());
        disk.durable.dirs.clone_from(&image.dirs);
        for (path, content) in &image.files {
            names.insert(path.clone(), disk.files.len());
            let (synced, current) = (Arc::clone(content), Arc::clone(content));
            let unsynced = Vec::new();
            disk.files.push(File {
                synced,
                current,
                unsynced,
            });
        }
        disk.durable.files.clone_from(&names);
        (disk, names)
    }

    fn file(&mut self, file: FileId) -> &mut File {
        if self.files.len() <= file {
            self.files.resize_with(file + 1, File::default);
        }
        &mut self.files[file]
    }

    pub fn apply<N>(&mut self, event: &Event<N>) {
        match event {
            Event::Name(change) => self.unsynced.push(change.clone()),
            Event::Write {
                file,
                offset,
                bytes,
            } => {
                let (offset, bytes) = (*offset, Arc::clone(bytes));
                self.file(*file).change(Change::Write { offset, bytes });
            }
            Event::Resize { file, len } => self.file(*file).change(Change::Resize { len: *len }),
            Event::Sync { file } => {
                let file = self.file(*file);
                file.synced = Arc::clone(&file.current);
                file.unsynced.clear();
            }
            Event::SyncDir { dir } => self.sync_dir(dir),
            Event::Note(_) => {}
        }
    }

    fn sync_dir(&mut self, dir: &Path) {
        let mut left: Vec<NameChange> = Vec::new();
        for change in std::mem::take(&mut self.unsynced) {
            if dir_of(&change) == dir {
                self.durable.apply(&change);
            } else {
                left.push(change);
            }
        }
        self.unsynced = left;
    }

    /// Returns the ways to lose power right after `event`, which has not been applied yet. `seed`
    /// chooses among them if there are too many to try all.
    pub fn cuts<N>(&self, event: &Event<N>, seed: u64) -> Vec<Cut> {
        let mut lasts = vec![Last::Whole];
        if let Event::Write { offset, bytes, .. } = event {
            let count = sectors(*offset, bytes.len());
            lasts.extend((1..count).map(Last::First));
            lasts.extend((0..count.saturating_sub(1)).map(Last::Without));
        }
        let changes = self.unsynced.len() + usize::from(matches!(event, Event::Name(_)));
        let dirty = self.files.iter().any(|file| !file.unsynced.is_empty());
        let mut cuts = Vec::new();
        for last in lasts {
            for names in subsets(changes, seed) {
                for earlier in [Earlier::Kept, Earlier::Lost, Earlier::Random(seed)] {
                    if dirty || earlier == Earlier::Kept {
                        cuts.push(Cut {
                            last,
                            earlier,
                            names,
                        });
                    }
                }
            }
        }
        cuts
    }

    /// Returns the image after the changes so far and `event`, which has not been applied yet.
    pub fn image<N>(&self, event: &Event<N>, cut: &Cut) -> Image {
        let mut names = self.durable.clone();
        let last_name = match event {
            Event::Name(change) => Some(change),
            _ => None,
        };
        for (nth, change) in self.unsynced.iter().chain(last_name).enumerate() {
            if nth >= 64 || cut.names >> nth & 1 == 1 {
                names.apply(change);
            }
        }
        names.drop_orphans();
        let mut known: BTreeMap<FileId, Arc<Content>> = BTreeMap::new();
        let files = names.files.into_iter().map(|(path, file)| {
            let content = known
                .entry(file)
                .or_insert_with(|| self.content(file, event, cut));
            (path, Arc::clone(content))
        });
        let files = files.collect();
        Image {
            dirs: names.dirs,
            files,
        }
    }

    fn content<N>(&self, file: FileId, event: &Event<N>, cut: &Cut) -> Arc<Content> {
        let missing = File::default();
        let known = self.files.get(file).unwrap_or(&missing);
        let (mut content, mut lens) = known.after(cut.earlier);
        match event {
            Event::Sync { file: synced } if *synced == file => return Arc::clone(&known.current),
            Event::Write {
                file: to,
                offset,
                bytes,
            } if *to == file => {
                let content = Arc::make_mut(&mut content);
                content.write_sectors(*offset, bytes, |nth, _| match cut.last {
                    Last::Whole => true,
                    Last::First(count) => nth < count,
                    Last::Without(missing) => nth != missing,
                });
                let whole = known.current.len.max(offset + bytes.len() as u64);
                match cut.earlier {
                    // A process may be killed in the middle of a write.
                    Earlier::Kept => lens = vec![content.len],
                    Earlier::Lost => lens = vec![whole],
                    Earlier::Random(_) => lens.push(whole),
                }
            }
            Event::Resize { file: resized, len } if *resized == file => match cut.earlier {
                Earlier::Kept => lens = vec![*len],
                _ => lens.push(*len),
            },
            _ => {}
        }
        let len = lens[self.choice(cut, lens.len())];
        if len != content.len {
            Arc::make_mut(&mut content).set_len(len);
        }
        content
    }

    /// Returns one of some possibilities, always the same for a cut.
    fn choice(&self, cut: &Cut, among: usize) -> usize {
        match cut.earlier {
            Earlier::Random(seed) => Rng::new(!seed).below(among),
            _ => 0,
        }
    }
}

/// Returns the surviving subsets of some changes of names: every subset of a few, otherwise all,
/// none, all but one, and some others.
fn subsets(changes: usize, seed: u64) -> Vec<u64> {
    const ALL_SUBSETS_OF: usize = 4;
    if changes <= ALL_SUBSETS_OF {
        let above = u64::MAX << changes;
        return (0..1 << changes).map(|mask| mask | above).collect();
    }
    let mut rng = Rng::new(seed);
    let mut masks = vec![u64::MAX, 0];
    masks.extend((0..changes.min(64)).map(|nth| !(1 << nth)));
    masks.extend((0..8).map(|_| rng.next_u64()));
    masks
}

impl Image {
    /// Returns the hash of everything that the engine sees: two images with one hash count as the
    /// same.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.dirs.hash(&mut hasher);
        for (path, content) in &self.files {
            (path, content.len).hash(&mut hasher);
            for (number, sector) in &content.sectors {
                if **sector != [0; SECTOR_BYTES as usize] {
                    (number, &sector[..]).hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Returns a file system that holds the image, all of it durable.
    pub fn to_vfs(&self) -> MemVfs {
        let vfs = MemVfs::new();
        for dir in &self.dirs {
            vfs.create_dir_all(dir).expect("a directory");
        }
        for (path, content) in &self.files {
            let file = vfs.create(path).expect("a new file");
            for (sector, bytes) in &content.sectors {
                let at = sector * SECTOR_BYTES;
                let bytes = &bytes[..(content.len.saturating_sub(at)).min(SECTOR_BYTES) as usize];
                file.write_at(bytes, at).expect("room");
            }
            file.truncate(content.len).expect("room");
            file.sync().expect("a sync");
        }
        for dir in self
            .dirs
            .iter()
            .map(PathBuf::as_path)
            .chain([Path::new("")])
        {
            vfs.sync_dir(dir).expect("a directory");
        }
        vfs
    }
}
