//! Start of a private MariaDB: its configuration file, its command line, its own tables.
//!
//! The file has the laboratory's settings, then the user's lines. Socket and data folders are on
//! the command line, which overrides the file: no line of a file changes them, and a path needs no
//! quotes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rumbench_core::engine::{EngineError, Result};

use super::options::Tuning;
use crate::error::failed;
use crate::servers::packages::PLUGINS;
use crate::servers::places::Places;
use crate::servers::program::Program;

/// Configuration file in the trial's folder.
pub(super) const CONFIGURATION: &str = "my.cnf";

/// Private server and its folders.
pub(super) struct Launch<'a> {
    pub(super) program: &'a Program<'a>,
    pub(super) tuning: &'a Tuning,
    pub(super) places: &'a Places,
    /// Parent folder of the server's `usr`.
    pub(super) root: &'a Path,
    /// Plugin outside the server's plugin folder.
    pub(super) plugin: Option<&'a Path>,
    /// Folder of the socket, and of the links to plugins.
    pub(super) run: &'a Path,
    /// Options of a server that replicates; `None`: a server without network and users.
    pub(super) replication: Option<&'a [String]>,
}

impl Launch<'_> {
    /// Writes the configuration, and creates the folder for index sorts, on the measured device.
    pub(super) fn configure(&self) -> Result<()> {
        fs::create_dir_all(self.temporary())
            .map_err(failed("mariadb: create the folder for sorting"))?;
        fs::write(self.places.trial.join(CONFIGURATION), self.tuning.file())
            .map_err(failed("mariadb: write my.cnf"))?;
        self.link_plugins()
            .map_err(failed("mariadb: link the plugins"))
    }

    /// Links the server's plugins and the one outside into one folder, the only one of a server.
    fn link_plugins(&self) -> io::Result<()> {
        let Some(plugin) = self.plugin else {
            return Ok(());
        };
        let folder = self.plugins();
        fs::create_dir(&folder)?;
        let own = fs::read_dir(self.root.join(PLUGINS))?.flatten();
        for path in own.map(|entry| entry.path()).chain([plugin.to_path_buf()]) {
            if let Some(name) = path.file_name() {
                symlink(&path, folder.join(name))?;
            }
        }
        Ok(())
    }

    /// Returns the server's plugin folder.
    fn plugins(&self) -> PathBuf {
        match self.plugin {
            None => self.root.join(PLUGINS),
            Some(_) => self.run.join("plugins"),
        }
    }

    /// Creates the server's own tables with the scripts that come with it.
    pub(super) fn initialize(&self) -> Result<()> {
        let mut script = "CREATE DATABASE mysql;\nUSE mysql;\n".to_string();
        for name in ["mysql_system_tables.sql", "mysql_system_tables_data.sql"] {
            let path = self.root.join("usr/share/mysql").join(name);
            script += &fs::read_to_string(&path).map_err(|error| {
                EngineError::failed(format!("cannot read {}", path.display()), error)
            })?;
        }
        let mut command = self.command()?;
        command.arg("--bootstrap");
        self.program.run(command, &script, &self.places.log)
    }

    /// Returns the command of the server with its configuration; running as root needs an option.
    pub(super) fn command(&self) -> Result<Command> {
        let mut command = self.program.command(&self.places.log)?;
        let file = self.places.trial.join(CONFIGURATION);
        command.arg(option("defaults-file", &file));
        for (name, path) in self.paths() {
            command.arg(option(name, &path));
        }
        command.args(self.switches());
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        Ok(command)
    }

    fn temporary(&self) -> PathBuf {
        self.places.trial.join("tmp")
    }

    /// Returns the options for the server's files and folders.
    fn paths(&self) -> Vec<(&'static str, PathBuf)> {
        let (usr, data) = (self.root.join("usr"), &self.places.data);
        let mut paths = vec![
            ("plugin-dir", self.plugins()),
            ("lc-messages-dir", usr.join("share/mysql")),
            ("character-sets-dir", usr.join("share/mysql/charsets")),
            ("basedir", usr),
            ("datadir", data.clone()),
            ("tmpdir", self.temporary()),
            ("socket", self.run.join("socket")),
            ("pid-file", self.run.join("pid")),
            ("innodb-data-home-dir", data.clone()),
            ("innodb-log-group-home-dir", data.clone()),
            ("innodb-undo-directory", data.clone()),
            ("aria-log-dir-path", data.clone()),
            // The defaults of a plugin that may not be loaded: folders of the data folder.
            ("loose-rocksdb-datadir", PathBuf::from("./#rocksdb")),
            ("loose-rocksdb-wal-dir", PathBuf::new()),
            ("loose-alluvium-datadir", PathBuf::from("./#alluvium")),
            // Otherwise the server takes a plugin's folder for a database.
            ("ignore-db-dirs", PathBuf::from("#alluvium")),
        ];
        if self.tuning.variation.binlog {
            paths.push(("log-bin", data.join("binlog")));
        }
        paths
    }

    fn switches(&self) -> Vec<String> {
        let alone = ["--skip-networking", "--skip-grant-tables"].map(String::from);
        let mut switches = self.replication.unwrap_or(&alone).to_vec();
        if !self.tuning.variation.binlog {
            switches.push("--skip-log-bin".to_string());
        }
        let plugin = self.tuning.plugin();
        switches.extend(plugin.map(|plugin| format!("--plugin-load-add={}", plugin.name)));
        switches
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(path);
    option
}

