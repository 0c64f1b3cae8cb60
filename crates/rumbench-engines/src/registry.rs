//! Registry of all engines: names, variants, availability in this build, and the code that opens
//! one.
//!
//! Engines that are not compiled in keep their entry, so that `list engines` and error messages can
//! tell the user how to get them. To add an engine: a module with an `Adapter`, a feature, a pair
//! of lines here, a row of the table.

use rumbench_core::engine::{Engine, EngineError, OpenConfig, Result};
use rumbench_core::names;

use crate::adapter::Adapter;
use crate::replication::Product;

/// Named configuration of an engine, written after a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Name after the colon.
    pub name: &'static str,
    /// Difference from the plain name, in one line.
    pub description: &'static str,
}

/// One engine of the registry.
#[derive(Debug, Clone, Copy)]
pub struct EngineEntry {
    /// Name on the command line and, except for the engines of `mariadb`, of the cargo feature.
    pub name: &'static str,
    /// Variants in addition to the plain name.
    pub variants: &'static [Variant],
    /// Description in one line.
    pub description: &'static str,
    /// `true` for a server with processes of its own.
    pub is_server: bool,
    /// `true` if its setting `compaction` selects the compaction style.
    pub has_compaction_styles: bool,
    /// Instructions for getting the engine if this build does not contain it.
    pub how_to_get: &'static str,
    /// Code of the engine; `None` if this build does not contain it.
    adapter: Option<Adapter>,
}

impl EngineEntry {
    /// Returns `true` if this build contains the engine.
    pub fn is_available(&self) -> bool {
        self.adapter.is_some()
    }

    /// Checks before a trial that opening would accept the configuration. Does not access the data
    /// directory.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] if the engine is not available, or if the variant or a setting
    /// is unknown or out of range.
    pub fn check(&self, config: &OpenConfig) -> Result<()> {
        (self.adapter()?.check)(config)
    }

    /// Opens or creates the engine's database in `config.dir`.
    ///
    /// # Errors
    /// As for [`EngineEntry::check`], and any error of the engine.
    pub fn open(&self, config: &OpenConfig) -> Result<Box<dyn Engine>> {
        (self.adapter()?.open)(config)
    }

    fn adapter(&self) -> Result<Adapter> {
        self.adapter.ok_or_else(|| {
            EngineError::Unsupported(format!(
                "this build has no {}: {}",
                self.name, self.how_to_get
            ))
        })
    }
}

/// Engine found by name, with the requested variant.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Engine of that name.
    pub entry: &'static EngineEntry,
    /// Variant after the colon; `None` for the plain name.
    pub variant: Option<&'static Variant>,
}

/// Returns all engines that rumbench knows, in alphabetical order.
pub fn engines() -> &'static [EngineEntry] {
    &ENGINES
}

/// Finds `NAME[:VARIANT]`, even if the engine is not compiled in: see
/// [`EngineEntry::is_available`].
///
/// # Errors
/// [`EngineError::Unsupported`] for an unknown name or variant; the message names the nearest known
/// one.
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

fn unknown(what: &str, wanted: &str, known: impl Iterator<Item = &'static str>) -> EngineError {
    let known: Vec<&str> = known.collect();
    EngineError::Unsupported(names::unknown(what, wanted, &known))
}

