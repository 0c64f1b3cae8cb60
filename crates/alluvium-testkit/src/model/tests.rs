//! Tests of the model: versions, scans, batches, keyspaces, and states found after a crash.

use super::*;
use crate::op::{Generator, KeyShape, Op, Weights};
use crate::random::Seeded;

fn put(key: &str, value: &str) -> Write {
    Write::Put(key.into(), value.into())
}

fn delete(key: &str) -> Write {
    Write::Delete(key.into())
}

/// Makes a model with keyspace `a` (commit 1) and one commit for each write.
fn model(writes: &[Write]) -> Model {
    let mut model = Model::new();
    model.create_keyspace("a");
    for write in writes {
        model.commit([("a", write)]);
    }
    model
}

fn get(model: &Model, key: &str, at: Commit) -> Option<String> {
    let value = model.get("a", key.as_bytes(), at)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[test]
fn a_snapshot_sees_the_versions_of_its_time() {
    let model = model(&[put("k", "1"), put("k", "2"), delete("k")]);
    let seen = [1, 2, 3, 4].map(|at| get(&model, "k", at));
    assert_eq!(seen, [None, Some("1".into()), Some("2".into()), None]);
}

#[test]
fn later_writes_of_a_batch_override_earlier_ones_in_one_commit() {
    let mut model = model(&[put("b", "old")]);
    let range = Write::DeleteRange("a".into(), "c".into());
    let writes = [
        put("a", "1"),
        range,
        put("b", "2"),
        Write::Insert("a".into(), "3".into()),
    ];
    let commit = model.commit(writes.iter().map(|write| ("a", write)));
    assert_eq!(commit, 3);
    assert_eq!(get(&model, "a", 3).as_deref(), Some("3"));
    assert_eq!(get(&model, "b", 3).as_deref(), Some("2"));
    assert_eq!(get(&model, "b", 2).as_deref(), Some("old"));
}

#[test]
fn a_range_delete_spares_its_end_and_older_snapshots() {
    let range = Write::DeleteRange("a".into(), "c".into());
    let model = model(&[put("a", "1"), put("b", "2"), put("c", "3"), range]);
    assert_eq!(get(&model, "b", 5), None);
    assert_eq!(get(&model, "c", 5).as_deref(), Some("3"));
    assert_eq!(get(&model, "b", 4).as_deref(), Some("2"));
}

#[test]
#[should_panic(expected = "insert of a key that exists")]
fn an_insert_of_an_existing_key_is_refused() {
    model(&[put("k", "1"), Write::Insert("k".into(), "2".into())]);
}

#[test]
fn scans_obey_bounds_direction_limit_and_snapshot() {
    let model = model(&[put("a", "1"), put("b", "2"), put("c", "3"), delete("b")]);
    let keys = |range, direction, limit, at| {
        let rows = model.scan("a", range, direction, limit, at);
        let keys = rows.iter().map(|(key, _)| String::from_utf8_lossy(key));
        keys.collect::<Vec<_>>().join(" ")
    };
    let (all, b) = ((Bound::Unbounded, Bound::Unbounded), &b"b"[..]);
    assert_eq!(keys(all, Direction::Forward, 9, 5), "a c");
    assert_eq!(keys(all, Direction::Backward, 9, 4), "c b a");
    assert_eq!(keys(all, Direction::Backward, 1, 5), "c");
    assert_eq!(
        keys(
            (Bound::Included(b), Bound::Unbounded),
            Direction::Forward,
            9,
            4
        ),
        "b c"
    );
    assert_eq!(
        keys(
            (Bound::Unbounded, Bound::Excluded(b)),
            Direction::Forward,
            9,
            4
        ),
        "a"
    );
    assert_eq!(
        keys(
            (Bound::Excluded(b), Bound::Excluded(b)),
            Direction::Forward,
            9,
            4
        ),
        ""
    );
    assert_eq!(
        keys(
            (Bound::Excluded(b), Bound::Included(b"a")),
            Direction::Forward,
            9,
            4
        ),
        ""
    );
}

#[test]
fn a_dropped_keyspace_comes_back_empty() {
    let mut model = model(&[put("k", "1")]);
    assert_eq!(model.drop_keyspace("a"), 3);
    assert!(model.keyspaces().is_empty());
    model.create_keyspace("a");
    assert_eq!(get(&model, "k", 2).as_deref(), Some("1"));
    assert_eq!(get(&model, "k", 3), None);
    assert_eq!(get(&model, "k", 4), None);
    assert_eq!(model.state(), State::from([("a".to_string(), Rows::new())]));
}

#[test]
fn every_earlier_state_is_found_as_a_prefix() {
    let mut model = model(&[put("k", "1"), put("l", "2"), delete("k")]);
    // Without a second keyspace the last state would be that of commit 0.
    model.create_keyspace("b");
    model.drop_keyspace("a");
    for commit in 0..=model.last_commit() {
        assert_eq!(model.find_prefix(&model.state_at(commit), 0), Ok(commit));
    }
}

#[test]
fn a_state_that_lost_promised_commits_is_refused() {
    let model = model(&[put("k", "1"), put("l", "2")]);
    let mismatch = model.find_prefix(&model.state_at(2), 3).unwrap_err();
    assert_eq!(mismatch.lost_back_to, Some(2));
    assert_eq!(
        mismatch.to_string(),
        "promised commits are lost: the state is that of commit 2"
    );
}

#[test]
fn a_state_with_a_hole_belongs_to_no_commit() {
    let model = model(&[put("k", "1"), put("l", "2")]);
    let mut state = model.state();
    state.get_mut("a").map(|rows| rows.remove(&b"k"[..]));
    let mismatch = model.find_prefix(&state, 0).unwrap_err();
    assert_eq!((mismatch.closest, mismatch.differences), (3, 1));
    assert_eq!(mismatch.shown, ["a \"k\": expected \"1\", found nothing"]);
}

#[test]
fn after_a_rewind_the_model_goes_on_from_the_older_commit() {
    let mut model = model(&[put("k", "1"), put("k", "2")]);
    model.drop_keyspace("a");
    model.create_keyspace("b");
    model.rewind(2);
    assert_eq!(model.keyspaces(), ["a"]);
    assert_eq!(model.commit([("a", &put("k", "3"))]), 3);
    assert_eq!(get(&model, "k", 3).as_deref(), Some("3"));
    assert_eq!(get(&model, "k", 2).as_deref(), Some("1"));
}

/// The walk back must agree with a comparison of whole states, on histories with every kind of
/// commit.
#[test]
fn prefixes_of_random_histories_are_found() {
    Seeded::run("prefixes_of_random_histories_are_found", 50, |rng| {
        let weights = Weights {
            create_keyspace: 3,
            drop_keyspace: 2,
            delete_range: 2,
            ..Weights::default()
        };
        let shape = KeyShape {
            distinct: 10,
            ..KeyShape::default()
        };
        let mut generator = Generator::new(weights, shape, rng);
        let mut model = Model::new();
        for _ in 0..100 {
            generator.next(rng, &model).apply(&mut model);
        }
        let at = rng.below(model.last_commit() as usize + 1) as Commit;
        let state = model.state_at(at);
        let states = (0..=model.last_commit()).filter(|commit| model.state_at(*commit) == state);
        assert_eq!(model.find_prefix(&state, 0).ok(), states.max());
        model.rewind(at);
        assert_eq!(model.state(), state);
    });
}

#[test]
fn reads_change_nothing() {
    let mut model = model(&[put("k", "1")]);
    let keyspace = "a".to_string();
    let read = Op::Get {
        keyspace,
        key: b"k".to_vec(),
        snapshot: None,
    };
    read.apply(&mut model);
    assert_eq!(model.last_commit(), 2);
}
