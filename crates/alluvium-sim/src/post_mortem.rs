//! Tests of a copy of the files that an incarnation has left: repair, and permanently flipped bits.
//!
//! A repaired database holds the state of a commit that a crash may leave, like the database
//! itself. With a flipped bit every opening and read returns correct data or an error, and a repair
//! brings back no row that was never written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{Database, Error, Options};
use alluvium_testkit::Rng;

use crate::disk::REPAIRED;
use crate::history::aside;
use crate::plan::PostMortem;
use crate::reading::{Content, content, difference};
use crate::records::{Checked, Records};

/// Context of an ended incarnation: what a post-mortem needs besides the files.
pub struct PostMortemContext<'a> {
    /// Oracle.
    pub records: &'a Records,
    /// Directory of the database.
    pub dir: &'a Path,
    /// Options to open it with.
    pub options: &'a Options,
    /// Smallest commit number that must survive.
    pub floor: u64,
}

/// Attempts to find a byte that is not one of the many zeros after the data.
const TRIES: usize = 8;

impl PostMortemContext<'_> {
    /// Performs a post-mortem on a copy of these files.
    pub fn examine(&self, post_mortem: PostMortem, memory: &MemVfs) -> Checked<()> {
        // The copy is another machine, so the test does not affect this one.
        let copy = memory.crash(0, CrashOptions::PROCESS_KILLED);
        match post_mortem {
            PostMortem::Repair => {
                self.records.count("databases repaired", 1);
                aside(|| self.repair(copy, self.floor, None))
            }
            PostMortem::Rot(number) => aside(|| self.rot(&copy, number)),
        }
    }

    /// Repairs the database and checks the new one. The repair must report damage to the file with
    /// the flipped bit, or restore a correct state.
    fn repair(&self, files: MemVfs, floor: u64, rotten: Option<&Path>) -> Checked<()> {
        let vfs = Arc::new(files);
        let report = match alluvium::repair_on(vfs.clone(), self.dir, REPAIRED) {
            Ok(report) => report,
            Err(error) if rotten.is_some_and(|path| is_told(&error, path) && is_root(path)) => {
                return Ok(());
            }
            Err(error) => return Err(format!("cannot repair: {error} ({error:?})")),
        };
        for damage in &report.damages {
            let is_tail = || damage_of(damage).is_some_and(is_log);
            let explained = rotten.is_some_and(|path| is_told(damage, path));
            if !explained && !is_tail() {
                return Err(format!("a repair says {damage} ({damage:?})"));
            }
        }
        let (options, watch) = self.records.watched(self.options);
        let db = Database::open_on(vfs, REPAIRED, options);
        let db = db.map_err(|e| format!("cannot open what was repaired: {e} ({e:?})"))?;
        let found =
            content(&db, &watch).map_err(|e| format!("cannot read what was repaired: {e}"))?;
        let harmed = report.damages.iter().any(|damage| {
            let path = damage_of(damage);
            path.is_some_and(|path| !is_log(path))
        });
        if harmed || report.unknown_operations > 0 {
            self.judge_rows(&found)
        } else {
            self.judge_state(&found, floor, "what was repaired")
        }
    }

    /// Flips a bit of some file, then opens and reads the database, then repairs it.
    fn rot(&self, copy: &MemVfs, number: u64) -> Checked<()> {
        let Some(path) = flip(copy, self.dir, number).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        self.records.count("databases with a rotten bit", 1);
        // A wrong record at the very end of a log is indistinguishable from a torn tail.
        let floor = if is_log(&path) { 0 } else { self.floor };
        let told = |what: &str, error: &Error| {
            if is_told(error, &path) {
                self.records.count("rotten bits that were told", 1);
                Ok(())
            } else {
                Err(format!(
                    "{} is rotten, {what}: {error} ({error:?})",
                    path.display()
                ))
            }
        };
        let vfs = copy.crash(0, CrashOptions::PROCESS_KILLED);
        let (options, watch) = self.records.watched(self.options);
        match Database::open_on(Arc::new(vfs), self.dir, options) {
            Err(error) => told("opened", &error)?,
            Ok(db) => match content(&db, &watch) {
                Err(error) => told("read", &error)?,
                Ok(found) => {
                    let what = format!("what was read next to the rotten {}", path.display());
                    self.judge_state(&found, floor, &what)?;
                }
            },
        }
        let vfs = copy.crash(0, CrashOptions::PROCESS_KILLED);
        self.repair(vfs, floor, Some(&path))
    }

    fn judge_state(&self, found: &Content, floor: u64, what: &str) -> Checked<()> {
        let history = self.records.history();
        let outside = self.records.outside();
        if let Some(missing) = outside.lasting.iter().find(|id| !found.ids.contains(id)) {
            return Err(format!("{what} lacks keyspace {missing}"));
        }
        match history.find(floor, found) {
            Some(_) => Ok(()),
            None => Err(format!(
                "{what} is the state of no commit from {floor} on: {}",
                difference(
                    &history.at(history.last()),
                    found,
                    &history.times(found.read_at.clone())
                )
            )),
        }
    }

    /// Checks the rows after some were lost: older versions may be back, but nothing else.
    fn judge_rows(&self, found: &Content) -> Checked<()> {
        let history = self.records.history();
        let mut rows = found.rows.iter();
        match rows.find(|(row, value)| !history.has_ever_written(row, value)) {
            None => Ok(()),
            Some(((id, key), _)) => Err(format!(
                "a repair has made a row that was never written: {} of keyspace {id}",
                key.escape_ascii()
            )),
        }
    }
}

/// Returns the file that an error reports as damaged.
fn damage_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Corruption { path, .. } | Error::NewerFormat { path, .. } => Some(path),
        _ => None,
    }
}

/// Returns whether the flipped bit explains an error: it reports damage to the rotten file, or to a
/// file that the rotten file names.
fn is_told(error: &Error, rotten: &Path) -> bool {
    damage_of(error).is_some_and(|path| path == rotten || is_root(rotten))
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "wal")
}

/// Returns whether nothing can be found without this file.
fn is_root(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == "CURRENT" || name.starts_with("MANIFEST"))
}

/// Flips a bit determined by the number. Returns its file; `None` if there is no data.
fn flip(files: &MemVfs, dir: &Path, number: u64) -> std::io::Result<Option<PathBuf>> {
    let mut rng = Rng::new(number);
    let mut names = files.list(dir)?;
    let has_data = |name: &str| {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        is_root(Path::new(name)) || ending.is_some_and(|e| ["sst", "val", "wal"].contains(&e))
    };
    names.retain(|name| has_data(name));
    names.sort();
    // Most of a database is in tables and value files, but a small one has few of them.
    let is_data = |name: &String| name.ends_with(".sst") || name.ends_with(".val");
    if rng.percent(60) && names.iter().any(is_data) {
        names.retain(is_data);
    }
    for _ in 0..TRIES {
        if names.is_empty() {
            break;
        }
        let path = dir.join(rng.pick(&names));
        let file = files.open(&path)?;
        let bytes = file.len()?;
        if bytes == 0 {
            continue;
        }
        let (at, mut byte) = (rng.below(bytes as usize) as u64, [0]);
        file.read_at(&mut byte, at)?;
        if byte[0] == 0 && rng.percent(90) {
            continue;
        }
        byte[0] ^= 1 << rng.below(8);
        file.write_at(&byte, at)?;
        return Ok(Some(path));
    }
    Ok(None)
}