#[cfg(test)]
mod tests {
    use rumbench_core::engine::{Durability, OpenConfig};

    use super::super::options::DECIDED;
    use super::super::storage::Storage;
    use super::*;
    use crate::servers::tests::config;

    /// Returns the command line without the program.
    fn command_line(storage: Storage, variant: Option<&str>) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let config = OpenConfig {
            variant: variant.map(String::from),
            ..config(Path::new(""), Durability::Buffered)
        };
        let command = Launch {
            program: &Program {
                path: Path::new("/mariadbd"),
                ..Program::shell()
            },
            tuning: &Tuning::of(&config, storage).unwrap(),
            places: &Places {
                trial: dir.path().to_path_buf(),
                data: PathBuf::from("/data#1"),
                log: dir.path().join("log"),
            },
            root: Path::new("/"),
            plugin: None,
            run: Path::new("/run"),
            replication: None,
        }
        .command()
        .unwrap();
        let arguments = command.get_args().skip_while(|text| *text != "/mariadbd");
        let texts = arguments.skip(1).map(|text| text.to_str().unwrap());
        texts.map(String::from).collect()
    }

    #[test]
    fn innodb_loads_no_plugin_and_nobody_listens_on_the_network() {
        let innodb = command_line(Storage::InnoDb, None);
        let plugin = "--plugin-load-add=ha_rocksdb".to_string();
        assert!(!innodb.contains(&plugin));
        assert!(innodb.contains(&"--skip-networking".to_string()));
        assert!(innodb.contains(&"--datadir=/data#1".to_string()));
        let both = [(Storage::MyRocks, None), (Storage::InnoDb, Some("both"))];
        for (storage, variant) in both {
            assert!(command_line(storage, variant).contains(&plugin));
        }
        let plugin = "--plugin-load-add=ha_alluvium".to_string();
        for variant in [None, Some("both")] {
            assert!(command_line(Storage::Alluvium, variant).contains(&plugin));
        }
    }

    #[test]
    fn what_the_command_line_decides_is_known() {
        let mut decided: Vec<String> = Vec::new();
        for variant in [None, Some("binlog")] {
            let arguments = command_line(Storage::InnoDb, variant).into_iter();
            decided.extend(arguments.filter_map(|argument| {
                let name = argument.split('=').next()?.strip_prefix("--")?;
                let name = name.strip_prefix("loose-").unwrap_or(name);
                Some(name.replace('-', "_"))
            }));
        }
        decided.retain(|name| !["defaults_file", "user"].contains(&name.as_str()));
        decided.sort();
        decided.dedup();
        assert_eq!(decided, DECIDED);
    }
}
