//! Configuration of a PostgreSQL server, requested and effective.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rumbench_core::engine::{Durability, OpenConfig, Result};

use super::wire::PostgresSession;
use crate::facts::Configuration;
use crate::servers::external::{self, Given};
use crate::servers::own_lines::{self, OwnLines};
use crate::servers::packages::{self, POSTGRESQL};
use crate::servers::session::Session;
use crate::settings::Settings;

/// Connections in addition to the clients': the laboratory's own, checks, index builds, reserved
/// ones.
const OTHER_CONNECTIONS: usize = 24;

/// Name, value, and reason for a value other than the default.
type Setting = (&'static str, String, &'static str);

/// Contents of `postgresql.conf`.
pub(super) struct Tuning {
    settings: Vec<Setting>,
    /// User's own lines, which come later.
    own: OwnLines,
    pub class: Durability,
    /// External server, if one was given.
    pub given: Option<Given>,
    /// Root of the binaries for a server that is started here; `None` for the default locations.
    pub root: Option<PathBuf>,
}

impl Tuning {
    pub fn of(config: &OpenConfig) -> Result<Tuning> {
        let mut asked = Settings::without_variants(POSTGRESQL, config)?;
        let given = Given::take(POSTGRESQL, &mut asked, "postgres")?;
        // An external server is not configured.
        let (mut wal_mib, mut file, mut root) = (4096, None, None);
        if given.is_none() {
            root = packages::take_root(&mut asked)?;
            wal_mib = asked.take_in("max_wal_mib", wal_mib, 32..=1 << 20)?;
            file = asked.take_text("options_file");
        }
        asked.finish()?;
        let own = OwnLines::read(file)?;
        let class = config.durability;
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_string();
        let log = "long writes must not be a storm of checkpoints";
        let vacuum = "keeps up with a queue of inserts and deletes";
        let plan = "statements are small";
        let settings = vec![
            (
                "shared_buffers",
                format!("{}kB", (config.cache_bytes >> 10).max(128)),
                "cache_bytes",
            ),
            ("fsync", on(class != Durability::None), "durability class"),
            (
                "synchronous_commit",
                on(class == Durability::Sync),
                "durability class",
            ),
            ("full_page_writes", on(true), "torn pages are repaired"),
            ("max_wal_size", format!("{wal_mib}MB"), log),
            ("checkpoint_timeout", "30min".to_string(), log),
            ("autovacuum_naptime", "10s".to_string(), vacuum),
            ("autovacuum_vacuum_cost_delay", "1ms".to_string(), vacuum),
            ("autovacuum_vacuum_cost_limit", "4000".to_string(), vacuum),
            ("autovacuum_vacuum_scale_factor", "0.05".to_string(), vacuum),
            (
                "autovacuum_vacuum_insert_scale_factor",
                "0.05".to_string(),
                vacuum,
            ),
            ("jit", on(false), plan),
            ("max_parallel_workers_per_gather", "0".to_string(), plan),
            (
                "max_parallel_maintenance_workers",
                "0".to_string(),
                "an index is built by one process, as elsewhere",
            ),
            (
                "max_connections",
                (config.clients + OTHER_CONNECTIONS).to_string(),
                "clients",
            ),
        ];
        Ok(Tuning {
            settings,
            own,
            class,
            given,
            root,
        })
    }

    /// Returns the whole file.
    pub fn file(&self) -> String {
        let mut file = String::new();
        for (name, value, _) in &self.settings {
            file += &format!("{name} = '{value}'\n");
        }
        file + self.own.text()
    }

    /// Returns the settings of the command line. They override any file, so that no line can open
    /// the server to other users or move it to other data. Sockets are in `folder`.
    pub fn arguments(data: &Path, folder: &Path) -> Vec<OsString> {
        let paths = [
            ("data_directory", data.to_path_buf()),
            ("hba_file", data.join("pg_hba.conf")),
            ("ident_file", data.join("pg_ident.conf")),
            ("external_pid_file", data.join("external.pid")),
            ("unix_socket_directories", folder.to_path_buf()),
        ];
        let paths = paths.into_iter().map(|(name, path)| {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(path);
            setting
        });
        let others = [
            "listen_addresses=",
            "unix_socket_permissions=0700",
            "port=5432",
        ];
        let settings = paths.chain(others.map(OsString::from));
        settings
            .flat_map(|setting| ["-c".into(), setting])
            .collect()
    }

    /// Returns the configuration that the server reports, with the reasons of the laboratory's
    /// settings.
    pub fn effective(&self, session: &mut PostgresSession) -> Result<Configuration> {
        let rows = session.query(
            "SELECT name, current_setting(name) FROM pg_settings WHERE source = 'configuration file' \
             OR name IN ('wal_compression', 'autovacuum', 'data_checksums', 'wal_sync_method', 'wal_writer_delay', \
             'effective_cache_size', 'random_page_cost', 'huge_pages', 'block_size', 'shared_buffers', 'fsync', \
             'synchronous_commit', 'full_page_writes', 'max_wal_size', 'checkpoint_timeout')",
        )?;
        let own = self.own.names();
        let mut configuration = Configuration::default();
        for row in rows {
            let [name, value] = &row[..] else { continue };
            match self.reason(&own, name) {
                Some(reason) => configuration.tuned(name, value, reason),
                None => configuration.given(name, value),
            }
        }
        Ok(configuration)
    }

    /// Returns the reason for a setting that was chosen.
    fn reason(&self, own: &[String], name: &str) -> Option<&'static str> {
        if own.iter().any(|own| own == name) {
            return Some(own_lines::REASON);
        }
        let mut settings = self.settings.iter().filter(|_| self.given.is_none());
        let (.., reason) = settings.find(|(known, ..)| *known == name)?;
        Some(reason)
    }

    /// Refuses a server with commits of another durability class.
    pub fn check_class(&self, session: &mut PostgresSession) -> Result<()> {
        const DECIDE: [&str; 2] = ["fsync", "synchronous_commit"];
        let decisive = |(name, _, _): &&Setting| DECIDE.contains(name);
        for (setting, asked, _) in self.settings.iter().filter(decisive) {
            let found = session.ask(&format!("SHOW {setting}"))?;
            external::check_class(POSTGRESQL, self.given.as_ref(), setting, &found, asked)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::tests::config;

    #[test]
    fn the_class_decides_what_a_commit_waits_for() {
        let file = |class| Tuning::of(&config(Path::new(""), class)).unwrap().file();
        assert!(file(Durability::Sync).contains("fsync = 'on'\nsynchronous_commit = 'on'\n"));
        assert!(file(Durability::Buffered).contains("fsync = 'on'\nsynchronous_commit = 'off'\n"));
        assert!(file(Durability::None).contains("fsync = 'off'\nsynchronous_commit = 'off'\n"));
    }

    #[test]
    fn lines_of_the_user_win_and_are_the_reason_of_what_they_set() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own.conf");
        std::fs::write(&own, "jit = on\n").unwrap();
        let mut config = config(Path::new(""), Durability::Buffered);
        let path = own.to_str().unwrap().to_string();
        config.settings.insert("options_file".to_string(), path);
        let tuning = Tuning::of(&config).unwrap();
        let file = tuning.file();
        let place = |text: &str| file.rfind(text).unwrap();
        assert!(place("jit = on") > place("jit = 'off'"));
        let reason = |name: &str| tuning.reason(&tuning.own.names(), name);
        assert_eq!(reason("jit"), Some(own_lines::REASON));
        assert_eq!(reason("shared_buffers"), Some("cache_bytes"));
        assert_eq!(reason("port"), None);
    }
}
