//! Requests and bytes of the block device under the data directory.
//!
//! The counters are the device's: everything on it is counted, whoever asked. Discards have fields of their own in the
//! kernel and are left out. A file system without a block device (overlay, tmpfs) has no counters.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Sectors in the kernel's block statistics are always this long.
const SECTOR_BYTES: u64 = 512;

/// Counters since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// The device of one directory.
#[derive(Debug, Clone)]
pub struct Device {
    name: String,
    stat: PathBuf,
}

impl Device {
    /// The device that a directory lies on, when the kernel shows its counters.
    pub fn of(directory: &Path) -> Option<Device> {
        let dev = fs::metadata(directory).ok()?.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let name = fs::canonicalize(&entry)
            .ok()?
            .file_name()?
            .to_string_lossy()
            .into_owned();
        let device = Device {
            name,
            stat: entry.join("stat"),
        };
        device.read().map(|_| device)
    }

    /// Name as in /dev.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the device in /sys, for its queue settings; of the whole disk when this is a partition.
    pub fn sys_directory(&self) -> Option<PathBuf> {
        let entry = fs::canonicalize(self.stat.parent()?).ok()?;
        if entry.join("queue").exists() {
            return Some(entry);
        }
        Some(entry.parent()?.to_path_buf())
    }

    /// Counters now.
    pub fn read(&self) -> Option<DeviceIo> {
        parse(&fs::read_to_string(&self.stat).ok()?)
    }
}

/// reads, merged, sectors, ms, writes, merged, sectors, ms, ...
fn parse(text: &str) -> Option<DeviceIo> {
    let mut fields = text
        .split_ascii_whitespace()
        .map_while(|field| field.parse::<u64>().ok());
    let reads = fields.next()?;
    let read_sectors = fields.nth(1)?;
    let writes = fields.nth(1)?;
    let write_sectors = fields.nth(1)?;
    Some(DeviceIo {
        reads,
        read_bytes: read_sectors.saturating_mul(SECTOR_BYTES),
        writes,
        write_bytes: write_sectors.saturating_mul(SECTOR_BYTES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_counters_are_requests_and_sectors_without_discards() {
        let text = "  11 1 20 5  33 2 40 6 0 7 8 99 0 1000 9 3 4";
        let expected = DeviceIo {
            reads: 11,
            read_bytes: 20 * 512,
            writes: 33,
            write_bytes: 40 * 512,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("1 2 3"), None);
    }
}
