//! The table of all engines: names, variants, whether this build has them, and how to open one.
//!
//! Engines that were not compiled in keep their entry, so that `list engines` and error messages can say what brings
//! them. To add an engine: a module with an `open` function, a feature, a pair of `open_*` lines, a row here.

use rumbench_core::engine::{Engine, EngineError, OpenConfig, Result};

use crate::settings::nearest;

/// A named configuration of an engine, written after a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The name after the colon.
    pub name: &'static str,
    /// What differs from the plain name, in a line.
    pub description: &'static str,
}

/// One engine of the table.
#[derive(Debug, Clone, Copy)]
pub struct EngineEntry {
    /// The name on the command line and the name of the cargo feature.
    pub name: &'static str,
    /// The variants, besides the plain name.
    pub variants: &'static [Variant],
    /// What it is, in a line.
    pub description: &'static str,
    /// Whether this build contains it.
    pub available: bool,
    /// What brings it where it is not available.
    pub how_to_get: &'static str,
    /// Opens it; [`EngineError::Unsupported`] where it is not available or the variant or a setting is unknown.
    pub open: fn(&OpenConfig) -> Result<Box<dyn Engine>>,
}

/// An engine found by name, with the variant that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The engine.
    pub entry: &'static EngineEntry,
    /// The variant after the colon.
    pub variant: Option<&'static Variant>,
}

/// All engines that rumbench knows, in alphabetical order.
pub fn engines() -> &'static [EngineEntry] {
    &ENGINES
}

/// Finds `NAME[:VARIANT]`. An engine that is not compiled in is found too: see [`EngineEntry::available`].
///
/// # Errors
/// [`EngineError::Unsupported`] for an unknown name or variant, naming the nearest known one.
pub fn find(name: &str) -> Result<Found> {
    let (engine, variant) = match name.split_once(':') {
        Some((engine, variant)) => (engine, Some(variant)),
        None => (name, None),
    };
    let Some(entry) = ENGINES.iter().find(|entry| entry.name == engine) else {
        let names = ENGINES.iter().map(|entry| entry.name);
        return Err(unknown("engine", engine, names));
    };
    let variant = match variant {
        None => None,
        Some(wanted) => match entry.variants.iter().find(|known| known.name == wanted) {
            Some(known) => Some(known),
            None => {
                let names = entry.variants.iter().map(|known| known.name);
                return Err(unknown(&format!("variant of {engine}"), wanted, names));
            }
        },
    };
    Ok(Found { entry, variant })
}

fn unknown(
    what: &str,
    wanted: &str,
    names: impl Iterator<Item = &'static str> + Clone,
) -> EngineError {
    let known: Vec<&str> = names.clone().collect();
    let hint = match nearest(wanted, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there are none".to_string(),
        None => format!("there are: {}", known.join(", ")),
    };
    EngineError::Unsupported(format!("no {what} is named `{wanted}`; {hint}"))
}

static ENGINES: [EngineEntry; 6] = [
    EngineEntry {
        name: "alluvium",
        variants: &[],
        description: "this workspace's engine: a transactional, write-optimised LSM tree",
        available: cfg!(feature = "alluvium"),
        how_to_get: "build with `--features alluvium`",
        open: open_alluvium,
    },
    EngineEntry {
        name: "fjall",
        variants: &[],
        description: "log-structured merge trees in Rust, single-writer transactions",
        available: cfg!(feature = "fjall"),
        how_to_get: "build with `--features fjall`",
        open: open_fjall,
    },
    EngineEntry {
        name: "lmdb",
        variants: &[Variant {
            name: "nosync",
            description: "no sync at commit; a power cut may corrupt the database",
        }],
        description: "memory-mapped copy-on-write B+ tree, single writer",
        available: cfg!(feature = "lmdb"),
        how_to_get: "build with `--features lmdb`",
        open: open_lmdb,
    },
    EngineEntry {
        name: "null",
        variants: &[],
        description: "answers at once: measures the client; can stall on command",
        available: true,
        how_to_get: "always built",
        open: crate::null::open,
    },
    EngineEntry {
        name: "rocksdb",
        variants: ROCKSDB_VARIANTS,
        description: "log-structured merge trees in C++, pessimistic transactions",
        available: cfg!(feature = "rocksdb"),
        how_to_get: "`make bench-rocksdb` builds it in (needs a C++ compiler and libclang)",
        open: open_rocksdb,
    },
    EngineEntry {
        name: "sqlite",
        variants: &[],
        description: "SQL on a B-tree file with a write-ahead log, single writer",
        available: cfg!(feature = "sqlite"),
        how_to_get: "build with `--features sqlite`",
        open: open_sqlite,
    },
];

