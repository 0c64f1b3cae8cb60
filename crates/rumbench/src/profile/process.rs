//! One process: its mapped binaries, and the unwinding of a sample's stack through them.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::{CacheNative, Module as Unwound, Unwinder, UnwinderNative};

use super::modules::{Bytes, Module, Modules};
use super::sampling::Registers;

/// Maximum number of frames; deeper recursion is cut off.
const FRAMES_MAX: usize = 200;

/// A mapped binary.
struct Mapping {
    addresses: Range<u64>,
    module: Arc<Module>,
    /// Address in the process minus address as linked.
    bias: u64,
}

/// Process with its mappings as last read from `/proc`.
pub struct Process {
    /// Sorted by address.
    mappings: Vec<Mapping>,
    unwinder: UnwinderNative<Bytes, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
}

impl Process {
    /// Reads the mappings of a process. They are empty if it has ended.
    pub fn of(pid: u32, modules: &mut Modules) -> Process {
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut process = Process {
            mappings: Vec::new(),
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
        };
        for line in text.lines().filter_map(Line::parse) {
            // Name of the entry in `map_files`; its numbers have no leading zeros.
            let map = format!("{:x}-{:x}", line.addresses.start, line.addresses.end);
            let module = modules.of(pid, Path::new(line.path), &map);
            // Code in the kernel's own page or generated at run time is in no file.
            let linked = module.linked(line.offset);
            let bias = line.addresses.start.wrapping_sub(linked.unwrap_or(0));
            if linked.is_some() {
                process.unwinder.add_module(Unwound::new(
                    line.path.to_string(),
                    line.addresses.clone(),
                    bias,
                    module.sections(),
                ));
            }
            process.mappings.push(Mapping {
                addresses: line.addresses,
                module,
                bias,
            });
        }
        process
    }

    /// Returns true if no code is mapped, because the process has ended.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Returns true if code is mapped at `address`.
    pub fn knows(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let behind = |mapping: &Mapping| mapping.addresses.end <= address;
        let mapping = self.mappings.get(self.mappings.partition_point(behind))?;
        mapping.addresses.contains(&address).then_some(mapping)
    }

    /// Returns the names of the functions on a stack, the outermost first.
    pub fn frames(&mut self, regs: Registers, stack: &[u8]) -> Vec<String> {
        let mut read = |address: u64| {
            let at = address.checked_sub(regs.stack).ok_or(())? as usize;
            let word = stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            word.try_into().map(u64::from_le_bytes).map_err(|_| ())
        };
        let mut addresses = Vec::new();
        let mut iter = self
            .unwinder
            .iter_frames(regs.ip, native(regs), &mut self.cache, &mut read);
        // Ends at the end of the stack, or of the part that the sample holds.
        while let Ok(Some(frame)) = iter.next() {
            // An address within the call, not after it.
            addresses.push(frame.address_for_lookup());
            if addresses.len() == FRAMES_MAX {
                break;
            }
        }
        let names = addresses
            .iter()
            .rev()
            .map(|address| self.function(*address));
        let mut names: Vec<String> = names.collect();
        // The frames in which the C library starts threads appear in some stacks only, and carry no
        // information.
        let own = names.iter().position(|name| !name.starts_with("[libc."));
        names.drain(..own.unwrap_or(0));
        names
    }

    fn function(&self, address: u64) -> String {
        match self.mapping(address) {
            Some(mapping) => mapping.module.function(address.wrapping_sub(mapping.bias)),
            None => "[elsewhere]".to_string(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn native(regs: Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(regs.ip, regs.stack, regs.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(regs: Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(regs.link, regs.stack, regs.frame)
}

/// Line of `/proc/PID/maps` about code.
struct Line<'a> {
    addresses: Range<u64>,
    offset: u64,
    path: &'a str,
}

impl Line<'_> {
    /// Parses `from-to rwxp offset device inode   path`.
    fn parse(text: &str) -> Option<Line<'_>> {
        let mut parts = text.splitn(6, ' ');
        let (from, to) = parts.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let addresses = hex(from)?..hex(to)?;
        let is_code = parts.next()?.contains('x');
        let offset = hex(parts.next()?)?;
        let path = parts.nth(2).unwrap_or_default().trim_start();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        is_code.then_some(Line {
            addresses,
            offset,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_code_are_read() {
        let text = "55e0-55f0 r-xp 00001000 fe:00 123                        /a b/c (deleted)";
        let line = Line::parse(text).expect("code");
        assert_eq!(
            (line.addresses, line.offset, line.path),
            (0x55e0..0x55f0, 0x1000, "/a b/c")
        );
        for other in ["55e0-55f0 rw-p 00001000 fe:00 123 /data", "nonsense"] {
            assert!(Line::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_own_process_knows_its_functions() {
        let mut process = Process::of(std::process::id(), &mut Modules::default());
        let here = the_own_process_knows_its_functions as fn() as usize as u64;
        assert!(process.knows(here) && !process.knows(8));
        let regs = Registers {
            ip: here,
            stack: 0x1000,
            frame: 0,
            link: 0,
        };
        let frames = process.frames(regs, &[]);
        let [only] = frames.as_slice() else {
            panic!("{frames:?}");
        };
        assert!(
            only.contains("the_own_process_knows_its_functions"),
            "{only}"
        );
    }
}
