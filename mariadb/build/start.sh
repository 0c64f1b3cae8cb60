#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Starts a private MariaDB server with the plugin, and prints the commands for it.
#
#   start.sh FOLDER [OPTION...]
#
# FOLDER keeps data, socket and log; the options go to the server. A second start of a folder finds
# its data again. `make mariadb` builds server and plugin. Only the user who started the server can
# log in, through the socket; other accounts can use the port.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/paths.sh"

start_seconds=60
ports_tried=5

check_folder() {
    # InnoDB splits paths at colons; the others would end a quoted value of an option file.
    case $folder in
        *[:\"\\]* | *$'\n'*) fail "a folder without colon, quote, backslash and line break is needed, not $folder" ;;
    esac
    mkdir -p "$folder"
    chmod 700 "$folder"
    if server_process "$folder" >/dev/null; then
        fail "the server of $folder is running; $folder/stop stops it"
    fi
}

create_data() {
    [ ! -d "$folder/data" ] || return 0
    rm -rf "$folder/data.new"
    "$server/usr/bin/mariadb-install-db" --no-defaults --user="$user" --basedir="$server/usr" \
        --datadir="$folder/data.new" --auth-root-authentication-method=socket --auth-root-socket-user="$user" \
        --skip-test-db >"$folder/install.log" 2>&1 || {
        tail -n 20 "$folder/install.log" >&2
        fail "mariadb-install-db cannot create the data folder; its last lines are above"
    }
    mv "$folder/data.new" "$folder/data"
}

# All plugins of the server, because it has only one plugin folder.
link_plugins() {
    local file
    mkdir -p "$folder/plugins"
    for file in "$server"/usr/lib/mysql/plugin/*.so "$plugin"; do ln -sfn "$file" "$folder/plugins/"; done
}

# The path of a socket has 107 bytes at most.
choose_socket() {
    socket=$folder/socket
    [ "${#socket}" -gt 100 ] || return 0
    socket=$(mktemp -d /tmp/alluvium-socket.XXXXXX)/socket
}

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        # Connects, which fails if no server listens.
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    printf '%s\n' "$port"
}

write_options() { # port
    cat >"$folder/my.cnf" <<CNF
[client]
socket = "$socket"
user = "$user"

[mariadbd]
user = "$user"
basedir = "$server/usr"
lc-messages-dir = "$server/usr/share/mysql"
plugin-dir = "$folder/plugins"
datadir = "$folder/data"
socket = "$socket"
pid-file = "$folder/pid"
bind-address = 127.0.0.1
port = $1

!include $checkout/mariadb/cnf/alluvium.cnf
CNF
}

# Writes the commands `sql` and `stop`.
write_commands() {
    local libraries
    printf -v libraries '%q' "$LD_LIBRARY_PATH"
    {
        printf '#!/usr/bin/env bash\n# Client of the private server.\n'
        printf 'LD_LIBRARY_PATH=%s exec %q --defaults-file=%q "$@"\n' "$libraries" "$server/usr/bin/mariadb" "$folder/my.cnf"
    } >"$folder/sql"
    {
        printf '#!/usr/bin/env bash\n# Stops the private server and waits for its end.\n'
        printf '. %q\nfolder=%q\n' "$checkout/mariadb/build/paths.sh" "$folder"
        cat <<'STOP'
pid=$(server_process "$folder") || fail "the server of $folder does not run"
kill "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
STOP
    } >"$folder/stop"
    chmod +x "$folder/sql" "$folder/stop"
}

# Waits until the server answers; fails if its process ends first.
wait_for_server() { # process id
    local until=$((SECONDS + start_seconds))
    while [ "$SECONDS" -lt "$until" ]; do
        kill -0 "$1" 2>/dev/null || return 1
        # A process that holds the socket of an earlier server cannot answer with this pid file.
        if [ -s "$folder/pid" ] && "$folder/sql" -e 'DO 0' 2>/dev/null; then return; fi
        sleep 0.1
    done
    kill "$1"
    say "no answer within $start_seconds s"
    return 1
}

# Starts the server on a free port, and on another one if that was taken meanwhile.
start_server() {
    local try pid
    for ((try = 0; try < ports_tried; try++)); do
        port=$(free_port)
        write_options "$port"
        rm -f "$folder/pid"
        # In a session of its own, so that Ctrl-C in this terminal does not stop it.
        setsid "$server/usr/sbin/mariadbd" --defaults-file="$folder/my.cnf" "$@" >"$folder/log" 2>&1 </dev/null &
        pid=$!
        if wait_for_server "$pid"; then return; fi
        grep -q 'Bind on TCP/IP port' "$folder/log" || break
    done
    tail -n 20 "$folder/log" >&2
    fail "the server does not start; the last lines of $folder/log are above"
}

[ "$#" -ge 1 ] || {
    printf 'usage: start.sh FOLDER [OPTION OF THE SERVER...]\n' >&2
    exit 2
}
folder=$(realpath -m "$1")
shift
use_server
user=$(id -un)

check_folder
create_data
link_plugins
choose_socket
write_commands
start_server "$@"
printf 'MariaDB %s runs with Alluvium, socket %s, port %s\n' "$(basename "$server")" "$socket" "$port"
printf 'connect: %q\n' "$folder/sql"
printf 'stop:    %q\n' "$folder/stop"