const ROCKSDB_VARIANTS: &[Variant] = &[
    Variant {
        name: "leveled",
        description: "the tuned configuration, as the plain name",
    },
    Variant {
        name: "universal",
        description: "tuned, universal (tiered) compaction",
    },
    Variant {
        name: "zlib",
        description: "tuned, zlib instead of zstd in the last level",
    },
    Variant {
        name: "zstd",
        description: "tuned, zstd in all levels",
    },
    Variant {
        name: "default",
        description: "the library's defaults, only the cache size set",
    },
    Variant {
        name: "myrocks",
        description: "the column family options of a MyRocks server",
    },
];

#[cfg(feature = "alluvium")]
use crate::alluvium::open as open_alluvium;
#[cfg(not(feature = "alluvium"))]
fn open_alluvium(_: &OpenConfig) -> Result<Box<dyn Engine>> {
    not_built("alluvium")
}
#[cfg(feature = "fjall")]
use crate::fjall::open as open_fjall;
#[cfg(not(feature = "fjall"))]
fn open_fjall(_: &OpenConfig) -> Result<Box<dyn Engine>> {
    not_built("fjall")
}

#[cfg(feature = "lmdb")]
use crate::lmdb::open as open_lmdb;
#[cfg(not(feature = "lmdb"))]
fn open_lmdb(_: &OpenConfig) -> Result<Box<dyn Engine>> {
    not_built("lmdb")
}

#[cfg(feature = "rocksdb")]
use crate::rocksdb::open as open_rocksdb;
#[cfg(not(feature = "rocksdb"))]
fn open_rocksdb(_: &OpenConfig) -> Result<Box<dyn Engine>> {
    not_built("rocksdb")
}

#[cfg(feature = "sqlite")]
use crate::sqlite::open as open_sqlite;
#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &OpenConfig) -> Result<Box<dyn Engine>> {
    not_built("sqlite")
}

/// The answer of an engine that this build does not contain.
#[cfg(not(all(
    feature = "fjall",
    feature = "lmdb",
    feature = "rocksdb",
    feature = "sqlite"
)))]
fn not_built(name: &str) -> Result<Box<dyn Engine>> {
    let how = find(name)?.entry.how_to_get;
    Err(EngineError::Unsupported(format!(
        "this build has no {name}: {how}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_listed_in_order_without_duplicates() {
        assert!(engines().windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn a_variant_is_found_after_the_colon() {
        let found = find("lmdb:nosync").unwrap();
        assert_eq!(found.entry.name, "lmdb");
        assert_eq!(found.variant.map(|variant| variant.name), Some("nosync"));
        assert_eq!(find("lmdb").unwrap().variant, None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let message = |name: &str| find(name).unwrap_err().to_string();
        assert_eq!(
            message("rocksbd"),
            "no engine is named `rocksbd`; did you mean `rocksdb`?"
        );
        assert_eq!(
            message("rocksdb:levelled"),
            "no variant of rocksdb is named `levelled`; did you mean `leveled`?"
        );
        assert_eq!(
            message("null:fast"),
            "no variant of null is named `fast`; there are none"
        );
        assert!(message("zzz").contains("there are: alluvium, fjall, lmdb, null, rocksdb, sqlite"));
    }

    #[cfg(not(feature = "rocksdb"))]
    #[test]
    fn an_engine_that_is_not_built_says_what_brings_it() {
        let config = OpenConfig {
            dir: std::path::PathBuf::new(),
            variant: None,
            cache_bytes: 0,
            durability: rumbench_core::engine::Durability::Buffered,
            clients: 1,
            settings: std::collections::BTreeMap::new(),
        };
        let found = find("rocksdb").unwrap();
        assert!(!found.entry.available);
        let error = (found.entry.open)(&config).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("bench-rocksdb"), "{error}");
    }
}
