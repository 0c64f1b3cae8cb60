#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks queries whose answers once were wrong: each has to give the same rows through an index of an
# Alluvium table and without it. `mariadb-check statements` found them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/checks.sh"

# Fails unless the query gives these lines without an index and with it. `HINT` in the query is where
# the hint stands.
expect_by_index() { # name, index, query, lines
    expect "$1, without the index" "USE answers; ${3/HINT/IGNORE INDEX ($2)}" "$4"
    expect "$1, by the index" "USE answers; ${3/HINT/FORCE INDEX ($2)}" "$4"
}

# The server's range for LIKE begins with a tab in each place of a CHAR that the pattern leaves open. With
# NO PAD that is above a text that ends in characters without weight.
check_like_without_weights() {
    sql "CREATE TABLE answers.weights (id INT PRIMARY KEY,
            c CHAR(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_nopad_ci, u CHAR(3) CHARACTER SET ucs2 COLLATE ucs2_unicode_nopad_ci,
            KEY c (c), KEY ic (id, c), KEY u (u)) ENGINE=ALLUVIUM;
        INSERT INTO answers.weights VALUES (1, 'a', 'a'), (2, 'ab', 'ab'), (3, 'a\\0\\0', 'a\\0\\0'), (4, 'ab\\0', 'ab\\0'),
            (5, 'a\\t', 'a\\t'), (6, 'abc', 'abc'), (7, '\\0\\0a', '\\0\\0a'), (8, 'b', 'b')"
    expect_by_index 'LIKE of a CHAR' c "SELECT GROUP_CONCAT(id ORDER BY id) FROM weights HINT WHERE c LIKE 'a%'" 1,2,3,4,5,6
    expect_by_index 'LIKE that ends in a place' c "SELECT GROUP_CONCAT(id ORDER BY id) FROM weights HINT WHERE c LIKE 'ab_'" 4,6
    expect_by_index 'LIKE of a second column' ic "SELECT GROUP_CONCAT(id ORDER BY id) FROM weights HINT WHERE id = 4 AND c LIKE 'ab%'" 4
    expect_by_index 'LIKE of a CHAR of two bytes' u "SELECT GROUP_CONCAT(id ORDER BY id) FROM weights HINT WHERE u LIKE 'a%'" 1,2,3,4,5,6
}

# A new index has the values that the rows store, also if this connection would compute others.
check_index_of_a_stored_column() {
    sql "CREATE TABLE answers.hours (id INT PRIMARY KEY, ts TIMESTAMP, h INT AS (HOUR(ts)) STORED) ENGINE=ALLUVIUM;
        SET time_zone = '+00:00'; INSERT INTO answers.hours (id, ts) VALUES (1, '2024-01-01 23:00')"
    sql "SET time_zone = '+05:00'; ALTER TABLE answers.hours ADD INDEX (h)"
    expect_by_index 'a stored generated column' h 'SELECT id FROM hours HINT WHERE h = 23' 1
    expect 'its entries are those of the row' 'DELETE FROM answers.hours; CHECK TABLE answers.hours' $'answers.hours\tcheck\tstatus\tOK'
}

# An expression of a column that a statement does not use may fail.
check_failing_virtual_column() {
    sql "CREATE TABLE answers.failing (id INT PRIMARY KEY, a INT, b INT, x CHAR(5)) ENGINE=ALLUVIUM;
        INSERT INTO answers.failing VALUES (1, 1000, 2, 'b'), (2, 3, 1, 'a');
        ALTER TABLE answers.failing ADD v DOUBLE AS (EXP(a)) VIRTUAL"
    expect 'rows are read by position beside it' "UPDATE answers.failing SET x = 'z' ORDER BY x; SELECT GROUP_CONCAT(x) FROM answers.failing" z,z
    expect 'other columns get an index' 'ALTER TABLE answers.failing ADD INDEX b (b); SELECT id FROM answers.failing FORCE INDEX (b) WHERE b = 2' 1
    expect_error 'it gets no index' 'ALTER TABLE answers.failing ADD INDEX (v)' 1690
}

start
sql 'CREATE DATABASE answers CHARACTER SET utf8mb4'
check_like_without_weights
check_index_of_a_stored_column
check_failing_virtual_column
stop
