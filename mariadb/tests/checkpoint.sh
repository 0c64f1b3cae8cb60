#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks in a private server: copies of the engine's database under writers, alone and together with
# mariadb-backup, and servers on the copies. Every transfer moves an amount between two tables, so
# each copy of one state has the same sum. The rest of the binary log, applied to a restored server,
# has to give the state of the first one: so the copy's place in the binary log is right too.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

# Transfers until there is a row in `stop`. Each locks its rows in the same order of tables, and reads
# no older state, so none fails.
create_transfers() {
    sql 'DELIMITER //
        CREATE PROCEDURE d.transfers()
        BEGIN
            DECLARE from_id, to_id INT;
            SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
            WHILE NOT EXISTS (SELECT * FROM d.stop) DO
                SET from_id = FLOOR(RAND() * 20), to_id = FLOOR(RAND() * 20);
                START TRANSACTION;
                UPDATE d.i SET n = n - 1 WHERE id = from_id;
                UPDATE d.a SET n = n + 1 WHERE id = to_id;
                UPDATE d.b SET n = n - 1 WHERE id = to_id;
                INSERT INTO d.a VALUES (NULL, 1), (NULL, -1);
                COMMIT;
            END WHILE;
        END //'
}

start_writers() {
    local client
    sql 'DELETE FROM d.stop'
    writers=()
    for client in 1 2 3; do
        sql 'CALL d.transfers()' 2>"$scratch/writer$client" &
        writers+=("$!")
    done
}

stop_writers() {
    local writer
    sql 'INSERT INTO d.stop VALUES (1)'
    for writer in "${writers[@]}"; do wait "$writer" || fail "a writer has failed: $(cat "$scratch"/writer?)"; done
}

# Waits until the writers have made some commits.
progress() {
    local before
    before=$(sql 'SELECT MAX(id) FROM d.a')
    while [ "$(sql 'SELECT MAX(id) FROM d.a')" -lt $((before + 40)) ]; do sleep 0.05; done
}

sums='SELECT (SELECT SUM(n) FROM d.a) + (SELECT SUM(n) FROM d.b)'
all_sums='SELECT (SELECT SUM(n) FROM d.i) + (SELECT SUM(n) FROM d.a), (SELECT SUM(n) FROM d.i) - (SELECT SUM(n) FROM d.b)'
checksums='CHECKSUM TABLE d.i, d.a, d.b EXTENDED'

# A server with a copy of the first one's other files, and the engine's folder from a checkpoint.
check_checkpoint() {
    local position
    start_writers
    progress
    expect 'a checkpoint' "SET GLOBAL alluvium_create_checkpoint = '$scratch/one'" ''
    progress
    expect_message 'a folder that exists' "SET GLOBAL alluvium_create_checkpoint = '$scratch/one'" 'exists'
    position=$(sql "SET GLOBAL alluvium_create_checkpoint = '$scratch/two'; SHOW WARNINGS")
    [[ $position == *"checkpoint '$scratch/two', commit "*'binary log: '*'.000001'* ]] || fail "no place in the binary log: $position"
    say 'ok: a checkpoint tells its place in the binary log'
    stop_writers
    "$folder/stop"
    mv "$folder/data/#alluvium" "$scratch/original"
    local copy
    for copy in one two; do
        cp -a "$scratch/$copy" "$folder/data/#alluvium"
        start "${options[@]}"
        expect "the sums of checkpoint $copy" "$sums" 0
        expect "the tables of checkpoint $copy" 'CHECK TABLE d.a, d.b' $'d.a\tcheck\tstatus\tOK\nd.b\tcheck\tstatus\tOK'
        "$folder/stop"
        rm -rf "$folder/data/#alluvium"
    done
    mv "$scratch/original" "$folder/data/#alluvium"
    start "${options[@]}"
}

backup() { "$server/usr/bin/mariadb-backup" --defaults-file="$folder/my.cnf" "$@" >"$scratch/backup.log" 2>&1 ||
    fail "mariadb-backup $1 fails: $(tail -n 5 "$scratch/backup.log")"; }

restore() { # backup, checkpoint
    backup --prepare --target-dir="$1"
    mkdir -p "$scratch/restored"
    "$server/usr/bin/mariadb-backup" --copy-back --target-dir="$1" --datadir="$scratch/restored/data" >"$scratch/backup.log" 2>&1 ||
        fail "mariadb-backup --copy-back fails: $(tail -n 5 "$scratch/backup.log")"
    cp -a "$2" "$scratch/restored/data/#alluvium"
}

