#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks the plugin in a private server: rows through inserts, updates, deletes, a transaction with
# InnoDB, a restart and a kill. Also runs the three commands that `make mariadb` prints.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

check_rows() { # after
    expect "the rows $1" 'SELECT * FROM smoke.a ORDER BY id' "$rows"
    expect "the index $1" 'SELECT id FROM smoke.a FORCE INDEX (name) ORDER BY name DESC' $'3\n1'
    expect "the rows of both engines $1" 'SELECT COUNT(*) FROM smoke.a JOIN smoke.i USING (id)' 2
}

check_statements() {
    expect 'the server has the engine' \
        "SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE = 'ALLUVIUM'" YES
    expect 'the folder of the engine is no database' \
        "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%alluvium%'" ''
    expect 'create' 'CREATE DATABASE smoke; CREATE TABLE smoke.i (id INT PRIMARY KEY) ENGINE=InnoDB;
        CREATE TABLE smoke.a (id INT PRIMARY KEY, name VARCHAR(20), n INT, KEY name (name)) ENGINE=ALLUVIUM' ''
    expect 'the table is in the engine' \
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_NAME = 'a'" ALLUVIUM
    expect 'insert' "INSERT INTO smoke.a VALUES (1, 'one', 10), (2, 'two', 20)" ''
    expect_error 'a duplicate key is refused' "INSERT INTO smoke.a VALUES (1, 'again', 0)" 1062
    expect 'select by key' 'SELECT name, n FROM smoke.a WHERE id = 2' $'two\t20'
    expect 'select by index' "SELECT id FROM smoke.a WHERE name = 'one'" 1
    expect 'update' 'UPDATE smoke.a SET n = n + 1 WHERE id = 1; SELECT n FROM smoke.a WHERE id = 1' 11
    expect 'delete' 'DELETE FROM smoke.a WHERE id = 2; SELECT COUNT(*) FROM smoke.a' 1
    expect 'rollback' "BEGIN; INSERT INTO smoke.a VALUES (9, 'nine', 90); ROLLBACK; SELECT COUNT(*) FROM smoke.a" 1
    expect 'commit with InnoDB' \
        "BEGIN; INSERT INTO smoke.a VALUES (3, 'three', 30); INSERT INTO smoke.i VALUES (1), (3); COMMIT" ''
}

check_restart() {
    restart
    check_rows 'after a restart'
}

# The last commit before the kill must survive it.
check_kill() {
    sql 'UPDATE smoke.a SET n = 31 WHERE id = 3'
    rows=${rows/30/31}
    kill_server
    start
    check_rows 'after a kill'
}

# The commands of `make mariadb` are for a copy, so they run as they are printed.
check_commands() {
    local commands found
    commands=$("$checkout/mariadb/build/all.sh" "$scratch/commands" 2>/dev/null)
    found=$(bash -ec "$commands") || fail "the commands that make mariadb prints fail:
$commands"
    [[ $found == *'| 2 | pear'* || $found == *'|  2 | pear'* ]] || fail "the commands that make mariadb prints show no row: $found"
    say 'ok: the commands that make mariadb prints'
}

rows=$'1\tone\t11\n3\tthree\t30'
start
check_statements
check_rows 'after the statements'
check_restart
check_kill
expect 'drop' 'DROP TABLE smoke.a; DROP DATABASE smoke' ''
stop
check_commands
