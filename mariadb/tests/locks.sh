#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks in a private server: SKIP LOCKED, NOWAIT and WAIT; and that status variables, SHOW ENGINE
# ALLUVIUM STATUS and INFORMATION_SCHEMA.ALLUVIUM_LOCK_WAITS show transactions and lock waits.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

# Runs statements in the connection that holds locks, and waits for their end.
hold() { # statements
    local line
    printf '%s; SELECT "done";\n' "$1" >&"${holder[1]}"
    while read -r line <&"${holder[0]}"; do
        [ "$line" != done ] || return 0
    done
    fail "the holder of locks has ended at: $1"
}

status_of() { # name
    sql "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'alluvium_$1'"
}

check_skip_locked() {
    local isolation
    for isolation in 'REPEATABLE READ' 'READ COMMITTED'; do
        hold "SET SESSION TRANSACTION ISOLATION LEVEL $isolation; BEGIN; SELECT * FROM d.q WHERE id = 1 FOR UPDATE"
        expect "SKIP LOCKED leaves out a locked row, $isolation" \
            "SET SESSION TRANSACTION ISOLATION LEVEL $isolation; BEGIN;
            SELECT id FROM d.q ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
            SELECT id FROM d.q WHERE id = 1 LOCK IN SHARE MODE SKIP LOCKED;
            SELECT id FROM d.q FORCE INDEX (n) WHERE n < 30 FOR UPDATE SKIP LOCKED; COMMIT" $'2\n2'
        hold COMMIT
        expect "and locks the others, $isolation" 'SELECT COUNT(*) FROM d.q FOR UPDATE SKIP LOCKED' 4
    done
    hold 'BEGIN; SELECT * FROM d.q WHERE id = 1 LOCK IN SHARE MODE'
    expect 'a shared lock does not hide a row from a shared one' \
        'SELECT COUNT(*) FROM d.q LOCK IN SHARE MODE SKIP LOCKED' 4
    expect 'but from an exclusive one' 'SELECT COUNT(*) FROM d.q FOR UPDATE SKIP LOCKED' 3
    hold COMMIT
}

# A queue: each consumer takes the first row that no other one has, and deletes it.
check_queue() {
    local consumer turn
    sql 'CREATE TABLE d.jobs (id INT PRIMARY KEY) ENGINE=ALLUVIUM; CREATE TABLE d.taken (id INT) ENGINE=ALLUVIUM;
        INSERT INTO d.jobs SELECT seq FROM d.seq_1_to_200'
    local take='BEGIN; SET @id = NULL; SELECT id INTO @id FROM d.jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
        INSERT INTO d.taken SELECT @id FROM dual WHERE @id IS NOT NULL; DELETE FROM d.jobs WHERE id = @id; COMMIT;'
    local pids=()
    for consumer in 1 2 3; do
        for ((turn = 0; turn < 100; turn++)); do printf '%s\n' "$take"; done |
            "$folder/sql" >/dev/null 2>"$scratch/consumer$consumer" &
        pids+=("$!")
    done
    for consumer in "${pids[@]}"; do wait "$consumer" || fail "a consumer has failed: $(cat "$scratch"/consumer*)"; done
    expect 'consumers of a queue take each row once' \
        'SELECT COUNT(*), COUNT(DISTINCT id) FROM d.taken; SELECT COUNT(*) FROM d.jobs' $'200\t200\n0'
}

check_nowait() {
    hold 'BEGIN; SELECT * FROM d.q WHERE id = 1 FOR UPDATE'
    expect_error 'NOWAIT fails at a locked row' 'SELECT * FROM d.q WHERE id = 1 FOR UPDATE NOWAIT' 1205
    expect_error 'also in share mode' 'SELECT * FROM d.q WHERE id = 1 LOCK IN SHARE MODE NOWAIT' 1205
    expect_error 'WAIT overrides the longer timeout of the connection' \
        'SET alluvium_lock_wait_timeout = 1000000; SELECT * FROM d.q WHERE id = 1 FOR UPDATE WAIT 1' 1205
    expect 'NOWAIT reads a row that is free' 'SELECT n FROM d.q WHERE id = 2 FOR UPDATE NOWAIT' 20
    expect_error 'NOWAIT holds for one statement' \
        'BEGIN; SELECT n FROM d.q WHERE id = 2 FOR UPDATE NOWAIT; SET alluvium_lock_wait_timeout = 1;
        SELECT * FROM d.q WHERE id = 1 FOR UPDATE' 1205
    hold COMMIT
}

