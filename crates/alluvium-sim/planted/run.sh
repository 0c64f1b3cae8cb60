#!/usr/bin/env bash
# Proves that the simulator finds mistakes: builds a copy of the engine that has those of mistakes.patch, each behind a
# switch, and looks after how many seeds each one is found.
#
#   run.sh           all of them
#   run.sh NAME...   these
#
# SEEDS is how many seeds are tried (300), FROM the first (1). A mistake that needs more seeds names them behind a colon;
# one that needs two threads in one place at one moment names a test behind an equals sign, which plays just that under
# many schedules. Fails if one is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/planted

mistakes=(
    skipped-log-sync        # a commit that asks for a sync is acknowledged without one
    lost-tombstone          # a merge above the last level drops tombstones
    careless-cancel         # a delete takes any put with itself, not inserts only
    # a reader does not look whether its read point was passed while it registered
    stale-read-point=a_reader_that_sleeps_before_it_registers_finds_its_row
    horizon-without-readers # what may be dropped is decided by the newest commit alone
    # a transaction pays for debt before it gives its row locks back
    locks-while-paying=a_delayed_commit_holds_no_row_locks
    early-unlock            # a transaction gives its row locks back before it commits
    unchecked-lock          # a row that somebody changed since the snapshot is locked all the same
    unchecked-reads         # a serializable commit does not look at what it has read
    early-publication       # commits are visible before they are in the memtables
    unsynced-directory      # a flush names tables in the manifest before their names are durable
    lost-wake               # the end of a flush wakes nobody
    unlocked-after-restart  # prepared transactions do not get their row locks back
    late-expiry             # a row is still there at the time of its expiry
    expiry-without-readers  # merges drop rows that have not expired for an older snapshot
    unchecked-block         # a block's checksum is not looked at
    rotten-block            # only that of a block of rows is not
    rotten-value            # only that of a value stored apart is not
    old-duplicate           # of two rows of a bulk load with one key the older one stays
    early-capture           # a checkpoint or backup does not wait for the flush of what it says it holds
    copy-without-table      # a checkpoint lacks a table
    copy-without-values     # a checkpoint lacks a value file
    copy-without-row        # a checkpoint's manifest lacks a table, and so some rows
    unsynced-backup         # a backup is listed before the names of its tables are durable
    repair-without-log      # a repair leaves out what is only in the log
    skipped-change          # a stream that is opened again passes over a change
    misread-header          # a stream takes the header of an old segment for none, and says that changes are lost
    early-change            # a stream of durable changes shows what is not durable
    early-value-delete      # a value file goes while tables still point into it
    values-under-readers    # a value file goes while a copy is being made of its tables
    delay-told-twice        # a listener hears the end of a delay that has ended
    clock-runs-back         # the time by which rows expire goes back with the machine's clock
    unconfirmed-drop        # compactions drop rows by the time of reads instead of the confirmed one
    unconfirmed-store       # the time of reads is stored instead of the confirmed one
    glitch-stays            # the time of reads stays where a glitch of the clock has taken it
    filter-loses-value      # what a compaction filter puts in a row's place comes out another one
    appends-below-range-delete # a flush writes rows to the last level and a range delete over them above it
    files-by-path           # files are reached by the path of the opening, also after the directory was moved or removed
    final-failures          # a lack of descriptors stops the database for good
    forgotten-options       # changed options of a keyspace are not in the manifest
)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$copy")
cd "$copy"
git apply "$here/mistakes.patch"
cargo build --quiet --locked --profile sim -p alluvium-sim --features simulation

# Whether a test of the simulator fails, and would pass without the mistake.
is_found_by() { # test, mistake
    local run=(cargo test --quiet --locked --profile sim -p alluvium-sim --features simulation --test it -- "$1")
    PLANTED=none "${run[@]}" 2>&1 | grep -q '^test result: ok. 1 passed' && ! PLANTED=$2 "${run[@]}" >/dev/null 2>&1
}

missed=0
listed=("${mistakes[@]}")
[ "$#" -eq 0 ] || mistakes=("$@")
for entry in "${mistakes[@]}"; do
    mistake=${entry%%[:=]*} seeds=${SEEDS:-300}
    # Named alone it has what the list says of it.
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
