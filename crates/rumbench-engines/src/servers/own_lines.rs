//! User's own lines of a server's configuration, from the file that the setting `options_file`
//! names.
//!
//! They follow the laboratory's lines and so override them. A result gives these lines as the
//! reason for their values, because the laboratory's reason would be wrong for a value that the
//! laboratory did not choose.

use std::path::Path;

use rumbench_core::engine::{EngineError, Result};

/// Reason that a result gives for the values of these lines.
pub(super) const REASON: &str = "the options file";

/// Lines of `name = value`; the grammar is the server's own.
#[derive(Debug, Default)]
pub(super) struct OwnLines(String);

impl OwnLines {
    /// Reads the lines of the file; no lines without a file. The path of an `init_file` begins at
    /// the folder of the file, because the server runs in its data folder.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(file: Option<String>) -> Result<OwnLines> {
        let Some(file) = file else {
            return Ok(OwnLines::default());
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(OwnLines(in_folder_of(Path::new(&file), &text))),
            Err(error) => Err(EngineError::failed(format!("cannot read {file}"), error)),
        }
    }

    /// Returns the lines.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the names of the settings in the lines, as a server's list of variables spells them.
    pub(super) fn names(&self) -> Vec<String> {
        // Lines before the first section header, if any, belong to the server's section.
        let mut is_read = true;
        let names = self.0.lines().filter_map(|line| {
            let line = line.trim();
            if let Some(section) = line.strip_prefix('[') {
                is_read = is_of_server(section);
            }
            name(line).filter(|_| is_read)
        });
        names.collect()
    }
}

/// Returns the lines of a file with the path of an `init_file` as it is in the file's folder.
fn in_folder_of(file: &Path, text: &str) -> String {
    let folder = file.parent().unwrap_or(Path::new(""));
    let line = |line: &str| {
        let path = line.split_once('=').map(|(_, path)| path.trim());
        match path.filter(|_| name(line.trim()).as_deref() == Some("init_file")) {
            Some(path) => {
                let path = folder.join(path);
                let path = std::path::absolute(&path).unwrap_or(path);
                format!("init_file={}\n", path.display())
            }
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// Returns true if a MariaDB server reads this section: sections of clients are in the same file.
fn is_of_server(section: &str) -> bool {
    let name = section.split(']').next().unwrap_or_default();
    // Some sections apply to one version only, such as `mariadb-10.11`.
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || ".-".contains(last));
    ["mysqld", "mariadbd", "mariadb", "server", "galera"].contains(&name)
}

/// Returns the setting of a line; `None` for an empty line, a comment, or a section header.
fn name(line: &str) -> Option<String> {
    let name = line.split(['=', ' ', '\t']).next()?;
    let name = name.strip_prefix("loose-").unwrap_or(name);
    let is_setting = name.starts_with(|first: char| first.is_ascii_alphabetic());
    is_setting.then(|| name.replace('-', "_").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_name_of_its_setting() {
        let lines =
            "# pool=1\n\n  Innodb-Buffer_Pool_Size = 1G\nloose-x=1\njit on\nskip-name-resolve\n";
        let expected = ["innodb_buffer_pool_size", "x", "jit", "skip_name_resolve"];
        assert_eq!(OwnLines(lines.to_string()).names(), expected);
    }

    #[test]
    fn an_init_file_lies_in_the_folder_of_the_options_file() {
        let of = |text: &str| in_folder_of(Path::new("/etc/my/a.cnf"), text);
        assert_eq!(
            of("[mariadbd]\ninit-file = b.sql\nx=1"),
            "[mariadbd]\ninit_file=/etc/my/b.sql\nx=1\n"
        );
        assert_eq!(of("init_file=/b.sql\n"), "init_file=/b.sql\n");
    }

    #[test]
    fn sections_of_clients_set_nothing() {
        let lines =
            "a=1\n[mysql]\nb=1\n[mysqld-10.11]\nc=1\n[mariadb-client]\nd=1\n[server]\ne=1\n";
        assert_eq!(OwnLines(lines.to_string()).names(), ["a", "c", "e"]);
    }
}
