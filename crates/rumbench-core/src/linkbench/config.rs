//! Configuration of one LinkBench trial. [`super::settings`] reads it.

use super::degree::{DegreeTable, Numbers, Split};
use super::payload::PayloadShape;
use crate::settings::ConfigError;
use crate::trial::PhaseEnd;

/// Number of operations in the mix of the request phase.
pub const OPERATIONS: usize = 10;

/// Rules that choose destinations and define an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Rules of 2020: an update goes to the link, random destinations miss.
    Revised,
    /// Rules of the original: an update is an add, destinations come from a widened range.
    Classic,
}

/// Treatment of the defects of the reference implementations, and of the growth of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reproduces the defects that decide the workload.
    Faithful,
    /// Repairs the defects.
    Fixed,
    /// Repairs the defects, and keeps the expected number of links of every id constant.
    Stationary,
}

/// Popularity of ids for one use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AccessShape {
    /// True if all ids are equally popular; false for Zipf.
    pub uniform: bool,
    /// Zipf shape theta.
    pub theta: f64,
}

/// Link access: a blend of ids in an order unrelated to out-degree and ids ordered by out-degree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkAccessShape {
    /// Popularity of ids ordered by out-degree.
    pub correlated: AccessShape,
    /// Popularity of ids in an order of their own.
    pub uncorrelated: AccessShape,
    /// Percentage of accesses that are uncorrelated.
    pub uncorrelated_percent: f64,
}

/// Number of ids in a multi-get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MultigetShape {
    /// True for always one id; false for a geometric number.
    pub single: bool,
    /// Fewest ids.
    pub min: u64,
    /// Exclusive upper bound of the number of ids.
    pub max: u64,
    /// Success probability of the geometric distribution.
    pub probability: f64,
}

/// Length and content of one kind of payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PayloadConfig {
    /// Median length in bytes.
    pub median: u64,
    /// Content of the payload.
    pub shape: PayloadShape,
}

/// Configuration of a LinkBench trial. `docs/guide/linkbench.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Number of loaded nodes.
    pub nodes: u64,
    /// Id of the first node.
    pub start_id: u64,
    /// Measurement that gives the default mix, the payload sizes and the out-degrees.
    pub numbers: Numbers,
    /// Rules for destinations and updates.
    pub rules: Rules,
    /// Treatment of the reference's defects and of drift.
    pub mode: Mode,
    /// Number of request phases.
    pub steps: u32,
    /// Number of clients in a request phase.
    pub clients: u32,
    /// Number of clients of the load; `None`: as many as in a request phase.
    pub loaders: Option<u32>,
    /// End of each request phase.
    pub end: PhaseEnd,
    /// End of the warm-up; `None`: no warm-up.
    pub warmup: Option<PhaseEnd>,
    /// Percentages of the ten operations, in the order of the mix; they sum to 100.
    pub mix: [f64; OPERATIONS],
    /// Number of link types.
    pub link_types: u64,
    /// Most links of one node over all types; 0: no limit beyond the degree table.
    pub links_max: u64,
    /// Exclusive upper bound of the ids of destinations; 0: destinations count up from id1.
    pub random_id2_max: u64,
    /// True if every client has its own destinations.
    pub id2_per_client: bool,
    /// Length and content of link payloads.
    pub link_payload: PayloadConfig,
    /// Length and content of node payloads.
    pub node_payload: PayloadConfig,
    /// Popularity of sources for counts, multi-gets and lists.
    pub reads: LinkAccessShape,
    /// Popularity of sources for adds, deletes and updates of links.
    pub writes: LinkAccessShape,
    /// Popularity of ids for GET_NODE.
    pub node_reads: AccessShape,
    /// Popularity of ids for UPDATE_NODE.
    pub node_updates: AccessShape,
    /// Popularity of ids for DELETE_NODE.
    pub node_deletes: AccessShape,
    /// Number of ids per multi-get.
    pub multiget: MultigetShape,
    /// Percentage of list queries that continue a long list.
    pub history_percent: f64,
    /// Most rows of a list query.
    pub list_limit: usize,
    /// Rows of one load commit.
    pub bulk_rows: usize,
    /// KiB of one node load commit; 0: no limit.
    pub bulk_kb: u64,
    /// Consecutive ids in one piece of the load.
    pub chunk_ids: u64,
    /// Lists longer than this are loaded in pieces of this many links.
    pub split_rows: u64,
    /// Most links that a client keeps hidden in mode stationary.
    pub hidden_links: usize,
    /// Seed of all data and all requests.
    pub seed: u64,
}

