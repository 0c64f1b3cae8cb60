#!/usr/bin/env bash
# Steps of `make test`.
#
#   .ci/steps.sh              all steps
#   .ci/steps.sh fmt clippy   only these steps, one after the other
#
# Cheap checks and builds come first. The other steps only run programs, and most of them wait more
# than they compute, so they run side by side in lanes: their output appears when they end. A failing
# step is named and ends the run. No step is skipped: if a tool is missing, the step installs it, or
# fails and names it.
#
# All cargo commands share one target directory outside the checkout, so a fresh clone reuses the
# results of earlier runs on the same machine. The same cache holds the libraries of RocksDB and
# WiredTiger: see `cargo xtask rocksdb`.
set -euo pipefail
cd "$(dirname "$0")/.."

first_steps=(system fmt tidy formats header licenses libraries clippy docs build plugin)
# Steps of one lane run one after the other.
lanes=(laboratory 'test sim' 'smoke kill servers' browser mariadb)
last_steps=(leftovers)
cache=${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/alluvium}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}

# All on-disk engines that a build can embed. WiredTiger is apart: it nearly stalls if its eviction
# has only a few pages to choose from.
embedded_engines=(alluvium fjall leveldb lmdb redb rocksdb sqlite)
roomy_engines=(wiredtiger)
# Engines that are servers.
servers=(mariadb-alluvium mariadb-innodb mariadb-rocksdb postgresql)
# One set of features for all steps: a second set would compile most of the workspace again.
all_engines=(--workspace --features "$(printf 'rumbench/%s,' leveldb mariadb postgresql redb rocksdb wiredtiger)")
# Duration of each test with random input, in seconds: a minute or more for all of them.
export ALLUVIUM_FUZZ_SECONDS=${ALLUVIUM_FUZZ_SECONDS:-4}
# Versions of the browser driver and of the accessibility checker.
playwright=1.64.1
axe=4.14.1
# Kills and power losses of each engine; `make soak` sets more.
kills=${ALLUVIUM_KILLS:-3}
# Duration of the simulation of new seeds, in seconds.
sim_seconds=20

missing() {
    printf 'missing: %s\n' "$1" >&2
    return 1
}

found() { compgen -G "$1" >/dev/null; }

# The RocksDB crate uses bindgen, which needs libclang and its compiler headers.
have_libclang() {
    { [ -n "${LIBCLANG_PATH:-}" ] || found '/usr/lib/llvm*/lib/libclang*.so*' || found '/usr/lib/*/libclang*.so*' ||
        found '/usr/lib64/libclang*.so*' || found '/usr/lib/libclang*.so*'; } &&
        { found '/usr/lib/llvm*/lib/clang/*/include/stddef.h' || found '/usr/lib/clang/*/include/stddef.h' ||
            [ -n "${LIBCLANG_PATH:-}" ]; }
}

have_compilers() { command -v cc >/dev/null && command -v c++ >/dev/null; }

# WiredTiger is built with CMake and Ninja from a source package that pip fetches.
have_builders() {
    command -v cmake >/dev/null && command -v ninja >/dev/null && python3 -m pip --version >/dev/null 2>&1
}

have_leveldb() { printf '#include <leveldb/c.h>\n' | cc -E - >/dev/null 2>&1; }

debian_packages=(build-essential libclang-dev cmake libleveldb-dev ninja-build)

# Runs apt-get, and waits up to five minutes for other package managers, which hold its locks. If an
# earlier one was ended while it installed, completes its work first.
apt_get() {
    local as_root=() output completed= until=$((SECONDS + ${ALLUVIUM_APT_SECONDS:-300}))
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    while ! output=$("${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" 2>&1); do
        printf '%s\n' "$output" >&2
        case $output in
            # apt-get names the process that holds the lock.
            *'Could not get lock'*) ;;
            *'dpkg was interrupted'*)
                [ -z "$completed" ] || return 1
                completed=yes
                "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >&2 || return 1
                continue
                ;;
            *) return 1 ;;
        esac
        if [ "$SECONDS" -ge "$until" ]; then
            missing 'the locks of apt-get: wait for the process that it names above, or end it'
            return 1
        fi
        sleep 5
    done
    # Warnings, such as a package list that could not be fetched.
    [ -z "$output" ] || printf '%s\n' "$output" >&2
}