static ENGINES: [EngineEntry; 13] = [
    EngineEntry {
        name: "alluvium",
        variants: &[],
        description: "this workspace's engine: a transactional, write-optimized LSM tree",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "build with `--features alluvium`",
        adapter: ALLUVIUM,
    },
    EngineEntry {
        name: "fjall",
        variants: &[],
        description: "log-structured merge trees in Rust, single-writer transactions",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "build with `--features fjall`",
        adapter: FJALL,
    },
    EngineEntry {
        name: "leveldb",
        variants: &[Variant {
            name: "default",
            description: "the library's defaults, only the cache size set",
        }],
        description: "log-structured merge tree in C++; row locks and batches of this laboratory",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "`apt-get install libleveldb-dev` or its like, then build with `--features leveldb`",
        adapter: LEVELDB,
    },
    EngineEntry {
        name: "lmdb",
        variants: &[Variant {
            name: "nosync",
            description: "no sync at commit; a power cut may corrupt the database",
        }],
        description: "memory-mapped copy-on-write B+ tree, single writer",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "build with `--features lmdb`",
        adapter: LMDB,
    },
    EngineEntry {
        name: "mariadb-alluvium",
        variants: ALLUVIUM_SERVER_VARIANTS,
        description: "server: MariaDB with tables in Alluvium, the plugin of this workspace",
        is_server: true,
        has_compaction_styles: false,
        how_to_get: "build with `--features mariadb`; `make mariadb` builds the plugin and fetches its server",
        adapter: MARIADB_ALLUVIUM,
    },
    EngineEntry {
        name: "mariadb-innodb",
        variants: INNODB_VARIANTS,
        description: "server: MariaDB with tables in InnoDB, B-trees with a doublewrite buffer",
        is_server: true,
        has_compaction_styles: false,
        how_to_get: "build with `--features mariadb`; `make peers` fetches the server",
        adapter: MARIADB_INNODB,
    },
    EngineEntry {
        name: "mariadb-rocksdb",
        variants: &SERVER_VARIANTS,
        description: "server: MariaDB with tables in MyRocks, log-structured merge trees of RocksDB",
        is_server: true,
        has_compaction_styles: false,
        how_to_get: "build with `--features mariadb`; `make peers` fetches the server",
        adapter: MARIADB_ROCKSDB,
    },
    EngineEntry {
        name: "null",
        variants: &[],
        description: "answers at once: measures the client; can stall on command",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "always built",
        adapter: Some(crate::null::ADAPTER),
    },
    EngineEntry {
        name: "postgresql",
        variants: &[],
        description: "server: heap tables and B-trees, vacuumed multi-version rows",
        is_server: true,
        has_compaction_styles: false,
        how_to_get: "build with `--features postgresql`; `make peers` fetches the server",
        adapter: POSTGRESQL,
    },
    EngineEntry {
        name: "redb",
        variants: &[],
        description: "copy-on-write B+ tree in Rust, single writer",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "build with `--features redb`",
        adapter: REDB,
    },
    EngineEntry {
        name: "rocksdb",
        variants: ROCKSDB_VARIANTS,
        description: "log-structured merge trees in C++, pessimistic transactions",
        is_server: false,
        has_compaction_styles: true,
        how_to_get: "`make bench-rocksdb` builds it in (needs a C++ compiler and libclang)",
        adapter: ROCKSDB,
    },
    EngineEntry {
        name: "sqlite",
        variants: &[],
        description: "SQL on a B-tree file with a write-ahead log, single writer",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "build with `--features sqlite`",
        adapter: SQLITE,
    },
    EngineEntry {
        name: "wiredtiger",
        variants: &[
            Variant {
                name: "default",
                description: "the library's defaults, only the cache size set",
            },
            Variant {
                name: "snappy",
                description: "tuned, pages compressed with snappy instead of zstd",
            },
            Variant {
                name: "zlib",
                description: "tuned, pages compressed with zlib instead of zstd",
            },
        ],
        description: "MongoDB's engine as a library: B-trees, snapshot isolation",
        is_server: false,
        has_compaction_styles: false,
        how_to_get: "`eval \"$(cargo xtask wiredtiger)\"`, then build with `--features wiredtiger`",
        adapter: WIREDTIGER,
    },
];

/// Variants of a server that does more than store rows. Each differs from the plain entry in one
/// thing.
const SERVER_VARIANTS: [Variant; 3] = [
    Variant {
        name: "binlog",
        description: "a binary log, synced at each commit: the cost of a replicated server",
    },
    Variant {
        name: "performance-schema",
        description: "the performance schema with its default instruments: what watching costs",
    },
    Variant {
        name: "both",
        description: "InnoDB and MyRocks in one server, both tuned, each with a cache of its own",
    },
];

const ALLUVIUM_SERVER_VARIANTS: &[Variant] = &[
    SERVER_VARIANTS[0],
    SERVER_VARIANTS[1],
    Variant {
        name: "both",
        description: "InnoDB and Alluvium in one server, both tuned, each with a cache of its own",
    },
];

const INNODB_VARIANTS: &[Variant] = &[
    Variant {
        name: "compressed",
        description: "ROW_FORMAT=COMPRESSED in key blocks of 8 KiB: the compression of published results",
    },
    Variant {
        name: "page-compressed",
        description: "pages compressed when written, holes in the files: down to whole file system blocks",
    },
    SERVER_VARIANTS[0],
    SERVER_VARIANTS[1],
    SERVER_VARIANTS[2],
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
        name: "snappy",
        description: "tuned, snappy in all levels, as in published comparisons",
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
        description: "the values of a MyRocks server in production",
    },
];

#[cfg(feature = "alluvium")]
const ALLUVIUM: Option<Adapter> = Some(crate::alluvium::Alluvium::ADAPTER);
#[cfg(not(feature = "alluvium"))]
const ALLUVIUM: Option<Adapter> = None;

#[cfg(feature = "fjall")]
const FJALL: Option<Adapter> = Some(crate::fjall::Fjall::ADAPTER);
#[cfg(not(feature = "fjall"))]
const FJALL: Option<Adapter> = None;

