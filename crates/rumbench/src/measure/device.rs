//! Requests and bytes of the block device that holds the data directory.
//!
//! The counters are the device's: they count the requests of all processes. Discards have separate
//! fields in the kernel and are left out. A file system without a block device (overlay, tmpfs) has
//! no counters.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Length of a sector in the kernel's block statistics, on every device.
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

/// Kernel number of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number among the driver's devices.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = ();

    /// Parses the form in /sys, `8:16`.
    fn from_str(text: &str) -> Result<DeviceNumber, ()> {
        let (major, minor) = text.trim().split_once(':').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(DeviceNumber {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// Block device of one directory.
#[derive(Debug, Clone)]
pub struct Device {
    name: String,
    stat: PathBuf,
}

impl Device {
    /// Returns the device that holds a directory, if the kernel shows its counters.
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

    /// Returns the name as in /dev.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the device in /sys, with its queue settings; for a partition, that of
    /// the whole disk.
    pub fn sys_directory(&self) -> Option<PathBuf> {
        let entry = fs::canonicalize(self.stat.parent()?).ok()?;
        if entry.join("queue").exists() {
            return Some(entry);
        }
        Some(entry.parent()?.to_path_buf())
    }

    /// Returns the number of the whole disk, because limits cannot be set for a partition.
    pub fn disk(&self) -> Option<DeviceNumber> {
        let text = fs::read_to_string(self.sys_directory()?.join("dev"));
        text.ok()?.parse().ok()
    }

    /// Reads the current counters.
    pub fn read(&self) -> Option<DeviceIo> {
        parse(&fs::read_to_string(&self.stat).ok()?)
    }
}

/// Parses reads, merged, sectors, ms, writes, merged, sectors, ms, ...
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

    #[test]
    fn a_device_number_is_written_as_it_is_read() {
        let number: DeviceNumber = "259:3\n".parse().expect("a number");
        assert_eq!((number.major, number.minor), (259, 3));
        assert_eq!(number.to_string(), "259:3");
        for text in ["", "259", "a:b", "1:2:3"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
    }
}
