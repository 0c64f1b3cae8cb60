//! Flips of every bit of every kind of file: an open, a read or a verification finds it and names
//! the file, and no read ever returns it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium_testkit::Sample;

use super::damaged::{Disk, Found, Subject, subjects};
use super::figures::report;
use super::judge::Verdict;

/// A file under test, and its bits.
struct Target<'a> {
    subject: &'a Subject,
    path: PathBuf,
    /// Bytes with content. After them are the zeros of a file that was allocated before it is
    /// filled.
    used: u64,
    len: u64,
}

/// Length of a frame without a payload.
const MARK_BYTES: u64 = 40;
/// Length of the last commit's record in the log that was not closed.
const LAST_RECORD_BYTES: u64 = 64;

/// One bit in this many is flipped in the zeros after records and edits.
const ZEROS_STRIDE: u64 = 16_411;

impl Target<'_> {
    fn bits(&self) -> impl Iterator<Item = u64> {
        let zeros = self.used * 8..self.len * 8;
        (0..self.used * 8).chain(zeros.step_by(ZEROS_STRIDE as usize))
    }

    /// Returns the extension of the file, or the name of a file without one.
    fn extension(&self) -> String {
        let extension = self.path.extension().or(self.path.file_name());
        let extension = extension.map(|e| e.to_string_lossy().into_owned());
        extension.unwrap_or_default()
    }

    fn kind(&self, bit: u64) -> String {
        let kind = self.extension();
        if bit / 8 < self.used {
            kind
        } else {
            format!("{kind}, zeros behind the last one")
        }
    }

    /// Accepts a documented result and rejects any other.
    fn judge(&self, bit: u64, found: Found) -> Verdict<Found> {
        let byte = bit / 8;
        let log = self.extension() == "wal";
        let left_open = self.subject.without_last.is_some();
        let from_end = self.used.saturating_sub(byte);
        match found {
            Found::Nothing if byte >= self.used => Ok(found),
            Found::Nothing
                if from_end <= MARK_BYTES
                    && (self.extension() == "manifest" || log && !left_open) =>
            {
                Ok(Found::LastMark)
            }
            Found::Nothing => Err("nobody noticed".into()),
            Found::TornTail if !log || from_end > LAST_RECORD_BYTES => {
                Err("a commit that was known to be durable is gone".into())
            }
            found => Ok(found),
        }
    }
}

fn targets(disk: &Disk) -> Vec<Target<'_>> {
    let mut targets = Vec::new();
    for subject in &disk.subjects {
        for dir in [subject.dir.clone(), subject.dir.join("tables")] {
            let Ok(mut names) = disk.vfs.list(&dir) else {
                continue;
            };
            names.retain(|name| !subject.unnamed.contains(name));
            names.sort();
            for path in names.iter().map(|name| dir.join(name)) {
                let Ok(file) = disk.vfs.open_read(&path) else {
                    continue;
                };
                let len = file.len().expect("length");
                let mut bytes = vec![0; len as usize];
                file.read_at(&mut bytes, 0).expect("read");
                // The ballast file has only zeros.
                let allocated = ["wal", "manifest", "ballast"].map(Some);
                let extension = path.extension().or(path.file_name());
                let extension = extension.map(|e| e.to_string_lossy());
                let used = if allocated.contains(&extension.as_deref()) {
                    // Records end at a multiple of 8, with zeros.
                    let last = bytes.iter().rposition(|byte| *byte != 0);
                    (last.map_or(0, |last| last as u64 + 1)).next_multiple_of(8)
                } else {
                    len
                };
                targets.push(Target {
                    subject,
                    path,
                    used,
                    len,
                });
            }
        }
    }
    targets
}

fn flip(vfs: &MemVfs, path: &Path, bit: u64) {
    let file = vfs.open(path).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, bit / 8).expect("read");
    byte[0] ^= 1 << (bit % 8);
    file.write_at(&byte, bit / 8).expect("write");
}

/// Number of bits found in each way, for each kind of file.
type Tally = BTreeMap<String, BTreeMap<Found, u64>>;

/// Threads that share the bits.
const WORKERS: u64 = 3;

struct Flips<'a> {
    targets: &'a [Target<'a>],
    sample: &'a Sample,
    tally: Mutex<Tally>,
    /// Places with another result than finding the damage.
    wrong: Mutex<Vec<String>>,
}

impl Flips<'_> {
    /// Flips the bits of one worker, on its own copy of the files.
    fn work(&self, worker: u64, vfs: &MemVfs) {
        let bits = |target| Target::bits(target).map(move |bit| (target, bit));
        let cases = (0..).zip(self.targets.iter().flat_map(bits));
        let mine = cases.filter(|(case, _)| case % WORKERS == worker && self.sample.takes(*case));
        for (_, (target, bit)) in mine {
            flip(vfs, &target.path, bit);
            let found = target.subject.look(vfs, &target.path);
            flip(vfs, &target.path, bit);
            self.note(target, bit, found);
        }
    }

    fn note(&self, target: &Target<'_>, bit: u64, found: Verdict<Found>) {
        let place = || {
            let path = target.path.display();
            format!(
                "{path} ({} bytes), byte {}, bit {}",
                target.len,
                bit / 8,
                bit % 8
            )
        };
        match found.and_then(|found| target.judge(bit, found)) {
            Err(why) => self
                .wrong
                .lock()
                .expect("no panic")
                .push(format!("{}: {why}", place())),
            Ok(found) => {
                let mut tally = self.tally.lock().expect("no panic");
                let ways = tally.entry(target.kind(bit)).or_default();
                *ways.entry(found).or_default() += 1;
            }
        }
    }
}

fn shown(tally: &Tally) -> String {
    let mut text = String::from("bit flips:");
    for (kind, ways) in tally {
        let count = |found| ways.get(&found).copied().unwrap_or(0);
        let total: u64 = ways.values().sum();
        write!(
            text,
            "\n  {kind}: {total} flipped; found by open {}, by reading {}, by verify only {}; \
             taken for a torn last record {}; only a last mark {}; zeros {}",
            count(Found::Open),
            count(Found::Read),
            count(Found::Verify),
            count(Found::TornTail),
            count(Found::LastMark),
            count(Found::Nothing),
        )
        .expect("a string grows");
    }
    text
}

#[test]
fn every_flipped_bit_is_found_and_never_read_as_data() {
    let sample = Sample::new("every_flipped_bit", 60);
    let disk = subjects();
    let targets = targets(&disk);
    let flips = Flips {
        targets: &targets,
        sample: &sample,
        tally: Mutex::default(),
        wrong: Mutex::default(),
    };
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let vfs = disk.vfs.crash(0, CrashOptions::PROCESS_KILLED);
            let flips = &flips;
            scope.spawn(move || flips.work(worker, &vfs));
        }
    });
    report(&shown(&flips.tally.lock().expect("no panic")));
    let wrong = flips.wrong.into_inner().expect("no panic");
    assert!(
        wrong.is_empty(),
        "{} wrong answers:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
