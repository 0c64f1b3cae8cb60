#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks transactions that need several connections or a restart, in a private server: prepared XA
# transactions after a kill and after a restart, bulk loads next to other writers, killed
# connections, and transactions larger than memory with a binary log.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

lock_now='SET alluvium_lock_wait_timeout = 0'

# Checks that both transactions are prepared: their writes are not visible, and their rows locked.
check_prepared_state() { # after
    local statement
    # The server lists them in no order of its own.
    [ "$(sql 'XA RECOVER' | cut -f 4 | sort | xargs)" = 'one two' ] || fail "XA RECOVER $1: $(sql 'XA RECOVER')"
    say "ok: XA RECOVER lists both transactions $1"
    expect "their writes are not visible $1" 'SELECT * FROM x.a ORDER BY id' $'1\t10\n2\t20\n3\t30'
    expect_error "a row that one has updated is locked $1" "$lock_now; UPDATE x.a SET n = 0 WHERE id = 1" 1205
    expect_error "a row that one has deleted is locked $1" "$lock_now; DELETE FROM x.a WHERE id = 2" 1205
    expect_error "the key of a new row is locked $1" "$lock_now; INSERT INTO x.a VALUES (4, 0)" 1205
    expect_error "a value of a unique index is locked $1" "$lock_now; INSERT INTO x.a VALUES (5, 11)" 1205
    expect "other rows are free $1" "$lock_now; UPDATE x.a SET n = 30 WHERE id = 3" ''
    expect_error "its id cannot be used again $1" "XA BEGIN 'one'" 1440
    # These statements change all rows, and the transactions have no metadata locks any more.
    for statement in 'DROP TABLE x.a' 'TRUNCATE x.a' 'ALTER TABLE x.a ADD KEY id (id, n)' 'CREATE INDEX id ON x.a (id, n)' \
        'ALTER TABLE x.a FORCE, ALGORITHM=COPY' 'LOCK TABLES x.a WRITE'; do
        expect_error "no $statement $1" "$statement" 1296 'XA RECOVER'
    done
    expect_error "a bulk load respects their locks $1" \
        "$lock_now, alluvium_bulk_load = ON; INSERT INTO x.empty SELECT seq FROM x.seq_1_to_3" 1205
}

