//! The loaded graph: the links of every node and the contents of every loaded row.
//!
//! All of it is a function of the configuration and the row's key. Any number of loaders therefore
//! writes the same rows, and any row can be checked later.

use super::config::{Config, PayloadConfig};
use super::degree::{DegreeTable, Split};
use super::distribution::LogNormal;
use super::payload::PayloadGenerator;
use super::shuffle::{self, Shuffler};
use super::store::{Count, LinkKey};
use crate::random::{Random, mix};

/// First link type; the others count up from it.
pub const FIRST_LINK_TYPE: u64 = 123_456_789;
/// The type of every node.
pub const NODE_TYPE: u32 = 2048;
/// Exclusive upper bound of the length of link payloads in bytes.
pub const LINK_DATA_CAP: u64 = 255;
/// Exclusive upper bound of the length of node payloads in bytes.
pub const NODE_DATA_CAP: u64 = 1 << 20;

/// Purpose of a random stream; streams of different purposes are independent.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    LinkMotif = 1,
    NodeMotif,
    LinkRow,
    NodeRow,
    Destination,
    Sample,
    Client,
}

/// Row counts of a whole loaded graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphTotals {
    /// Node rows.
    pub nodes: u64,
    /// Link rows.
    pub links: u64,
    /// Count rows.
    pub counts: u64,
}

/// Loaded graph of one configuration.
#[derive(Debug)]
pub struct Graph {
    start_id: u64,
    nodes: u64,
    link_types: u64,
    split: Split,
    table: &'static DegreeTable,
    by_degree: Shuffler,
    links_max: u64,
    random_id2_max: u64,
    id2_stride: u64,
    seed: u64,
    load_time_ms: u64,
    link_data: (LogNormal, PayloadGenerator),
    node_data: (LogNormal, PayloadGenerator),
}

impl Graph {
    /// Creates the graph for a load that begins at `load_time_ms` since the epoch.
    pub fn new(config: &Config, load_time_ms: u64) -> Graph {
        let data = |payload: &PayloadConfig, cap, purpose: Purpose| {
            let mut random = Random::keyed(config.seed, &[purpose as u64]);
            let shape = config.effective_shape(payload);
            (
                LogNormal::new(payload.median, cap),
                PayloadGenerator::new(shape, &mut random),
            )
        };
        Graph {
            start_id: config.start_id,
            nodes: config.nodes,
            link_types: config.link_types,
            split: config.split(),
            table: DegreeTable::of(config.numbers),
            by_degree: Shuffler::new(shuffle::CORRELATED, config.nodes),
            links_max: config.capped(u64::MAX),
            random_id2_max: config.random_id2_max,
            id2_stride: coprime_stride(config.random_id2_max),
            seed: config.seed,
            load_time_ms,
            link_data: data(&config.link_payload, LINK_DATA_CAP, Purpose::LinkMotif),
            node_data: data(&config.node_payload, NODE_DATA_CAP, Purpose::NodeMotif),
        }
    }

    /// Returns the first loaded id.
    pub fn start_id(&self) -> u64 {
        self.start_id
    }

    /// Returns the number of loaded nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns the last loaded id plus one: the reference's `maxid1`.
    pub fn end_id(&self) -> u64 {
        self.start_id + self.nodes
    }

    /// Returns the number of link types.
    pub fn link_types(&self) -> u64 {
        self.link_types
    }

    /// Returns the length of a list: the number of loaded links of `id1` with type number `index`.
    #[inline]
    pub fn links(&self, id1: u64, index: u64) -> u64 {
        self.links_of_rank(self.by_degree.inverse(id1 - self.start_id), index)
    }

    #[inline]
    fn links_of_rank(&self, rank: u64, index: u64) -> u64 {
        self.split_degree(self.table.raw(rank, self.nodes), index)
    }

    #[inline]
    fn split_degree(&self, raw: u64, index: u64) -> u64 {
        self.split
            .links(raw.min(self.links_max), self.link_types, index)
    }

    /// Returns the id with this zero-based rank by out-degree.
    pub fn id_of_rank(&self, rank: u64) -> u64 {
        self.start_id + self.by_degree.permute(rank)
    }

