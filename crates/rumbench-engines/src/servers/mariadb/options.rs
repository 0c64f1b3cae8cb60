//! Configuration of MariaDB for each storage engine.

use std::path::PathBuf;

use rumbench_core::engine::{Durability, DurabilityFacts, OpenConfig, Result};

use super::read_back::{self, Asked, Variables};
use super::storage::Storage;
use super::tuned::{Setting, alluvium, common, idle_innodb, innodb, myrocks};
use super::variants::Variation;
use super::wire::MariaSession;
use crate::facts::{
    ALL_ACKNOWLEDGED, Configuration, MAY_CORRUPT, PREFIX_ONE_SECOND, SOME_PREFIX, survives,
};
use crate::servers::external::{self, Given};
use crate::servers::own_lines::OwnLines;
use crate::servers::packages::{self, Plugin};
use crate::servers::session::Session;
use crate::settings::Settings;

/// Variables that the command line sets.
pub(super) const DECIDED: [&str; 20] = [
    "alluvium_datadir",
    "aria_log_dir_path",
    "basedir",
    "character_sets_dir",
    "datadir",
    "ignore_db_dirs",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "lc_messages_dir",
    "log_bin",
    "pid_file",
    "plugin_dir",
    "rocksdb_datadir",
    "rocksdb_wal_dir",
    "skip_grant_tables",
    "skip_log_bin",
    "skip_networking",
    "socket",
    "tmpdir",
];

/// Contents of `my.cnf`.
pub(super) struct Tuning {
    storage: Storage,
    /// Changes of the variant.
    pub(super) variation: Variation,
    /// True if each client's connection is one bulk load of MyRocks.
    pub(super) bulk_load: bool,
    /// External server, if one was given.
    pub(super) given: Option<Given>,
    /// Root of the binaries for a server that is started here; `None` for the default locations.
    pub(super) root: Option<PathBuf>,
    class: Durability,
    /// Value of the storage engine's `flush_log_at_trx_commit`.
    at_commit: &'static str,
    settings: Vec<Setting>,
    /// User's own lines, which come later.
    own: OwnLines,
}

impl Tuning {
    /// Reads variant and settings.
    ///
    /// # Errors
    /// If a setting is unknown or out of range, or if the options file cannot be read.
    pub(super) fn of(config: &OpenConfig, storage: Storage) -> Result<Tuning> {
        let mut asked = Settings::of(storage.engine(), config);
        let given = Given::take(storage.engine(), &mut asked, "root")?;
        // An external server is not configured.
        let (mut log_mib, mut file, mut root) = (1024, None, None);
        if given.is_none() {
            root = packages::take_root(&mut asked)?;
            // Alluvium bounds its log by its memory.
            if storage != Storage::Alluvium {
                log_mib = asked.take_in("log_mib", log_mib, 16..=1 << 20)?;
            }
            file = asked.take_text("options_file");
        }
        let bulk_load: u8 = match storage {
            Storage::MyRocks => asked.take_in("bulk_load", 0, 0..=1)?,
            Storage::InnoDb | Storage::Alluvium => 0,
        };
        let variation = Variation::of(storage, config, &mut asked)?;
        asked.finish()?;
        let own = OwnLines::read(file)?;
        let mut settings = common(config.clients);
        settings.extend(variation.settings());
        let at_commit = match config.durability {
            Durability::Sync => "1",
            Durability::Buffered => "2",
            Durability::None => "0",
        };
        let cache_bytes = config.cache_bytes;
        let with = |one| storage == one || (variation.has_both && storage.companion() == one);
        settings.extend(if with(Storage::InnoDb) {
            innodb(cache_bytes, log_mib, at_commit)
        } else {
            idle_innodb()
        });
        if with(Storage::MyRocks) {
            settings.extend(myrocks(cache_bytes, log_mib, at_commit));
        }
        if with(Storage::Alluvium) {
            settings.extend(alluvium(cache_bytes, at_commit));
        }
        Ok(Tuning {
            storage,
            variation,
            bulk_load: bulk_load == 1,
            given,
            root,
            at_commit,
            class: config.durability,
            settings,
            own,
        })
    }