install_debian_packages() {
    command -v apt-get >/dev/null || missing "apt-get, to install $*" || return 1
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null ||
            missing "root or password-less sudo, to run: apt-get install $*" || return 1
    fi
    apt_get update && apt_get install -y --no-install-recommends "$@" ||
        missing "the packages $*: apt-get failed as above"
}

step_system() {
    command -v cargo >/dev/null || missing 'cargo: install Rust with rustup (https://rustup.rs)'
    command -v git >/dev/null || missing 'git'
    # With rustup, the first call of cargo installs the toolchain of rust-toolchain.toml.
    cargo --version
    cargo fmt --version >/dev/null || missing 'rustfmt: rustup component add rustfmt'
    cargo clippy --version >/dev/null || missing 'clippy: rustup component add clippy'
    # Only if pip is missing: a Python that has pip may not come from Debian.
    python3 -m pip --version >/dev/null 2>&1 || debian_packages+=(python3-pip)
    if ! { have_compilers && have_libclang && have_builders && have_leveldb; } && command -v apt-get >/dev/null; then
        install_debian_packages "${debian_packages[@]}"
    fi
    have_compilers || missing 'C and C++ compilers as cc and c++ (LMDB, SQLite, zstd and RocksDB are built from source)'
    have_libclang || missing 'libclang with its headers (bindgen of the RocksDB crate), or LIBCLANG_PATH naming its folder'
    have_builders || missing 'cmake, ninja and python3 with pip (WiredTiger is built from source)'
    have_leveldb || missing 'the LevelDB library with its headers (Debian: libleveldb-dev)'
    .ci/peers.sh
    printf 'target directory: %s\n' "$CARGO_TARGET_DIR"
}

step_fmt() { cargo fmt --all --check; }