    /// Returns the nodes whose list of the first link type, their longest, has more than `links`
    /// links, longest first.
    pub fn ids_with_lists_above(&self, links: u64) -> impl Iterator<Item = u64> + '_ {
        (0..self.nodes)
            .take_while(move |rank| self.links_of_rank(*rank, 0) > links)
            .map(|rank| self.id_of_rank(rank))
    }

    /// Returns the destination at `place` of a list. The load wrote the places below the list's
    /// length; later places are free for new links.
    #[inline]
    pub fn destination(&self, id1: u64, link_type: u64, place: u64) -> u64 {
        if self.random_id2_max == 0 {
            return id1 + place;
        }
        // The stride is coprime to the range, so the destinations of a list differ.
        let first = mix(mix(self.seed ^ Purpose::Destination as u64, id1), link_type);
        let steps = u128::from(place) * u128::from(self.id2_stride);
        ((u128::from(first) + steps) % u128::from(self.random_id2_max)) as u64
    }

    /// Returns true if the load wrote this link. Works only without `randomid2max`.
    pub fn is_loaded(&self, key: LinkKey) -> bool {
        debug_assert_eq!(self.random_id2_max, 0);
        let index = key.link_type.wrapping_sub(FIRST_LINK_TYPE);
        let inside = (self.start_id..self.end_id()).contains(&key.id1) && index < self.link_types;
        inside && key.id2 >= key.id1 && key.id2 - key.id1 < self.links(key.id1, index)
    }

    /// Returns the row counts of the whole graph.
    pub fn totals(&self) -> GraphTotals {
        let mut totals = GraphTotals {
            nodes: self.nodes,
            links: 0,
            counts: 0,
        };
        for (raw, nodes) in self.table.census(self.nodes) {
            for index in 0..self.link_types {
                let links = self.split_degree(raw, index);
                totals.links += links * nodes;
                totals.counts += u64::from(links > 0) * nodes;
            }
        }
        totals
    }

    /// Estimates the bytes of all keys and values, both indexes of links included.
    pub fn estimated_bytes(&self) -> u64 {
        let totals = self.totals();
        let node = 24.0 + self.node_data.0.mean();
        let link = (37.0 + self.link_data.0.mean()) * 2.0;
        (totals.nodes as f64 * node + totals.links as f64 * link + totals.counts as f64 * 40.0)
            as u64
    }

    /// Returns the time of a loaded link in milliseconds: uniform over the 2^32 ms before the load,
    /// independent of id2.
    #[inline]
    pub fn link_time(&self, key: LinkKey) -> u64 {
        self.time_from(&mut self.link_random(key))
    }

    /// Appends the payload of a loaded link to `out` and returns its time in milliseconds.
    #[inline]
    pub fn link_row(&self, key: LinkKey, out: &mut Vec<u8>) -> u64 {
        let mut random = self.link_random(key);
        let time = self.time_from(&mut random);
        let (length, content) = &self.link_data;
        let length = length.draw(&mut random);
        content.append(&mut random, length, out);
        time
    }

    fn link_random(&self, key: LinkKey) -> Random {
        let parts = [Purpose::LinkRow as u64, key.id1, key.link_type, key.id2];
        Random::keyed(self.seed, &parts)
    }

    fn time_from(&self, random: &mut Random) -> u64 {
        self.load_time_ms.saturating_sub(1 << 32) + (random.bits() >> 32)
    }

    /// Appends the payload of a loaded node to `out` and returns its time in seconds.
    pub fn node_row(&self, id: u64, out: &mut Vec<u8>) -> u32 {
        let mut random = Random::keyed(self.seed, &[Purpose::NodeRow as u64, id]);
        let (length, content) = &self.node_data;
        let length = length.draw(&mut random);
        content.append(&mut random, length, out);
        (self.load_time_ms / 1000) as u32
    }

    /// Returns the loaded count row of a list; `None` for an empty list. Costs one draw per link.
    pub fn count_row(&self, id1: u64, index: u64) -> Option<Count> {
        let link_type = FIRST_LINK_TYPE + index;
        let count = self.links(id1, index);
        let times = (0..count).map(|place| {
            let id2 = self.destination(id1, link_type, place);
            self.link_time(LinkKey {
                id1,
                link_type,
                id2,
            })
        });
        let time = times.max()?;
        Some(Count {
            id: id1,
            link_type,
            count,
            time,
            version: 0,
        })
    }
}

/// Returns a number near the golden section of `range` that has no common factor with it.
fn coprime_stride(range: u64) -> u64 {
    if range < 3 {
        return 1;
    }
    // range - 1 is coprime to range; in practice one of the first few numbers is.
    let start = (range as f64 * 0.618) as u64;
    (start..range)
        .find(|stride| gcd(*stride, range) == 1)
        .unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
