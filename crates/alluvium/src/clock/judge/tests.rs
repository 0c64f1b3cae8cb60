//! Table of cases: events on the two clocks, and the judgment that each must lead to.

use super::*;

const MINUTE: u64 = 60 * 1000;
const DAY: u64 = 24 * 60 * MINUTE;
const YEAR: u64 = 365 * DAY;
/// Some day of these years.
const NOW: u64 = 56 * YEAR;

/// Events before a reading, and the judgment that must follow.
enum Step {
    /// Both clocks advance.
    Pass(u64),
    /// The wall clock is set by this many milliseconds.
    Set(i64),
    /// Reads use the wall clock, and get its time.
    Wall,
    /// Reads use the wall clock, but already got this later time, relative to `NOW`.
    Stand(i64),
    /// Reads use the boot-time clock and get this time, relative to `NOW`.
    Boot(i64),
    /// The last judgment reported a jump.
    Jump,
    /// The last judgment reported that the stored time is ahead.
    StoredAhead,
    /// The confirmed time is this one, relative to `NOW`.
    Confirmed(i64),
    /// The confirmed time is the one that the wall clock shows.
    ConfirmedNow,
}

use Step::*;

/// Plays the steps on a machine with a wall clock that shows `NOW` a minute after its start, and a
/// database with this stored time.
fn play(name: &str, stored_ms: u64, steps: &[Step]) {
    let mut judge = Judge::new(stored_ms);
    let mut reading = Reading {
        wall_ms: NOW,
        boot_ms: MINUTE,
    };
    let mut told = (false, false);
    let at = |relative: i64| NOW.saturating_add_signed(relative);
    for (number, step) in steps.iter().enumerate() {
        let name = format!("{name}, step {number}");
        match step {
            Pass(ms) => {
                reading.wall_ms += ms;
                reading.boot_ms += ms;
            }
            Set(by) => reading.wall_ms = reading.wall_ms.saturating_add_signed(*by),
            Wall | Stand(_) | Boot(_) => {
                let judged = judge.observe(reading);
                let (source, time_ms) = match step {
                    Stand(relative) => (Source::Wall, at(*relative)),
                    Boot(relative) => (judged.source, at(*relative)),
                    _ => (Source::Wall, reading.wall_ms),
                };
                assert_eq!(judged.time_ms, time_ms, "{name}");
                assert_eq!(judged.source, source, "{name}");
                if matches!(step, Boot(_)) {
                    let ahead = i128::from(time_ms) - i128::from(reading.boot_ms);
                    assert_eq!(judged.source, Source::Boot(ahead as i64), "{name}");
                }
                assert!(judged.time_ms >= judge.confirmed_ms(), "{name}");
                let untold = (false, false);
                assert_eq!(told, untold, "{name}: an event that no step expects");
                told = (judged.jumped, judged.stored_ahead_ms.is_some());
            }
            Jump => assert!(std::mem::take(&mut told.0), "{name}: no jump"),
            StoredAhead => assert!(std::mem::take(&mut told.1), "{name}: not told"),
            Confirmed(relative) => assert_eq!(judge.confirmed_ms(), at(*relative), "{name}"),
            ConfirmedNow => assert_eq!(judge.confirmed_ms(), reading.wall_ms, "{name}"),
        }
    }
    assert_eq!(told, (false, false), "{name}: an event at the end");
}

fn ms(time: u64) -> i64 {
    i64::try_from(time).expect("a time of the test")
}

/// Both clocks until the wall clock is confirmed.
const CONFIRM: [Step; 4] = [Wall, Pass(CONFIRM_MS), Wall, ConfirmedNow];

fn after_confirmation(name: &str, steps: Vec<Step>) {
    let steps: Vec<Step> = CONFIRM.into_iter().chain(steps).collect();
    play(name, NOW - DAY, &steps);
}

#[test]
fn a_time_is_confirmed_after_ten_minutes_of_common_advance_and_then_with_each_reading() {
    let stored = [Confirmed(0), Wall];
    play("new", NOW, &stored);
    let steps = [
        Wall,
        Pass(CONFIRM_MS - 1),
        Wall,
        Confirmed(-ms(DAY)),
        Pass(1),
        Wall,
        ConfirmedNow,
        Pass(3),
        Wall,
        ConfirmedNow,
        Pass(30 * DAY),
        Wall,
        ConfirmedNow,
    ];
    play("running", NOW - DAY, &steps);
}

