//! Judges the state of a reopened database. Pure functions.

use std::collections::BTreeMap;

use rumbench_core::linkbench::LinkKey;
use serde::{Deserialize, Serialize};

use super::script::{LinkState, Script};

/// Link found in the reopened database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLink {
    /// Client that owns it.
    pub client: u64,
    /// id1, link type, id2.
    pub key: (u64, u64, u64),
    /// Visibility: 1 is visible.
    pub visibility: u8,
    /// Commit that wrote its payload; `None` if no commit wrote such a payload.
    pub sequence: Option<u64>,
}

/// Violation found in a reopened database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Violation {
    /// The links are in an earlier state than the last acknowledged commit.
    AcknowledgedLost {
        /// Client that owns the links.
        client: u64,
        /// Last acknowledged commit.
        acknowledged: u64,
        /// Last commit that is present.
        present: u64,
    },
    /// A commit is gone although another client read it or it survived an earlier kill.
    SeenLost {
        /// Client that owns the links.
        client: u64,
        /// Newest commit that a reader saw.
        seen: u64,
        /// Last commit that is present.
        present: u64,
    },
    /// The links are in no state that a number of commits gives: a later commit is present, an
    /// earlier one is missing.
    Order {
        /// Client that owns the links.
        client: u64,
        /// Last acknowledged commit.
        acknowledged: u64,
        /// Links that differ from the state after the last acknowledged commit, in words.
        difference: String,
    },
    /// Links, index entries and counts do not match, or the totals are not those of the links.
    Atomicity {
        /// Error text of the engine, or the totals that differ.
        message: String,
    },
}

/// Knowledge of one client before its links are judged.
#[derive(Debug, Clone)]
pub struct Knowledge {
    /// State that the last check found; the client continued from it.
    pub start: Script,
    /// Last acknowledged commit.
    pub acknowledged: u64,
    /// Newest commit that a reader saw.
    pub seen: u64,
}

/// Judges one client's links. Returns the state to continue from, if there is one, and the
/// violations.
///
/// Without a violation the state is after the last acknowledged commit or one later: a client waits
/// for each commit, so only one can have been in progress.
pub fn judge(knowledge: &Knowledge, found: &[FoundLink]) -> (Option<Script>, Vec<Violation>) {
    let client = knowledge.start.client();
    let matching = links(found).and_then(|links| {
        let last = knowledge.acknowledged + 1;
        // Only an engine that lost data it once had can be in a state before the last check.
        newest_match(knowledge.start.clone(), last, &links)
            .or_else(|| newest_match(knowledge.start.restarted(), knowledge.start.commits, &links))
    });
    let Some(state) = matching else {
        let violation = Violation::Order {
            client,
            acknowledged: knowledge.acknowledged,
            difference: difference(&state_at(knowledge).links, found),
        };
        return (None, vec![violation]);
    };
    let mut violations = Vec::new();
    if state.commits < knowledge.acknowledged {
        let acknowledged = knowledge.acknowledged;
        violations.push(Violation::AcknowledgedLost {
            client,
            acknowledged,
            present: state.commits,
        });
    }
    if state.commits < knowledge.seen {
        let seen = knowledge.seen;
        violations.push(Violation::SeenLost {
            client,
            seen,
            present: state.commits,
        });
    }
    (Some(state), violations)
}

/// Returns the newest state from `state` up to commit `last` with exactly these links.
fn newest_match(
    mut state: Script,
    last: u64,
    links: &BTreeMap<LinkKey, LinkState>,
) -> Option<Script> {
    let mut newest = None;
    loop {
        if state.links == *links {
            newest = Some(state.clone());
        }
        if state.commits >= last {
            return newest;
        }
        state.advance();
    }
}

/// Returns the state after the last acknowledged commit.
fn state_at(knowledge: &Knowledge) -> Script {
    let mut state = knowledge.start.clone();
    while state.commits < knowledge.acknowledged {
        state.advance();
    }
    state
}

/// Returns found links by key; `None` if one has a payload that no commit wrote.
fn links(found: &[FoundLink]) -> Option<BTreeMap<LinkKey, LinkState>> {
    found
        .iter()
        .map(|link| {
            let state = LinkState {
                visibility: link.visibility,
                sequence: link.sequence?,
            };
            Some((link_key(link), state))
        })
        .collect()
}

