//! Runs the built binary. Its subcommands need a server, so only their usage is tested here;
//! `mariadb/README.md` says how a run is started.

mod usage;