check_xa() {
    sql 'CREATE DATABASE x; CREATE TABLE x.a (id INT PRIMARY KEY, n INT, UNIQUE KEY n (n)) ENGINE=ALLUVIUM;
        CREATE TABLE x.empty (id INT PRIMARY KEY) ENGINE=ALLUVIUM; CREATE TABLE x.i (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO x.a VALUES (1, 10), (2, 20), (3, 30)'
    sql "XA BEGIN 'one'; UPDATE x.a SET n = 11 WHERE id = 1; INSERT INTO x.i VALUES (1); XA END 'one'; XA PREPARE 'one'"
    sql "XA BEGIN 'two'; DELETE FROM x.a WHERE id = 2; INSERT INTO x.a VALUES (4, 40); INSERT INTO x.empty VALUES (2); XA END 'two'; XA PREPARE 'two'"
    kill_server
    start
    check_prepared_state 'after a kill'
    restart
    check_prepared_state 'after a restart'
    expect 'XA COMMIT after a restart' "XA COMMIT 'one'; SELECT n FROM x.a WHERE id = 1; SELECT id FROM x.i" $'11\n1'
    expect 'XA ROLLBACK after a restart' "XA ROLLBACK 'two'; SELECT id FROM x.a ORDER BY id" $'1\n2\n3'
    expect 'their locks have ended' \
        "$lock_now; UPDATE x.a SET n = n + 1 ORDER BY n DESC; INSERT INTO x.a VALUES (4, 41); ALTER TABLE x.a ADD KEY id (id, n)" ''
    expect_error 'a decided transaction is unknown' "XA COMMIT 'one'" 1397
    kill_server
    start
    expect 'both decisions survive a kill' 'SELECT * FROM x.a ORDER BY id' $'1\t12\n2\t21\n3\t31\n4\t41'
    expect 'no transaction is left' 'XA RECOVER' ''
    expect 'the table is sound' 'CHECK TABLE x.a' $'x.a\tcheck\tstatus\tOK'
    sql 'DROP DATABASE x'
}

# Rows of a bulk load that lasts until `b.gate` is unlocked. They do not roll back, which shows that
# the rows have gone past the transaction.
slow_load="SET alluvium_bulk_load = ON; BEGIN; INSERT INTO b.t SELECT seq, GET_LOCK('gate', 60) FROM b.seq_1_to_3; ROLLBACK"

check_bulk_load() {
    sql 'CREATE DATABASE b; CREATE TABLE b.t (id INT PRIMARY KEY, n INT) ENGINE=ALLUVIUM'
    expect 'a bulk load goes past the transaction' \
        "SET alluvium_bulk_load = ON; BEGIN; INSERT INTO b.t SELECT seq, 0 FROM b.seq_1_to_3; ROLLBACK; SELECT COUNT(*) FROM b.t" 3
    expect 'rows of a table that is not empty roll back' \
        "SET alluvium_bulk_load = ON; BEGIN; INSERT INTO b.t SELECT seq, 0 FROM b.seq_4_to_6; ROLLBACK; SELECT COUNT(*) FROM b.t" 3
    expect_error 'a bulk load refuses two rows of one key' \
        "TRUNCATE b.t; SET alluvium_bulk_load = ON; INSERT INTO b.t SELECT seq DIV 2, 0 FROM b.seq_1_to_3" 1062
    expect 'and leaves no row' 'SELECT COUNT(*) FROM b.t' 0
    check_load_locks_others_out
    check_load_waits_for_writers
    sql 'DROP DATABASE b'
}

check_load_locks_others_out() {
    local holder loader
    in_background "$scratch/holder" "SELECT GET_LOCK('gate', 0); SELECT SLEEP(60)"
    holder=$session
    until_query "SELECT IS_USED_LOCK('gate') IS NOT NULL" 1
    in_background "$scratch/loader" "$slow_load"
    loader=$session
    until_query "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'" 1
    expect_error 'no other connection writes during a bulk load' \
        'SET lock_wait_timeout = 0; INSERT INTO b.t VALUES (9, 9)' 1205
    expect 'other connections read during a bulk load' 'SELECT COUNT(*) FROM b.t' 0
    sql "SELECT IS_USED_LOCK('gate') INTO @id; KILL @id" || fail 'the connection that holds the gate cannot be killed'
    wait "$loader" || fail "the bulk load failed: $(cat "$scratch/loader")"
    wait "$holder" || true
    expect 'the load ends with all rows' 'SELECT COUNT(*) FROM b.t' 3
}

check_load_waits_for_writers() {
    local writer
    sql 'TRUNCATE b.t'
    in_background "$scratch/writer" "BEGIN; INSERT INTO b.t VALUES (2, 2); SELECT SLEEP(60)"
    writer=$session
    until_query "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'" 1
    expect_error 'a bulk load waits for transactions that have written the table' \
        'SET alluvium_bulk_load = ON, alluvium_lock_wait_timeout = 0; INSERT INTO b.t SELECT seq, 0 FROM b.seq_1_to_3' 1205
    sql "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' INTO @id; KILL QUERY @id"
    wait "$writer" || true
    until_query 'SELECT COUNT(*) FROM information_schema.PROCESSLIST' 1
    expect 'after their end it loads' \
        'SET alluvium_bulk_load = ON; INSERT INTO b.t SELECT seq, 0 FROM b.seq_1_to_3; SELECT COUNT(*) FROM b.t' 3
}

# A killed connection loses its transaction with its locks; a killed statement only its wait.
check_kills() {
    local owner waiter
    sql 'CREATE DATABASE k; CREATE TABLE k.t (id INT PRIMARY KEY, n INT) ENGINE=ALLUVIUM; INSERT INTO k.t VALUES (1, 0), (2, 0)'
    in_background "$scratch/owner" "BEGIN; UPDATE k.t SET n = 1 WHERE id = 1; SELECT GET_LOCK('owner', 0); SELECT SLEEP(60)"
    owner=$session
    until_query "SELECT IS_USED_LOCK('owner') IS NOT NULL" 1
    in_background "$scratch/waiter" "BEGIN; UPDATE k.t SET n = 2 WHERE id = 2; SELECT GET_LOCK('waiter', 0);
        UPDATE k.t SET n = 2 WHERE id = 1; SELECT 'not reached'"
    waiter=$session
    until_query "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE k.t SET n = 2 WHERE id = 1'" 1
    sql "SELECT IS_USED_LOCK('waiter') INTO @id; KILL QUERY @id"
    wait "$waiter" && fail 'a killed statement succeeded'
    grep -q 'ERROR 1317 ' "$scratch/waiter" || fail "a killed wait has another error: $(cat "$scratch/waiter")"
    say 'ok: KILL QUERY ends a wait for a row lock'
    until_query "SELECT IS_USED_LOCK('waiter') IS NULL" 1
    sql "SELECT IS_USED_LOCK('owner') INTO @id; KILL @id"
    wait "$owner" || true
    until_query 'SELECT COUNT(*) FROM information_schema.PROCESSLIST' 1
    expect 'killed connections leave no writes and no locks' "$lock_now; SELECT * FROM k.t; UPDATE k.t SET n = 3" $'1\t0\n2\t0'
    sql 'DROP DATABASE k'
}

large_rows=200000
copy_all="INSERT INTO l.t SELECT * FROM l.s"

# A transaction of which a part is in files is prepared because of the binary log.
check_large_transactions() {
    sql "CREATE DATABASE l; CREATE TABLE l.s (id INT PRIMARY KEY, n INT, KEY n (n)) ENGINE=ALLUVIUM; CREATE TABLE l.t LIKE l.s;
        SET alluvium_bulk_load = ON, sql_log_bin = OFF; INSERT INTO l.s SELECT seq, seq * 7 FROM l.seq_1_to_$large_rows"
    expect 'a transaction larger than memory rolls back' "BEGIN; $copy_all; ROLLBACK; SELECT COUNT(*) FROM l.t" 0
    expect 'it has savepoints' "BEGIN; INSERT INTO l.t VALUES (0, 0); SAVEPOINT a; $copy_all; ROLLBACK TO a; COMMIT; SELECT * FROM l.t; DELETE FROM l.t" \
        $'0\t0'
    expect 'it commits with a binary log' "$copy_all; SELECT COUNT(*), SUM(n) = 7 * SUM(id) FROM l.t FORCE INDEX (n)" "$large_rows"$'\t1'
    sql 'TRUNCATE l.t'
    check_large_xa
    for seconds in 0.2 0.6 0.8 1.2; do check_killed_copy "$seconds"; done
    sql 'DROP DATABASE l'
}

check_large_xa() {
    sql "XA BEGIN 'large'; $copy_all; XA END 'large'; XA PREPARE 'large'"
    kill_server
    start "${with_log[@]}"
    [ "$(sql 'XA RECOVER' | cut -f 4)" = large ] || fail "XA RECOVER: $(sql 'XA RECOVER')"
    expect 'the rows of a prepared large transaction are not visible after a kill' 'SELECT COUNT(*) FROM l.t' 0
    expect_error 'they are locked' "$lock_now; INSERT INTO l.t VALUES (7, 7)" 1205
    expect 'other rows are free' "$lock_now; INSERT INTO l.t VALUES (0, 0)" ''
    expect_error 'no TRUNCATE meanwhile' 'TRUNCATE l.t' 1296 'XA RECOVER'
    expect 'XA COMMIT shows them' "XA COMMIT 'large'; SELECT COUNT(*) FROM l.t" $((large_rows + 1))
    sql "DELETE FROM l.t WHERE id = 0"
    sql "TRUNCATE l.t; XA BEGIN 'large'; $copy_all; XA END 'large'; XA PREPARE 'large'; XA ROLLBACK 'large'"
    expect 'XA ROLLBACK removes them' "SELECT COUNT(*) FROM l.t; CHECK TABLE l.t" $'0\nl.t\tcheck\tstatus\tOK'
}

# Kills the server so many seconds after the statement began: afterwards there are all rows or none.
check_killed_copy() { # seconds
    local rows
    sql 'TRUNCATE l.t'
    in_background "$scratch/copy" "$copy_all"
    sleep "$1"
    kill_server
    wait "$session" || true
    start "${with_log[@]}"
    rows=$(sql 'SELECT COUNT(*) FROM l.t FORCE INDEX (n)')
    [ "$rows" = 0 ] || [ "$rows" = "$large_rows" ] || fail "after a kill at $1 s there are $rows rows"
    expect "a kill after $1 s leaves all rows or none, here $rows" 'XA RECOVER; CHECK TABLE l.t' $'l.t\tcheck\tstatus\tOK'
}

start
check_xa
check_bulk_load
check_kills
stop
# A quarter of this memory is the limit above which the writes of a transaction go to files.
with_log=(--alluvium-memory-bytes=16777216 --log-bin --binlog-format=ROW --server-id=1)
start "${with_log[@]}"
check_large_transactions
stop
