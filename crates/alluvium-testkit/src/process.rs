//! Figures of this process from `/proc`.

use std::io;

/// Returns a size from `/proc/self/status` in bytes, for example that of `VmHWM`, the peak of
/// resident memory. Fails if the file or the field is missing.
pub fn status_bytes(field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| {
        let value = line.strip_prefix(field)?.strip_prefix(':')?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let missing = || io::Error::other(format!("/proc/self/status has no {field} in kB"));
    Ok(kib.ok_or_else(missing)? << 10)
}