#[cfg(feature = "leveldb")]
const LEVELDB: Option<Adapter> = Some(crate::leveldb::LevelDb::ADAPTER);
#[cfg(not(feature = "leveldb"))]
const LEVELDB: Option<Adapter> = None;

#[cfg(feature = "lmdb")]
const LMDB: Option<Adapter> = Some(crate::lmdb::Lmdb::ADAPTER);
#[cfg(not(feature = "lmdb"))]
const LMDB: Option<Adapter> = None;

#[cfg(feature = "mariadb")]
const MARIADB_ALLUVIUM: Option<Adapter> = Some(crate::servers::mariadb::ALLUVIUM);
#[cfg(feature = "mariadb")]
const MARIADB_INNODB: Option<Adapter> = Some(crate::servers::mariadb::INNODB);
#[cfg(feature = "mariadb")]
const MARIADB_ROCKSDB: Option<Adapter> = Some(crate::servers::mariadb::ROCKSDB);
#[cfg(not(feature = "mariadb"))]
const MARIADB_ALLUVIUM: Option<Adapter> = None;
#[cfg(not(feature = "mariadb"))]
const MARIADB_INNODB: Option<Adapter> = None;
#[cfg(not(feature = "mariadb"))]
const MARIADB_ROCKSDB: Option<Adapter> = None;

#[cfg(feature = "postgresql")]
const POSTGRESQL: Option<Adapter> = Some(crate::servers::postgresql::ADAPTER);
#[cfg(not(feature = "postgresql"))]
const POSTGRESQL: Option<Adapter> = None;

#[cfg(feature = "redb")]
const REDB: Option<Adapter> = Some(crate::redb::Redb::ADAPTER);
#[cfg(not(feature = "redb"))]
const REDB: Option<Adapter> = None;

#[cfg(feature = "rocksdb")]
const ROCKSDB: Option<Adapter> = Some(crate::rocksdb::ADAPTER);
#[cfg(not(feature = "rocksdb"))]
const ROCKSDB: Option<Adapter> = None;

#[cfg(feature = "sqlite")]
const SQLITE: Option<Adapter> = Some(crate::sqlite::ADAPTER);
#[cfg(not(feature = "sqlite"))]
const SQLITE: Option<Adapter> = None;

#[cfg(feature = "wiredtiger")]
const WIREDTIGER: Option<Adapter> = Some(crate::wiredtiger::WiredTiger::ADAPTER);
#[cfg(not(feature = "wiredtiger"))]
const WIREDTIGER: Option<Adapter> = None;

/// Returns the products of this build that have replicas.
pub fn replicated_products() -> Vec<Box<dyn Product>> {
    vec![
        #[cfg(feature = "mariadb")]
        Box::new(crate::servers::mariadb::replication::INNODB),
        #[cfg(feature = "mariadb")]
        Box::new(crate::servers::mariadb::replication::MYROCKS),
        #[cfg(feature = "mariadb")]
        Box::new(crate::servers::mariadb::replication::ALLUVIUM),
        #[cfg(feature = "postgresql")]
        Box::new(crate::servers::postgresql::replication::PAIR),
    ]
}

/// Ends servers that outlived a killed laboratory, and removes their sockets. Leaves servers of
/// running laboratories alone. Keeps the data, but prints its folder with the command that removes
/// it. A build without servers does nothing.
pub fn remove_left_overs() {
    #[cfg(any(feature = "mariadb", feature = "postgresql"))]
    crate::servers::name_data(&crate::servers::remove_left_overs());
}

/// Like [`remove_left_overs`], for use after a trial with a process that may have been killed.
/// Prints nothing, because the caller handles the trial's data.
pub fn end_left_overs() {
    #[cfg(any(feature = "mariadb", feature = "postgresql"))]
    drop(crate::servers::remove_left_overs());
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
        assert!(message("zzz").contains(
            "there are: alluvium, fjall, leveldb, lmdb, mariadb-alluvium, mariadb-innodb, mariadb-rocksdb, null, postgresql, redb, rocksdb, sqlite, wiredtiger"
        ));
    }

    #[cfg(not(feature = "rocksdb"))]
    #[test]
    fn an_engine_that_is_not_built_says_what_brings_it() {
        let config = OpenConfig {
            dir: std::path::PathBuf::new(),
            schema: rumbench_core::engine::Schema::LinkBench,
            variant: None,
            cache_bytes: 0,
            durability: rumbench_core::engine::Durability::Buffered,
            clients: 1,
            settings: std::collections::BTreeMap::new(),
        };
        let found = find("rocksdb").unwrap();
        assert!(!found.entry.is_available());
        let error = found.entry.open(&config).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("bench-rocksdb"), "{error}");
    }
}