step_tidy() {
    cargo xtask tidy
    cargo xtask claims --check
    cargo xtask ledger --check
    cargo xtask history --check
    # `make planted` takes too long for each run; this only checks that its patches still apply.
    git apply --check crates/*/tests/planted/mistakes.patch crates/alluvium-sim/planted/mistakes.patch
}

step_formats() { cargo xtask formats; }

step_header() { cargo xtask header --check; }

step_licenses() { cargo xtask licenses; }

# Builds the libraries of the cache that are missing.
step_libraries() {
    cargo xtask wiredtiger
    cargo xtask rocksdb
}

# Sets the variables that make cargo link these libraries.
link_libraries() {
    local lines
    [ -z "${ROCKSDB_LIB_DIR:-}" ] || [ -z "${WIREDTIGER_DIR:-}" ] || return 0
    lines=$(step_libraries)
    eval "$lines"
}

# The build of a user, then the build of all other steps.
step_clippy() {
    cargo clippy --locked --workspace --all-targets -- -D warnings
    link_libraries
    cargo clippy --locked "${all_engines[@]}" --all-targets -- -D warnings
    cargo clippy --locked -p alluvium-sim --features simulation --all-targets -- -D warnings
}

step_docs() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --workspace; }

# Builds all programs, libraries and tests. The other steps find them built.
step_build() {
    link_libraries
    cargo build --locked "${all_engines[@]}" --lib --bins --tests
    test_simulated --lib --bins --test simulator --no-run
}

# Runs tests of the common build.
run_tests() {
    link_libraries
    ALLUVIUM_BUILT=$CARGO_TARGET_DIR/debug cargo test --locked "${all_engines[@]}" "$@"
}

step_test() {
    run_tests --lib --bins --test it --test loom
    run_tests --doc
}

# As root, PostgreSQL runs as another user, and its tools write to /dev/null. In some containers only
# root may write there.
open_dev_null() {
    [ -w /dev/null ] && [ "$(stat -c %a /dev/null)" = 666 ] || chmod 666 /dev/null || missing 'a /dev/null that all users may write'
}

step_laboratory() {
    open_dev_null
    # More tests at a time than processors: they wait for servers.
    run_tests --test laboratory --test adapters -- --test-threads=8
}

# Only these tests enable the feature: no other step may build the engine with it.
test_simulated() { cargo test --locked -p alluvium -p alluvium-sim --features simulation "$@"; }

step_sim() {
    test_simulated --lib simulation::
    test_simulated --bins --test simulator
    "$CARGO_TARGET_DIR/debug/alluvium-sim" --seconds "$sim_seconds"
}

# `type -P` finds only files, so it does not find this function.
chromium() { type -P chromium || type -P chromium-browser || type -P google-chrome; }

# The test script is in the repository. The browser driver is fetched here and is not a dependency
# of any crate.
step_browser() {
    local driver=$cache/browser pages=$CARGO_TARGET_DIR/report-pages
    { command -v node && command -v npm; } >/dev/null || install_debian_packages nodejs npm ||
        missing 'Node.js with npm (Debian: apt-get install nodejs npm)'
    chromium >/dev/null || install_debian_packages chromium || missing 'Chromium (Debian: apt-get install chromium)'
    npm install --silent --no-audit --no-fund --no-package-lock --prefix "$driver" \
        "playwright-core@$playwright" "axe-core@$axe"
    rm -rf "$pages"
    export RUMBENCH_TEST_PAGES=$pages
    run_tests --quiet --bin rumbench -- report::html::tests profile::flame
    PLAYWRIGHT_FOLDER=$driver node crates/rumbench/tests/browser/report.mjs \
        "$(chromium)" "$pages" "$CARGO_TARGET_DIR/report-screenshots"
    printf 'screenshots and PDFs: %s\n' "$CARGO_TARGET_DIR/report-screenshots"
}

in_scratch() {
    local scratch status=0
    scratch=$(mktemp -d)
    "$1" "$scratch" || status=$?
    rm -rf "$scratch"
    return "$status"
}

# Runs the laboratory of the common build.
rumbench() { "$CARGO_TARGET_DIR/debug/rumbench" "$@"; }

written() { [ -s "$1" ] || missing "$1, which the laboratory should have written"; }

# smoke WORKLOAD FOLDER [SETTING...] makes a small run on all engines of a step, with the results in
# FOLDER.
smoke() {
    local workload=$1 out=$2 engine engines=(--engine null) setting settings=(--set "cache_bytes=$smoke_cache_bytes")
    shift 2
    for engine in "${smoke_engines[@]}"; do engines+=(--engine "$engine"); done
    for setting in "$@"; do settings+=(--set "$setting"); done
    rumbench run "$workload" "${engines[@]}" "${settings[@]}" --no-store --out "$out" && written "$out/result.json"
}

# Smoke runs of the workloads that servers support too.
smoke_tables() {
    smoke linkbench "$1/smoke" nodes=1000 numbers=2011 nlinks_max=20000 clients=2 operations=1000 steps=1 &&
        rumbench report "$1/smoke" >/dev/null &&
        smoke insert-benchmark "$1/inserts" rows=2000 clients=2 operations=200 &&
        smoke large-values "$1/large" rows=500 value_max=20000 clients=2 operations=200 &&
        smoke oltp-range "$1/oltp" rows=500 tables=2 clients=2 operations=20 &&
        smoke ycsb-a "$1/preset" rows=1000 requests=1000 clients=2 &&
        smoke crates/rumbench-core/tests/every_operation.toml "$1/own" scale=0.02 requests=1000
}

embedded_smoke() {
    smoke_engines=("${embedded_engines[@]}")
    smoke_cache_bytes=16777216
    smoke_all "$1/small" || return
    smoke_engines=("${roomy_engines[@]}")
    smoke_cache_bytes=268435456
    smoke_all "$1/large"
}

smoke_all() {
    smoke_tables "$1" && smoke kv-sequence "$1/sequence" keys=2000 load_rows=100 clients=2 operations=200
}

step_smoke() { in_scratch embedded_smoke; }

kill_engines() {
    local engine
    for engine in "${embedded_engines[@]}" "${roomy_engines[@]}"; do
        rumbench durability --engine "$engine" --kills "$kills" --out "$1/$engine" || return
        rumbench durability --engine "$engine" --kills "$kills" --power-loss --durability sync --out "$1/$engine-power" || return
    done
}

step_kill() { in_scratch kill_engines; }

servers_smoke() {
    smoke_tables "$1" && {
        grep -Eq '"server": ?[0-9]' "$1/smoke/result.json" ||
            missing "the CPU of the servers' processes in the result"
    }
}

# Prints run folders of servers that outlived their laboratory, in this namespace of process ids.
# These are existing folders, and folders in the command line of a process.
left_behind() {
    local space name laboratory
    space=$(readlink /proc/self/ns/pid | tr -dc 0-9)
    {
        cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' || true
        printf '%s\n' "${TMPDIR:-/tmp}"/rumbench-*
    } | { grep -Eo "rumbench-[0-9]+-[0-9]+-$space-[0-9]+" || true; } | sort -u | while read -r name; do
        laboratory=${name#rumbench-}
        # Another laboratory may be running on this machine.
        [ -d "/proc/${laboratory%%-*}" ] || printf '%s\n' "$name"
    done
}

step_servers() {
    open_dev_null
    smoke_engines=("${servers[@]}")
    smoke_cache_bytes=67108864
    in_scratch servers_smoke
}

# Builds the plugin for MariaDB and runs the unit tests of its codecs.
step_plugin() {
    local plugin server
    plugin=$(mariadb/build/plugin.sh)
    printf '%s\n' "$plugin"
    if [ -e mariadb/tests/unit/run.sh ]; then
        server=$(mariadb/build/server.sh)
        # The pairs of texts for each collation; all of them take two minutes.
        PAIRS=2000 mariadb/tests/unit/run.sh "$server"
    fi
}

# The long suites and the million statements belong to `make soak`. The seed is one with which InnoDB
# itself gives no answer that depends on the plan.
step_mariadb() {
    local check=$CARGO_TARGET_DIR/debug/mariadb-check
    mariadb/tests/smoke.sh
    mariadb/tests/dictionary.sh
    mariadb/tests/checkpoint.sh
    mariadb/tests/expiry.sh
    mariadb/tests/locks.sh
    mariadb/tests/indexes.sh
    mariadb/tests/answers.sh
    mariadb/tests/sequences.sh
    mariadb/tests/transactions.sh
    mariadb/tests/bad_input.sh
    mariadb/tests/replication.sh
    "$check" statements --seed 2000
    "$check" clients
    "$check" kills --rounds 10
    mariadb/tests/suites/run.sh short
}

# The servers of all steps must leave no process and no socket.
step_leftovers() {
    local left
    left=$(left_behind)
    [ -z "$left" ] || missing "a clean exit of the servers of $left"
}

# Folder with a file for each step that has ended: its seconds and its processor time.
ended=$(mktemp -d)
trap 'rm -rf "$ended"' EXIT

# Prints the line of each step in the table of CONTRIBUTING.md, which has the budgets. A step over its
# budget is marked but does not fail, because machines differ.
show_times() {
    local name seconds cpu proves budget mark
    printf '\n%-12s %7s %7s %7s\n' step seconds budget cpu
    for name in "$@"; do
        [ -e "$ended/$name" ] || continue
        read -r seconds cpu <"$ended/$name"
        IFS='|' read -r budget proves < <(sed -n "s/^| \`$name\` | \([0-9]*\) | \(.*\) |$/\1|\2/p" CONTRIBUTING.md)
        mark=
        [ "$seconds" -le "${budget:?no budget of $name in CONTRIBUTING.md}" ] || mark='over budget: '
        printf '%-12s %7s %7s %7s  %s%s\n' "$name" "$seconds" "$budget" "$cpu" "$mark" "$proves"
    done
}

# True if a step has failed. Steps report it by a file, because bash ignores `set -e` in all functions
# that a condition calls.
has_failed() { [ -e "$ended/.failed" ]; }

# Runs a step and prints its output as it comes. Never call it in a condition.
run_step() {
    local name=$1 started=$SECONDS status cpu TIMEFORMAT='%U %S' stdout stderr
    printf '\n==> %s\n' "$name"
    # Copies for the output of the step: the only output inside the braces is that of `time`.
    exec {stdout}>&1 {stderr}>&2
    set +e
    cpu=$({ time { (set -e; "step_$name") >&"$stdout" 2>&"$stderr"; }; } 2>&1)
    status=$?
    set -e
    exec {stdout}>&- {stderr}>&-
    cpu=$(awk '{ printf "%.0f", $1 + $2 }' <<<"$cpu")
    printf '%s %s\n' $((SECONDS - started)) "$cpu" >"$ended/$name"
    if [ "$status" -ne 0 ]; then
        printf '%s\n' "$name" >>"$ended/.failed"
        printf '\nFAILED: step %s (exit code %s, %s s)\n' "$name" "$status" $((SECONDS - started)) >&2
    else
        printf '<== %s: ok, %s s\n' "$name" $((SECONDS - started))
    fi
}

# Runs steps one after the other until one fails in any lane.
run_steps() {
    local name
    for name in "$@"; do
        has_failed || run_step "$name"
    done
}

# As `run_steps`, but prints the output of a step as a whole when it has ended.
run_lane() {
    local name
    for name in "$@"; do
        run_steps "$name" >"$ended/.$name.log" 2>&1
        flock "$ended" cat "$ended/.$name.log"
    done
}

# Runs the lanes side by side. Each has its own process group, which a signal to this script ends.
run_lanes() {
    local lane pids=()
    link_libraries
    printf '\n==> side by side:'
    printf ' [%s]' "${lanes[@]}"
    printf '\n'
    set -m
    for lane in "${lanes[@]}"; do
        # shellcheck disable=SC2086 # A lane is a list of words.
        run_lane $lane &
        pids+=($!)
    done
    set +m
    # shellcheck disable=SC2064 # The process ids of now.
    trap "kill -TERM $(printf -- '-%s ' "${pids[@]}") 2>/dev/null || true; rm -rf '$ended'; exit 130" INT TERM
    for lane in "${pids[@]}"; do
        # A lane that was killed counts as a failed step.
        wait "$lane" || printf 'of a lane that was killed\n' >>"$ended/.failed"
    done
    trap - INT TERM
}

# Repeats the last output of each failed step of a lane: whoever sees only the end of the output reads
# there what failed.
show_failures() {
    local name
    while read -r name; do
        printf '\nFAILED: step %s\n' "$name"
        [ ! -e "$ended/.$name.log" ] || tail -n 80 "$ended/.$name.log"
    done <"$ended/.failed"
}

check_names() {
    local name
    for name in "$@"; do
        declare -F "step_$name" >/dev/null || {
            # shellcheck disable=SC2048 # Lanes are lists of words.
            printf 'no step %s; the steps are: %s\n' "$name" "${first_steps[*]} ${lanes[*]} ${last_steps[*]}" >&2
            exit 2
        }
    done
}

main() {
    check_names "$@"
    if [ "$#" -eq 0 ]; then
        run_steps "${first_steps[@]}"
        has_failed || run_lanes
        run_steps "${last_steps[@]}"
    else
        run_steps "$@"
    fi
    # shellcheck disable=SC2048,SC2086 # Lanes are lists of words.
    show_times "${first_steps[@]}" ${lanes[*]} "${last_steps[@]}"
    if has_failed; then
        show_failures >&2
        exit 1
    fi
    printf '\nall steps ok, %s s\n' "$SECONDS"
}

main "$@"
