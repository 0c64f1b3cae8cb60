#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks in a private server: rows expire with their index entries at the time in their
# ALLUVIUM_EXPIRE_COLUMN, through every way of writing rows and of building indexes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

# Column types with the times of the rows 1 (past), 2 (future), 3 (NULL).
check_type() { # type, past, future
    expect "$1: rows and index entries expire" "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, k INT, u INT, ends $1 NULL,
        KEY (k), UNIQUE (u)) ENGINE=ALLUVIUM ALLUVIUM_EXPIRE_COLUMN=ends;
        INSERT INTO d.t VALUES (1, 10, 100, $2), (2, 20, 200, $3), (3, 30, 300, NULL);
        SELECT id FROM d.t; SELECT k FROM d.t FORCE INDEX (k) WHERE k > 0; SELECT id FROM d.t WHERE u = 100;
        SELECT COUNT(*) FROM d.t FORCE INDEX (u) WHERE u > 0" $'2\n3\n20\n30\n2'
    expect "$1: CHECK TABLE" 'CHECK TABLE d.t' $'d.t\tcheck\tstatus\tOK'
    expect "$1: an expired row is no duplicate" "INSERT INTO d.t VALUES (1, 11, 100, $3);
        SELECT id, k FROM d.t ORDER BY id" $'1\t11\n2\t20\n3\t30'
    expect "$1: an update moves the end of the row and of its entries" "UPDATE d.t SET ends = $2 WHERE id = 2;
        UPDATE d.t SET ends = $3 WHERE id = 3; UPDATE d.t SET ends = NULL WHERE id = 1;
        SELECT id FROM d.t; SELECT k FROM d.t FORCE INDEX (k) WHERE k > 0; SELECT COUNT(*) FROM d.t FORCE INDEX (u) WHERE u > 0" \
        $'1\n3\n11\n30\n2'
    expect "$1: an update of another column keeps the end" "INSERT INTO d.t VALUES (4, 40, 400, $3); BEGIN;
        UPDATE d.t SET k = 41 WHERE id = 4; UPDATE d.t SET ends = $2 WHERE id = 4; COMMIT; SELECT COUNT(*) FROM d.t WHERE id = 4 OR k = 41" 0
}

check_ways_of_writing() {
    local past='FROM_UNIXTIME(1000)'
    expect 'a statement that replaces rows' "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, k INT, ends TIMESTAMP NULL, KEY (k))
        ENGINE=ALLUVIUM ALLUVIUM_EXPIRE_COLUMN='ends'; INSERT INTO d.t VALUES (1, 1, NULL), (2, 2, NULL), (3, 3, NULL);
        REPLACE INTO d.t VALUES (1, 1, $past); INSERT INTO d.t VALUES (2, 2, NULL) ON DUPLICATE KEY UPDATE ends = $past;
        SELECT id FROM d.t; SELECT k FROM d.t FORCE INDEX (k) WHERE k > 0" $'3\n3'
    expect 'a bulk load' "CREATE OR REPLACE TABLE d.s (id INT, k INT, ends TIMESTAMP NULL) ENGINE=ALLUVIUM;
        INSERT INTO d.s VALUES (1, 1, NULL), (2, 2, $past), (3, 3, NOW() + INTERVAL 1 YEAR); SET alluvium_bulk_load = ON;
        TRUNCATE d.t; INSERT INTO d.t SELECT * FROM d.s; SELECT id FROM d.t; SELECT k FROM d.t FORCE INDEX (k) WHERE k > 0" $'1\n3\n1\n3'
    expect 'CREATE TABLE SELECT' "CREATE TABLE d.c (KEY (k)) ENGINE=ALLUVIUM ALLUVIUM_EXPIRE_COLUMN=ends SELECT * FROM d.s;
        SELECT id FROM d.c; SELECT k FROM d.c FORCE INDEX (k) WHERE k > 0" $'1\n3\n1\n3'
    expect 'a partitioned table without a primary key' "CREATE OR REPLACE TABLE d.p (id INT, ends BIGINT, KEY (id)) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends PARTITION BY HASH (id) PARTITIONS 2; INSERT INTO d.p VALUES (1, 1), (2, NULL), (3, 4e9);
        SELECT COUNT(*) FROM d.p; SELECT COUNT(*) FROM d.p FORCE INDEX (id) WHERE id > 0" $'2\n2'
}

# Rows whose time comes during the test: each index has to lose its entries with the row.
check_time_passes() {
    sql "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, k INT, v INT, ends TIMESTAMP(3) NULL, KEY (k)) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends; INSERT INTO d.t SELECT seq, seq, seq, IF(seq < 3, NOW(3) + INTERVAL 2 SECOND, NULL) FROM d.seq_1_to_4;
        ALTER TABLE d.t ADD KEY (v)"
    while [ "$(sql 'SELECT COUNT(*) FROM d.t')" -gt 2 ]; do sleep 0.1; done
    expect 'rows expire when their time comes' 'SELECT id FROM d.t; SELECT k FROM d.t FORCE INDEX (k) WHERE k > 0;
        SELECT v FROM d.t FORCE INDEX (v) WHERE v > 0' $'3\n4\n3\n4\n3\n4'
    expect 'CHECK TABLE after an index was added' 'CHECK TABLE d.t EXTENDED' $'d.t\tcheck\tstatus\tOK'
    "$folder/stop"
    start
    expect 'rows stay expired after a restart' 'SELECT COUNT(*) FROM d.t' 2
}

