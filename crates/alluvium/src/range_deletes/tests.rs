//! Both forms compared with a list of range deletes that is searched linearly; memory of very many
//! range deletes.

use alluvium_testkit::random::Rng;

use super::*;

/// One range delete.
type Plain = (Vec<u8>, Vec<u8>, SeqNo);

fn plain(text: &str) -> Vec<Plain> {
    let one = |word: &str| {
        let (keys, seqno) = word.split_once('@').expect("a seqno");
        let (start, end) = keys.split_once('-').expect("a range");
        let seqno = seqno.parse().expect("a number");
        (start.into(), end.into(), seqno)
    };
    text.split_whitespace().map(one).collect()
}

fn fragments(all: &[Plain], points: &[SeqNo]) -> RangeDeletes {
    let mut fragmenter = Fragmenter::default();
    for (start, end, seqno) in all {
        fragmenter.add((start, end), *seqno);
    }
    fragmenter.finish(points)
}

fn ranges(text: &str) -> RangeDeletes {
    fragments(&plain(text), &[])
}

fn history(all: &[Plain]) -> RangeHistory {
    let mut history = RangeHistory::default();
    for commit in all.chunk_by(|a, b| a.2 == b.2) {
        let ranges = commit.iter().map(|(start, end, _)| (&start[..], &end[..]));
        history.add(ranges.collect(), commit[0].2);
    }
    history
}

