#!/usr/bin/env bash
# Checks that the engine's tests find planted mistakes: builds a copy of the engine with
# mistakes.patch, in which a switch enables each mistake. For each mistake, one test must pass
# without it and fail with it.
#
#   run.sh           all mistakes
#   run.sh NAME...   only these
#
# Fails if a mistake is not found. The simulator finds the mistakes that need an unlucky order of
# several clients: see crates/alluvium-sim/planted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../../../.ci/planted.sh
. "$here/../../../../.ci/planted.sh"

# Name, target of the test (lib or it), name of the test, description of the mistake.
mistakes=(
    "unchecked-block lib every_flipped_bit_is_an_error_or_changes_no_answer a block's checksum is not checked"
    "forgetful-filter lib filters_admit_every_key_and_prefix_and_refuse_most_others a filter denies some keys of its table"
    "stale-filter it no_row_is_lost_when_the_prefix_filter_changes a filter over other prefixes than requested is used"
    "filter-before-ranges it a_filter_that_rules_a_table_out_does_not_rule_out_its_range_deletes a filter that excludes a table also excludes its range deletes"
    "range-end-included lib a_reader_meets_the_newest_range_delete_at_its_point a range delete also deletes its end key"
    "lost-cover lib compactions_above_the_last_level_follow_the_rules an insert that a compaction keeps over a delete does not become a covering put"
    "delete-for-range it a_delete_beside_a_range_delete_does_not_cancel a compaction keeps a delete in place of the range delete of its commit"
    "lost-cover-in-batch lib a_put_over_an_own_delete_covers an insert over a delete of the same batch does not become a covering put"
    "snapshot-off-by-one it no_border_comes_between_the_versions_of_a_key a compaction drops the version that is as old as a snapshot"
    "early-zero lib compactions_into_the_last_level_drop_tombstones_and_seqnos_at_or_below_the_horizon the last level loses sequence numbers above the horizon"
    "late-expiry it a_row_is_gone_from_its_time_on_wherever_it_is a row still exists at the time of its expiry"
    "row-in-dead-interval it a_commit_into_a_dead_interval_is_found a put does not end the dead interval around it"
    "own-deletes-as-evidence it deletes_that_are_rolled_back_leave_no_dead_interval a transaction's own deletes make an interval dead for all readers"
    "expiry-as-evidence it rows_that_have_expired_leave_no_dead_interval_for_an_older_snapshot expired rows make an interval dead for all readers"
    "ingest-into-dead-interval it an_ingest_into_a_dead_interval_is_found an ingest does not end the dead intervals around it"
    "lead-over-equal-key lib a_merge_shows_the_newest_row_of_each_key_once_in_both_directions a scan steps one source past a key that another one has too"
    "lead-beyond-group lib a_merge_shows_the_newest_row_of_each_key_once_in_both_directions a scan steps a table of several groups past the group that it reads"
    "border-in-versions it no_border_comes_between_the_versions_of_a_key a table is cut between two versions of a key"
    "ageless-ingest it an_older_snapshot_does_not_see_an_ingest_also_after_compactions ingested rows have no sequence number"
    "overtaken-merge it a_compaction_whose_group_was_split_by_an_ingest_is_abandoned a compaction is installed over another range than it read"
    "reused-table-number it a_table_that_no_manifest_names_is_moved_aside_then_deleted numbers of unnamed files are reused"
    "reused-seqno it random_histories_match_the_model numbers of replayed commits are reused"
    "unknown-keyspace it rows_of_a_keyspace_that_no_manifest_has_created_are_damage_of_the_log replay skips rows of a keyspace that was never created"
    "rows-below-tombstones it rows_in_a_deleted_range_beyond_the_last_row_are_not_put_below_it an ingest is installed in the last level below a range delete"
    "dropped-is-damage it replay_passes_over_what_a_dropped_keyspace_has_in_the_log replay reports operations of a dropped keyspace as damage"
    "log-kept it a_keyspace_that_is_seldom_written_does_not_hold_the_log flushes free no segment of the log"
    "torn-record-as-data lib any_flipped_bit_in_synced_records_is_reported_or_cuts_the_last_one_only a record's checksum is not checked"
    "ghost-records lib a_valid_record_with_another_predecessor_does_not_continue_the_log a record's predecessor is not checked"
    "damage-cut-as-tail lib after_a_mark_no_flipped_bit_in_any_synced_record_goes_unreported damage below a mark is cut off as a torn tail"
    "unsynced-roll it a_synced_commit_after_a_roll_of_the_log_keeps_the_unsynced_end a sync skips the segments before the newest"
    "unsynced-name lib a_roll_that_makes_its_file_syncs_nothing_and_the_next_sync_makes_its_name_durable a sync does not make the name of a new segment durable"
    "unsynced-edit lib after_power_loss_every_acknowledged_edit_is_there an edit of the manifest is not synced"
    "unsynced-table it power_loss_after_any_change_keeps_every_promise the manifest names a table before it is synced"
    "overtaking-drop it dropping_a_keyspace_does_not_overtake_the_copy_of_its_rows a drop reaches the manifest before the log below it is durable"
    "forgiven-failure it one_failing_call_loses_nothing_under_sync commits continue after a failed write or sync"
    "unchecked-fork it a_child_is_refused_everything_while_the_parent_writes_and_flushes a forked child may use the handles that it inherits"
    "files-by-path it a_moved_database_and_the_one_in_its_old_place_keep_apart files are reached by the path of the open"
    "final-failures it a_failed_flush_tells_its_cause_and_is_done_when_the_cause_is_gone a failure that changed nothing stops the database"
    "lock-only-closed it a_program_that_was_started_meanwhile_does_not_keep_the_lock a close does not release the lock"
    "point-before-lock it a_late_read_point_is_taken_after_the_first_lock_is_granted a late read point is taken before the wait for the first lock"
    "unlocked-write it unlock_releases_the_newest_lock_of_a_row_that_was_only_read the lock on a written row is released before the end"
    "unchecked-insert it insert_new_conflicts_with_a_row_that_came_and_went an insert of a missing row is not checked against the read point"
    "seen-before-sync it no_commit_is_seen_before_the_sync_of_an_earlier_one a commit is visible before its sync"
    "answered-before-seen it no_commit_is_seen_before_the_sync_of_an_earlier_one a commit is acknowledged before its client can see it"
    "ordered-unlock it no_commit_is_seen_before_the_sync_of_an_earlier_one an ordered commit frees its rows before it is visible"
    "shown-after-failure it after_a_failed_sync_nothing_that_waited_for_it_is_seen_or_acknowledged commits are shown after their sync has failed"
    "forgotten-prepare it a_forgotten_prepare_does_not_hold_the_log_and_is_not_lost_with_it a prepare is lost with its log segment"
    "missed-deadlock lib two_transactions_that_wait_for_each_other_have_one_victim cycles of waits are not found"
    "savepoint-frees-all it rolling_back_to_a_savepoint a rollback to a savepoint unlocks rows that were locked before it"
    "leaked-locks it in_every_order_two_updates_of_a_row_lose_one_at_read_committed_only a transaction never releases its row locks"
    "batch-without-locks it a_plain_batch_waits_for_a_row_lock_and_an_untracked_one_does_not a batch takes no row locks"
    "early-value-delete it a_value_file_stays_while_any_table_points_into_it a value file is removed with the first table that points to it"
    "values-under-readers lib value_files_of_a_capture_keep_their_names_as_long_as_it_exists a value file is removed while its tables are being copied"
    "unchecked-repair it a_bit_that_is_read_wrongly_once_is_told_or_makes_no_difference a repair does not verify its copies"
    "prepare-behind-failure lib no_prepare_is_carried_over_after_a_failure a seal after a failure writes prepares into the log again"
    "unsynced-rollback it a_flush_makes_a_rollback_durable_that_has_changed_no_row a flush without rows does not sync a rollback"
    "gap-over-upper it appends_gaps_that_are_filled_and_random_writes_match_a_model rows are flushed below older rows of an upper table"
    "gap-from-last-key lib gaps_are_what_no_table_has a gap begins at the last key of a table instead of after it"
    "overlapping-shares lib borders_cut_gaps_or_lie_between_them two threads of a flush write the same rows"
    "shares-kept it a_thread_of_a_flush_that_fails_takes_the_tables_of_the_others_with_it a failed flush keeps the tables of its other threads"
    "share-begins-with-tail lib a_share_does_not_begin_with_the_last_keys_of_a_writer a thread of a flush begins shortly before the end of one writer's keys"
    "refused-claim-frees lib a_claim_that_is_refused_frees_nothing a flush whose claim of a group is refused ends the owner's claim"
    "unheard-space lib found_space_is_an_event_for_a_postponed_compaction a compaction thread is not notified of space that was found"
    "failed-drop it changes_of_keyspaces_that_a_power_loss_undid_are_left_out a stream reports a failed drop instead of the later one that succeeded"
    "blamed-spare lib a_scrub_skips_a_file_that_never_became_a_segment verify reports files that never became segments as damage"
    "headless-segment it a_segment_whose_beginning_is_damaged_is_not_taken_for_lost_changes a stream treats a segment without its header as absent"
    "reused-under-reader lib a_held_block_keeps_its_rows_after_its_eviction memory of an evicted block is reused under its readers"
    "kept-frame-refilled lib kept_frames_stay_what_they_are memory of an evicted block is reused although a value keeps it"
    "forgotten-frames lib kept_frames_stay_what_they_are memory of blocks that were kept while they were evicted is lost"
    "unlisted-frames lib a_frame_that_was_kept_while_its_slab_left memory that leaves and comes back loses frames that were kept"
    "hits-unseen lib a_size_that_only_hits_keeps_its_memory a size of blocks that only hits loses its memory to one that misses"
    "slab-leaves-under-user lib a_slab_leaves_after_the_last_user_of_a_frame memory is not counted while a value keeps a part of it"
    "blocks-freed-by-reader lib the_last_user_of_an_obsolete_table_leaves_its_cached_blocks_to_another_thread the last reader of a table frees its cached blocks"
    "scan-notes-rows-only it in_every_order_phantoms_are_refused_at_serializable_only a scan does not record the empty range that it read"
)

find_mistakes "$here/mistakes.patch" "$@"
