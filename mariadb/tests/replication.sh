#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks parallel replication between two private servers: transactions that the replica runs in
# another order than the primary wait for each other across the row locks of the engine and the
# commit order of the server. The engine reports its waits, so that the server ends such a circle.
# Without the reports a worker waits for the lock timeout, which is an hour here.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

transactions=20
rows=200
# Bound for a replica that hangs.
seconds=60
replica=$scratch/replica

on_replica() { "$replica/sql" --batch --skip-column-names -e "$1"; }

start_servers() {
    start --server-id=1 --log-bin="$folder/log-bin" --gtid-strict-mode=1
    "$checkout/mariadb/build/start.sh" "$replica" --server-id=2 --gtid-strict-mode=1 --slave-parallel-threads=4 \
        --slave-parallel-mode=optimistic --alluvium-lock-wait-timeout=3600 --log-slave-updates --log-bin="$replica/log-bin" >/dev/null
    local port
    port=$(sed -n 's/^port = //p' "$folder/my.cnf")
    # A password that lasts as long as the two servers.
    sql "CREATE USER copy@'127.0.0.1' IDENTIFIED BY 'copy'; GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1'"
    on_replica "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = $port, MASTER_USER = 'copy',
        MASTER_PASSWORD = 'copy', MASTER_USE_GTID = slave_pos"
}

# Each transaction writes many rows of its own and then the row that all share, and every second one
# only the shared row. So on the replica the short ones lock that row first.
write_on_primary() {
    local i
    sql 'CREATE DATABASE r; CREATE TABLE r.t (id INT PRIMARY KEY, n INT) ENGINE=ALLUVIUM; INSERT INTO r.t VALUES (0, 0)'
    for ((i = 1; i <= transactions; i++)); do
        printf 'BEGIN;\n'
        [ $((i % 2)) = 0 ] || printf 'INSERT INTO r.t SELECT seq, %d FROM r.seq_%d_to_%d;\n' "$i" $((i * rows)) $((i * rows + rows - 1))
        printf 'UPDATE r.t SET n = n + 1 WHERE id = 0;\nCOMMIT;\n'
    done | "$folder/sql"
}

replicate() {
    local position
    position=$(sql 'SELECT @@gtid_binlog_pos')
    on_replica 'START SLAVE'
    [ "$(on_replica "SELECT MASTER_GTID_WAIT('$position', $seconds)")" = 0 ] ||
        fail "the replica has not applied $position within $seconds s: $(on_replica 'SHOW SLAVE STATUS\G SHOW ENGINE ALLUVIUM STATUS\G')"
    say 'ok: the replica has applied all transactions'
}

check_retries() {
    local retries
    retries=$(on_replica "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Slave_retried_transactions'")
    [ "$retries" -gt 0 ] || fail 'no transaction of the replica was in the way of an earlier one: the test tests nothing'
    say "ok: the replica has run $retries transactions again"
}

start_servers
write_on_primary
replicate
check_retries
checksum='SELECT COUNT(*), SUM(id), SUM(n), (SELECT n FROM r.t WHERE id = 0) FROM r.t'
[ "$(sql "$checksum")" = "$(on_replica "$checksum")" ] || fail 'primary and replica have different rows'
say 'ok: primary and replica have the same rows'
"$replica/stop"
stop
