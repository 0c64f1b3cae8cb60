#!/usr/bin/env bash
# Fetches the servers that the laboratory can drive: PostgreSQL, and MariaDB with InnoDB and
# MyRocks. `make peers` runs this script.
#
# Servers that the machine lacks come from packages of Debian or Ubuntu. They are unpacked into a
# folder of the cache, where the laboratory looks for them. Nothing is installed: no maintainer
# script runs, no user or service is created, no service is started, and root is not needed.
set -euo pipefail

cache=${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/alluvium}
# Cache for root if other users cannot read root's own cache: PostgreSQL refuses to run as root.
shared=/var/cache/alluvium

fail() {
    printf 'missing: %s\n' "$1" >&2
    exit 1
}

found() { compgen -G "$1" >/dev/null; }

# Prints the first root with these files in its `usr`. An argument is a path with wildcards.
root_with() {
    local root file all
    for root in "$cache/peers" "$shared/peers" ''; do
        all=yes
        for file in "$@"; do found "$root/$file" || all=; done
        if [ -n "$all" ]; then
            printf '%s/\n' "$root"
            return
        fi
    done
    return 1
}

# The same as `OLDEST_VERSION` of PostgreSQL's adapter.
postgresql_oldest=15

find_postgresql() {
    local version
    # Starts at a version that will not exist for many years.
    for version in $(seq 30 -1 "$postgresql_oldest"); do
        root_with "usr/lib/postgresql/$version/bin/postgres" "usr/lib/postgresql/$version/bin/initdb" && return
    done
    return 1
}

find_mariadb() { root_with usr/sbin/mariadbd usr/lib/mysql/plugin/ha_rocksdb.so; }

# Succeeds if all users may enter every existing folder on the path.
is_open_to_all() {
    local folder=$1
    while [ "$folder" != / ]; do
        [ ! -e "$folder" ] || [[ $(stat -c %A "$folder") == ?????????[xt] ]] || return 1
        folder=$(dirname "$folder")
    done
}

# Prints the package of the distribution's default version, such as postgresql-15.
postgresql_package() {
    apt-cache depends postgresql 2>/dev/null | sed -n 's/^ *Depends: \(postgresql-[0-9][0-9]*\)$/\1/p' | head -1
}

# Unpacks packages and their dependencies. Leaves out installed packages and those that a private
# server does not need: the tools of a service, and the compiler of PostgreSQL's expressions (`jit`
# is off).
unpack() {
    local folder needed package
    mkdir -p "$cache"
    folder=$(mktemp -d "$cache/peers-unpacked.XXXXXX")
    # apt downloads as its own user, which must be able to enter the folder.
    chmod 755 "$folder"
    mkdir "$folder/packages" "$folder/tree"
    needed=$(LC_ALL=C apt-get install --simulate --no-install-recommends "$@" 2>/dev/null |
        sed -n 's/^Inst \([^ ]*\) .*/\1/p' |
        grep -Ev -e '-perl(-|$)' -e '^(perl|mariadb-(client|common|server$)|mysql-common|postgresql-c|libllvm|ssl-cert)' \
            -e '^(galera|gawk|iproute|libmariadb|lsof|psmisc|rocksdb-tools|rsync|socat)' || true)
    # shellcheck disable=SC2086
    (cd "$folder/packages" && apt-get download -qq $(printf '%s\n' "$@" $needed | sort -u)) || {
        rm -rf "$folder"
        fail "packages of $* from the distribution's archive; \`apt-get update\` may help"
    }
    for package in "$folder"/packages/*.deb; do dpkg-deb --extract "$package" "$folder/tree"; done
    mkdir -p "$cache/peers"
    cp -a "$folder/tree/." "$cache/peers/"
    rm -rf "$folder"
}

main() {
    local package
    if ! { find_postgresql && find_mariadb; } >/dev/null; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
            fail 'PostgreSQL 15 or newer, and MariaDB with its plugin ha_rocksdb: this machine has no apt-get to fetch them'
        if [ "$(id -u)" -eq 0 ]; then
            apt-get update -qq
            is_open_to_all "$cache" || cache=$shared
        fi
    fi
    if ! find_postgresql >/dev/null; then
        package=$(postgresql_package)
        [ -n "$package" ] || fail "a package postgresql-NN in apt's package lists; run apt-get update"
        [ "${package#postgresql-}" -ge "$postgresql_oldest" ] ||
            fail "PostgreSQL $postgresql_oldest or newer: this release has $package; use Debian 12, Ubuntu 24.04 or newer"
        unpack "$package"
    fi
    find_mariadb >/dev/null || unpack mariadb-server-core mariadb-plugin-rocksdb
    command -v setpriv >/dev/null || fail 'setpriv (Debian: util-linux)'
    printf 'PostgreSQL under %s, MariaDB under %s\n' "$(find_postgresql)" "$(find_mariadb)"
}

main
