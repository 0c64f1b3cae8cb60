#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks sequences in Alluvium: each number is given once, also over rollbacks, old read points,
# restarts and kills.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

check_numbers() {
    sql 'CREATE SEQUENCE numbers.s START 10 INCREMENT 5 CACHE 3'
    expect 'the engine' "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_NAME = 's'" ALLUVIUM
    expect 'numbers' 'SELECT NEXTVAL(numbers.s), NEXTVAL(numbers.s), LASTVAL(numbers.s)' $'10\t15\t15'
    expect 'a rollback gives no number back' 'BEGIN; SELECT NEXTVAL(numbers.s); ROLLBACK; SELECT NEXTVAL(numbers.s)' $'20\n25'
    expect 'an old read point gives new numbers' "SET tx_isolation='REPEATABLE-READ'; START TRANSACTION WITH CONSISTENT SNAPSHOT; SYSTEM '$folder/sql' -e 'DO NEXTVAL(numbers.s), NEXTVAL(numbers.s)'; SYSTEM '$folder/sql' -e 'FLUSH TABLES';
        SELECT NEXTVAL(numbers.s) > 35" 1
    expect 'SERIALIZABLE' "SET tx_isolation='SERIALIZABLE'; SELECT NEXTVAL(numbers.s) > 40" 1
    expect 'SETVAL and ALTER' 'SELECT SETVAL(numbers.s, 100), NEXTVAL(numbers.s); ALTER SEQUENCE numbers.s RESTART 7; SELECT NEXTVAL(numbers.s)' $'100\t105\n7'
    expect 'a rename' 'RENAME TABLE numbers.s TO numbers.t; SELECT NEXTVAL(numbers.t) > 7' 1
    expect 'a change of the engine' 'ALTER TABLE numbers.t ENGINE=InnoDB; SELECT NEXTVAL(numbers.t) > 22; ALTER TABLE numbers.t ENGINE=ALLUVIUM; SELECT NEXTVAL(numbers.t) > 27' $'1\n1'
    expect 'a default of a column' 'CREATE TABLE numbers.rows (id BIGINT PRIMARY KEY DEFAULT NEXTVAL(numbers.t), a INT) ENGINE=ALLUVIUM;
        INSERT INTO numbers.rows (a) VALUES (1), (2); SELECT COUNT(DISTINCT id) FROM numbers.rows' 2
    expect 'the end' 'CREATE SEQUENCE numbers.few MAXVALUE 2 NOCACHE; SELECT NEXTVAL(numbers.few), NEXTVAL(numbers.few)' $'1\t2'
    expect_error 'after the end' 'SELECT NEXTVAL(numbers.few)' 4084
    expect_error 'no rows are deleted' 'DELETE FROM numbers.few' 1031
    expect 'DROP' "DROP SEQUENCE numbers.few; SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'few'" 0
}

# A table becomes a sequence only by a copy, which checks its row.
check_made_from_tables() {
    expect 'a sequence becomes a table and a sequence again' 'CREATE SEQUENCE numbers.u; ALTER TABLE numbers.u SEQUENCE=0; DELETE FROM numbers.u;
        INSERT INTO numbers.u VALUES (5, 1, 9223372036854775806, 1, 1, 1000, 0, 0); ALTER TABLE numbers.u SEQUENCE=1; SELECT NEXTVAL(numbers.u)' 5
    expect_error 'a table of two rows' 'CREATE SEQUENCE numbers.v; ALTER TABLE numbers.v SEQUENCE=0; INSERT INTO numbers.v SELECT * FROM numbers.v; ALTER TABLE numbers.v SEQUENCE=1' 1815
    expect_error 'not in place' 'ALTER TABLE numbers.v SEQUENCE=1, ALGORITHM=INPLACE' 1846
    expect_error 'no sequence expires' 'CREATE SEQUENCE numbers.w ALLUVIUM_EXPIRE_AFTER=1' 1478
}

# Each client writes the numbers that it got.
take_numbers() { # clients
    local client
    for ((client = 1; client <= $1; client++)); do
        (for ((i = 0; i < 40; i++)); do "$folder/sql" --batch --skip-column-names -e 'SELECT NEXTVAL(numbers.shared), NEXTVAL(numbers.shared)'; done |
            tr '\t' '\n' >>"$scratch/taken.$client") 2>/dev/null &
    done
}

check_clients_and_kills() {
    local given
    sql 'CREATE SEQUENCE numbers.shared CACHE 7'
    take_numbers 3
    wait
    take_numbers 2
    until_query 'SELECT next_not_cached_value > 270 FROM numbers.shared' 1
    kill_server
    wait
    start --default-storage-engine=ALLUVIUM
    sql 'SELECT NEXTVAL(numbers.shared)' >>"$scratch/taken.1"
    restart --default-storage-engine=ALLUVIUM
    sql 'SELECT NEXTVAL(numbers.shared)' >>"$scratch/taken.1"
    given=$(cat "$scratch"/taken.* | wc -l)
    [ "$given" = "$(sort -u "$scratch"/taken.* | wc -l)" ] || fail "a number was given twice: $(sort "$scratch"/taken.* | uniq -d | head -n 3)"
    [ "$given" -gt 250 ] || fail "only $given numbers were given"
    say "ok: $given numbers, each given once, over a kill and a restart"
}

start --default-storage-engine=ALLUVIUM
sql 'CREATE DATABASE numbers'
check_numbers
check_made_from_tables
check_clients_and_kills
stop
