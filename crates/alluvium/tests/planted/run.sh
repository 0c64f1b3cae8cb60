#!/usr/bin/env bash
# Proves that the tests of the engine find mistakes: builds a copy that has those of mistakes.patch, each behind a switch,
# and runs the test that must fail with each one. First all of these tests run without a mistake and must pass.
#
#   run.sh           all of them
#   run.sh NAME...   these
#
# Fails if one is not found. Those that need several clients in one unlucky order are the simulator's: see
# crates/alluvium-sim/planted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/planted

# name, where the test is (lib or it), the test, what is wrong
mistakes=(
    "unchecked-block lib every_flipped_bit_is_an_error_or_changes_no_answer a block's checksum is not looked at"
    "forgetful-filter lib filters_admit_every_key_and_prefix_and_refuse_most_others a filter denies some keys of its table"
    "stale-filter it no_row_is_lost_when_the_prefix_filter_changes a filter over other prefixes than asked for is believed"
    "filter-before-ranges it a_filter_that_rules_a_table_out_does_not_rule_out_its_range_deletes a filter rules out a table with its range deletes"
    "range-end-included lib a_reader_meets_the_newest_range_delete_at_its_point a range delete takes its end with it"
    "lost-cover lib compactions_above_the_last_level_follow_the_rules an insert that a merge puts over a delete does not cover"
    "delete-for-range it a_delete_beside_a_range_delete_does_not_cancel a delete stands for the range delete of its commit in a merge"
    "lost-cover-in-batch lib a_put_over_an_own_delete_covers an insert over a delete of the same batch does not cover"
    "snapshot-off-by-one it no_border_comes_between_the_versions_of_a_key a merge drops the version that is as old as a snapshot"
    "early-zero lib compactions_into_the_last_level_drop_tombstones_and_seqnos_at_or_below_the_horizon the last level forgets numbers above the horizon"
    "late-expiry it a_row_is_gone_from_its_time_on_wherever_it_is a row is still there at the time of its expiry"
    "row-in-dead-interval it a_commit_into_a_dead_interval_is_found a put leaves the dead interval around it"
    "own-deletes-as-evidence it deletes_that_are_rolled_back_leave_no_dead_interval a transaction's own deletes make an interval dead for all"
    "expiry-as-evidence it rows_that_have_expired_leave_no_dead_interval_for_an_older_snapshot expired rows make an interval dead for all"
    "ingest-into-dead-interval it an_ingest_into_a_dead_interval_is_found an ingest leaves the dead intervals around it"
    "border-in-versions it no_border_comes_between_the_versions_of_a_key a table is cut between two versions of a key"
    "ageless-ingest it an_older_snapshot_does_not_see_an_ingest_also_after_compactions ingested rows have no number"
    "overtaken-merge it a_compaction_whose_group_was_split_by_an_ingest_is_abandoned a merge is installed over another range than it read"
    "reused-table-number it a_table_that_no_manifest_names_is_moved_aside_then_deleted numbers of unnamed files are given again"
    "reused-seqno it random_histories_match_the_model numbers of replayed commits are given again"
    "unknown-keyspace it rows_of_a_keyspace_that_no_manifest_has_created_are_damage_of_the_log replay passes over rows of a keyspace that never was"
    "rows-below-tombstones it rows_in_a_deleted_range_beyond_the_last_row_are_not_put_below_it an ingest goes into the last level below a range delete"
    "dropped-is-damage it replay_passes_over_what_a_dropped_keyspace_has_in_the_log replay takes operations of a dropped keyspace for damage"
    "log-kept it a_keyspace_that_is_seldom_written_does_not_hold_the_log flushes let no segment of the log go"
    "torn-record-as-data lib any_flipped_bit_in_synced_records_is_reported_or_cuts_the_last_one_only a record's checksum is not looked at"
    "ghost-records lib a_valid_record_with_another_predecessor_does_not_continue_the_log a record's predecessor is not looked at"
    "damage-cut-as-tail lib after_a_mark_no_flipped_bit_in_any_synced_record_goes_unreported damage below a mark is cut as a torn tail"
    "unsynced-roll it a_synced_commit_behind_a_roll_of_the_log_keeps_the_unsynced_end a sync passes over the segments before the newest"
    "unsynced-name lib a_roll_that_makes_its_file_syncs_nothing_and_the_next_sync_makes_its_name_durable a sync leaves the name of a new segment out"
    "unsynced-edit lib after_power_loss_every_acknowledged_edit_is_there an edit of the manifest is not synced"
    "unsynced-table it power_loss_after_any_change_keeps_every_promise a table is named before it is synced"
    "overtaking-drop it dropping_a_keyspace_does_not_overtake_the_copy_of_its_rows a drop reaches the manifest before the log below it is durable"
    "forgiven-failure it one_failing_call_loses_nothing_under_sync commits go on after a failed write or sync"
    "unchecked-fork it a_child_is_refused_everything_while_the_parent_writes_and_flushes a forked child uses what it inherits"
    "files-by-path it a_moved_database_and_the_one_in_its_old_place_keep_apart files are reached by the path of the opening"
    "final-failures it a_failed_flush_tells_its_cause_and_is_done_when_the_cause_is_gone a failure that changed nothing stops the database"
    "lock-only-closed it a_program_that_was_started_meanwhile_does_not_keep_the_lock a close does not take the lock away"
    "forgotten-prepare it a_forgotten_prepare_does_not_hold_the_log_and_is_not_lost_with_it a prepare goes with its log segment"
    "missed-deadlock lib two_transactions_that_wait_for_each_other_have_one_victim no cycle of waits is found"
    "savepoint-frees-all it rolling_back_to_a_savepoint a rollback to a savepoint frees rows that were locked before"
    "leaked-locks it in_every_order_two_updates_of_a_row_lose_one_at_read_committed_only a transaction keeps its row locks for ever"
    "batch-without-locks it a_plain_batch_waits_for_a_row_lock_and_an_untracked_one_does_not a batch takes no row locks"
    "early-value-delete it a_value_file_stays_while_any_table_points_into_it a value file goes with the first table that points into it"
    "values-under-readers lib value_files_of_a_capture_keep_their_names_as_long_as_it_exists a value file goes while a copy is being made of its tables"
    "unchecked-repair it a_bit_that_is_read_wrongly_once_is_told_or_makes_no_difference a repair does not read back what it copies"
    "prepare-behind-failure lib no_prepare_is_carried_over_after_a_failure a seal behind a failure writes prepares into the log again"
    "unsynced-rollback it a_flush_makes_a_rollback_durable_that_has_changed_no_row a flush without rows does not sync a rollback"
    "gap-over-upper it appends_gaps_that_are_filled_and_random_writes_match_a_model rows are flushed below older ones of an upper table"
    "gap-from-last-key lib gaps_are_what_no_table_has a gap begins at the last key of a table instead of behind it"
    "refused-claim-frees lib a_claim_that_is_refused_frees_nothing a flush that may not have a group takes it from who has it"
    "unheard-space lib found_space_is_an_event_for_a_postponed_compaction a merging thread does not hear of space that was found"
    "failed-drop it changes_of_keyspaces_that_a_power_loss_undid_are_left_out a stream takes a drop that failed for the one that did not"
    "blamed-spare lib behind_a_damaged_header_a_file_is_passed_over verify blames files that never became segments"
    "headless-segment it a_segment_whose_beginning_is_damaged_is_not_taken_for_lost_changes a stream takes a segment without its header for none"
    "scan-notes-rows-only it in_every_order_phantoms_are_refused_at_serializable_only a scan does not note the empty range that it read"
)

copy=$CARGO_TARGET_DIR/tree
rm -rf "$copy"
mkdir -p "$copy"
(cd "$root" && git ls-files -z | xargs -0 cp -p --parents -t "$copy")
cd "$copy"
patch --quiet --strip=1 <"$here/mistakes.patch"

run() { # where, test, mistake
    local target=--lib
    [ "$1" = lib ] || target="--test $1"
    # shellcheck disable=SC2086
    PLANTED=$3 timeout 300 cargo test --quiet --locked -p alluvium $target -- "$2" 2>&1
}

missed=0
for line in "${mistakes[@]}"; do
    read -r name where test what <<<"$line"
    [ "$#" -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    if ! said=$(run "$where" "$test" none) || grep -q '^running 0 tests' <<<"$said"; then
        printf '%-22s its test %s does not pass without it\n%s\n' "$name" "$test" "$said"
        missed=1
    elif said=$(run "$where" "$test" "$name"); then
        printf '%-22s NOT FOUND by %s: %s\n' "$name" "$test" "$what"
        missed=1
    else
        printf '%-22s found by %s\n' "$name" "$test"
    fi
done
exit "$missed"
