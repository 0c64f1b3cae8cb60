#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds and runs the unit tests of the codecs.
#
#   run.sh [SERVER]       SERVER: folder that mariadb/headers.sh made (default: the cache folder)
#
# PAIRS (20,000) and SEED (fresh) are those of the test of collations; SANITIZE=no leaves out the address sanitizer.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../src
server=${1:-${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/alluvium}/mariadb}
[ -e "$server/build.env" ] || { printf 'no server in %s: call headers.sh first\n' "$server" >&2 && exit 2; }
# shellcheck disable=SC1091
. "$server/build.env"

work=$(mktemp -d "${TMPDIR:-/tmp}/alluvium-unit.XXXXXX")
trap 'rm -rf "$work"' EXIT
seed=${SEED:-$(date +%s)}
codecs=("$source"/{bytes,text_image,key_codec,row_codec,dictionary_rows}.cc)
warnings=(-std=gnu++17 -Wall -Wextra -Werror)
sanitizers=(-fsanitize=address,undefined -fno-sanitize-recover=all)
[ "${SANITIZE:-yes}" = yes ] || sanitizers=()

# 1. The codecs alone, without the server.
g++ "${warnings[@]}" -Wconversion -O1 -g "${sanitizers[@]}" -I"$source" "${codecs[@]}" "$here"/{codecs,keys,rows,dictionary}.cc -o "$work/codecs"
"$work/codecs" "$seed"

# 2. All collations of the server. Its library is linked for the tables and comparisons.
# shellcheck disable=SC2086
g++ "${warnings[@]}" ${MARIADB_CXXFLAGS/-DMYSQL_DYNAMIC_PLUGIN/} $MARIADB_INCLUDES -I"$source" "${codecs[@]}" "$source/server_collation.cc" \
    "$here/collations.cc" "$MARIADB_ROOT/usr/lib/$(gcc -dumpmachine)/libmariadbd.a" -lpthread -lm -ldl -o "$work/collations"
LD_LIBRARY_PATH=$MARIADB_LIBRARIES "$work/collations" "${PAIRS:-20000}" "$seed"