check_alter() {
    local past='FROM_UNIXTIME(1000)'
    sql "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, ends TIMESTAMP NULL, other BIGINT, KEY (ends)) ENGINE=ALLUVIUM;
        INSERT INTO d.t VALUES (1, $past, NULL), (2, NULL, 1000), (3, NULL, NULL)"
    expect 'without the option no row expires' 'SELECT COUNT(*) FROM d.t' 3
    expect 'ALTER TABLE adds the option' 'ALTER TABLE d.t ALLUVIUM_EXPIRE_COLUMN=ends; SELECT id FROM d.t' $'2\n3'
    expect 'ALTER TABLE changes the column' 'ALTER TABLE d.t ALLUVIUM_EXPIRE_COLUMN=other; SELECT id FROM d.t' 3
    expect_message 'the column is not dropped' 'ALTER TABLE d.t DROP COLUMN other' "no column 'other'"
    expect_message 'the column gets no other name' 'ALTER TABLE d.t RENAME COLUMN other TO o' "no column 'other'"
    expect_message 'the column gets no other type' 'ALTER TABLE d.t MODIFY other INT' 'is no TIMESTAMP, DATETIME or BIGINT'
    expect 'ALTER TABLE takes the option away' 'ALTER TABLE d.t ALLUVIUM_EXPIRE_COLUMN=DEFAULT;
        INSERT INTO d.t VALUES (4, NULL, 1000); SELECT id FROM d.t' $'3\n4'
}

check_refusals() {
    expect_message 'a column of another type' 'CREATE TABLE d.x (id INT PRIMARY KEY, ends DATE) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends' "column 'ends' is no TIMESTAMP, DATETIME or BIGINT"
    expect_message 'no such column' 'CREATE TABLE d.x (id INT PRIMARY KEY) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends' "no column 'ends'"
    expect_message 'a virtual column' 'CREATE TABLE d.x (id INT PRIMARY KEY, ends BIGINT AS (id + 1)) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends' 'make it STORED'
    expect_message 'both options' 'CREATE TABLE d.x (id INT PRIMARY KEY, ends BIGINT) ENGINE=ALLUVIUM
        ALLUVIUM_EXPIRE_COLUMN=ends ALLUVIUM_EXPIRE_AFTER=5' 'ALLUVIUM_EXPIRE_AFTER'
}

# A row that expires while a statement has it: another row may have its unique entry by then.
check_entry_of_another_row() {
    sql 'CREATE TABLE d.u (id INT PRIMARY KEY, u INT UNIQUE, ends BIGINT) ENGINE=ALLUVIUM ALLUVIUM_EXPIRE_COLUMN=ends;
        INSERT INTO d.u VALUES (1, 5, UNIX_TIMESTAMP() + 2)'
    in_background "$scratch/delete" 'DELETE FROM d.u WHERE id = 1 AND SLEEP(4) = 0'
    sleep 3
    sql 'INSERT INTO d.u VALUES (2, 5, NULL)'
    wait "$session" || fail "the DELETE fails: $(cat "$scratch/delete")"
    expect 'a late DELETE leaves the entry of another row' 'SELECT id FROM d.u FORCE INDEX (u) WHERE u = 5; CHECK TABLE d.u' \
        $'2\nd.u\tcheck\tstatus\tOK'
}

check_exchange() {
    sql 'CREATE TABLE d.parted (id INT PRIMARY KEY, ends BIGINT) ENGINE=ALLUVIUM ALLUVIUM_EXPIRE_COLUMN=ends PARTITION BY HASH (id) PARTITIONS 2;
        CREATE TABLE d.lasting (id INT PRIMARY KEY, ends BIGINT) ENGINE=ALLUVIUM; CREATE TABLE d.expiring LIKE d.lasting; ALTER TABLE d.expiring ALLUVIUM_EXPIRE_COLUMN=ends'
    expect_error 'no exchange with a table whose rows do not expire' 'ALTER TABLE d.parted EXCHANGE PARTITION p0 WITH TABLE d.lasting' 1736
    expect 'an exchange with one whose rows do' 'ALTER TABLE d.parted EXCHANGE PARTITION p0 WITH TABLE d.expiring' ''
}

start
sql 'CREATE DATABASE d'
for type in TIMESTAMP 'TIMESTAMP(6)'; do check_type "$type" 'FROM_UNIXTIME(1000)' 'NOW() + INTERVAL 1 YEAR'; done
for type in DATETIME 'DATETIME(3)'; do check_type "$type" 'UTC_TIMESTAMP() - INTERVAL 1 SECOND' 'UTC_TIMESTAMP() + INTERVAL 1 HOUR'; done
check_type BIGINT 'UNIX_TIMESTAMP() - 1' 'UNIX_TIMESTAMP() + 3600'
check_type 'BIGINT UNSIGNED' 0 18446744073709551615
check_ways_of_writing
check_time_passes
check_alter
check_refusals
check_entry_of_another_row
check_exchange
"$folder/stop"
