//! Binaries: data to unwind them, and names of their functions. Each file is read once, even if
//! several processes map it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

/// Bytes of a section, shared by the processes that map it.
pub type Bytes = Arc<[u8]>;

/// Names of functions by address range.
#[derive(Debug, Default)]
struct Symbols {
    /// Sorted by first address.
    all: Vec<(Range<u64>, String)>,
}

impl Symbols {
    /// Sorts functions. Functions may share an address; in assembly some lack a length, so they
    /// extend to the next one.
    fn new(mut all: Vec<(Range<u64>, String)>) -> Symbols {
        all.sort_by(|a, b| (a.0.start, b.0.end, &a.1).cmp(&(b.0.start, a.0.end, &b.1)));
        all.dedup_by_key(|symbol| symbol.0.start);
        for i in 0..all.len() {
            let next = all.get(i + 1).map_or(u64::MAX, |symbol| symbol.0.start);
            if all[i].0.is_empty() {
                all[i].0.end = next;
            }
        }
        Symbols { all }
    }

    fn name(&self, address: u64) -> Option<&str> {
        let behind = self.all.partition_point(|symbol| symbol.0.start <= address);
        let (range, name) = self.all.get(behind.checked_sub(1)?)?;
        range.contains(&address).then_some(name)
    }
}

/// One binary.
#[derive(Default)]
pub struct Module {
    /// File name, for functions without a name.
    name: String,
    /// Parts of the file that are mapped as code: offset in the file, address as linked, number of
    /// bytes.
    segments: Vec<(u64, u64, u64)>,
    sections: BTreeMap<&'static str, (Range<u64>, Bytes)>,
    symbols: Symbols,
}

/// Sections needed for unwinding; of the first only the address range.
const SECTIONS: [&str; 3] = [".text", ".eh_frame_hdr", ".eh_frame"];

impl Module {
    /// Reads a binary. An unreadable file, or a file that is no binary, has no functions.
    fn read(path: &Path) -> Module {
        let name = path.file_name().unwrap_or_default();
        let nameless = Module {
            name: name.to_string_lossy().into_owned(),
            ..Module::default()
        };
        let content = fs::read(path).unwrap_or_default();
        let Ok(file) = object::File::parse(&*content) else {
            return nameless;
        };
        let segments = file.segments().filter(is_code).map(|segment| {
            let (offset, _) = segment.file_range();
            (offset, segment.address(), segment.size())
        });
        let mut sections = BTreeMap::new();
        for name in SECTIONS {
            let Some(section) = file.section_by_name(name) else {
                continue;
            };
            let range = section.address()..section.address() + section.size();
            let bytes = match name {
                ".text" => &[],
                _ => section.data().unwrap_or_default(),
            };
            sections.insert(name, (range, Bytes::from(bytes)));
        }
        let functions = |symbol: &object::Symbol<'_, '_>| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition()
        };
        let named = |symbol: object::Symbol<'_, '_>| {
            let range = symbol.address()..symbol.address() + symbol.size();
            Some((range, plain(symbol.name().ok()?)))
        };
        // A stripped binary still has the names for the dynamic linker.
        let all = file.symbols().chain(file.dynamic_symbols());
        Module {
            segments: segments.collect(),
            sections,
            symbols: Symbols::new(all.filter(functions).filter_map(named).collect()),
            ..nameless
        }
    }

    /// Returns the address as linked of code mapped from an offset of the file. Mappings are whole
    /// pages, so they may begin before the segment.
    pub fn linked(&self, offset: u64) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        let holds = |(from, _, bytes): &&(u64, u64, u64)| {
            (from - from % page..from + bytes).contains(&offset)
        };
        let (from, address, _) = self.segments.iter().find(holds)?;
        Some(address.wrapping_add(offset).wrapping_sub(*from))
    }

    /// Returns the sections for unwinding.
    pub fn sections(&self) -> ExplicitModuleSectionInfo<Bytes> {
        let range = |name| self.sections.get(name).map(|(range, _)| range.clone());
        let bytes = |name| self.sections.get(name).map(|(_, bytes)| bytes.clone());
        ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            ..ExplicitModuleSectionInfo::default()
        }
    }

    /// Returns the function at an address as linked, or the file name in brackets.
    pub fn function(&self, address: u64) -> String {
        match self.symbols.name(address) {
            Some(name) => name.to_string(),
            None => format!("[{}]", self.name),
        }
    }
}

