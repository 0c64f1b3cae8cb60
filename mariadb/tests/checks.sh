# SPDX-License-Identifier: GPL-2.0-only
# Functions of the tests that use a private server. Sourced by them, not run.
#
# `scratch` is a folder that is removed at the end, with the servers in it; `folder` is that of the
# server under test.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../build/paths.sh"

start() { "$checkout/mariadb/build/start.sh" "$folder" "$@" >/dev/null; }

stop() { "$folder/stop"; }

restart() {
    stop
    start "$@"
}

# Ends the server as a crash does.
kill_server() {
    local pid
    pid=$(server_process "$folder") || fail 'the server has ended before the kill'
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}

sql() { "$folder/sql" --batch --skip-column-names -e "$1"; }

# Fails unless the statements print these lines.
expect() { # name, statements, lines
    local found
    found=$(sql "$2") || fail "$1: the statement failed: $2"
    [ "$found" = "$3" ] || fail "$1: expected
$3
but found
$found
after: $2"
    say "ok: $1"
}

# Fails unless the statement fails with this number, and with this text if there is one.
expect_error() { # name, statement, number, text
    local found
    if found=$(sql "$2" 2>&1); then fail "$1: no error from: $2"; fi
    [[ $found == *"ERROR $3 "*"${4:-}"* ]] || fail "$1: expected error $3 ${4:-}, found: ${found:0:1000}"
    say "ok: $1"
}

# Fails unless the statement fails with a message that has this text.
expect_message() { # name, statement, text
    local found
    if found=$(sql "$2" 2>&1); then fail "$1: no error from: $2"; fi
    [[ $found == *"$3"* ]] || fail "$1: expected an error with '$3', found: $found"
    say "ok: $1"
}

# Fails unless the server's log has this text.
expect_log() { # name, text
    grep -qF -- "$2" "$folder/log" || fail "$1: the log lacks '$2'; its last lines:
$(tail -n 20 "$folder/log")"
    say "ok: $1"
}

# Runs statements in the background; `wait "$session"` waits for their end.
in_background() { # file of the output, statements
    sql "$2" >"$1" 2>&1 &
    session=$!
}

# Waits until the query prints this. Only a test that fails waits to the end.
until_query() { # query, output
    local until=$((SECONDS + 60))
    while [ "$(sql "$1")" != "$2" ]; do
        [ "$SECONDS" -lt "$until" ] || fail "'$1' did not become '$2' within 60 s: $(sql "$1")"
        sleep 0.05
    done
}

# Ends the servers that a failed check has left.
finish() {
    local left pid
    for left in "$scratch"/*/; do
        if pid=$(server_process "${left%/}"); then kill -KILL "$pid"; fi
    done
    rm -rf "$scratch"
}

scratch=$(mktemp -d)
trap finish EXIT
# shellcheck disable=SC2034 # A variable of the tests.
folder=$scratch/server