check_lock_waits() {
    local waiter text
    hold 'BEGIN; UPDATE d.q SET n = 11 WHERE id = 1'
    sql 'UPDATE d.q SET n = 12 WHERE id = 1' &
    waiter=$!
    until_query 'SELECT COUNT(*) FROM information_schema.ALLUVIUM_LOCK_WAITS' 1
    expect 'the table of lock waits' "SELECT WAITING_STATEMENT, TABLE_NAME, INDEX_NUMBER, WAITING_ID <> BLOCKING_ID,
        BLOCKING_STATEMENT LIKE '%done%' OR BLOCKING_STATEMENT = '' FROM information_schema.ALLUVIUM_LOCK_WAITS" \
        $'UPDATE d.q SET n = 12 WHERE id = 1\td/q\t0\t1\t1'
    text=$("$folder/sql" --batch --raw --skip-column-names -e 'SHOW ENGINE ALLUVIUM STATUS')
    [[ $text == *"for a row of 'd/q', index 0"*'waits: connection '*': UPDATE d.q SET n = 12 WHERE id = 1'*'has it: connection '* ]] ||
        fail "SHOW ENGINE ALLUVIUM STATUS does not show the wait: $text"
    [[ $text == *'transaction open for '* ]] || fail "SHOW ENGINE ALLUVIUM STATUS shows no transaction: $text"
    say 'ok: SHOW ENGINE ALLUVIUM STATUS shows the wait'
    [ "$(status_of transactions)" -ge 2 ] || fail 'the status has fewer than two transactions'
    [ "$(status_of row_locks)" -ge 1 ] || fail 'the status has no row lock'
    sql 'CREATE USER reader@localhost'
    [ "$("$folder/sql" --user=reader --batch --skip-column-names \
        -e 'SELECT COUNT(*) FROM information_schema.ALLUVIUM_LOCK_WAITS')" = 0 ] ||
        fail 'a user without the right PROCESS sees the statements of others'
    hold ROLLBACK
    wait "$waiter" || fail 'the waiting statement has failed'
    expect 'no wait is left' 'SELECT COUNT(*) FROM information_schema.ALLUVIUM_LOCK_WAITS' 0
}

check_counters() {
    local timeouts waits deadlocks waiter
    timeouts=$(status_of lock_timeouts) waits=$(status_of lock_waits) deadlocks=$(status_of deadlocks)
    [ "$timeouts" -ge 4 ] && [ "$waits" -ge 2 ] || fail "$timeouts lock timeouts and $waits waits are too few"
    hold 'BEGIN; UPDATE d.q SET n = 1 WHERE id = 1'
    "$folder/sql" -e 'BEGIN; UPDATE d.q SET n = 2 WHERE id = 2; UPDATE d.q SET n = 2 WHERE id = 1; ROLLBACK' 2>/dev/null &
    waiter=$!
    until_query 'SELECT COUNT(*) FROM information_schema.ALLUVIUM_LOCK_WAITS' 1
    hold 'UPDATE d.q SET n = 1 WHERE id = 2'
    hold ROLLBACK
    wait "$waiter" || true
    [ "$(status_of deadlocks)" -gt "$deadlocks" ] || fail 'the deadlock is not counted'
    say 'ok: waits, timeouts and deadlocks are counted'
}

# A reader keeps old versions: the distance of the two numbers says how many commits.
check_read_points() {
    local newest oldest
    sql 'INSERT INTO d.q VALUES (50, 1), (51, 1)'
    hold 'SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT'
    oldest=$(status_of oldest_read_commit)
    sql 'UPDATE d.q SET n = 3 WHERE id = 50; UPDATE d.q SET n = 3 WHERE id = 51'
    newest=$(status_of newest_commit)
    [ "$(status_of oldest_read_commit)" = "$oldest" ] && [ "$newest" -ge $((oldest + 2)) ] ||
        fail "oldest read point $oldest, newest commit $newest after two commits"
    hold COMMIT
    [ "$(status_of oldest_read_commit)" -gt "$oldest" ] || fail 'the end of the reader does not raise the oldest read point'
    say 'ok: the oldest read point'
}

start
sql 'CREATE DATABASE d; CREATE TABLE d.q (id INT PRIMARY KEY, n INT, KEY n (n)) ENGINE=ALLUVIUM;
    INSERT INTO d.q VALUES (1, 10), (2, 20), (3, 30), (4, 40)'
coproc holder { "$folder/sql" --force --batch --skip-column-names --unbuffered 2>/dev/null; }
check_skip_locked
check_nowait
check_lock_waits
check_queue
check_counters
check_read_points
"$folder/stop"
