//! Locations of server binaries: those of the machine, the packages that `make peers` has unpacked
//! into the cache, or the server and plugin of `make mariadb` there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rumbench_core::engine::{EngineError, Result};

use crate::settings::Settings;

/// Name of MariaDB in messages.
#[cfg(feature = "mariadb")]
pub(super) const MARIADB: &str = "mariadb";
/// Name of PostgreSQL in messages and settings.
#[cfg(feature = "postgresql")]
pub(super) const POSTGRESQL: &str = "postgresql";

/// Advice for a missing server: the one command that installs it.
pub(super) const HOW_TO_GET: &str = "`make peers` fetches it (Debian 12, Ubuntu 24.04 or newer)";

/// Plugin of MariaDB.
#[derive(Debug)]
pub(super) struct Plugin {
    /// Name of the file without its extension.
    pub(super) name: &'static str,
    /// Advice if the plugin is missing.
    how_to_get: &'static str,
}

/// Plugin with MyRocks.
pub(super) const MYROCKS: Plugin = Plugin {
    name: "ha_rocksdb",
    how_to_get: HOW_TO_GET,
};

/// Plugin with Alluvium.
pub(super) const ALLUVIUM: Plugin = Plugin {
    name: "ha_alluvium",
    how_to_get: "`make mariadb` builds the plugin and fetches its server (Debian 12, Ubuntu 24.04)",
};

/// Folder of the server's own plugins below its root.
pub(super) const PLUGINS: &str = "usr/lib/mysql/plugin";

/// MariaDB server on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Installation {
    /// Folder with the server in its `usr`.
    pub(super) root: PathBuf,
    /// File of the requested plugin, if it is not in the folder of the server's own plugins.
    pub(super) plugin: Option<PathBuf>,
}

/// Returns the cache, as the scripts of the workspace name it.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("ALLUVIUM_CACHE").map(PathBuf::from).or_else(|| {
        let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
        let caches = caches.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")))?;
        Some(caches.join("alluvium"))
    })
}

/// Cache for root, readable by the user that PostgreSQL runs as, unlike root's own cache; also
/// named in `.ci/peers.sh`.
const SHARED: &str = "/var/cache/alluvium/peers";

/// Setting that names a root; several builds of a server are compared by its values.
const ROOT: &str = "root";

/// Takes the root from the settings, as an absolute path: a server is not started in the current
/// folder.
///
/// # Errors
/// If the current folder is unknown.
pub(super) fn take_root(asked: &mut Settings<'_>) -> Result<Option<PathBuf>> {
    let root = asked.take_text(ROOT).map(std::path::absolute).transpose();
    root.map_err(|error| EngineError::failed(format!("cannot use the setting `{ROOT}`"), error))
}

/// Returns the roots with a `usr` that may hold a server: only the requested root, or else the
/// caches first, because the user asked for their contents.
fn roots(asked: Option<&Path>) -> Vec<PathBuf> {
    if let Some(asked) = asked {
        return vec![asked.to_path_buf()];
    }
    let machine = [SHARED, "/"].map(PathBuf::from);
    let peers = cache().map(|cache| cache.join("peers"));
    peers.into_iter().chain(machine).collect()
}

/// Returns the search path for libraries of unpacked packages; `None` for the machine's own root.
pub(super) fn libraries(root: &Path) -> Option<OsString> {
    if root == Path::new("/") {
        return None;
    }
    let folders = ["usr/lib", "lib"].map(|folder| {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
        // Folders of the machine's architecture, such as `x86_64-linux-gnu`.
        let named = entries.flatten().map(|entry| entry.path());
        named.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
    });
    std::env::join_paths(folders.into_iter().flatten()).ok()
}

/// Reports a missing server and the remedy.
fn missing(what: &str, how_to_get: &str, asked: Option<&Path>) -> EngineError {
    EngineError::Unsupported(match asked {
        Some(root) => format!(
            "no {what} is under {}/usr: the setting `{ROOT}` names a folder with the files of a package in it",
            root.display()
        ),
        None => format!("no {what} is here: {how_to_get}"),
    })
}

/// Returns the folder `bin` of the newest PostgreSQL of at least this major version, and its root.
/// Searches only `asked` if given.
pub(super) fn postgresql(oldest: u32, asked: Option<&Path>) -> Result<(PathBuf, PathBuf)> {
    let installed = roots(asked).into_iter().flat_map(|root| {
        let folder = root.join("usr/lib/postgresql");
        let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
        versions.filter_map(move |entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            let whole = ["postgres", "initdb"]
                .iter()
                .all(|name| bin.join(name).exists());
            (whole && version >= oldest).then(|| (version, bin, root.clone()))
        })
    });
    match installed.max_by_key(|(version, _, _)| *version) {
        Some((_, bin, root)) => Ok((bin, root)),
        None => {
            let what = format!("PostgreSQL {oldest} or newer");
            Err(missing(&what, HOW_TO_GET, asked))
        }
    }
}