    /// Returns the plugin that the server must load.
    pub(super) fn plugin(&self) -> Option<&'static Plugin> {
        // InnoDB, one of the two in `both`, is part of the server.
        let companion = self
            .variation
            .has_both
            .then(|| self.storage.companion().plugin());
        self.storage.plugin().or(companion.flatten())
    }

    /// Returns the whole file.
    pub(super) fn file(&self) -> String {
        let mut file = "[mariadbd]\n".to_string();
        for (name, value, _) in &self.settings {
            file += &format!("{name}={value}\n");
        }
        file + self.own.text()
    }

    /// Returns the names of the user's settings, except those that the command line sets.
    fn own_names(&self) -> Vec<String> {
        let mut names = self.own.names();
        names.retain(|name| !DECIDED.contains(&name.as_str()));
        names
    }

    /// Returns the configuration that the server reports, with the reasons of the laboratory's
    /// settings.
    ///
    /// # Errors
    /// If it differs from the requested configuration.
    pub(super) fn effective(&self, session: &mut MariaSession) -> Result<Configuration> {
        let variables = Variables::of(session)?;
        let mut found = match self.given {
            None => variables.effective(&Asked {
                settings: &self.settings,
                log_bin: Some(self.variation.log_bin()),
                own: &self.own_names(),
                told: &[],
            })?,
            Some(_) => self.effective_of_given(&variables)?,
        };
        if let Some(form) = read_back::check_form(session, self.variation.form)? {
            found.tuned("tables", &form, "the variant");
        }
        Ok(found)
    }

    /// Repeats the table check of [`Tuning::effective`] for tables that were created later.
    pub(super) fn check_form(&self, session: &mut MariaSession) -> Result<()> {
        read_back::check_form(session, self.variation.form).map(drop)
    }

    /// Checks that an external server matches the variant; reports all other settings as they are.
    fn effective_of_given(&self, variables: &Variables) -> Result<Configuration> {
        let mut demanded = self.variation.settings();
        demanded.retain(|(name, _, _)| match *name {
            "performance_schema" => self.variation.performance_schema,
            "server_id" => false,
            _ => true,
        });
        let told: Vec<&'static str> = self.settings.iter().map(|(name, _, _)| *name).collect();
        let told: Vec<&'static str> = told
            .into_iter()
            .filter(|name| demanded.iter().all(|(known, _, _)| known != name))
            .collect();
        variables.effective(&Asked {
            settings: &demanded,
            log_bin: self.variation.binlog.then_some("ON"),
            own: &[],
            told: &told,
        })
    }

    /// Refuses a server with a log of another durability class.
    pub(super) fn check_class(&self, session: &mut MariaSession) -> Result<()> {
        let (engine, given) = (self.storage.engine(), self.given.as_ref());
        let setting = match self.storage {
            Storage::InnoDb => "innodb_flush_log_at_trx_commit",
            Storage::MyRocks => "rocksdb_flush_log_at_trx_commit",
            Storage::Alluvium => "alluvium_flush_log_at_trx_commit",
        };
        let found = session.ask(&format!("SELECT @@GLOBAL.{setting}"))?;
        external::check_class(engine, given, setting, &found, self.at_commit)?;
        if self.storage == Storage::MyRocks && self.class != Durability::None {
            let setting = "rocksdb_write_disable_wal";
            let found = session.ask(&format!("SELECT @@GLOBAL.{setting}"))?;
            external::check_class(engine, given, setting, &found, "0")?;
        }
        Ok(())
    }

    /// Returns the durability facts; asks the server for facts that the class does not determine.
    pub(super) fn durability_facts(&self, session: &mut MariaSession) -> Result<DurabilityFacts> {
        let mut ask = |variable: &str| session.ask(&format!("SELECT @@GLOBAL.{variable}"));
        Ok(match self.storage {
            Storage::MyRocks => {
                let keeps_back = ask("rocksdb_manual_wal_flush")? == "1"
                    || ask("rocksdb_write_disable_wal")? == "1";
                of_myrocks(self.class, keeps_back)
            }
            Storage::Alluvium => of_alluvium(self.class),
            Storage::InnoDb => {
                let method = ask("innodb_flush_method")?.to_ascii_lowercase();
                let doublewrite = ask("innodb_doublewrite")?.to_ascii_lowercase();
                let tears = ["0", "off"].contains(&doublewrite.as_str())
                    || ["nosync", "littlesync"].contains(&method.as_str());
                let each_second = ask("innodb_flush_log_at_timeout")? == "1";
                of_innodb(self.class, tears, each_second)
            }
        })
    }
}

