#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the plugin and prints three commands: start of a private server, a table, stop.
#
#   all.sh [FOLDER]      FOLDER of the server (default: out/mariadb)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/paths.sh"

folder=$(realpath -m "${1:-$checkout/out/mariadb}")
plugin=$("$checkout/mariadb/build/plugin.sh")
say "built $plugin"
say 'These commands start a server, make an Alluvium table and stop the server:'
# A cache that the variables of this shell name may be another one than that of the next shell.
printf 'ALLUVIUM_CACHE=%q %q %q\n' "$cache" "$checkout/mariadb/build/start.sh" "$folder"
printf '%q -t -e "%s"\n' "$folder/sql" "CREATE OR REPLACE DATABASE demo; USE demo; \
CREATE TABLE fruit (id INT PRIMARY KEY, name VARCHAR(20)) ENGINE=ALLUVIUM; \
INSERT INTO fruit VALUES (1, 'apple'), (2, 'pear'); SELECT * FROM fruit"
printf '%q\n' "$folder/stop"
