//! Writes of each client: a pure function of seed, client and sequence number, with the resulting
//! state.

use std::collections::BTreeMap;

use rumbench_core::linkbench::LinkKey;

/// First link type of LinkBench.
const FIRST_LINK_TYPE: u64 = 123_456_789;
/// Source nodes per client.
const IDS: u64 = 4;
const LINK_TYPES: u64 = 2;
/// Destinations per source node and type.
const DESTINATIONS: u64 = 6;
/// Distance between the source nodes of two clients.
const CLIENT_STRIDE: u64 = 1000;
/// Payload bytes of a link: near LinkBench's largest, so that files fill up and are flushed, and a
/// torn row shows.
const DATA_BYTES: usize = 200;

/// Effect of a commit on its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// ADD_LINK.
    Add,
    /// UPDATE_LINK.
    Update,
    /// DELETE_LINK: hides the link.
    Hide,
    /// DELETE_LINK with `expunge`: removes the link.
    Expunge,
}

/// One commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Link that it changes.
    pub key: LinkKey,
    /// Effect on the link.
    pub action: Action,
}

/// Expected state of a link: its visibility, and the commit that last wrote its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// 1 visible, 0 hidden.
    pub visibility: u8,
    /// Sequence number in payload and time.
    pub sequence: u64,
}

/// Links of one client after a number of its commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    seed: u64,
    client: u64,
    /// Number of commits made.
    pub commits: u64,
    /// Existing links, hidden ones included.
    pub links: BTreeMap<LinkKey, LinkState>,
}

impl Script {
    /// Returns the state before the first commit.
    pub fn new(seed: u64, client: u64) -> Script {
        Script {
            seed,
            client,
            commits: 0,
            links: BTreeMap::new(),
        }
    }

    /// Returns the number of the client.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Returns the same script before its first commit.
    pub fn restarted(&self) -> Script {
        Script::new(self.seed, self.client)
    }

    /// Returns all keys that a client may ever write.
    pub fn keys(client: u64) -> impl Iterator<Item = LinkKey> {
        (0..IDS * LINK_TYPES * DESTINATIONS).map(move |place| key(client, place))
    }

    /// Returns the next commit. Sequence numbers count from 1: the next one is `self.commits + 1`.
    pub fn next(&self) -> Commit {
        let random = mix(
            self.seed ^ self.client.wrapping_mul(0xA24B_AED4_963E_E407),
            self.commits + 1,
        );
        let key = key(self.client, random % (IDS * LINK_TYPES * DESTINATIONS));
        let visible = self
            .links
            .get(&key)
            .is_some_and(|link| link.visibility == 1);
        let action = match (random >> 32) % 8 {
            0 | 1 if visible => Action::Hide,
            2 if visible => Action::Expunge,
            3 | 4 => Action::Add,
            _ => Action::Update,
        };
        Commit { key, action }
    }

    /// Applies the next commit to the state.
    pub fn advance(&mut self) {
        let commit = self.next();
        self.commits += 1;
        match commit.action {
            Action::Add | Action::Update => {
                let state = LinkState {
                    visibility: 1,
                    sequence: self.commits,
                };
                self.links.insert(commit.key, state);
            }
            Action::Hide => {
                if let Some(link) = self.links.get_mut(&commit.key) {
                    link.visibility = 0;
                }
            }
            Action::Expunge => {
                self.links.remove(&commit.key);
            }
        }
    }
}

fn key(client: u64, place: u64) -> LinkKey {
    LinkKey {
        id1: 1 + client * CLIENT_STRIDE + place % IDS,
        link_type: FIRST_LINK_TYPE + place / IDS % LINK_TYPES,
        id2: 1 + place / (IDS * LINK_TYPES),
    }
}

/// Returns the splitmix64 value at `place` in the sequence of `seed`.
pub fn mix(seed: u64, place: u64) -> u64 {
    let mut z = seed.wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the payload of a link written by commit `sequence`: every byte follows from key and
/// number.
pub fn payload(key: LinkKey, sequence: u64) -> Vec<u8> {
    let mut data = sequence.to_le_bytes().to_vec();
    let mut block = 0;
    while data.len() < DATA_BYTES {
        let place = key.id1 ^ key.id2.rotate_left(20) ^ key.link_type.rotate_left(40);
        data.extend(mix(place ^ sequence, block).to_le_bytes());
        block += 1;
    }
    data.truncate(DATA_BYTES);
    data
}

/// Returns the commit that wrote a payload; `None` if no commit to this link could have.
pub fn sequence_of(key: LinkKey, data: &[u8]) -> Option<u64> {
    let sequence = u64::from_le_bytes(data.get(..8)?.try_into().ok()?);
    (data == payload(key, sequence)).then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_uses_all_actions_and_stays_on_its_own_keys() {
        let mut script = Script::new(7, 2);
        let keys: Vec<LinkKey> = Script::keys(2).collect();
        let mut seen = Vec::new();
        for _ in 0..500 {
            let commit = script.next();
            assert!(keys.contains(&commit.key));
            if !seen.contains(&commit.action) {
                seen.push(commit.action);
            }
            script.advance();
        }
        assert_eq!(seen.len(), 4);
        assert!(
            !keys
                .iter()
                .any(|key| Script::keys(1).any(|other| other == *key))
        );
    }

    #[test]
    fn payload_names_its_commit_and_a_torn_one_names_none() {
        let key = key(0, 3);
        let mut data = payload(key, 99);
        assert_eq!(sequence_of(key, &data), Some(99));
        data[150] ^= 1;
        assert_eq!(sequence_of(key, &data), None);
        assert_eq!(sequence_of(super::key(0, 4), &payload(key, 99)), None);
    }
}
