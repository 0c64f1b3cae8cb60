#!/usr/bin/env bash
# Checks that the simulator finds planted mistakes: builds a copy of the engine with mistakes.patch,
# in which a switch enables each mistake, and prints the seed that finds it.
#
#   run.sh           all mistakes
#   run.sh NAME...   only these
#
# SEEDS is the number of seeds to try (300), FROM the first one (1). An entry NAME:SEEDS needs more
# seeds. An entry NAME=TEST needs two threads in one place at one moment; the test runs that case
# under many schedules. Fails if a mistake is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/planted

mistakes=(
    skipped-log-sync        # a commit that requests a sync is acknowledged without one
    lost-tombstone          # a compaction above the last level drops tombstones
    careless-cancel         # a delete cancels any put, not only inserts
    # a reader does not check that its read point was passed while it registered
    stale-read-point=a_reader_that_sleeps_before_it_registers_finds_its_row
    horizon-without-readers # the newest commit alone decides which versions may be dropped
    # a transaction is delayed by admission control before it releases its row locks
    locks-while-paying=a_delayed_commit_holds_no_row_locks
    early-unlock            # a transaction releases its row locks before it commits
    unchecked-lock          # a row that changed since the snapshot is locked all the same
    unchecked-reads         # a serializable commit does not check its read set
    early-publication       # commits are visible before they are in the memtables
    unsynced-directory      # a flush names tables in the manifest before their names are durable
    lost-wake               # the end of a flush wakes no thread
    unlocked-after-restart:3000 # prepared transactions do not get their row locks back
    late-expiry             # a row still exists at the time of its expiry
    expiry-without-readers  # compactions drop rows that have not expired for an older snapshot
    unchecked-block         # a block's checksum is not checked
    rotten-block            # only the checksum of a block of rows is not checked
    rotten-value            # only the checksum of a value stored apart is not checked
    old-duplicate           # of two rows of a bulk load with one key the older one stays
    early-capture           # a checkpoint or backup does not wait for the flush of its commit
    copy-without-table      # a checkpoint lacks a table
    copy-without-values     # a checkpoint lacks a value file
    copy-without-row        # a checkpoint's manifest lacks a table, and so some rows
    unsynced-backup         # a backup is listed before the names of its tables are durable
    repair-without-log      # a repair leaves out rows that are only in the log
    skipped-change          # a reopened stream skips a change
    misread-header          # a stream misses the header of an old segment, and reports lost changes
    early-change            # a stream of durable changes shows a change that is not durable
    early-value-delete      # a value file is removed while tables still point to it
    values-under-readers    # a value file is removed while its tables are being copied
    delay-told-twice        # a listener receives the end of a delay twice
    clock-runs-back         # the time by which rows expire follows the machine's clock back
    unconfirmed-drop        # compactions drop rows by the time of reads, not by the confirmed one
    unconfirmed-store       # the time of reads is stored instead of the confirmed one
    glitch-stays            # the time of reads stays where a glitch of the clock has taken it
    filter-loses-value      # the replacement value of a compaction filter is stored wrongly
    # a flush writes rows to the last level, and a range delete over them above it
    appends-below-range-delete
    # files are reached by the path of the open, also after the directory was moved or removed
    files-by-path
    final-failures          # a lack of descriptors stops the database for good
    forgotten-options       # changed options of a keyspace are not in the manifest
)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$copy")
cd "$copy"
git apply "$here/mistakes.patch"
cargo build --quiet --locked --profile sim -p alluvium-sim --features simulation

# Succeeds if a test of the simulator passes without the mistake and fails with it.
is_found_by() { # test, mistake
    local run=(cargo test --quiet --locked --profile sim -p alluvium-sim --features simulation --test simulator -- "$1")
    PLANTED=none "${run[@]}" 2>&1 | grep -q '^test result: ok. 1 passed' && ! PLANTED=$2 "${run[@]}" >/dev/null 2>&1
}

missed=0
listed=("${mistakes[@]}")
[ "$#" -eq 0 ] || mistakes=("$@")
for entry in "${mistakes[@]}"; do
    mistake=${entry%%[:=]*} seeds=${SEEDS:-300}
    # A name from the command line takes its seeds or test from the list.
    for listed in "${listed[@]}"; do
        [ "$mistake" != "${listed%%[:=]*}" ] || entry=$listed
    done
    if [[ $entry == *=* ]]; then
        if is_found_by "${entry#*=}" "$mistake"; then
            printf '%-24s found by %s\n' "$mistake" "${entry#*=}"
        else
            printf '%-24s NOT FOUND by %s\n' "$mistake" "${entry#*=}"
            missed=1
        fi
        continue
    fi
    [[ $entry != *:* ]] || seeds=${entry#*:}
    if said=$(PLANTED=$mistake "$CARGO_TARGET_DIR/sim/alluvium-sim" \
        --from "${FROM:-1}" --seeds "$seeds" --shrink 0 2>&1); then
        printf '%-24s NOT FOUND in %s seeds\n' "$mistake" "$seeds"
        missed=1
    else
        printf '%-24s %s\n' "$mistake" "$(grep -m1 'failed, the' <<<"$said")"
    fi
done
exit "$missed"