fn link_key(found: &FoundLink) -> LinkKey {
    LinkKey {
        id1: found.key.0,
        link_type: found.key.1,
        id2: found.key.2,
    }
}

/// Describes the first links that differ.
fn difference(expected: &BTreeMap<LinkKey, LinkState>, found: &[FoundLink]) -> String {
    const MOST: usize = 8;
    let found: BTreeMap<LinkKey, &FoundLink> =
        found.iter().map(|link| (link_key(link), link)).collect();
    let mut keys: Vec<LinkKey> = expected.keys().chain(found.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let mut lines = Vec::new();
    for key in keys {
        let wanted = expected
            .get(&key)
            .map(|state| (state.visibility, Some(state.sequence)));
        let got = found.get(&key).map(|link| (link.visibility, link.sequence));
        if wanted != got {
            let text = |state: Option<(u8, Option<u64>)>| match state {
                None => "absent".to_string(),
                Some((visibility, Some(sequence))) => {
                    format!("commit {sequence}, visibility {visibility}")
                }
                Some((visibility, None)) => format!("foreign payload, visibility {visibility}"),
            };
            lines.push(format!(
                "link ({}, {}, {}): expected {}, found {}",
                key.id1,
                key.link_type,
                key.id2,
                text(wanted),
                text(got)
            ));
        }
    }
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(commits: u64) -> Script {
        let mut script = Script::new(1, 0);
        for _ in 0..commits {
            script.advance();
        }
        script
    }

    fn found(script: &Script) -> Vec<FoundLink> {
        let link = |(key, state): (&LinkKey, &LinkState)| FoundLink {
            client: 0,
            key: (key.id1, key.link_type, key.id2),
            visibility: state.visibility,
            sequence: Some(state.sequence),
        };
        script.links.iter().map(link).collect()
    }

    fn knowledge(acknowledged: u64, seen: u64) -> Knowledge {
        Knowledge {
            start: Script::new(1, 0),
            acknowledged,
            seen,
        }
    }

    #[test]
    fn acknowledged_state_and_one_commit_more_are_right() {
        for commits in [100, 101] {
            let (state, violations) = judge(&knowledge(100, 0), &found(&after(commits)));
            assert_eq!(violations, []);
            assert_eq!(state.unwrap().links, after(commits).links);
        }
    }

    #[test]
    fn earlier_state_is_a_lost_acknowledged_commit() {
        let (state, violations) = judge(&knowledge(100, 98), &found(&after(97)));
        assert_eq!(state.unwrap().commits, 97);
        assert_eq!(
            violations,
            [
                Violation::AcknowledgedLost {
                    client: 0,
                    acknowledged: 100,
                    present: 97
                },
                Violation::SeenLost {
                    client: 0,
                    seen: 98,
                    present: 97
                },
            ]
        );
    }

    #[test]
    fn state_before_the_last_check_is_a_loss_of_what_was_seen() {
        let knowledge = Knowledge {
            start: after(50),
            acknowledged: 60,
            seen: 50,
        };
        let (state, violations) = judge(&knowledge, &found(&after(20)));
        assert_eq!(state.unwrap().commits, 20);
        assert_eq!(violations.len(), 2, "{violations:?}");
    }

    #[test]
    fn one_missing_link_below_a_later_one_is_an_order_violation() {
        let mut links = found(&after(100));
        let oldest = (0..links.len()).min_by_key(|&i| links[i].sequence).unwrap();
        links.remove(oldest);
        let (state, violations) = judge(&knowledge(100, 0), &links);
        assert_eq!(state, None);
        assert!(
            matches!(violations[0], Violation::Order { .. }),
            "{violations:?}"
        );
    }

    #[test]
    fn foreign_payload_is_a_violation() {
        let mut links = found(&after(100));
        links[0].sequence = None;
        let (_, violations) = judge(&knowledge(100, 0), &links);
        let Violation::Order { difference, .. } = &violations[0] else {
            panic!("{violations:?}");
        };
        assert!(difference.contains("foreign payload"), "{difference}");
    }
}
