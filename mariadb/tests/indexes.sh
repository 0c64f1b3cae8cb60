#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Adds and drops indexes with LOCK=NONE while other connections write the table, and compares what
# each index gives with what the table has. Also duplicates, killed statements and servers, prepared
# transactions and old read points.
#
#   indexes.sh [ROUNDS]      ROUNDS: builds under writers, and killed servers; 2 by default
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../build/paths.sh"

rounds=${1:-2}
writers=2
table_rows=${INDEXES_ROWS:-8000}
# Writers so far: each has values of `u` of its own.
started=0
added='ADD INDEX v (v, k DESC), ADD UNIQUE INDEX u (u), ADD INDEX d (d), ADD INDEX b (body(4), k)'
dropped='DROP INDEX v, DROP INDEX u, DROP INDEX d, DROP INDEX b'

start() { "$checkout/mariadb/build/start.sh" "$folder" --alluvium-memory-bytes=64M >/dev/null; }

sql() { "$folder/sql" --batch --skip-column-names "$@"; }

expect() { # name, statements, lines
    local found
    found=$(sql -e "$2" 2>&1) || fail "$1: the statement failed: $2: $found"
    [ "$found" = "$3" ] || fail "$1: expected
$3
but found
$found
after: $2"
    say "ok: $1"
}

expect_error() { # name, statement, number
    local found
    if found=$(sql -e "$2" 2>&1); then fail "$1: no error from: $2"; fi
    [[ $found == *"ERROR $3 "* ]] || fail "$1: expected error $3, found: $found"
    say "ok: $1"
}

create() {
    local table
    sql -e "SET GLOBAL tx_isolation='READ-COMMITTED'; CREATE DATABASE online; USE online;
        CREATE TABLE control (go INT) ENGINE=InnoDB; INSERT INTO control VALUES (1);"
    for table in keyed hidden parts; do
        local key='PRIMARY KEY (id)' index='PRIMARY' parts='' null='NOT NULL'
        # A unique key without NULL would become the primary key.
        [ "$table" != hidden ] || { key='KEY id (id)' index=id null=''; }
        [ "$table" != parts ] || parts='PARTITION BY HASH (id) PARTITIONS 3'
        sql -e "USE online; CREATE TABLE $table (id INT NOT NULL, u BIGINT $null, k INT,
            v VARCHAR(20) COLLATE utf8mb4_unicode_ci, d INT AS (k MOD 13) VIRTUAL, body TEXT, $key) ENGINE=ALLUVIUM $parts;
            INSERT INTO $table (id, u, k, v, body) SELECT seq, seq, seq MOD 100, CONCAT('v', seq MOD 37), REPEAT(seq, 3)
            FROM seq_1_to_$table_rows"
        create_work "$table" "$index"
    done
    create_observers
}

# Writers change all columns and the key, also in transactions that are rolled back. A value of `u`
# is never in two rows at a time, as far as other transactions see.
create_work() { # table, index of `id`
    sql online <<SQL
DELIMITER //
CREATE PROCEDURE work_$1(w INT, first BIGINT)
BEGIN
    DECLARE n, a, b INT DEFAULT 0;
    DECLARE ua, ub BIGINT;
    WHILE (SELECT go FROM control) DO
        SET n = n + 1, a = 1 + FLOOR(RAND() * 2 * $table_rows), b = 1 + FLOOR(RAND() * 2 * $table_rows), ua = NULL, ub = NULL;
        BEGIN
            DECLARE EXIT HANDLER FOR 1062, 1205, 1213 ROLLBACK;
            START TRANSACTION;
            SELECT u INTO ua FROM $1 FORCE INDEX ($2) WHERE id = a FOR UPDATE;
            SELECT u INTO ub FROM $1 FORCE INDEX ($2) WHERE id = b FOR UPDATE;
            IF ua IS NULL THEN
                INSERT INTO $1 (id, u, k, v, body) VALUES (a, first + n, RAND() * 100, CONCAT('V', n MOD 41), n);
            ELSEIF ub IS NULL THEN
                CASE FLOOR(RAND() * 4)
                    WHEN 0 THEN DELETE FROM $1 WHERE id = a;
                    WHEN 1 THEN UPDATE $1 SET id = b WHERE id = a;
                    WHEN 2 THEN DELETE FROM $1 WHERE id = a;
                        INSERT INTO $1 (id, u, k, v, body) VALUES (a, ua, NULL, NULL, NULL);
                    ELSE UPDATE $1 SET v = CONCAT(v, ' ') WHERE id = a;
                END CASE;
            ELSEIF a <> b THEN
                UPDATE $1 SET u = -w WHERE id = a;
                UPDATE $1 SET u = ua, k = k + 1 WHERE id = b;
                SAVEPOINT one;
                DELETE FROM $1 WHERE id = b;
                UPDATE $1 SET u = ua, v = 'undone' WHERE id = a;
                ROLLBACK TO one;
                UPDATE $1 SET u = ub, body = CONCAT(n, 'x') WHERE id = a;
            END IF;
            IF RAND() < 0.1 THEN ROLLBACK; ELSE COMMIT; END IF;
        END;
    END WHILE;
END//
SQL
}

