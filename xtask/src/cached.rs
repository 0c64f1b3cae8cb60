//! Libraries that are built once per machine, outside the checkout: their cache folder, and the way
//! a build gets into it.
//!
//! A library is a folder of the cache, with a hash of its dependencies in its name:
//!
//! ```text
//! ${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-~/.cache}/alluvium}/NAME-VERSION-HASH/
//! ```
//!
//! A build runs in a folder of another name. Its required files are copied to a third folder, which
//! is renamed when complete. An interrupted build is continued and never mistaken for a finished
//! one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Returns the name of a library's folder: a change of any of `depends_on` gives another name.
pub fn folder_name(library: &str, version: &str, depends_on: &[&str]) -> String {
    let hash = xxh3_64(depends_on.join(" ").as_bytes());
    format!("{library}-{version}-{:08x}", hash >> 32)
}

/// Returns the folder `name` of the cache with `files`, which are paths in it. If the folder is
/// missing, calls `build` with a working folder. `build` returns the paths of its results in the
/// order of `files`.
pub fn ensure<const N: usize>(
    cache: &Path,
    name: &str,
    files: [&str; N],
    build: impl FnOnce(&Path) -> Result<[PathBuf; N]>,
) -> Result<PathBuf> {
    let finished = cache.join(name);
    if finished.is_dir() {
        return Ok(finished);
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Two builds at the same time would do the same work twice in one folder.
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).and_then(|file| file.lock().map(|()| file));
    let _lock = lock.with_context(|| format!("cannot lock {}", lock_path.display()))?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let project = cache.join(format!("{name}.building"));
    fs::create_dir_all(&project).with_context(|| format!("cannot create {}", project.display()))?;
    let built = build(&project)?;
    let staged = cache.join(format!("{name}.staged"));
    stage(&built, &files, &staged)?;
    fs::rename(&staged, &finished)
        .with_context(|| format!("cannot rename {}", staged.display()))?;
    // The objects are many times larger than the libraries. A failure to remove them does no harm.
    let _ = fs::remove_dir_all(&project);
    Ok(finished)
}

/// Copies the results of a build into a folder that is then renamed as a whole.
fn stage(built: &[PathBuf], files: &[&str], staged: &Path) -> Result<()> {
    match fs::remove_dir_all(staged) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", staged.display()));
        }
        _ => {}
    }
    for (from, file) in built.iter().zip(files) {
        let to = staged.join(file);
        let parent = to.parent().unwrap_or(staged);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// Returns the cache folder of this machine.
pub fn folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = set("ALLUVIUM_CACHE") {
        // A relative path would mean another folder in a generated project.
        return std::path::absolute(cache).context("ALLUVIUM_CACHE is no path");
    }
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let base = base.context("neither ALLUVIUM_CACHE, XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("alluvium"))
}

/// Returns a path as one word of the shell, with any special characters quoted.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 2] = ["lib/liba.a", "include/a.h"];

    /// Temporary folder of one test, removed at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("alluvium-xtask-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Simulates a build that returns two files but writes only the files `really`.
    fn leave(project: &Path, really: &[&str]) -> Result<[PathBuf; 2]> {
        for name in really {
            fs::write(project.join(name), name)?;
        }
        Ok(["built.a", "built.h"].map(|name| project.join(name)))
    }

    #[test]
    fn a_missing_library_is_built_once() {
        let cache = Folder::new("once");
        let build = |project: &Path| leave(project, &["built.a", "built.h"]);
        let library = ensure(&cache.0, "a-1", FILES, build).unwrap();
        assert_eq!(library, cache.0.join("a-1"));
        let read = |file| fs::read_to_string(library.join(file)).unwrap();
        assert_eq!(FILES.map(read), ["built.a", "built.h"]);
        let again = ensure(&cache.0, "a-1", FILES, |_| anyhow::bail!("built again"));
        assert_eq!(again.unwrap(), library);
    }

    #[test]
    fn a_failed_or_incomplete_build_is_not_taken_for_a_library() {
        let cache = Folder::new("failed");
        let failed = ensure(&cache.0, "a-1", FILES, |_| anyhow::bail!("no compiler"));
        assert_eq!(failed.unwrap_err().to_string(), "no compiler");
        let incomplete = ensure(&cache.0, "a-1", FILES, |project| {
            leave(project, &["built.a"])
        });
        assert!(incomplete.is_err());
        assert!(!cache.0.join("a-1").exists());
        let complete = ensure(&cache.0, "a-1", FILES, |project| {
            leave(project, &["built.a", "built.h"])
        });
        assert!(complete.is_ok());
    }

    #[test]
    fn a_name_changes_with_version_and_what_it_depends_on() {
        let name = folder_name("a", "1", &["x", "y"]);
        assert!(name.starts_with("a-1-"), "{name}");
        assert_ne!(name, folder_name("a", "2", &["x", "y"]));
        assert_ne!(name, folder_name("a", "1", &["x", "z"]));
    }

    #[test]
    fn a_quoted_path_survives_spaces_and_quotes() {
        assert_eq!(quoted(Path::new("a b'c")), r"'a b'\''c'");
    }
}
