#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks in private servers: a plugin for another server, damage of a table's file while the server
# runs, and a full device within a statement each give an error that says what to do. The server and
# other tables go on, and stored rows stay.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

# The interface version of the server of the cache and of a later patch level, as bytes of the plugin.
interface_version() { # patch level
    printf '\\x00\\x%02x\\x%02x\\x%02x' $(($1 % 256)) $(($1 / 256 % 256)) $(($1 / 65536))
}

check_foreign_plugin() {
    local own
    own=$(sql 'SELECT SUBSTRING_INDEX(VERSION(), "-", 1)' | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
    # With other names, because the server has plugins of these.
    LC_ALL=C sed "s/$(interface_version "$own")/$(interface_version $((own + 1)))/g; s/ALLUVIUM/FOREIGN_/g" "$folder/plugins/ha_alluvium.so" >"$scratch/foreign.so"
    ! cmp -s "$folder/plugins/ha_alluvium.so" "$scratch/foreign.so" || fail 'the plugin has no interface version'
    mv "$scratch/foreign.so" "$folder/plugins/ha_foreign.so"
    expect_error 'a plugin for another server is refused' "INSTALL SONAME 'ha_foreign'" 1126 'API version'
    expect 'the server goes on' 'SELECT COUNT(*) FROM d.other' 3
}

# Overwrites bytes in the middle of the largest table file.
damage_table() {
    local file
    file=$(find "$folder/data/#alluvium" -name '*.sst' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
    head -c 4096 /dev/urandom | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
}

check_damage() {
    sql 'CREATE TABLE d.t (id INT PRIMARY KEY, v VARBINARY(200)) ENGINE=ALLUVIUM;
        INSERT INTO d.t SELECT seq, RANDOM_BYTES(200) FROM d.seq_1_to_20000; OPTIMIZE TABLE d.t' >/dev/null
    restart --alluvium-memory-bytes=8388608
    damage_table
    expect_message 'a damaged table file' 'SELECT SUM(LENGTH(v)) FROM d.t' 'restore a backup'
    expect 'rows outside the damage are there' 'SELECT id FROM d.t WHERE id = 1; SELECT id FROM d.t WHERE id = 20000' $'1\n20000'
    expect 'other tables go on' 'INSERT INTO d.other VALUES (4); SELECT COUNT(*) FROM d.other' 4
    [[ $(sql 'CHECK TABLE d.t') == *Corrupt* ]] || fail "CHECK TABLE finds no damage: $(sql 'CHECK TABLE d.t')"
    say 'ok: CHECK TABLE names the damage'
    restart
    expect 'the server starts with a damaged table' 'SELECT COUNT(*) FROM d.other' 4
    expect 'a damaged table can be dropped' 'DROP TABLE d.t' ''
}

# Puts the database on a device of its own with little room. Only root can do that.
move_to_small_device() {
    local database="$folder/data/#alluvium"
    stop
    mv "$database" "$scratch/before"
    mkdir -m 700 "$database"
    if ! mount -t tmpfs -o "size=${1}m,mode=700" tmpfs "$database" 2>/dev/null; then
        rmdir "$database"
        mv "$scratch/before" "$database"
        return 1
    fi
    trap 'umount -l "$folder/data/#alluvium"; finish' EXIT
    chown --reference="$folder/data" "$database"
    cp -a "$scratch/before/." "$database/"
}

fill="INSERT INTO d.full (v) SELECT RANDOM_BYTES(1000) FROM d.seq_1_to_1000"

check_full_device() {
    local inserted=0 found
    sql 'CREATE TABLE d.full (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(1000), KEY (v)) ENGINE=ALLUVIUM'
    move_to_small_device 48 || { say 'not tried: a full device needs the right to mount one' && return; }
    start --alluvium-memory-bytes=8388608
    while found=$(sql "$fill" 2>&1); do
        inserted=$((inserted + 1000))
        [ "$inserted" -lt 100000 ] || fail 'the device is never full'
    done
    [[ $found == *'ERROR '*'isk full'* ]] || fail "a full device gives another error: $found"
    say "ok: a full device within a statement, after $inserted rows: ${found##*ERROR}"
    expect 'earlier rows are there, and none of the statement' 'SELECT COUNT(*) FROM d.full FORCE INDEX (PRIMARY); SELECT COUNT(*) FROM d.other' \
        "$inserted"$'\n4'
    expect 'the table is sound' 'CHECK TABLE d.full' $'d.full\tcheck\tstatus\tOK'
    restart --alluvium-memory-bytes=8388608
    expect 'all rows are there after a restart' 'SELECT COUNT(*) FROM d.full FORCE INDEX (PRIMARY)' "$inserted"
    until_success 'TRUNCATE d.full'
    until_success "$fill"
    expect 'TRUNCATE makes room' 'SELECT COUNT(*) FROM d.full' 1000
    stop
}

# Repeats a statement until it succeeds: space is released in the background.
until_success() { # statement
    local until=$((SECONDS + 60)) found
    until found=$(sql "$1" 2>&1); do
        [ "$SECONDS" -lt "$until" ] || fail "'$1' fails for 60 s: $found"
        sleep 0.2
    done
}

start
sql 'CREATE DATABASE d; CREATE TABLE d.other (id INT PRIMARY KEY) ENGINE=ALLUVIUM; INSERT INTO d.other VALUES (1), (2), (3)'
check_foreign_plugin
check_damage
check_full_device