fn is_code(segment: &object::Segment<'_, '_>) -> bool {
    let SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
        return false;
    };
    p_flags.contains(PF_X)
}

/// Returns a name as programmers write it.
fn plain(name: &str) -> String {
    // Symbol versions matter only to the linker.
    let name = name.split('@').next().unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| {
        let options = cpp_demangle::DemangleOptions::new();
        symbol
            .demangle_with_options(&options.no_params().no_return_type())
            .ok()
    });
    cpp.unwrap_or_else(|| name.to_string())
}

/// All binaries seen so far.
#[derive(Default)]
pub struct Modules(HashMap<PathBuf, Arc<Module>>);

impl Modules {
    /// Returns the binary of a file, read as the process sees it if that is allowed: the file may
    /// have been replaced. A path that is no file has no functions.
    pub fn of(&mut self, pid: u32, path: &Path, map: &str) -> Arc<Module> {
        let through = PathBuf::from(format!("/proc/{pid}/map_files/{map}"));
        let known = self.0.entry(path.to_path_buf());
        let module = known.or_insert_with(|| {
            let name = path.file_name().unwrap_or_default();
            let readable = [&through, path].into_iter().find(|path| path.is_file());
            let read = readable.map(Module::read).unwrap_or_default();
            Arc::new(Module {
                name: name.to_string_lossy().into_owned(),
                ..read
            })
        });
        Arc::clone(module)
    }
}

/// Functions of the kernel.
pub struct Kernel(Symbols);

impl Kernel {
    /// Reads the functions that the kernel reveals to this user.
    pub fn read() -> Kernel {
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Kernel(kernel_symbols(&text))
    }

    /// Returns the function at an address, with the suffix `_[k]` that other tools use.
    pub fn name(&self, address: u64) -> String {
        format!("{}_[k]", self.0.name(address).unwrap_or("kernel"))
    }
}

/// Parses lines `address type name [module]`. Without permission all addresses are 0.
fn kernel_symbols(text: &str) -> Symbols {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.split_ascii_whitespace();
        let address = u64::from_str_radix(parts.next()?, 16).ok()?;
        let is_function = matches!(parts.next()?, "t" | "T" | "w" | "W");
        let name = parts.next()?.to_string();
        (is_function && address > 0).then_some((address..address, name))
    });
    Symbols::new(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_programmers_write_them() {
        for (name, wanted) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            (
                "_ZN7rocksdb6DBImpl3GetERKNS_11ReadOptionsE",
                "rocksdb::DBImpl::Get",
            ),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_start", "_start"),
        ] {
            assert_eq!(plain(name), wanted);
        }
    }

    #[test]
    fn an_address_belongs_to_the_function_that_holds_it() {
        let symbols = Symbols::new(vec![
            (100..150, "long".to_string()),
            (100..100, "alias".to_string()),
            (200..200, "assembly".to_string()),
            (300..310, "last".to_string()),
        ]);
        let found = [99, 100, 149, 150, 200, 299, 309, 310].map(|at| symbols.name(at));
        let wanted = [None, Some("long"), Some("long"), None, Some("assembly")];
        assert_eq!(found[..5], wanted);
        assert_eq!(found[5..], [Some("assembly"), Some("last"), None]);
    }

    #[test]
    fn hidden_addresses_of_the_kernel_name_nothing() {
        let shown =
            "ffffffff81000000 T first\nffffffff81000100 t second [nvme]\nffffffff81000200 D data\n";
        let kernel = Kernel(kernel_symbols(shown));
        assert_eq!(kernel.name(0xffff_ffff_8100_0180), "second_[k]");
        let hidden = Kernel(kernel_symbols("0000000000000000 T first\n"));
        assert_eq!(hidden.name(0xffff_ffff_8100_0180), "kernel_[k]");
    }

    #[test]
    fn the_own_binary_is_known() {
        let path = std::env::current_exe().expect("path");
        let module = Module::read(&path);
        assert!(module.sections.contains_key(".eh_frame"));
        let known = |symbol: &&(Range<u64>, String)| symbol.1.contains("the_own_binary_is_known");
        let (range, _) = module.symbols.all.iter().find(known).expect("this test");
        assert!(
            module
                .function(range.start)
                .contains("the_own_binary_is_known")
        );
        assert_eq!(Module::read(Path::new("/no/such")).function(7), "[such]");
    }
}
