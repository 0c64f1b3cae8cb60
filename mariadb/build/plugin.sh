#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the plugin ha_alluvium.so for the server of the cache, and prints its path.
#
# The server refuses a plugin of another patch level ("API version for STORAGE ENGINE plugin ALLUVIUM
# not supported"), so each server has its own plugin. Only changed files are compiled.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/paths.sh"

case $cache$checkout in
    *[[:space:]]*) fail "make needs paths without spaces, unlike $cache and $checkout; set ALLUVIUM_CACHE" ;;
esac
need c++ build-essential
need make build-essential
command -v cargo >/dev/null || fail 'missing: cargo; install Rust with rustup'
server=$("$checkout/mariadb/build/server.sh")
level=$(basename "$server")
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
library=$CARGO_TARGET_DIR/release/liballuvium_c.a
# Checkouts share the cache, but make compares only times, so each checkout has its own objects.
objects=$plugins/$level/objects-$(cksum <<<"$checkout" | tr ' ' -)
plugin=$plugins/$level/ha_alluvium.so

(cd "$checkout" && cargo build --quiet --locked --release -p alluvium-c) >&2
mkdir -p "$objects"
set -a
# shellcheck disable=SC1091 # A file of the cache.
. "$server/build.env"
set +a
# Also if two checkouts build at a time: each links its own plugin, and the copy is a rename.
make --silent --jobs="${CARGO_BUILD_JOBS:-$(nproc)}" -f "$checkout/mariadb/build/plugin.mk" LIBRARY="$library" OBJECTS="$objects" \
    PLUGIN="$objects/stripped/ha_alluvium.so" >&2
if ! cmp -s "$objects/stripped/ha_alluvium.so" "$plugin"; then
    cp "$objects/stripped/ha_alluvium.so" "$plugin.$$"
    mv "$plugin.$$" "$plugin"
fi
printf '%s\n' "$plugin"
