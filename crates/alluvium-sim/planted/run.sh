#!/usr/bin/env bash
# Proves that the simulator finds mistakes: builds a copy of the engine that has those of mistakes.patch, each behind a
# switch, and looks after how many seeds each one is found.
#
#   run.sh           all of them
#   run.sh NAME...   these
#
# SEEDS is how many seeds are tried (300), FROM the first (1). Fails if one is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/planted

mistakes=(
    skipped-log-sync        # a commit that asks for a sync is acknowledged without one
    lost-tombstone          # a merge above the last level drops tombstones
    careless-cancel         # a delete takes any put with itself, not inserts only
    stale-read-point        # a reader does not look whether its read point was passed while it registered
    horizon-without-readers # what may be dropped is decided by the newest commit alone
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
    old-duplicate           # of two rows of a bulk load with one key the older one stays
    early-capture           # a checkpoint or backup does not wait for the flush of what it says it holds
    unsynced-backup         # a backup is listed before the names of its tables are durable
    repair-without-log      # a repair leaves out what is only in the log
    skipped-change          # a stream that is opened again passes over a change
    early-change            # a stream of durable changes shows what is not durable
    early-value-delete      # a value file goes while tables still point into it
    values-under-readers    # a value file goes while a copy is being made of its tables
)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$copy")
cd "$copy"
git apply "$here/mistakes.patch"
cargo build --quiet --locked --profile sim -p alluvium-sim --features simulation

missed=0
[ "$#" -eq 0 ] || mistakes=("$@")
for mistake in "${mistakes[@]}"; do
    if said=$(PLANTED=$mistake "$CARGO_TARGET_DIR/sim/alluvium-sim" \
        --from "${FROM:-1}" --seeds "${SEEDS:-300}" --shrink 0 2>&1); then
        printf '%-24s NOT FOUND in %s seeds\n' "$mistake" "${SEEDS:-300}"
        missed=1
    else
        printf '%-24s %s\n' "$mistake" "$(grep -m1 'failed, the' <<<"$said")"
    fi
done
exit "$missed"