/// Name of the workload in messages.
pub(super) const WORKLOAD: &str = "linkbench";

impl Config {
    /// Returns the defaults of one measurement. 2011 differs from 2017 in the mix and the payload
    /// sizes.
    pub fn new(numbers: Numbers) -> Config {
        let zipf = |theta| AccessShape {
            uniform: false,
            theta,
        };
        let payload = |median, start_byte, end_byte, uniqueness, motif_bytes| PayloadConfig {
            median,
            shape: PayloadShape {
                start_byte,
                end_byte,
                uniqueness,
                motif_bytes,
            },
        };
        let (mix, link_median, node_median) = match numbers {
            Numbers::Y2017 => (MIX_2017, 23, 168),
            Numbers::Y2011 => (MIX_2011, 8, 128),
        };
        Config {
            nodes: 1_000_000,
            start_id: 1,
            numbers,
            rules: Rules::Revised,
            mode: Mode::Faithful,
            steps: 1,
            clients: 1,
            loaders: None,
            end: PhaseEnd::Seconds(60.0),
            warmup: None,
            mix,
            link_types: 2,
            links_max: 0,
            random_id2_max: 0,
            id2_per_client: false,
            link_payload: payload(link_median, 32, 100, 0.225, 128),
            node_payload: payload(node_median, 50, 220, 0.63, 512),
            reads: LinkAccessShape {
                correlated: zipf(0.8),
                uncorrelated: zipf(0.8),
                uncorrelated_percent: 99.5,
            },
            writes: LinkAccessShape {
                correlated: zipf(0.741),
                uncorrelated: zipf(0.741),
                uncorrelated_percent: 95.0,
            },
            node_reads: zipf(0.625),
            node_updates: zipf(0.606),
            node_deletes: AccessShape {
                uniform: true,
                theta: 0.606,
            },
            multiget: MultigetShape {
                single: false,
                min: 1,
                max: 128,
                probability: 0.382,
            },
            history_percent: 0.3,
            list_limit: 10_000,
            bulk_rows: 1024,
            bulk_kb: 0,
            chunk_ids: 2048,
            split_rows: 16_384,
            hidden_links: 64,
            seed: 1,
        }
    }

    /// Checks the conditions that involve several keys.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |reason: String| {
            Err(ConfigError::Combination {
                workload: WORKLOAD,
                reason,
            })
        };
        let sum: f64 = self.mix.iter().sum();
        if (sum - 100.0).abs() > 1e-5 {
            return refuse(format!(
                "the ten percentages of the mix must sum to 100, not to {sum}"
            ));
        }
        if self.multiget.min >= self.multiget.max {
            return refuse(
                "link_multiget_dist_min must be below link_multiget_dist_max".to_owned(),
            );
        }
        for (name, shape) in [
            ("link", self.link_payload.shape),
            ("node", self.node_payload.shape),
        ] {
            if shape.start_byte > shape.end_byte {
                return refuse(format!(
                    "{name}_datagen_startbyte must not be above {name}_datagen_endbyte"
                ));
            }
        }
        if self.random_id2_max > 0 && self.random_id2_max < self.longest_list() {
            return refuse(format!(
                "randomid2max must be 0 or at least the longest list's {} links, so that its destinations differ",
                self.longest_list()
            ));
        }
        if self.mode == Mode::Stationary {
            if self.rules == Rules::Classic {
                return refuse(
                    "mode=stationary needs rules=revised, whose destinations it can follow"
                        .to_owned(),
                );
            }
            if self.random_id2_max > 0 || self.id2_per_client {
                return refuse("mode=stationary chooses destinations itself: leave randomid2max and id2gen_config at 0".to_owned());
            }
        }
        Ok(())
    }

    /// Returns the split of a node's links over types under these rules and this mode.
    pub fn split(&self) -> Split {
        match (self.rules, self.mode) {
            (Rules::Revised, _) => Split::Revised,
            (Rules::Classic, Mode::Faithful) => Split::ClassicAsWritten,
            (Rules::Classic, _) => Split::ClassicRepaired,
        }
    }

    /// Caps `raw`, the links of one node in the degree table, at the configured maximum.
    pub fn capped(&self, raw: u64) -> u64 {
        match self.links_max {
            0 => raw,
            most => raw.min(most),
        }
    }

    fn longest_list(&self) -> u64 {
        let raw = DegreeTable::of(self.numbers).raw(0, self.nodes);
        self.split().links(self.capped(raw), self.link_types, 0)
    }

    /// Returns the link write access of the mode. The reference reads the uncorrelated part from
    /// the keys of link reads (D1).
    pub fn effective_writes(&self) -> LinkAccessShape {
        match self.mode {
            Mode::Faithful => LinkAccessShape {
                correlated: self.writes.correlated,
                ..self.reads
            },
            _ => self.writes,
        }
    }

    /// Returns the payload content of the mode. The reference never finds the motif length (D2).
    pub fn effective_shape(&self, payload: &PayloadConfig) -> PayloadShape {
        let motif_bytes = match self.mode {
            Mode::Faithful => 512,
            _ => payload.shape.motif_bytes,
        };
        PayloadShape {
            motif_bytes,
            ..payload.shape
        }
    }
}