start_writers() {
    local table w
    sql -e 'UPDATE online.control SET go = 1'
    for table in keyed hidden parts; do
        for ((w = 1; w <= writers; w++)); do
            started=$((started + 1))
            sql -e "CALL online.work_$table($w, $started * 1000000000)" >>"$scratch/writers" 2>&1 &
        done
    done
}

stop_writers() {
    sql -e 'UPDATE online.control SET go = 0'
    wait
    [ ! -s "$scratch/writers" ] || fail "a writer failed: $(head -n 3 "$scratch/writers")"
}

# Compares what each index gives with the table, at one snapshot.
compare() { # table, indexes
    local index found sum='COUNT(*), SUM(CRC32(CONCAT_WS("|", id, u, k, v, d, body)))'
    local statements="SET tx_isolation='REPEATABLE-READ'; START TRANSACTION WITH CONSISTENT SNAPSHOT;
        SELECT $sum FROM $1 IGNORE INDEX (${2// /,});"
    for index in $2; do statements+="SELECT $sum FROM $1 FORCE INDEX ($index) WHERE $index > '' OR $index <= '' OR $index IS NULL;"; done
    statements=${statements//b > \'\' OR b <= \'\' OR b IS NULL/body > \'\' OR body <= \'\' OR body IS NULL}
    found=$(sql online -e "$statements COMMIT; CHECK TABLE $1 EXTENDED" | sort | uniq -c | awk '{print $1, $NF}')
    [ "$(wc -l <<<"$found")" = 2 ] && [[ $found == *" OK"* ]] || fail "$1: indexes and rows differ: $found"
}

check_builds() {
    local round table
    start_writers
    for ((round = 1; round <= rounds; round++)); do
        for table in keyed hidden parts; do
            # A key that several partitions have cannot be unique.
            local add=$added drop=$dropped indexes='v u d b'
            if [ "$table" = parts ]; then
                add=${add/ADD UNIQUE INDEX u (u)/ADD UNIQUE INDEX u (u, id)}
            fi
            sql online -e "ALTER TABLE $table $add, LOCK=NONE"
            compare "$table" "$indexes"
            sql online -e "ALTER TABLE $table $drop, LOCK=NONE"
        done
    done
    stop_writers
    for table in keyed hidden parts; do
        expect "$table after $rounds builds under writers" "CHECK TABLE online.$table EXTENDED" $'online.'"$table"$'\tcheck\tstatus\tOK'
    done
}

# Builds and drops indexes of `keyed` until a build fails. A short build may end before another
# connection sees it, then the next one is seen.
build_until_failure() {
    local try
    for ((try = 0; try < 500; try++)); do
        sql online -e "ALTER TABLE keyed $added, LOCK=NONE" 2>"$scratch/alter" || return 0
        sql online -e "ALTER TABLE keyed $dropped" || return 0
    done
}

# The server itself looks for builds: clients that ask one after the other would miss short ones.
create_observers() {
    sql online <<SQL
DELIMITER //
CREATE PROCEDURE wait_for_build(OUT build BIGINT)
REPEAT
    SELECT MAX(ID) INTO build FROM information_schema.PROCESSLIST WHERE STATE LIKE 'altering table%' AND INFO LIKE '%ADD INDEX%';
UNTIL build IS NOT NULL OR NOT (SELECT go FROM control) END REPEAT//
CREATE PROCEDURE kill_builds()
WHILE (SELECT go FROM control) DO
    BEGIN
        -- The build that was seen has ended.
        DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
        CALL wait_for_build(@build);
        IF @build IS NOT NULL THEN KILL QUERY @build; END IF;
    END;
END WHILE//
SQL
}

check_duplicates() {
    local errors
    expect 'a table with a duplicate' "UPDATE online.keyed SET k = id; INSERT INTO online.keyed (id, u, k) VALUES (-1, -1, 100000), (-2, -2, 100000)" ''
    expect_error 'a duplicate of the first snapshot' 'ALTER TABLE online.keyed ADD UNIQUE INDEX k (k), LOCK=NONE' 1062
    expect 'the table is as before' "DELETE FROM online.keyed WHERE id = -2; SHOW INDEX FROM online.keyed WHERE Key_name = 'k'; CHECK TABLE online.keyed" \
        $'online.keyed\tcheck\tstatus\tOK'
    # One of the two fails, whichever comes first.
    sql -e 'ALTER TABLE online.keyed ADD UNIQUE INDEX k (k), LOCK=NONE' 2>"$scratch/alter" &
    sql -e 'DO SLEEP(0.05); INSERT INTO online.keyed (id, u, k) VALUES (-2, -2, 100000)' 2>"$scratch/insert" || true
    wait
    errors=$(cat "$scratch/alter" "$scratch/insert" | grep ERROR)
    [[ $errors == 'ERROR 1062 '*"Duplicate entry '100000' for key 'k'" && $errors != *$'\n'* ]] || fail "a duplicate during the build: $errors"
    say 'ok: a duplicate during the build'
    sql online -e 'ALTER TABLE keyed DROP INDEX IF EXISTS k'
}

check_killed_statement() {
    local before
    before=$(sql -e "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'alluvium_keyspaces'")
    sql -e 'UPDATE online.control SET go = 1'
    sql -e 'CALL online.kill_builds()' &
    build_until_failure
    sql -e 'UPDATE online.control SET go = 0'
    wait
    [[ $(<"$scratch/alter") == *'ERROR 1317 '* ]] || fail "no build was killed: $(<"$scratch/alter")"
    expect 'no keyspace after a killed statement' "SELECT VARIABLE_VALUE - $before FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'alluvium_keyspaces'" 0
    expect 'no index after a killed statement' "SHOW INDEX FROM online.keyed WHERE Key_name <> 'PRIMARY'" ''
    expect 'a build after a killed one' "ALTER TABLE online.keyed $added, LOCK=NONE; ALTER TABLE online.keyed $dropped" ''
}

check_killed_server() {
    local round pid indexes
    for ((round = 1; round <= rounds; round++)); do
        pid=$(server_process "$folder")
        start_writers
        build_until_failure >/dev/null 2>&1 &
        sql -e 'CALL online.wait_for_build(@build)'
        sleep "0.0$((RANDOM % 90 + 10))"
        kill -KILL "$pid"
        wait || true
        : >"$scratch/writers"
        start
        indexes=$(sql -e "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_NAME = 'keyed' AND INDEX_NAME <> 'PRIMARY'")
        [[ $indexes =~ ^(0|6)$ ]] || fail "$indexes parts of indexes after a killed server"
        if [ "$indexes" = 6 ]; then
            compare keyed 'v u d b'
            sql online -e "ALTER TABLE keyed $dropped"
        fi
        expect "killed server $round" "ALTER TABLE online.keyed $added, LOCK=NONE; CHECK TABLE online.keyed EXTENDED; ALTER TABLE online.keyed $dropped" \
            $'online.keyed\tcheck\tstatus\tOK'
    done
}

check_prepared() {
    sql -e "XA START 'p'; INSERT INTO online.keyed (id, u, k) VALUES (-9, -9, 9); XA END 'p'; XA PREPARE 'p'"
    expect_error 'no build beside prepared writers' 'ALTER TABLE online.keyed ADD INDEX k (k), LOCK=NONE' 1296 'a prepared XA'
    expect 'their decision' "XA COMMIT 'p'; ALTER TABLE online.keyed ADD INDEX k (k), LOCK=NONE; CHECK TABLE online.keyed EXTENDED; ALTER TABLE online.keyed DROP INDEX k" \
        $'online.keyed\tcheck\tstatus\tOK'
}

check_read_points() {
    local before="SET tx_isolation='REPEATABLE-READ'; START TRANSACTION WITH CONSISTENT SNAPSHOT; SYSTEM '$folder/sql' -e"
    expect_error 'an old read point does not use a new index' "$before 'ALTER TABLE online.keyed ADD INDEX k (k), LOCK=NONE';
        SELECT COUNT(*) FROM online.keyed FORCE INDEX (k) WHERE k > 5" 1412
    expect 'it uses others' "$before 'ALTER TABLE online.keyed DROP INDEX k, ADD INDEX k2 (k), LOCK=NONE';
        SELECT COUNT(*) > 100 FROM online.keyed IGNORE INDEX (k2) WHERE k > 5" 1
    expect 'a late read point uses a new index' "SET tx_isolation='REPEATABLE-READ'; START TRANSACTION; SYSTEM '$folder/sql' -e 'ALTER TABLE online.keyed ADD INDEX k (k), LOCK=NONE';
        SELECT COUNT(*) > 100 FROM online.keyed FORCE INDEX (k) WHERE k > 5" 1
    expect_error 'nor the rows of an emptied table' "$before 'TRUNCATE online.hidden'; SELECT COUNT(*) FROM online.hidden" 1412
}

# A partition gets its rows after it is made: a read point in between must not see it without them.
check_partitions() {
    local found
    sql -e "CREATE TABLE online.pieces (id INT PRIMARY KEY) ENGINE=ALLUVIUM PARTITION BY HASH (id) PARTITIONS 2;
        INSERT INTO online.pieces SELECT seq FROM online.seq_1_to_200000"
    for seconds in 0.1 0.2; do
        sql -e 'ALTER TABLE online.pieces ADD PARTITION PARTITIONS 1' &
        sleep "$seconds"
        found=$(sql -e "SET tx_isolation='REPEATABLE-READ'; START TRANSACTION WITH CONSISTENT SNAPSHOT; DO SLEEP(1); SELECT COUNT(*) FROM online.pieces" 2>&1) || true
        wait
        [[ $found = 200000 || $found = *'ERROR 1412 '* ]] || fail "a read point beside a copy of partitions finds $found rows"
        say "ok: a read point beside a copy of partitions after $seconds s: $found"
        sql -e 'ALTER TABLE online.pieces COALESCE PARTITION 1'
    done
}

# Scans of an index read several rows at a time if the cache does not hold the rows.
check_scans() {
    local order rows='GROUP_CONCAT(id, LEFT(body, 3)'
    sql -e "SET GLOBAL alluvium_memory_bytes = 8 << 20; USE online; SET SESSION alluvium_bulk_load = 1;
        CREATE TABLE wide (id INT PRIMARY KEY, k INT, body TEXT, KEY k (k)) ENGINE=ALLUVIUM;
        INSERT INTO wide SELECT seq, seq * 7919 MOD 5003, CONCAT(MD5(seq), MD5(-seq), MD5(seq * 3), MD5(seq * 5), MD5(seq * 7), MD5(seq * 9)) FROM seq_1_to_60000;
        SET GLOBAL alluvium_settle_now = 1; FLUSH TABLES"
    for order in ASC DESC; do
        expect "rows of a range, $order" "SET group_concat_max_len = 1 << 24; USE online; START TRANSACTION; DELETE FROM wide WHERE id MOD 10 = 0; UPDATE wide SET body = id WHERE id MOD 10 = 1;
            SELECT (SELECT $rows ORDER BY k $order, id $order) FROM wide IGNORE INDEX (k) WHERE k BETWEEN 100 AND 300) =
            (SELECT GROUP_CONCAT(id, body) FROM (SELECT id, LEFT(body, 3) body FROM wide FORCE INDEX (k) WHERE k BETWEEN 100 AND 300 ORDER BY k $order, id $order LIMIT 100000) x); ROLLBACK" 1
        expect "rows of a limit and a condition on the index, $order" "USE online; SELECT (SELECT $rows ORDER BY k $order, id $order LIMIT 77) FROM wide IGNORE INDEX (k) WHERE k > 100 AND k MOD 3 = 1) =
            (SELECT GROUP_CONCAT(id, body) FROM (SELECT id, LEFT(body, 3) body FROM wide FORCE INDEX (k) WHERE k > 100 AND k MOD 3 = 1 ORDER BY k $order, id $order LIMIT 77) x)" 1
    done
    expect 'rows in both directions' "USE online; HANDLER wide OPEN; HANDLER wide READ k = (1234) LIMIT 3; HANDLER wide READ k NEXT LIMIT 2; HANDLER wide READ k PREV LIMIT 2" \
        "$(sql online -e 'SELECT * FROM wide WHERE k = 1234 ORDER BY id LIMIT 5; (SELECT * FROM wide WHERE k = 1234 ORDER BY id LIMIT 4) ORDER BY id DESC LIMIT 2')"
}

finish() {
    local pid
    if pid=$(server_process "$folder"); then kill -KILL "$pid"; fi
    rm -rf "$scratch"
}

scratch=$(mktemp -d)
trap finish EXIT
folder=$scratch/server
start
create
check_builds
check_duplicates
check_killed_statement
check_prepared
check_killed_server
check_read_points
check_partitions
check_scans
"$folder/stop"
