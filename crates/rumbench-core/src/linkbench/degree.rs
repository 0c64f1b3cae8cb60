//! Number of links per node: the measured out-degree tables and their split over link types.
//!
//! The tables are numeric data of LinkBench (Apache License 2.0, see `data/NOTICE`).

use std::sync::OnceLock;

/// Facebook's measurement of operation mix, payload sizes and out-degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// The measurement of July 2017.
    Y2017,
    /// The original measurement.
    Y2011,
}

/// Split of a node's links over the link types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Every type gets the same number, at least one.
    Revised,
    /// The reference's split, which computes the remainder wrongly (D4): nodes get more links than
    /// the table says.
    ClassicAsWritten,
    /// The intended split: the remainder goes to the first types.
    ClassicRepaired,
}

impl Split {
    /// Returns the links of type number `index` (from 0) of `types` for a node with `raw` links.
    #[inline]
    pub fn links(self, raw: u64, types: u64, index: u64) -> u64 {
        let each = raw / types;
        match self {
            Split::Revised => each.max(1),
            Split::ClassicAsWritten => each + u64::from(index < raw - each),
            Split::ClassicRepaired => each + u64::from(index < raw % types),
        }
    }
}

/// Cumulative distribution of out-degrees.
#[derive(Debug)]
pub struct DegreeTable {
    degrees: Vec<u64>,
    fractions: Vec<f64>,
}

impl DegreeTable {
    /// Returns the table of one measurement, parsed once per process.
    pub fn of(numbers: Numbers) -> &'static DegreeTable {
        static Y2017: OnceLock<DegreeTable> = OnceLock::new();
        static Y2011: OnceLock<DegreeTable> = OnceLock::new();
        match numbers {
            Numbers::Y2017 => {
                Y2017.get_or_init(|| DegreeTable::parse(include_str!("../../data/nlinks_2017.tsv")))
            }
            Numbers::Y2011 => {
                Y2011.get_or_init(|| DegreeTable::parse(include_str!("../../data/nlinks_2011.tsv")))
            }
        }
    }

    /// Parses a table. The text is part of the binary: a malformed line is a bug and fails the
    /// first test.
    fn parse(text: &str) -> DegreeTable {
        let rows = text
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        let (degrees, fractions) = rows
            .map(|line| {
                let (degree, percent) = line.split_once('\t').expect("two columns");
                let degree: u64 = degree.parse().expect("a degree");
                (
                    degree,
                    percent.parse::<f64>().expect("a percentage") / 100.0,
                )
            })
            .unzip();
        DegreeTable { degrees, fractions }
    }

    /// Returns the links of the node with this zero-based rank among `nodes`; rank 0 has the most.
    #[inline]
    pub fn raw(&self, rank: u64, nodes: u64) -> u64 {
        let u = 1.0 - rank as f64 / nodes as f64;
        // Four of five nodes have the smallest degree.
        if self.fractions[0] >= u {
            return self.degrees[0];
        }
        self.degrees[self.fractions.partition_point(|fraction| *fraction < u)]
    }

    /// Returns the degrees from the highest rank down, each with its number of nodes among `nodes`,
    /// in O(table * log nodes).
    pub fn census(&self, nodes: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut ranks_left = nodes;
        self.degrees
            .iter()
            .zip(&self.fractions)
            .map(move |(degree, fraction)| {
                // Finds the first rank with its u inside this entry. All ranks from there to the
                // previous entry's first rank have this degree.
                let (mut low, mut high) = (0, ranks_left);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if *fraction >= 1.0 - middle as f64 / nodes as f64 {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                let found = ranks_left - low;
                ranks_left = low;
                (*degree, found)
            })
    }
}
