//! Tests of the reliability of verdicts on recordings of `null` with an injected delay: a real one
//! and synthetic ones from seeds.
//!
//! A synthetic recording has the properties of a real one: a drift of the machine shared by both
//! trials of a pair, and independent noise of each trial. From the real recording each comparison
//! draws five of its fifty repetitions.

use super::*;
use crate::report::sample;

/// Number of comparisons of each kind.
const COMPARISONS: u64 = 200;
/// Standard deviation of the drift between repetitions, as a share.
const DRIFT: f64 = 0.10;
/// Standard deviation of one trial's own noise, as a share.
const NOISE: f64 = 0.025;
/// Time of one operation of `null` with its delay, in microseconds.
const OPERATION_US: f64 = 100.0;

/// Uniform numbers between 0 and 1 from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a normally distributed number (Box-Muller).
    fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform().max(f64::MIN_POSITIVE), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// Returns two recordings of five interleaved repetitions; an operation of the second takes
/// `slower` times as long.
fn recorded(seed: u64, slower: f64) -> [Vec<TrialResult>; 2] {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let one = sample::suite().trials.remove(0);
    let mut sides = [Vec::new(), Vec::new()];
    for repetition in 1..=5 {
        let drift = (random.normal() * DRIFT).exp();
        for (side, delay) in sides.iter_mut().zip([1.0, slower]) {
            let us = OPERATION_US * delay * drift * (random.normal() * NOISE).exp();
            let mut trial = TrialResult {
                engine: "null".to_string(),
                repetition,
                ..one.clone()
            };
            trial.phases[1].ops_per_s = Some(1e6 / us);
            trial.phases[1].cpu_us_per_op.as_mut().unwrap().total =
                us * (random.normal() * NOISE).exp();
            side.push(trial);
        }
    }
    sides
}

/// Operations per second of `null` with 500 us and with 560 us of delay, by repetition. The file
/// describes the runs.
const REALLY_RAN: &str = include_str!("null_trials.txt");

fn really_ran() -> Vec<[f64; 2]> {
    let lines = REALLY_RAN.lines().filter(|line| !line.starts_with('#'));
    let numbers = |line: &str| -> Vec<f64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    };
    let pairs = lines.map(|line| <[f64; 2]>::try_from(numbers(line)).unwrap());
    pairs.collect()
}

/// Returns trials with these throughputs, as repetitions 1 to 5.
fn trials(per_s: impl Iterator<Item = f64>) -> Vec<TrialResult> {
    let one = sample::suite().trials.remove(0);
    let trials = (1..).zip(per_s).map(|(repetition, per_s)| {
        let mut trial = TrialResult {
            engine: "null".to_string(),
            repetition,
            ..one.clone()
        };
        trial.phases[1].ops_per_s = Some(per_s);
        trial
    });
    trials.collect()
}

/// Returns the number of comparisons with a wanted verdict. Each uses five pairs, drawn from the
/// recording by its seed.
fn drawn(pairs: &[[f64; 2]], wanted: &[Verdict]) -> usize {
    let judged = (1..=COMPARISONS).map(|seed| {
        let mut random = Random(seed);
        let mut left = pairs.to_vec();
        let drawn: Vec<[f64; 2]> = (0..5)
            .map(|_| left.swap_remove((random.uniform() * left.len() as f64) as usize))
            .collect();
        let [base, new] = [0, 1].map(|side| trials(drawn.iter().map(|pair| pair[side])));
        let rows = compare(
            "null",
            &base.iter().collect::<Vec<_>>(),
            &new.iter().collect::<Vec<_>>(),
        );
        let mut rows = rows.into_iter();
        let row = rows.find(|row| row.phase == "request" && row.metric == "ops_per_s");
        row.expect("both sides have it").verdict
    });
    judged.filter(|verdict| wanted.contains(verdict)).count()
}

#[test]
fn of_trials_that_really_ran_equal_ones_hardly_ever_get_a_verdict() {
    // Neighbors in one series are as far apart in time as the two trials of a pair. Their order
    // alternates, to be independent of time.
    let ran = really_ran();
    let neighbors = ran.chunks_exact(2).enumerate();
    let equal: Vec<[f64; 2]> = neighbors
        .flat_map(|(i, pair)| {
            let side = |side: usize| {
                let mut both = [pair[0][side], pair[1][side]];
                if (i + side).is_multiple_of(2) {
                    both.reverse();
                }
                both
            };
            // The slower series is included: it is as equal to itself.
            [side(0), side(1)]
        })
        .collect();
    let wrong = drawn(&equal, &[Verdict::Better, Verdict::Worse]);
    assert!(
        wrong * 100 < COMPARISONS as usize * 5,
        "{wrong} of {COMPARISONS}"
    );
}

#[test]
fn of_trials_that_really_ran_a_slower_one_is_found_in_more_than_nine_of_ten() {
    let ran = really_ran();
    let slower: f64 = ran.iter().map(|[base, new]| new / base).sum::<f64>() / ran.len() as f64;
    assert!((0.88..0.92).contains(&slower), "a tenth slower: {slower}");
    let found = drawn(&ran, &[Verdict::Worse]);
    assert!(
        found * 100 > COMPARISONS as usize * 90,
        "{found} of {COMPARISONS}"
    );
    assert_eq!(drawn(&ran, &[Verdict::Better]), 0);
}

/// Returns the number of comparisons that gave the wanted verdict on one number.
fn verdicts(metric: &str, slower: f64, wanted: Verdict) -> usize {
    let judged = (1..=COMPARISONS).map(|seed| {
        let [base, new] = recorded(seed, slower);
        let rows = compare(
            "null",
            &base.iter().collect::<Vec<_>>(),
            &new.iter().collect::<Vec<_>>(),
        );
        let row = rows
            .into_iter()
            .find(|row| row.phase == "request" && row.metric == metric);
        row.expect("both sides have it").verdict
    });
    judged.filter(|verdict| *verdict == wanted).count()
}

#[test]
fn equal_engines_get_a_verdict_in_fewer_than_five_of_a_hundred_comparisons() {
    for metric in ["ops_per_s", "cpu_us_per_op.total"] {
        let wrong = verdicts(metric, 1.0, Verdict::Better) + verdicts(metric, 1.0, Verdict::Worse);
        assert!(
            wrong * 100 < COMPARISONS as usize * 5,
            "{metric}: {wrong} of {COMPARISONS}"
        );
    }
}

#[test]
fn an_engine_that_is_ten_percent_slower_is_found_in_more_than_nine_of_ten_comparisons() {
    let slower = 1.0 / 0.9;
    let found = verdicts("ops_per_s", slower, Verdict::Worse);
    assert!(
        found * 100 > COMPARISONS as usize * 90,
        "{found} of {COMPARISONS}"
    );
    assert_eq!(verdicts("ops_per_s", slower, Verdict::Better), 0);
}

#[test]
fn drift_that_both_share_hides_nothing() {
    // Without pairs the drift alone would be four times the noise.
    let [base, new] = recorded(1, 1.25);
    let rows = compare(
        "null",
        &base.iter().collect::<Vec<_>>(),
        &new.iter().collect::<Vec<_>>(),
    );
    let row = rows
        .iter()
        .find(|row| row.phase == "request" && row.metric == "ops_per_s")
        .unwrap();
    assert_eq!(row.verdict, Verdict::Worse);
    assert!((row.ratio / 0.8 - 1.0).abs() < 0.05, "{row:?}");
}