/// Returns InnoDB's facts. `tears_pages`: the server keeps no second copy of pages that it writes,
/// or does not wait until they are on the device.
fn of_innodb(class: Durability, tears_pages: bool, each_second: bool) -> DurabilityFacts {
    let prefix = if each_second {
        PREFIX_ONE_SECOND
    } else {
        SOME_PREFIX
    };
    let (process_kill, power_cut) = match class {
        Durability::Sync => (ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered => (ALL_ACKNOWLEDGED, prefix),
        Durability::None => (prefix, prefix),
    };
    if tears_pages {
        survives(process_kill, MAY_CORRUPT)
    } else {
        survives(process_kill, power_cut)
    }
}

/// Returns MyRocks' facts. `keeps_back`: the server keeps commits in its own memory for a while,
/// without a log or before it writes the log.
fn of_myrocks(class: Durability, keeps_back: bool) -> DurabilityFacts {
    match class {
        Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered if keeps_back => survives(PREFIX_ONE_SECOND, PREFIX_ONE_SECOND),
        Durability::Buffered => survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
        Durability::None if keeps_back => survives(SOME_PREFIX, SOME_PREFIX),
        Durability::None => survives(ALL_ACKNOWLEDGED, SOME_PREFIX),
    }
}

/// Returns Alluvium's facts. The engine hands each commit of all classes to the kernel, and syncs
/// its log every 100 ms.
fn of_alluvium(class: Durability) -> DurabilityFacts {
    match class {
        Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered | Durability::None => survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tuned::COLUMN_FAMILY;
    use super::*;
    use crate::servers::tests::config;

    fn file(storage: Storage, durability: Durability, settings: &[(&str, &str)]) -> Result<String> {
        let pairs = settings
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        let config = OpenConfig {
            settings: pairs.collect(),
            ..config(Path::new(""), durability)
        };
        Ok(Tuning::of(&config, storage)?.file())
    }

    #[test]
    fn the_class_decides_when_the_log_is_written_and_synced() {
        for (class, value) in [
            (Durability::Sync, 1),
            (Durability::Buffered, 2),
            (Durability::None, 0),
        ] {
            let text = file(Storage::InnoDb, class, &[]).unwrap();
            assert!(text.contains(&format!("innodb_flush_log_at_trx_commit={value}\n")));
            let text = file(Storage::MyRocks, class, &[]).unwrap();
            assert!(text.contains(&format!("rocksdb_flush_log_at_trx_commit={value}\n")));
            let text = file(Storage::Alluvium, class, &[]).unwrap();
            assert!(text.contains(&format!("alluvium_flush_log_at_trx_commit={value}\n")));
        }
    }

    #[test]
    fn commits_that_myrocks_keeps_back_do_not_survive_its_death() {
        let kept = |keeps_back| of_myrocks(Durability::Buffered, keeps_back);
        assert_eq!(kept(false).process_kill, ALL_ACKNOWLEDGED);
        assert_eq!(kept(true).process_kill, PREFIX_ONE_SECOND);
        let text = file(Storage::MyRocks, Durability::Buffered, &[]).unwrap();
        assert!(text.contains("\nrocksdb_manual_wal_flush=OFF\n"));
    }

    #[test]
    fn without_a_second_copy_of_pages_a_power_cut_may_tear_them() {
        let cut = |tears| of_innodb(Durability::Sync, tears, true).power_cut;
        assert_eq!([cut(false), cut(true)], [ALL_ACKNOWLEDGED, MAY_CORRUPT]);
    }

    #[test]
    fn a_log_that_is_synced_more_seldom_leaves_a_prefix_of_unknown_age() {
        let cut = |each_second| of_innodb(Durability::Buffered, false, each_second).power_cut;
        assert_eq!([cut(true), cut(false)], [PREFIX_ONE_SECOND, SOME_PREFIX]);
    }

    #[test]
    fn innodb_alone_has_no_settings_of_myrocks() {
        let text = file(Storage::InnoDb, Durability::Buffered, &[]).unwrap();
        assert!(!text.contains("rocksdb_"));
        assert!(!COLUMN_FAMILY.contains(' '));
    }

    #[test]
    fn one_server_with_both_engines_is_configured_the_same_for_either() {
        let both = |storage| {
            let config = OpenConfig {
                variant: Some("both".to_string()),
                ..config(Path::new(""), Durability::Sync)
            };
            let tuning = Tuning::of(&config, storage).unwrap();
            (tuning.plugin().unwrap().name, tuning.file())
        };
        let (plugin, text) = both(Storage::InnoDb);
        assert_eq!(plugin, "ha_rocksdb");
        assert_eq!((plugin, text.clone()), both(Storage::MyRocks));
        for line in [
            "innodb_buffer_pool_size=67108864\n",
            "rocksdb_block_cache_size=67108864\n",
            "innodb_flush_log_at_trx_commit=1\n",
            "rocksdb_flush_log_at_trx_commit=1\n",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
        let (plugin, text) = both(Storage::Alluvium);
        assert_eq!(plugin, "ha_alluvium");
        for line in [
            "innodb_buffer_pool_size=67108864\n",
            "alluvium_memory_bytes=67108864\n",
            "innodb_flush_log_at_trx_commit=1\n",
            "alluvium_flush_log_at_trx_commit=1\n",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
        assert!(!text.contains("rocksdb_"));
    }

    #[test]
    fn unknown_settings_and_files_that_are_not_there_are_refused() {
        let refused = |settings| {
            file(Storage::InnoDb, Durability::Buffered, settings)
                .unwrap_err()
                .to_string()
        };
        let error = refused(&[("log_mb", "1")]);
        assert_eq!(
            error,
            "mariadb-innodb has no setting `log_mb`; did you mean `log_mib`?"
        );
        assert!(
            refused(&[("options_file", "/no/such/file")]).contains("cannot read /no/such/file")
        );
    }
}
