#!/usr/bin/env bash
# Steps of `make test`, in order of cost, so that the cheap ones fail first.
#
#   .ci/steps.sh              all steps
#   .ci/steps.sh fmt clippy   only these steps
#
# Each step prints its name and its duration. The first failing step is named and ends the run. No
# step is skipped: if a tool is missing, the step installs it, or fails and names it.
#
# All cargo commands share one target directory outside the checkout, so a fresh clone reuses the
# results of earlier runs on the same machine. The same cache holds RocksDB's library: see
# `cargo xtask rocksdb`.
set -euo pipefail
cd "$(dirname "$0")/.."

all_steps=(system fmt tidy formats header clippy test sim docs licenses fuzz browser lab-smoke kill more-engines servers)
cache=${ALLUVIUM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/alluvium}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}

# On-disk engines of a default build of the laboratory.
durable_engines=(alluvium fjall lmdb sqlite)
# Features of the embedded engines that a default build lacks.
more_engines=(leveldb redb rocksdb wiredtiger)
# Engines that are servers.
servers=(mariadb-innodb mariadb-rocksdb postgresql)
# Total duration of the random-input step, in seconds.
fuzz_seconds=60
# Versions of the browser driver and of the accessibility checker.
playwright=1.64.1
axe=4.14.1
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

install_debian_packages() {
    local as_root=()
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
        as_root=(sudo -n)
    fi
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$@"
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
        install_debian_packages "${debian_packages[@]}" ||
            missing "root or password-less sudo, to run: apt-get install ${debian_packages[*]}"
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
    # `make planted` takes too long for each run; this only checks that its patches still apply.
    git apply --check crates/alluvium/tests/planted/mistakes.patch crates/alluvium-sim/planted/mistakes.patch
}

step_formats() { cargo xtask formats; }

step_header() { cargo xtask header --check; }

step_licenses() { cargo xtask licenses; }

step_clippy() {
    cargo clippy --locked --workspace --all-targets -- -D warnings
    # The server adapters are pure Rust, so clippy can check them without a server.
    cargo clippy --locked -p rumbench-engines -p rumbench --features mariadb,postgresql --all-targets -- -D warnings
}

step_test() { cargo test --locked --workspace; }

step_docs() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --workspace; }

# Only this crate enables the feature: no other step may build the engine with it.
step_sim() {
    cargo clippy --locked -p alluvium-sim --features simulation --all-targets -- -D warnings
    cargo test --locked -p alluvium --features simulation --lib simulation::
    cargo test --locked -p alluvium-sim --features simulation
    cargo run --quiet --locked -p alluvium-sim --features simulation -- --seconds "$sim_seconds"
}

# Tests with random input are named fuzz_* and loop until the time of testkit's `fuzz_budget` is
# over. They share the minute, because each processor runs one test at a time.
step_fuzz() {
    local count seconds
    count=$(cargo test --quiet --locked --workspace --lib --bins --tests -- --list fuzz_ | grep -c ': test$' || true)
    [ "$count" -gt 0 ] || missing 'tests named fuzz_*: without them this step tests nothing'
    seconds=$((fuzz_seconds * $(nproc) / count))
    [ "$seconds" -ge 2 ] || seconds=2
    [ "$seconds" -le "$fuzz_seconds" ] || seconds=$fuzz_seconds
    printf '%s tests, %s s each\n' "$count" "$seconds"
    ALLUVIUM_FUZZ_SECONDS=$seconds cargo test --quiet --locked --workspace --lib --bins --tests -- fuzz_
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
    RUMBENCH_TEST_PAGES=$pages cargo test --quiet --locked -p rumbench --bin rumbench -- report::html::tests profile::flame
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

# Arguments that enable the features of the engines that a step adds.
features=()

rumbench() { cargo run --quiet --locked -p rumbench "${features[@]}" -- "$@"; }

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
    smoke linkbench "$1/smoke" nodes=1000 numbers=2011 clients=2 operations=1000 steps=1 &&
        rumbench report "$1/smoke" >/dev/null &&
        smoke insert-benchmark "$1/inserts" rows=2000 clients=2 operations=200 &&
        smoke large-values "$1/large" rows=500 value_max=20000 clients=2 operations=200 &&
        smoke oltp-range "$1/oltp" rows=500 tables=2 clients=2 operations=20 &&
        smoke ycsb-a "$1/preset" rows=1000 requests=1000 clients=2 &&
        smoke crates/rumbench-core/tests/every_operation.toml "$1/own" scale=0.02 requests=1000
}

lab_smoke() {
    smoke_tables "$1" && smoke kv-sequence "$1/sequence" keys=2000 load_rows=100 clients=2 operations=200
}

step_lab-smoke() {
    smoke_engines=("${durable_engines[@]}")
    smoke_cache_bytes=16777216
    in_scratch lab_smoke
}