# The recipe of docs/guide/mariadb.md.
check_backup() {
    local file position rest original=$folder
    start_writers
    progress
    expect 'the target of the next backup' "SET GLOBAL alluvium_backup_checkpoint = '$scratch/backup-alluvium'" ''
    backup --backup --target-dir="$scratch/backup"
    progress
    stop_writers
    expect 'the target holds for one backup' 'SELECT @@alluvium_backup_checkpoint' ''
    restore "$scratch/backup" "$scratch/backup-alluvium"
    file=$(cut -f1 "$scratch/backup-alluvium/binlog_position")
    position=$(cut -f2 "$scratch/backup-alluvium/binlog_position")
    [ "$(cut -f1,2 "$scratch/backup/xtrabackup_binlog_info")" = "$file"$'\t'"$position" ] ||
        fail 'the two copies are from different places of the binary log'
    rest=$(sql "$checksums")
    folder=$scratch/restored
    start --skip-log-bin --server-id=2
    expect 'both engines have one state' "$all_sums" $'0\t0'
    "$server/usr/bin/mariadb-binlog" --start-position="$position" "$original/data/$file" | "$folder/sql" ||
        fail 'the rest of the binary log does not apply'
    expect 'the rest of the binary log leads to the state of the server' "$checksums" "$rest"
    "$folder/stop"
    folder=$original
}

# A device with room for nothing. Only root can make one.
full_device() {
    mkdir "$full"
    mount -t tmpfs -o size=64k tmpfs "$full" 2>/dev/null || return 1
    trap 'umount "$full"; finish' EXIT
}

check_full_device() {
    full_device || { say 'not tried: a full device needs the right to mount one' && return; }
    expect_message 'a full device' "SET GLOBAL alluvium_create_checkpoint = '$full/x'" 'space'
    [ -z "$(ls -A "$full")" ] || fail "a failed checkpoint leaves $(ls -A "$full")"
    expect 'the server goes on' "INSERT INTO d.a VALUES (NULL, 0); SELECT COUNT(*) FROM d.b" 20
}

check_refusals() {
    ln -s "$folder/data" "$scratch/link"
    expect_message 'a relative path' "SET GLOBAL alluvium_create_checkpoint = 'x'" 'not an absolute path'
    expect_message 'a path within the data folder' "SET GLOBAL alluvium_create_checkpoint = '$folder/data/x'" "within the server's data folder"
    expect_message 'a link into the data folder' "SET GLOBAL alluvium_create_checkpoint = '$scratch/link/x'" "within the server's data folder"
    expect 'no target' "SET GLOBAL alluvium_backup_checkpoint = DEFAULT; SET GLOBAL alluvium_create_checkpoint = DEFAULT;
        SET GLOBAL alluvium_create_checkpoint = ''; SELECT @@alluvium_backup_checkpoint" ''
    expect_message 'a folder without a parent' "SET GLOBAL alluvium_create_checkpoint = '$scratch/no/x'" 'parent'
    expect_message 'the same for a backup' "SET GLOBAL alluvium_backup_checkpoint = '$scratch'" 'exists'
}

# mariadb-backup does not notice this.
check_failed_copy() {
    sql "SET GLOBAL alluvium_backup_checkpoint = '$scratch/taken'"
    mkdir "$scratch/taken"
    backup --backup --target-dir="$scratch/failed"
    expect_log 'a copy that fails is in the log' "the copy '$scratch/taken' failed"
}

# A lock of this connection does not hinder its checkpoint; a lock of another one ends the wait.
check_locks() {
    expect 'a checkpoint under FLUSH TABLES WITH READ LOCK' \
        "FLUSH TABLES WITH READ LOCK; SET GLOBAL alluvium_create_checkpoint = '$scratch/three'; UNLOCK TABLES" ''
    expect 'a checkpoint in BACKUP STAGE BLOCK_COMMIT' \
        "BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; SET GLOBAL alluvium_create_checkpoint = '$scratch/four'; BACKUP STAGE END" ''
    expect 'a checkpoint within a transaction has no uncommitted row' \
        "BEGIN; INSERT INTO d.a VALUES (NULL, 5); SET GLOBAL alluvium_create_checkpoint = '$scratch/five'; ROLLBACK" ''
    expect_log 'a backup without the engine is warned of' 'a backup runs without alluvium_backup_checkpoint'
}

full=$scratch/full
# No crash here, so commits need not wait for the device.
options=(--log-bin --server-id=1 --lock-wait-timeout=20 --innodb-flush-log-at-trx-commit=0 --alluvium-flush-log-at-trx-commit=0)
use_server
start "${options[@]}"
sql 'CREATE DATABASE d; CREATE TABLE d.stop (id INT) ENGINE=InnoDB; CREATE TABLE d.i (id INT PRIMARY KEY, n INT) ENGINE=InnoDB;
    CREATE TABLE d.a (id INT AUTO_INCREMENT PRIMARY KEY, n INT, KEY (n)) ENGINE=ALLUVIUM;
    CREATE TABLE d.b (id INT PRIMARY KEY, n INT) ENGINE=ALLUVIUM;
    INSERT INTO d.i SELECT seq, 0 FROM d.seq_0_to_19; INSERT INTO d.b SELECT seq, 0 FROM d.seq_0_to_19;
    SET sql_mode = NO_AUTO_VALUE_ON_ZERO; INSERT INTO d.a SELECT seq, 0 FROM d.seq_0_to_19'
create_transfers
check_checkpoint
check_backup
check_refusals
check_failed_copy
check_locks
check_full_device
"$folder/stop"
