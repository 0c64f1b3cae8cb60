#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Brings a MariaDB server with its headers and test suites into the cache, and prints its folder.
#
#   server.sh            the server of the cache; fetches it if there is none
#   server.sh --update   looks for a newer patch level too
#
# The server loads only plugins that were built for its patch level, so server and headers come
# from the packages and from the source of one version. The archive may list a version that has
# lost one of them, so the script takes the newest version that downloads completely.
#
# apt-get downloads with package lists of its own. Nothing is installed, no script of a package
# runs, and root is not needed. A server of the cache needs no network.
#
#   usr/           server, client programs, plugins, test suites, libraries that the machine lacks
#   source/        headers of the source package
#   generated/     headers that CMake would have generated
#   libmysqlservices.a
#   build.env      variables for a build, for `source`
#   version        version of the package
#   recipe         number of the recipe, written last
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/paths.sh"

series=10.11
# A change of the folder's content raises the number; older folders are then fetched again.
recipe=1

packages=(mariadb-server-core mariadb-server mariadb-client-core mariadb-client mariadb-common mariadb-backup
    mariadb-plugin-rocksdb mariadb-plugin-spider mariadb-test mariadb-test-data libmariadb3 libmariadbd-dev)
# Libraries of the server and its plugins. mariadb-test, the suites' client, needs libpcre2-posix3.
with_libraries=(mariadb-server-core mariadb-client-core mariadb-client mariadb-server mariadb-common
    mariadb-backup mariadb-plugin-rocksdb mariadb-plugin-spider libmariadb3)

check_machine() {
    { command -v apt-get && command -v dpkg-deb; } >/dev/null ||
        fail "missing: apt-get and dpkg-deb, to fetch MariaDB $series; use Debian 12 or Ubuntu 24.04"
    need tar tar
    need cc build-essential
    need ar binutils
}

# Makes apt-get use lists of its own, with the sources of all archives of the machine.
use_own_lists() {
    local file name
    mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial,parts}
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb deb-src/' "$file" >"$work/apt/parts/$(basename "$file")"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$file" ] || continue
        name=$(basename "${file%.list}")
        sed -n 's/^deb[ \t]/deb /p; s/^deb[ \t]/deb-src /p' "$file" >"$work/apt/parts/$name-all.list"
    done
    cat >"$work/apt/apt.conf" <<CONF
Dir::State "$work/apt/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/apt/parts";
CONF
    # Root's apt-get downloads as another user, which cannot enter the folder.
    [ "$(id -u)" -ne 0 ] || printf 'APT::Sandbox::User "root";\n' >>"$work/apt/apt.conf"
    export APT_CONFIG=$work/apt/apt.conf LC_ALL=C
    # An archive without sources is an error of apt-get, but MariaDB may come from another one.
    apt-get update -qq >"$work/update.log" 2>&1 || true
}

# Prints the versions of the series that the archives list, newest first.
listed_versions() {
    apt-cache madison mariadb-server-core |
        awk -F'|' -v series="$series." '/Packages/ { gsub(/ /, "", $2); bare = $2; sub(/^[0-9]+:/, "", bare)
            if (index(bare, series) == 1 && !seen[$2]++) print $2 }'
}

# Prints the libraries of the packages that this machine lacks. The client library of MariaDB comes
# with `packages`; RocksDB's is part of its plugin.
missing_libraries() { # version
    apt-get install --simulate --no-install-recommends "${with_libraries[@]/%/=$1}" libpcre2-posix3 2>/dev/null |
        sed -n 's/^Inst \(lib[^ ]*\) .*/\1/p' | grep -Ev -e perl -e '^lib(mariadb|sigsegv|popt|wrap|rocksdb)' || true
}

# Downloads packages and source of a version. The source comes first: it is more often missing.
download() { # version
    local libraries
    rm -rf "$work/packages"
    mkdir "$work/packages"
    cd "$work/packages"
    apt-get source -qq --download-only "mariadb=$1" || return
    libraries=$(missing_libraries "$1")
    # shellcheck disable=SC2086 # A list of words.
    apt-get download -qq "${packages[@]/%/=$1}" $libraries
}

# Downloads the newest version that the archives have completely, and sets `version` to it.
download_newest() {
    local listed refused='' reason
    listed=$(listed_versions)
    [ -n "$listed" ] || {
        cat "$work/update.log" >&2
        fail "no archive of this machine lists MariaDB $series; it comes with Debian 12 and Ubuntu 24.04. Errors of apt-get are above: without network, copy the folder mariadb-server from the cache of another machine"
    }
    for version in $listed; do
        say "fetching MariaDB $version: packages, suites and source, about 180 MB"
        if (download "$version") >"$work/download.log" 2>&1; then return; fi
        reason=$(grep '^E:' "$work/download.log" | head -n 1 || true)
        say "not complete: MariaDB $version: ${reason:-see apt-get}"
        refused+=" $version"
    done
    cat "$work/download.log" >&2
    fail "no version of MariaDB $series downloads as packages and as source:$refused; errors of apt-get are above, try again later"
}

