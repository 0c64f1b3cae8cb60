//! How many links a node has: the measured out-degree tables and their split over link types.
//!
//! The tables are numeric data of LinkBench (Apache License 2.0, see `data/NOTICE`).

use std::sync::OnceLock;

/// Which of Facebook's measurements: operation mix, payload sizes, out-degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Measured again in July 2017.
    Y2017,
    /// The original.
    Y2011,
}

/// How a node's links are split over the link types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Every type gets the same, at least one.
    Revised,
    /// The reference's split with what is left over computed wrongly (D4): more links than the table says.
    ClassicAsWritten,
    /// The split that was meant: what is left over goes to the first types.
    ClassicRepaired,
}

impl Split {
    /// Links of type number `index` (from 0) of `types` for a node of `raw` links.
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

/// A cumulative distribution of out-degrees.
#[derive(Debug)]
pub struct DegreeTable {
    degrees: Vec<u64>,
    fractions: Vec<f64>,
}

impl DegreeTable {
    /// The table of one measurement, parsed once per process.
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

    /// The text is part of the binary: a malformed line is a bug, found by the first test.
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

    /// Links of the node with this zero-based rank among `nodes`; rank 0 has the most.
    #[inline]
    pub fn raw(&self, rank: u64, nodes: u64) -> u64 {
        let u = 1.0 - rank as f64 / nodes as f64;
        // Four of five nodes have the smallest degree.
        if self.fractions[0] >= u {
            return self.degrees[0];
        }
        self.degrees[self.fractions.partition_point(|fraction| *fraction < u)]
    }

    /// The degrees from the highest rank down with how many of `nodes` nodes have each, in O(table * log nodes).
    pub fn census(&self, nodes: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut ranks_left = nodes;
        self.degrees
            .iter()
            .zip(&self.fractions)
            .map(move |(degree, fraction)| {
                // The first rank whose u is within this entry; all ranks from there to the previous entry's have it.
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
