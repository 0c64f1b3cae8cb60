#!/usr/bin/env bash
# Checks that the laboratory finds wrong numbers: builds a copy of it with mistakes.patch, in which a
# switch enables each mistake. For each mistake, one test must pass without it and fail with it. The
# tests `run` measure for real, and the cross-checks of each phase find the mistake: see
# crates/rumbench/src/run/cross_check.rs.
#
#   run.sh           all mistakes
#   run.sh NAME...   only these
#
# Fails if a mistake is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../../../.ci/planted.sh
. "$here/../../../../.ci/planted.sh"

# Name, target of the test, name of the test, description of the mistake.
mistakes=(
    "shifted-chooser core popular_rows_stay_popular_while_other_rows_are_deleted deletes of the oldest rows shift every popular row"
    "neighbor-for-deleted core popular_rows_stay_popular_while_other_rows_are_deleted the row after a deleted one has its draws too"
    "time-of-last-burst bin a_phase_of_bursts_lasts_until_its_end_and_not_only_to_its_last_operation a rate is divided by the time to the last operation"
    "time-of-last-burst run a_phase_of_bursts_is_divided_by_the_time_that_was_asked the same in a real run"
    "rate-of-first-client run scripted_stall_shows_in_response_times_and_not_in_service_times a rate is divided by the time of the client that ended first"
    "lost-second run scripted_stall_shows_in_response_times_and_not_in_service_times operations of a second that is over are lost"
    "lost-client run scripted_stall_shows_in_response_times_and_not_in_service_times response times of a client are lost"
    "lost-maximum run scripted_stall_shows_in_response_times_and_not_in_service_times the longest response is that of the last client"
    "coordinated-omission run scripted_stall_shows_in_response_times_and_not_in_service_times response times begin when the client is ready"
    "missed-uncounted bin rate_above_the_capacity_counts_missed_arrivals operations that never began are not counted"
    "low-percentile bin merged_histograms_equal_one_that_saw_everything a percentile is that of another share"
    "mirrored-ratio bin t_interval_of_known_log_ratios_is_the_textbook_one a ratio is upside down"
    "normal-for-t bin t_interval_of_known_log_ratios_is_the_textbook_one an interval of few repetitions is too narrow"
    "waiting-is-the-engine bin split_sums_to_the_total_and_charges_waiting_to_the_client the laboratory's waiting counts as the engine's CPU"
    "debt-of-nobody bin bytes_of_settling_are_added_to_the_last_phase_with_operations bytes that a settle writes are nobody's"
    "comma-dropped bin a_decimal_comma_is_refused_with_its_line an imported decimal comma separates thousands"
)

find_mistakes "$here/mistakes.patch" "$@"