# Unpacks the packages without documentation and the programs of the embedded server. The unit tests
# link its library, for the collations.
unpack_packages() {
    local package
    mkdir "$work/root"
    for package in "$work"/packages/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -C "$work/root" -xf - --exclude='./usr/share/doc' \
            --exclude='./usr/share/man' --exclude='*embedded' --exclude='*/libmysqld.*' \
            --exclude='./usr/bin/*_ldb' --exclude='./usr/bin/*-ldb'
    done
}

# Unpacks the headers that a plugin includes. A package has those that CMake generates; the other
# headers of its folder stay out, because they hide those of the source.
unpack_headers() {
    local name source=$work/root/source generated=$work/root/generated archive
    archive=$(find "$work/packages" -name 'mariadb_*.orig.tar.*' ! -name '*.asc')
    mkdir "$source" "$generated"
    tar -C "$source" --strip-components=1 --wildcards --no-wildcards-match-slash -xf "$archive" \
        '*/include' '*/sql/*.h' '*/libservices' '*/wsrep-lib/include' '*/wsrep-lib/wsrep-API/v26/*.h'
    for name in my_config.h mysql_version.h mysqld_error.h mysqld_ername.h handler_ername.h sql_state.h; do
        cp "$work/root/usr/include/mariadb/server/$name" "$generated/"
    done
    # CMake copies this file if the server is built without DTrace.
    cp "$source/include/probes_mysql_nodtrace.h.in" "$generated/probes_mysql_nodtrace.h"
}

# Builds the library with the pointers to the server's services. No package has it.
build_services() {
    local file objects=$work/services root=$work/root
    mkdir "$objects"
    for file in "$root"/source/libservices/*.c; do
        cc -O2 -fPIC -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
            -I"$root/generated" -I"$root/source/include" -c "$file" -o "$objects/$(basename "$file" .c).o"
    done
    ar rcs "$root/libmysqlservices.a" "$objects"/*.o
}

# Writes the variables of a build. The headers use exceptions and run-time types, and have warnings,
# so they are system headers. `sql` comes before the root of the source because of wsrep. DBUG_OFF
# changes the layout of classes, and the packaged server has it.
write_environment() {
    cat >"$work/root/build.env" <<'ENV'
MARIADB_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MARIADB_LIBRARIES=$(printf '%s:' "$MARIADB_ROOT"/usr/lib/*-linux-* "$MARIADB_ROOT"/lib/*-linux-*)
MARIADB_LIBRARIES=${MARIADB_LIBRARIES%:}
MARIADB_INCLUDES=$(printf -- "-isystem $MARIADB_ROOT/%s " generated source/include source/sql \
    source/wsrep-lib/include source/wsrep-lib/wsrep-API/v26 source)
MARIADB_CXXFLAGS='-std=gnu++17 -O2 -g -fPIC -fno-omit-frame-pointer -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -DDBUG_OFF -DNDEBUG -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64'
MARIADB_SERVICES=$MARIADB_ROOT/libmysqlservices.a
ENV
}

# Prints 10.11.18 for 1:10.11.18-0+deb12u1.
patch_level() { sed -E 's/^[0-9]+://; s/[-+~].*//' <<<"$1"; }

# Moves the folder into the cache. The rename is atomic, so an interrupted run leaves no half server.
install_server() {
    local folder
    folder=$servers/$(patch_level "$version")
    printf '%s\n' "$version" >"$work/root/version"
    printf '%s\n' "$recipe" >"$work/root/recipe"
    [ ! -e "$folder" ] || mv "$folder" "$work/old"
    mv "$work/root" "$folder"
}

fetch() {
    check_machine
    use_own_lists
    download_newest
    unpack_packages
    unpack_headers
    build_services
    write_environment
    install_server
}

is_current() { [ "$(cat "$1/recipe")" = "$recipe" ]; }

main() {
    local update='' folder status
    case ${1:-} in
        '') ;;
        --update) update=yes ;;
        *)
            printf 'usage: server.sh [--update]\n' >&2
            exit 2
            ;;
    esac
    mkdir -p "$servers"
    # Another script may be fetching.
    exec {lock}>"$servers/.lock"
    flock "$lock"
    folder=$(newest_server || true)
    if [ -z "$folder" ] || [ -n "$update" ] || ! is_current "$folder"; then
        # In the cache, because the last step is a rename within a file system.
        work=$(mktemp -d "$servers/.fetch.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # Not in a condition, in which bash ignores `set -e`.
        set +e
        (set -e; fetch)
        status=$?
        set -e
        if [ "$status" -ne 0 ]; then
            [ -n "$folder" ] || exit 1
            say "using the server of the cache: $folder"
        fi
        folder=$(newest_server)
    fi
    printf '%s\n' "$folder"
}

main "$@"
