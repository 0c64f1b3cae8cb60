# SPDX-License-Identifier: GPL-2.0-only
# Paths and messages that the scripts of `mariadb/` share. Sourced by them, not run.
# shellcheck shell=bash disable=SC2034 # The variables are for the scripts.

cache=${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/alluvium}
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Folder with a folder for each patch level of the server.
servers=$cache/mariadb-server
plugins=$cache/mariadb-plugin

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 1
}

say() { printf '%s\n' "$1" >&2; }

need() { # program, Debian package
    command -v "$1" >/dev/null || fail "missing: $1 (Debian: apt-get install $2)"
}

# Prints the newest complete server of the cache. `server.sh` writes the file `recipe` last, so a
# folder without it is incomplete.
newest_server() {
    local file
    # shellcheck disable=SC2012 # The names are versions.
    file=$(ls -d "$servers"/[0-9]*/recipe 2>/dev/null | sort -V | tail -n 1)
    [ -n "$file" ] && dirname "$file"
}

# Sets `server`, `plugin` and the variables of a build, and makes programs find the server's
# libraries that this machine lacks.
use_server() {
    server=$(newest_server) || fail "no server in $servers; run make mariadb"
    plugin=$plugins/$(basename "$server")/ha_alluvium.so
    [ -e "$plugin" ] || fail "no plugin for MariaDB $(basename "$server"); run make mariadb"
    # shellcheck disable=SC1091 # A file of the cache.
    . "$server/build.env"
    export LD_LIBRARY_PATH=$MARIADB_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Prints the process of the private server of a folder, if it runs. The process of a pid file that a
# killed server has left may be another program.
server_process() { # folder
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--defaults-file=$1/my.cnf" &&
        printf '%s\n' "$pid"
} 2>/dev/null
