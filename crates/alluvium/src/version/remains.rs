//! Files of a database without its pointer `CURRENT`: distinguishes a lost database from an
//! interrupted creation.
//!
//! A creation makes `CURRENT` durable before it writes anything but manifests of an empty database.
//! So tables, value files, log segments and temporary files of loads belong to a database that
//! existed, and so does a manifest with any content. A manifest without a whole first edit was
//! being written when its creation was interrupted.

use std::path::Path;

use super::current::{CURRENT, parse_name};
use super::manifest::salvage_file;
use super::state::ManifestState;
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Subdirectory of tables that no manifest names.
pub const UNREFERENCED: &str = "unreferenced";

/// Endings of numbered files that are written only after `CURRENT` is durable.
const DATA: [&str; 4] = [".sst", ".val", ".wal", ".run"];

/// Refuses a directory that holds files of a database. The caller has found no `CURRENT` there.
///
/// # Errors
///
/// [`Error::Corruption`] that names one of the files and the remedy; [`Error::NewerFormat`];
/// [`Error::Io`].
pub fn check_no_remains(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let names = list(vfs, dir)?;
    if let Some(name) = names.iter().find(|name| is_data(name)) {
        return Err(lost(dir, name));
    }
    let aside = list(vfs, &dir.join(UNREFERENCED))?;
    if let Some(name) = aside.iter().find(|name| is_data(name)) {
        return Err(lost(dir, &format!("{UNREFERENCED}/{name}")));
    }
    for name in &names {
        let Some(number) = parse_name(name) else {
            continue;
        };
        let mut is_damaged = false;
        match salvage_file(vfs, dir, number, &mut |_| is_damaged = true) {
            Ok((_, state)) if state == ManifestState::default() && !is_damaged => {}
            Ok(_) => return Err(lost(dir, name)),
            Err(Error::Corruption { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the error for a directory with files of a database and without `CURRENT`.
fn lost(dir: &Path, name: &str) -> Error {
    let expected = format!("a file, since {name} exists");
    let found = "none: restore it or a backup, or save the rows with `repair`";
    let what = "pointer to the manifest";
    Error::corruption(&dir.join(CURRENT), 0, what, expected, found)
}

fn is_data(name: &str) -> bool {
    let mut stems = DATA.iter().filter_map(|ending| name.strip_suffix(ending));
    stems.any(|stem| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lists the names in a directory; none if it is missing.
fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    match vfs.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}