/// Percentages in the order ADD_LINK, DELETE_LINK, UPDATE_LINK, COUNT_LINK, MULTIGET_LINK,
/// GET_LINKS_LIST, ADD_NODE, UPDATE_NODE, DELETE_NODE, GET_NODE.
const MIX_2017: [f64; OPERATIONS] = [
    5.35038, 0.98401, 4.75589, 4.27898, 12.14725, 22.57039, 2.61198, 3.06256, 0.25166, 43.9869,
];
const MIX_2011: [f64; OPERATIONS] = [
    8.9886601, 2.9907664, 8.0122125, 4.8863567, 0.5261142, 50.7119145, 2.5732789, 7.366437,
    1.0115914, 12.9326683,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[(&str, &str)]) -> String {
        Config::from_pairs(pairs.iter().copied())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn defaults_of_both_measurements_are_accepted_and_printed_settings_read_back() {
        for numbers in ["2017", "2011"] {
            let config =
                Config::from_pairs([("numbers", numbers), ("warmup_operations", "10")]).unwrap();
            let read_back = Config::from_pairs(config.settings()).unwrap();
            assert_eq!(read_back.settings(), config.settings());
        }
    }

    #[test]
    fn numbers_choose_defaults_wherever_they_stand_and_keys_override_them() {
        let config = Config::from_pairs([("node_datasize", "7"), ("numbers", "2011")]).unwrap();
        assert_eq!(
            (config.node_payload.median, config.link_payload.median),
            (7, 8)
        );
        assert_eq!(config.mix, MIX_2011);
    }

    #[test]
    fn an_unknown_key_is_named() {
        assert_eq!(refusal(&[("node", "5")]), "unknown linkbench setting node");
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        assert_eq!(
            refusal(&[("nodes", "0")]),
            "linkbench setting nodes=0: a whole number from 1 to 1099511627776 is allowed"
        );
        assert!(refusal(&[("numbers", "2012")]).contains("2017 or 2011"));
        assert!(refusal(&[("addlink", "50")]).contains("sum to 100"));
        assert!(refusal(&[("read_shape", "1")]).contains("except 1"));
        assert!(refusal(&[("seconds", "1"), ("operations", "1")]).contains("not both"));
        assert!(refusal(&[("read_function", "real")]).contains("not reproduced"));
        assert!(refusal(&[("nlinks_func", "PERFECT_SQUARES")]).contains("not reproduced"));
        assert!(refusal(&[("mode", "stationary"), ("rules", "classic")]).contains("revised"));
        assert!(refusal(&[("randomid2max", "1000")]).contains("2090678 links"));
    }

    #[test]
    fn faithful_writes_take_the_uncorrelated_part_from_the_keys_of_reads() {
        let faithful = Config::new(Numbers::Y2017).effective_writes();
        assert_eq!(faithful.uncorrelated_percent, 99.5);
        assert_eq!(
            (faithful.uncorrelated.theta, faithful.correlated.theta),
            (0.8, 0.741)
        );
        let fixed = Config::from_pairs([("mode", "fixed")])
            .unwrap()
            .effective_writes();
        assert_eq!(
            (fixed.uncorrelated_percent, fixed.uncorrelated.theta),
            (95.0, 0.741)
        );
    }
}