#[test]
fn a_glitch_of_one_reading_changes_neither_reads_nor_the_confirmed_time() {
    for glitch in [ms(80 * YEAR), -ms(50 * YEAR), ms(2 * DAY)] {
        let confirmed = ms(CONFIRM_MS);
        after_confirmation(
            "glitch",
            vec![
                Pass(MINUTE),
                Set(glitch),
                Boot(confirmed + ms(MINUTE)),
                Jump,
                Confirmed(confirmed),
                Set(-glitch),
                Pass(1),
                Wall,
                Jump,
                Confirmed(confirmed),
                Pass(CONFIRM_MS),
                Wall,
                ConfirmedNow,
            ],
        );
    }
}

#[test]
fn a_jump_forward_for_good_is_adopted_after_ten_minutes() {
    let confirmed = ms(CONFIRM_MS);
    after_confirmation(
        "forward",
        vec![
            Set(ms(2 * DAY)),
            Boot(confirmed),
            Jump,
            Pass(CONFIRM_MS - 1),
            Boot(confirmed + ms(CONFIRM_MS) - 1),
            Confirmed(confirmed),
            Pass(1),
            Wall,
            ConfirmedNow,
        ],
    );
}

#[test]
fn after_a_jump_back_for_good_the_time_goes_on_for_ten_minutes_and_then_stands() {
    let confirmed = ms(CONFIRM_MS);
    let latest = confirmed + ms(CONFIRM_MS) - 1;
    after_confirmation(
        "back",
        vec![
            Set(-ms(2 * DAY)),
            Boot(confirmed),
            Jump,
            Pass(CONFIRM_MS - 1),
            Boot(latest),
            Pass(1),
            Stand(latest),
            Confirmed(confirmed),
            Pass(DAY),
            Stand(latest),
            Confirmed(confirmed),
            Pass(DAY),
            Wall,
            ConfirmedNow,
        ],
    );
}

#[test]
fn a_step_of_less_than_a_day_is_followed_at_once_and_confirmed_later() {
    let confirmed = ms(CONFIRM_MS);
    after_confirmation(
        "forward",
        vec![
            Set(ms(DAY)),
            Wall,
            Confirmed(confirmed),
            Pass(CONFIRM_MS),
            Wall,
            ConfirmedNow,
        ],
    );
    after_confirmation(
        "back",
        vec![
            Set(-60_000),
            Stand(confirmed),
            Pass(59_999),
            Stand(confirmed),
            Pass(2),
            Wall,
            Confirmed(confirmed),
            Pass(CONFIRM_MS),
            Wall,
            ConfirmedNow,
        ],
    );
}

#[test]
fn steps_of_a_few_seconds_do_not_hold_confirmation_off() {
    let confirmed = ms(CONFIRM_MS);
    after_confirmation(
        "slight",
        vec![Pass(MINUTE), Set(ms(TOGETHER_MS)), Wall, ConfirmedNow],
    );
    after_confirmation(
        "more",
        vec![
            Pass(MINUTE),
            Set(ms(TOGETHER_MS) + 1),
            Wall,
            Confirmed(confirmed),
        ],
    );
}

#[test]
fn suspend_is_no_jump() {
    after_confirmation("suspend", vec![Pass(3 * YEAR), Wall, ConfirmedNow]);
    play("before", 0, &[Wall, Pass(3 * DAY), Wall, ConfirmedNow]);
}

#[test]
fn a_clock_that_ntp_corrects_from_1970_is_followed_at_once_and_confirmed_later() {
    // The wall clock of this machine began at 1970.
    let from_1970 = -ms(NOW);
    let corrected = |first: Vec<Step>| -> Vec<Step> {
        let then = [
            Pass(MINUTE),
            Set(-from_1970),
            Wall,
            Jump,
            Pass(CONFIRM_MS - 1),
            Wall,
            Pass(1),
            Wall,
            ConfirmedNow,
        ];
        first.into_iter().chain(then).collect()
    };
    play("new", 0, &corrected(vec![Set(from_1970), Wall]));
    let stored = NOW - 3 * DAY;
    let first = vec![Set(from_1970), Boot(-ms(3 * DAY)), StoredAhead];
    play("old", stored, &corrected(first));
}

