//! Files for the checks: all that git tracks or would track.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Text file of the workspace.
pub struct TextFile {
    /// Path from the root, with slashes.
    pub path: String,
    /// Whole content.
    pub text: String,
}

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    // Read at run time, as cargo sets it: checkouts share a target directory, so a compiled-in path
    // could be that of another checkout.
    let own = std::env::var_os("CARGO_MANIFEST_DIR");
    let xtask = own
        .as_deref()
        .map_or(Path::new(env!("CARGO_MANIFEST_DIR")), Path::new);
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns all text files that are tracked, or new and not ignored. Files that are not UTF-8 are
/// left out.
pub fn text_files(root: &Path) -> Result<Vec<TextFile>> {
    let listing = Command::new("git")
        // The checkout of a build machine may belong to another user.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git to list the files of the workspace")?;
    ensure!(
        listing.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listing.stderr).trim()
    );
    let mut files = Vec::new();
    for path in listing.stdout.split(|byte| *byte == 0) {
        let path = String::from_utf8_lossy(path).into_owned();
        let full = root.join(&path);
        // Deleted files stay listed until the deletion is staged; links would be read twice.
        if path.is_empty() || !full.is_file() || full.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path, text });
        }
    }
    ensure!(!files.is_empty(), "git lists no files");
    Ok(files)
}
