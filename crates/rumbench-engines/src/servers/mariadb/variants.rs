//! Variants of MariaDB's engines: InnoDB's storage forms, and optional features of the server.
//!
//! A variant changes one thing of the plain entry, so that the difference between two rows of a
//! table is its cost.

use rumbench_core::engine::{EngineError, OpenConfig, Result};

use super::storage::Storage;
use super::tuned::Setting;
use crate::servers::sql::Form;
use crate::settings::Settings;

/// Changes made by a trial's variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variation {
    /// Storage form of tables.
    pub(super) form: Form,
    /// True if the server writes a binary log.
    pub(super) binlog: bool,
    /// True if the performance schema is on.
    pub(super) performance_schema: bool,
    /// True if the server also has the companion, tuned as if it were the only storage engine.
    pub(super) has_both: bool,
}

impl Variation {
    /// Returns the requested variant; takes the settings that only it has.
    pub(super) fn of(
        storage: Storage,
        config: &OpenConfig,
        asked: &mut Settings<'_>,
    ) -> Result<Variation> {
        let plain = Variation {
            form: match storage {
                Storage::InnoDb => Form::InnoDb,
                Storage::MyRocks => Form::MyRocks,
                Storage::Alluvium => Form::Alluvium,
            },
            binlog: false,
            performance_schema: false,
            has_both: false,
        };
        let with = |form| Variation { form, ..plain };
        Ok(match (config.variant.as_deref(), storage) {
            (None, _) => plain,
            (Some("binlog"), _) => Variation {
                binlog: true,
                ..plain
            },
            (Some("performance-schema"), _) => Variation {
                performance_schema: true,
                ..plain
            },
            (Some("both"), _) => Variation {
                has_both: true,
                ..plain
            },
            (Some("compressed"), Storage::InnoDb) => with(Form::KeyBlocks {
                kib: key_block_kib(asked)?,
            }),
            (Some("page-compressed"), Storage::InnoDb) => with(Form::PageCompressed {
                level: asked.take_in("page_compression_level", 6, 1..=9)?,
            }),
            (Some(other), _) => {
                return Err(EngineError::Unsupported(format!(
                    "{} has no variant `{other}`",
                    storage.engine()
                )));
            }
        })
    }

    /// Returns the settings of the variant.
    pub(super) fn settings(self) -> Vec<Setting> {
        let mut settings = vec![if self.performance_schema {
            (
                "performance_schema",
                "ON".to_string(),
                "the variant, with the instruments that are on by default",
            )
        } else {
            (
                "performance_schema",
                "OFF".to_string(),
                "costs every statement",
            )
        }];
        if self.binlog {
            let why = "the variant: a server whose replicas lose nothing";
            settings.push(("sync_binlog", "1".to_string(), why));
            let rows = "MyRocks and Alluvium take no other, and statements are ambiguous";
            settings.push(("binlog_format", "ROW".to_string(), rows));
            settings.push(("server_id", "1".to_string(), "replicas ask for one"));
        }
        settings
    }

    /// Returns the required value of `log_bin`.
    pub(super) fn log_bin(self) -> &'static str {
        if self.binlog { "ON" } else { "OFF" }
    }
}

/// Takes InnoDB's compressed block size in KiB: a power of two, at most InnoDB's page size.
fn key_block_kib(asked: &mut Settings<'_>) -> Result<u8> {
    let kib: u8 = asked.take_in("key_block_kib", 8, 1..=16)?;
    if kib.is_power_of_two() {
        Ok(kib)
    } else {
        Err(EngineError::Unsupported(format!(
            "mariadb-innodb.key_block_kib={kib}: must be 1, 2, 4, 8 or 16"
        )))
    }
}