#[test]
fn a_clock_that_stays_in_1970_is_confirmed_where_nothing_later_was() {
    let from_1970 = -ms(NOW);
    let steps = [Set(from_1970), Wall, Pass(CONFIRM_MS), Wall, ConfirmedNow];
    play("new", 0, &steps);
    let steps = [
        Set(from_1970),
        Boot(0),
        StoredAhead,
        Pass(MINUTE),
        Boot(ms(MINUTE)),
        Pass(CONFIRM_MS),
        Stand(ms(MINUTE)),
        Confirmed(0),
    ];
    play("old", NOW, &steps);
}

#[test]
fn a_database_that_was_closed_for_a_year_is_read_by_the_wall_clock_and_drops_nothing_before_it_is_confirmed()
 {
    let stored = NOW - YEAR;
    let steps = [
        Wall,
        Confirmed(-ms(YEAR)),
        Pass(CONFIRM_MS - 1),
        Wall,
        Confirmed(-ms(YEAR)),
        Pass(1),
        Wall,
        ConfirmedNow,
    ];
    play("a year", stored, &steps);
}

#[test]
fn a_glitch_before_the_first_confirmation_is_followed_and_over_when_it_is_over() {
    let glitch = ms(80 * YEAR);
    let steps = [
        Wall,
        Pass(MINUTE),
        Set(glitch),
        Wall,
        Jump,
        Confirmed(-ms(DAY)),
        Set(-glitch),
        Wall,
        Jump,
        Pass(CONFIRM_MS),
        Wall,
        ConfirmedNow,
    ];
    play("later", NOW - DAY, &steps);
    let steps = [Set(glitch), Wall, Set(-glitch), Wall, Jump, Confirmed(0)];
    play("at the opening", NOW, &steps);
}

#[test]
fn a_jump_back_before_the_first_confirmation_is_followed_also_after_two_days_without_a_reading() {
    let back = -ms(3 * DAY);
    let steps = [Wall, Set(back), Pass(2 * DAY + 2 * DAY / 24), Wall, Jump];
    play("back", 0, &steps);
}

#[test]
fn openings_of_less_than_ten_minutes_confirm_nothing() {
    for opening in 0..3 {
        let steps = [Pass(opening * DAY), Wall, Pass(9 * MINUTE), Wall];
        play("short", NOW, &steps);
        let mut judge = Judge::new(NOW);
        judge.observe(Reading {
            wall_ms: NOW + opening * DAY,
            boot_ms: 7,
        });
        assert_eq!(judge.confirmed_ms(), NOW);
    }
}

#[test]
fn a_stored_time_of_a_wrong_clock_is_told_and_held() {
    let stored = NOW + 80 * YEAR;
    let ahead = ms(80 * YEAR);
    let steps = [
        Boot(ahead),
        StoredAhead,
        Pass(MINUTE),
        Boot(ahead + ms(MINUTE)),
        Confirmed(ahead),
    ];
    play("eighty years", stored, &steps);
    let steps = [Stand(ms(DAY)), Confirmed(ms(DAY))];
    play("a day", NOW + DAY, &steps);
}

#[test]
fn the_time_stands_when_the_wall_clock_comes_within_a_day_of_a_stored_time_ahead() {
    let ahead = ms(DAY + MINUTE);
    let steps = [
        Boot(ahead),
        StoredAhead,
        Pass(30_000),
        Boot(ahead + 30_000),
        Pass(60_000),
        Stand(ahead + 30_000),
        Confirmed(ahead),
    ];
    play("nearer", NOW + DAY + MINUTE, &steps);
}

#[test]
fn times_of_a_damaged_manifest_and_of_absurd_clocks_saturate() {
    let edges = [0, 1, DAY, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for stored in edges {
        let mut judge = Judge::new(stored);
        for wall_ms in edges {
            for boot_ms in edges {
                let judged = judge.observe(Reading { wall_ms, boot_ms });
                assert!(judged.time_ms >= judge.confirmed_ms());
            }
        }
    }
}
