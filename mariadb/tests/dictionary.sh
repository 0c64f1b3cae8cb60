#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks in a private server: with damaged or newer rows in the dictionary the server starts, other
# tables work, and errors say what to do. And that --alluvium=FORCE refuses a folder that cannot be opened.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

build_set_row() {
    local target=${CARGO_TARGET_DIR:-$cache/target}
    cc -O1 -Wall -Wextra -Werror -I"$checkout/crates/alluvium-c/include" "$checkout/mariadb/tests/set_row.c" \
        "$target/release/liballuvium_c.a" -lpthread -ldl -lm -o "$scratch/set_row"
}

hex() { printf '%s' "$1" | od -An -tx1 | tr -d ' \n'; }

# Changes a row of the dictionary while the server is down, and prints its old value.
set_row() { # key and value as hexadecimal digits
    "$scratch/set_row" "$folder/data/#alluvium" sql "$1" "$2"
}

# The table's id is the first number that the dictionary gives out.
table_id=1

create_tables() {
    local name
    sql 'CREATE DATABASE d'
    for name in whole damaged newer; do
        sql "CREATE TABLE d.$name (id INT AUTO_INCREMENT PRIMARY KEY, n INT, KEY (n)) ENGINE=ALLUVIUM;
            INSERT INTO d.$name (n) VALUES (1), (2), (3)"
    done
}

check_entries() {
    "$folder/stop"
    set_row "$(hex td/damaged)" 01ff >/dev/null
    newer_entry=$(set_row "$(hex td/newer)" 02)
    start
    expect 'other tables work next to damaged entries' 'SELECT SUM(n) FROM d.whole' 6
    expect_message 'a damaged entry' 'SELECT * FROM d.damaged' 'restore a backup'
    expect_message 'a newer entry' 'SELECT * FROM d.newer' 'a newer version of the plugin'
    expect_log 'the log names the table' "table 'd/damaged': the table's entry in the dictionary is damaged"
    expect_message 'a newer entry is not dropped' 'DROP TABLE d.newer' 'a newer version of the plugin'
    expect 'a damaged entry is dropped' 'DROP TABLE d.damaged' ''
    expect 'its name is free' 'CREATE TABLE d.damaged (id INT PRIMARY KEY) ENGINE=ALLUVIUM;
        INSERT INTO d.damaged VALUES (7); SELECT * FROM d.damaged' 7
}

# The entry of the newer version names keyspaces that must outlive a start of this one.
check_newer_again() {
    "$folder/stop"
    set_row "$(hex td/newer)" "$newer_entry" >/dev/null
    start
    expect 'the rows of a newer entry are there for the newer version' 'SELECT SUM(n) FROM d.newer' 6
}

check_numbers() {
    "$folder/stop"
    set_row "$(printf '61%016x' "$table_id")" 80 >/dev/null
    set_row "$(printf '73%016x' "$table_id")" ff >/dev/null
    set_row "$(hex n)" 8080 >/dev/null
    start
    expect 'numbers continue after a damaged mark' \
        'INSERT INTO d.whole (n) VALUES (4); SELECT MAX(id), SUM(n) FROM d.whole' $'4\t10'
    expect_log 'the log names the mark' "the AUTO_INCREMENT mark of 'd/whole' is damaged"
    expect_log 'the log names the next number' "the dictionary's next number is damaged"
    expect 'new tables get new numbers' 'CREATE TABLE d.more (id INT PRIMARY KEY) ENGINE=ALLUVIUM;
        INSERT INTO d.more VALUES (1); SELECT COUNT(*) FROM d.more JOIN d.damaged USING (id)' 0
}

# A start that must fail: with FORCE the server does not go on without the engine.
expect_no_start() { # name, text of the log
    if "$checkout/mariadb/build/start.sh" "$folder" --alluvium=FORCE >/dev/null 2>&1; then
        fail "$1: the server starts"
    fi
    grep -qF -- "$2" "$folder/log" || fail "$1: the log lacks: $2"
    say "ok: $1"
}

# Starts the server without the engine, and with it after `repair`.
check_force() { # name, text of the log, command that repairs
    expect_no_start "$1: FORCE" "$2"
    start
    expect_error "$1: without FORCE the tables have no engine" 'SELECT * FROM d.whole' 1286
    "$folder/stop"
    "$3"
    start --alluvium=FORCE
    expect "$1: repaired, FORCE starts" 'SELECT COUNT(*) FROM d.whole' 4
    "$folder/stop"
}

unlock_folder() { kill "$locker"; wait "$locker" 2>/dev/null || true; }
repair_folder() { mv "$scratch/CURRENT" "$folder/data/#alluvium/"; }

# The name of the lock file is part of the format.
check_force_locked() {
    local locked=$scratch/locked
    (exec 9<>"$folder/data/#alluvium/LOCK" && flock 9 && touch "$locked" && exec sleep 600) &
    locker=$!
    while [ ! -e "$locked" ]; do sleep 0.05; done
    check_force 'a locked folder' 'ALLUVIUM: cannot open' unlock_folder
}

check_force_damaged() {
    mv "$folder/data/#alluvium/CURRENT" "$scratch/"
    check_force 'a damaged folder' 'ALLUVIUM: cannot open' repair_folder
}

start
build_set_row
create_tables
check_entries
check_newer_again
check_numbers
"$folder/stop"
check_force_locked
check_force_damaged
