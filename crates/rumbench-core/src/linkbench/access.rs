//! Popularity of the loaded ids for each kind of request.

use super::config::{AccessShape, Config, LinkAccessShape};
use super::distribution::{Popularity, Zipf};
use super::shuffle::{self, Shuffler};
use crate::random::Random;

/// Draws loaded ids for every use. Nodes added by requests are never drawn.
#[derive(Debug)]
pub struct Access {
    start_id: u64,
    by_degree: Shuffler,
    uncorrelated: Shuffler,
    by_node: Shuffler,
    reads: LinkAccess,
    writes: LinkAccess,
    node_reads: Popularity,
    node_updates: Popularity,
    node_deletes: Popularity,
}

/// Blend of two popularities, each with its own order of ids.
#[derive(Debug)]
struct LinkAccess {
    uncorrelated_share: f64,
    uncorrelated: Popularity,
    correlated: Popularity,
}

impl Access {
    /// Creates the access distributions of one configuration.
    pub fn new(config: &Config) -> Access {
        let nodes = config.nodes;
        let popularity = |shape: AccessShape| {
            if shape.uniform {
                Popularity::Uniform(nodes)
            } else {
                Popularity::Zipf(Zipf::new(nodes, shape.theta))
            }
        };
        let blend = |shape: LinkAccessShape| LinkAccess {
            uncorrelated_share: shape.uncorrelated_percent / 100.0,
            uncorrelated: popularity(shape.uncorrelated),
            correlated: popularity(shape.correlated),
        };
        Access {
            start_id: config.start_id,
            by_degree: Shuffler::new(shuffle::CORRELATED, nodes),
            uncorrelated: Shuffler::new(shuffle::UNCORRELATED, nodes),
            by_node: Shuffler::new(shuffle::NODE, nodes),
            reads: blend(config.reads),
            writes: blend(config.effective_writes()),
            node_reads: popularity(config.node_reads),
            node_updates: popularity(config.node_updates),
            node_deletes: popularity(config.node_deletes),
        }
    }

    /// Draws the source of a link read.
    #[inline]
    pub fn link_read(&self, random: &mut Random) -> u64 {
        self.link(&self.reads, random)
    }

    /// Draws the source of a link write.
    #[inline]
    pub fn link_write(&self, random: &mut Random) -> u64 {
        self.link(&self.writes, random)
    }

    /// Draws the id of a GET_NODE.
    pub fn node_read(&self, random: &mut Random) -> u64 {
        self.node(&self.node_reads, random)
    }

    /// Draws the id of an UPDATE_NODE.
    pub fn node_update(&self, random: &mut Random) -> u64 {
        self.node(&self.node_updates, random)
    }

    /// Draws the id of a DELETE_NODE.
    pub fn node_delete(&self, random: &mut Random) -> u64 {
        self.node(&self.node_deletes, random)
    }

    fn link(&self, access: &LinkAccess, random: &mut Random) -> u64 {
        let place = if random.unit() < access.uncorrelated_share {
            self.uncorrelated.permute(access.uncorrelated.draw(random))
        } else {
            self.by_degree.permute(access.correlated.draw(random))
        };
        self.start_id + place
    }

    fn node(&self, popularity: &Popularity, random: &mut Random) -> u64 {
        self.start_id + self.by_node.permute(popularity.draw(random))
    }
}