/// Returns a MariaDB server with this plugin, if one is needed. Searches only `asked` if given.
pub(super) fn mariadb(plugin: Option<&Plugin>, asked: Option<&Path>) -> Result<Installation> {
    let has = |root: &PathBuf| {
        let plugins = root.join(PLUGINS);
        root.join("usr/sbin/mariadbd").exists()
            && plugin.is_none_or(|plugin| plugins.join(format!("{}.so", plugin.name)).exists())
    };
    let cache = if asked.is_none() { cache() } else { None };
    let built = plugin.and_then(|plugin| built(&cache?, plugin));
    let packaged = || {
        let root = roots(asked).into_iter().find(has)?;
        Some(Installation { root, plugin: None })
    };
    built.or_else(packaged).ok_or_else(|| {
        let with = plugin.map_or(String::new(), |plugin| {
            format!(" with the plugin {}", plugin.name)
        });
        let how_to_get = plugin.map_or(HOW_TO_GET, |plugin| plugin.how_to_get);
        missing(&format!("MariaDB server{with}"), how_to_get, asked)
    })
}

/// Returns the newest server of the cache with a plugin that `mariadb/build/plugin.sh` has built
/// for it. A server loads only a plugin of its own patch level, so each has a folder of that name.
fn built(cache: &Path, plugin: &Plugin) -> Option<Installation> {
    let levels = std::fs::read_dir(cache.join("mariadb-plugin")).ok()?;
    let complete = levels.flatten().filter_map(|level| {
        let name = level.file_name().into_string().ok()?;
        let numbers: Option<Vec<u32>> = name.split('.').map(|part| part.parse().ok()).collect();
        let file = level.path().join(format!("{}.so", plugin.name));
        let root = cache.join("mariadb-server").join(&name);
        // `mariadb/build/server.sh` writes the file `recipe` last.
        let is_complete = file.exists() && root.join("recipe").exists();
        is_complete.then_some((numbers?, file, root))
    });
    let (_, file, root) = complete.max_by(|(a, ..), (b, ..)| a.cmp(b))?;
    Some(Installation {
        root,
        plugin: Some(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_servers_need_no_path_of_libraries() {
        assert_eq!(libraries(Path::new("/")), None);
    }

    #[test]
    fn unpacked_libraries_are_in_the_folders_of_the_architecture() {
        let root = tempfile::tempdir().unwrap();
        for folder in [
            "usr/lib/x86_64-linux-gnu",
            "usr/lib/mysql",
            "lib/x86_64-linux-gnu",
        ] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let libraries = libraries(root.path()).unwrap();
        let found: Vec<PathBuf> = std::env::split_paths(&libraries).collect();
        let expected = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        assert_eq!(found, expected.map(|folder| root.path().join(folder)));
    }

    #[test]
    fn a_version_that_does_not_exist_is_refused_with_the_command_that_brings_one() {
        let error = postgresql(10_000, None).unwrap_err().to_string();
        assert!(error.contains("make peers"), "{error}");
        for (plugin, command) in [(MYROCKS, "`make peers`"), (ALLUVIUM, "`make mariadb`")] {
            let name = "ha_no_such_engine";
            let plugin = Plugin { name, ..plugin };
            let error = mariadb(Some(&plugin), None).unwrap_err().to_string();
            let expected = format!("{name} is here: {command}");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn the_newest_plugin_of_the_cache_that_has_its_server_is_found() {
        let cache = tempfile::tempdir().unwrap();
        let make = |file: String| {
            let path = cache.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        assert_eq!(built(cache.path(), &ALLUVIUM), None);
        for level in ["10.11.9", "10.11.18", "10.11.20"] {
            make(format!("mariadb-plugin/{level}/ha_alluvium.so"));
        }
        make("mariadb-plugin/objects/ha_alluvium.so".to_string());
        for level in ["10.11.9", "10.11.18", "10.11.21"] {
            make(format!("mariadb-server/{level}/recipe"));
        }
        let found = built(cache.path(), &ALLUVIUM).unwrap();
        assert_eq!(found.root, cache.path().join("mariadb-server/10.11.18"));
        let plugin = cache.path().join("mariadb-plugin/10.11.18/ha_alluvium.so");
        assert_eq!(found.plugin, Some(plugin));
        assert_eq!(built(cache.path(), &MYROCKS), None);
    }

    #[test]
    fn a_root_that_was_asked_for_is_the_only_place_to_look_at() {
        let root = tempfile::tempdir().unwrap();
        let asked = Some(root.path());
        for error in [
            mariadb(None, asked).unwrap_err(),
            postgresql(1, asked).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains("/usr: the setting `root`"), "{error}");
        }
        let sbin = root.path().join("usr/sbin");
        std::fs::create_dir_all(&sbin).unwrap();
        std::fs::write(sbin.join("mariadbd"), "").unwrap();
        assert_eq!(mariadb(None, asked).unwrap().root, root.path());
        let error = mariadb(Some(&ALLUVIUM), asked).unwrap_err().to_string();
        assert!(error.contains("with the plugin ha_alluvium"), "{error}");
    }
}