fn shown(ranges: &RangeDeletes) -> String {
    let words = ranges.iter().map(|f| {
        let seqnos: Vec<String> = f.seqnos.iter().map(u64::to_string).collect();
        let (start, end) = (f.start.escape_ascii(), f.end.escape_ascii());
        format!("{start}-{end}@{}", seqnos.join(","))
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn overlapping_ranges_are_cut_where_one_begins_or_ends() {
    for (added, expected) in [
        ("b-d@1", "b-d@1"),
        ("b-b@1 d-a@2", ""),
        ("b-d@1 b-d@3 b-d@2", "b-d@3,2,1"),
        ("b-d@1 d-f@2", "b-d@1 d-f@2"),
        ("b-d@1 d-f@1", "b-f@1"),
        ("b-f@1 c-d@2", "b-c@1 c-d@2,1 d-f@1"),
        ("c-d@1 b-f@2", "b-c@2 c-d@2,1 d-f@2"),
        ("b-d@1 e-g@2 c-f@3", "b-c@1 c-d@3,1 d-e@3 e-f@3,2 f-g@2"),
        ("b-d@1 b-d@1", "b-d@1"),
    ] {
        assert_eq!(shown(&ranges(added)), expected, "{added}");
    }
}

#[test]
fn fragments_that_are_malformed_or_out_of_order_are_refused() {
    let mut ranges = ranges("d-f@5");
    for (start, end, seqnos) in [
        (&b"e"[..], &b"g"[..], &[1][..]),
        (b"f", b"f", &[1]),
        (b"f", b"g", &[]),
        (b"f", b"g", &[1, 2]),
        (b"f", b"g", &[2, 2]),
    ] {
        assert!(!ranges.push(start, end, seqnos), "{start:?} {seqnos:?}");
    }
    assert!(ranges.push(b"f", b"g", &[2, 1]));
    assert_eq!(shown(&ranges), "d-f@5 f-g@2,1");
}

#[test]
fn a_reader_meets_the_newest_range_delete_at_its_point() {
    let all = plain("b-f@5 c-d@9");
    let (fragments, history) = (fragments(&all, &[]), history(&all));
    for (key, point, expected) in [
        ("a", 10, 0),
        ("b", 4, 0),
        ("b", 5, 5),
        ("c", 8, 5),
        ("c", 9, 9),
        ("d", 9, 5),
        ("f", 9, 0),
    ] {
        let key = key.as_bytes();
        assert_eq!(
            fragments.deleted_at(key, point),
            expected,
            "{key:?} at {point}"
        );
        assert_eq!(
            history.deleted_at(key, point),
            expected,
            "{key:?} at {point}"
        );
    }
}

#[test]
fn clipping_keeps_what_lies_inside() {
    let ranges = ranges("b-d@1 e-g@2");
    let clip = |low: &str, high| shown(&ranges.clipped(low.as_bytes(), high));
    assert_eq!(clip("", None), "b-d@1 e-g@2");
    assert_eq!(clip("c", Some(b"f")), "c-d@1 e-f@2");
    assert_eq!(clip("d", Some(b"e")), "");
    assert_eq!(clip("f", None), "f-g@2");
    assert!(!ranges.reaches_into(b"d", Some(b"e")) && ranges.reaches_into(b"d", Some(b"f")));
    assert!(!ranges.reaches_into(b"g", None) && ranges.reaches_into(b"f", None));
}

#[test]
fn fragments_keep_only_seqnos_that_read_points_distinguish() {
    let all = plain("b-f@1 c-d@2 b-f@5");
    let thinned = |points: &[SeqNo]| shown(&fragments(&all, points));
    assert_eq!(thinned(&[9]), "b-f@5");
    assert_eq!(thinned(&[2, 9]), "b-c@5,1 c-d@5,2 d-f@5,1");
    assert_eq!(thinned(&[1, 9]), "b-f@5,1");
    assert_eq!(thinned(&[3, 4, 9]), "b-c@5,1 c-d@5,2 d-f@5,1");
    assert_eq!(thinned(&[1, 2, 9]), "b-c@5,1 c-d@5,2,1 d-f@5,1");
    // Range deletes above the last point are not visible yet, so a reader at any point may need all
    // seqnos.
    assert_eq!(thinned(&[1]), "b-c@5,1 c-d@5,2,1 d-f@5,1");
    assert_eq!(thinned(&[0]), "b-c@5,1 c-d@5,2,1 d-f@5,1");
}

#[test]
fn only_a_gapless_cover_above_the_newest_entry_hides_all() {
    let ranges = ranges("b-d@5 d-f@7 g-k@9");
    for (first, last, newest, horizon, expected) in [
        ("b", "e", 4, 9, true),
        ("b", "f", 4, 9, false),
        ("c", "h", 4, 9, false),
        ("b", "e", 5, 9, false),
        ("d", "e", 6, 9, true),
        ("d", "e", 6, 6, false),
        ("a", "c", 4, 9, false),
        ("k", "l", 4, 9, false),
    ] {
        let found = ranges.hide_all(first.as_bytes(), last.as_bytes(), newest, horizon);
        assert_eq!(found, expected, "{first}..={last} with {newest}");
    }
}

#[test]
fn ranges_that_overlap_or_touch_are_one() {
    for (text, expected) in [
        ("", ""),
        ("d-f@1 a-c@1", "a-c d-f"),
        ("a-c@1 b-d@1 d-e@1 f-g@1", "a-e f-g"),
        ("a-z@1 b-c@1 d-e@1", "a-z"),
    ] {
        let all = plain(text);
        let ranges = all.iter().map(|(start, end, _)| (&start[..], &end[..]));
        let joined = union(ranges.collect());
        let words = joined
            .iter()
            .map(|(start, end)| format!("{}-{}", start.escape_ascii(), end.escape_ascii()));
        assert_eq!(words.collect::<Vec<_>>().join(" "), expected, "{text}");
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Returns range deletes over few keys: some commits have several, some have very many.
fn random(rng: &mut Rng, commits: u64, keys: usize) -> Vec<Plain> {
    let mut all = Vec::new();
    for seqno in 1..=commits {
        let count = *rng.pick(&[1, 1, 1, 1, 2, 3, 20, 200]);
        for _ in 0..count {
            let (a, b) = (rng.below(keys), rng.below(keys));
            let nested = rng.below(4) == 0;
            let start = if nested { 0 } else { a.min(b) };
            all.push((key(start), key(a.max(b)), 2 * seqno));
        }
    }
    all
}

/// Returns the newest range delete over `key` at a read point, by a linear search.
fn newest(all: &[Plain], key: &[u8], point: SeqNo) -> SeqNo {
    let covering = all
        .iter()
        .filter(|(start, end, seqno)| &start[..] <= key && key < &end[..] && *seqno <= point);
    covering.map(|(_, _, seqno)| *seqno).max().unwrap_or(0)
}

#[test]
fn random_histories_answer_as_a_list_does() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (commits, keys) = (*rng.pick(&[5, 40, 400]), *rng.pick(&[10, 300, 5000]));
        let all = random(&mut rng, commits, keys);
        let mut history = history(&all);
        if rng.percent(50) {
            history.join_all();
        }
        let every = fragments(&all, &[]);
        let points: Vec<SeqNo> = (0..5)
            .map(|_| rng.below(2 * commits as usize) as u64)
            .collect();
        let mut told_apart = [&points[..], &[2 * commits]].concat();
        told_apart.sort_unstable();
        told_apart.dedup();
        let thinned = fragments(&all, &told_apart);
        for _ in 0..300 {
            let (key, end) = (key(rng.below(keys)), key(rng.below(keys)));
            let point = 1 + rng.below(2 * commits as usize) as u64;
            let expected = newest(&all, &key, point);
            assert_eq!(
                history.deleted_at(&key, point),
                expected,
                "{seed} {key:?} {point}"
            );
            assert_eq!(
                every.deleted_at(&key, point),
                expected,
                "{seed} {key:?} {point}"
            );
            if let Some(found) = history.find(&key, point) {
                assert!(found.start <= &key[..] && &key[..] < found.end);
                let whole = |at: &[u8]| newest(&all, at, point) >= found.seqno;
                assert!(whole(found.start), "{seed}: all of the range is deleted");
            }
            for point in &told_apart {
                let expected = newest(&all, &key, *point);
                assert_eq!(thinned.deleted_at(&key, *point), expected, "{seed} {point}");
            }
            let range = ((&key[..]).min(&end), (&key[..]).max(&end));
            if range.0 < range.1 {
                check_newer_in(&all, &history, &every, range, point);
            }
        }
    }
}

fn check_newer_in(
    all: &[Plain],
    history: &RangeHistory,
    every: &RangeDeletes,
    (start, end): KeyRange<'_>,
    snapshot: SeqNo,
) {
    let meets = |(low, high, seqno): &Plain| {
        let first = (&low[..]).max(start);
        *seqno > snapshot && first < &high[..] && first < end
    };
    let expected = all.iter().any(meets);
    for found in [
        history.newer_in(start, Some(end), snapshot),
        every.newer_in(start, Some(end), snapshot),
    ] {
        assert_eq!(found.is_some(), expected, "{start:?} {end:?} {snapshot}");
        if let Some(key) = found {
            assert!(start <= &key[..] && &key[..] < end);
            assert!(newest(all, &key, SeqNo::MAX) > snapshot);
        }
    }
}

#[test]
fn a_copy_of_a_history_stays_as_it_was() {
    let all = random(&mut Rng::new(3), 300, 1000);
    let mut grown = RangeHistory::default();
    let mut copies = Vec::new();
    for commit in all.chunk_by(|a, b| a.2 == b.2) {
        let ranges = commit.iter().map(|(start, end, _)| (&start[..], &end[..]));
        grown.add(ranges.collect(), commit[0].2);
        copies.push((commit[0].2, grown.clone()));
    }
    for (seqno, copy) in copies {
        assert!(copy.seqno_range().expect("not empty").1 <= seqno);
        for n in (0..1000).step_by(37) {
            let expected = newest(&all, &key(n), seqno);
            assert_eq!(copy.deleted_at(&key(n), SeqNo::MAX), expected);
        }
    }
}

/// Nested, shrinking, disjoint and in one commit.
fn shapes(count: usize) -> Vec<(&'static str, Vec<Plain>)> {
    let each = |range: &dyn Fn(usize) -> (usize, usize), one: bool| {
        let all = (0..count).map(|n| {
            let (start, end) = range(n);
            (key(start), key(end), if one { 1 } else { n as u64 + 1 })
        });
        all.collect()
    };
    vec![
        ("nested", each(&|n| (0, n + 1), false)),
        ("shrinking", each(&|n| (0, count - n), false)),
        ("disjoint", each(&|n| (2 * n, 2 * n + 1), false)),
        ("batch", each(&|n| (0, n + 1), true)),
        ("disjoint batch", each(&|n| (2 * n, 2 * n + 1), true)),
    ]
}

#[test]
fn memory_grows_about_as_the_number_of_range_deletes_in_every_shape() {
    let count = 20_000;
    for (shape, all) in shapes(count) {
        let history = history(&all);
        let key_bytes = 2 * count * key(0).len();
        assert!(
            history.memory_bytes() < 20 * key_bytes,
            "{shape}: {history:?}"
        );
        let mut fragmenter = Fragmenter::default();
        fragmenter.add_history(&history);
        // One snapshot in the middle, and the present.
        let points = [count as u64 / 2, count as u64 + 1];
        let fragments = fragmenter.finish(&points);
        let most = 2 * (key_bytes + 8 * 4 * count);
        assert!(fragments.memory_bytes() < most, "{shape}");
        assert!(fragments.iter().all(|f| f.seqnos.len() <= 2), "{shape}");
        for n in (0..2 * count).step_by(997) {
            let found = fragments.deleted_at(&key(n), SeqNo::MAX);
            assert_eq!(found, newest(&all, &key(n), SeqNo::MAX), "{shape} {n}");
        }
    }
}
