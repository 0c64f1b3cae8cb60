//! Variants of MariaDB's two engines: how InnoDB stores tables, and what a server may do besides storing them.
//!
//! A variant changes one thing of the plain entry, so that the difference of two rows of a table is its price.

use rumbench_core::engine::{EngineError, OpenConfig, Result};

use super::options::{Setting, Storage};
use crate::servers::sql::Form;
use crate::settings::Settings;

/// What the variant of a trial changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variation {
    /// How tables are stored.
    pub(super) form: Form,
    /// Whether there is a binary log.
    pub(super) binlog: bool,
    /// Whether the performance schema is on.
    pub(super) performance_schema: bool,
    /// Whether the server has the other storage engine too, tuned as if it were the one.
    pub(super) has_both: bool,
}

impl Variation {
    /// The variant that was asked for; takes the settings that only it has.
    pub(super) fn of(
        storage: Storage,
        config: &OpenConfig,
        asked: &mut Settings<'_>,
    ) -> Result<Variation> {
        let plain = Variation {
            form: match storage {
                Storage::InnoDb => Form::InnoDb,
                Storage::MyRocks => Form::MyRocks,
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

    /// The settings that it stands for.
    pub(super) fn settings(self) -> Vec<Setting> {
        let mut settings = vec![match self.performance_schema {
            true => (
                "performance_schema",
                "ON".to_string(),
                "the variant, with the instruments that are on by default",
            ),
            false => (
                "performance_schema",
                "OFF".to_string(),
                "costs every statement",
            ),
        }];
        if self.binlog {
            let why = "the variant: a server whose replicas lose nothing";
            settings.push(("sync_binlog", "1".to_string(), why));
            let rows = "MyRocks takes no other, and statements are ambiguous";
            settings.push(("binlog_format", "ROW".to_string(), rows));
            settings.push(("server_id", "1".to_string(), "replicas ask for one"));
        }
        settings
    }

    /// What `log_bin` must be.
    pub(super) fn log_bin(self) -> &'static str {
        if self.binlog { "ON" } else { "OFF" }
    }
}

/// InnoDB knows powers of two, up to its own page.
fn key_block_kib(asked: &mut Settings<'_>) -> Result<u8> {
    let kib: u8 = asked.take_in("key_block_kib", 8, 1..=16)?;
    match kib.is_power_of_two() {
        true => Ok(kib),
        false => Err(EngineError::Unsupported(format!(
            "mariadb-innodb.key_block_kib={kib}: must be 1, 2, 4, 8 or 16"
        ))),
    }
}