kill_engines() {
    local engine
    cargo build --quiet --locked -p rumbench-powercut || return
    for engine in "${durable_engines[@]}"; do
        rumbench durability --engine "$engine" --kills 5 --out "$1/$engine" || return
        rumbench durability --engine "$engine" --kills 5 --power-loss --durability sync --out "$1/$engine-power" || return
    done
}

step_kill() { in_scratch kill_engines; }

# Sets the variables that make cargo link a library of the cache; builds the library if it is
# missing.
link() {
    local lines
    lines=$(cargo xtask "$1")
    eval "$lines"
}

kill_more_engines() {
    local engine
    for engine in "${more_engines[@]}"; do
        rumbench durability --engine "$engine" --kills 3 --out "$1/$engine" || return
        rumbench durability --engine "$engine" --kills 3 --power-loss --durability sync --out "$1/$engine-power" || return
    done
}

step_more-engines() {
    link wiredtiger
    link rocksdb
    features=(--features "$(IFS=,; printf '%s' "${more_engines[*]}")")
    # Enables all features in one build, because users run the laboratory with all its engines.
    cargo test --locked -p rumbench-engines "${features[@]}"
    cargo build --quiet --locked -p rumbench-powercut
    smoke_engines=("${more_engines[@]}")
    # WiredTiger nearly stalls if its eviction has only a few pages to choose from.
    smoke_cache_bytes=268435456
    in_scratch lab_smoke
    in_scratch kill_more_engines
}

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

# The servers must leave no process and no socket.
step_servers() {
    local left
    .ci/peers.sh
    # As root, PostgreSQL runs as another user, and its tools write to /dev/null. In some containers
    # only root may write there.
    [ -w /dev/null ] && [ "$(stat -c %a /dev/null)" = 666 ] || chmod 666 /dev/null || missing 'a /dev/null that all users may write'
    # Only servers, because other steps test the other engines.
    features=(--no-default-features --features mariadb,postgresql)
    cargo test --locked -p rumbench-engines "${features[@]}"
    cargo test --locked -p rumbench "${features[@]}" --test it -- \
        bounded_servers:: external:: durability:: killed:: wrong_rows:: failing_servers:: ordinary_user::
    smoke_engines=("${servers[@]}")
    smoke_cache_bytes=67108864
    in_scratch servers_smoke
    left=$(left_behind)
    [ -z "$left" ] || missing "a clean exit of the servers of $left"
}

# Budget of each step in seconds, on two cores with warm caches. A step over its budget is marked but
# does not fail, because machines differ.
declare -A budgets=(
    [system]=30 [fmt]=10 [tidy]=15 [formats]=10 [header]=15 [clippy]=120 [test]=700 [sim]=120 [docs]=60 [licenses]=15
    [fuzz]=90 [browser]=320 [lab-smoke]=180 [kill]=60 [more-engines]=400 [servers]=800
)
declare -A taken=() used=()

# Prints the seconds of each step next to its budget, and the processor time of all its processes.
show_times() {
    local name mark
    printf '\n%-14s %7s %7s %7s\n' step seconds budget cpu
    for name in "$@"; do
        mark=
        [ "${taken[$name]}" -le "${budgets[$name]}" ] || mark='  over budget'
        printf '%-14s %7s %7s %7s%s\n' "$name" "${taken[$name]}" "${budgets[$name]}" "${used[$name]}" "$mark"
    done
}

run_step() {
    local name=$1 started=$SECONDS status cpu TIMEFORMAT='%U %S'
    printf '\n==> %s\n' "$name"
    # Not in a condition: bash would ignore `set -e` inside the step.
    set +e
    # The only output inside the braces is that of `time`.
    cpu=$({ time { (set -e; "step_$name") >&"$stdout" 2>&"$stderr"; }; } 2>&1)
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then
        printf '\nFAILED: step %s (exit code %s, %s s)\n' "$name" "$status" $((SECONDS - started)) >&2
        exit 1
    fi
    taken[$name]=$((SECONDS - started))
    used[$name]=$(awk '{ printf "%.0f", $1 + $2 }' <<<"$cpu")
    printf '<== %s: ok, %s s\n' "$name" "${taken[$name]}"
}

main() {
    local name steps=("$@")
    [ "${#steps[@]}" -gt 0 ] || steps=("${all_steps[@]}")
    for name in "${steps[@]}"; do
        declare -F "step_$name" >/dev/null || {
            printf 'no step %s; the steps are: %s\n' "$name" "${all_steps[*]}" >&2
            exit 2
        }
    done
    for name in "${steps[@]}"; do run_step "$name"; done
    show_times "${steps[@]}"
    printf '\nall steps ok, %s s\n' "$SECONDS"
}

# Copies for the output of steps.
exec {stdout}>&1 {stderr}>&2
main "$@"
